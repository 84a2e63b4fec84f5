//! The state of a process that has the driver open: devices, contexts, handles.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUevent, CUstream};

use super::super::nvml::Nvml;
use super::affinity::Affinity;
use super::gate::Gate;
use super::held::Held;
use super::kernels::Kernels;
use super::startup::{self, Answer, Context, Loaded};
use super::table::Table;
use hardware::{Buffer, Device, DeviceInfo, Driver, ErrorKind, Event, HardwareError, Stream};

/// Least share of the limit for each step, regardless of how long the steps before took.
const LEAST_SHARE: f64 = 0.05;

/// Share of the time limit for the driver's start after which unfinished contexts are abandoned. At the end of the
/// limit, the parent gives up the whole worker.
const CONTEXTS_UNTIL: f64 = 0.75;
/// The same share for kernels.
const KERNELS_UNTIL: f64 = 0.9;

/// The CUDA driver of this machine.
pub(crate) struct CudaDriver {
    /// Never freed: a thread that hangs in the driver may still hold it.
    pub(super) table: &'static Table,
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) handles: Vec<CUdevice>,
    pub(super) started: Instant,
    pub(super) start_limit: Duration,
    pub(super) init_seconds: f64,
    pub(super) context_seconds: Cell<f64>,
    pub(super) opened: RefCell<Vec<Option<Opened>>>,
    /// Reasons why the kernels could not be loaded, for the devices where that failed.
    pub(super) kernels_failures: RefCell<HashMap<Device, HardwareError>>,
    pub(super) streams: RefCell<Vec<CUstream>>,
    pub(super) events: RefCell<Vec<CUevent>>,
    pub(super) buffers: RefCell<Vec<Option<Held>>>,
    /// Parts of buffers, by the id of the whole, offset and length.
    pub(super) parts: RefCell<HashMap<(u32, u64, u64), Buffer>>,
    pub(super) current: Cell<Option<Device>>,
    pub(super) gate: OnceCell<Gate>,
    /// Streams that were held since the last release, of devices that report when they wait.
    pub(super) held: RefCell<Vec<Stream>>,
    pub(super) affinity: Affinity,
    /// NVML, for the counters of single links. Started when they are first asked for.
    pub(super) nvml: OnceCell<Result<Nvml, HardwareError>>,
}

/// A device with its context.
pub(super) struct Opened {
    pub(super) context: Context,
    pub(super) loaded: Option<Loaded>,
}

impl CudaDriver {
    /// Loads the library, initialises it and lists its devices. Devices that are not fully up within `start_limit` will
    /// be abandoned.
    ///
    /// # Errors
    ///
    /// The library is missing, is a stub, does not fit the kernel driver, or shows no GPU.
    pub(crate) fn open(start_limit: Duration) -> Result<Self, HardwareError> {
        let started = Instant::now();
        let table: &'static Table = Box::leak(Box::new(Table::load()?));
        // SAFETY: the first call into the library, with the only flag value there is.
        let code = unsafe { (table.init)(0) };
        table.check("cuInit", code).map_err(no_driver)?;
        let init_seconds = started.elapsed().as_secs_f64();

        let (devices, handles) = startup::devices(table).map_err(no_driver)?.into_iter().unzip();
        let devices: Vec<DeviceInfo> = devices;
        let opened = devices.iter().map(|_| None).collect();
        Ok(Self {
            table,
            devices,
            handles,
            started,
            start_limit,
            init_seconds,
            context_seconds: Cell::new(0.0),
            opened: RefCell::new(opened),
            kernels_failures: RefCell::default(),
            streams: RefCell::new(Vec::new()),
            events: RefCell::new(Vec::new()),
            buffers: RefCell::new(Vec::new()),
            parts: RefCell::default(),
            current: Cell::new(None),
            gate: OnceCell::new(),
            held: RefCell::default(),
            affinity: Affinity::default(),
            nvml: OnceCell::new(),
        })
    }

    /// Creates contexts and loads kernels, on all these devices at once.
    pub(super) fn start_devices(&self, devices: &[Device]) -> Vec<Result<(), HardwareError>> {
        let handles: Vec<_> = devices.iter().map(|&device| self.handle(device)).collect();
        let began = Instant::now();
        let contexts = startup::contexts(self.table, handles.clone(), self.left(CONTEXTS_UNTIL));
        self.context_seconds.set(self.context_seconds.get() + began.elapsed().as_secs_f64());
        let mut results = Vec::new();
        let mut usable = Vec::new();
        for ((&device, handle), context) in devices.iter().zip(&handles).zip(contexts) {
            results.push(match context {
                Answer::Given(Ok(context)) => {
                    if let Some(slot) = self.opened.borrow_mut().get_mut(device.0 as usize) {
                        *slot = Some(Opened { context, loaded: None });
                    }
                    usable.extend(
                        handle
                            .as_ref()
                            .ok()
                            .map(|&handle| (results.len(), device, handle, context)),
                    );
                    Ok(())
                }
                Answer::Given(Err(error)) | Answer::Late(error) => Err(error),
            });
        }
        let Some(&(_, first, ..)) = usable.first() else {
            return results;
        };
        let places = self.enter(first).and_then(|()| self.gate()).and_then(|gate| {
            let place = |&(_, device, handle, context): &(_, _, _, _)| {
                Ok((handle, context, gate.addresses(device)?))
            };
            usable.iter().map(place).collect()
        });
        let loaded = match places {
            Ok(places) => startup::kernels(self.table, places, self.left(KERNELS_UNTIL)),
            Err(error) => usable.iter().map(|_| Answer::Given(Err(error.clone()))).collect(),
        };
        for (&(index, device, ..), loaded) in usable.iter().zip(loaded) {
            match loaded {
                Answer::Given(Ok(loaded)) => {
                    if let Some(Some(opened)) = self.opened.borrow_mut().get_mut(device.0 as usize)
                    {
                        opened.loaded = Some(loaded);
                    }
                }
                Answer::Given(Err(error)) => {
                    drop(self.kernels_failures.borrow_mut().insert(device, error))
                }
                // Forget the context: any other call to this device would hang as well.
                Answer::Late(error) => {
                    if let Some(slot) = self.opened.borrow_mut().get_mut(device.0 as usize) {
                        *slot = None;
                    }
                    results[index] = Err(error);
                }
            }
        }
        results
    }

