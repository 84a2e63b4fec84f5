//! # What it means
//!
//! Between two GPUs, copies in one direction are clearly slower than in the other.
//!
//! # How it is detected
//!
//! The reference figures (copy engine, issued by the source, one way, side streams, peer access on) of both directions
//! of a pair are compared. The slower one must lie below the other by more than the parameter, and by more than the
//! spread of both. `peer-bandwidth-low` covers a direction that lies below its floor, and shows the other direction
//! beside it. `unstable-measurement` covers a direction whose rows scatter by more than is usual. Several pairs that
//! share one GPU or one link are one finding.
//!
//! If six or more such figures scatter among themselves, a figure must also lie below what their scatter allows
//! (docs/measurement.md, "Scatter of figures that should be equal").
//!
//! # Why it matters
//!
//! Links carry both directions at the same rate, so a difference is a fault or a setting. Every exchange waits for the
//! slower direction.
//!
//! # What to do
//!
//! Stop other work on both GPUs and check again, since work in one direction slows that direction. Then look for errors
//! of the links on the route (`nvidia-smi nvlink -e`, the PCIe counters in `nvidia-smi -q`): lanes are wired by
//! direction. Over PCIe, compare ACS and the BIOS setting for relaxed ordering, and swap the two GPUs to see if the
//! slow direction moves with them.
//!
//! # Sources
//!
//! Measured on 8 x H200: both directions of every pair within 0.3% of each other. Published figures
//! of both directions of a pair agree as well (nvbandwidth, 396.25 to 396.49 GB/s).

use super::bandwidth::{self, Compared};
use super::prelude::*;
use super::unstable_measurement;
use explain::scatter;

const BELOW: Parameter = Parameter {
    name: "below_other_direction_percent",
    default: 15.0,
    about: "how far below its other direction a pair may be; 0.3 was measured on H200, and repeats spread by 5 to 10 \
            elsewhere (cuda-samples issue 449)",
};

pub(crate) const RULE: Rule = Rule::new(
    "peer-bandwidth-asymmetric",
    Severity::Warning,
    include_str!("peer_bandwidth_asymmetric.rs"),
    judge,
)
.with(&[BELOW]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let (slower, seen) = asymmetric(evidence);
    let bad: Vec<_> = slower.iter().map(|compared| compared.pair).collect();
    let groups = cluster::groups(&bad, &seen, evidence.topology);
    groups
        .iter()
        .filter_map(|group| finding(evidence, group, &slower))
        .collect()
}

fn finding(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    slower: &[Compared],
) -> Option<Finding> {
    let worst = bandwidth::lowest(slower, group)?;
    let place = match (&group.common, group.pairs.as_slice()) {
        (cluster::Common::OnePair, [pair]) => pair.to_string(),
        _ => group.place(evidence.snapshot),
    };
    let counters = match group.pairs.iter().any(|pair| evidence.over_pcie(*pair)) {
        true => Step::PcieErrors,
        false => Step::LinkErrors,
    };
    let plan = Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain])
        .if_it_stays([counters, Step::Swap(Part::Gpu(OneOf(group.gpus())))]);
    let mut found = RULE
        .finding(
            group.subject(),
            format!(
                "Copies {place} reach {} GB/s, the other direction {} GB/s: {:.0}% less one way than the other",
                worst.achieved,
                worst.normal,
                worst.below_percent(),
            ),
            plan,
        )
        .fact("lowest_achieved", worst.achieved)
        .fact("other_direction", worst.normal)
        .fact("below_other_direction", Fact::percent(worst.below_percent()))
        .pairs(&group.pairs);
    found.suspects = suspects::of_slow_copies(evidence, &group.pairs);
    Some(found)
}

/// Returns pairs above their floor that are clearly slower than their other direction, and the pairs of which both
/// directions could be compared.
pub(crate) fn asymmetric(evidence: &Evidence<'_>) -> (Vec<Compared>, Vec<Pair>) {
    let margin = RULE.parameter(evidence, &BELOW);
    let mut low = bandwidth::low_pairs(evidence);
    low.extend(unstable_measurement::scattering(evidence));
    let cells = bandwidth::sound(evidence, Path::Direct);
    // One ratio for each pair: a slow crossing of sockets gives half of them another value, and not three quarters.
    let once = cells
        .iter()
        .filter(|(pair, _)| pair.source < pair.destination);
    let ratios = once.filter_map(|(pair, cell)| {
        let other = cells.get(&pair.reversed())?;
        Some(cell.achieved_gbps?.percent_of(other.achieved_gbps?))
    });
    let margin = margin.max(scatter::allowance(ratios));
    let (mut slower, mut seen) = (Vec::new(), Vec::new());
    for (pair, cell) in cells.iter().filter(|(pair, _)| !low.contains(pair)) {
        let Some(other) = cells.get(&pair.reversed()) else {
            continue;
        };
        let Some(compared) = Compared::of(cell, other) else {
            continue;
        };
        seen.push(*pair);
        if compared.is_below(margin) {
            slower.push(compared);
        }
    }
    (slower, seen)
}
