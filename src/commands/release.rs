//! Ends the last worker. The driver takes its contexts down, 0.2 s for 4 GPUs and 0.8 s for 8, while the report exists
//! already.
//!
//! A check that found nothing does not wait for that. The worker holds the lock of the machine too, so the next check
//! waits for it instead ([`super::machine_lock`]). The driver serves any other program that starts meanwhile after the worker.
//! Two things are refused if they come too early: a context on a GPU in exclusive mode, and the reset of a GPU.
//! Somebody who reads of a fault may try a reset. In these cases the check waits.

use model::snapshot::{ComputeMode, Snapshot};
use run::worker::{Worker, start};

/// Returns true if a GPU admits one process at a time.
pub(super) fn is_exclusive(snapshot: &Snapshot) -> bool {
    let mode = |mode| matches!(mode, ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread);
    snapshot.gpus.iter().filter_map(|gpu| gpu.compute_mode.get()).any(mode)
}

/// Lets go of a worker that was killed, or waits for its end. Returns a sentence if it does not end.
pub(super) fn release(mut worker: Worker, waits: bool) -> Option<String> {
    if !waits {
        worker.leave();
        return None;
    }
    worker.end();
    worker.stuck().map(start::stuck)
}
