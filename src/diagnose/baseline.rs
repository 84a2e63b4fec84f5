//! Compares an earlier report with today's: which GPU is which, and what is different, pair by pair.

use std::collections::HashMap;

use super::evidence::Evidence;
use super::facts::{self, Change};
use super::figures::{self, Compared, Ends, Table};
use model::finding::{Finding, Scope, Subject};
use model::machine_facts::{Component, MachineFacts, machine_facts};
use model::measurement::Measurements;
use model::placement::Pair;
use model::report::Report;
use model::request::{LeftOutGpu, Request};
use model::snapshot::{Gpu, Snapshot};
use model::units::PciAddress;

/// Today's machine and an earlier report of it.
pub(crate) struct Beside<'a> {
    pub old: &'a Report,
    /// Index today of the GPU that had this index in the earlier report.
    today: HashMap<u32, u32>,
}

impl<'a> Beside<'a> {
    /// Returns the comparison with the earlier report, if one was given.
    pub(crate) fn of(evidence: &Evidence<'a>) -> Option<Self> {
        Some(Self::new(evidence.baseline?, evidence.snapshot))
    }

    pub(crate) fn new(old: &'a Report, now: &Snapshot) -> Self {
        let same = |gpu: &Gpu| {
            let now = now.gpus.iter().find(|now| Slot::of(gpu).is(&Slot::of(now)))?;
            Some((gpu.index, now.index))
        };
        let today = old.snapshot.gpus.iter().filter_map(same).collect();
        Self { old, today }
    }

    /// Returns the GPUs of the earlier report that are gone today and were not left out of today's run.
    pub(crate) fn vanished(&self, evidence: &Evidence<'_>) -> Vec<&'a Gpu> {
        let others =
            self.old.snapshot.gpus.iter().filter(|gpu| !self.today.contains_key(&gpu.index));
        others.filter(|gpu| !is_left_out(evidence.request, gpu)).collect()
    }

    /// Returns the GPUs that are there today, were not in the earlier report, and were not left out of it.
    pub(crate) fn appeared<'n>(&self, evidence: &Evidence<'n>) -> Vec<&'n Gpu> {
        let known: Vec<_> = self.today.values().collect();
        let others = evidence.snapshot.gpus.iter().filter(|gpu| !known.contains(&&gpu.index));
        others.filter(|gpu| !is_left_out(&self.old.request, gpu)).collect()
    }

    /// Returns true if today's report covers the subject of this earlier finding.
    pub(crate) fn is_looked_at(&self, evidence: &Evidence<'_>, then: &Finding) -> bool {
        let left_out =
            |gpu: &Gpu| !self.today.contains_key(&gpu.index) && is_left_out(evidence.request, gpu);
        let seen = |index: u32| !self.old.snapshot.gpu(index).is_some_and(left_out);
        let both_seen = |pair: &Pair| seen(pair.source) && seen(pair.destination);
        let Scope { pairs, gpus, .. } = &then.scope;
        match &then.subject {
            Subject::Machine => pairs.iter().all(both_seen) && gpus.iter().all(|gpu| seen(*gpu)),
            Subject::Gpu { index } | Subject::Link { index, .. } => seen(*index),
            Subject::Pair(pair) => both_seen(pair),
            // One path over the link is enough to show it.
            Subject::PcieLink { .. } => pairs.is_empty() || pairs.iter().any(both_seen),
            Subject::PciFunction { address } => {
                !evidence.request.left_out_gpus.iter().any(|gpu| gpu.pci == Some(*address))
            }
        }
    }

    /// Returns the GPUs of both reports, each earlier GPU with today's.
    pub(crate) fn gpus<'n>(&self, evidence: &Evidence<'n>) -> Vec<(&'a Gpu, &'n Gpu)> {
        let of = |gpu: &'a Gpu| Some((gpu, evidence.snapshot.gpu(*self.today.get(&gpu.index)?)?));
        self.old.snapshot.gpus.iter().filter_map(of).collect()
    }

    /// Returns a pair by today's indices.
    pub(crate) fn pair(&self, old: Pair) -> Option<Pair> {
        Some(Pair {
            source: *self.today.get(&old.source)?,
            destination: *self.today.get(&old.destination)?,
        })
    }

    /// Returns true if a GPU of both reports has another index today.
    pub(crate) fn is_renumbered(&self) -> bool {
        self.today.iter().any(|(then, now)| then != now)
    }

    /// Returns the earlier figures whose GPUs are there today.
    pub(crate) fn table(&self) -> Table {
        figures::with_indices(figures::table_of(self.old.measurements.as_ref()), &self.today)
    }

    /// Returns every earlier figure whose GPUs are there today, with today's figure.
    pub(crate) fn figures(&self, evidence: &Evidence<'_>) -> Vec<Compared<Ends>> {
        figures::compare(&self.table(), &figures::table_of(evidence.measurements))
    }

    /// Counts the figures that only one of the two reports has, and those of both.
    pub(crate) fn counterparts(&self, evidence: &Evidence<'_>) -> Counterparts {
        let there: HashMap<u32, u32> = self.today.values().map(|index| (*index, *index)).collect();
        let now = figures::with_indices(figures::table_of(evidence.measurements), &there);
        let known = |table: &Table| table.values().flatten().count();
        let then = known(&figures::table_of(self.old.measurements.as_ref()));
        let (mut compared, mut failed, mut not_planned) = (0, 0, 0);
        let figures = self.figures(evidence);
        for Compared { identity, kind, .. } in &figures {
            match now.get(&(identity.clone(), kind.clone())) {
                Some(Some(_)) => compared += 1,
                Some(None) => failed += 1,
                None => not_planned += 1,
            }
        }
        let (without_gpu, only_now) = (then - figures.len(), known(&now) - compared);
        Counterparts { compared, failed, not_planned, without_gpu, only_now }
    }

    /// Returns the facts of both reports that differ, parts by today's indices.
    pub(crate) fn facts(&self, evidence: &Evidence<'_>) -> Vec<Change> {
        let then = machine_facts(&self.old.snapshot, &self.old.topology);
        let part = |part| {
            Some(match part {
                Component::Gpu(gpu) => Component::Gpu(*self.today.get(&gpu)?),
                Component::Pair(pair) => Component::Pair(self.pair(pair)?),
                other => other,
            })
        };
        let then: MachineFacts = then
            .into_iter()
            .filter_map(|((of, key), value)| Some(((part(of)?, key), value)))
            .collect();
        Change::between(&then, &facts::of(evidence))
    }
}

