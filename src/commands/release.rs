//! The end of the last worker. The driver takes its contexts down, 0.2 s for 4 GPUs and 0.8 s for 8, while the
//! report is there already.
//!
//! A check that found nothing does not wait for that. The worker has the lock of the machine too, so the next check
//! waits for it instead ([`super::turn`]); and a program that starts meanwhile is served by the driver after it. Two
//! things are refused to whoever comes too early: a context on a GPU in exclusive mode, and the reset of a GPU, which
//! may be what somebody does who reads of a fault. Then it is waited for.

use crate::model::snapshot::{ComputeMode, Snapshot};
use crate::worker::Worker;
use crate::worker::start;

/// Whether a GPU admits one process at a time.
pub fn is_exclusive(snapshot: &Snapshot) -> bool {
    let mode = |mode| {
        matches!(
            mode,
            ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread
        )
    };
    snapshot
        .gpus
        .iter()
        .filter_map(|gpu| gpu.compute_mode.get())
        .any(mode)
}

/// Lets go of a worker that was killed, or waits for its end. A sentence where that does not come.
pub fn release(mut worker: Worker, waits: bool) -> Option<String> {
    if !waits {
        worker.leave();
        return None;
    }
    worker.end();
    worker.stuck().map(start::stuck)
}
