//! The page of `topo`: the connections of GPUs, and the theoretical rates. Nothing is measured.

use std::collections::BTreeSet;

use super::figures::{by_key, ranges};
use super::highlight::Highlights;
use super::matrix::{Cell, Table, pair_matrix};
use super::page::{Page, Paint};
use super::paths;
use model::node::NodeId;
use model::placement::Pair;
use model::reading::{Reading, Unknown};
use model::report::Report;
use model::rounding::rate;
use model::snapshot::{Adapter, AdapterKind, AdapterPort, Gpu, NvLink, NvLinkRemote};
use model::topology::{AdapterPath, LinkClass};
use model::units::GbPerSecond;

/// Writes the graph and its parts.
pub(super) fn write(page: &mut Page, report: &Report) {
    let gpus: Vec<_> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    if !gpus.is_empty() {
        // The output of other tools may have GPUs and nothing that connects them.
        let is_known = |pair: &Pair| {
            let route = report.topology.route(*pair);
            route.is_some_and(|route| route.class != LinkClass::Unknown)
        };
        if report.read_from.is_none() || Pair::ordered(&gpus).iter().any(is_known) {
            page.heading("Topology, as nvidia-smi topo -m has it");
            full_matrix(page, report, &gpus);
            theoretical(page, report, &gpus);
        }
        pcie_paths(page, report);
        nvlinks(page, report);
    }
}

/// A row or column of the matrix: a GPU, or a network card with the kernel's adapters.
struct Device<'a> {
    label: Cell,
    node: NodeId,
    numa: Option<u32>,
    adapters: Vec<&'a Adapter>,
}

/// Writes GPUs and network adapters, with the NUMA node of each.
fn full_matrix(page: &mut Page, report: &Report, gpus: &[u32]) {
    let snapshot = &report.snapshot;
    let highlights = Highlights::of(&report.findings);
    let gpus = gpus.iter().map(|&index| Device {
        label: highlights.label(index),
        node: NodeId::Gpu(index),
        numa: snapshot.gpu(index).and_then(|gpu| gpu.numa_node.get()),
        adapters: Vec::new(),
    });
    // A card is one column even if the kernel gives it several names.
    let adapters = snapshot.adapters.iter();
    let mut adapters = by_key(adapters.map(|adapter| (adapter.pci, adapter)));
    adapters.sort_by_key(|(pci, _)| *pci);
    let adapters = adapters.into_iter().enumerate().map(|(number, (pci, adapters))| {
        let node = NodeId::Pci(pci);
        let numa = match report.topology.way_up(node).last() {
            Some(NodeId::Numa(numa)) => *numa,
            _ => None,
        };
        Device { label: format!("NIC{number}").into(), node, numa, adapters }
    });
    let devices: Vec<_> = gpus.chain(adapters).collect();
    let mut classes: BTreeSet<LinkClass> = BTreeSet::new();
    let mut table = Table::of_words(devices.len() + 2);
    let captions = devices.iter().map(|device| device.label.clone());
    let numa = Cell::new("NUMA", Paint::Faint);
    table.head_row([Cell::default()].into_iter().chain(captions).chain([numa]));
    for from in &devices {
        let mut cells = vec![from.label.clone()];
        for to in &devices {
            if from.node == to.node {
                cells.push(Cell::new("X", Paint::Faint));
                continue;
            }
            let class = class_between(report, from.node, to.node);
            classes.insert(class);
            cells.push(class.to_string().into());
        }
        if from.numa.is_none() {
            classes.insert(LinkClass::Unknown);
        }
        cells.push(Cell::from(from.numa.map_or_else(|| "?".to_owned(), |node| node.to_string())));
        table.row(cells);
    }
    page.table(table);
    page.blank();
    for Device { label, node, adapters, .. } in &devices {
        if !adapters.is_empty() {
            let names: Vec<&str> = adapters.iter().map(|adapter| adapter.name.as_str()).collect();
            let mut text = format!("{} at {node}", names.join(", "));
            text.extend(adapters.iter().map(|adapter| adapter_text(report, adapter)));
            page.item(2, 10, &label.text, Paint::Faint, &text);
        }
    }
    if let Some(near) = near_adapters(report) {
        page.item(2, 10, "near", Paint::Faint, &near);
    }
    for node in &snapshot.numa_nodes {
        let text = format!("processors {}, {}", node.cpus, node.memory_bytes);
        page.item(2, 10, &format!("NUMA {}", node.node), Paint::Faint, &text);
    }
    legend(page, &classes);
}

