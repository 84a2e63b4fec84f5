//! Cells of the measurements: the fields that all probes share, and the figures by which pairs are judged.

use std::collections::BTreeMap;

use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::host::{HostCopy, HostDirection, HostWay, Pinning};
use super::measurement::{
    Cell, Latency, LocalCopy, Measurements, Overlap, PeerBandwidth, Probe, Status, Verified,
};
use super::one_gpu::OneGpu;
use super::placement::{Direction, Pair, Path};

impl Measurements {
    /// Returns every setup that copies were planned in, regardless of size, in the order of the report.
    pub fn setups(&self) -> Vec<Setup> {
        let mut setups: Vec<Setup> = Vec::new();
        for setup in self.peer.iter().map(|peer| peer.setup.of_any_size()) {
            if !setups.contains(&setup) {
                setups.push(setup);
            }
        }
        setups
    }

    /// Returns the cell of each pair in this setup, regardless of size. Of several cells, a measured one wins; among
    /// those, the largest.
    pub fn in_setup(&self, setup: Setup) -> BTreeMap<Pair, &PeerBandwidth> {
        self.in_setup_of(setup, |_| true)
    }

    /// Does the same for these pairs only, which is faster than searching the cells of all pairs.
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

    /// Returns the figures by which pairs are judged on this path: those measured in [`Setup::REFERENCE`].
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &PeerBandwidth> {
        let mut cells = self.in_setup(Setup::REFERENCE.with_path(path));
        cells.retain(|_, cell| cell.status == Status::Measured && !cell.disturbed);
        cells
    }

    /// Returns true if any measurement with several flows at once has a result.
    pub fn has_load(&self) -> bool {
        self.load
            .iter()
            .any(|load| load.cells().any(|cell| cell.tested()))
    }

    /// Returns the host copies of GPUs that copied alone in this way, one per GPU and node. Of several sizes, it
    /// returns the largest that was measured.
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
    /// Returns the fields that all probes share.
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
    /// Returns the fields that all probes share.
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
    /// Returns the fields that all probes share.
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
    /// Returns the fields that all probes share.
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
    /// Returns the fields that all probes share.
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
    /// Returns the fields that all probes share. Its bytes stay in host memory.
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
    /// Returns all cells of these probes on one GPU, in the order of the report.
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

    /// Returns the same cells, mutable.
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
