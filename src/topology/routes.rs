//! The route of every ordered pair of GPUs: class, hops, and the narrowest hop.

use super::graph::{Graph, HIDDEN_ROOT, INSIDE_SWITCH, NVSWITCH, UNKNOWN_NUMA, gpu_id};
use super::nvlink::{self, Join};
use super::pcie::{self, Above};
use crate::model::measurement::PeerAccess;
use crate::model::placement::Pair;
use crate::model::snapshot::{CommonAncestor, Gpu, GpuPair, Snapshot};
use crate::model::topology::{Hop, Link, LinkClass, LinkKind, NodeKind, PairRoute};
use crate::model::units::GbPerSecond;

/// The routes of all ordered pairs, row by row.
pub fn all(snapshot: &Snapshot, graph: &Graph) -> Vec<PairRoute> {
    let mut indices = Vec::new();
    for gpu in &snapshot.gpus {
        if !indices.contains(&gpu.index) {
            indices.push(gpu.index);
        }
    }
    let staged: Vec<_> = snapshot.gpus.iter().map(|gpu| (gpu.index, narrowest_way_up(snapshot, gpu))).collect();
    let staged_of = |index: u32| staged.iter().find(|(of, _)| *of == index).and_then(|(_, rate)| *rate);
    Pair::ordered(&indices)
        .into_iter()
        .filter_map(|pair| {
            let ends = (snapshot.gpu(pair.source)?, snapshot.gpu(pair.destination)?);
            let staged = match (staged_of(pair.source), staged_of(pair.destination)) {
                (Some(up), Some(down)) => Some(up.min(down)),
                (up, down) => up.or(down),
            };
            Some(route(snapshot, graph, pair, ends, staged))
        })
        .collect()
}

fn route(snapshot: &Snapshot, graph: &Graph, pair: Pair, ends: (&Gpu, &Gpu), staged: Option<f64>) -> PairRoute {
    let said = snapshot.pairs.iter().find(|said| said.source == pair.source && said.destination == pair.destination);
    let (from, to) = (gpu_id(pair.source), gpu_id(pair.destination));
    let (class, hops) = match nvlink::join(snapshot, ends.0, ends.1) {
        Some(Join::Unclear) => (LinkClass::Unknown, Vec::new()),
        Some(Join::Direct(links)) => (LinkClass::NvLink(links), graph.nvlink_hop(&from, &to).into_iter().collect()),
        Some(Join::Switched(links)) => {
            let hops = [graph.nvlink_hop(&from, NVSWITCH), graph.nvlink_hop(NVSWITCH, &to)];
            (LinkClass::NvLink(links), hops.into_iter().flatten().collect())
        }
        None => {
            let hops = graph.pcie_route(&from, &to).unwrap_or_default();
            (class_by_nvml(said).unwrap_or_else(|| class_by_tree(graph, &hops)), hops)
        }
    };
    let narrowest = narrowest(&hops);
    PairRoute {
        pair,
        class,
        theoretical_gbps: narrowest.and_then(|(hop, _)| hop.capacity_gbps),
        theoretical_source: source_of(snapshot, class, ends, &hops, narrowest),
        bottleneck: narrowest.map(|(hop, link)| describe(snapshot, hop, link)),
        staged_theoretical_gbps: staged.map(GbPerSecond),
        peer_access: PeerAccess {
            nvml_read: said.and_then(|said| said.p2p_read.get()),
            nvml_write: said.and_then(|said| said.p2p_write.get()),
            cuda: None,
            cuda_failure: None,
        },
        hops: hops.into_iter().map(|(hop, _)| hop).collect(),
    }
}

/// The hop of least capacity; speed and width count together, hop by hop.
fn narrowest<'a, 'g>(hops: &'a [(Hop, &'g Link)]) -> Option<(&'a Hop, &'g Link)> {
    let known = hops.iter().filter_map(|(hop, link)| Some((hop, *link, hop.capacity_gbps?.0)));
    known.min_by(|(.., one), (.., other)| one.total_cmp(other)).map(|(hop, link, _)| (hop, link))
}

