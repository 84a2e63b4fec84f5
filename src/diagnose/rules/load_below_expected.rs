//! # What it means
//!
//! Several copies at once reach less together than they should. Pairs one after the other do not show it; collective
//! operations wait for the slowest flow.
//!
//! # What to do
//!
//! Stop other work and check again. If it stays and the finding names a link: look at its error counters (lspci -vvv,
//! AER; nvidia-smi nvlink -e), update the firmware of the parts it passes, reseat the parts below it, and swap them.
//! Without a link, check with `--profile full`; behind NVSwitches look at their logs (dmesg, fabric manager).
//!
//! # How it is detected
//!
//! A change of the machine slows several flows at once (`measurements.load`) and no single flow. It is an error if the
//! flows through what changed lie more than `below_alone_percent` below the fastest of them alone. Otherwise they reach
//! less together than the rate of each alone and the links allow: a warning, or information if part of the route is
//! within processors.
//!
//! # Sources
//!
//! 8 x H200: one GPU receives 399 GB/s from seven others, 396 from one; 390 each for eight flows at once (measured).

use super::load::{self, Low};
use super::load_steps;
use super::prelude::*;

rule! {
    "load-below-expected", Warning, All(judge);
    /// how far below the fastest flow alone; chosen: repeats spread by 5 to 10 (cuda-samples issue 449)
    COLLAPSE: below_alone_percent = 10.0;
}

/// Returns what only several flows at once show.
pub(super) fn lows<'a>(evidence: &Evidence<'a>) -> Vec<Low<'a>> {
    load::low(evidence, COLLAPSE.of(evidence))
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = lows(evidence).into_iter().filter_map(|low| match low.collapse {
        true => Some(collapsed(evidence, &low)),
        false => low.links.is_empty().then(|| finding(evidence, &low)),
    });
    found.collect()
}

/// Returns the finding on flows that reach less than one of them alone.
fn collapsed(evidence: &Evidence<'_>, low: &Low<'_>) -> Finding {
    let alone = low.judged.best_alone(&low.flows).map(GbPerSecond);
    let message = |place: &str| {
        format!(
            "{} at once through {place} reach {} GB/s, less than one of them alone ({}); {}",
            words::count(low.flows.len(), "flow"),
            low.together(),
            alone.unwrap_or(low.explained()),
            low.judged.pattern.name(),
        )
    };
    let plan = load_steps::of_low(low, Step::UpdateHop);
    load::finding(evidence, &RULE, low, message, plan).at(Severity::Error)
}

fn finding(evidence: &Evidence<'_>, low: &Low<'_>) -> Finding {
    let judged = &low.judged;
    let is_known = load::is_all_known(judged);
    let (severity, why, plan) = if is_known {
        let own = match evidence.any_over_nvlink(&judged.pairs()) {
            false => vec![Step::PcieErrors],
            true if evidence.virtual_machine() => {
                vec![Step::LinkErrors, Step::AskHost(Ask::NvLink)]
            }
            true => vec![Step::LinkErrors, Step::NvLinkLog, Step::FabricManager],
        };
        let first = [Step::Stop(Work::OnMachine), Step::CheckFull];
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
            "{flows} at once ({}) reach {} GB/s, {:.0}% of the {} that their links allow; {why}{more}",
            judged.pattern.name(),
            low.together(),
            low.together().percent_of(low.explained()),
            low.explained(),
        )
    };
    load::finding(evidence, &RULE, low, message, plan).at(severity)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
