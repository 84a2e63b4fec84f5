//! The machine as the facts show it: what each link carries as trained.

use std::collections::{BTreeMap, BTreeSet};

use model::flow::{Endpoint, Flow, HostMemory};
use model::measurement::Measurements;
use model::node::NodeId;
use model::pcie::Connection;
use model::placement::{Pair, Path};
use model::snapshot::{Gpu, Snapshot};
use model::topology::{LinkClass, LinkKind, Topology};
use topology::belief::{Beliefs, Known};
use topology::load::{Leg, Ways, is_no_limit};
use topology::pcie;

use super::resource::{Class, Part, Resource, Way};

/// The machine as the facts show it.
pub(crate) struct State<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) ways: Ways<'a>,
    pub(crate) gpus: Vec<u32>,
    /// NUMA node of each GPU as stated, if it is known.
    nodes: BTreeMap<u32, u32>,
    /// True if the PCI tree may hide hops.
    pub(crate) is_virtual: bool,
    /// GPUs some of whose NVLinks are down.
    inactive: BTreeSet<u32>,
    /// The first GPU of the same model, for each GPU.
    models: BTreeMap<u32, u32>,
    /// Payload rate of PCIe links whose shape is known better than from rest, by their lower end, GB/s.
    believed: BTreeMap<NodeId, f64>,
}

/// The way of a flow through the machine.
pub(crate) struct Route<'a> {
    /// Its hops in the graph. Empty if they are not known.
    pub steps: Vec<Leg<'a>>,
    /// Everything that it passes, links of the graph included.
    pub passes: Vec<Resource>,
    /// Payload rate of its narrowest hop, GB/s.
    pub theory: Option<f64>,
    pub class: Class,
}

impl<'a> State<'a> {
    pub(crate) fn of(
        snapshot: &'a Snapshot,
        topology: &'a Topology,
        measurements: &Measurements,
    ) -> Self {
        let beliefs = Beliefs::of(snapshot, topology, Some(measurements), |_| false);
        let believed = |link: &Connection| {
            let belief = beliefs.on(link);
            let known = !matches!(belief.known, Known::AtRest);
            Some((link.lower()?, pcie::rate(belief.shape).filter(|_| known)?))
        };
        let links = topology.links.iter().filter_map(|link| link.pcie.as_ref());
        let node = |gpu: &Gpu| {
            let way = topology.way_up(NodeId::Gpu(gpu.index));
            let node = way.into_iter().find_map(|node| match node {
                NodeId::Numa(node) => node,
                _ => None,
            });
            Some((gpu.index, node?))
        };
        let model = |gpu: &Gpu| {
            let alike = snapshot.gpus.iter().find(|one| one.name == gpu.name);
            Some((gpu.index, alike?.index))
        };
        let is_inactive = |gpu: &&Gpu| {
            let mut links = gpu.nvlinks.known().into_iter().flatten();
            links.any(|link| link.active.get() == Some(false))
        };
        let inactive = snapshot.gpus.iter().filter(is_inactive);
        Self {
            inactive: inactive.map(|gpu| gpu.index).collect(),
            models: snapshot.gpus.iter().filter_map(model).collect(),
            nodes: snapshot.gpus.iter().filter_map(node).collect(),
            topology,
            ways: Ways::of(snapshot, topology),
            gpus: snapshot.gpus.iter().map(|gpu| gpu.index).collect(),
            is_virtual: snapshot.host.virtual_machine.get() == Some(true),
            believed: links.filter_map(believed).collect(),
        }
    }

    /// Returns the payload rate of a hop, GB/s.
    pub(crate) fn carries(&self, (hop, link): &Leg<'_>) -> Option<f64> {
        let believed = (link.kind == LinkKind::Pcie)
            .then(|| self.believed.get(&link.lower).copied())
            .flatten();
        believed.or(hop.capacity_gbps.map(|rate| rate.0))
    }

    /// Returns the NUMA node of this GPU as stated.
    pub(crate) fn node(&self, gpu: u32) -> Option<u32> {
        self.nodes.get(&gpu).copied()
    }

    /// Returns true if both GPUs have NVLinks that are down: these may have joined them.
    pub(crate) fn has_lost(&self, pair: Pair) -> bool {
        let ends = [pair.source, pair.destination];
        ends.iter().all(|gpu| self.inactive.contains(gpu))
    }

    /// Returns the first GPU of the same model.
    pub(crate) fn model(&self, gpu: u32) -> Option<u32> {
        self.models.get(&gpu).copied()
    }