/// Returns what is known of an adapter: each port, its firmware, and its PCIe link if that is narrow.
fn adapter_text(report: &Report, adapter: &Adapter) -> String {
    let ports = adapter.ports.known().into_iter().flatten();
    let several = ports.clone().count() > 1;
    let port = |port: &AdapterPort| {
        let number = if several { format!("port {} ", port.port) } else { String::new() };
        let mut text = format!("; {number}{}", port.state.known().map_or("?", String::as_str));
        // The rate of a port that is down says nothing.
        text += &match (port.is_up(), &port.physical_state, port.rate_mbit.get()) {
            (Some(true), _, Some(rate)) => format!(", {} Gb/s", f64::from(rate) / 1000.0),
            (Some(false), Reading::Known(signal), _) => format!(" ({signal}),"),
            _ => ",".to_owned(),
        };
        if let Some(layer) = port.link_layer.known() {
            text += &format!(" {layer}");
        }
        let errors = port.errors().into_iter();
        text + &errors.map(|(number, thing)| format!(", {number} x {thing}")).collect::<String>()
    };
    let mut text: String = ports.map(port).collect();
    if let Some(firmware) = adapter.firmware.known() {
        text += &format!("; firmware {firmware}");
    }
    let links = report.topology.links.iter();
    let mut own = links.filter(|link| link.lower == NodeId::Pci(adapter.pci));
    if let Some(pcie) = own.find_map(|link| link.pcie.as_ref())
        && !pcie.narrow.is_empty()
    {
        text += &format!("; PCIe {} of {}", pcie.now, pcie.possible);
    }
    text
}

