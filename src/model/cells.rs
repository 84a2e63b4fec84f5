//! Cells of the measurements: what those of every probe have in common, and which pairs are judged by.

use std::collections::BTreeMap;

use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::host::{HostCopy, HostDirection, HostWay, Pinning};
use super::measurement::{
    Cell, Latency, LocalCopy, Measurements, Overlap, PeerBandwidth, Probe, Status, Verified,
};
use super::one_gpu::OneGpu;
use super::placement::{Direction, Pair, Path};

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
    pub fn in_setup_of(
        &self,
        setup: Setup,
        is_wanted: impl Fn(Pair) -> bool,
    ) -> BTreeMap<Pair, &PeerBandwidth> {
        let setup = setup.of_any_size();
        let weight = |cell: &PeerBandwidth| (cell.status == Status::Measured, cell.setup.bytes);
        let mut cells: BTreeMap<Pair, &PeerBandwidth> = BTreeMap::new();
        for cell in self
            .peer
            .iter()
            .filter(|cell| cell.setup.of_any_size() == setup && is_wanted(cell.pair))
        {
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

    /// Whether anything is known of several flows at once.
    pub fn has_load(&self) -> bool {
        self.load
            .iter()
            .any(|load| load.cells().any(|cell| cell.tested()))
    }

    /// The host copies of GPUs that copied alone in this way, by GPU and node: of several sizes the largest that was
    /// measured.
    pub fn host_alone(&self, way: HostWay) -> Vec<&HostCopy> {
        let mut found: Vec<&HostCopy> = Vec::new();
        let weight = |copy: &HostCopy| (copy.status == Status::Measured, copy.bytes);
        for copy in self
            .host
            .iter()
            .filter(|copy| copy.at_once == 1 && copy.way() == way)
        {
            match found
                .iter_mut()
                .find(|other| (other.gpu, other.numa_node) == (copy.gpu, copy.numa_node))
            {
                Some(other) if weight(other) < weight(copy) => *other = copy,
                Some(_) => {}
                None => found.push(copy),
            }
        }
        found
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
            setup: Setup::REFERENCE
                .with_placement(self.placement)
                .with_bytes(self.bytes),
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
            flow: Flow {
                from: Endpoint::Gpu(self.gpu),
                to: Endpoint::Gpu(self.gpu),
            },
            setup: Setup::REFERENCE.with_bytes(self.bytes),
            status: self.status,
            has_figure: self.achieved_gbps.is_some(),
            reason: self.reason.as_deref(),
            disturbed: self.disturbed,
            verified: Verified::Skipped,
        }
    }
}

impl HostCopy {
    /// What every probe has in common.
    pub fn cell(&self) -> Cell<'_> {
        let direction = if self.direction == HostDirection::BothWays {
            Direction::BothWays
        } else {
            Direction::OneWay
        };
        Cell {
            probe: Probe::Host,
            flow: self.flow(),
            setup: Setup::REFERENCE
                .with_engine(self.engine)
                .with_direction(direction)
                .with_bytes(self.bytes),
            status: self.status,
            has_figure: self.achieved_gbps.is_some(),
            reason: self.reason.as_deref(),
            verified: self.verified,
            disturbed: self.disturbed,
        }
    }
}

impl Pinning {
    /// What every probe has in common. Its bytes stay in the memory of the host.
    pub fn cell(&self) -> Cell<'_> {
        let host = Endpoint::Host {
            node: self.numa_node,
            memory: HostMemory::Pinned,
        };
        Cell {
            probe: Probe::Pinning,
            flow: Flow {
                from: host,
                to: host,
            },
            setup: Setup::REFERENCE.with_bytes(self.bytes),
            status: self.status,
            has_figure: self
                .allocate_ms_per_gib
                .or(self.register_ms_per_gib)
                .is_some(),
            reason: self.reason.as_deref(),
            verified: Verified::Skipped,
            disturbed: false,
        }
    }
}

impl Measurements {
    /// Everything that was to be measured on one GPU by these probes, in the order of the report.
    pub fn on_one_gpu(&self) -> impl Iterator<Item = &dyn OneGpu> {
        let pipelines = self.pipeline.iter().map(|cell| cell as &dyn OneGpu);
        let engines = self.engines.iter().map(|cell| cell as &dyn OneGpu);
        let calls = self.calls.iter().map(|cell| cell as &dyn OneGpu);
        let loops = self.launch_loop.iter().map(|cell| cell as &dyn OneGpu);
        let hazards = self.hazard.iter().map(|cell| cell as &dyn OneGpu);
        pipelines
            .chain(engines)
            .chain(calls)
            .chain(loops)
            .chain(hazards)
    }

    /// The same, to be changed.
    pub fn on_one_gpu_mut(&mut self) -> impl Iterator<Item = &mut dyn OneGpu> {
        let pipelines = self.pipeline.iter_mut().map(|cell| cell as &mut dyn OneGpu);
        let engines = self.engines.iter_mut().map(|cell| cell as &mut dyn OneGpu);
        let calls = self.calls.iter_mut().map(|cell| cell as &mut dyn OneGpu);
        let loops = self
            .launch_loop
            .iter_mut()
            .map(|cell| cell as &mut dyn OneGpu);
        let hazards = self.hazard.iter_mut().map(|cell| cell as &mut dyn OneGpu);
        pipelines
            .chain(engines)
            .chain(calls)
            .chain(loops)
            .chain(hazards)
    }
}
