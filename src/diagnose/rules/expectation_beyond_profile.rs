//! # What it means
//!
//! `--expect` has bounds of figures that this profile does not measure. They still hold for the machine; the exit
//! code does not change.
//!
//! # What to do
//!
//! To compare them, check with the profile `standard`. With more than 16 GPUs, check up to 16 at a time (`--gpus`).
//!
//! # How it is detected
//!
//! The file was made by `peerscope expect` (it has the key `profile`; one written by hand asks for everything), and
//! this run planned a figure of it on no GPU, or no staged copies of a pair whose direct ones were tried: `quick` plans
//! these only without peer access, and with more than 16 GPUs every profile does so on some pairs only. A planned
//! figure that is lacking is `expectation-unchecked`.
//!
//! # Sources
//!
//! The file itself.

use super::prelude::*;
use crate::expectations::Check;
use crate::figures::Identity;

rule! {
    "expectation-beyond-profile", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let expected = evidence.expectations.filter(|expected| expected.profile.is_some())?;
    let checks = expected.checks(evidence.measurements, evidence.topology);
    let pairs = |check: &Check<'_>| -> Vec<Pair> {
        let beyond = check.unplanned.iter().filter(|figure| is_beyond(evidence, figure));
        beyond.filter_map(|(ends, _)| ends.pair()).collect()
    };
    let is_unplanned = |check: &&Check<'_>| {
        let is_empty = check.figures.is_empty() && check.unplanned.is_empty();
        is_empty && check.is_here(evidence.topology) || !pairs(check).is_empty()
    };
    let beyond: Vec<_> = checks.iter().filter(is_unplanned).collect();
    let probes = words::grouped(beyond.iter().map(|check| (check.probe, check.name))).into_iter();
    let probes = probes.map(|(probe, names)| format!("{probe} ({})", words::first(&names, 3)));
    let pairs = words::unique(beyond.iter().flat_map(|check| pairs(check)));
    let message = format!(
        "{} not compared, as the figures are no part of this run; {}",
        words::count(beyond.len(), "bound"),
        probes.collect::<Vec<_>>().join(", ")
    );
    let found = RULE.on_machine(message, [Step::CheckAsExpected]);
    let found = found.fact("unchecked", beyond.len()).pairs(&pairs);
    (!beyond.is_empty()).then_some(found)
}

/// Returns true if an unplanned figure is not asked for: a file written by `expect` has it, and staged copies of a pair
/// with peer access belong to larger profiles.
pub(crate) fn is_beyond(evidence: &Evidence<'_>, (ends, kind): &Identity) -> bool {
    let made = evidence.expectations.is_some_and(|expected| expected.profile.is_some());
    let said = ends.pair().and_then(|pair| evidence.measured().driver.said_of(pair));
    let granted = said.is_some_and(|said| said.possible == Some(true) && said.failure.is_none());
    made && granted && *kind == Kind::reference(Path::Staged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn floors_of_staged_copies_want_a_profile_that_has_them() {
        let floor =
            "profile = \"standard\"\n[figures.bandwidth]\n\"staged of GPU 0 → GPU 1\" = 30.5\n";
        let found = expecting(floor, |report| {
            let measurements = report.measurements.as_mut().unwrap();
            measurements.peer.retain(|cell| cell.setup.path == Path::Direct);
        });
        assert_advice(&RULE, &found, &["longer-profile"], &[]);
    }
}
