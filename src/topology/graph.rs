//! The graph: nodes that data can pass through or come from, and the links between them.

use std::collections::HashMap;

use petgraph::algo::astar;
use petgraph::graph::{NodeIndex, UnGraph};
use petgraph::visit::EdgeFiltered;

use super::nvlink;
use super::pcie::{self, Above, Connection};
use crate::model::snapshot::{AdapterKind, Gpu, PciKind, Snapshot};
use crate::model::topology::{Hop, Link, LinkKind, Node, NodeKind};
use crate::model::units::{GbPerSecond, PciAddress};

/// Id of the plane of all NVSwitches.
pub const NVSWITCH: &str = "nvswitch";
/// Id of the root that stands for a part of the PCI tree that is not visible.
pub const HIDDEN_ROOT: &str = "pci-unknown";
/// Id of the memory that host bridges hang on whose NUMA node is not known.
pub const UNKNOWN_NUMA: &str = "numa-unknown";

/// Label of the hop between the upstream and a downstream port, which has no rate of its own.
pub const INSIDE_SWITCH: &str = "inside the switch";

/// The graph while routes are looked for.
pub struct Graph {
    inner: UnGraph<Node, Link>,
    by_id: HashMap<String, NodeIndex>,
}

/// Id of a GPU's node.
pub fn gpu_id(index: u32) -> String {
    format!("gpu{index}")
}