    /// Returns the time left until this share of the limit.
    fn left(&self, share: f64) -> Duration {
        let until = self.start_limit.mul_f64(share);
        until.saturating_sub(self.started.elapsed()).max(self.start_limit.mul_f64(LEAST_SHARE))
    }

    pub(super) fn handle(&self, device: Device) -> Result<CUdevice, HardwareError> {
        self.handles.get(device.0 as usize).copied().ok_or_else(|| unknown("device", device.0))
    }

    pub(super) fn context(&self, device: Device) -> Result<Context, HardwareError> {
        let opened = self.opened.borrow();
        let opened = opened.get(device.0 as usize).and_then(Option::as_ref);
        opened.map(|opened| opened.context).ok_or_else(|| unknown("context of device", device.0))
    }

    /// Makes the device's context current on this thread.
    pub(super) fn enter(&self, device: Device) -> Result<(), HardwareError> {
        if self.current.get() == Some(device) {
            return Ok(());
        }
        let context = self.context(device)?;
        // SAFETY: the context was retained and is never released.
        let code = unsafe { (self.table.context_set_current)(context.0) };
        self.table.check("cuCtxSetCurrent", code)?;
        self.current.set(Some(device));
        Ok(())
    }

    pub(super) fn stream(&self, stream: Stream) -> Result<CUstream, HardwareError> {
        match stream.id {
            0 => Ok(std::ptr::null_mut()),
            id => self
                .streams
                .borrow()
                .get(id as usize - 1)
                .copied()
                .ok_or_else(|| unknown("stream", id)),
        }
    }

    pub(super) fn event(&self, event: Event) -> Result<CUevent, HardwareError> {
        self.events
            .borrow()
            .get(event.id as usize)
            .copied()
            .ok_or_else(|| unknown("event", event.id))
    }

    /// Creates an event of a device.
    pub(super) fn new_event(&self, device: Device, timed: bool) -> Result<Event, HardwareError> {
        /// CU_EVENT_DISABLE_TIMING.
        const UNTIMED: u32 = 2;
        self.enter(device)?;
        let mut event = std::ptr::null_mut();
        let flags = if timed { 0 } else { UNTIMED };
        // SAFETY: writes one event handle.
        let result = unsafe { (self.table.event_create)(&raw mut event, flags) };
        let event = self.table.made("cuEventCreate", result, event)?;
        let mut events = self.events.borrow_mut();
        events.push(event);
        Ok(Event { device, id: u32::try_from(events.len() - 1).unwrap_or(u32::MAX) })
    }

    /// Stores a buffer, and returns its handle.
    pub(super) fn keep(&self, held: Held) -> Buffer {
        let (location, bytes) = (held.location, held.bytes);
        let mut buffers = self.buffers.borrow_mut();
        buffers.push(Some(held));
        Buffer { location, id: u32::try_from(buffers.len() - 1).unwrap_or(u32::MAX), bytes }
    }

    /// Returns the address of a buffer, if it has at least `bytes` bytes.
    pub(super) fn address(&self, buffer: Buffer, bytes: u64) -> Result<*mut c_void, HardwareError> {
        let buffers = self.buffers.borrow();
        let held = buffers.get(buffer.id as usize).and_then(Option::as_ref);
        let held = held.filter(|held| held.location == buffer.location);
        let held = held.ok_or_else(|| unknown("buffer", buffer.id))?;
        if bytes > held.bytes {
            return Err(HardwareError::new(
                ErrorKind::Other,
                format!("{bytes} bytes do not fit the buffer"),
            ));
        }
        Ok(held.pointer)
    }

    /// Runs a function with the kernels of a device, its context current.
    pub(super) fn with_kernels<T>(
        &self,
        device: Device,
        run: impl FnOnce(&Kernels, CUdeviceptr) -> Result<T, HardwareError>,
    ) -> Result<T, HardwareError> {
        self.enter(device)?;
        let opened = self.opened.borrow();
        let opened = opened.get(device.0 as usize).and_then(Option::as_ref);
        match opened {
            Some(Opened { loaded: Some(loaded), .. }) => run(&loaded.kernels, loaded.counts),
            _ => Err(self.kernels_failure(device).unwrap_or_else(|| {
                HardwareError::new(
                    ErrorKind::Unsupported,
                    format!("device {} has no kernels loaded", device.0),
                )
            })),
        }
    }

    /// Returns the gate. Allocates its words at the first call; some context must be current.
    pub(super) fn gate(&self) -> Result<&Gate, HardwareError> {
        if self.gate.get().is_none() {
            let gate = Gate::new(self.table, self.devices.len())?;
            // The cell cannot be set already: it belongs to this thread.
            let _ = self.gate.set(gate);
        }
        self.gate.get().ok_or_else(|| unknown("gate", 0))
    }
}

pub(super) fn unknown(what: &str, id: u32) -> HardwareError {
    HardwareError::new(ErrorKind::Other, format!("there is no {what} {id}"))
}

fn no_driver(error: HardwareError) -> HardwareError {
    match error.kind {
        ErrorKind::Hindered => error,
        _ => HardwareError { kind: ErrorKind::NoDriver, ..error },
    }
}
