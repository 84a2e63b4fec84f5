//! The machine as a tree of the parts that a technician sees: sockets, host bridges, root ports, switches, GPUs and
//! adapters. The ports of a switch are one part. Parts without a GPU or adapter below them are left out.

use std::collections::{HashMap, HashSet};

use super::super::highlight::{self, paint};
use super::super::paint::Paint;
use super::super::paths;
use model::finding::Subject;
use model::node::NodeId;
use model::report::Report;
use model::rounding::rate;
use model::topology::{Link, LinkKind, Node, NodeKind};
use model::units::PciAddress;

/// Most levels of the tree, more than any machine has: a report from elsewhere must not exhaust the stack.
const DEEPEST: usize = 24;

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PartKind {
    Socket,
    HostBridge,
    RootPort,
    Switch,
    Bridge,
    Gpu,
    Adapter,
}

impl PartKind {
    const fn of(node: NodeKind) -> Self {
        match node {
            NodeKind::NumaNode => Self::Socket,
            NodeKind::HostBridge => Self::HostBridge,
            NodeKind::RootPort => Self::RootPort,
            NodeKind::SwitchPort | NodeKind::NvSwitchPlane => Self::Switch,
            NodeKind::Bridge => Self::Bridge,
            NodeKind::Gpu => Self::Gpu,
            NodeKind::Adapter => Self::Adapter,
        }
    }

    /// Returns the kind in a word or two.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Socket => "NUMA node",
            Self::HostBridge => "host bridge",
            Self::RootPort => "root port",
            Self::Switch => "switch",
            Self::Bridge => "bridge",
            Self::Gpu => "GPU",
            Self::Adapter => "adapter",
        }
    }

    /// Returns true if nothing can be below this kind of part.
    pub(super) const fn is_leaf(self) -> bool {
        matches!(self, Self::Gpu | Self::Adapter)
    }
}

/// A part of the machine with everything below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) kind: PartKind,
    /// `GPU 3`, `switch`.
    pub(super) name: String,
    /// Lines below its name: model, address, slot.
    pub(super) lines: Vec<String>,
    /// All known facts in short, for a tooltip.
    pub(super) tip: String,
    /// GPUs at or below it, in order.
    pub(super) gpus: Vec<u32>,
    /// Number of similar parts that it represents.
    pub(super) times: usize,
    /// The worst severity of its findings.
    pub(super) mark: Paint,
    /// True if it is a GPU that did not answer, or that NVML does not list.
    pub(super) lost: bool,
    /// The link towards the processor.
    pub(super) above: Option<Above>,
    pub(super) below: Vec<Part>,
}

/// A link from a part towards the processor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Above {
    /// `Gen4 x4`; empty within a processor.
    pub(super) label: String,
    /// `x16` or `Gen5` if a fault keeps the link below it.
    pub(super) of: Option<String>,
    /// GB/s each way.
    pub(super) rate: Option<f64>,
    pub(super) tip: String,
}

impl Above {
    /// Returns true if the link carries less than both of its ends can do.
    pub(super) fn is_narrow(&self) -> bool {
        self.of.is_some()
    }
}

/// Returns the machine from its sockets down. Unconnected GPUs come last, then unlisted ones.
pub(super) fn of(report: &Report) -> Vec<Part> {
    let mut growing = Growing::of(report);
    let topology = &report.topology;
    let lower: HashSet<NodeId> = growing.below.values().flatten().map(|link| link.lower).collect();
    let roots = topology.nodes.iter().filter(|node| !lower.contains(&node.id));
    // A broken tree may have loops without a root: their parts come at the end.
    let mut parts: Vec<Part> = Vec::new();
    for node in roots.chain(&topology.nodes).filter(|node| node.kind != NodeKind::NvSwitchPlane) {
        parts.extend(growing.part(node.id, None, 0));
    }
    parts.sort_by_key(|part| (part.kind.is_leaf(), part.gpus.is_empty()));
    // The tree may lack a GPU that does not answer.
    let missing: Vec<u32> = report
        .snapshot
        .gpus
        .iter()
        .map(|gpu| gpu.index)
        .filter(|index| !growing.seen.contains(&NodeId::Gpu(*index)))
        .collect();
    for index in missing {
        let part = growing.gpu(None, index);
        let mark = growing.marks.get(&NodeId::Gpu(index)).copied().unwrap_or_default();
        parts.push(Part { gpus: vec![index], mark, ..part });
    }
    parts.extend(
        report
            .snapshot
            .unlisted_gpus
            .iter()
            .filter(|function| function.is_for_us() && function.gpu.is_none())
            .map(|function| Part {
                kind: PartKind::Gpu,
                name: "GPU".into(),
                lines: vec![short(function.address), "not listed".into()],
                tip: format!("{}: a GPU that NVML does not list", function.address),
                gpus: Vec::new(),
                times: 1,
                mark: Paint::Error,
                lost: true,
                above: None,
                below: Vec::new(),
            }),
    );
    parts
}

