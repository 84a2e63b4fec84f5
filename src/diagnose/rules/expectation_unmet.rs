//! # What it means
//!
//! The machine lacks something that the file of `--expect` asks for. It may be healthy.
//!
//! # What to do
//!
//! Compare with the order and the machine behind the file (`peerscope expect`). Other findings on the same GPU show
//! the cause.
//!
//! # How it is detected
//!
//! Compared with the file: number and model of the GPUs, generation and lanes of each PCIe link (as seen under load
//! if copies ran), active NVLinks, peer access as CUDA grants it, and every figure that `[figures]` limits.
//!
//! # Sources
//!
//! The file itself.

use super::prelude::*;
use super::worse::{self, Against};
use crate::expectations::Expectations;
use crate::facts::{self, NAME, RequiredFact};
use model::machine_facts::{Component, PEER_ACCESS, in_words};
use serde_json::Value;

pub(crate) const RULE: Rule = Rule::new("expectation-unmet", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(expected) = evidence.expectations else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = number_of_gpus(evidence, expected).into_iter().collect();
    let facts = facts::of(evidence);
    for required in RequiredFact::of(expected) {
        let unmet = required.unmet(&facts).into_iter();
        findings.extend(unmet.map(|(found, parts)| fact(evidence, &required, found, &parts)));
    }
    let checks = expected.checks(evidence.measurements, evidence.topology).into_iter();
    let figures: Vec<_> = checks.flat_map(|check| check.figures).collect();
    let against = Against::Expectations;
    findings.extend(worse::findings(evidence, &RULE, against, &figures, |figure| {
        figure.percent_worse().is_some_and(|percent| percent > 0.0)
    }));
    findings
}

fn number_of_gpus(evidence: &Evidence<'_>, expected: &Expectations) -> Option<Finding> {
    let found = evidence.snapshot.gpus.len();
    let count = expected.machine.gpus.filter(|count| *count as usize != found)?;
    let message = format!("{} expected, {found} found", words::count(count, "GPU"));
    let no_gpu = || OneOf(Vec::new());
    let plan = Plan::now([Step::Bus, Step::DriverLog])
        .if_it_stays([Step::PowerCables(no_gpu()), Step::Reseat(Part::Gpu(no_gpu()))])
        .otherwise([Step::ChangeExpectations]);
    let finding = RULE.finding(Subject::Machine, message, plan);
    Some(finding.fact("expected", count).fact("found", found))
}

/// Returns the finding on GPUs or pairs that share a fact that was not expected.
fn fact(
    evidence: &Evidence<'_>,
    required: &RequiredFact,
    found: &Value,
    parts: &[Component],
) -> Finding {
    let (gpus, pairs) = facts::gpus_and_pairs(parts);
    let [said, wanted] = [found, &required.wanted].map(in_words);
    let (subject, place, last) = match pairs.len() {
        0 => (Subject::of_gpus(&gpus), words::named(evidence.snapshot, &gpus), None),
        count => (Subject::of_pairs(&pairs), words::count(count, "pair"), Some(words::pairs(&pairs))),
    };
    let (what, last) = (facts::what(required.key), words::after("; ", last));
    let plan = match required.key {
        PEER_ACCESS => Plan::now([Step::FindingOf("peer-access-missing")]),
        NAME => Plan::now([Step::CompareOrdered, Step::CompareExpected]),
        _ => Plan::now([Step::OtherFindings(all(&gpus))]).otherwise([Step::CompareOrdered]),
    };
    let finding = RULE
        .finding(subject, format!("{place}: {what} {said}, expected {wanted}{last}"), plan)
        .fact("expected", Fact::Other(required.wanted.clone()))
        .fact("found", Fact::Other(found.clone()));
    if pairs.is_empty() { finding.gpus(&gpus) } else { finding.pairs(&pairs) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn a_gpu_that_is_missing_is_to_be_looked_for() {
        let found = expecting("[machine]\ngpus = 8\n", |_| ());
        let may = ["ask-host", "change-expectations", "xid"];
        assert_advice(&RULE, &found, &["lspci"], &may);
    }
}