/// Numbers of figures by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counterparts {
    /// In both reports.
    pub compared: usize,
    /// Earlier figures that were to be measured again and have no sound figure.
    pub failed: usize,
    /// Earlier figures that the later run did not plan.
    pub not_planned: usize,
    /// Earlier figures of GPUs that the later report does not have.
    pub without_gpu: usize,
    /// Later figures, of GPUs in both reports, that the earlier report lacks.
    pub only_now: usize,
}

impl Counterparts {
    /// Returns the number of earlier figures of GPUs in both reports that the later one lacks.
    pub(crate) const fn missing(self) -> usize {
        self.failed + self.not_planned
    }

    /// Returns the reasons why earlier figures have no counterpart, each with its number.
    pub(crate) fn reasons(self, old: &Report, new: Option<&Measurements>) -> Vec<String> {
        let profile = |measured: Option<&Measurements>| {
            measured.map_or_else(|| "none".to_owned(), |measured| measured.profile.clone())
        };
        let [then, now] = [old.measurements.as_ref(), new].map(profile);
        let not_planned = if then == now {
            "not part of this run".to_owned()
        } else {
            format!("not part of this run (profile {now}, earlier {then})")
        };
        [
            (self.not_planned, not_planned),
            (self.failed, "measured without a result".to_owned()),
            (self.without_gpu, "of GPUs that this report has not".to_owned()),
        ]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, why)| format!("{number} {why}"))
        .collect()
    }
}

/// Returns true if `--gpus` left this GPU of the other report out.
fn is_left_out(request: &Request, gpu: &Gpu) -> bool {
    let slot = |gpu: &LeftOutGpu| Slot { pci: gpu.pci, uuid: gpu.uuid.clone(), index: gpu.index };
    request.left_out_gpus.iter().any(|left_out| slot(left_out).is(&Slot::of(gpu)))
}

/// The facts that identify the place of a GPU in a report.
struct Slot {
    pci: Option<PciAddress>,
    uuid: Option<String>,
    index: Option<u32>,
}

impl Slot {
    fn of(gpu: &Gpu) -> Self {
        Self { pci: gpu.pci.get(), uuid: gpu.uuid.known().cloned(), index: Some(gpu.index) }
    }

    /// Returns true if two GPUs of two reports sit in the same place: a path belongs to the slot and not to the card in
    /// it. If an address is not known, the UUID decides, and otherwise the index.
    fn is(&self, other: &Self) -> bool {
        let of_pci = self.pci.zip(other.pci).map(|(one, other)| one == other);
        let of_uuid = || Some(self.uuid.as_ref()? == other.uuid.as_ref()?);
        let of_index = self.index.is_some() && self.index == other.index;
        of_pci.or_else(of_uuid).unwrap_or(of_index)
    }
}
