//! # What it means
//!
//! Between two GPUs, copies in one direction are clearly slower than in the other.
//!
//! # What to do
//!
//! Check again with both GPUs idle. Look for errors of the links on the route (`nvidia-smi nvlink -e`, the PCIe
//! counters in `nvidia-smi -q`): lanes are wired by direction. Over PCIe, compare ACS and the BIOS setting for
//! relaxed ordering, and swap the GPUs: does the slow direction move?
//!
//! # How it is detected
//!
//! One reference figure lies below its other direction by more than the parameter, and one change explains all such
//! figures. Below the floor it is `peer-bandwidth-low`.
//!
//! # Sources
//!
//! Figures of both directions of a pair agree (nvbandwidth, 396.25 to 396.49 GB/s).

use super::peers::{self, Explained, Figures, Slow};
use super::prelude::*;
use super::remedy;

rule! {
    "peer-bandwidth-asymmetric", Warning, All(judge);
    /// how far below its other direction a pair may be; 0.3 was measured on H200, repeats elsewhere spread by 5 to 10
    /// (cuda-samples issue 449)
    BELOW: below_other_direction_percent = 15.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let explained = peers::explained(evidence, Figures::Direct).into_iter();
    let one_way = explained.filter_map(|one| {
        let worst = shown_by(evidence, &one)?;
        Some(finding(evidence, &one, &worst))
    });
    one_way.collect()
}

/// Returns the copy that is slowest beside its other direction, if that is what a change shows.
pub(super) fn shown_by<'a>(evidence: &Evidence<'a>, explained: &Explained<'a>) -> Option<Slow<'a>> {
    let worst = explained.one_way(evidence)?;
    let margin = BELOW.of(evidence);
    let is_clear = worst.below_percent() > margin.max(evidence.scatter_percent());
    (is_clear && !explained.is_low(evidence)).then_some(worst)
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>, worst: &Slow<'_>) -> Finding {
    let group = &explained.group;
    let place = evidence.place(group);
    let counters = remedy::counters(evidence, &group.pairs);
    let plan = Plan::check_without(Work::OnGpus)
        .if_it_stays([counters, Step::Swap(Part::of(&group.gpus()))]);
    let message = format!(
        "Copies {place} reach {} GB/s, the other direction {}, {:.0}% less",
        worst.achieved,
        worst.healthy,
        worst.below_percent(),
    );
    explained
        .finding((&RULE, evidence), message, plan)
        .suspecting(suspects::of_slow_copies(evidence, &group.pairs))
}
