//! The graph: nodes that data can come from or pass through, and the links between them.

use std::collections::HashMap;

use super::pcie::{self, Above};
use super::{nvlink, placeholder};
use model::node::NodeId;
use model::pcie::Connection;
use model::placement::Pair;
use model::snapshot::{Adapter, AdapterKind, Gpu, PciKind, Snapshot};
use model::topology::{GpuPath, Link, LinkKind, Node, NodeKind, Topology};
use model::units::{GbPerSecond, PciAddress};

/// Label of the hop between an upstream and a downstream port of a switch, which has no rate of its own.
pub(crate) const INSIDE_SWITCH: &str = "inside the switch";

/// Draws all nodes and links of the snapshot, without the routes.
pub(crate) fn draw(snapshot: &Snapshot) -> Topology {
    let mut best: HashMap<Option<&String>, f64> = HashMap::new();
    for gpu in &snapshot.gpus {
        if let Some(gbps) = nvlink::switched(gpu).and_then(|bundle| bundle.gbps) {
            let best = best.entry(gpu.name.known()).or_insert(gbps);
            *best = best.max(gbps);
        }
    }
    let mut graph = Graph { snapshot, best, drawn: Topology::default() };
    for numa in snapshot.host_nodes() {
        graph.numa(Some(numa.node));
    }
    for gpu in &snapshot.gpus {
        let name = gpu.name.known().map_or(String::new(), |name| format!(" ({name})"));
        graph.node(
            NodeId::Gpu(gpu.index),
            NodeKind::Gpu,
            format!("{}{name}", gpu.label()),
            gpu.pci.get(),
        );
    }
    for gpu in &snapshot.gpus {
        let nodes = graph.pcie_way(gpu.pci.get(), Some(gpu));
        graph.drawn.gpu_paths.push(GpuPath { gpu: gpu.index, nodes });
        graph.nvlinks(gpu);
    }
    graph.adapters();
    graph.host_bridges();
    placeholder::by_facts(snapshot, &mut graph.drawn);
    graph.drawn
}

struct Graph<'a> {
    snapshot: &'a Snapshot,
    /// Highest rate of a GPU's NVLinks to switches, by model.
    best: HashMap<Option<&'a String>, f64>,
    drawn: Topology,
}

