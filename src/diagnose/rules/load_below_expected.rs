//! # What it means
//!
//! Several copies at once are slow, and no link that they share shows why. Collective operations use all these routes
//! and wait for the slowest flow.
//!
//! # What to do
//!
//! Stop other work and check again with `--profile full`, which copies in more patterns. Behind NVSwitches, look at
//! the switches' logs (nvidia-smi nvlink, dmesg, the fabric manager's log): all flows share the switches.
//!
//! # How it is detected
//!
//! A change of a pair, a GPU, a class of copies, or a hop that no file shows slows several flows at once
//! (`measurements.load`) and no single flow. Together they reach less than the rate of each alone and the links
//! allow, by more than the margin of their class. It is information if part of the route is within the processors,
//! whose rates no interface reports.
//!
//! # Sources
//!
//! 8 x H200: 390 GB/s for each of eight flows at once, 394 to 395 for four disjoint ones, 396 alone (measured).

use super::load::{self, Low};
use super::load_collapses;
use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("load-below-expected", Severity::Warning, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let lows = load_collapses::lows(evidence).into_iter();
    let lows = lows.filter(|low| !low.collapse && low.links.is_empty());
    lows.map(|low| finding(evidence, &low)).collect()
}

fn finding(evidence: &Evidence<'_>, low: &Low<'_>) -> Finding {
    let judged = &low.judged;
    let is_known = load::is_all_known(judged);
    let (severity, why, plan) = if is_known {
        let own = match evidence.any_over_nvlink(&judged.pairs()) {
            false => vec![Step::PcieErrors],
            true if evidence.virtual_machine() => {
                vec![Step::LinkErrors, Step::AskHost(Ask::NvSwitches)]
            }
            true => vec![Step::LinkErrors, Step::NvLinkLog, Step::FabricLog],
        };
        let first = [Step::Stop(Work::OnMachine), Step::CheckFull(Full::MorePatterns)];
        (RULE.severity, "no link that they share shows why", Plan::now(first).if_it_stays(own))
    } else {
        (
            Severity::Info,
            "what joins the processors, whose rate no interface reports, may be why",
            Plan::now([Step::CompareAlike, Step::Nothing(Fine::IfReached)]),
        )
    };
    let more = words::further("; so are ", low.patterns - 1, "other pattern");
    let flows = words::count(judged.pattern.flows.len(), "flow");
    let flows = match low.flows.len() {
        some if some < judged.pattern.flows.len() => format!("{some} of {flows}"),
        _ => flows,
    };
    let message = |_: &str| {
        format!(
            "{flows} at once ({}) reach {} GB/s together, {:.0}% of the {} that each alone and the links allow: {why}{more}",
            judged.pattern.name(),
            low.together(),
            low.together().percent_of(low.explained()),
            low.explained(),
        )
    };
    load::finding(evidence, &RULE, low, message, plan).at(severity)
}
