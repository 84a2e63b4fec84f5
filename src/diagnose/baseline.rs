//! An earlier report beside today's: which GPU is which, and what is different, pair by pair.

use std::collections::HashMap;

use super::evidence::Evidence;
use crate::model::flow::Setup;
use crate::model::measurement::{PeerBandwidth, Status};
use crate::model::placement::Pair;
use crate::model::report::Report;
use crate::model::snapshot::Gpu;

/// Today's machine beside an earlier report of it.
pub struct Beside<'a> {
    /// The earlier report.
    pub old: &'a Report,
    /// Index today of the GPU that had this index then.
    today: HashMap<u32, u32>,
}

/// What a figure is of, the pair by today's indices.
type Key = (Pair, Setup);

/// A figure then and today.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    /// The pair by today's indices.
    pub pair: Pair,
    /// Then.
    pub old: &'a PeerBandwidth,
    /// Today; none where it was not measured.
    pub new: Option<&'a PeerBandwidth>,
}

impl Figures<'_> {
    /// How far today's figure lies below the old one, per cent of it; negative where it rose.
    pub fn fall_percent(&self) -> Option<f64> {
        let (old, new) = (self.old.achieved_gbps?, self.new?.achieved_gbps?);
        (old.0 > 0.0).then(|| 100.0 * (old.0 - new.0) / old.0)
    }

    /// How far two such figures may lie apart by their own noise: half the spread of each, per cent.
    pub fn noise_percent(&self) -> f64 {
        let half = |cell: &PeerBandwidth| cell.spread_percent.unwrap_or(0.0) / 2.0;
        half(self.old) + self.new.map_or(0.0, half)
    }
}

impl<'a> Beside<'a> {
    /// The earlier report, if one was given.
    pub fn of(evidence: &Evidence<'a>) -> Option<Self> {
        let old = evidence.baseline?;
        let mut today = HashMap::new();
        for gpu in &old.snapshot.gpus {
            if let Some(same) = evidence.snapshot.gpus.iter().find(|new| same_place(gpu, new)) {
                today.insert(gpu.index, same.index);
            }
        }
        Some(Self { old, today })
    }

    /// The GPUs that were there then and are not today.
    pub fn vanished(&self) -> Vec<&'a Gpu> {
        self.old.snapshot.gpus.iter().filter(|gpu| !self.today.contains_key(&gpu.index)).collect()
    }

    /// The GPUs that are there today and were not then.
    pub fn appeared<'n>(&self, evidence: &Evidence<'n>) -> Vec<&'n Gpu> {
        let known: Vec<_> = self.today.values().collect();
        evidence.snapshot.gpus.iter().filter(|gpu| !known.contains(&&gpu.index)).collect()
    }

    /// The GPUs of both, then and today.
    pub fn gpus<'n>(&self, evidence: &Evidence<'n>) -> Vec<(&'a Gpu, &'n Gpu)> {
        let of = |gpu: &'a Gpu| Some((gpu, evidence.snapshot.gpu(*self.today.get(&gpu.index)?)?));
        self.old.snapshot.gpus.iter().filter_map(of).collect()
    }

    /// A pair by today's indices.
    pub fn pair(&self, old: Pair) -> Option<Pair> {
        Some(Pair { source: *self.today.get(&old.source)?, destination: *self.today.get(&old.destination)? })
    }

    /// Every figure of then whose GPUs are there today, with today's.
    pub fn figures<'n>(&self, evidence: &Evidence<'n>) -> Vec<Figures<'n>>
    where
        'a: 'n,
    {
        let by_key: HashMap<Key, &PeerBandwidth> =
            evidence.peer().iter().filter(|cell| is_figure(cell)).map(|cell| (key(cell, cell.pair), cell)).collect();
        let old = self.old.measurements.iter().flat_map(|measurements| &measurements.peer);
        old.filter(|cell| is_figure(cell))
            .filter_map(|cell| {
                let pair = self.pair(cell.pair)?;
                Some(Figures { pair, old: cell, new: by_key.get(&key(cell, pair)).copied() })
            })
            .collect()
    }
}

/// Whether two GPUs of two reports sit in the same place: a path belongs to the slot and not to the
/// card in it. Where an address is not known, the UUID decides, and otherwise the index.
fn same_place(old: &Gpu, new: &Gpu) -> bool {
    if let (Some(old), Some(new)) = (old.pci.get(), new.pci.get()) {
        return old == new;
    }
    match (old.uuid.known(), new.uuid.known()) {
        (Some(old), Some(new)) => old == new,
        _ => old.index == new.index,
    }
}

fn is_figure(cell: &PeerBandwidth) -> bool {
    cell.status == Status::Measured && cell.achieved_gbps.is_some() && !cell.verified.is_wrong()
}

fn key(cell: &PeerBandwidth, pair: Pair) -> Key {
    (pair, cell.setup.of_any_size())
}
