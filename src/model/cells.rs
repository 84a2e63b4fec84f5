//! Cells of the measurements: what those of every probe have in common, and which pairs are judged by.

use std::collections::BTreeMap;

use super::flow::{Endpoint, Flow, Setup};
use super::measurement::{Cell, Latency, LocalCopy, Measurements, Overlap, PeerBandwidth, Probe, Status, Verified};
use super::placement::{Pair, Path};

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
        self.in_setup_of(setup, |_| true)
    }

    /// The same of these pairs alone, which is quicker than to look for them in all.
    pub fn in_setup_of(&self, setup: Setup, is_wanted: impl Fn(Pair) -> bool) -> BTreeMap<Pair, &PeerBandwidth> {
        let setup = setup.of_any_size();
        let weight = |cell: &PeerBandwidth| (cell.status == Status::Measured, cell.setup.bytes);
        let mut cells: BTreeMap<Pair, &PeerBandwidth> = BTreeMap::new();
        for cell in self.peer.iter().filter(|cell| cell.setup.of_any_size() == setup && is_wanted(cell.pair)) {
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
        cells.retain(|_, cell| cell.status == Status::Measured && !cell.disturbed);
        cells
    }
}

impl PeerBandwidth {
    /// What every probe has in common.
    pub fn cell(&self) -> Cell<'_> {
        Cell {
            probe: Probe::Bandwidth,
            flow: self.pair.into(),
            setup: self.setup,
            status: self.status,
            has_figure: self.achieved_gbps.is_some(),
            reason: self.reason.as_deref(),
            disturbed: self.disturbed,
            verified: self.verified,
        }
    }
}

impl Overlap {
    /// What every probe has in common.
    pub fn cell(&self) -> Cell<'_> {
        Cell {
            probe: Probe::Overlap,
            flow: self.pair.into(),
            setup: Setup::REFERENCE.with_placement(self.placement).with_bytes(self.bytes),
            status: self.status,
            has_figure: self.overlap_percent.is_some(),
            reason: self.reason.as_deref(),
            disturbed: self.disturbed,
            verified: Verified::Skipped,
        }
    }
}

impl Latency {
    /// What every probe has in common.
    pub fn cell(&self) -> Cell<'_> {
        Cell {
            probe: Probe::Latency,
            flow: self.pair.into(),
            setup: Setup::REFERENCE.with_path(self.path).with_bytes(self.bytes),
            status: self.status,
            has_figure: self.latency_us.is_some(),
            reason: self.reason.as_deref(),
            disturbed: self.disturbed,
            verified: Verified::Skipped,
        }
    }
}

impl LocalCopy {
    /// What every probe has in common.
    pub fn cell(&self) -> Cell<'_> {
        Cell {
            probe: Probe::Local,
            flow: Flow { from: Endpoint::Gpu(self.gpu), to: Endpoint::Gpu(self.gpu) },
            setup: Setup::REFERENCE.with_bytes(self.bytes),
            status: self.status,
            has_figure: self.achieved_gbps.is_some(),
            reason: self.reason.as_deref(),
            disturbed: self.disturbed,
            verified: Verified::Skipped,
        }
    }
}
