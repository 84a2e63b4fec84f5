//! PCIe links and the copies that passed them: the rates over a link that a rule on it needs.

use std::collections::BTreeMap;

use super::evidence::Evidence;
use super::words;
use model::finding::Finding;
use model::measurement::{LinkUnderLoad, PeerBandwidth};
use model::node::NodeId;
use model::pcie::Connection;
use model::placement::{Pair, Path};
use model::rounding;
use model::snapshot::{Adapter, AdapterKind, PciFunction};
use model::topology::AdapterPath;
use model::units::GbPerSecond;
use topology::belief::{Belief, Beliefs};
use topology::pcie;

/// Returns the figures that pairs are judged by whose copies passed a link: direct ones whose route contains it, and
/// staged ones of the GPUs below it.
pub(crate) fn over<'a>(
    evidence: &Evidence<'a>,
    link: &Connection,
    gpus: &[u32],
) -> Vec<&'a PeerBandwidth> {
    let (below, port) = (link.below.map(NodeId::Pci), link.port.map(NodeId::Pci));
    let on_route = |pair: Pair| {
        evidence.topology.route(pair).is_some_and(|route| {
            route.hops.iter().any(|hop| {
                let ends = [Some(hop.from), Some(hop.to)];
                below.is_some() && ends.contains(&below) && ends.contains(&port)
            })
        })
    };
    let mut over: Vec<_> = match link.gpu {
        Some(gpu) => {
            let of_gpu = evidence.reference_with(Path::Direct, &[gpu]).into_iter();
            of_gpu.filter(|cell| !evidence.over_nvlink(cell.pair)).collect()
        }
        None => evidence
            .reference(Path::Direct)
            .into_values()
            .filter(|cell| on_route(cell.pair))
            .collect(),
    };
    over.extend(evidence.reference_with(Path::Staged, gpus));
    over
}

/// Returns true if a figure is below what is healthy on its route, by more than its rows scatter; `None` if that is not
/// known.
pub(crate) fn is_slow(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> Option<bool> {
    evidence.expected(cell)?.is_missed_by(cell)
}

/// Returns the slow ones of these figures.
pub(crate) fn slow<'a>(
    evidence: &Evidence<'_>,
    cells: &[&'a PeerBandwidth],
) -> Vec<&'a PeerBandwidth> {
    cells.iter().copied().filter(|cell| is_slow(evidence, cell) == Some(true)).collect()
}

/// Returns the slow figures of all pairs with this GPU, whatever their route.
pub(crate) fn slow_with<'a>(evidence: &Evidence<'a>, gpu: u32) -> Vec<&'a PeerBandwidth> {
    let of_path = |path| evidence.reference_with(path, &[gpu]);
    let of_gpu: Vec<_> = [Path::Direct, Path::Staged].into_iter().flat_map(of_path).collect();
    slow(evidence, &of_gpu)
}

/// Returns the pairs of these figures.
pub(crate) fn pairs(cells: &[&PeerBandwidth]) -> Vec<Pair> {
    words::unique(cells.iter().map(|cell| cell.pair))
}

/// Adds the lowest and the highest of these rates to a finding. Uses only direct copies if there are any.
pub(crate) fn with_rates(found: Finding, cells: &[&PeerBandwidth]) -> Finding {
    let has_direct = cells.iter().any(|cell| cell.setup.path == Path::Direct);
    let judged = cells.iter().filter(|cell| cell.setup.path == Path::Direct || !has_direct);
    let (lowest, highest) = range(judged.filter_map(|cell| cell.achieved_gbps));
    found.fact("lowest_achieved", lowest).fact("highest_achieved", highest)
}

/// Returns the lowest and the highest of these rates.
pub(crate) fn range(
    rates: impl Iterator<Item = GbPerSecond> + Clone,
) -> (Option<GbPerSecond>, Option<GbPerSecond>) {
    let by_rate = |one: &GbPerSecond, other: &GbPerSecond| one.0.total_cmp(&other.0);
    (rates.clone().min_by(by_rate), rates.max_by(by_rate))
}

/// Adds the pairs that these figures show as slow to a finding, and their rates.
pub(crate) fn with_slowed(found: Finding, slow: &[&PeerBandwidth]) -> Finding {
    with_rates(found.fact("slowed_pairs", (!slow.is_empty()).then(|| pairs(slow))), slow)
}

