//! # What it means
//!
//! The driver returned an error for a copy between two GPUs. Programs that use both fail in the same way.
//!
//! # What to do
//!
//! Look for Xid messages in the kernel's log (`dmesg | grep -i xid`) and look them up in NVIDIA's list. An error of
//! memory (ECC, a row remapping that is pending) needs a reset of the GPU, or its replacement. Check the pair alone
//! (`--gpus`) to see if the failure repeats.
//!
//! # How it is detected
//!
//! A measurement failed with an error of the driver, which the message repeats.
//!
//! # Sources
//!
//! CUDA driver API, `CUresult`; NVIDIA's Xid errors page.

use super::peer_copy;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("peer-copy-failed", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    peer_copy::findings(&RULE, evidence, Status::Failed, "fail", &|group| {
        let gpus = group.gpus();
        Plan::now([Step::Xid, Step::CheckAlone(all(&gpus))])
            .if_it_stays([Step::PowerCycle, Step::Swap(Part::Gpu(OneOf(gpus)))])
    })
}
