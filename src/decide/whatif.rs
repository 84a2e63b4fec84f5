//! What a change of the machine would bring.

mod change;
mod effects;
mod figures;

use diagnose::{Evidence, Settings};
use explain::Cause;
use model::finding::{Finding, Severity};
use model::report::Report;
use serde::Serialize;

pub use self::change::Change;
use self::change::Changed;
pub use self::effects::{Effects, Figure, Moved};
use super::outlook::Outlook;

/// The machine as it would be, beside the one that it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    #[serde(flatten)]
    pub effects: Effects,
    /// Findings that the change answers.
    pub answers: Vec<Finding>,
    /// Findings that it brings.
    pub raises: Vec<Finding>,
    /// What was assumed, a sentence each.
    pub assumed: Vec<String>,
}

/// Returns what these changes would bring to the machine of a judged report. `causes` are those of
/// [`super::causes`].
///
/// # Errors
///
/// A sentence: the report has no figures, or the machine lacks what a change names.
pub fn what_if(
    report: &Report,
    causes: &[Cause],
    changes: &[Change],
    settings: &Settings,
) -> Result<WhatIf, String> {
    let mut changed = Changed::of(report, causes);
    for change in changes {
        changed.make(change)?;
    }
    let no_figures = "the report has no figures: run 'peerscope check'";
    let effects = apply(report, causes, &mut changed, settings).ok_or(no_figures)?;
    let judged = |report: &Report| diagnose::judge(&Evidence::of(report, settings));
    let (before, after) = (judged(report), judged(&changed.report));
    let only = |of: &[Finding], not_in: &[Finding]| {
        let known = |one: &Finding| {
            let same = |other: &Finding| (&other.code, &other.subject) == (&one.code, &one.subject);
            not_in.iter().any(same)
        };
        let counts = of.iter().filter(|one| one.severity > Severity::Info && !known(one));
        counts.cloned().collect::<Vec<_>>()
    };
    Ok(WhatIf {
        effects,
        answers: only(&before, &after),
        raises: only(&after, &before),
        assumed: changed.assumed,
    })
}

fn apply(
    report: &Report,
    causes: &[Cause],
    changed: &mut Changed,
    settings: &Settings,
) -> Option<Effects> {
    changed.redraw();
    figures::fill(report, changed, settings);
    let before = Outlook::of(report, causes, settings)?;
    let effects = {
        let after = Outlook::after(&changed.report, &changed.causes, settings, &before)?;
        Effects::of(&before, &after)
    };
    effects::write(&mut changed.report, &effects);
    Some(effects)
}

/// Most GPUs, and most findings, for which [`fill`] computes: each finding takes the predictions of all pairs twice. The
/// findings are in the order of their severity.
const MOST_FILLED_GPUS: usize = 16;
const MOST_FILLED: usize = 12;

/// Writes beside each finding of a loss what its repair would bring, in a line.
pub fn fill(report: &mut Report, settings: &Settings) {
    let counts = |finding: &Finding| finding.severity > Severity::Info;
    report.findings.iter_mut().for_each(|finding| finding.would_bring = None);
    if report.measurements.is_none()
        || report.snapshot.gpus.len() > MOST_FILLED_GPUS
        || !report.findings.iter().any(counts)
    {
        return;
    }
    let causes = super::causes(report, settings);
    let mut left = MOST_FILLED;
    let mut line = |finding: &Finding| {
        let mut changed = Changed::of(report, &causes);
        if left == 0 || !counts(finding) || !changed.repair(finding) {
            return None;
        }
        left -= 1;
        apply(report, &causes, &mut changed, settings)?.line()
    };
    let lines: Vec<Option<String>> = report.findings.iter().map(&mut line).collect();
    for (finding, line) in report.findings.iter_mut().zip(lines) {
        finding.would_bring = line;
    }
}

#[cfg(test)]
mod tests;
