//! Which figures say nothing about the machine, since another program used the same GPUs or links.

use std::collections::BTreeSet;

use crate::model::background;
use crate::model::measurement::{Cell, Measurements};
use crate::model::node::NodeId;
use crate::model::placement::{Pair, Path};
use crate::model::snapshot::Snapshot;
use crate::model::topology::{LinkClass, Topology};

/// A PCIe link by its two ends, the lower one first.
type Ends = (NodeId, NodeId);

/// Marks the figures of GPUs that others used, and of copies over PCIe links that their traffic passes.
/// When a program came is not known, so its traffic at the end marks all of them too.
pub(super) fn mark(measurements: &mut Measurements, snapshot: &Snapshot, topology: &Topology) {
    let others: Vec<_> = background::of_others(&measurements.background, snapshot).collect();
    let gpus: BTreeSet<u32> = others.iter().map(|seen| seen.gpu).collect();
    let moved_over_pcie = others.iter().filter(|seen| seen.uses_pcie());
    let links: BTreeSet<Ends> = moved_over_pcie.flat_map(|seen| links_above(topology, seen.gpu)).collect();
    let is_disturbed = |cell: &Cell<'_>| {
        // Wrong bytes and copies that failed are no figures, and no traffic explains them.
        let has_figure = cell.tested() && !cell.verified.is_wrong();
        let in_the_way = |pair: Pair| {
            gpus.contains(&pair.source)
                || gpus.contains(&pair.destination)
                || links_of(topology, pair, cell.setup.path).iter().any(|link| links.contains(link))
        };
        let within = cell.flow.within().is_some_and(|gpu| gpus.contains(&gpu));
        has_figure && !gpus.is_empty() && (within || cell.flow.pair().is_some_and(in_the_way))
    };
    measurements.peer.iter_mut().for_each(|cell| cell.disturbed = is_disturbed(&cell.cell()));
    measurements.overlap.iter_mut().for_each(|cell| cell.disturbed = is_disturbed(&cell.cell()));
    measurements.latency.iter_mut().for_each(|cell| cell.disturbed = is_disturbed(&cell.cell()));
    measurements.local.iter_mut().for_each(|cell| cell.disturbed = is_disturbed(&cell.cell()));
}

/// The PCIe links between a GPU and its root: what it exchanges with the host passes all of them.
fn links_above(topology: &Topology, gpu: u32) -> Vec<Ends> {
    let way = topology.way_up(NodeId::Gpu(gpu));
    let link = |lower: NodeId| topology.link_above(lower).filter(|link| link.pcie.is_some());
    way.into_iter().filter_map(|lower| Some((lower, link(lower)?.upper))).collect()
}

/// The PCIe links that copies of a pair pass.
fn links_of(topology: &Topology, pair: Pair, path: Path) -> Vec<Ends> {
    let Some(route) = topology.route(pair) else { return Vec::new() };
    match (path, route.class) {
        (Path::Staged, _) => [pair.source, pair.destination].map(|gpu| links_above(topology, gpu)).concat(),
        (Path::Direct, LinkClass::NvLink(_)) => Vec::new(),
        (Path::Direct, _) => route.hops.iter().flat_map(|hop| [(hop.from, hop.to), (hop.to, hop.from)]).collect(),
    }
}