/// Returns an address without the domain 0000, which on nearly every machine is the only one.
pub(super) fn short(address: PciAddress) -> String {
    let text = address.to_string();
    text.strip_prefix("0000:").map_or_else(|| text.clone(), str::to_owned)
}

/// The tree under construction.
struct Growing<'a> {
    report: &'a Report,
    nodes: HashMap<NodeId, &'a Node>,
    below: HashMap<NodeId, Vec<&'a Link>>,
    marks: HashMap<NodeId, Paint>,
    seen: HashSet<NodeId>,
}

impl<'a> Growing<'a> {
    fn of(report: &'a Report) -> Self {
        let topology = &report.topology;
        let mut below: HashMap<NodeId, Vec<&Link>> = HashMap::new();
        for link in topology
            .links
            .iter()
            .filter(|link| matches!(link.kind, LinkKind::Pcie | LinkKind::RootComplex))
        {
            below.entry(link.upper).or_default().push(link);
        }
        let nodes = topology.nodes.iter().map(|node| (node.id, node)).collect();
        Self { report, nodes, below, marks: marks(report), seen: HashSet::new() }
    }

    /// Returns this node with everything below it, or `None` if it leads to nothing or was visited before.
    fn part(&mut self, id: NodeId, link: Option<&Link>, depth: usize) -> Option<Part> {
        let node = *self.nodes.get(&id)?;
        if depth > DEEPEST || !self.seen.insert(id) {
            return None;
        }
        let kind = PartKind::of(node.kind);
        let mut below = self.children(id, kind, depth);
        below.sort_by_key(|part| part.gpus.first().copied().unwrap_or(u32::MAX));
        let mut gpus: Vec<u32> = below.iter().flat_map(|part| part.gpus.iter().copied()).collect();
        if let NodeId::Gpu(index) = id {
            gpus.push(index);
        }
        if below.is_empty() && !kind.is_leaf() {
            return None;
        }
        gpus.sort_unstable();
        let mut part = self.described(node, kind);
        part.above = link.map(|link| self.above(link));
        part.mark = part.mark.max(self.marks.get(&id).copied().unwrap_or_default());
        (part.gpus, part.below) = (gpus, below);
        Some(part)
    }

    fn children(&mut self, id: NodeId, kind: PartKind, depth: usize) -> Vec<Part> {
        let links = self.below.get(&id).cloned().unwrap_or_default();
        let mut children = Vec::new();
        for link in links {
            let is_port =
                self.nodes.get(&link.lower).is_some_and(|node| node.kind == NodeKind::SwitchPort);
            if kind == PartKind::Switch
                && is_port
                && link.pcie.is_none()
                && self.seen.insert(link.lower)
            {
                // A downstream port is part of its switch.
                for inner in self.below.get(&link.lower).cloned().unwrap_or_default() {
                    children.extend(self.part(inner.lower, Some(inner), depth + 1));
                }
            } else {
                children.extend(self.part(link.lower, Some(link), depth + 1));
            }
        }
        children
    }