impl Graph<'_> {
    fn node(
        &mut self,
        id: NodeId,
        kind: NodeKind,
        label: String,
        pci: Option<PciAddress>,
    ) -> NodeId {
        if self.drawn.node(id).is_none() {
            let slot = pci.and_then(|pci| pcie::slot(self.snapshot, pci)).map(str::to_owned);
            self.drawn.nodes.push(Node { id, kind, label, pci, slot });
        }
        id
    }

    /// Adds a link. If a link of the same kind already connects its ends, adds its GPUs to that link instead.
    fn link(&mut self, link: Link) {
        let ends = [(link.upper, link.lower), (link.lower, link.upper)];
        let mut links = self.drawn.links.iter_mut();
        match links
            .find(|known| known.kind == link.kind && ends.contains(&(known.upper, known.lower)))
        {
            Some(Link { pcie: Some(known), .. }) => {
                let more = link.pcie.map(|pcie| pcie.gpus).unwrap_or_default();
                let more: Vec<_> =
                    more.into_iter().filter(|gpu| !known.gpus.contains(gpu)).collect();
                known.gpus.extend(more);
            }
            Some(_) => {}
            None if link.upper == link.lower => {}
            None => self.drawn.links.push(link),
        }
    }

    fn plain_link(&mut self, upper: NodeId, lower: NodeId, kind: LinkKind, label: &str) {
        self.link(Link {
            upper,
            lower,
            kind,
            label: label.to_owned(),
            capacity_gbps: None,
            possible_gbps: None,
            origin: "no interface reports this rate".into(),
            pcie: None,
        });
    }

    fn numa(&mut self, node: Option<u32>) -> NodeId {
        let label = match node {
            Some(node) => format!("NUMA node {node}"),
            None => "memory (NUMA node not known)".to_owned(),
        };
        self.node(NodeId::Numa(node), NodeKind::NumaNode, label, None)
    }

    fn root(&mut self, id: NodeId) -> NodeId {
        let label = match id {
            NodeId::HiddenRoot => "PCIe root (not visible)".to_owned(),
            id => format!("host bridge {id}"),
        };
        self.node(id, NodeKind::HostBridge, label, None)
    }

    /// Draws the functions from a device up to its host bridge, and the links between them. Returns their ids, the
    /// host bridge first.
    fn pcie_way(&mut self, device: Option<PciAddress>, gpu: Option<&Gpu>) -> Vec<NodeId> {
        let way = device.map(|device| pcie::chain(self.snapshot, device)).unwrap_or_default();
        if way.is_empty() {
            if let Some((gpu, link)) = gpu.and_then(|gpu| Some((gpu, pcie::link_by_nvml(gpu)?))) {
                let root = self.root(NodeId::HiddenRoot);
                self.pcie_link(root, NodeId::Gpu(gpu.index), link);
            }
            return Vec::new();
        }
        let mut nodes = Vec::new();
        for (at, function) in way.iter().enumerate() {
            let own = gpu.filter(|_| at == 0);
            let id = match own {
                Some(gpu) => NodeId::Gpu(gpu.index),
                None => self.function(function.address, function.kind),
            };
            nodes.push(id);
            let upper = match way.get(at + 1) {
                Some(parent) => self.function(parent.address, parent.kind),
                None => self.root(NodeId::host_bridge(&function.host_bridge)),
            };
            match pcie::above(self.snapshot, function, own) {
                Above::Link(mut link) => {
                    link.gpus.extend(gpu.map(|gpu| gpu.index));
                    self.pcie_link(upper, id, *link);
                }
                Above::InsideSwitch => self.plain_link(upper, id, LinkKind::Pcie, INSIDE_SWITCH),
                Above::RootComplex => {
                    self.plain_link(upper, id, LinkKind::RootComplex, "root complex")
                }
            }
        }
        nodes.extend(way.last().map(|top| NodeId::host_bridge(&top.host_bridge)));
        nodes.reverse();
        nodes
    }

    fn function(&mut self, address: PciAddress, kind: PciKind) -> NodeId {
        let (kind, label) = match kind {
            PciKind::RootPort => (NodeKind::RootPort, "root port"),
            PciKind::SwitchUpstream => (NodeKind::SwitchPort, "switch, upstream port"),
            PciKind::SwitchDownstream => (NodeKind::SwitchPort, "switch, downstream port"),
            PciKind::Bridge => (NodeKind::Bridge, "bridge"),
            PciKind::Endpoint => (NodeKind::Adapter, "device"),
        };
        self.node(NodeId::Pci(address), kind, format!("{label} {address}"), Some(address))
    }

    fn pcie_link(&mut self, upper: NodeId, lower: NodeId, link: Connection) {
        let mut drawn = Link {
            upper,
            lower,
            kind: LinkKind::Pcie,
            label: String::new(),
            capacity_gbps: None,
            possible_gbps: pcie::rate(link.possible).map(GbPerSecond),
            origin: String::new(),
            pcie: None,
        };
        carry(&mut drawn, link);
        self.link(drawn);
    }

    fn nvlinks(&mut self, gpu: &Gpu) {
        let snapshot = self.snapshot;
        let join = |upper, lower, bundle: nvlink::Bundle, possible: Option<f64>| Link {
            upper,
            lower,
            kind: LinkKind::NvLink,
            label: bundle.label,
            capacity_gbps: bundle.gbps.map(GbPerSecond),
            possible_gbps: possible.map(GbPerSecond),
            origin: bundle.origin,
            pcie: None,
        };
        let bundle = nvlink::switched(gpu);
        let bundle = bundle.or_else(|| nvlink::bonded_to_switches(snapshot, gpu.index));
        if let Some(bundle) = bundle {
            // The name of a GPU does not show the capacity of its links; the best GPU of its model does.
            let best = self.best.get(&gpu.name.known()).copied();
            let plane =
                self.node(NodeId::NvSwitch, NodeKind::NvSwitchPlane, "NVSwitch".into(), None);
            self.link(join(plane, NodeId::Gpu(gpu.index), bundle, best));
        }
        for other in &snapshot.gpus {
            let pair = Pair { source: gpu.index, destination: other.index };
            let named = nvlink::direct(gpu, other);
            let bonded = || match nvlink::bonded(snapshot, pair)? {
                (bundle, false) => Some(bundle),
                (_, true) => None,
            };
            let Some(bundle) = named.or_else(bonded) else {
                continue;
            };
            // The two ends should agree. If not, only the smaller number of links is reliable.
            let bundle = match nvlink::direct(other, gpu) {
                Some(back) if back.links < bundle.links => back,
                _ => bundle,
            };
            let (upper, lower) = (gpu.index.min(other.index), gpu.index.max(other.index));
            let possible = bundle.gbps;
            self.link(join(NodeId::Gpu(upper), NodeId::Gpu(lower), bundle, possible));
        }
    }

    fn adapters(&mut self) {
        for adapter in &self.snapshot.adapters {
            let here = |other: &&Adapter| other.pci == adapter.pci;
            let names: Vec<_> = self
                .snapshot
                .adapters
                .iter()
                .filter(here)
                .map(|other| other.name.as_str())
                .collect();
            let rdma = self
                .snapshot
                .adapters
                .iter()
                .filter(here)
                .any(|other| other.kind == AdapterKind::Rdma);
            let kind = if rdma { "RDMA" } else { "Ethernet" };
            let label = format!("{} ({kind})", names.join(", "));
            self.node(NodeId::Pci(adapter.pci), NodeKind::Adapter, label, Some(adapter.pci));
            self.pcie_way(Some(adapter.pci), None);
        }
    }

    /// Connects every host bridge to its NUMA node, and the NUMA nodes to each other.
    fn host_bridges(&mut self) {
        let bridges = self.drawn.nodes.iter().filter(|node| node.kind == NodeKind::HostBridge);
        let bridges: Vec<_> =
            bridges.map(|node| (node.id, numa_of(self.snapshot, node.id))).collect();
        let mut nodes = Vec::new();
        for (bridge, numa) in bridges {
            let numa = self.numa(numa);
            self.plain_link(numa, bridge, LinkKind::RootComplex, "root complex");
            if !nodes.contains(&numa) {
                nodes.push(numa);
            }
        }
        for (at, upper) in nodes.iter().enumerate() {
            for lower in nodes.iter().skip(at + 1) {
                self.plain_link(*upper, *lower, LinkKind::Interconnect, "between NUMA nodes");
            }
        }
    }
}