    /// Returns the way of a flow.
    pub(crate) fn route(&self, flow: Flow, path: Path) -> Route<'a> {
        let (steps, mut passes, class) = match (flow.pair(), path) {
            (Some(pair), Path::Staged) => self.staged(pair),
            (Some(pair), Path::Direct) => self.direct(pair),
            (None, _) => self.with_host(flow),
        };
        passes.push(Resource::new(Part::Class(class), Way::Up));
        passes.push(Resource::new(Part::Machine, Way::Up));
        let theory = steps.iter().filter_map(|step| self.carries(step));
        Route { theory: theory.reduce(f64::min), steps, passes, class }
    }

    fn direct(&self, pair: Pair) -> (Vec<Leg<'a>>, Vec<Resource>, Class) {
        let steps = self.ways.way(pair.into());
        let mut passes: Vec<Resource> = steps.iter().filter_map(of_step).collect();
        let class = match self.topology.route(pair).map(|route| route.class) {
            Some(LinkClass::NvLink(_)) => Class::NvLink,
            Some(class) => Class::Pcie(class),
            None => Class::Pcie(LinkClass::Unknown),
        };
        let (source, destination) = (pair.source, pair.destination);
        if class != Class::NvLink && !self.share_a_port(pair) {
            passes.push(Resource::new(Part::Exit(source), Way::Up));
            passes.push(Resource::new(Part::Exit(destination), Way::Down));
        }
        passes.push(Resource::new(Part::Gpu(source), Way::Up));
        passes.push(Resource::new(Part::Gpu(destination), Way::Down));
        passes.push(of_pair(pair, Part::Pair));
        (steps, passes, class)
    }

    /// Staged copies go into the memory of the source's node: where the driver's buffers lie is not documented.
    fn staged(&self, pair: Pair) -> (Vec<Leg<'a>>, Vec<Resource>, Class) {
        let buffer = Endpoint::Host { node: self.node(pair.source), memory: HostMemory::Pinned };
        let (source, destination) = (Endpoint::Gpu(pair.source), Endpoint::Gpu(pair.destination));
        let legs = [(source, buffer), (buffer, destination)];
        let (mut steps, mut passes) = (Vec::new(), Vec::new());
        for (from, to) in legs {
            let (of_leg, passed, _) = self.with_host(Flow { from, to });
            steps.extend(of_leg);
            // The engines of the GPUs and the driver work otherwise here than in copies with the host.
            passes.extend(passed.into_iter().filter(|one| !matches!(one.part, Part::Host(_))));
        }
        passes.push(Resource::new(Part::Stage(pair.source), Way::Up));
        passes.push(Resource::new(Part::Stage(pair.destination), Way::Down));
        passes.push(of_pair(pair, Part::StagedPair));
        (steps, passes, Class::Staged)
    }

    fn with_host(&self, flow: Flow) -> (Vec<Leg<'a>>, Vec<Resource>, Class) {
        let steps = self.ways.way(flow);
        let mut passes: Vec<Resource> = steps.iter().filter_map(of_step).collect();
        let way = Way::up_if(flow.to.gpu().is_none());
        if let Some(gpu) = flow.with_host() {
            let stated = flow.ends().into_iter().find_map(Endpoint::node).flatten();
            let node = stated.or_else(|| self.node(gpu));
            passes.push(Resource::new(Part::Memory(node), way));
            passes.push(Resource::new(Part::Exit(gpu), way));
            passes.push(Resource::new(Part::Host(gpu), way));
        }
        (steps, passes, Class::Host)
    }

    /// Returns true if both GPUs lie below one port that the PCI tree shows.
    fn share_a_port(&self, pair: Pair) -> bool {
        let port = |gpu: u32| match self.topology.gpu_path(gpu) {
            [_, port, .., _] => Some(*port),
            _ => None,
        };
        let ports = port(pair.source).zip(port(pair.destination));
        ports.is_some_and(|(one, other)| one == other)
    }

    /// Returns true if ways of this class differ in what no file shows: between more than two nodes, some lead to another
    /// socket and some do not.
    pub(crate) fn is_uneven(&self, class: Class) -> bool {
        let nodes: BTreeSet<&u32> = self.nodes.values().collect();
        class == Class::Pcie(LinkClass::Sys) && nodes.len() > 2
    }

    /// Returns true if copies between this GPU and the memory of this node pass the way between nodes.
    pub(crate) fn is_far(&self, gpu: u32, node: Option<u32>) -> bool {
        let nodes = node.zip(self.node(gpu));
        nodes.is_some_and(|(one, other)| one != other)
    }
}

fn of_pair(pair: Pair, part: fn(u32, u32) -> Part) -> Resource {
    let (source, destination) = (pair.source, pair.destination);
    let ends = part(source.min(destination), source.max(destination));
    Resource::new(ends, Way::up_if(source < destination))
}

/// Returns the resource of a hop; `None` if the hop has no limit of its own.
pub(crate) fn of_step(step: &Leg<'_>) -> Option<Resource> {
    let (hop, link) = step;
    if is_no_limit(step) {
        return None;
    }
    let (lower, upper) = (hop.from.min(hop.to), hop.from.max(hop.to));
    Some(match (link.kind, lower, upper) {
        (LinkKind::Pcie | LinkKind::RootComplex, ..) => {
            Resource::new(Part::Link(link.lower), Way::up_if(hop.from == link.lower))
        }
        (LinkKind::Interconnect, ..) => {
            Resource::new(Part::Interconnect(lower, upper), Way::up_if(hop.from == lower))
        }
        (LinkKind::NvLink, NodeId::Gpu(one), NodeId::Gpu(other)) => {
            Resource::new(Part::NvPair(one, other), Way::up_if(hop.from == lower))
        }
        (LinkKind::NvLink, ..) => {
            let gpu = [hop.from, hop.to].into_iter().find_map(|node| match node {
                NodeId::Gpu(gpu) => Some(gpu),
                _ => None,
            })?;
            Resource::new(Part::NvPort(gpu), Way::up_if(hop.from.is_gpu()))
        }
    })
}
