//! # What it means
//!
//! One of two GPUs can reach the other's memory directly, but not the reverse. Most programs query one direction and
//! assume the other: they fail, or exchange at two speeds.
//!
//! # What to do
//!
//! Compare the two GPUs: size of the BAR1 window (`nvidia-smi -q`), MIG and compute mode, driver options. The GPU
//! whose memory cannot be reached is the suspect, since access needs a window into its memory. Then reboot; if it
//! stays, swap the GPU with another.
//!
//! # How it is detected
//!
//! CUDA's answer for each direction counts if CUDA was asked, otherwise NVML's. Pairs that share one GPU are one
//! finding. With MIG, and if CUDA returned an error, it is `peer-access-missing`.
//!
//! # Sources
//!
//! CUDA driver API, `cuDeviceCanAccessPeer` and `cuCtxEnablePeerAccess` (access is granted for one direction).

use super::peer_access;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("peer-access-one-way", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let missing = peer_access::missing(evidence);
    let bad: Vec<_> = missing.one_way.iter().map(|route| route.pair).collect();
    let groups = cluster::groups(&bad, &missing.seen, evidence.topology);
    groups.iter().map(|group| finding(evidence, group)).collect()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
    let place = match (&group.common, group.pairs.as_slice()) {
        (cluster::Common::OnePair, [pair]) => {
            format!("from GPU {} to GPU {}", pair.source, pair.destination)
        }
        _ => group.place(evidence.snapshot),
    };
    let over_pcie = group.pairs.iter().any(|pair| evidence.over_pcie(*pair));
    let look = match over_pcie {
        true => vec![Step::Bar1AndModes],
        false => vec![Step::Xid, Step::LinkStates, Step::LinkErrors, Step::Modes],
    };
    let plan = Plan::now(look)
        .and(When::Now, [Step::Reboot, Step::CheckAgain])
        .if_it_stays([Step::Swap(Part::Gpu(OneOf(group.gpus())))]);
    let mut found = peer_access::found(
        &RULE,
        evidence,
        group.subject(),
        format!("No peer access {place}, while the other direction has it"),
        &group.pairs,
        plan,
    );
    // Copies over NVLink pass no window of the PCI bus.
    let window = over_pcie.then(|| suspect(Cause::SmallWindow, [Step::Bar1, Step::Above4G]));
    let driver = suspect(Cause::PatchedOrOptions, [Step::DriverOptions, Step::StockDriver]);
    found.suspects = window.into_iter().chain([driver]).collect();
    found
}
