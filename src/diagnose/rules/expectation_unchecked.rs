//! # What it means
//!
//! Something that the file of `--expect` asks for could not be checked. It may be missing, so the exit code is 3.
//!
//! # What to do
//!
//! Measure what is missing (another profile, all GPUs), or take it out of the expectations if this kind of machine
//! does not show it.
//!
//! # How it is detected
//!
//! The fact is not known on this machine (a virtual machine hides the PCIe link, for example), or the pair, class or
//! figure of a floor was not measured. What the profile leaves out on purpose is `expectation-beyond-profile`.
//!
//! # Sources
//!
//! The file itself.

use super::expectation_beyond_profile;
use super::prelude::*;
use crate::expectations::{Expectations, Required};
use crate::facts;
use crate::figures::Ends;

pub(crate) const RULE: Rule =
    Rule::of_one("expectation-unchecked", Severity::Warning, judge).for_gaps();

/// Returns the expectations on figures, except for floors of pairs, that have no figure. A file written by `expect` asks
/// only for what this run planned.
fn of_figures(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<String> {
    let here = |gpu: u32| evidence.snapshot.gpu(gpu).is_some();
    let mut parts = Vec::new();
    for check in expected.checks(evidence.measurements, evidence.topology) {
        let (what, gpu) = match &check.required {
            Required::Floor(_) => continue,
            Required::Host(what, gpu) => (what.to_string(), *gpu),
            Required::Other(probe, what) => (format!("{probe} ({what})"), None),
        };
        // A bound without a GPU, in a file written by hand, asks for the GPUs measured in this way, and for one at
        // least.
        let unplanned = expected.profile.is_none() && check.kind.is_none();
        if unplanned || gpu.is_some_and(|gpu| !here(gpu)) {
            let of = words::after(" of GPU ", gpu);
            parts.push(format!("{what}{of}: nothing was measured"));
        } else if !check.lacking.is_empty() {
            let gpus: Vec<u32> = words::unique(check.lacking.iter().flat_map(Ends::gpus));
            parts.push(format!("{what} of {}: not measured", words::gpus(&gpus)));
        }
    }
    parts
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let expected = evidence.expectations?;
    let facts = facts::of(evidence);
    let unknown = words::grouped(evidence.snapshot.gpus.iter().flat_map(|gpu| {
        let lacks_model = expected.gpus.model.is_some() && gpu.name.known().is_none();
        let model = lacks_model.then(|| "the model".to_owned());
        let lacking = facts::required(expected)
            .into_iter()
            .filter(|(key, _, wanted)| {
                wanted.is_some() && facts::number(&facts, gpu.index, key).is_none()
            })
            .map(|(key, what, _)| match key {
                facts::GENERATION => format!("the {what}"),
                _ => format!("the number of {what}"),
            });
        let all: Vec<String> = model.into_iter().chain(lacking).collect();
        all.into_iter().map(|what| (what, gpu.index))
    }));
    let mut parts: Vec<_> = unknown
        .iter()
        .map(|(what, gpus)| format!("{what} of {} is not known", words::gpus(gpus)))
        .collect();
    let pairs = &evidence.topology.pairs;
    let unasked = pairs.iter().filter(|route| route.peer_access.cuda.is_none()).count();
    if expected.peer.access == Some(true) && unasked > 0 {
        parts.push(format!(
            "CUDA was not asked about peer access of {}",
            words::count(unasked, "pair")
        ));
    }
    for floor in &expected.floor {
        let cells = evidence.reference(floor.path);
        let figure = |pair| cells.get(&pair).is_some_and(|cell| cell.achieved_gbps.is_some());
        let meant: Vec<_> = pairs
            .iter()
            .filter(|route| floor.holds_for(route.pair, route.class))
            .map(|route| route.pair)
            .collect();
        let lacks = |pair: &Pair| {
            !figure(*pair) && !expectation_beyond_profile::is_beyond(evidence, *pair, floor.path)
        };
        let missing: Vec<_> = meant.iter().copied().filter(lacks).collect();
        if meant.is_empty() {
            parts.push(format!("there is no pair for the floor of {}", floor.of()));
        } else if !missing.is_empty() {
            let of = floor.of();
            parts.push(format!("{} for the floor of {of}: not measured", words::pairs(&missing)));
        }
    }
    parts.extend(of_figures(evidence, expected));
    if parts.is_empty() {
        return None;
    }
    Some(
        RULE.finding(
            Subject::Machine,
            format!(
                "{} could not be checked; {}",
                words::count(parts.len(), "expectation"),
                parts.join("; ")
            ),
            Plan::now([Step::CheckAllStandard]).otherwise([Step::ChangeExpectations]),
        )
        .fact("unchecked", parts.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn links_that_are_not_known_leave_the_expectation_open() {
        let found = expecting("[nvlink]\nlinks = 18\n", |report| {
            report.snapshot.gpus[1].nvlinks = Reading::failed("no answer");
        });
        let may = ["longer-profile", "run-as-root"];
        assert_advice(&RULE, &found, &["change-expectations"], &may);
    }
}
