//! # What it means
//!
//! An earlier report was given, but could not be compared, wholly or in part. The exit code is 3.
//!
//! # What to do
//!
//! Give a report of the same machine, measured with the same profile (`--profile`, `--gpus`).
//!
//! # How it is detected
//!
//! - The reports share no figure of the same probe, GPUs (by PCI address) and setup, or one measured nothing.
//! - Two reports of `topo`: the machine was started meanwhile, or a counter is lower than before.
//! - The earlier one has fewer rows than its verdict counts: rows were removed.
//! - `compare`: of the earlier figures of GPUs in both reports, more have no counterpart than have one. A check with
//!   `--baseline` may measure less than the earlier one.
//!
//! # Sources
//!
//! None: the rule is about the two reports.

use super::prelude::*;
use crate::baseline::{Beside, Counterparts};
use crate::figures;
use crate::since::Since;

rule! {
    "baseline-not-compared", Warning, One(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    if let Some(since) = Since::of(evidence) {
        let why = since.began_again?;
        let message = format!("No counter can be compared with that of {}; {why}", since.then);
        return Some(RULE.on_machine(message, [Step::CheckAgain]));
    }
    let beside = Beside::of(evidence)?;
    let of = format!("{}, machine {}", beside.old.started_at, beside.old.machine);
    let measured = beside.old.measurements.as_ref();
    let absent = measured.map_or(0, |then| then.absent);
    if absent > 0 {
        let message =
            format!("The earlier report lacks the rows of {absent} measurements; it is of {of}");
        let found = RULE.on_machine(message, [Step::WholeReport]);
        return Some(found);
    }
    if beside.counterparts(evidence).compared > 0 {
        return None;
    }
    let then = figures::table_of(measured).len();
    let now = figures::table_of(evidence.measurements).len();
    let message = format!(
        "None of {then} measurements of the earlier report can be compared with the {now} of this one; it is of {of}"
    );
    Some(RULE.on_machine(message, [Step::CheckAsBaseline]))
}

/// Returns a finding if most figures of the earlier report have no counterpart, but not all.
pub(crate) fn mostly(
    beside: &Beside<'_>,
    evidence: &Evidence<'_>,
    counts: Counterparts,
) -> Option<Finding> {
    let is_most = counts.compared > 0 && counts.missing() > counts.compared;
    let old = beside.old;
    let all = counts.compared + counts.missing() + counts.without_gpu;
    is_most.then(|| {
        let message = format!(
            "Only {} of {all} figures of the earlier report could be compared; {}; it is of {}, machine {}",
            counts.compared,
            counts.reasons(old, evidence.measurements).join("; "),
            old.started_at,
            old.machine,
        );
        RULE.on_machine(message, [Step::CheckAsBaseline])
    })
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
            *measurements = Measurements {
                driver: measurements.driver.clone(),
                peer: vec![only],
                ..Measurements::default()
            };
        });
        assert_advice(&RULE, &found, &["longer-profile"], &["new-baseline"]);
    }
}
