//! A machine as NCCL reads it from NCCL_TOPO_FILE.

use std::collections::BTreeMap;

use explain::{Cause, Effect, Part};
use model::node::NodeId;
use model::report::Report;
use model::snapshot::{Adapter, AdapterKind, Gpu, NvLinkRemote, PciKind, Snapshot};
use model::topology::LinkClass;
use model::units::{Generation, Lanes, PciAddress, PcieLink};
use topology::pcie::{Shape, chain, rate};

use super::xml::Element;

/// Version of NCCL's topology files.
pub(super) const VERSION: &str = "1";
/// What NCCL writes for the other end of an NVLink that a virtual machine does not show.
pub(super) const HIDDEN: &str = "fffffff:ffff:ff";
/// Class of an NVSwitch, and of a GPU.
pub(super) const NVSWITCH: &str = "0x068000";
const GPU: &str = "0x030200";
/// Part of its payload rate below which a link is written as a slower one. Chosen: healthy links reach 76% and more
/// (docs/dev/facts.md), and the next slower shape has half.
const SLOWER_BELOW: f64 = 0.6;

/// Writes the topology of a machine. `causes` are those of [`crate::causes`].
///
/// # Errors
///
/// A sentence: the report has no GPU whose place is known.
pub fn export(report: &Report, causes: &[Cause]) -> Result<String, String> {
    let snapshot = &report.snapshot;
    let mut cpus: BTreeMap<Option<u32>, Vec<Element>> = BTreeMap::new();
    for gpu in &snapshot.gpus {
        let Some(address) = gpu.pci.get() else {
            continue;
        };
        let own = pci(report, causes, address, Some(gpu), GPU).with_below(gpu_element(report, gpu));
        place(report, causes, &mut cpus, address, own);
    }
    if cpus.is_empty() {
        return Err(
            "the report has no GPU whose PCI address is known, so there is nothing to write".into(),
        );
    }
    let mut adapters: BTreeMap<PciAddress, Vec<&Adapter>> = BTreeMap::new();
    for adapter in snapshot.adapters.iter().filter(|one| one.kind == AdapterKind::Rdma) {
        adapters.entry(adapter.pci).or_default().push(adapter);
    }
    for (address, adapters) in adapters {
        let mut nic = Element::new("nic");
        nic.below = adapters.iter().map(|adapter| net(adapter)).collect();
        let own = pci(report, causes, address, None, "0x020000").with_below(nic);
        place(report, causes, &mut cpus, address, own);
    }
    let system = Element {
        below: cpus.into_iter().map(|(node, below)| cpu(snapshot, node, below)).collect(),
        ..Element::new("system").with("version", Some(VERSION))
    };
    let mut text = String::new();
    system.write(0, &mut text);
    Ok(text)
}

impl Element {
    fn with_below(mut self, element: Element) -> Self {
        self.below.push(element);
        self
    }
}

fn cpu(snapshot: &Snapshot, node: Option<u32>, below: Vec<Element>) -> Element {
    let known = snapshot.host_nodes().find(|known| Some(known.node) == node);
    let affinity = known.map(|known| mask(&known.processors())).filter(|mask| !mask.is_empty());
    let node = node.map_or("-1".to_owned(), |node| node.to_string());
    Element { below, ..Element::new("cpu").with("numaid", Some(node)).with("affinity", affinity) }
}