    fn described(&self, node: &Node, kind: PartKind) -> Part {
        let address = node.pci.map(short);
        let (name, lines) = match node.id {
            NodeId::Gpu(index) => return self.gpu(Some(node), index),
            NodeId::Numa(Some(numa)) => (format!("NUMA node {numa}"), self.memory(numa)),
            NodeId::Numa(None) => ("NUMA node not known".into(), Vec::new()),
            NodeId::HostBridge(..) => {
                (kind.word().into(), vec![node.id.to_string().replacen("pci0000:", "pci ", 1)])
            }
            NodeId::HiddenRoot => ("PCIe root".into(), vec!["not visible".into()]),
            _ if kind == PartKind::Adapter => {
                (self.adapter(node.pci), address.into_iter().collect())
            }
            _ => (kind.word().into(), address.into_iter().collect()),
        };
        let slot = node.slot.as_ref().map(|slot| format!(", slot {slot}")).unwrap_or_default();
        Part { tip: format!("{}{slot}", node.label), ..bare(kind, name, lines) }
    }

    /// Returns the names that the kernel gives to an adapter.
    fn adapter(&self, pci: Option<PciAddress>) -> String {
        let adapters = self.report.snapshot.adapters.iter();
        let here = adapters.filter(|adapter| Some(adapter.pci) == pci);
        let names: Vec<_> = here.map(|adapter| adapter.name.as_str()).collect();
        names.join(", ")
    }

    fn memory(&self, numa: u32) -> Vec<String> {
        let node = self.report.snapshot.numa_nodes.iter().find(|node| node.node == numa);
        node.map(|node| format!("processors {}, {}", node.cpus, node.memory_bytes))
            .into_iter()
            .collect()
    }

    fn gpu(&self, node: Option<&Node>, index: u32) -> Part {
        let gpu = self.report.snapshot.gpu(index);
        let model = gpu.and_then(|gpu| gpu.name.known());
        let pci = gpu.and_then(|gpu| gpu.pci.get()).or(node.and_then(|node| node.pci));
        let pci = pci.or_else(|| self.unlisted(index));
        let slot = node.and_then(|node| node.slot.as_ref()).map(|slot| format!("slot {slot}"));
        let failure = self.report.measurements.iter().flat_map(|measured| &measured.driver.devices);
        let failure = failure
            .filter(|device| device.index == index)
            .find_map(|device| device.failure.as_deref());
        let lost = model.is_none();
        let mut lines = vec![model.map_or_else(|| "no answer".into(), |model| brief(model))];
        lines.extend(pci.map(short));
        lines.extend(slot.clone());
        let facts = [
            model.cloned(),
            pci.map(|pci| pci.to_string()),
            slot,
            gpu.and_then(|gpu| gpu.serial.known()).map(|serial| format!("serial {serial}")),
            gpu.and_then(|gpu| gpu.uuid.known()).cloned(),
            failure.map(|why| format!("not tested: {why}")),
        ];
        let facts: Vec<_> = facts.into_iter().flatten().collect();
        let tip = format!("GPU {index}: {}", facts.join(", "));
        Part { tip, lost, ..bare(PartKind::Gpu, format!("GPU {index}"), lines) }
    }

    /// Returns the expected address of a GPU that does not report one.
    fn unlisted(&self, index: u32) -> Option<PciAddress> {
        let functions = &self.report.snapshot.unlisted_gpus;
        functions
            .iter()
            .find(|function| function.gpu == Some(index))
            .map(|function| function.address)
    }

    fn above(&self, link: &Link) -> Above {
        let rates = match (link.capacity_gbps, link.possible_gbps) {
            (Some(now), Some(possible)) if now.0 < possible.0 * 0.99 => {
                format!(", {} of {} GB/s each way", rate(now.0), rate(possible.0))
            }
            (Some(now), _) => format!(", {} GB/s each way", rate(now.0)),
            _ => String::new(),
        };
        let Some(pcie) = &link.pcie else {
            // A link within a processor has no readings.
            return Above { tip: link.label.clone(), ..Above::default() };
        };
        let label =
            if pcie.now.generation.is_some() { pcie.now.to_string() } else { link.label.clone() };
        let (fewer, slower) = (pcie.fewer_lanes(), pcie.lower_generation());
        let possible = match (pcie.narrow.is_empty(), fewer, slower) {
            (true, ..) => None,
            (_, true, false) => pcie.possible.width.map(|width| format!("x{width}")),
            (_, false, true) => {
                pcie.possible.generation.map(|generation| format!("Gen{generation}"))
            }
            _ => Some(pcie.possible.to_string()),
        };
        let text = paths::link_text(pcie).unwrap_or_else(|| label.clone());
        Above {
            label,
            of: possible,
            rate: link.capacity_gbps.map(|capacity| capacity.0),
            tip: format!("PCIe {text}{rates}"),
        }
    }
}

