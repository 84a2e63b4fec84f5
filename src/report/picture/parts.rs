//! The machine as a tree of the parts that a technician sees: sockets, host bridges, root ports, switches, GPUs and
//! adapters. The ports of a switch are one part. Parts without a GPU or adapter below them are left out.

use std::collections::{HashMap, HashSet};

use crate::highlight;
use crate::paint::Paint;
use crate::paths;
use model::finding::{Finding, Subject};
use model::node::NodeId;
use model::pcie::DEEPEST;
use model::report::Report;
use model::rounding::rate;
use model::topology::{Link, LinkKind, Node, NodeKind};
use model::units::PciAddress;

/// Returns the class of a kind of part in the picture, and its name.
pub(super) const fn words(kind: NodeKind) -> (&'static str, &'static str) {
    match kind {
        NodeKind::NumaNode => ("socket", "NUMA node"),
        NodeKind::HostBridge => ("host-bridge", "host bridge"),
        NodeKind::RootPort => ("root-port", "root port"),
        NodeKind::SwitchPort | NodeKind::NvSwitchPlane => ("switch", "switch"),
        NodeKind::Bridge => ("bridge", "bridge"),
        NodeKind::Gpu => ("gpu", "GPU"),
        NodeKind::Adapter => ("adapter", "adapter"),
    }
}

/// Returns true if nothing can be below this kind of part.
const fn is_leaf(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Gpu | NodeKind::Adapter)
}

/// A part of the machine with everything below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unit {
    pub kind: NodeKind,
    /// `GPU 3`, `switch`.
    pub name: String,
    /// Lines below its name: model, address, slot.
    pub lines: Vec<String>,
    /// All known facts in short, for a tooltip.
    pub tip: String,
    /// GPUs at or below it, in order.
    pub gpus: Vec<u32>,
    /// Number of similar parts that it represents.
    pub times: usize,
    /// The worst severity of its findings.
    pub mark: Paint,
    /// True if it is a GPU that did not answer, or that NVML does not list.
    pub lost: bool,
    /// The link towards the processor.
    pub above: Option<Above>,
    pub below: Vec<Unit>,
}

impl Unit {
    /// Creates one part, with nothing above and below.
    fn new(kind: NodeKind, name: String, lines: Vec<String>, tip: String) -> Self {
        let (gpus, below, mark) = (Vec::new(), Vec::new(), Paint::Plain);
        Self { kind, name, lines, tip, gpus, times: 1, mark, lost: false, above: None, below }
    }
}

/// A link from a part towards the processor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Above {
    /// `Gen4 x4`; empty within a processor.
    pub label: String,
    /// `x16` or `Gen5` if a fault keeps the link below it.
    pub of: Option<String>,
    /// GB/s each way.
    pub rate: Option<f64>,
    pub tip: String,
}

impl Above {
    /// Returns true if the link carries less than both of its ends can do.
    pub(super) fn is_narrow(&self) -> bool {
        self.of.is_some()
    }
}

/// Returns the machine from its sockets down. Unconnected GPUs come last, then unlisted ones.
pub(super) fn of(report: &Report) -> Vec<Unit> {
    let (topology, snapshot) = (&report.topology, &report.snapshot);
    let marks = highlight::worst(&report.findings, |finding| nodes(report, finding));
    let mut tree = Tree { report, marks, seen: HashSet::new() };
    let roots = topology.nodes.iter().filter(|node| topology.link_above(node.id).is_none());
    // A broken tree may have loops without a root: their parts come at the end.
    let nodes = roots.chain(&topology.nodes).filter(|node| node.kind != NodeKind::NvSwitchPlane);
    let mut parts: Vec<Unit> = nodes.filter_map(|node| tree.part(node.id, None, 0)).collect();
    parts.sort_by_key(|part| (is_leaf(part.kind), part.gpus.is_empty()));
    // The tree may lack a GPU that does not answer.
    for index in snapshot.gpus.iter().map(|gpu| gpu.index) {
        if !tree.seen.contains(&NodeId::Gpu(index)) {
            let mark = tree.mark(NodeId::Gpu(index));
            parts.push(Unit { mark, ..gpu(report, None, index) });
        }
    }
    let unlisted = snapshot.unlisted_gpus.iter();
    let unlisted = unlisted.filter(|function| function.is_for_us() && function.gpu.is_none());
    parts.extend(unlisted.map(|function| {
        let lines = vec![short(function.address), "not listed".into()];
        let tip = format!("{}: a GPU that NVML does not list", function.address);
        let part = Unit::new(NodeKind::Gpu, "GPU".into(), lines, tip);
        Unit { mark: Paint::Error, lost: true, ..part }
    }));
    parts
}

