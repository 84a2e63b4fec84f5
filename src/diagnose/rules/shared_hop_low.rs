//! # What it means
//!
//! A link that several copies share carries less than it should: each copy is as fast alone as it should be, and all
//! together are slow.
//!
//! # How it is detected
//!
//! In every pattern of several flows (`measurements.load`), the sum of the flows that pass one hop of the graph is
//! compared with what single flows explain. That is max-min fair shares of the graph, in which no flow has more than it
//! reached alone, and a hop of unknown rate carries what one flow got through it. A sum below that by more than the
//! margin of its class is low. The hop is the one that all such patterns pass and that carried as much in no other
//! pattern. If several remain, all are named. `load-collapses` reports sums below a single flow.
//!
//! # Why it matters
//!
//! All programs that use the GPUs behind this link at the same time run at this rate.
//!
//! # What to do
//!
//! Stop other work and check again. If it stays: look at the error counters of the link (lspci -vvv, AER; nvidia-smi
//! nvlink -e), compare with a machine of the same kind, reseat the parts below the link, and swap them with others.
//!
//! # Sources
//!
//! 8 x H200: 399 GB/s into one GPU from all others at once, 390 each if every GPU sends and receives, 396 alone
//! (measured).

use super::load::{self, COLLAPSE, Low};
use super::load_steps;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new(
    "shared-hop-low",
    Severity::Error,
    include_str!("shared_hop_low.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let below = super::load_collapses::RULE.parameter(evidence, &COLLAPSE);
    let lows: Vec<Low<'_>> = load::low(evidence, below)
        .into_iter()
        .filter(|low| !low.collapse)
        .collect();
    let message = |place: &str, low: &Low<'_>| {
        format!(
            "{} at once through {place} reach {} GB/s together, {:.0}% of the {} that each alone and the links allow: {}",
            words::count(low.flows.len(), "flow"),
            low.together(),
            low.together().percent_of(low.explained()),
            low.explained(),
            low.judged.pattern.name(),
        )
    };
    let plan = |low: &Low<'_>| load_steps::of_low(low, Step::CompareAlike);
    load::findings(evidence, &RULE, &lows, message, plan)
}
