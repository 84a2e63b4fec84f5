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
//! The fact is not known on this machine (a virtual machine hides the PCIe link, for example), or a figure with a bound
//! was not measured, or is of GPUs that are not there. What the profile leaves out on purpose is
//! `expectation-beyond-profile`.
//!
//! # Sources
//!
//! The file itself.

use super::expectation_beyond_profile::is_beyond;
use super::prelude::*;
use crate::expectations::Check;
use crate::facts;

rule! {
    "expectation-unchecked", Warning, One(judge), for_gaps;
}

/// Returns why a bound was not compared, or not with all its figures. A bound without a place, in a file written by
/// hand, asks for the figures that were planned, and for one at least. A file written by `expect` asks only for these.
fn why(evidence: &Evidence<'_>, check: &Check<'_>) -> Option<String> {
    let lacking = check.figures.iter().filter(|figure| figure.now.is_none());
    let unplanned = check.unplanned.iter().filter(|figure| !is_beyond(evidence, figure));
    let ends = lacking.map(|figure| &figure.identity).chain(unplanned.map(|(ends, _)| ends));
    let (mut gpus, mut pairs) = (Vec::new(), Vec::new());
    for ends in ends {
        match ends.pair() {
            Some(pair) => pairs.push(pair),
            None => gpus.extend(ends.gpus()),
        }
    }
    let of = match (&pairs[..], &gpus[..]) {
        ([], []) => None,
        ([], _) => Some(words::gpus(&words::unique(gpus))),
        _ => Some(words::pairs(&pairs)),
    };
    let by_hand = evidence.expectations.is_some_and(|expected| expected.profile.is_none());
    if let Some(of) = of {
        Some(format!("not measured of {of}"))
    } else if !check.figures.is_empty() || !check.unplanned.is_empty() {
        None
    } else if !check.is_here(evidence.topology) {
        Some("this machine has no such place".to_owned())
    } else {
        by_hand.then(|| "nothing was measured".to_owned())
    }
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let expected = evidence.expectations?;
    let facts = facts::of(evidence);
    let required = facts::required(expected).into_iter();
    let unknown = required.filter_map(|(key, _)| {
        let parts = facts::of_parts(evidence, &facts::unknown(key, &facts, evidence));
        Some(format!("{} of {} is not known", facts::what(key), parts?))
    });
    let checks = expected.checks(evidence.measurements, evidence.topology);
    let reasons = words::grouped(checks.iter().filter_map(|check| {
        let why = why(evidence, check)?;
        Some((why, format!("{} ({})", check.probe, check.name)))
    }));
    let unknown: Vec<String> = unknown.collect();
    let count = unknown.len() + reasons.values().map(Vec::len).sum::<usize>();
    let reasons = reasons.into_iter();
    let reasons = reasons.map(|(why, names)| format!("{why}: {}", words::first(&names, 4)));
    let message = format!(
        "{} could not be checked; {}",
        words::count(count, "expectation"),
        unknown.into_iter().chain(reasons).collect::<Vec<_>>().join("; ")
    );
    let plan = Plan::now([Step::CheckAllStandard]).otherwise([Step::ChangeExpectations]);
    (count > 0).then(|| RULE.on_machine(message, plan).fact("unchecked", count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn links_that_are_not_known_leave_the_expectation_open() {
        let found = expecting("[machine]\nnvlinks = 18\n", |report| {
            report.snapshot.gpus[1].nvlinks = Reading::failed("no answer");
        });
        let may = ["longer-profile", "run-as-root"];
        assert_advice(&RULE, &found, &["change-expectations"], &may);
    }
}
