//! # What it means
//!
//! A pair, or all pairs of a GPU, are slower than equals in this machine. A link that is a little slow today is often
//! the next to fail.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again: a fault that moves from pair to pair is noise. If it stays with one GPU
//! or link, look for link errors, clocks that are held back, and other traffic on the same switch. Then swap the GPU:
//! does the fault move?
//!
//! # How it is detected
//!
//! Reference figures that one change of the machine slows, or three figures of one pair, lie below the better pairs
//! connected alike by more than a parameter. None lies below its floor (`peer-bandwidth-low`), and not one direction
//! alone is slow (`peer-bandwidth-asymmetric`).
//!
//! # Sources
//!
//! 8 x H200: 56 pairs within 1% of each other (measured).

use super::peers::{self, Explained, Figures};
use super::prelude::*;
use super::{peer_bandwidth_asymmetric, remedy};

rule! {
    "peer-bandwidth-outlier", Warning, All(judge);
    /// of a pair; 1 was measured on H200, repeats elsewhere spread by 5 to 10 (cuda-samples issue 449)
    OUTLIER: below_median_percent = 10.0;
    /// of all pairs of a GPU in one direction; chosen: six times the 1 between pairs on H200
    GPU: gpu_below_median_percent = 6.0;
    /// over NVLink, if six or more copies agree within 1%; chosen below one of 18 NVLinks, which is 5.6
    AMONG_EQUALS: among_equals_percent = 4.5;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let explained = peers::explained(evidence, Figures::Direct).into_iter();
    let below = explained.filter(|one| {
        (one.has_cause() || one.is_repeated())
            && !one.is_low(evidence)
            && peer_bandwidth_asymmetric::shown_by(evidence, one).is_none()
    });
    below.filter_map(|one| finding(evidence, &one)).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let (group, worst) = (&explained.group, explained.worst()?);
    // How other tools' pairs are connected may not be known.
    let is_known = |pair: &Pair| evidence.over_nvlink(*pair) || evidence.over_pcie(*pair);
    let everywhere = group.common == Common::Everything && evidence.read_from.is_some();
    if everywhere && !group.pairs.iter().all(is_known) {
        return None;
    }
    let margin = match group.common {
        Common::Gpu(_) => &GPU,
        _ => &OUTLIER,
    };
    let margin = margin.of(evidence);
    let margin = match worst.siblings_agree {
        true => margin.min(AMONG_EQUALS.of(evidence)),
        false => margin,
    };
    if worst.below_percent() <= margin.max(evidence.scatter_percent()) {
        return None;
    }
    let counters = remedy::counters(evidence, &group.pairs);
    let message = format!(
        "Copies {} reach {} GB/s, {:.0}% less than the {} of pairs connected alike",
        evidence.place(group),
        worst.achieved,
        worst.below_percent(),
        worst.healthy,
    );
    let plan = Plan::check_without(Work::OnGpus).if_it_stays([
        counters,
        Step::Clocks,
        Step::Swap(Part::of(&group.gpus())),
    ]);
    let found = explained.finding((&RULE, evidence), message, plan);
    Some(found.suspecting(suspects::of_slow_group(evidence, group)))
}
