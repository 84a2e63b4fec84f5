//! Xid errors that the driver reports, as events of NVML. They need no root, as the kernel's log mostly does.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper::EventSet;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::{Nvml, error};
use model::reading::Unknown;

/// Most errors that are taken at once. Chosen: a GPU that fails reports some a second.
const MOST: usize = 64;
/// The code of an error that NVML does not know.
const UNKNOWN: u32 = 999;

/// The events of one GPU, or the reason why there are none. They are never freed, as NVML is never shut down.
type Events = Result<ManuallyDrop<EventSet<'static>>, Unknown>;

/// Listens for Xid errors. Each GPU has events of its own, and a lock of its own: NVML can block for minutes on one of them.
#[derive(Default)]
pub(crate) struct Xids {
    listening: AtomicBool,
    gpus: Mutex<HashMap<u32, Arc<Mutex<Option<Events>>>>>,
}

impl Xids {
    /// Begins to listen with the next call for each GPU.
    pub(crate) fn listen(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Returns the errors of a GPU since the last call; `None` if nobody listens.
    pub(crate) fn since(&self, nvml: Nvml, index: u32) -> Option<Result<Vec<u32>, Unknown>> {
        if !self.listening.load(Ordering::Relaxed) {
            return None;
        }
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::clone(gpus.entry(index).or_default());
        drop(gpus);
        let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
        let events = own.get_or_insert_with(|| open(nvml, index));
        let taken = events.as_ref().map_err(Clone::clone);
        Some(taken.and_then(|events| take(events)))
    }
}

/// Takes the events that have come, without a wait.
fn take(events: &EventSet<'static>) -> Result<Vec<u32>, Unknown> {
    let mut codes = Vec::new();
    while codes.len() < MOST {
        match events.wait(0) {
            Ok(event) => codes.extend(event.event_data.map(|error| match error {
                XidError::Value(code) => u32::try_from(code).unwrap_or(UNKNOWN),
                XidError::Unknown => UNKNOWN,
            })),
            Err(NvmlError::Timeout) => break,
            Err(failure) => return Err(error::unknown(failure)),
        }
    }
    Ok(codes)
}

fn open(nvml: Nvml, index: u32) -> Events {
    let device = nvml.device(index).0?;
    let events = nvml.nvml.create_event_set().map_err(error::unknown)?;
    device
        .register_events(EventTypes::CRITICAL_XID_ERROR, events)
        .map(ManuallyDrop::new)
        .map_err(|failure| error::unknown(failure.error))
}
