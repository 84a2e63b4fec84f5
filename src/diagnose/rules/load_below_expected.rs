//! # What it means
//!
//! Several copies at once are slower than their rates alone explain, and no link that they share shows why.
//!
//! # How it is detected
//!
//! All flows of a pattern together (`measurements.load`) reach less than the rate of each alone and the links of the
//! graph allow. They reach less by more than the margin of their class. Every flow is as fast alone as it should be,
//! and `load-collapses` and `shared-hop-low` report no hop that it passes. The finding is information if part of the
//! route is within the processors, whose rates no interface reports.
//!
//! In some patterns (all pairs, a ring both ways) GPUs send to several GPUs, and these receive from several. Copies
//! then take turns, in an order that differs between runs. In the worst order all flows together reach the rate of the
//! slowest flow alone, so only less than that is reported.
//!
//! # Why it matters
//!
//! Collective operations use all these routes at once, and wait for the slowest flow.
//!
//! # What to do
//!
//! Stop other work and check again with `--profile full`, which copies in more patterns. Behind NVSwitches, look at the
//! switches' logs (nvidia-smi nvlink, dmesg, the fabric manager's log): all flows share the switches.
//!
//! # Sources
//!
//! 4 x H200: a ring both ways reaches 792, 1165 or 1554 GB/s in all, depending on the run (measured, 2026-11-22).
//!
//! 8 x H200: 390 GB/s for each of eight flows at once, 394 to 395 for four disjoint ones, 396 alone (measured).

use std::cmp::Ordering;

use super::load::{self, Judged};
use super::load_collapses;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new(
    "load-below-expected",
    Severity::Warning,
    include_str!("load_below_expected.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let known = load_collapses::named_links(evidence);
    let percent = |judged: &Judged<'_>| {
        let all = judged.all();
        100.0 * Judged::sum(&judged.achieved, &all)
            / Judged::sum(&judged.explained, &all).max(f64::MIN_POSITIVE)
    };
    let is_low = |judged: &Judged<'_>| {
        let all = judged.all();
        let floor = if judged.takes_turns() {
            judged.floor_in_any_order()
        } else {
            judged.floor(&all)
        };
        Judged::sum(&judged.achieved, &all) < floor && judged.predicted.are_healthy_alone(&all)
    };
    let low: Vec<Judged<'_>> = load::judged(evidence)
        .into_iter()
        .filter(|judged| is_low(judged) && !load::passes(judged, &known))
        .collect();
    // Patterns of known links first: no invisible hop may explain them.
    let order = |judged: &&Judged<'_>| (!load::is_all_known(judged), percent(judged));
    let worst = low.iter().min_by(|one, other| {
        order(one)
            .partial_cmp(&order(other))
            .unwrap_or(Ordering::Equal)
    });
    let Some(worst) = worst else {
        return Vec::new();
    };
    let all = worst.all();
    let (achieved, explained) = (
        GbPerSecond(Judged::sum(&worst.achieved, &all)),
        GbPerSecond(Judged::sum(&worst.explained, &all)),
    );
    let more = match low.len() {
        1 => String::new(),
        more => format!("; so are {}", words::count(more - 1, "other pattern")),
    };
    let (severity, why, plan) = if load::is_all_known(worst) {
        let own = match worst.pairs().iter().any(|pair| evidence.over_nvlink(*pair)) {
            false => vec![Step::PcieErrors],
            true if evidence.virtual_machine() => {
                vec![Step::LinkErrors, Step::AskHost(Ask::NvSwitches)]
            }
            true => vec![Step::LinkErrors, Step::NvLinkLog, Step::FabricLog],
        };
        let first = [
            Step::Stop(Work::OnMachine),
            Step::CheckFull(Full::MorePatterns),
        ];
        (
            RULE.severity,
            "no link that they share shows why",
            Plan::now(first).if_it_stays(own),
        )
    } else {
        (
            Severity::Info,
            "what joins the processors, whose rate no interface reports, may be why",
            Plan::now([Step::CompareAlike, Step::Nothing(Fine::IfReached)]),
        )
    };
    let message = format!(
        "{} at once ({}) reach {achieved} GB/s together, {:.0}% of the {explained} that each alone and the links allow: \
         {why}{more}",
        words::count(worst.pattern.flows.len(), "flow"),
        worst.pattern.name(),
        percent(worst),
    );
    vec![
        RULE.finding(Subject::Machine, message, plan)
            .at(severity)
            .pairs(&worst.pairs())
            .about_gpus(&worst.gpus())
            .fact("pattern", worst.pattern.name())
            .fact("patterns", low.len())
            .fact("together", achieved)
            .fact("explained", explained)
            .fact("of_explained", Fact::percent(percent(worst))),
    ]
}
