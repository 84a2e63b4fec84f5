//! # What it means
//!
//! Something differs from an earlier report of the same machine, but is not worse.
//!
//! # How it is detected
//!
//! The comparison is that of `fell-since-baseline`, for what appeared or changed. Reported are a GPU that is new or was
//! replaced, another version of driver or CUDA, and peer access that is granted now. Bandwidth figures are reported if
//! they rose by more than `least_rise_percent` and their noise. Figures of host and GPU are reported if they rose by as
//! much as `fell-since-baseline` asks of those that fell. A GPU that `--gpus` left out of the earlier report is not
//! new.
//!
//! # Why it matters
//!
//! It may explain other differences.
//!
//! # What to do
//!
//! Nothing, if the change was intended. In that case use the new report as the next baseline.
//!
//! # Sources
//!
//! As `fell-since-baseline`.

use super::fell_since_baseline;
use super::prelude::*;
use crate::baseline::{Beside, HostOldAndNew};
use model::reading::Reading;

const LEAST_RISE: Parameter = Parameter {
    name: "least_rise_percent",
    default: 3.0,
    about: "a smaller rise is not reported; as least_fall_percent of fell-since-baseline",
};
pub(crate) const RULE: Rule = Rule::new(
    "changed-since-baseline",
    Severity::Info,
    include_str!("changed_since_baseline.rs"),
    judge,
)
.with(&[LEAST_RISE]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    for gpu in beside.appeared(evidence) {
        changes.push(format!(
            "{} is new",
            words::gpu(evidence.snapshot, gpu.index)
        ));
    }
    for (old, new) in beside.gpus(evidence) {
        if differ(&old.uuid, &new.uuid) {
            changes.push(format!(
                "another card is in the slot of {}",
                words::gpu(evidence.snapshot, new.index)
            ));
        }
    }
    let (old, new) = (&beside.old.snapshot.host, &evidence.snapshot.host);
    for (what, old, new) in [
        ("driver", &old.driver_version, &new.driver_version),
        ("CUDA", &old.cuda_version, &new.cuda_version),
        ("kernel", &old.kernel_version, &new.kernel_version),
    ] {
        if let (true, Reading::Known(old), Reading::Known(new)) = (differ(old, new), old, new) {
            changes.push(format!("{what} {new}, was {old}"));
        }
    }
    let granted = beside.old.topology.pairs.iter().filter(|then| {
        let now = beside
            .pair(then.pair)
            .and_then(|pair| evidence.topology.route(pair));
        then.peer_access.cuda == Some(false)
            && now.is_some_and(|now| now.peer_access.cuda == Some(true))
    });
    match granted.count() {
        0 => {}
        pairs => changes.push(format!(
            "{} with peer access that had none",
            words::count(pairs, "pair")
        )),
    }
    let least = RULE.parameter(evidence, &LEAST_RISE);
    let figures = beside.figures(evidence);
    let rose = figures.iter().filter(|figures| {
        figures
            .fall_percent()
            .is_some_and(|fall| -fall > least + figures.noise_percent())
    });
    let host = beside.host_figures(evidence);
    let better = |figures: &&HostOldAndNew| {
        let back = HostOldAndNew {
            old: figures.new.unwrap_or(figures.old),
            new: Some(figures.old),
            ..**figures
        };
        back.change()
            .is_some_and(|short| fell_since_baseline::is_beyond(evidence, &back, short.percent()))
    };
    match rose.count() + host.iter().filter(better).count() {
        0 => {}
        rose => changes.push(format!(
            "{rose} of {} figures rose",
            figures.len() + host.len()
        )),
    }
    if changes.is_empty() {
        return Vec::new();
    }
    vec![
        RULE.finding(
            Subject::Machine,
            format!(
                "Since the earlier report of {}: {}",
                beside.old.started_at,
                changes.join("; ")
            ),
            [Step::Nothing(Fine::IfMeant), Step::NewBaseline],
        )
        .fact("changes", changes.len()),
    ]
}

/// Returns true if two known facts differ. Blanked identifiers in reports that were passed on do not count as facts.
fn differ(old: &Reading<String>, new: &Reading<String>) -> bool {
    matches!((old.known(), new.known()), (Some(old), Some(new)) if old != new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::beside_recorded;
    use crate::testing::prelude::*;

    #[test]
    fn another_driver_wants_another_baseline() {
        let found = beside_recorded(|new| {
            new.snapshot.host.driver_version = Reading::Known("580.200.01".into());
        });
        assert_advice(&RULE, &found, &["new-baseline"], &["nothing"]);
    }
}