/// Returns the nearest RDMA adapters of the GPUs; `None` if there is none whose distance is known.
fn near_adapters(report: &Report) -> Option<String> {
    let is_rdma = |path: &&AdapterPath| {
        let mut adapters = report.snapshot.adapters.iter();
        adapters.any(|one| one.pci == path.pci && one.kind == AdapterKind::Rdma)
    };
    let paths = report.topology.adapter_paths.iter().filter(is_rdma);
    let nearest = |gpu: &Gpu| {
        let to = |path: &AdapterPath| {
            let found = path.gpus.iter().find(|to| to.gpu == gpu.index);
            found.map(|to| to.class)
        };
        let class: LinkClass = paths.clone().filter_map(to).min()?;
        let text = match class {
            LinkClass::Unknown => return None,
            class if class.is_below_a_switch() => {
                let at = paths.clone().filter(|path| to(path) == Some(class));
                let names = at.map(|path| match is_down(report, path) {
                    true => format!("{} down", path.adapter),
                    false => path.adapter.clone(),
                });
                let names: Vec<String> = names.collect();
                format!("{} ({class})", names.join(", "))
            }
            far => format!("none nearer than {far}"),
        };
        Some((text, gpu.index))
    };
    let groups = by_key(report.snapshot.gpus.iter().filter_map(nearest));
    let groups = groups.iter().map(|(text, gpus)| format!("GPU {} {text}", ranges(gpus)));
    Some(groups.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
}

/// Returns true if no port of an adapter is up.
fn is_down(report: &Report, path: &AdapterPath) -> bool {
    let adapter = report.snapshot.adapters.iter().find(|adapter| adapter.pci == path.pci);
    let ports = adapter.and_then(|adapter| adapter.ports.known());
    ports.is_some_and(|ports| ports.iter().all(|port| port.is_up() == Some(false)))
}

fn class_between(report: &Report, from: NodeId, to: NodeId) -> LinkClass {
    match (from, to) {
        (NodeId::Gpu(source), NodeId::Gpu(destination)) => report
            .topology
            .route(Pair { source, destination })
            .map_or(LinkClass::Unknown, |route| route.class),
        _ => topology::class(&report.topology, from, to),
    }
}

/// Writes the meaning of the classes that occur.
fn legend(page: &mut Page, classes: &BTreeSet<LinkClass>) {
    let mut meanings = classes
        .iter()
        .map(|class| match class {
            LinkClass::NvLink(_) => "NV# = that many NVLinks, bonded",
            LinkClass::Pix => "PIX = at most one PCIe bridge",
            LinkClass::Pxb => "PXB = several PCIe bridges, no host bridge",
            LinkClass::Phb => "PHB = a PCIe host bridge",
            LinkClass::Node => "NODE = several host bridges of one NUMA node",
            LinkClass::Sys => "SYS = the link between NUMA nodes",
            LinkClass::Unknown => "? = not known",
        })
        .collect::<Vec<_>>();
    meanings.dedup();
    if !meanings.is_empty() {
        page.note(Paint::Faint, &meanings.join("; "));
    }
}

/// Writes theoretical rates: one sentence if all pairs have the same, otherwise a matrix.
pub(super) fn theoretical(page: &mut Page, report: &Report, gpus: &[u32]) {
    let routes =
        || report.topology.pairs.iter().filter(|route| route.pair.source != route.pair.destination);
    let text = |capacity: Option<GbPerSecond>| capacity.map(|capacity| rate(capacity.0));
    let Some(first) = routes().next() else { return };
    let known = text(first.theoretical_gbps);
    if routes().all(|route| text(route.theoretical_gbps) == known) {
        let from = &first.theoretical_source;
        let is_of_all = routes().all(|route| route.theoretical_source == *from);
        let from = if is_of_all { format!(" ({from})") } else { String::new() };
        let sentence = match known {
            Some(rate) => format!("Theoretical: {rate} GB/s from any GPU to any other{from}."),
            None => "Theoretical: not known for any pair.".to_owned(),
        };
        return page.note(Paint::Plain, &sentence);
    }
    page.blank();
    page.heading("Theoretical, source (row) → destination (column), GB/s");
    let highlights = Highlights::of(&report.findings);
    let fastest = routes().filter_map(|route| Some(route.theoretical_gbps?.0)).fold(0.0, f64::max);
    let cell = |pair| {
        let capacity = report.topology.route(pair).and_then(|route| route.theoretical_gbps);
        let share = capacity.map(|capacity| 100.0 * capacity.0 / fastest);
        text(capacity).map_or_else(|| Cell::new("?", Paint::Faint), Cell::from).with_share(share)
    };
    page.table(pair_matrix(gpus, |gpu| highlights.label(gpu), cell));
    let mut slowest: Vec<&str> = routes().filter_map(|route| route.bottleneck.as_deref()).collect();
    slowest.sort_unstable();
    slowest.dedup();
    // One line per bottleneck helps if there are few, but not if every pair has its own.
    if page.verbose() || slowest.len() <= 4 {
        page.blank();
        for bottleneck in slowest {
            page.item(2, 14, "limited by", Paint::Faint, bottleneck);
        }
    }
}

/// Writes every GPU's PCIe path from the root, with the narrow hop marked.
fn pcie_paths(page: &mut Page, report: &Report) {
    let gpus = &report.snapshot.gpus;
    // One line says what the output of other tools lacks.
    if report.read_from.is_some() && gpus.iter().all(|gpu| gpu.pci.known().is_none()) {
        return;
    }
    let no_path = gpus.iter().all(|gpu| report.topology.gpu_path(gpu.index).is_empty());
    page.heading(if no_path { "PCI addresses" } else { "PCIe paths, root first" });
    let hang = gpus.iter().map(|gpu| gpu.label().len() + 4).max().unwrap_or(8);
    for gpu in gpus {
        let path = paths::path_text(report, gpu);
        let paint = if path.narrow { Paint::Warning } else { Paint::Plain };
        page.item(2, hang, &gpu.label(), paint, &path.text);
    }
}

/// Writes the NVLinks of each GPU, one line for all GPUs with the same text.
fn nvlinks(page: &mut Page, report: &Report) {
    let of_gpu = |gpu: &Gpu| match &gpu.nvlinks {
        Reading::Known(links) if links.is_empty() => None,
        Reading::Known(links) => Some(nvlink_text(report, gpu, links)),
        Reading::Unknown(Unknown::Unsupported) => None,
        Reading::Unknown(_) if report.read_from.is_some() => None,
        Reading::Unknown(why) => Some(format!("unknown ({why})")),
    };
    let gpus = report.snapshot.gpus.iter();
    let groups = by_key(gpus.filter_map(|gpu| Some((of_gpu(gpu)?, gpu.index))));
    if groups.is_empty() {
        return;
    }
    page.heading("NVLink");
    let label = |indices: &[u32]| format!("GPU {}", ranges(indices));
    let widest = groups.iter().map(|(_, indices)| label(indices).len()).max().unwrap_or(0);
    for (text, indices) in &groups {
        page.item(2, widest.min(20) + 4, &label(indices), Paint::Plain, text);
    }
}

/// Returns `18 of 18 links active, NVLink 4.0, to NVSwitch; payload 450 GB/s per direction`.
fn nvlink_text(report: &Report, gpu: &Gpu, links: &[NvLink]) -> String {
    let with = |state| links.iter().filter(move |link| link.active.get() == state);
    let (all, active, unknown) = (links.len(), with(Some(true)).count(), with(None).count());
    let mut text = match unknown {
        unknown if unknown == all => format!("{all} links, state not known"),
        _ => format!("{active} of {all} links active"),
    };
    let down: Vec<_> = with(Some(false)).map(|link| u32::from(link.link)).collect();
    if !down.is_empty() && active > 0 {
        text += &format!(" (down: {})", ranges(&down));
    }
    if (1..all).contains(&unknown) {
        text += &format!(" ({unknown} not known)");
    }
    if let Some(version) = links.iter().find_map(|link| link.version.known()) {
        text += &format!(", NVLink {version}");
    }
    let remotes = with(Some(true)).filter_map(|link| link.remote.get());
    let remotes: BTreeSet<&str> = remotes
        .map(|remote| match remote {
            NvLinkRemote::Gpu => "GPUs",
            NvLinkRemote::Switch => "NVSwitch",
            NvLinkRemote::Npu => "the processor",
        })
        .collect();
    if !remotes.is_empty() {
        text += &format!(", to {}", remotes.into_iter().collect::<Vec<_>>().join(" and "));
    }
    if let Some(payload) = report.topology.nvlink_gbps(gpu.index) {
        text += &format!("; payload {} GB/s per direction", rate(payload.0));
    }
    text
}
