//! # What it means
//!
//! The environment sets variables that change the behaviour of the CUDA driver.
//!
//! # How it is detected
//!
//! peerscope looks for these variables in its own environment: `CUDA_LAUNCH_BLOCKING`, `CUDA_DEVICE_MAX_CONNECTIONS`,
//! `CUDA_INJECTION32_PATH`, `CUDA_INJECTION64_PATH`, `CUDA_DEVICE_WAITS_ON_EXCEPTION`, and those of GPU core dumps. The
//! process that measures is started without them, so figures and verdict are those of the machine. It is also kept away
//! from an MPS daemon: the one that `CUDA_MPS_PIPE_DIRECTORY` names, or the one at its default, `/tmp/nvidia-mps`. The
//! finding is information.
//!
//! # Why it matters
//!
//! With `CUDA_LAUNCH_BLOCKING` every call waits for the GPU: nothing overlaps, and programs are slow on a healthy
//! machine. The others make streams wait for each other, load other code into the driver, or stop a GPU at an error. A
//! program that joins an MPS daemon shares a server with all its other clients.
//!
//! # What to do
//!
//! Nothing for this check. If programs that run with the same environment are slow, unset the variables there. To
//! measure under compute-sanitizer or a profiler, which need `CUDA_INJECTION64_PATH`, set
//! `PEERSCOPE_KEEP_CUDA_ENVIRONMENT=1`.
//!
//! # Sources
//!
//! CUDA C Programming Guide, CUDA environment variables; CUDA-GDB, GPU core dump support. On a
//! healthy 4 x H200 every copy failed with `CUDA_LAUNCH_BLOCKING=1` in the process that measures.

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::of_one("environment-distorting", Severity::Info, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let removed = &evidence.measured().driver.environment_removed;
    let variables: Facts = removed.iter().filter_map(|one| one.split_once('=')).collect();
    let message = format!("Measured without what the environment sets: {}", removed.join(", "));
    let steps = [Step::Nothing(Fine::ForThisCheck), Step::UnsetForOthers];
    let found = RULE.finding(Subject::Machine, message, steps);
    (!removed.is_empty()).then(|| found.fact("removed", variables))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn it_is_named_and_changes_no_verdict() {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        measurements.driver.environment_removed = vec!["CUDA_LAUNCH_BLOCKING=1".into()];
        let found = findings(&machine, Some(&measurements));
        only(&found, "environment-distorting", Severity::Info);
        assert!(found[0].message.contains("CUDA_LAUNCH_BLOCKING=1"), "{}", found[0].message);
        assert_eq!(exit(&found, Some(&measurements)), 0);
        assert_advice(&RULE, &found, &["unset"], &["nothing"]);
    }
}
