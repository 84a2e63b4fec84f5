//! Where GPUs are: processors and network adapters near them, and the links that some of them share.

use std::collections::BTreeSet;

use model::report::Report;
use model::topology::LinkClass;
use serde::Serialize;

use super::outlook::Outlook;

/// A GPU with what a process that uses it should be bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// NVML's index.
    pub gpu: u32,
    /// Null if not known, as all facts here.
    pub uuid: Option<String>,
    pub pci: Option<String>,
    pub numa_node: Option<u32>,
    /// Processors of that node, as the kernel writes them: `0-31`.
    pub cpus: Option<String>,
    /// The nearest network adapters. Empty if there are none.
    pub adapters: Vec<String>,
    /// Distance of these, in nvidia-smi's words.
    pub adapter_distance: Option<LinkClass>,
}

/// Returns the binding of a GPU.
pub(crate) fn binding(outlook: &Outlook<'_>, gpu: u32) -> Binding {
    let report = outlook.report();
    let known = report.snapshot.gpu(gpu);
    let node = outlook.node(gpu);
    let cpus = report.snapshot.host_nodes().find(|one| Some(one.node) == node);
    let distances = report.topology.adapter_paths.iter().filter_map(|path| {
        let distance = path.gpus.iter().find(|distance| distance.gpu == gpu)?;
        Some((distance.class, path.adapter.clone()))
    });
    let distances: Vec<(LinkClass, String)> = distances.collect();
    let nearest = distances.iter().map(|(class, _)| *class).min();
    let nearest = nearest.filter(|class| *class != LinkClass::Unknown);
    let adapters = distances.into_iter().filter(|(class, _)| Some(*class) == nearest);
    Binding {
        gpu,
        uuid: known.and_then(|gpu| gpu.uuid.known().cloned()),
        pci: report.snapshot.address_of(gpu).map(|address| address.to_string()),
        numa_node: node,
        cpus: cpus.map(|node| node.cpus.clone()).filter(|cpus| !cpus.is_empty()),
        adapters: adapters.map(|(_, name)| name).collect(),
        adapter_distance: nearest,
    }
}

/// Returns the NUMA nodes of these GPUs.
pub(crate) fn nodes(outlook: &Outlook<'_>, gpus: &[u32]) -> BTreeSet<Option<u32>> {
    gpus.iter().map(|gpu| outlook.node(*gpu)).collect()
}

/// Returns how often these GPUs meet on PCIe links above their own: for each such link, those beyond the first.
pub(crate) fn shared_uplinks(report: &Report, gpus: &[u32]) -> usize {
    let on = |of: &[u32]| gpus.iter().filter(|gpu| of.contains(gpu)).count();
    let links = report.topology.pcie_links();
    links.map(|link| on(&link.gpus).saturating_sub(1)).sum()
}
