//! # What it means
//!
//! An earlier report was given to compare with, and not one of its bandwidth figures could be set
//! beside one of today's.
//!
//! # How it is detected
//!
//! No figure of the two reports is of the same GPUs (by PCI address), streams, issuer, engine,
//! direction and path; or one of them measured nothing.
//!
//! # Why it matters
//!
//! Without this the comparison would look as if nothing had changed. By itself it makes the exit
//! code 3.
//!
//! # What to do
//!
//! Give a report of the same machine, measured with the same profile (`--profile`, `--gpus`).
//!
//! # Sources
//!
//! None: it is about the two reports.

use super::prelude::*;
use crate::diagnose::baseline::Beside;

/// The rule.
pub const RULE: Rule = Rule {
    id: RuleId::new("baseline-not-compared"),
    severity: Severity::Warning,
    parameters: &[],
    gap: true,
    page: include_str!("baseline_not_compared.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else { return Vec::new() };
    if beside.figures(evidence).iter().any(|figures| figures.new.is_some()) {
        return Vec::new();
    }
    let old = beside.old;
    let then = old.measurements.as_ref().map_or(0, |measurements| measurements.peer.len());
    let now = evidence.measurements.map_or(0, |measurements| measurements.peer.len());
    vec![
        RULE.finding(
            Subject::Machine,
            format!(
                "Nothing of the earlier report ({}, machine {}) could be compared: none of its {then} bandwidth \
                 measurements is of the same GPUs and the same kind as one of the {now} of this one",
                old.started_at, old.machine
            ),
            "Give a report of the same machine, measured with the same profile (--profile, --gpus)",
        )
        .fact("then", then)
        .fact("now", now),
    ]
}
