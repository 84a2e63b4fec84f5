//! The page of `topo`: the connections of GPUs, and the theoretical rates. Nothing is measured.

use super::figures::ranges;
use super::highlight::Highlights;
use super::matrix::{Cell, Table, pair_matrix};
use super::page::{Page, Paint};
use super::paths;
use model::node::NodeId;
use model::placement::Pair;
use model::reading::{Reading, Unknown};
use model::report::Report;
use model::rounding::rate;
use model::snapshot::{Gpu, NvLink, NvLinkRemote, Snapshot};
use model::topology::{LinkClass, LinkKind};
use model::units::{GbPerSecond, PciAddress};

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

/// A row or column of the matrix: a GPU, or a network adapter with its names.
struct Device {
    label: Cell,
    node: NodeId,
    numa: Option<u32>,
}

/// Writes GPUs and network adapters, with the NUMA node of each.
fn full_matrix(page: &mut Page, report: &Report, gpus: &[u32]) {
    let snapshot = &report.snapshot;
    let highlights = Highlights::of(&report.findings);
    let gpu_device = |&index: &u32| Device {
        label: highlights.label(index),
        node: NodeId::Gpu(index),
        numa: snapshot.gpu(index).and_then(|gpu| gpu.numa_node.get()),
    };
    let numa_of = |node| match report.topology.way_up(node).last() {
        Some(NodeId::Numa(numa)) => *numa,
        _ => None,
    };
    let adapters = adapters(snapshot);
    let mut devices: Vec<_> = gpus.iter().map(gpu_device).collect();
    devices.extend(adapters.iter().enumerate().map(|(number, (pci, _))| Device {
        label: Cell::from(format!("NIC{number}")),
        node: NodeId::Pci(*pci),
        numa: numa_of(NodeId::Pci(*pci)),
    }));

    let mut classes: Vec<LinkClass> = Vec::new();
    if devices.iter().any(|device| device.numa.is_none()) {
        classes.push(LinkClass::Unknown);
    }
    let mut table = Table::of_words(devices.len() + 2);
    let captions = devices.iter().map(|device| device.label.clone());
    table.head_row(
        std::iter::once(Cell::default()).chain(captions).chain([Cell::new("NUMA", Paint::Faint)]),
    );
    for (row, from) in devices.iter().enumerate() {
        let mut cells = vec![from.label.clone()];
        for (column, to) in devices.iter().enumerate() {
            if row == column {
                cells.push(Cell::new("X", Paint::Faint));
                continue;
            }
            let class = class_between(report, from, to);
            classes.push(class);
            cells.push(class.to_string().into());
        }
        cells.push(Cell::from(from.numa.map_or_else(|| "?".to_owned(), |node| node.to_string())));
        table.row(cells);
    }
    page.table(table);
    page.blank();
    for (number, (pci, names)) in adapters.iter().enumerate() {
        page.item(
            2,
            10,
            &format!("NIC{number}"),
            Paint::Faint,
            &format!("{} at {pci}", names.join(", ")),
        );
    }
    for node in &snapshot.numa_nodes {
        let text = format!("processors {}, {}", node.cpus, node.memory_bytes);
        page.item(2, 10, &format!("NUMA {}", node.node), Paint::Faint, &text);
    }
    legend(page, &classes);
}

fn class_between(report: &Report, from: &Device, to: &Device) -> LinkClass {
    match (from.node, to.node) {
        (NodeId::Gpu(source), NodeId::Gpu(destination)) => report
            .topology
            .route(Pair { source, destination })
            .map_or(LinkClass::Unknown, |route| route.class),
        (from, to) => topology::class(&report.topology, from, to),
    }
}

/// Returns network adapters by PCI address: a card is one column even if the kernel gives it several names.
fn adapters(snapshot: &Snapshot) -> Vec<(PciAddress, Vec<&str>)> {
    let mut adapters: Vec<(PciAddress, Vec<&str>)> = Vec::new();
    for adapter in &snapshot.adapters {
        match adapters.iter_mut().find(|(pci, _)| *pci == adapter.pci) {
            Some((_, names)) => names.push(&adapter.name),
            None => adapters.push((adapter.pci, vec![&adapter.name])),
        }
    }
    adapters.sort_by_key(|(pci, _)| *pci);
    adapters
}

/// Writes the meaning of the classes that occur.
pub(super) fn legend(page: &mut Page, classes: &[LinkClass]) {
    let nvlink = |class: &LinkClass| matches!(class, LinkClass::NvLink(_));
    let meanings: [(&str, bool, &str); 7] = [
        ("NV#", classes.iter().any(nvlink), "that many NVLinks, bonded"),
        ("PIX", classes.contains(&LinkClass::Pix), "at most one PCIe bridge"),
        ("PXB", classes.contains(&LinkClass::Pxb), "several PCIe bridges, no host bridge"),
        ("PHB", classes.contains(&LinkClass::Phb), "a PCIe host bridge"),
        ("NODE", classes.contains(&LinkClass::Node), "several host bridges of one NUMA node"),
        ("SYS", classes.contains(&LinkClass::Sys), "the link between NUMA nodes"),
        ("?", classes.contains(&LinkClass::Unknown), "not known"),
    ];
    let used = meanings
        .iter()
        .filter(|(_, used, _)| *used)
        .map(|(word, _, meaning)| format!("{word} = {meaning}"));
    let text = used.collect::<Vec<_>>().join("; ");
    if !text.is_empty() {
        page.note(Paint::Faint, &text);
    }
}

