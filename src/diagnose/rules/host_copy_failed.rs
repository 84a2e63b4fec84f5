//! # What it means
//!
//! The driver gave an error for a copy between the memory of the host and a GPU, or the copy never ended.
//!
//! # How it is detected
//!
//! A measurement (`measurements.host`) failed with an error of the driver, which the message repeats, or did not end
//! before its deadline. Memory that could not be page-locked is `pinning-refused`.
//!
//! # Why it matters
//!
//! Nothing can be loaded onto this GPU, or not reliably.
//!
//! # What to do
//!
//! Look for Xid messages in the kernel's log (`dmesg | grep -i xid`) and look them up in NVIDIA's list. Check the GPU
//! alone (`--gpus`) to see whether it repeats; then reset it or power-cycle the machine.
//!
//! # Sources
//!
//! CUDA driver API, `CUresult`; NVIDIA's Xid errors page.

use super::prelude::*;
use crate::model::host::HostCopy;

/// The rule.
pub const RULE: Rule = Rule::new("host-copy-failed", Severity::Error, include_str!("host_copy_failed.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    // `host-data-wrong` reports wrong bytes, whatever became of the timing.
    let is_bad = |copy: &&HostCopy| matches!(copy.status, Status::Failed | Status::Hung) && !copy.verified.is_wrong();
    let mut by_gpu: BTreeMap<u32, Vec<&HostCopy>> = BTreeMap::new();
    for copy in evidence.host().iter().filter(is_bad) {
        by_gpu.entry(copy.gpu).or_default().push(copy);
    }
    by_gpu.into_iter().map(|(gpu, bad)| finding(evidence, gpu, &bad)).collect()
}

fn finding(evidence: &Evidence<'_>, gpu: u32, bad: &[&HostCopy]) -> Finding {
    let hung = bad.iter().any(|copy| copy.status == Status::Hung);
    let reasons = words::distinct(bad.iter().filter_map(|copy| copy.reason.as_deref()));
    let ways = words::distinct(bad.iter().map(|copy| copy.way().to_string()));
    let message = format!(
        "Copies between the host and {} {} ({ways}): {}",
        words::gpu(evidence.snapshot, gpu),
        if hung { "never end" } else { "fail" },
        if reasons.is_empty() { "no reason given" } else { &reasons },
    );
    let next_step = "Look for Xid messages (dmesg | grep -i xid) and check this GPU alone (--gpus). If it repeats: reset \
        it or power-cycle the machine, then swap it with another to see whether the fault moves with it";
    RULE.finding(Subject::Gpu { index: gpu }, message, next_step)
        .gpus(&[gpu])
        .fact("measurements", bad.len())
        .fact("reasons", reasons)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::prelude::*;
    use crate::diagnose::testing::with_host;

    #[test]
    fn a_copy_that_fails_is_an_error_of_its_gpu() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        let cell = &mut measurements.host[0];
        (cell.status, cell.achieved_gbps) = (Status::Failed, None);
        cell.reason = Some("cuMemcpyDtoHAsync: an illegal address (700)".into());
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "host-copy-failed", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 0 });
        assert!(own.message.contains("fail (pinned, to host): cuMemcpyDtoHAsync"), "{}", own.message);
    }
}