/// Returns the facts of the PCI functions above this GPU, the one at the root first.
pub(crate) fn functions_above<'a>(evidence: &Evidence<'a>, gpu: u32) -> Vec<&'a PciFunction> {
    let nodes = evidence.topology.gpu_path(gpu).iter();
    let addresses = nodes
        .filter_map(|node| if let NodeId::Pci(address) = node { Some(*address) } else { None });
    addresses.filter_map(|address| evidence.snapshot.function(address)).collect()
}

/// Returns every RDMA adapter with its distances from the GPUs. Nothing is known of a virtual machine, whose tree is made
/// up.
pub(crate) fn rdma_paths<'a>(
    evidence: &Evidence<'a>,
) -> impl Iterator<Item = (&'a Adapter, &'a AdapterPath)> + use<'a> {
    let (snapshot, guest) = (evidence.snapshot, evidence.virtual_machine());
    let paths = evidence.topology.adapter_paths.iter().filter(move |_| !guest);
    paths.filter_map(|path| {
        let mut adapters = snapshot.adapters.iter();
        let is_it = |one: &&Adapter| one.pci == path.pci && one.kind == AdapterKind::Rdma;
        Some((adapters.find(is_it)?, path))
    })
}

/// Returns the RDMA adapters near each GPU that has one: no host bridge is between them.
pub(crate) fn near_adapters<'a>(evidence: &Evidence<'a>) -> BTreeMap<u32, Vec<&'a Adapter>> {
    words::grouped(rdma_paths(evidence).flat_map(|(adapter, path)| {
        let near = path.gpus.iter().filter(|to| to.class.is_below_a_switch());
        near.map(move |to| (to.gpu, adapter))
    }))
}

/// Returns the readings of a GPU's link while copies ran.
pub(crate) fn watched<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a LinkUnderLoad> {
    evidence.links().iter().find(|link| link.index == gpu)
}

/// Returns the belief on a link.
pub(crate) fn belief(evidence: &Evidence<'_>, link: &Connection) -> Belief {
    match evidence.beliefs {
        Some(known) => known.on(link),
        None => beliefs(evidence).on(link),
    }
}

/// Returns the belief on the link of a GPU.
pub(crate) fn belief_of(evidence: &Evidence<'_>, gpu: u32) -> Option<Belief> {
    Some(belief(evidence, evidence.topology.pcie_link_of(gpu)?))
}

/// Decides on all PCIe links.
pub(crate) fn beliefs(evidence: &Evidence<'_>) -> Beliefs {
    Beliefs::of(evidence.snapshot, evidence.topology, evidence.measurements, |link| {
        are_as_slow_as_at_rest(evidence, link)
    })
}

/// Returns true if every direct copy over a link is slow, and as fast as the generation at rest makes it. If there is
/// no direct one, staged copies count. Then others must be as fast as they should be, since the host's memory slows all
/// of them.
fn are_as_slow_as_at_rest(evidence: &Evidence<'_>, link: &Connection) -> bool {
    let Some(carries) = pcie::rate(link.at_rest) else {
        return false;
    };
    let gpus = &link.gpus;
    let (direct, staged): (Vec<_>, Vec<_>) =
        over(evidence, link, gpus).into_iter().partition(|cell| cell.setup.path == Path::Direct);
    let others_are_fine = || {
        let all = evidence.reference(Path::Staged).into_values();
        let mut others = all.filter(|cell| !gpus.iter().any(|gpu| cell.pair.touches(*gpu)));
        others.any(|cell| is_slow(evidence, cell) == Some(false))
    };
    let cells = if direct.is_empty() && others_are_fine() { staged } else { direct };
    !cells.is_empty()
        && cells.into_iter().all(|cell| {
            let Some((achieved, expected)) = cell.achieved_gbps.zip(evidence.expected(cell)) else {
                return false;
            };
            achieved < expected.floor_gbps()
                && achieved.0 <= carries
                && achieved.0 >= carries * expected.share.floor_percent() / 100.0
        })
}

/// Returns a rate to one decimal place.
pub(crate) fn one_place(rate: f64) -> GbPerSecond {
    GbPerSecond(rounding::one_place(rate))
}