/// Sets label and capacity of a drawn link from this connection.
pub(crate) fn carry(drawn: &mut Link, link: Connection) {
    let capacity = pcie::capacity(&link);
    drawn.label = match (link.now.link(), link.now.width) {
        (Some(link), _) => link.to_string(),
        (None, Some(width)) => format!("PCIe x{width}"),
        (None, None) => "PCIe".to_owned(),
    };
    drawn.capacity_gbps = capacity.as_ref().map(|capacity| GbPerSecond(capacity.gbps));
    drawn.origin = capacity
        .map_or_else(|| "generation or width of this link is not known".into(), |c| c.source);
    drawn.pcie = Some(link);
}

/// Returns the NUMA node of a host bridge: that of any device below it, or the only one that exists.
fn numa_of(snapshot: &Snapshot, bridge: NodeId) -> Option<u32> {
    let below = || {
        snapshot.pci.iter().filter(|function| NodeId::host_bridge(&function.host_bridge) == bridge)
    };
    let of_gpu = |gpu: &Gpu| {
        gpu.numa_node
            .get()
            .filter(|_| below().any(|function| gpu.pci.get() == Some(function.address)))
    };
    let mut nodes = snapshot.host_nodes();
    let only = nodes.next().filter(|_| nodes.next().is_none());
    let only = only.map(|only| only.node);
    below()
        .find_map(|function| function.numa_node.get())
        .or_else(|| snapshot.gpus.iter().find_map(of_gpu))
        .or(only)
}
