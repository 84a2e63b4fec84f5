//! # What it means
//!
//! `--expect` has floors for figures that this profile does not measure. They still hold for the machine; the exit
//! code does not change.
//!
//! # What to do
//!
//! To compare them, check with the profile `standard`. With more than 16 GPUs, check up to 16 at a time (`--gpus`).
//!
//! # How it is detected
//!
//! The file was made by `peerscope expect` (it has the key `profile`; one written by hand asks for everything), and
//! this run planned no staged copies of a pair whose direct copies were measured or tried, or planned another figure
//! of the file on no GPU. The profile `quick` measures staged copies only without peer access, and with more than 16
//! GPUs every profile does so on some pairs only. A planned figure that is lacking is `expectation-unchecked`.
//!
//! # Sources
//!
//! The file itself.

use super::prelude::*;
use crate::expectations::{Check, Expectations, Required};
use model::flow::Setup;

pub(crate) const RULE: Rule = Rule::new("expectation-beyond-profile", Severity::Info, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let expected = evidence.expectations.into_iter();
    expected
        .flat_map(|expected| {
            of_pairs(evidence, expected).into_iter().chain(of_figures(evidence, expected))
        })
        .collect()
}

/// Returns a finding for floors of staged copies of pairs that only copied directly.
fn of_pairs(evidence: &Evidence<'_>, expected: &Expectations) -> Option<Finding> {
    let beyond = |route: &&PairRoute| {
        let mut floors = expected.floor.iter().filter(|floor| floor.path == Path::Staged);
        floors.any(|floor| floor.holds_for(route.pair, route.class))
            && is_beyond(evidence, route.pair, Path::Staged)
    };
    let routes = evidence.topology.pairs.iter();
    let pairs: Vec<_> = routes.filter(beyond).map(|route| route.pair).collect();
    let message = format!(
        "Floors for staged copies of {} were not compared; this run measured direct copies only; {}",
        words::count(pairs.len(), "pair"),
        words::pairs(&pairs)
    );
    let found = RULE.finding(Subject::Machine, message, [Step::CheckStandard]);
    (!pairs.is_empty()).then(|| found.pairs(&pairs))
}

/// Returns a finding for floors and limits of other figures that this run planned on no GPU they apply to.
fn of_figures(evidence: &Evidence<'_>, expected: &Expectations) -> Option<Finding> {
    let here = |gpu: u32| evidence.snapshot.gpu(gpu).is_some();
    let checks = expected.checks(evidence.measurements, evidence.topology);
    let what = |check: &Check<'_>| match &check.required {
        Required::Host(what, gpu) => gpu.is_none_or(here).then(|| what.to_string()),
        Required::Other(probe, what) => Some(format!("{probe} ({what})")),
        Required::Floor(_) => None,
    };
    let beyond = checks.iter().filter(|check| check.kind.is_none());
    let mut whats: Vec<String> = beyond.filter_map(what).collect();
    whats.dedup();
    let first = whats.first().filter(|_| expected.profile.is_some())?;
    let more = words::further(" and ", whats.len() - 1, "other kind");
    let message = format!(
        "Floors and limits of host and GPUs were not compared; this run did not measure {first}{more}"
    );
    let found = RULE.finding(Subject::Machine, message, [Step::CheckAsExpected]);
    Some(found.fact("unchecked", whats.len()))
}

/// Returns true if a figure of this pair is missing because it was never planned: nothing on this path, while the
/// direct copies of a pair with peer access were.
pub(crate) fn is_beyond(evidence: &Evidence<'_>, pair: Pair, path: Path) -> bool {
    let made = evidence.expectations.is_some_and(|expected| expected.profile.is_some());
    let measurements = evidence.measured();
    let said = measurements.driver.said_of(pair);
    let granted = said.is_some_and(|said| said.possible == Some(true) && said.failure.is_none());
    let planned = |path| {
        let setup = Setup::REFERENCE.with_path(path);
        let mut cells = measurements.peer.iter();
        cells.any(|cell| cell.pair == pair && cell.setup.of_any_size() == setup)
    };
    made && path == Path::Staged && granted && planned(Path::Direct) && !planned(Path::Staged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn floors_of_staged_copies_want_a_profile_that_has_them() {
        let floor =
            "profile = \"standard\"\n[[floor]]\npair = [0, 1]\npath = \"staged\"\ngbps = 30.5\n";
        let found = expecting(floor, |report| {
            let measurements = report.measurements.as_mut().unwrap();
            measurements.peer.retain(|cell| cell.setup.path == Path::Direct);
        });
        assert_advice(&RULE, &found, &["longer-profile"], &[]);
    }
}