fn bare(kind: PartKind, name: String, lines: Vec<String>) -> Part {
    let (tip, gpus, below) = (String::new(), Vec::new(), Vec::new());
    Part {
        kind,
        name,
        lines,
        tip,
        gpus,
        times: 1,
        mark: Paint::Plain,
        lost: false,
        above: None,
        below,
    }
}

/// Returns a model without its maker.
fn brief(model: &str) -> String {
    ["NVIDIA ", "GeForce ", "Tesla "]
        .iter()
        .fold(model, |rest, word| rest.strip_prefix(word).unwrap_or(rest))
        .to_owned()
}

/// Returns the worst severity of the findings about single nodes.
fn marks(report: &Report) -> HashMap<NodeId, Paint> {
    let by_address: HashMap<PciAddress, u32> =
        report.snapshot.gpus.iter().filter_map(|gpu| Some((gpu.pci.get()?, gpu.index))).collect();
    let mut marks: HashMap<NodeId, Paint> = HashMap::new();
    let all = report.snapshot.gpus.len();
    for finding in &report.findings {
        let nodes = match finding.subject {
            Subject::PcieLink { address } | Subject::PciFunction { address } => {
                vec![
                    by_address
                        .get(&address)
                        .map_or(NodeId::Pci(address), |index| NodeId::Gpu(*index)),
                ]
            }
            // A finding about all GPUs is a finding about the machine.
            Subject::Machine if finding.scope.gpus.len() >= all => continue,
            Subject::Gpu { .. } | Subject::Link { .. } | Subject::Machine => {
                highlight::gpus(finding).into_iter().map(NodeId::Gpu).collect()
            }
            Subject::Pair(_) => continue,
        };
        for node in nodes {
            let worst = marks.entry(node).or_default();
            *worst = paint(finding.severity).max(*worst);
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(parts: &[Part], depth: usize, found: &mut Vec<String>) {
        for part in parts {
            let above =
                part.above.as_ref().map(|above| format!(" [{}]", above.label)).unwrap_or_default();
            found.push(format!("{}{} {:?}{above}", " ".repeat(depth), part.name, part.gpus));
            flat(&part.below, depth + 1, found);
        }
    }

    #[test]
    fn ports_of_a_switch_are_one_part_and_every_gpu_is_there_once() {
        let report = sample::pcie_box();
        let mut found = Vec::new();
        flat(&of(&report), 0, &mut found);
        let gpus = found.iter().filter(|line| line.trim_start().starts_with("GPU")).count();
        assert_eq!(gpus, report.snapshot.gpus.len(), "{found:#?}");
        let switch = found.iter().find(|line| line.trim_start().starts_with("switch")).unwrap();
        assert!(switch.contains("[6, 7]") && switch.contains("[Gen4 x16]"), "{switch}");
    }

    #[test]
    fn a_narrow_link_says_of_what() {
        fn narrow(parts: &[Part], found: &mut Vec<(String, String)>) {
            for part in parts {
                let of = part.above.as_ref().and_then(|above| above.of.clone());
                found.extend(of.map(|of| (part.name.clone(), of)));
                narrow(&part.below, found);
            }
        }
        let mut found = Vec::new();
        narrow(&of(&sample::pcie_box()), &mut found);
        assert_eq!(found, [("GPU 3".to_owned(), "x16".to_owned())]);
    }

    #[test]
    fn a_tree_that_loops_ends() {
        let mut report = sample::pcie_box();
        let (first, last) = (report.topology.links[0].clone(), report.topology.links.len() - 1);
        report.topology.links[last] = Link { upper: first.lower, lower: first.upper, ..first };
        assert!(!of(&report).is_empty());
    }
}
