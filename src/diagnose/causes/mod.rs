//! One root cause, one finding: effects that a cause explains are attributed to it and not reported again.
//!
//! An effect is attributed to causes only if they explain every one of its pairs, and its figures if these are known. A
//! second fault beside a known one remains a separate finding.

mod reach;
mod table;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::evidence::Evidence;
use model::fact::Effect;
use model::finding::Finding;

/// Attributes effects to their causes. A cause is as bad as the worst of its effects, unless the machine is built that
/// way or the user has set its severity.
pub(crate) fn attribute(mut findings: Vec<Finding>, evidence: &Evidence<'_>) -> Vec<Finding> {
    // Mere effects first, then from the end of the table to its head: a cause which is itself an effect is attributed
    // together with its own effects.
    findings.sort_by_key(|finding| Reverse(table::rank(&finding.code)));
    let mut at = 0;
    while at < findings.len() {
        let effect = findings.remove(at);
        let causes = causes_of(&effect, &findings, evidence);
        if causes.is_empty() {
            findings.insert(at, effect);
            at += 1;
            continue;
        }
        for cause in causes {
            if let Some(cause) = findings.get_mut(cause) {
                add_effect(&effect, cause, evidence);
            }
        }
    }
    findings
}

/// Returns the findings that explain this one together. Empty if a pair of it stays unexplained.
fn causes_of(effect: &Finding, findings: &[Finding], evidence: &Evidence<'_>) -> Vec<usize> {
    let mut causes: Vec<_> = findings
        .iter()
        .enumerate()
        .flat_map(|(at, cause)| {
            table::reaches(&cause.code, &effect.code).map(move |reach| (at, cause, reach))
        })
        .collect();
    causes.sort_by_key(|(_, cause, _)| table::rank(&cause.code));
    if let Some((at, ..)) =
        causes.iter().find(|(_, cause, reach)| reach.explains_whole(cause, effect, evidence))
    {
        return vec![*at];
    }
    let pairs = &effect.scope.pairs;
    let mut needed = BTreeSet::new();
    for pair in pairs {
        let cause = causes
            .iter()
            .find(|(_, cause, reach)| reach.explains_pair(cause, *pair, pairs, evidence));
        let Some((at, ..)) = cause else {
            return Vec::new();
        };
        needed.insert(*at);
    }
    needed.into_iter().collect()
}

/// Makes an effect evidence of its cause.
fn add_effect(effect: &Finding, cause: &mut Finding, evidence: &Evidence<'_>) {
    if !table::is_as_built(&cause.code) && evidence.settings.level(&cause.code).is_none() {
        cause.severity = cause.severity.max(effect.severity);
    }
    let added = Effect { rule: effect.code.clone(), message: effect.message.clone() };
    cause.evidence.add_effect(added, effect.evidence.effects());
}