/// Where the theoretical figure comes from, or why there is none.
fn source_of(
    snapshot: &Snapshot,
    class: LinkClass,
    ends: (&Gpu, &Gpu),
    hops: &[(Hop, &Link)],
    narrowest: Option<(&Hop, &Link)>,
) -> String {
    let Some((_, link)) = narrowest else {
        let lost = [ends.0, ends.1].into_iter().find_map(|gpu| Some((gpu.label(), gpu.pci.unknown()?)));
        return match lost {
            _ if nvlink::join(snapshot, ends.0, ends.1) == Some(Join::Unclear) => {
                "unknown: NVML says that NVLink joins the two, and not where the links lead".into()
            }
            Some((gpu, why)) => format!("unknown: the PCI address of {gpu} is not known ({why})"),
            None if hops.is_empty() => "unknown: no route between the two GPUs is visible".into(),
            None => "unknown: generation or width of no link of the route is known".into(),
        };
    };
    let mut source = format!("narrowest known hop: {}", link.origin);
    let is_gap =
        |link: &Link| link.capacity_gbps.is_none() && link.kind == LinkKind::Pcie && link.label != INSIDE_SWITCH;
    if hops.iter().any(|(_, link)| is_gap(link)) {
        source.push_str("; another link of the route has no known rate and may be the narrower one");
    }
    if !matches!(class, LinkClass::NvLink(_)) && snapshot.host.virtual_machine.get() == Some(true) {
        source.push_str("; the PCI tree of a virtual machine is not the real one: class and limit may differ from it");
    }
    source
}

/// The narrowest hop, for someone who has to find it in the machine.
fn describe(snapshot: &Snapshot, hop: &Hop, link: &Link) -> String {
    let gpu_of = |id: &str| snapshot.gpus.iter().find(|gpu| gpu_id(gpu.index) == id);
    if link.kind == LinkKind::NvLink {
        return match (gpu_of(&hop.from), gpu_of(&hop.to)) {
            (Some(from), Some(to)) => format!("{} between {} and {}", hop.label, from.label(), to.label()),
            (Some(gpu), None) | (None, Some(gpu)) => format!("{} of {}", hop.label, gpu.label()),
            (None, None) => hop.label.clone(),
        };
    }
    if let Some(gpu) = gpu_of(&link.lower) {
        let place = match gpu.pci.get() {
            Some(pci) => match pcie::slot(snapshot, pci) {
                Some(slot) => format!("slot {pci}, labelled {slot}"),
                None => format!("slot {pci}"),
            },
            None => "slot".into(),
        };
        return format!("{}'s {place} ({})", gpu.label(), hop.label);
    }
    let shared = below(snapshot, &link.lower);
    let above = if shared.is_empty() { String::new() } else { format!(" above {}", shared.join(", ")) };
    format!("link from {} to {}{above} ({})", link.upper, link.lower, hop.label)
}

/// The GPUs whose way up passes this function.
fn below(snapshot: &Snapshot, function: &str) -> Vec<String> {
    let passes = |gpu: &&Gpu| {
        let way = gpu.pci.get().map(|address| pcie::chain(snapshot, address)).unwrap_or_default();
        way.iter().any(|step| step.address.to_string() == function)
    };
    snapshot.gpus.iter().filter(passes).map(Gpu::label).collect()
}

/// The rate of the narrowest PCIe link on a GPU's way up to memory.
fn narrowest_way_up(snapshot: &Snapshot, gpu: &Gpu) -> Option<f64> {
    let way = gpu.pci.get().map(|address| pcie::chain(snapshot, address)).unwrap_or_default();
    if way.is_empty() {
        return pcie::link_by_nvml(gpu)?.capacity().map(|capacity| capacity.gbps);
    }
    let rate = |(at, function): (usize, &&_)| match pcie::above(snapshot, function, (at == 0).then_some(gpu)) {
        Above::Link(link) => link.capacity().map(|capacity| capacity.gbps),
        Above::InsideSwitch | Above::RootComplex => None,
    };
    way.iter().enumerate().filter_map(rate).min_by(f64::total_cmp)
}

fn class_by_nvml(said: Option<&GpuPair>) -> Option<LinkClass> {
    Some(match said?.common_ancestor.get()? {
        CommonAncestor::Internal | CommonAncestor::SingleSwitch => LinkClass::Pix,
        CommonAncestor::MultipleSwitches => LinkClass::Pxb,
        CommonAncestor::HostBridge => LinkClass::Phb,
        CommonAncestor::NumaNode => LinkClass::Node,
        CommonAncestor::System => LinkClass::Sys,
    })
}

/// The class that the PCI tree shows, in the words of nvidia-smi's legend.
fn class_by_tree(graph: &Graph, hops: &[(Hop, &Link)]) -> LinkClass {
    let passed: Vec<_> = hops.iter().skip(1).filter_map(|(hop, _)| graph.find(&hop.from)).collect();
    if hops.is_empty() || passed.iter().any(|node| [HIDDEN_ROOT, UNKNOWN_NUMA].contains(&node.id.as_str())) {
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
        // A switch is an upstream port and its downstream ports; two downstream ports and the
        // upstream port between them are one switch.
        let ports = passed.iter().filter(|node| node.kind == NodeKind::SwitchPort).count();
        let bridges = passed.iter().filter(|node| node.kind == NodeKind::Bridge).count();
        if ports + bridges <= 3 && bridges <= 1 { LinkClass::Pix } else { LinkClass::Pxb }
    }
}
