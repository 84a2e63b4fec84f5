//! The route of every ordered pair of GPUs: class, hops, and the narrowest hop.

use std::collections::BTreeMap;

use super::network::Network;
use super::nvlink::{self, Join};
use model::measurement::PeerAccess;
use model::node::NodeId;
use model::placement::Pair;
use model::snapshot::{Adapter, CommonAncestor, Gpu, GpuPair, Snapshot};
use model::topology::{
    AdapterPath, GpuDistance, Hop, Link, LinkClass, LinkKind, NodeKind, PairRoute, Topology,
};
use model::units::GbPerSecond;

/// Returns the routes of all ordered pairs, row by row.
pub(crate) fn all(snapshot: &Snapshot, graph: &Topology) -> Vec<PairRoute> {
    let network = Network::of(graph);
    let mut indices = Vec::new();
    for gpu in &snapshot.gpus {
        if !indices.contains(&gpu.index) {
            indices.push(gpu.index);
        }
    }
    let ends: BTreeMap<u32, End<'_>> = indices
        .iter()
        .filter_map(|&index| Some((index, End::of(&network, snapshot.gpu(index)?))))
        .collect();
    let pairs = Pair::ordered(&indices).into_iter();
    pairs
        .filter_map(|pair| {
            Some(route(snapshot, &network, ends.get(&pair.source)?, ends.get(&pair.destination)?))
        })
        .collect()
}

/// A GPU at the end of routes.
struct End<'a> {
    gpu: &'a Gpu,
    nvlinks: nvlink::Ends<'a>,
    way_up: Vec<NodeId>,
    /// Payload rate of the narrowest PCIe link on its way up, GB/s.
    staged_gbps: Option<f64>,
}

impl<'a> End<'a> {
    fn of(network: &Network<'_>, gpu: &'a Gpu) -> Self {
        let way_up = network.topology.way_up(NodeId::Gpu(gpu.index));
        let hops = network.over_pcie(&way_up);
        let staged_gbps =
            hops.iter().filter_map(|(hop, _)| Some(hop.capacity_gbps?.0)).reduce(f64::min);
        Self { gpu, nvlinks: nvlink::Ends::of(gpu), way_up, staged_gbps }
    }
}

fn route(
    snapshot: &Snapshot,
    network: &Network<'_>,
    source: &End<'_>,
    destination: &End<'_>,
) -> PairRoute {
    let ends = (source.gpu, destination.gpu);
    let pair = Pair { source: ends.0.index, destination: ends.1.index };
    let reported = snapshot.pair(pair);
    let (from, to) = (NodeId::Gpu(pair.source), NodeId::Gpu(pair.destination));
    let join = nvlink::join(snapshot, &source.nvlinks, &destination.nvlinks);
    let (class, hops) = match join {
        Some(Join::Unclear) => (LinkClass::Unknown, Vec::new()),
        Some(Join::Direct(links)) => (LinkClass::NvLink(links), network.over_nvlink(&[from, to])),
        Some(Join::Switched(links)) => {
            (LinkClass::NvLink(links), network.over_nvlink(&[from, NodeId::NvSwitch, to]))
        }
        None => {
            let hops = pcie_hops(network, &source.way_up, &destination.way_up);
            (class_by_nvml(reported).unwrap_or_else(|| class_by_tree(network, &hops)), hops)
        }
    };
    let narrowest = narrowest(&hops);
    let staged = source.staged_gbps.into_iter().chain(destination.staged_gbps).reduce(f64::min);
    PairRoute {
        pair,
        class,
        theoretical_gbps: narrowest.and_then(|(hop, _)| hop.capacity_gbps),
        theoretical_source: source_of(snapshot, (class, join), ends, &hops, narrowest),
        bottleneck: narrowest.map(|(hop, link)| describe(network, hop, link)),
        staged_theoretical_gbps: staged.map(GbPerSecond),
        peer_access: PeerAccess {
            nvml_read: reported.and_then(|pair| pair.p2p_read.get()),
            nvml_write: reported.and_then(|pair| pair.p2p_write.get()),
            cuda: None,
            cuda_failure: None,
        },
        hops: hops.into_iter().map(|(hop, _)| hop).collect(),
    }
}

/// Returns the hops between two nodes over PCIe; `up` and `down` are the ways from each node to its memory. The hops
/// lead up to the node where the ways meet, or to both memories if they do not, and then down. Empty without a route.
fn pcie_hops<'a>(network: &Network<'a>, up: &[NodeId], down: &[NodeId]) -> Vec<(Hop, &'a Link)> {
    let meeting = up
        .iter()
        .enumerate()
        .find_map(|(at, id)| Some((at + 1, down.iter().position(|other| other == id)?)));
    let (above, below) = meeting.unwrap_or((up.len(), down.len()));
    let way: Vec<_> = up.iter().take(above).chain(down.iter().take(below).rev()).copied().collect();
    network.over_pcie(&way)
}

/// Returns the distance of two nodes of the PCI tree, in nvidia-smi's words.
pub fn class(graph: &Topology, from: NodeId, to: NodeId) -> LinkClass {
    let network = Network::of(graph);
    class_by_tree(&network, &pcie_hops(&network, &graph.way_up(from), &graph.way_up(to)))
}

