//! Traffic of other programs on a simulated machine. Its clock advances with every reading of a GPU, and no copy of
//! this program is counted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::spec::{MachineSpec, OthersWork, Traffic};
use hardware::Moved;
use model::background::Moment;

/// Time from one reading of a GPU to the next.
const STEP: Duration = Duration::from_millis(30);
/// Readings taken before the first copy.
const LOOKS_AT_START: u32 = 3;

/// Number of readings of each GPU.
#[derive(Debug)]
pub(super) struct Looks(Vec<AtomicU32>);

impl Looks {
    pub(super) fn new(gpus: usize) -> Self {
        Self((0..gpus).map(|_| AtomicU32::new(0)).collect())
    }

    /// Returns the data that a GPU has moved by now.
    pub(super) fn moved(&self, spec: &MachineSpec, index: u32) -> Moved {
        let look =
            self.0.get(index as usize).map_or(0, |looks| looks.fetch_add(1, Ordering::Relaxed));
        let others = spec
            .faults
            .others
            .iter()
            .filter(|others| others.gpu == index && !others.is_only_under_load());
        let has_nvlink = spec.gpus.get(index as usize).is_some_and(|gpu| !gpu.nvlinks.is_empty());
        let sum = |rates: fn(&OthersWork) -> [Traffic; 2]| {
            let bytes = |way: usize| {
                others.clone().map(|others| bytes(*rates(others)[way], active(others, look))).sum()
            };
            [bytes(0), bytes(1)]
        };
        let now = if look < LOOKS_AT_START { Moment::Start } else { Moment::End };
        let at_work = others.clone().filter(|others| others.only_at.is_none_or(|only| only == now));
        if at_work.clone().any(|others| others.unread) {
            return Moved {
                failure: Some("NVML: unknown error of the driver (999)".into()),
                ..Moved::default()
            };
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a counter that wraps, as the real one does"
        )]
        let wrapped = sum(|others| others.pcie).map(|bytes: u64| u64::from(bytes as u32));
        Moved {
            asked: STEP * look,
            answered: STEP * look,
            nvlink: has_nvlink.then(|| sum(|others| others.nvlink)),
            pcie: Some(wrapped),
            pcie_rates: None,
            failure: None,
            utilization_percent: Some(at_work.map(|others| *others.utilization).max().unwrap_or(0)),
        }
    }
}

/// Returns the time that another program had been active by this reading.
fn active(others: &OthersWork, look: u32) -> Duration {
    let start = LOOKS_AT_START - 1;
    STEP * match others.only_at {
        None => look,
        Some(Moment::Start) => look.min(start),
        Some(Moment::End) => look.saturating_sub(start),
        Some(Moment::Load) => 0,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a description has no negative rate"
)]
fn bytes(gbps: f64, time: Duration) -> u64 {
    (gbps * 1e9 * time.as_secs_f64()) as u64
}
