//! Judges what the time of a job added, by the rules that judge every report. What was there before the job is not the
//! job's.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use super::judge::judge as by_rules;
use super::rules::{baseline_not_compared, job_not_judged};
use super::settings::Settings;
use super::verdict::is_gap;
use model::fact::Fact;
use model::finding::Finding;
use model::report::Report;

/// The fact of a finding that counts what was added meanwhile, beside what was there before.
const MEANWHILE: &str = "uncorrected_errors_meanwhile";

/// Returns the findings that the time of a job added to this report. A report that was not around a job is judged as a whole.
pub fn judge(report: &Report, settings: &Settings) -> Vec<Finding> {
    let Some(bracket) = &report.bracket else {
        return by_rules(&Evidence::of(report, settings));
    };
    if !bracket.not_comparable.is_empty() {
        return job_not_judged::RULE.judge(&Evidence::of(report, settings));
    }
    let before = Report {
        snapshot: bracket.before.clone(),
        topology: topology::build(&bracket.before),
        bracket: None,
        ..report.clone()
    };
    let was = by_rules(&Evidence::of(&before, settings));
    let now = by_rules(&Evidence { baseline: Some(&before), ..Evidence::of(report, settings) });
    let key = |finding: &Finding| (finding.code.clone(), finding.subject.clone());
    let known: BTreeSet<_> = was.iter().map(key).collect();
    // Neither reading measures anything.
    let is_of_figures = |finding: &Finding| finding.code == baseline_not_compared::RULE.id;
    let is_new = |finding: &Finding| {
        !known.contains(&key(finding)) || is_gap(&finding.code) || has_grown(finding, &was)
    };
    now.into_iter().filter(|finding| is_new(finding) && !is_of_figures(finding)).collect()
}

/// Returns true if a finding that was there before has counted more, or has effects that it did not have.
fn has_grown(finding: &Finding, was: &[Finding]) -> bool {
    let mut facts = finding.evidence.into_iter();
    let counted = facts.any(|(key, fact)| key == MEANWHILE && matches!(fact, Fact::Count(1..)));
    let same = |was: &&Finding| was.code == finding.code && was.subject == finding.subject;
    let before = was.iter().find(same);
    let effects = |finding: &Finding| finding.evidence.effects().len();
    counted || before.is_some_and(|before| effects(finding) > effects(before))
}

#[cfg(test)]
#[path = "bracket_tests.rs"]
pub(crate) mod tests;