/// Returns an address without the domain 0000, which on nearly every machine is the only one.
fn short(address: PciAddress) -> String {
    let text = address.to_string();
    text.strip_prefix("0000:").unwrap_or(&text).to_owned()
}

/// The tree under construction.
struct Tree<'a> {
    report: &'a Report,
    marks: HashMap<NodeId, Paint>,
    seen: HashSet<NodeId>,
}

impl Tree<'_> {
    /// Returns the worst severity of the findings about a node.
    fn mark(&self, id: NodeId) -> Paint {
        self.marks.get(&id).copied().unwrap_or_default()
    }

    /// Returns this node with everything below it, or `None` if it leads to nothing or was visited before.
    fn part(&mut self, id: NodeId, link: Option<&Link>, depth: usize) -> Option<Unit> {
        let node = self.report.topology.node(id)?;
        if depth > DEEPEST || !self.seen.insert(id) {
            return None;
        }
        let mut below = self.children(node, depth + 1);
        if below.is_empty() && !is_leaf(node.kind) {
            return None;
        }
        below.sort_by_key(|part| part.gpus.first().copied().unwrap_or(u32::MAX));
        let mut part = described(self.report, node);
        part.gpus.extend(below.iter().flat_map(|part| &part.gpus));
        part.gpus.sort_unstable();
        Some(Unit { above: link.map(above), mark: self.mark(id), below, ..part })
    }

    fn children(&mut self, node: &Node, depth: usize) -> Vec<Unit> {
        let report = self.report;
        let mut children = Vec::new();
        for link in links_below(report, node.id) {
            let lower = report.topology.node(link.lower);
            let ports = [Some(node), lower].map(|end| end.map(|node| node.kind));
            let is_inside = link.pcie.is_none() && ports == [Some(NodeKind::SwitchPort); 2];
            if is_inside && self.seen.insert(link.lower) {
                // A downstream port is part of its switch.
                let inner = links_below(report, link.lower);
                children.extend(inner.filter_map(|link| self.part(link.lower, Some(link), depth)));
            } else {
                children.extend(self.part(link.lower, Some(link), depth));
            }
        }
        children
    }
}

fn links_below(report: &Report, id: NodeId) -> impl Iterator<Item = &Link> {
    report.topology.links.iter().filter(move |link| {
        link.upper == id && matches!(link.kind, LinkKind::Pcie | LinkKind::RootComplex)
    })
}

fn described(report: &Report, node: &Node) -> Unit {
    let address = || node.pci.map(short).into_iter().collect();
    let word = words(node.kind).1.to_owned();
    let (name, lines) = match node.id {
        NodeId::Gpu(index) => return gpu(report, Some(node), index),
        NodeId::Numa(Some(numa)) => {
            let node = report.snapshot.numa_nodes.iter().find(|node| node.node == numa);
            let memory =
                node.map(|node| format!("processors {}, {}", node.cpus, node.memory_bytes));
            (format!("NUMA node {numa}"), memory.into_iter().collect())
        }
        NodeId::Numa(None) => ("NUMA node not known".into(), Vec::new()),
        NodeId::HostBridge(..) => (word, vec![node.id.to_string().replacen("pci0000:", "pci ", 1)]),
        NodeId::HiddenRoot => ("PCIe root".into(), vec!["not visible".into()]),
        _ if node.kind == NodeKind::Adapter => {
            let adapters = report.snapshot.adapters.iter();
            let here = adapters.filter(|adapter| Some(adapter.pci) == node.pci);
            let names: Vec<_> = here.map(|adapter| adapter.name.as_str()).collect();
            (names.join(", "), address())
        }
        _ => (word, address()),
    };
    let slot = node.slot.as_ref().map(|slot| format!(", slot {slot}")).unwrap_or_default();
    Unit::new(node.kind, name, lines, format!("{}{slot}", node.label))
}

