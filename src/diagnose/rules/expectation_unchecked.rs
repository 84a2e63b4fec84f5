//! # What it means
//!
//! Something that the file of `--expect` asks for could not be checked.
//!
//! # How it is detected
//!
//! The fact is not known on this machine (for example, a virtual machine hides the PCIe link). Or the pair, class or
//! figure of a floor was not measured. Staged copies of pairs with peer access that the profile leaves out are no such
//! gap. Nor are copies between host and GPU, pipelines and calls that it leaves out: `expectation-beyond-profile` names
//! them.
//!
//! # Why it matters
//!
//! Something that was not checked may be missing. Like every gap it makes the exit code 3.
//!
//! # What to do
//!
//! Measure what is missing (another profile, all GPUs), or take it out of the expectations if this
//! kind of machine does not show it.
//!
//! # Sources
//!
//! The file itself.

use super::expectation_beyond_profile;
use super::expectation_unmet::Links;
use super::prelude::*;
use crate::expectations::Expectations;
use crate::host_figures;

pub(crate) const RULE: Rule = Rule::new(
    "expectation-unchecked",
    Severity::Warning,
    include_str!("expectation_unchecked.rs"),
    judge,
)
.for_gaps();

/// Returns the expectations on host and GPUs that have no figure. A file written by `expect` asks only for what this
/// run planned.
fn of_host(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<String> {
    let figures = evidence
        .measurements
        .map(host_figures::figures)
        .unwrap_or_default();
    let mut parts = Vec::new();
    for bound in expected.bounds() {
        let here = || evidence.snapshot.gpus.iter().map(|gpu| gpu.index);
        let meant: Vec<u32> = bound.gpu.map_or_else(|| here().collect(), |gpu| vec![gpu]);
        // A bound without a GPU, in a file written by hand, asks for the GPUs measured in this way, and for one at
        // least.
        let planned = |gpu: &u32| figures.contains_key(&(*gpu, bound.what));
        let lacks = |gpu: &u32| {
            figures
                .get(&(*gpu, bound.what))
                .is_some_and(Option::is_none)
        };
        let missing: Vec<u32> = meant.iter().copied().filter(lacks).collect();
        let left_out = bound
            .gpu
            .is_some_and(|gpu| !here().any(|index| index == gpu));
        if left_out || (expected.profile.is_none() && !meant.iter().any(planned)) {
            let of = bound
                .gpu
                .map(|gpu| format!(" of GPU {gpu}"))
                .unwrap_or_default();
            parts.push(format!("{}{of}: nothing was measured", bound.what));
        } else if !missing.is_empty() {
            parts.push(format!(
                "{} of {}: not measured",
                bound.what,
                words::gpus(&missing)
            ));
        }
    }
    parts
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(expected) = evidence.expectations else {
        return Vec::new();
    };
    let mut unknown: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for gpu in &evidence.snapshot.gpus {
        let facts = Links::of(evidence, gpu.index);
        for (what, missing) in [
            (
                "the model",
                expected.gpus.model.is_some() && gpu.name.known().is_none(),
            ),
            (
                "the PCIe generation",
                expected.pcie.generation.is_some() && facts.generation.is_none(),
            ),
            (
                "the number of PCIe lanes",
                expected.pcie.width.is_some() && facts.width.is_none(),
            ),
            (
                "the number of active NVLinks",
                expected.nvlink.links.is_some() && facts.nvlinks.is_none(),
            ),
        ] {
            if missing {
                unknown.entry(what).or_default().push(gpu.index);
            }
        }
    }
    let mut parts: Vec<_> = unknown
        .iter()
        .map(|(what, gpus)| format!("{what} of {} is not known", words::gpus(gpus)))
        .collect();
    let pairs = &evidence.topology.pairs;
    let unasked = pairs
        .iter()
        .filter(|route| route.peer_access.cuda.is_none())
        .count();
    if expected.peer.access == Some(true) && unasked > 0 {
        parts.push(format!(
            "CUDA was not asked about peer access of {}",
            words::count(unasked, "pair")
        ));
    }
    for floor in &expected.floor {
        let cells = evidence.reference(floor.path);
        let figure = |pair| {
            cells
                .get(&pair)
                .is_some_and(|cell| cell.achieved_gbps.is_some())
        };
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
            parts.push(format!(
                "{} for the floor of {of}: not measured",
                words::pairs(&missing)
            ));
        }
    }
    parts.extend(of_host(evidence, expected));
    if parts.is_empty() {
        return Vec::new();
    }
    vec![
        RULE.finding(
            Subject::Machine,
            format!(
                "Not every expectation could be checked: {}",
                parts.join("; ")
            ),
            Plan::now([Step::CheckAllStandard]).otherwise([Step::ChangeExpectations]),
        )
        .fact("unchecked", parts.len()),
    ]
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
