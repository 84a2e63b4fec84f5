//! The driver's clock, as its machine's telemetry knows it. The driver belongs to another process, which reports it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The driver's clock over all workers, nanoseconds, as far as it was reported.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// Notes the time.
    pub(super) fn passed(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the time, seconds.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)).as_secs_f64()
    }
}
