//! PCIe links that no copy passes: those of GPUs that share the host's memory, or reach it over a link of their own. What
//! they read says nothing about copies: "Gen1 x1" on a GPU within a processor.

use super::host::beside_pcie;
use model::measurement::DriverFacts;
use model::snapshot::Snapshot;
use model::topology::Topology;

/// Marks the links that no copy passes, with the facts of NVML.
pub(crate) fn by_facts(snapshot: &Snapshot, topology: &mut Topology) {
    mark(topology, |gpu| snapshot.gpu(gpu).is_some_and(beside_pcie));
}

/// Marks those too that CUDA knows of.
pub(crate) fn by_driver(driver: &DriverFacts, topology: &mut Topology) {
    mark(topology, |gpu| driver.is_integrated(gpu));
}

fn mark(topology: &mut Topology, is_beside: impl Fn(u32) -> bool) {
    for link in &mut topology.links {
        let Some(pcie) = &mut link.pcie else { continue };
        if !pcie.gpus.is_empty() && pcie.gpus.iter().all(|gpu| is_beside(*gpu)) {
            pcie.placeholder = true;
            pcie.narrow.clear();
            (link.capacity_gbps, link.possible_gbps) = (None, None);
        }
    }
}
