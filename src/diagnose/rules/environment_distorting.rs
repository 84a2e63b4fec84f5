//! # What it means
//!
//! The environment sets variables that change the CUDA driver's behaviour. Programs may be slow on a healthy machine.
//!
//! # What to do
//!
//! If programs with this environment are slow, unset the variables. To measure under compute-sanitizer or a profiler
//! (`CUDA_INJECTION64_PATH`), set `PEERSCOPE_KEEP_CUDA_ENVIRONMENT=1`.
//!
//! # How it is detected
//!
//! peerscope's own environment has `CUDA_LAUNCH_BLOCKING`, `CUDA_DEVICE_MAX_CONNECTIONS`, `CUDA_INJECTION32_PATH`,
//! `CUDA_INJECTION64_PATH`, `CUDA_DEVICE_WAITS_ON_EXCEPTION`, or those of GPU core dumps. The process that measures
//! runs without them and without an MPS daemon (of `CUDA_MPS_PIPE_DIRECTORY`, or the default `/tmp/nvidia-mps`).
//!
//! # Sources
//!
//! CUDA C Programming Guide, CUDA environment variables. On a healthy 4 x H200 every copy failed with
//! `CUDA_LAUNCH_BLOCKING=1`.

use super::prelude::*;

rule! {
    "environment-distorting", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let removed = &evidence.measured().driver.environment_removed;
    let variables: Facts = removed.iter().filter_map(|one| one.split_once('=')).collect();
    let count = words::count(removed.len(), "variable");
    let message = format!("Measured without {count} of the environment; {}", removed.join(", "));
    let steps = [Step::Nothing(Fine::Always), Step::UnsetForOthers];
    let found = RULE.on_machine(message, steps);
    (!removed.is_empty()).then(|| found.fact("removed", variables))
}