/// Writes processors as the kernel's masks: words of 32 bits, the highest first.
fn mask(processors: &[usize]) -> String {
    let Some(most) = processors.iter().max() else {
        return String::new();
    };
    let mut words = vec![0_u32; most / 32 + 1];
    for processor in processors {
        if let Some(word) = words.get_mut(processor / 32) {
            *word |= 1 << (processor % 32);
        }
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

/// Puts a device below its switches and its processor. NCCL leaves out root ports and downstream ports.
fn place(
    report: &Report,
    causes: &[Cause],
    cpus: &mut BTreeMap<Option<u32>, Vec<Element>>,
    address: PciAddress,
    device: Element,
) {
    let snapshot = &report.snapshot;
    let way = chain(snapshot, address);
    let bridge = way.last().map(|top| NodeId::host_bridge(&top.host_bridge));
    let above = bridge.and_then(|bridge| report.topology.way_up(bridge).last().copied());
    let node = match above {
        Some(NodeId::Numa(node)) => node,
        _ => None,
    };
    let mut level = cpus.entry(node).or_default();
    let switches = way.iter().rev().filter(|function| function.kind == PciKind::SwitchUpstream);
    for switch in switches {
        let busid = switch.address.to_string();
        let known = level.iter().position(|one| one.get("busid") == Some(&busid));
        let at = known.unwrap_or_else(|| {
            level.push(pci(report, causes, switch.address, None, "0x060400"));
            level.len() - 1
        });
        level = &mut level[at].below;
    }
    let before = |one: &Element| one.get("busid") < device.get("busid");
    let at = level.iter().take_while(|one| before(one)).count();
    level.insert(at, device);
}

/// Returns the element of a function, with what its link to the processor carries.
fn pci(
    report: &Report,
    causes: &[Cause],
    address: PciAddress,
    gpu: Option<&Gpu>,
    class: &str,
) -> Element {
    let function = report.snapshot.function(address);
    let lower = gpu.map_or(NodeId::Pci(address), |gpu| NodeId::Gpu(gpu.index));
    let link = report.topology.link_above(lower).and_then(|link| link.pcie.as_ref());
    let shape = link.and_then(|link| carried(causes, lower, link.now));
    let hex = |value: u32, places: usize| format!("0x{value:0places$x}");
    let class = function
        .and_then(|function| function.class.get())
        .map_or(class.to_owned(), |class| hex(class, 6));
    let vendor = function.and_then(|function| function.vendor.get());
    let device = function.and_then(|function| function.device_id.get());
    Element::new("pci")
        .with("busid", Some(address))
        .with("class", Some(class))
        .with("vendor", vendor.map(|vendor| hex(vendor.into(), 4)))
        .with("device", device.map(|device| hex(device.into(), 4)))
        .with("link_speed", shape.map(|shape| speed(shape.generation)))
        .with("link_width", shape.map(|shape| shape.width.number()))
}

/// Returns the shape of a link as trained, or a slower one that carries no less than it was measured to.
fn carried(causes: &[Cause], lower: NodeId, now: Shape) -> Option<PcieLink> {
    let trained = now.link()?;
    let payload = rate(now)?;
    let limits = causes.iter().filter_map(|cause| match cause.effect {
        Effect::Capacity(gbps) if cause.parts == [Part::Link(lower)] && !cause.by_design => {
            Some(gbps)
        }
        _ => None,
    });
    let Some(gbps) = limits.reduce(f64::min).filter(|gbps| *gbps < SLOWER_BELOW * payload) else {
        return Some(trained);
    };
    let slower = Lanes::ALL.into_iter().filter(|lanes| *lanes <= trained.width);
    let slower = slower.map(|width| PcieLink { width, ..trained });
    let carries = |link: &PcieLink| {
        let shape = Shape { generation: Some(link.generation), width: Some(link.width) };
        rate(shape).is_some_and(|rate| rate >= gbps)
    };
    slower.into_iter().find(carries).or(Some(trained))
}

/// Returns the speed of a generation as the kernel writes it since 5.7.
pub(super) fn speed(generation: Generation) -> &'static str {
    match generation.number() {
        1 => "2.5 GT/s PCIe",
        2 => "5.0 GT/s PCIe",
        3 => "8.0 GT/s PCIe",
        4 => "16.0 GT/s PCIe",
        5 => "32.0 GT/s PCIe",
        _ => "64.0 GT/s PCIe",
    }
}

/// Returns the active NVLinks of a GPU by what they lead to, as NCCL names it: a PCI address, or a hidden switch.
pub(super) fn nvlinks(report: &Report, gpu: &Gpu) -> BTreeMap<String, u32> {
    let mut counted = BTreeMap::new();
    let links = gpu.nvlinks.known().into_iter().flatten();
    for link in links.filter(|link| link.active.get() == Some(true)) {
        let target = match (link.remote_pci.get(), link.remote.get()) {
            (Some(address), _) => address.to_string(),
            // Links that reach others over switches may hide what they lead to.
            (None, Some(NvLinkRemote::Gpu | NvLinkRemote::Npu)) => continue,
            (None, _) => HIDDEN.to_owned(),
        };
        *counted.entry(target).or_default() += 1;
    }
    let reaches = |pair: &&model::topology::PairRoute| {
        pair.pair.source == gpu.index && matches!(pair.class, LinkClass::NvLink(_))
    };
    if report.topology.pairs.iter().any(|pair| reaches(&pair)) { counted } else { BTreeMap::new() }
}

fn gpu_element(report: &Report, gpu: &Gpu) -> Element {
    let is_gpu = |target: &str| {
        let address = target.parse::<PciAddress>().ok();
        address.is_some() && report.snapshot.gpus.iter().any(|gpu| gpu.pci.get() == address)
    };
    let nvlinks = nvlinks(report, gpu).into_iter().map(|(target, count)| {
        let class = if is_gpu(&target) { GPU } else { NVSWITCH };
        Element::new("nvlink")
            .with("target", Some(target))
            .with("count", Some(count))
            .with("tclass", Some(class))
    });
    Element { below: nvlinks.collect(), ..Element::new("gpu").with("dev", Some(gpu.index)) }
}

/// Returns the element of an RDMA adapter. Its number is left to NCCL's network plugin.
fn net(adapter: &Adapter) -> Element {
    let port = adapter.ports.first();
    let mbps = port.and_then(|port| port.rate_mbit.get());
    Element::new("net")
        .with("name", Some(&adapter.name))
        .with("port", port.map(|port| port.port))
        .with("speed", mbps)
}
