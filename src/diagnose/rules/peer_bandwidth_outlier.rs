//! # What it means
//!
//! A pair, or all pairs of a GPU, are slower than equals in this machine. A link that is a little slow today is often
//! the next to fail.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again: a fault that moves from pair to pair is noise. If it stays with one
//! GPU or link, look for link errors, clocks that are held back, and other traffic on the same switch. Then swap the
//! GPU with another to see if the fault moves.
//!
//! # How it is detected
//!
//! Reference figures that one change of the machine slows lie below the better pairs connected alike by more than a
//! parameter; that among equals applies where six or more copies over NVLink agree within about 1%. None lies below
//! its floor (`peer-bandwidth-low`), not one direction alone is slow (`peer-bandwidth-asymmetric`). Three or more
//! low figures of one pair count too.
//!
//! # Sources
//!
//! 8 x H200: 56 pairs within 1% of each other (measured).

use super::peers::{self, Explained, Figures};
use super::prelude::*;
use super::{peer_bandwidth_asymmetric, remedy};

rule! {
    "peer-bandwidth-outlier", Warning, All(judge);
    /// how far below the median of comparable pairs a pair may be; 1 was measured on H200, and repeats spread by 5 to
    /// 10 elsewhere (cuda-samples issue 449)
    OUTLIER: below_median_percent = 10.0;
    /// the same for all pairs of a GPU in one direction, in the middle; each lies below by half of it. Chosen: six
    /// times the 1 that was measured between pairs on H200
    GPU: gpu_below_median_percent = 6.0;
    /// the same for pairs and GPUs over NVLink if the comparable pairs agree. Chosen: twice what the explanation of the
    /// figures then allows; one of 18 NVLinks is 5.6
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