/// Returns the distance of every network adapter from every GPU.
pub(crate) fn to_adapters(snapshot: &Snapshot, graph: &Topology) -> Vec<AdapterPath> {
    let network = Network::of(graph);
    let gpus = snapshot.gpus.iter().map(|gpu| (gpu.index, graph.way_up(NodeId::Gpu(gpu.index))));
    let gpus: Vec<_> = gpus.collect();
    let adapter = |adapter: &Adapter| {
        let way_up = graph.way_up(NodeId::Pci(adapter.pci));
        let distance = |(gpu, of_gpu): &(u32, Vec<NodeId>)| GpuDistance {
            gpu: *gpu,
            class: class_by_tree(&network, &pcie_hops(&network, of_gpu, &way_up)),
        };
        AdapterPath {
            adapter: adapter.name.clone(),
            pci: adapter.pci,
            gpus: gpus.iter().map(distance).collect(),
        }
    };
    snapshot.adapters.iter().map(adapter).collect()
}

/// Returns the hop of least capacity, which generation and width decide together.
pub(super) fn narrowest<'a, 'g>(hops: &'a [(Hop, &'g Link)]) -> Option<(&'a Hop, &'g Link)> {
    let known = hops.iter().filter_map(|(hop, link)| Some((hop, *link, hop.capacity_gbps?.0)));
    known.min_by(|(.., one), (.., other)| one.total_cmp(other)).map(|(hop, link, _)| (hop, link))
}

/// Returns the source of the theoretical rate, or the reason why there is no rate.
fn source_of(
    snapshot: &Snapshot,
    (class, join): (LinkClass, Option<Join>),
    ends: (&Gpu, &Gpu),
    hops: &[(Hop, &Link)],
    narrowest: Option<(&Hop, &Link)>,
) -> String {
    let Some((_, link)) = narrowest else {
        let lost =
            [ends.0, ends.1].into_iter().find_map(|gpu| Some((gpu.label(), gpu.pci.unknown()?)));
        return match lost {
            _ if join == Some(Join::Unclear) => {
                "unknown: NVML reports that NVLink connects the two, but not where the links lead"
                    .into()
            }
            Some((gpu, why)) => format!("unknown: the PCI address of {gpu} is not known ({why})"),
            None if hops.is_empty() => "unknown: no route between the two GPUs is visible".into(),
            None => "unknown: generation or width of no link of the route is known".into(),
        };
    };
    let mut source = format!("narrowest known hop: {}", link.origin);
    if hops.iter().any(|(_, link)| link.pcie.is_some() && link.capacity_gbps.is_none()) {
        source
            .push_str("; another link of the route has no known rate and may be the narrower one");
    }
    if !matches!(class, LinkClass::NvLink(_)) && snapshot.host.virtual_machine.get() == Some(true) {
        source.push_str("; the PCI tree of a virtual machine is not the real one: class and limit may differ from it");
    }
    source
}

/// Describes the narrowest hop so that someone can find it in the machine.
pub(super) fn describe(network: &Network<'_>, hop: &Hop, link: &Link) -> String {
    let label = &hop.label;
    if link.kind == LinkKind::NvLink {
        return match (hop.from, hop.to) {
            (NodeId::Gpu(from), NodeId::Gpu(to)) => {
                format!("{label} between GPU {from} and GPU {to}")
            }
            (NodeId::Gpu(gpu), _) | (_, NodeId::Gpu(gpu)) => format!("{label} of GPU {gpu}"),
            _ => label.clone(),
        };
    }
    if let NodeId::Gpu(index) = link.lower {
        let node = network.node(link.lower);
        let pci = node.and_then(|node| node.pci).map_or(String::new(), |pci| format!(" {pci}"));
        let slot = node
            .and_then(|node| node.slot.as_ref())
            .map_or(String::new(), |slot| format!(", labelled {slot}"));
        return format!("GPU {index}'s slot{pci}{slot} ({label})");
    }
    let gpus: Vec<_> =
        link.pcie.iter().flat_map(|pcie| &pcie.gpus).map(|gpu| format!("GPU {gpu}")).collect();
    let above = if gpus.is_empty() { String::new() } else { format!(" above {}", gpus.join(", ")) };
    format!("link from {} to {}{above} ({label})", link.upper, link.lower)
}

fn class_by_nvml(reported: Option<&GpuPair>) -> Option<LinkClass> {
    Some(match reported?.common_ancestor.get()? {
        CommonAncestor::Internal | CommonAncestor::SingleSwitch => LinkClass::Pix,
        CommonAncestor::MultipleSwitches => LinkClass::Pxb,
        CommonAncestor::HostBridge => LinkClass::Phb,
        CommonAncestor::NumaNode => LinkClass::Node,
        CommonAncestor::System => LinkClass::Sys,
    })
}

/// Returns the class that the PCI tree shows for these hops, in the words of nvidia-smi's legend.
fn class_by_tree(network: &Network<'_>, hops: &[(Hop, &Link)]) -> LinkClass {
    let passed: Vec<_> =
        hops.iter().skip(1).filter_map(|(hop, _)| network.node(hop.from)).collect();
    if hops.is_empty()
        || passed.iter().any(|node| matches!(node.id, NodeId::HiddenRoot | NodeId::Numa(None)))
    {
        return LinkClass::Unknown;
    }
    let host_bridges = passed.iter().filter(|node| node.kind == NodeKind::HostBridge).count();
    if hops.iter().any(|(_, link)| link.kind == LinkKind::Interconnect) {
        LinkClass::Sys
    } else if host_bridges > 1 {
        LinkClass::Node
    } else if host_bridges == 1 {
        LinkClass::Phb
    } else {
        // A switch has one upstream port and several downstream ports. A way through one switch passes two downstream
        // ports and the upstream port between them: three.
        let ports = passed.iter().filter(|node| node.kind == NodeKind::SwitchPort).count();
        let bridges = passed.iter().filter(|node| node.kind == NodeKind::Bridge).count();
        if ports + bridges <= 3 && bridges <= 1 { LinkClass::Pix } else { LinkClass::Pxb }
    }
}
