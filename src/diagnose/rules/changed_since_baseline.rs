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

/// Returns what differs of the RDMA adapters: those that are gone or new, their ports, their firmware.
fn adapters(then: &Snapshot, now: &Snapshot) -> Vec<String> {
    let rdma = |of: &'static str, snapshot: &Snapshot, others: &Snapshot| {
        let own = snapshot.adapters.iter().filter(|it| it.kind == AdapterKind::Rdma);
        let is_alone = |it: &&Adapter| others.adapters.iter().all(|other| other.pci != it.pci);
        let text = |it: &Adapter| format!("{} at {} is {of}", it.name, it.pci);
        own.filter(is_alone).map(text).collect::<Vec<_>>()
    };
    let mut changes = [rdma("gone", then, now), rdma("new", now, then)].concat();
    let mut firmware = Vec::new();
    for new in now.adapters.iter().filter(|it| it.kind == AdapterKind::Rdma) {
        let Some(old) = then.adapters.iter().find(|old| old.pci == new.pci) else { continue };
        for port in new.ports.known().into_iter().flatten() {
            let mut before = old.ports.known().into_iter().flatten();
            let before = before.find(|before| before.port == port.port);
            let states = before.and_then(|before| before.state.known().zip(port.state.known()));
            let rates = before.and_then(|before| before.rate_mbit.get().zip(port.rate_mbit.get()));
            let place = format!("{}: port {} is", new.name, port.port);
            match (states, rates) {
                (Some((was, is)), _) if was != is => {
                    changes.push(format!("{place} {is}, was {was}"))
                }
                (_, Some((was, is))) if was != is => {
                    changes.push(format!("{place} at {} Gb/s, was at {}", is / 1000, was / 1000));
                }
                _ => {}
            }
        }
        let versions =
            old.firmware.known().zip(new.firmware.known()).filter(|(old, new)| old != new);
        firmware.extend(versions.map(|versions| (versions, new.name.as_str())));
    }
    let same = words::grouped(firmware).into_iter();
    changes.extend(
        same.map(|((old, new), names)| format!("firmware {new}, was {old} ({})", names.join(", "))),
    );
    changes
}

/// Returns the parts, versions and settings that differ, in words.
pub(crate) fn machine(evidence: &Evidence<'_>, beside: &Beside<'_>) -> Vec<String> {
    let name = |gpu: &Gpu| evidence.name(gpu.index);
    let new = beside.appeared(evidence).into_iter();
    let mut changes: Vec<String> = new.map(|gpu| format!("{} is new", name(gpu))).collect();
    for (old, new) in beside.gpus(evidence) {
        // Reports that were passed on have no identifiers.
        let uuids = old.uuid.known().zip(new.uuid.known());
        if uuids.is_none_or(|(old, new)| old == new) {
            continue;
        }
        let before = beside.old.snapshot.gpus.iter().find(|before| before.uuid == new.uuid);
        if let Some(before) = before {
            let was = before.pci.get().map_or_else(|| before.label(), |at| at.to_string());
            changes.push(format!("{} was at {was}", name(new)));
        } else {
            let serials = old.serial.known().zip(new.serial.known());
            let serials = serials.filter(|(old, new)| old != new);
            let serials = serials.map(|(old, new)| format!("serial {old}, now {new}"));
            changes.push(format!("{} was replaced{}", name(new), words::in_brackets(serials)));
        }
    }
    changes.extend(adapters(&beside.old.snapshot, evidence.snapshot));
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
