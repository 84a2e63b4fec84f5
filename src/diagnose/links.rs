//! PCIe links and the copies that passed them: what a rule on a link has to know of the rates that
//! were reached over it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::coverage;
use super::rule::Evidence;
pub use super::suspects::over_nvlink;
use crate::model::measurement::{LinkUnderLoad, PeerBandwidth};
use crate::model::placement::{Pair, Path};
pub use crate::model::rounding::one_place;
use crate::model::units::PciAddress;
use crate::topology::pcie::{self, Connection};

/// Whether something was copied over the PCIe link of this GPU: copies over NVLink leave it idle,
/// and an idle link may lower its generation.
pub fn used_pcie(evidence: &Evidence<'_>, gpu: u32) -> bool {
    evidence.measurements.is_some_and(|measurements| {
        coverage::cells(measurements).filter(|cell| cell.tested() && cell.uses(gpu)).any(|cell| {
            cell.setup.path == Path::Staged || cell.flow.pair().is_some_and(|pair| !over_nvlink(evidence, pair))
        })
    })
}

/// The figures that pairs are judged by whose copies passed a link: direct ones whose route has it,
/// staged ones of the GPUs below it.
pub fn over<'a>(evidence: &Evidence<'a>, link: &Connection, gpus: &[u32]) -> Vec<&'a PeerBandwidth> {
    let id = |address: Option<PciAddress>| address.map(|address| address.to_string());
    let (below, port) = (id(link.below), id(link.port));
    let on_route = |pair: Pair| match link.gpu {
        Some(gpu) => !over_nvlink(evidence, pair) && (pair.source == gpu || pair.destination == gpu),
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
    let of_gpu: Vec<_> = cells.filter(|cell| cell.pair.source == gpu || cell.pair.destination == gpu).collect();
    slow(evidence, &of_gpu)
}

/// What copies were seen over a link, as evidence: their pairs, and the lowest and highest rate, of
/// direct copies where there are any. Nulls where there was none.
pub fn rates(cells: &[&PeerBandwidth]) -> [Value; 3] {
    let pairs: BTreeSet<Pair> = cells.iter().map(|cell| cell.pair).collect();
    let has_direct = cells.iter().any(|cell| cell.setup.path == Path::Direct);
    let judged = || cells.iter().filter(|cell| cell.setup.path == Path::Direct || !has_direct);
    let rates = || judged().filter_map(|cell| cell.achieved_gbps);
    let pairs: Vec<_> = pairs.iter().map(ToString::to_string).collect();
    let lowest = rates().min_by(|one, other| one.0.total_cmp(&other.0));
    let highest = rates().max_by(|one, other| one.0.total_cmp(&other.0));
    [if pairs.is_empty() { Value::Null } else { json!(pairs) }, json!(lowest), json!(highest)]
}

/// The readings of a GPU's link while copies ran.
pub fn watched<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a LinkUnderLoad> {
    evidence.measurements?.links.iter().find(|link| link.index == gpu)
}

/// The link of this GPU.
pub fn of_gpu(evidence: &Evidence<'_>, gpu: u32) -> Option<Connection> {
    pcie::links(evidence.snapshot).into_iter().map(|(link, _)| link).find(|link| link.gpu == Some(gpu))
}