/// Writes theoretical rates: one sentence if all pairs have the same, otherwise a matrix.
pub(super) fn theoretical(page: &mut Page, report: &Report, gpus: &[u32]) {
    let routes =
        || report.topology.pairs.iter().filter(|route| route.pair.source != route.pair.destination);
    let text = |capacity: Option<GbPerSecond>| capacity.map(|capacity| rate(capacity.0));
    let Some(first) = routes().next() else { return };
    page.blank();
    if routes().all(|route| text(route.theoretical_gbps) == text(first.theoretical_gbps)) {
        let sentence = match text(first.theoretical_gbps) {
            Some(rate)
                if routes().all(|route| route.theoretical_source == first.theoretical_source) =>
            {
                format!(
                    "Theoretical: {rate} GB/s from any GPU to any other ({}).",
                    first.theoretical_source
                )
            }
            Some(rate) => format!("Theoretical: {rate} GB/s from any GPU to any other."),
            None => "Theoretical: not known for any pair.".to_owned(),
        };
        return page.note(Paint::Plain, &sentence);
    }
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
    let has_no_address = || {
        let mut gpus = report.snapshot.gpus.iter();
        gpus.all(|gpu| gpu.pci.known().is_none())
    };
    // One line says what the output of other tools lacks.
    if report.read_from.is_some() && has_no_address() {
        return;
    }
    page.heading("PCIe paths, root first");
    let hang = hang(report);
    for gpu in &report.snapshot.gpus {
        let path = paths::path_text(report, gpu, true);
        let paint = if path.narrow { Paint::Warning } else { Paint::Plain };
        page.item(2, hang, &gpu.label(), paint, &path.text);
    }
}

/// Returns the column at which the text after `GPU n` starts.
fn hang(report: &Report) -> usize {
    report.snapshot.gpus.iter().map(|gpu| gpu.label().len() + 4).max().unwrap_or(8)
}

/// Writes the NVLinks of each GPU, one line for all GPUs with the same text.
fn nvlinks(page: &mut Page, report: &Report) {
    let mut groups: Vec<(Vec<u32>, String)> = Vec::new();
    for gpu in &report.snapshot.gpus {
        let text = match &gpu.nvlinks {
            Reading::Known(links) if links.is_empty() => continue,
            Reading::Known(links) => nvlink_text(report, gpu, links),
            Reading::Unknown(Unknown::Unsupported) => continue,
            Reading::Unknown(_) if report.read_from.is_some() => continue,
            Reading::Unknown(why) => format!("unknown ({why})"),
        };
        match groups.iter_mut().find(|(_, known)| *known == text) {
            Some((indices, _)) => indices.push(gpu.index),
            None => groups.push((vec![gpu.index], text)),
        }
    }
    if groups.is_empty() {
        return;
    }
    page.heading("NVLink");
    let labels: Vec<_> =
        groups.iter().map(|(indices, _)| format!("GPU {}", ranges(indices))).collect();
    let hang = labels.iter().map(String::len).max().unwrap_or(0).min(20) + 4;
    for (label, (_, text)) in labels.iter().zip(&groups) {
        page.item(2, hang, label, Paint::Plain, text);
    }
}

/// Returns `18 of 18 links active, NVLink 4.0, to NVSwitch; payload 450 GB/s per direction`.
fn nvlink_text(report: &Report, gpu: &Gpu, links: &[NvLink]) -> String {
    let active: Vec<_> = links.iter().filter(|link| link.active.get() == Some(true)).collect();
    let unknown = links.iter().filter(|link| link.active.get().is_none()).count();
    let mut text = match links.len() {
        all if all == unknown => format!("{all} links, state not known"),
        all => format!("{} of {all} links active", active.len()),
    };
    let down: Vec<_> = links
        .iter()
        .filter(|link| link.active.get() == Some(false))
        .map(|link| u32::from(link.link))
        .collect();
    if !down.is_empty() && !active.is_empty() {
        text += &format!(" (down: {})", ranges(&down));
    }
    if unknown > 0 && unknown < links.len() {
        text += &format!(" ({unknown} not known)");
    }
    if let Some(version) = links.iter().find_map(|link| link.version.known()) {
        text += &format!(", NVLink {version}");
    }
    let mut remotes: Vec<&str> = active
        .iter()
        .filter_map(|link| link.remote.get())
        .map(|remote| remote_word(remote))
        .collect();
    remotes.sort_unstable();
    remotes.dedup();
    if !remotes.is_empty() {
        text += &format!(", to {}", remotes.join(" and "));
    }
    let id = NodeId::Gpu(gpu.index);
    let own = report.topology.links.iter().filter(|link| link.kind == LinkKind::NvLink);
    let own: Vec<_> = own.filter(|link| link.upper == id || link.lower == id).collect();
    let payload: Option<f64> = own.iter().map(|link| Some(link.capacity_gbps?.0)).sum();
    if let Some(payload) = payload.filter(|_| !own.is_empty()) {
        text += &format!("; payload {} GB/s per direction", rate(payload));
    }
    text
}

const fn remote_word(remote: NvLinkRemote) -> &'static str {
    match remote {
        NvLinkRemote::Gpu => "GPUs",
        NvLinkRemote::Switch => "NVSwitch",
        NvLinkRemote::Npu => "the processor",
    }
}
