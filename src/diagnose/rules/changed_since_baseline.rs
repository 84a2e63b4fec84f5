//! # What it means
//!
//! Something differs from an earlier report of this machine, but is not worse.
//!
//! # What to do
//!
//! If it was intended, use the new report as baseline.
//!
//! # How it is detected
//!
//! As `fell-since-baseline`: a new GPU, versions of driver, CUDA, kernel and video BIOS, settings such as ECC, MIG,
//! IOMMU and ACS, sizes of memory and BAR1, highest rates of links, more NVLinks, peer access granted now, bandwidth
//! that rose by more than `least_rise_percent` and its noise, other figures by as much as a fall.
//!
//! # Sources
//!
//! As `fell-since-baseline`.

use super::fell_since_baseline;
use super::prelude::*;
use crate::baseline::Beside;
use crate::facts::{self, Change};
use crate::figures::Allowances;
use model::machine_facts::in_words;

rule! {
    "changed-since-baseline", Info, One(judge);
    /// a smaller rise is not reported; as least_fall_percent of fell-since-baseline
    LEAST_RISE: least_rise_percent = 3.0;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let beside = Beside::of(evidence)?;
    let mut changes = machine(evidence, &beside);
    let Allowances([_, others @ ..]) = fell_since_baseline::allowances(evidence);
    let [link, memory, processor, time] = others;
    let pair = LEAST_RISE.of(evidence);
    let allowed = Allowances([pair, link, memory, processor, time]);
    let figures = beside.figures(evidence);
    let rose = figures.iter().filter(|figure| figure.is_better(&allowed)).count();
    if rose > 0 {
        changes.push(format!("{rose} of {} figures rose", figures.len()));
    }
    let count = words::count(changes.len(), "change");
    let then = &beside.old.started_at;
    let message = format!("{count} since the earlier report of {then}; {}", changes.join("; "));
    let steps = [Step::Nothing(Fine::IfMeant), Step::NewBaseline];
    let found = RULE.on_machine(message, steps);
    (!changes.is_empty()).then(|| found.fact("changes", changes.len()))
}

/// Returns the parts, versions and settings that differ, in words.
pub(crate) fn machine(evidence: &Evidence<'_>, beside: &Beside<'_>) -> Vec<String> {
    let name = |gpu: &Gpu| evidence.name(gpu.index);
    let new = beside.appeared(evidence).into_iter();
    let mut changes: Vec<String> = new.map(|gpu| format!("{} is new", name(gpu))).collect();
    for (old, new) in beside.gpus(evidence) {
        // Reports that were passed on have no identifiers.
        let uuids = old.uuid.known().zip(new.uuid.known());
        if uuids.is_some_and(|(old, new)| old != new) {
            let serials = old.serial.known().zip(new.serial.known());
            let serials = serials.filter(|(old, new)| old != new);
            let serials = serials.map(|(old, new)| format!("serial {old}, now {new}"));
            changes.push(format!("{} was replaced{}", name(new), words::in_brackets(serials)));
        }
    }
    let others = beside.facts(evidence).into_iter().filter(Change::is_other);
    let mut facts = words::grouped(others.map(|change| {
        let [then, now] = [&change.then, &change.now].map(in_words);
        ((facts::what(&change.key), now, then), change.part)
    }));
    let granted = ("peer access".to_owned(), "on".to_owned(), "off".to_owned());
    if let Some(pairs) = facts.remove(&granted) {
        let pairs = words::count(pairs.len(), "pair");
        changes.push(format!("{pairs} with peer access that had none"));
    }
    changes.extend(facts.iter().map(|((what, now, then), parts)| {
        format!("{what} {now}, was {then}{}", words::in_brackets(facts::of_parts(evidence, parts)))
    }));
    changes
}