fn gpu(report: &Report, node: Option<&Node>, index: u32) -> Unit {
    let gpu = report.snapshot.gpu(index);
    let model = gpu.and_then(|gpu| gpu.name.known());
    // A GPU that does not answer has the address that it should have.
    let mut unlisted = report.snapshot.unlisted_gpus.iter();
    let pci = gpu.and_then(|gpu| gpu.pci.get()).or(node.and_then(|node| node.pci));
    let pci = pci.or_else(|| Some(unlisted.find(|function| function.gpu == Some(index))?.address));
    let slot = node.and_then(|node| node.slot.as_ref()).map(|slot| format!("slot {slot}"));
    let devices = report.measurements.iter().flat_map(|measured| &measured.driver.devices);
    let mut failures =
        devices.filter(|device| device.index == index).flat_map(|device| &device.failure);
    // A model is known without its maker.
    let brief = |model: &String| {
        let makers = ["NVIDIA ", "GeForce ", "Tesla "].iter();
        makers.fold(model.as_str(), |rest, word| rest.strip_prefix(word).unwrap_or(rest)).to_owned()
    };
    let mut lines = vec![model.map_or_else(|| "no answer".into(), brief)];
    lines.extend(pci.map(short).into_iter().chain(slot.clone()));
    let facts = [
        model.cloned(),
        pci.map(|pci| pci.to_string()),
        slot,
        gpu.and_then(|gpu| gpu.serial.known()).map(|serial| format!("serial {serial}")),
        gpu.and_then(|gpu| gpu.uuid.known()).cloned(),
        failures.next().map(|why| format!("not tested: {why}")),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    let name = format!("GPU {index}");
    let tip = format!("{name}: {}", facts.join(", "));
    Unit { gpus: vec![index], lost: model.is_none(), ..Unit::new(NodeKind::Gpu, name, lines, tip) }
}

fn above(link: &Link) -> Above {
    let Some(pcie) = &link.pcie else {
        // A link within a processor has no readings.
        return Above { tip: link.label.clone(), ..Above::default() };
    };
    let [now, possible] = [link.capacity_gbps, link.possible_gbps].map(|of| of.map(|of| of.0));
    let rates = match (now, possible) {
        (Some(now), Some(possible)) if now < possible * 0.99 => {
            format!(", {} of {} GB/s each way", rate(now), rate(possible))
        }
        (Some(now), _) => format!(", {} GB/s each way", rate(now)),
        _ => String::new(),
    };
    let label =
        if pcie.now.generation.is_some() { pcie.now.to_string() } else { link.label.clone() };
    let mut of = pcie.possible;
    match (pcie.fewer_lanes(), pcie.lower_generation()) {
        (true, false) => of.generation = None,
        (false, true) => of.width = None,
        _ => {}
    }
    let is_known = of.generation.is_some() || of.width.is_some();
    let of = Some(of.to_string()).filter(|_| is_known && !pcie.narrow.is_empty());
    let text = paths::link_text(pcie).unwrap_or_else(|| label.clone());
    Above { label, of, rate: now, tip: format!("PCIe {text}{rates}") }
}

/// Returns the nodes that a finding is about.
fn nodes(report: &Report, finding: &Finding) -> Vec<NodeId> {
    let all = &report.snapshot.gpus;
    match finding.subject {
        Subject::PcieLink { address } | Subject::PciFunction { address } => {
            let gpu = all.iter().find(|gpu| gpu.pci.get() == Some(address));
            vec![gpu.map_or(NodeId::Pci(address), |gpu| NodeId::Gpu(gpu.index))]
        }
        // A finding about all GPUs is a finding about the machine.
        Subject::Machine if finding.scope.gpus.len() >= all.len() => Vec::new(),
        Subject::Pair(_) => Vec::new(),
        _ => highlight::gpus(finding).into_iter().map(NodeId::Gpu).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(parts: &[Unit], depth: usize, found: &mut Vec<String>) {
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
        fn narrow(parts: &[Unit], found: &mut Vec<(String, String)>) {
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
