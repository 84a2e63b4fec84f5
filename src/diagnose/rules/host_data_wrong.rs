//! # What it means
//!
//! A copy between host and GPU ended without an error, but with wrong bytes. Programs compute with wrong numbers, or
//! save them.
//!
//! # What to do
//!
//! Take the GPU out of service. Look for its Xid messages and PCIe errors (`dmesg`), and for memory errors of the
//! host (EDAC, `mcelog`). Switch off an IOMMU that translates and check again. Then swap the GPU with another to see
//! if the fault moves with it, and test the memory of the host.
//!
//! # How it is detected
//!
//! The source holds a pattern of GPU, direction and offset, the destination poison. Afterwards the GPU itself or the
//! host checks the destination: poison means dropped, anything else but the pattern corrupt.
//!
//! # Sources
//!
//! CUDA driver API, memory copies; NVIDIA's Xid errors page; PCI Express Base Specification (end-to-end CRC is
//! optional).

use super::prelude::*;
use model::host::HostCopy;

pub(crate) const RULE: Rule = Rule::of_one("host-data-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let wrong = evidence.host().iter().filter(|copy| copy.verified.is_wrong());
    let wrong: Vec<&HostCopy> = wrong.collect();
    let gpus: Vec<u32> = words::unique(wrong.iter().map(|copy| copy.gpu));
    if gpus.is_empty() {
        return None;
    }
    let count = |verified| wrong.iter().filter(|copy| copy.verified == verified).count();
    let (dropped, corrupt) = (count(Verified::Dropped), count(Verified::Corrupt));
    let stale = count(Verified::Stale);
    let what = match (dropped, stale, corrupt) {
        (0, _, 0) => "are lost in some copies",
        (_, _, 0) => "never arrive",
        (0, 0, _) => "arrive wrong",
        _ => "arrive wrong or never",
    };
    let ways = words::distinct(wrong.iter().map(|copy| copy.way().to_string()));
    let detail = wrong.iter().find_map(|copy| copy.verification_detail.as_deref());
    let detail = words::after(": ", detail);
    let message = format!(
        "Bytes of copies between the host and {} {what} ({ways}){detail}",
        words::named(evidence.snapshot, &gpus)
    );
    let setting = suspects::pass_through(evidence, &gpus, Ask::Iommu);
    let plan = Plan::until_repair([Step::OutOfService(all(&gpus))])
        .and(When::Now, [Step::Xid, Step::EdacLog])
        .and(When::Now, setting)
        .and(When::Now, [Step::Swap(Part::Gpu(one_of(&gpus)))]);
    let found = RULE
        .finding(Subject::of_gpus(&gpus), message, plan)
        .gpus(&gpus)
        .fact("dropped", dropped)
        .fact("stale", stale)
        .fact("corrupt", corrupt);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;

    #[test]
    fn bytes_that_do_not_arrive_are_an_error_whatever_the_rate() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        measurements.host[3].verified = Verified::Dropped;
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "host-data-wrong", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 1 });
        assert!(own.message.contains("never arrive (pinned, to device)"), "{}", own.message);
        assert_eq!(exit(&found, Some(&measurements)), 1);
    }
}
