//! Turns evidence into findings.

use std::cmp::Reverse;

use super::evidence::{Evidence, Index};
use super::rule::Rule;
use super::settings::{Level, Settings};
use super::{causes, links, rules, words};
use model::finding::{Finding, Severity};
use model::measurement::{Measurements, Status};
use model::request::Silenced;

/// Returns the measurements without the figures that another program disturbed; `None` if it disturbed none.
fn without_disturbed(measurements: &Measurements) -> Option<Measurements> {
    if !measurements.cells().any(|cell| cell.disturbed) {
        return None;
    }
    let mut sound = measurements.clone();
    for one in sound.each_mut().filter(|one| one.ending().disturbed) {
        one.forget();
        one.ending_mut().status = Status::Skipped;
    }
    Some(sound)
}

/// Returns the findings of all rules: effects attributed to their causes, each with its place; the worst first, then by
/// subject.
///
/// A rule that is switched off is not applied. It neither reports nor explains, and findings that it would have
/// explained are reported by themselves. Other severities that the user set apply before effects are attributed, so an
/// effect raises its cause to no more than the severity that the user gave the effect.
pub fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let sound = evidence.measurements.and_then(without_disturbed);
    let measurements = sound.as_ref().or(evidence.measurements);
    let mut index = measurements.map(Index::of);
    if let Some(index) = &mut index {
        index.take_siblings(&Evidence {
            measurements,
            ..*evidence
        });
    }
    let evidence = &Evidence {
        measurements,
        index: index.as_ref(),
        ..*evidence
    };
    let beliefs = links::beliefs(evidence);
    let evidence = &Evidence {
        beliefs: Some(&beliefs),
        ..*evidence
    };
    let found = rules::ALL.iter().flat_map(|rule| found_by(rule, evidence));
    let mut findings = causes::attribute(found.collect(), evidence);
    for finding in &mut findings {
        finding.location = words::location(evidence.snapshot, &finding.subject);
    }
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| {
            (
                Reverse(finding.severity),
                finding.subject.clone(),
                finding.code.clone(),
            )
        };
        key(one).cmp(&key(other))
    });
    findings
}

/// Returns the findings of one rule, with the severity that the user set.
fn found_by(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    match evidence.settings.level(&rule.id) {
        Some(Level::Off) => Vec::new(),
        Some(Level::At(severity)) => (rule.judge)(evidence)
            .into_iter()
            .map(|finding| finding.at(severity))
            .collect(),
        None => (rule.judge)(evidence),
    }
}

/// Returns the rules that are switched off, or whose findings are limited to less than an error and no more than their
/// usual severity: some rules have findings of several severities.
pub fn silenced(settings: &Settings) -> Vec<Silenced> {
    let silenced = rules::ALL.iter().filter_map(|rule| {
        let severity = match settings.level(&rule.id)? {
            Level::Off => None,
            Level::At(severity) if severity < Severity::Error && severity <= rule.severity => {
                Some(severity)
            }
            Level::At(_) => return None,
        };
        Some(Silenced {
            code: rule.id.clone(),
            severity,
        })
    });
    silenced.collect()
}
