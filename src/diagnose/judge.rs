//! Turns evidence into findings.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::evidence::{Evidence, Index};
use super::rule::Rule;
use super::settings::{Level, Settings};
use super::{applicable, causes, links, rules, words};
use model::finding::{Finding, Severity};
use model::measurement::{Measurements, SecondLook, Status};
use model::request::Silenced;
use model::step::{Step, When};

/// Identifier of the step that names the other findings on some GPUs.
const SEE_OTHERS: &str = "other-findings";

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

/// Explains the figures that no other program disturbed.
fn explained(evidence: &Evidence<'_>) -> Option<explain::Explanation> {
    let sound = evidence.measurements.and_then(without_disturbed);
    let measurements = sound.as_ref().or(evidence.measurements);
    Some(Index::explained(evidence, measurements?).explanation)
}

/// Most GPUs of a machine that gets a second look. A budget: the figures are explained once more for it.
const MOST_GPUS: usize = 16;

/// Returns the copies that would tell apart what the figures leave open, none if these have one explanation each.
pub fn second_looks(evidence: &Evidence<'_>) -> Vec<SecondLook> {
    if evidence.snapshot.gpus.len() > MOST_GPUS {
        return Vec::new();
    }
    let explanation = explained(evidence);
    let looks = explanation.into_iter().flat_map(|one| one.looks);
    let look = |look: explain::Look| SecondLook { flows: look.flows, between: look.between.into() };
    looks.map(look).collect()
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
    let index = measurements.map(|measurements| Index::explained(evidence, measurements));
    let evidence = &Evidence { measurements, index: index.as_ref(), ..*evidence };
    let beliefs = links::beliefs(evidence);
    let evidence = &Evidence { beliefs: Some(&beliefs), ..*evidence };
    let found = rules::ALL.iter().flat_map(|rule| found_by(rule, evidence));
    let mut findings = causes::attribute(found.collect(), evidence);
    rules::pasted_unclear::decide(evidence, &mut findings);
    without_known(&mut findings);
    for finding in &mut findings {
        finding.location = words::location(evidence.snapshot, &finding.subject);
    }
    without_empty_references(&mut findings);
    applicable::fit(evidence, &mut findings);
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| {
            // Findings on the machine come before the finding on the input.
            let is_of_input = finding.code == rules::pasted_unclear::RULE.id;
            (Reverse(finding.severity), is_of_input, finding.subject.clone(), finding.code.clone())
        };
        key(one).cmp(&key(other))
    });
    findings
}

/// Removes the account of figures that nothing explains if other findings are on their GPUs: these say more.
fn without_known(findings: &mut Vec<Finding>) {
    let is_open = |finding: &Finding| finding.code == rules::not_explained::RULE.id;
    let known: Vec<BTreeSet<u32>> = findings.iter().filter_map(gpus_of).collect();
    findings.retain(|finding| {
        let gpus = &finding.scope.gpus;
        let is_known = |known: &BTreeSet<u32>| {
            known.is_empty() || gpus.is_empty() || gpus.iter().any(|gpu| known.contains(gpu))
        };
        !is_open(finding) || !known.iter().any(is_known)
    });
}

/// Removes the advice to see the other findings on GPUs that have none.
fn without_empty_references(findings: &mut [Finding]) {
    let touched: Vec<_> = findings.iter().map(gpus_of).collect();
    for (own, finding) in findings.iter_mut().enumerate() {
        let is_there = |gpus: &[u32]| {
            let mut others = touched.iter().enumerate();
            others.any(|(other, touched)| match touched {
                _ if other == own => false,
                None => false,
                Some(touched) => touched.is_empty() || gpus.iter().any(|gpu| touched.contains(gpu)),
            })
        };
        let leads_nowhere =
            |step: &Step| step.id == SEE_OTHERS && !step.gpus.is_empty() && !is_there(&step.gpus);
        let Some(place) = finding.steps.iter().position(leads_nowhere) else {
            continue;
        };
        let mut steps = finding.steps.clone();
        steps.remove(place);
        // The way to go on if these steps do not apply is then the first one.
        if steps.first().is_some_and(|step| step.when == When::Otherwise) {
            let otherwise = steps.iter_mut().filter(|step| step.when == When::Otherwise);
            otherwise.for_each(|step| step.when = When::Now);
        }
        if !steps.is_empty() {
            *finding = finding.clone().steps(steps);
        }
    }
}

/// Returns the GPUs that a finding is about, none if it is about the machine as a whole; `None` for information.
fn gpus_of(finding: &Finding) -> Option<BTreeSet<u32>> {
    (finding.severity > Severity::Info).then(|| finding.scope.all_gpus())
}

/// Returns the findings of one rule, with the severity that the user set.
fn found_by(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    match evidence.settings.level(&rule.id) {
        Some(Level::Off) => Vec::new(),
        Some(Level::At(severity)) => {
            let found = rule.judge(evidence).into_iter();
            found.map(|finding| finding.at(severity)).collect()
        }
        None => rule.judge(evidence),
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
        Some(Silenced { code: rule.id.clone(), severity })
    });
    silenced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Plan, Step as Advice, all};
    use model::finding::Subject;

    #[test]
    fn other_findings_are_named_only_where_there_are_some() {
        let plan = Plan::now([Advice::OtherFindings(all(&[2]))]).otherwise([Advice::CheckIdle]);
        let on = |index, severity, plan: Plan| {
            let subject = Subject::Gpu { index };
            Finding::new("any".to_owned().into(), severity, subject, "words", plan.into())
        };
        let after = |other: Finding| {
            let mut findings = [on(2, Severity::Error, plan.clone()), other];
            without_empty_references(&mut findings);
            findings[0].next_step.clone()
        };
        let other = |index, severity| on(index, severity, Plan::now([Advice::CheckAgain]));
        for nothing in [other(3, Severity::Error), other(2, Severity::Info)] {
            assert_eq!(after(nothing), "Check again with the machine and its host idle");
        }
        let said = after(other(2, Severity::Warning));
        assert!(said.starts_with("See the other findings on GPU 2"), "{said}");
    }
}
