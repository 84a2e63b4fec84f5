//! PCIe links and the copies that passed them: what a rule on a link has to know of the rates that
//! were reached over it.

use std::collections::BTreeSet;

use super::coverage;
use super::evidence::Evidence;
use crate::model::finding::Finding;
use crate::model::measurement::{LinkUnderLoad, PeerBandwidth};
use crate::model::placement::{Pair, Path};
use crate::model::units::{GbPerSecond, PciAddress};
use crate::topology::pcie::{self, Connection};

/// Whether something was copied over the PCIe link of this GPU: copies over NVLink leave it idle,
/// and an idle link may lower its generation.
pub fn used_pcie(evidence: &Evidence<'_>, gpu: u32) -> bool {
    evidence.measurements.is_some_and(|measurements| {
        coverage::cells(measurements)
            .filter(|cell| cell.tested() && (cell.pair.touches(gpu)))
            .any(|cell| cell.path == Some(Path::Staged) || !evidence.over_nvlink(cell.pair))
    })
}

/// The figures that pairs are judged by whose copies passed a link: direct ones whose route has it,
/// staged ones of the GPUs below it.
pub fn over<'a>(evidence: &Evidence<'a>, link: &Connection, gpus: &[u32]) -> Vec<&'a PeerBandwidth> {
    let id = |address: Option<PciAddress>| address.map(|address| address.to_string());
    let (below, port) = (id(link.below), id(link.port));
    let on_route = |pair: Pair| match link.gpu {
        Some(gpu) => !evidence.over_nvlink(pair) && (pair.touches(gpu)),
        None => evidence.topology.route(pair).is_some_and(|route| {
            route.hops.iter().any(|hop| {
                let ends = [Some(hop.from.as_str()), Some(hop.to.as_str())];
                below.is_some() && ends.contains(&below.as_deref()) && ends.contains(&port.as_deref())
            })
        }),
    };
    let direct = evidence.reference(Path::Direct).into_values().filter(|cell| on_route(cell.pair));
    let staged = evidence
        .reference(Path::Staged)
        .into_values()
        .filter(|cell| gpus.contains(&cell.pair.source) || gpus.contains(&cell.pair.destination));
    direct.chain(staged).collect()
}

/// Whether a figure is below what is healthy on its route; `None` where that is not known.
pub fn is_slow(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> Option<bool> {
    Some(cell.achieved_gbps? < evidence.expected(cell)?.floor_gbps())
}

/// The slow ones of these figures.
pub fn slow<'a>(evidence: &Evidence<'_>, cells: &[&'a PeerBandwidth]) -> Vec<&'a PeerBandwidth> {
    cells.iter().copied().filter(|cell| is_slow(evidence, cell) == Some(true)).collect()
}

/// The slow figures of all pairs with this GPU, whatever their route.
pub fn slow_with<'a>(evidence: &Evidence<'a>, gpu: u32) -> Vec<&'a PeerBandwidth> {
    let cells = [Path::Direct, Path::Staged].into_iter().flat_map(|path| evidence.reference(path).into_values());
    let of_gpu: Vec<_> = cells.filter(|cell| cell.pair.touches(gpu)).collect();
    slow(evidence, &of_gpu)
}

/// The pairs of these figures.
pub fn pairs(cells: &[&PeerBandwidth]) -> Vec<Pair> {
    let pairs: BTreeSet<Pair> = cells.iter().map(|cell| cell.pair).collect();
    pairs.into_iter().collect()
}

/// Adds the lowest and the highest of these rates to a finding, of direct copies where there are any.
pub fn with_rates(found: Finding, cells: &[&PeerBandwidth]) -> Finding {
    let has_direct = cells.iter().any(|cell| cell.path == Path::Direct);
    let judged = || cells.iter().filter(|cell| cell.path == Path::Direct || !has_direct);
    let rates = || judged().filter_map(|cell| cell.achieved_gbps);
    let by_rate = |one: &GbPerSecond, other: &GbPerSecond| one.0.total_cmp(&other.0);
    found.fact("lowest_achieved", rates().min_by(by_rate)).fact("highest_achieved", rates().max_by(by_rate))
}

/// Adds the pairs that these figures show as slow to a finding, and their rates.
pub fn with_slowed(found: Finding, slow: &[&PeerBandwidth]) -> Finding {
    with_rates(found.fact("slowed_pairs", (!slow.is_empty()).then(|| pairs(slow))), slow)
}

/// The readings of a GPU's link while copies ran.
pub fn watched<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a LinkUnderLoad> {
    evidence.links().iter().find(|link| link.index == gpu)
}

/// The link of this GPU.
pub fn of_gpu(evidence: &Evidence<'_>, gpu: u32) -> Option<Connection> {
    pcie::links(evidence.snapshot).into_iter().map(|(link, _)| link).find(|link| link.gpu == Some(gpu))
}

/// A rate to one decimal place.
pub fn one_place(rate: f64) -> GbPerSecond {
    GbPerSecond((rate * 10.0).round() / 10.0)
}
