//! The links of a topology as a graph, in which ways are looked up by their nodes.

use std::collections::HashMap;

use petgraph::graphmap::UnGraphMap;

use model::node::NodeId;
use model::topology::{Hop, Link, LinkKind, Node, Topology};

/// A topology with its links by their ends. NVLinks are kept apart, because two GPUs may be connected by NVLinks and
/// over PCIe as well.
pub(crate) struct Network<'a> {
    /// Nodes and links as drawn.
    pub topology: &'a Topology,
    nodes: HashMap<NodeId, &'a Node>,
    pcie: UnGraphMap<NodeId, &'a Link>,
    nvlink: UnGraphMap<NodeId, &'a Link>,
}

impl<'a> Network<'a> {
    /// Creates the network of a topology.
    pub(crate) fn of(topology: &'a Topology) -> Self {
        let links = |nvlink: bool| {
            let links =
                topology.links.iter().filter(move |link| (link.kind == LinkKind::NvLink) == nvlink);
            UnGraphMap::from_edges(links.map(|link| (link.upper, link.lower, link)))
        };
        let nodes = topology.nodes.iter().rev().map(|node| (node.id, node)).collect();
        Self { topology, nodes, pcie: links(false), nvlink: links(true) }
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&'a Node> {
        self.nodes.get(&id).copied()
    }

    /// Returns the hops of this way over NVLinks, each with its link. Empty if a step has no NVLink.
    pub(crate) fn over_nvlink(&self, way: &[NodeId]) -> Vec<(Hop, &'a Link)> {
        hops(&self.nvlink, way)
    }

    /// Returns the hops of this way over PCIe and within the processors. Empty if a step has no link.
    pub(crate) fn over_pcie(&self, way: &[NodeId]) -> Vec<(Hop, &'a Link)> {
        hops(&self.pcie, way)
    }
}

fn hops<'a>(graph: &UnGraphMap<NodeId, &'a Link>, way: &[NodeId]) -> Vec<(Hop, &'a Link)> {
    let step = |ends: &[NodeId]| {
        let (from, to) = (ends[0], ends[1]);
        let link = *graph.edge_weight(from, to)?;
        Some((Hop { from, to, label: link.label.clone(), capacity_gbps: link.capacity_gbps }, link))
    };
    way.windows(2).map(step).collect::<Option<Vec<_>>>().unwrap_or_default()
}
