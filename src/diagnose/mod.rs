//! Facts, topology and figures → findings and a verdict. Nothing here sees a machine: a saved
//! report can be judged again anywhere.

mod baseline;
mod causes;
mod cluster;
pub mod compare;
mod coverage;
pub mod expectations;
pub mod expected;
mod links;
pub mod manual;
mod rule;
mod rules;
mod settings;
mod suspects;
mod verdict;
mod words;

pub use coverage::cells;
pub use rule::{Evidence, Rule};
pub use settings::{Level, Parameter, Settings};
pub use verdict::{Contract, Ending, Terms, exit_code, is_gap, verdict};

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::model::finding::Finding;
use crate::model::rounding::four_places;

/// Every rule, in the order in which they came to be.
pub fn registry() -> &'static [&'static dyn Rule] {
    rules::ALL
}

/// What all rules find: effects laid to their causes, each with its place, with the severities that
/// the user set; the worst first, then by subject.
pub fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = registry().iter().flat_map(|rule| rule.judge(evidence)).collect();
    let mut findings = causes::fold(found, evidence);
    findings.retain_mut(|finding| match evidence.settings.level(&finding.code) {
        Some(Level::Off) => false,
        Some(Level::At(severity)) => {
            finding.severity = severity;
            true
        }
        None => true,
    });
    for finding in &mut findings {
        finding.evidence.values_mut().for_each(settle);
        finding.location = words::location(evidence.snapshot, &finding.subject);
    }
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| (Reverse(finding.severity), finding.subject.clone(), finding.code.clone());
        key(one).cmp(&key(other))
    });
    findings
}

/// Keeps of every figure what a report keeps of it, so that a saved report holds the same evidence.
fn settle(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(settle),
        Value::Object(fields) => fields.values_mut().for_each(settle),
        Value::Number(number) if number.is_f64() => *value = json!(number.as_f64().map(four_places)),
        _ => {}
    }
}

/// The manual page of a rule; `None` where no rule has this code.
pub fn explain(code: &str) -> Option<String> {
    let rule = registry().iter().find(|rule| rule.code() == code)?;
    Some(format!("{} ({})\n\n{}", rule.code(), rule.severity(), manual::page(*rule)))
}

#[cfg(test)]
mod causes_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
