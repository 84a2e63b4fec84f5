//! # What it means
//!
//! A link that several copies share carries less than it should. Each copy alone is fast.
//!
//! # What to do
//!
//! Check again with the machine idle. If it stays: look at the errors of the link (lspci -vvv, AER; nvidia-smi nvlink
//! -e), compare with a machine of the same kind, reseat the parts below the link, and swap them.
//!
//! # How it is detected
//!
//! A change of a link slows several flows at once (`measurements.load`) and none alone. Together they reach less than
//! single flows explain (max-min fair shares), by more than the margin of their class. Sums below a single flow are
//! `load-below-expected`.
//!
//! # Sources
//!
//! 8 x H200: 399 GB/s into one GPU from all others, 390 each if every GPU sends and receives, 396 alone (measured).

use super::load::{self, Low};
use super::load_below_expected;
use super::load_steps;
use super::prelude::*;

rule! {
    "shared-hop-low", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let lows = load_below_expected::lows(evidence)
        .into_iter()
        .filter(|low| !low.collapse && !low.links.is_empty());
    lows.map(|low| finding(evidence, &low)).collect()
}

fn finding(evidence: &Evidence<'_>, low: &Low<'_>) -> Finding {
    let message = |place: &str| {
        format!(
            "{} at once through {place} reach {} GB/s, {:.0}% of the {} that it allows; {}",
            words::count(low.flows.len(), "flow"),
            low.together(),
            low.together().percent_of(low.explained()),
            low.explained(),
            low.judged.pattern.name(),
        )
    };
    let plan = load_steps::of_low(low, Step::CompareAlike);
    load::finding(evidence, &RULE, low, message, plan)
}
