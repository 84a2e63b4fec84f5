//! # What it means
//!
//! Several copies at once through one part of the machine reach less together than one of them reaches alone.
//!
//! # How it is detected
//!
//! In every pattern of several flows (`measurements.load`), the sum of the flows that pass one hop of the graph is
//! compared with the fastest of them alone (`measurements.peer`, `measurements.host`). It is a collapse if the sum lies
//! more than `below_alone_percent` below that, and below what the rest of the route explains. The hop is the one that
//! all such patterns pass and that carried as much in no other pattern. If several remain, all are named. Flows that
//! are slow alone do not cause a finding here: other rules report them.
//!
//! # Why it matters
//!
//! Pairs that are measured one after the other do not show this, and it slows every collective operation.
//!
//! # What to do
//!
//! Stop other work and check again. If it stays: look at the error counters of the link (lspci -vvv, AER; nvidia-smi
//! nvlink -e), update the firmware of the parts it passes, reseat the parts below the link, and swap them with others.
//!
//! # Sources
//!
//! 8 x H200: one GPU receives 399 GB/s from seven others at once, and 396 from one (measured). Public cases in which
//! each pair was fine and two at once were not.

use super::load::{self, COLLAPSE, Low};
use super::load_steps;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new(
    "load-collapses",
    Severity::Error,
    include_str!("load_collapses.rs"),
    judge,
)
.with(&[COLLAPSE]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let below = RULE.parameter(evidence, &COLLAPSE);
    let lows: Vec<Low<'_>> = load::low(evidence, below)
        .into_iter()
        .filter(|low| low.collapse)
        .collect();
    let message = |place: &str, low: &Low<'_>| {
        let alone = low
            .judged
            .best_alone(&low.flows)
            .map(GbPerSecond)
            .unwrap_or(low.explained());
        format!(
            "{} at once through {place} reach {} GB/s together, less than one of them alone ({alone} GB/s): {}",
            words::count(low.flows.len(), "flow"),
            low.together(),
            low.judged.pattern.name(),
        )
    };
    let plan = |low: &Low<'_>| load_steps::of_low(low, Step::UpdateHop);
    load::findings(evidence, &RULE, &lows, message, plan)
}

/// Returns the links that other findings on several flows name, or may mean.
pub(crate) fn named_links(evidence: &Evidence<'_>) -> BTreeSet<load::Ends> {
    let below = RULE.parameter(evidence, &COLLAPSE);
    let links = load::low(evidence, below)
        .into_iter()
        .flat_map(|low| low.links);
    links
        .map(|link| load::ends((link.upper, link.lower)))
        .collect()
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
