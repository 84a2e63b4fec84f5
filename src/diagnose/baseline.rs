//! Compares an earlier report with today's: which GPU is which, and what is different, pair by pair.

use std::collections::{HashMap, HashSet};

use super::evidence::Evidence;
use super::host_figures::{self, Figure, Shortfall, What};
use model::finding::{Finding, Scope, Subject};
use model::flow::Setup;
use model::measurement::{PeerBandwidth, Status};
use model::placement::Pair;
use model::report::Report;
use model::request::{LeftOutGpu, Request};
use model::snapshot::Gpu;
use model::units::PciAddress;

/// Today's machine and an earlier report of it.
pub(crate) struct Beside<'a> {
    pub old: &'a Report,
    /// Index today of the GPU that had this index in the earlier report.
    today: HashMap<u32, u32>,
}

/// A figure's identity, with the pair by today's indices.
type Key = (Pair, Setup);

/// A figure of the earlier report and today's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldAndNew<'a> {
    /// The pair by today's indices.
    pub pair: Pair,
    pub old: &'a PeerBandwidth,
    /// Today's figure; `None` if it was not measured.
    pub new: Option<&'a PeerBandwidth>,
}

impl OldAndNew<'_> {
    /// Returns how far today's figure lies below the old one, per cent of it; negative if it rose.
    pub(crate) fn fall_percent(&self) -> Option<f64> {
        let (old, new) = (self.old.achieved_gbps?, self.new?.achieved_gbps?);
        (old.0 > 0.0).then(|| 100.0 * (old.0 - new.0) / old.0)
    }

    /// Returns how far two such figures may differ by their own noise: half the spread of each, per cent.
    pub(crate) fn noise_percent(&self) -> f64 {
        let half = |cell: &PeerBandwidth| cell.spread_percent.unwrap_or(0.0) / 2.0;
        half(self.old) + self.new.map_or(0.0, half)
    }
}

/// A figure of one GPU and the host, of the earlier report and today's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostOldAndNew {
    /// The GPU, by today's index.
    pub gpu: u32,
    /// The kind of figure.
    pub what: What,
    pub old: Figure,
    /// Today's figure; `None` if it was not measured.
    pub new: Option<Figure>,
}

impl HostOldAndNew {
    /// Returns how far today's figure lies from the old one; `None` if there is none today.
    pub(crate) fn change(&self) -> Option<Shortfall> {
        Some(Shortfall {
            gpu: self.gpu,
            what: self.what,
            wanted: self.old.value,
            found: self.new?.value,
        })
    }

    /// Returns how far two such figures may differ by their own noise: half the spread of each, per cent.
    pub(crate) fn noise_percent(&self) -> f64 {
        (self.old.spread_percent + self.new.map_or(0.0, |new| new.spread_percent)) / 2.0
    }
}

impl<'a> Beside<'a> {
    /// Returns the comparison with the earlier report, if one was given.
    pub(crate) fn of(evidence: &Evidence<'a>) -> Option<Self> {
        let old = evidence.baseline?;
        let mut today = HashMap::new();
        for gpu in &old.snapshot.gpus {
            if let Some(same) = evidence
                .snapshot
                .gpus
                .iter()
                .find(|new| SlotIdentity::of(gpu).is(&SlotIdentity::of(new)))
            {
                today.insert(gpu.index, same.index);
            }
        }
        Some(Self { old, today })
    }

    /// Returns the GPUs of the earlier report that are gone today and were not left out of today's run.
    pub(crate) fn vanished(&self, evidence: &Evidence<'_>) -> Vec<&'a Gpu> {
        let others = self
            .old
            .snapshot
            .gpus
            .iter()
            .filter(|gpu| !self.today.contains_key(&gpu.index));
        others
            .filter(|gpu| !is_left_out(evidence.request, gpu))
            .collect()
    }

    /// Returns the GPUs that are there today, were not in the earlier report, and were not left out of it.
    pub(crate) fn appeared<'n>(&self, evidence: &Evidence<'n>) -> Vec<&'n Gpu> {
        let known: Vec<_> = self.today.values().collect();
        let others = evidence
            .snapshot
            .gpus
            .iter()
            .filter(|gpu| !known.contains(&&gpu.index));
        others
            .filter(|gpu| !is_left_out(&self.old.request, gpu))
            .collect()
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
            Subject::PciFunction { address } => !evidence
                .request
                .left_out_gpus
                .iter()
                .any(|gpu| gpu.pci == Some(*address)),
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

