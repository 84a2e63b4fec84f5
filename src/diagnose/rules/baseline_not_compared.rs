//! # What it means
//!
//! An earlier report was given for comparison, but none of its bandwidth figures matches a figure of this report, or it
//! is not complete.
//!
//! # How it is detected
//!
//! The two reports share no figure with the same GPUs (by PCI address), streams, issuer, engine, direction and path,
//! and none of the same GPU and the host. Or one of them measured nothing. Or the earlier report has fewer rows than
//! its verdict counts: rows were removed from it.
//!
//! # Why it matters
//!
//! Without this finding the comparison would look as if nothing had changed. By itself it makes the exit code 3.
//!
//! # What to do
//!
//! Give a report of the same machine, measured with the same profile (`--profile`, `--gpus`).
//!
//! # Sources
//!
//! None: the rule is about the two reports.

use super::prelude::*;
use crate::baseline::Beside;
use crate::host_figures;

pub(crate) const RULE: Rule = Rule::new(
    "baseline-not-compared",
    Severity::Warning,
    include_str!("baseline_not_compared.rs"),
    judge,
)
.for_gaps();

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    if let Some(absent) = beside
        .old
        .measurements
        .as_ref()
        .map(|then| then.absent)
        .filter(|absent| *absent > 0)
    {
        let message = format!(
            "The earlier report ({}, machine {}) has no row of {absent} of its measurements: what they reached then is not \
             known",
            beside.old.started_at, beside.old.machine
        );
        return vec![
            RULE.finding(Subject::Machine, message, [Step::WholeReport])
                .fact("absent", absent),
        ];
    }
    let pairs = beside
        .figures(evidence)
        .iter()
        .any(|figures| figures.new.is_some());
    if pairs
        || beside
            .host_figures(evidence)
            .iter()
            .any(|figures| figures.new.is_some())
    {
        return Vec::new();
    }
    let old = beside.old;
    let number = |measurements: &Measurements| {
        measurements.peer.len() + host_figures::figures(measurements).len()
    };
    let then = old.measurements.as_ref().map_or(0, number);
    let now = evidence.measurements.map_or(0, number);
    vec![
        RULE.finding(
            Subject::Machine,
            format!(
                "Nothing of the earlier report ({}, machine {}) could be compared: none of its {then} \
                 measurements has the GPUs and the kind of one of the {now} in this report",
                old.started_at, old.machine
            ),
            [Step::CheckAsBaseline],
        )
        .fact("then", then)
        .fact("now", now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{beside_recorded, cell};
    use model::placement::{HostMode, Side};
    use model::units::{Bytes, MIB};

    #[test]
    fn a_report_without_a_figure_of_both_wants_a_longer_profile() {
        let found = beside_recorded(|new| {
            let measurements = new.measurements.as_mut().unwrap();
            let mut only = cell(measurements.peer[0].pair, Path::Direct, 396.0);
            only.setup = only.setup.with_bytes(Bytes(3 * MIB));
            only.setup.issuer = Side::Destination;
            only.setup.placement.host = HostMode::Blocking;
            measurements.peer = vec![only];
            (measurements.host, measurements.load) = (Vec::new(), Vec::new());
            (measurements.pipeline, measurements.calls) = (Vec::new(), Vec::new());
            measurements.launch_loop = Vec::new();
        });
        assert_advice(&RULE, &found, &["longer-profile"], &["new-baseline"]);
    }
}