impl Graph {
    /// Draws everything that the snapshot knows of.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut graph = Self { inner: UnGraph::default(), by_id: HashMap::new() };
        for numa in &snapshot.numa_nodes {
            graph.numa(Some(numa.node));
        }
        for gpu in &snapshot.gpus {
            let name = gpu.name.known().map_or(String::new(), |name| format!(" ({name})"));
            graph.node(gpu_id(gpu.index), NodeKind::Gpu, format!("{}{name}", gpu.label()), gpu.pci.get());
        }
        for gpu in &snapshot.gpus {
            graph.pcie_way(snapshot, gpu.pci.get(), Some(gpu));
            graph.nvlinks(snapshot, gpu);
        }
        graph.adapters(snapshot);
        graph.host_bridges(snapshot);
        graph
    }

    /// The nodes and links as plain data.
    pub fn into_parts(self) -> (Vec<Node>, Vec<Link>) {
        let (nodes, edges) = self.inner.into_nodes_edges();
        (nodes.into_iter().map(|node| node.weight).collect(), edges.into_iter().map(|edge| edge.weight).collect())
    }

    /// The node of this id.
    pub fn find(&self, id: &str) -> Option<&Node> {
        self.inner.node_weight(*self.by_id.get(id)?)
    }

    /// The shortest way over links that NVLink has no part in, with the link of each hop.
    pub fn pcie_route(&self, from: &str, to: &str) -> Option<Vec<(Hop, &Link)>> {
        let (&from, &to) = (self.by_id.get(from)?, self.by_id.get(to)?);
        let view = EdgeFiltered::from_fn(&self.inner, |edge| edge.weight().kind != LinkKind::NvLink);
        let (_, way) = astar(&view, from, |node| node == to, |_| 1_u32, |_| 0)?;
        way.windows(2).map(|step| self.hop(step[0], step[1], |kind| kind != LinkKind::NvLink)).collect()
    }

    /// The hop over the NVLinks that join two nodes.
    pub fn nvlink_hop(&self, from: &str, to: &str) -> Option<(Hop, &Link)> {
        self.hop(*self.by_id.get(from)?, *self.by_id.get(to)?, |kind| kind == LinkKind::NvLink)
    }

    fn hop(&self, from: NodeIndex, to: NodeIndex, wanted: impl Fn(LinkKind) -> bool) -> Option<(Hop, &Link)> {
        let link = self.inner.edges_connecting(from, to).map(|edge| edge.weight()).find(|link| wanted(link.kind))?;
        let id = |node| self.inner.node_weight(node).map(|node| node.id.clone());
        let hop = Hop { from: id(from)?, to: id(to)?, label: link.label.clone(), capacity_gbps: link.capacity_gbps };
        Some((hop, link))
    }

    fn node(&mut self, id: String, kind: NodeKind, label: String, pci: Option<PciAddress>) -> String {
        if !self.by_id.contains_key(&id) {
            let index = self.inner.add_node(Node { id: id.clone(), kind, label, pci });
            self.by_id.insert(id.clone(), index);
        }
        id
    }

    /// Adds a link unless its ends are already joined by one of its kind.
    fn link(&mut self, link: Link) {
        let (Some(&upper), Some(&lower)) = (self.by_id.get(&link.upper), self.by_id.get(&link.lower)) else { return };
        let known = self.inner.edges_connecting(upper, lower).any(|edge| edge.weight().kind == link.kind);
        if upper != lower && !known {
            self.inner.add_edge(upper, lower, link);
        }
    }

    fn plain_link(&mut self, upper: &str, lower: &str, kind: LinkKind, label: &str) {
        self.link(Link {
            upper: upper.to_owned(),
            lower: lower.to_owned(),
            kind,
            label: label.to_owned(),
            capacity_gbps: None,
            possible_gbps: None,
            origin: "no interface tells this rate".into(),
        });
    }

    fn numa(&mut self, node: Option<u32>) -> String {
        let (id, label) = match node {
            Some(node) => (format!("numa{node}"), format!("NUMA node {node}")),
            None => (UNKNOWN_NUMA.to_owned(), "memory (NUMA node not known)".to_owned()),
        };
        self.node(id, NodeKind::NumaNode, label, None)
    }

    fn host_bridge(&mut self, name: &str) -> String {
        self.node(name.to_owned(), NodeKind::HostBridge, format!("host bridge {name}"), None)
    }

    fn hidden_root(&mut self) -> String {
        self.node(HIDDEN_ROOT.into(), NodeKind::HostBridge, "PCIe root (not visible)".into(), None)
    }

    /// The functions from a device up to its host bridge, and the links between them.
    fn pcie_way(&mut self, snapshot: &Snapshot, device: Option<PciAddress>, gpu: Option<&Gpu>) {
        let way = device.map(|device| pcie::chain(snapshot, device)).unwrap_or_default();
        if way.is_empty() {
            if let Some((gpu, link)) = gpu.and_then(|gpu| Some((gpu, pcie::link_by_nvml(gpu)?))) {
                let root = self.hidden_root();
                self.pcie_link(root, gpu_id(gpu.index), &link);
            }
            return;
        }
        for (at, function) in way.iter().enumerate() {
            let gpu = gpu.filter(|_| at == 0);
            let id = match gpu {
                Some(gpu) => gpu_id(gpu.index),
                None => self.function(function.address, function.kind),
            };
            let upper = match way.get(at + 1) {
                Some(parent) => self.function(parent.address, parent.kind),
                None => self.host_bridge(&function.host_bridge),
            };
            match pcie::above(snapshot, function, gpu) {
                Above::Link(link) => self.pcie_link(upper, id, &link),
                Above::InsideSwitch => self.plain_link(&upper, &id, LinkKind::Pcie, INSIDE_SWITCH),
                Above::RootComplex => self.plain_link(&upper, &id, LinkKind::RootComplex, "root complex"),
            }
        }
    }

    fn function(&mut self, address: PciAddress, kind: PciKind) -> String {
        let (kind, label) = match kind {
            PciKind::RootPort => (NodeKind::RootPort, "root port"),
            PciKind::SwitchUpstream => (NodeKind::SwitchPort, "switch, upstream port"),
            PciKind::SwitchDownstream => (NodeKind::SwitchPort, "switch, downstream port"),
            PciKind::Bridge => (NodeKind::Bridge, "bridge"),
            PciKind::Endpoint => (NodeKind::Adapter, "device"),
        };
        self.node(address.to_string(), kind, format!("{label} {address}"), Some(address))
    }

    fn pcie_link(&mut self, upper: String, lower: String, link: &Connection) {
        let capacity = link.capacity();
        let label = match (link.usable(), link.now.width) {
            (Some(link), _) => link.to_string(),
            (None, Some(width)) => format!("PCIe x{width}"),
            (None, None) => "PCIe".to_owned(),
        };
        self.link(Link {
            upper,
            lower,
            kind: LinkKind::Pcie,
            label,
            capacity_gbps: capacity.as_ref().map(|capacity| GbPerSecond(capacity.gbps)),
            possible_gbps: link.possible_capacity().map(|capacity| GbPerSecond(capacity.gbps)),
            origin: capacity.map_or_else(|| "generation or width of this link is not known".into(), |c| c.source),
        });
    }

    fn nvlinks(&mut self, snapshot: &Snapshot, gpu: &Gpu) {
        let join = |upper: String, lower: String, bundle: nvlink::Bundle, possible: Option<f64>| Link {
            upper,
            lower,
            kind: LinkKind::NvLink,
            label: bundle.label,
            capacity_gbps: bundle.gbps.map(GbPerSecond),
            possible_gbps: possible.map(GbPerSecond),
            origin: bundle.origin,
        };
        if let Some(bundle) = nvlink::switched(gpu) {
            // What a GPU's links could carry is not in its name: the best of its like shows it.
            let like = snapshot.gpus.iter().filter(|other| other.name.known() == gpu.name.known());
            let best = like.filter_map(|other| nvlink::switched(other)?.gbps).max_by(f64::total_cmp);
            let plane = self.node(NVSWITCH.into(), NodeKind::NvSwitchPlane, "NVSwitch".into(), None);
            self.link(join(plane, gpu_id(gpu.index), bundle, best));
        }
        for other in &snapshot.gpus {
            let Some(bundle) = nvlink::direct(gpu, other) else { continue };
            // The two ends should agree; the fewer links are those that can be relied on.
            let bundle = match nvlink::direct(other, gpu) {
                Some(back) if back.links < bundle.links => back,
                _ => bundle,
            };
            let (upper, lower) = (gpu.index.min(other.index), gpu.index.max(other.index));
            let possible = bundle.gbps;
            self.link(join(gpu_id(upper), gpu_id(lower), bundle, possible));
        }
    }

    fn adapters(&mut self, snapshot: &Snapshot) {
        for adapter in &snapshot.adapters {
            let here = |other: &&crate::model::snapshot::Adapter| other.pci == adapter.pci;
            let names: Vec<_> = snapshot.adapters.iter().filter(here).map(|other| other.name.as_str()).collect();
            let rdma = snapshot.adapters.iter().filter(here).any(|other| other.kind == AdapterKind::Rdma);
            let kind = if rdma { "RDMA" } else { "Ethernet" };
            let label = format!("{} ({kind})", names.join(", "));
            self.node(adapter.pci.to_string(), NodeKind::Adapter, label, Some(adapter.pci));
            self.pcie_way(snapshot, Some(adapter.pci), None);
        }
    }

    /// Hangs every host bridge on its NUMA node, and joins those nodes.
    fn host_bridges(&mut self, snapshot: &Snapshot) {
        let mut bridges: Vec<_> = Vec::new();
        for node in self.inner.node_weights().filter(|node| node.kind == NodeKind::HostBridge) {
            bridges.push((node.id.clone(), numa_of(snapshot, &node.id)));
        }
        let mut nodes = Vec::new();
        for (bridge, numa) in bridges {
            let numa = self.numa(numa);
            self.plain_link(&numa, &bridge, LinkKind::RootComplex, "root complex");
            if !nodes.contains(&numa) {
                nodes.push(numa);
            }
        }
        for (at, upper) in nodes.iter().enumerate() {
            for lower in nodes.iter().skip(at + 1) {
                self.plain_link(upper, lower, LinkKind::Interconnect, "between NUMA nodes");
            }
        }
    }
}

/// The NUMA node of a host bridge: that of anything below it, or the only one there is.
fn numa_of(snapshot: &Snapshot, host_bridge: &str) -> Option<u32> {
    let below = || snapshot.pci.iter().filter(|function| function.host_bridge == host_bridge);
    let of_gpu =
        |gpu: &Gpu| gpu.numa_node.get().filter(|_| below().any(|function| gpu.pci.get() == Some(function.address)));
    let only = match snapshot.numa_nodes.as_slice() {
        [only] => Some(only.node),
        _ => None,
    };
    below().find_map(|function| function.numa_node.get()).or_else(|| snapshot.gpus.iter().find_map(of_gpu)).or(only)
}
