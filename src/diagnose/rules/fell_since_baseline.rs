//! # What it means
//!
//! Something is worse than in an earlier report of the same machine. It may be about to fail.
//!
//! # What to do
//!
//! Ask what was done in between (repair, driver, firmware, settings), look at other findings on the same GPU, and
//! measure again with the machine idle.
//!
//! # How it is detected
//!
//! `check --baseline OLD.json` and `compare OLD NEW` match GPUs by PCI address. Reported are a GPU that is gone (unless
//! `--gpus` left it out), a narrower or slower PCIe link, fewer active NVLinks, lost peer access, a more distant class,
//! and figures that fell by more than a parameter and half of each spread. The first two parameters give errors, the
//! others warnings. Calls and times must also rise by 40 us.
//!
//! # Sources
//!
//! H200 in virtual machines (measured): pinned one way 2.7% between two machines; a launch 3.2 to 8.9 us. Runs without
//! warm-up differ by 5 to 10% (cuda-samples issue 449).

use super::prelude::*;
use super::worse::{self, Against};
use crate::baseline::Beside;
use crate::facts::Change;
use crate::figures::{Allowances, Compared, Ends};
use crate::kind;

rule! {
    "fell-since-baseline", Error, All(judge);
    /// copies between GPUs; five runs on H200 lay within 0.41
    LEAST_FALL: least_fall_percent = kind::PAIR_PERCENT;
    /// page-locked memory, one way; chosen: five times the 1 between runs on H200
    LINK: least_fall_link_percent = kind::LINK_PERCENT;
    /// the same both ways, several GPUs at once, pipelines; chosen: 20 was measured within an hour on H200
    MEMORY: least_fall_memory_percent = kind::MEMORY_PERCENT;
    /// pageable memory, page-locking; chosen: healthy H200 had 4.5 to 15.4 GB/s
    PROCESSOR: least_fall_processor_percent = kind::PROCESSOR_PERCENT;
    /// calls and times; chosen above the factor of 3.3 between two healthy H200
    CALLS: least_rise_call_percent = 100.0 * (kind::TIMES - 1.0);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut gone = beside.vanished(evidence);
    if gone.len() > 1 && gone.len() == beside.old.snapshot.gpus.len() {
        let what = format!(
            "None of the {} GPUs of the earlier report is here; it is of another machine, or all were replaced",
            gone.len()
        );
        let next = Plan::now([Step::Bus, Step::DriverLog]);
        let addresses = gone
            .iter()
            .filter_map(|gpu| gpu.pci.get())
            .map(|address| address.to_string())
            .collect();
        let found = RULE.on_machine(what, next);
        findings.push(found.fact("addresses", Fact::Texts(addresses)));
        gone.clear();
    }
    for gpu in gone {
        let place = words::in_brackets(gpu.pci.get());
        let what = format!("GPU {}{place} of the earlier report is gone", gpu.index);
        let lost = || OneOf(vec![gpu.index]);
        let next = Plan::now([Step::Bus, Step::DriverLog])
            .if_it_stays([Step::PowerCables(lost()), Step::Reseat(Part::Gpu(lost()))]);
        let found = RULE.on_machine(what, next);
        findings.push(found);
    }
    let mut changes = beside.facts(evidence);
    changes.retain(Change::is_worse);
    findings.extend(worse::facts(evidence, &RULE, Against::EarlierReport, &changes));
    let allowed = allowances(evidence);
    let figures = beside.figures(evidence);
    let is_worse = |figure: &Compared<Ends>| figure.is_worse(&allowed);
    findings.extend(worse::findings(evidence, &RULE, Against::EarlierReport, &figures, is_worse));
    findings
}

/// Returns how much worse a figure may be by the parameters of this rule.
pub(crate) fn allowances(evidence: &Evidence<'_>) -> Allowances {
    let parameters = [&LEAST_FALL, &LINK, &MEMORY, &PROCESSOR, &CALLS];
    Allowances(parameters.map(|parameter| parameter.of(evidence)))
}
