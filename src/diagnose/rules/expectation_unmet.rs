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
use crate::facts::{self, Change};

rule! {
    "expectation-unmet", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(expected) = evidence.expectations else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = number_of_gpus(evidence, expected).into_iter().collect();
    let against = Against::Expectations;
    let unmet = Change::unmet(expected, &facts::of(evidence));
    findings.extend(worse::facts(evidence, &RULE, against, &unmet));
    let checks = expected.checks(evidence.measurements, evidence.topology).into_iter();
    let figures: Vec<_> = checks.flat_map(|check| check.figures).collect();
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
    let finding = RULE.on_machine(message, plan);
    Some(finding.fact("expected", count).fact("found", found))
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
