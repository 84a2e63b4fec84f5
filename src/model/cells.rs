//! One view of everything that was measured, whatever the probe.

use std::collections::BTreeMap;

use super::flow::{Endpoint, Flow, Setup};
use super::measurement::{Measurements, PeerBandwidth, Probe, Status, Verified};
use super::placement::{Pair, Path};

/// One measurement that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// What was measured.
    pub probe: Probe,
    /// From where to where.
    pub flow: Flow,
    /// How.
    pub setup: Setup,
    /// How it ended.
    pub status: Status,
    /// Whether it has a figure.
    pub has_figure: bool,
    /// Why there is no figure.
    pub reason: Option<&'a str>,
    /// Whether the bytes arrived.
    pub verified: Verified,
}

impl Cell<'_> {
    /// Whether the bytes come from or go to this GPU.
    pub fn uses(&self, gpu: u32) -> bool {
        self.flow.ends().contains(&Endpoint::Gpu(gpu))
    }

    /// Whether it has an answer. Wrong bytes are one, whatever became of the timing.
    pub fn tested(&self) -> bool {
        self.verified.is_wrong() || (self.status == Status::Measured && self.has_figure)
    }
}

impl Measurements {
    /// Every setup that copies were planned in, whatever their size, in the order of the report.
    pub fn setups(&self) -> Vec<Setup> {
        let mut setups: Vec<Setup> = Vec::new();
        for setup in self.peer.iter().map(|peer| peer.setup.of_any_size()) {
            if !setups.contains(&setup) {
                setups.push(setup);
            }
        }
        setups
    }

    /// The cell of each pair in this setup, whatever its size: of several those that were measured
    /// come first, and of these the largest.
    pub fn in_setup(&self, setup: Setup) -> BTreeMap<Pair, &PeerBandwidth> {
        let weight = |cell: &PeerBandwidth| (cell.status == Status::Measured, cell.setup.bytes);
        let mut cells: BTreeMap<Pair, &PeerBandwidth> = BTreeMap::new();
        for cell in self.peer.iter().filter(|cell| cell.setup.of_any_size() == setup.of_any_size()) {
            let shown = cells.entry(cell.pair).or_insert(cell);
            if weight(shown) < weight(cell) {
                *shown = cell;
            }
        }
        cells
    }

    /// The figures that pairs are judged by on this path: measured in [`Setup::REFERENCE`].
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &PeerBandwidth> {
        let mut cells = self.in_setup(Setup::REFERENCE.with_path(path));
        cells.retain(|_, cell| cell.status == Status::Measured);
        cells
    }
}