    /// Returns every earlier figure whose GPUs are there today, with today's figure.
    pub(crate) fn figures<'n>(&self, evidence: &Evidence<'n>) -> Vec<OldAndNew<'n>>
    where
        'a: 'n,
    {
        let by_key: HashMap<Key, &PeerBandwidth> = evidence
            .peer()
            .iter()
            .filter(|cell| is_figure(cell))
            .map(|cell| (key(cell, cell.pair), cell))
            .collect();
        let old = self
            .old
            .measurements
            .iter()
            .flat_map(|measurements| &measurements.peer);
        old.filter(|cell| is_figure(cell))
            .filter_map(|cell| {
                let pair = self.pair(cell.pair)?;
                Some(OldAndNew {
                    pair,
                    old: cell,
                    new: by_key.get(&key(cell, pair)).copied(),
                })
            })
            .collect()
    }

    /// Returns every earlier figure of host and GPU whose GPU is there today, with today's figure.
    pub(crate) fn host_figures(&self, evidence: &Evidence<'_>) -> Vec<HostOldAndNew> {
        let of = |measurements| host_figures::figures(measurements);
        let new = evidence.measurements.map(of).unwrap_or_default();
        let old = self.old.measurements.as_ref().map(of).unwrap_or_default();
        let both = |((gpu, what), old): ((u32, What), Option<Figure>)| {
            let gpu = *self.today.get(&gpu)?;
            Some(HostOldAndNew {
                gpu,
                what,
                old: old?,
                new: new.get(&(gpu, what)).copied().flatten(),
            })
        };
        old.into_iter().filter_map(both).collect()
    }

    /// Returns how many of today's figures the earlier report lacks, of GPUs that it contains.
    pub(crate) fn only_today(&self, evidence: &Evidence<'_>) -> usize {
        let Some(new) = evidence.measurements else {
            return 0;
        };
        let there: HashSet<u32> = self.today.values().copied().collect();
        let pairs = self.figures(evidence);
        let known: HashSet<Key> = pairs
            .iter()
            .map(|figures| key(figures.old, figures.pair))
            .collect();
        let on_both =
            |pair: Pair| there.contains(&pair.source) && there.contains(&pair.destination);
        let peer = new
            .peer
            .iter()
            .filter(|cell| is_figure(cell) && on_both(cell.pair));
        let peer: HashSet<Key> = peer.map(|cell| key(cell, cell.pair)).collect();
        let known_host: HashSet<(u32, What)> = self
            .host_figures(evidence)
            .iter()
            .map(|figures| (figures.gpu, figures.what))
            .collect();
        let host = host_figures::figures(new).into_iter();
        let host = host.filter(|(of, figure)| {
            figure.is_some() && there.contains(&of.0) && !known_host.contains(of)
        });
        peer.difference(&known).count() + host.count()
    }
}

/// Returns true if `--gpus` left this GPU of the other report out.
fn is_left_out(request: &Request, gpu: &Gpu) -> bool {
    request
        .left_out_gpus
        .iter()
        .any(|left_out| SlotIdentity::from(left_out).is(&SlotIdentity::of(gpu)))
}

/// The facts that identify the place of a GPU in a report.
struct SlotIdentity<'a> {
    pci: Option<PciAddress>,
    uuid: Option<&'a String>,
    index: Option<u32>,
}

impl<'a> SlotIdentity<'a> {
    fn of(gpu: &'a Gpu) -> Self {
        Self {
            pci: gpu.pci.get(),
            uuid: gpu.uuid.known(),
            index: Some(gpu.index),
        }
    }

    /// Returns true if two GPUs of two reports sit in the same place: a path belongs to the slot and not to the card in
    /// it. If an address is not known, the UUID decides, and otherwise the index.
    fn is(&self, other: &Self) -> bool {
        if let (Some(one), Some(other)) = (self.pci, other.pci) {
            return one == other;
        }
        match (self.uuid, other.uuid) {
            (Some(one), Some(other)) => one == other,
            _ => self.index.is_some() && self.index == other.index,
        }
    }
}

impl<'a> From<&'a LeftOutGpu> for SlotIdentity<'a> {
    fn from(gpu: &'a LeftOutGpu) -> Self {
        Self {
            pci: gpu.pci,
            uuid: gpu.uuid.as_ref(),
            index: gpu.index,
        }
    }
}

fn is_figure(cell: &PeerBandwidth) -> bool {
    cell.ending.status == Status::Measured
        && cell.achieved_gbps.is_some()
        && !cell.verified.is_wrong()
}

fn key(cell: &PeerBandwidth, pair: Pair) -> Key {
    (pair, cell.setup.of_any_size())
}
