//! # What it means
//!
//! Several copies through one part reach less together than one alone. Pairs measured one after the other do not show
//! it, and it slows every collective operation.
//!
//! # What to do
//!
//! Stop other work and check again. If it stays: look at the error counters of the link (lspci -vvv, AER; nvidia-smi
//! nvlink -e), update the firmware of the parts it passes, reseat the parts below the link, and swap them with
//! others.
//!
//! # How it is detected
//!
//! A change of the machine slows several flows at once (`measurements.load`) and no single flow. The flows through
//! the changed part lie more than `below_alone_percent` below the fastest of them alone (`measurements.peer`,
//! `measurements.host`), and below what the rest of the route explains. Links that exactly the same flows pass are
//! all named.
//!
//! # Sources
//!
//! 8 x H200: one GPU receives 399 GB/s from seven others at once, and 396 from one (measured).

use super::load::{self, COLLAPSE, Low};
use super::load_steps;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("load-collapses", Severity::Error, judge).with(&[COLLAPSE]);

/// Returns what only several flows at once show.
pub(super) fn lows<'a>(evidence: &Evidence<'a>) -> Vec<Low<'a>> {
    load::low(evidence, RULE.parameter(evidence, &COLLAPSE))
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let lows = lows(evidence).into_iter();
    lows.filter(|low| low.collapse).map(|low| finding(evidence, &low)).collect()
}

fn finding(evidence: &Evidence<'_>, low: &Low<'_>) -> Finding {
    let alone = low.judged.best_alone(&low.flows).map(GbPerSecond);
    let message = |place: &str| {
        format!(
            "{} at once through {place} reach {} GB/s together, less than one of them alone ({} GB/s): {}",
            words::count(low.flows.len(), "flow"),
            low.together(),
            alone.unwrap_or(low.explained()),
            low.judged.pattern.name(),
        )
    };
    let plan = load_steps::of_low(low, Step::UpdateHop);
    load::finding(evidence, &RULE, low, message, plan)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
