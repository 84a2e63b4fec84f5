//! Marks figures that tell nothing about the machine, because another program used the same GPUs or links.

use std::collections::BTreeSet;

use model::background::{self, Background};
use model::measurement::{Cell, Measurements};
use model::node::NodeId;
use model::placement::{Pair, Path};
use model::snapshot::Snapshot;
use model::topology::{LinkClass, Topology};
use topology::pcie;

/// A PCIe link by its two ends, the lower one first.
type Ends = (NodeId, NodeId);

/// Marks the figures of GPUs that other programs used, and of copies over PCIe links that carry their traffic. The
/// start of a foreign program is unknown, so traffic seen at the end marks all figures too. Keeps the background of a
/// GPU left out of the run only if its traffic disturbed a copy.
pub(super) fn mark(measurements: &mut Measurements, snapshot: &Snapshot, topology: &Topology) {
    let others = background::of_others(&measurements.background, snapshot);
    let traffic: Vec<(u32, BTreeSet<Ends>)> = others
        .map(|seen| (seen.gpu, links_used(seen, snapshot, topology).into_iter().collect()))
        .collect();
    let mut in_the_way = BTreeSet::new();
    let mut is_disturbed = |cell: &Cell<'_>| {
        // Wrong bytes and failed copies are not figures, and traffic does not explain them.
        let has_figure = cell.tested() && !cell.verified.is_wrong();
        let (pair, within) = (cell.flow.pair(), cell.flow.within());
        let with_host = cell.flow.with_host();
        if !has_figure
            || traffic.is_empty()
            || pair.is_none() && within.is_none() && with_host.is_none()
        {
            return false;
        }
        let of_pair = pair.map(|pair| links_of(topology, pair, cell.setup.path));
        let of_host = || with_host.map(|gpu| links_above(topology, NodeId::Gpu(gpu)));
        let links = of_pair.or_else(of_host).unwrap_or_default();
        let ends = |gpu: u32| {
            within == Some(gpu)
                || with_host == Some(gpu)
                || pair.is_some_and(|pair| pair.touches(gpu))
        };
        let disturbs = |(gpu, used): &&(u32, BTreeSet<Ends>)| {
            ends(*gpu) || links.iter().any(|link| used.contains(link))
        };
        let found: Vec<u32> = traffic.iter().filter(disturbs).map(|(gpu, _)| *gpu).collect();
        in_the_way.extend(found.iter().copied());
        !found.is_empty()
    };
    for one in measurements.each_mut() {
        // `count` visits every cell, so that `in_the_way` collects the GPUs of all of them; `any` would stop early.
        let disturbed = (0..one.parts()).filter(|number| is_disturbed(&one.part(*number))).count();
        // Reports older than the background have marks that nothing else shows.
        one.ending_mut().disturbed |= disturbed > 0;
    }
    for counted in &mut measurements.counted {
        counted.disturbed |= traffic.iter().any(|(gpu, _)| *gpu == counted.gpu);
    }
    measurements
        .background
        .retain(|seen| snapshot.gpu(seen.gpu).is_some() || in_the_way.contains(&seen.gpu));
}

/// Returns the PCIe links that traffic between a GPU and the host uses, as far as the topology contains them. For a GPU
/// left out of the run, these are the links it shares with the GPUs of the run.
fn links_used(seen: &Background, snapshot: &Snapshot, topology: &Topology) -> Vec<Ends> {
    if !seen.uses_pcie() {
        return Vec::new();
    }
    if snapshot.gpu(seen.gpu).is_some() {
        return links_above(topology, NodeId::Gpu(seen.gpu));
    }
    let way = seen.pci.map(|address| pcie::chain(snapshot, address)).unwrap_or_default();
    let mut way = way.into_iter().map(|function| NodeId::Pci(function.address));
    way.find(|node| topology.node(*node).is_some())
        .map(|shared| links_above(topology, shared))
        .unwrap_or_default()
}

/// Returns the PCIe links from a GPU, or from a port above it, up to its root. Its traffic with the host uses all of
/// them.
fn links_above(topology: &Topology, node: NodeId) -> Vec<Ends> {
    let way = topology.way_up(node);
    let link = |lower: NodeId| topology.link_above(lower).filter(|link| link.pcie.is_some());
    way.into_iter().filter_map(|lower| Some((lower, link(lower)?.upper))).collect()
}

/// Returns the PCIe links that copies of a pair use.
fn links_of(topology: &Topology, pair: Pair, path: Path) -> Vec<Ends> {
    let Some(route) = topology.route(pair) else {
        return Vec::new();
    };
    match (path, route.class) {
        (Path::Staged, _) => [pair.source, pair.destination]
            .map(|gpu| links_above(topology, NodeId::Gpu(gpu)))
            .concat(),
        (Path::Direct, LinkClass::NvLink(_)) => Vec::new(),
        (Path::Direct, _) => {
            route.hops.iter().flat_map(|hop| [(hop.from, hop.to), (hop.to, hop.from)]).collect()
        }
    }
}
