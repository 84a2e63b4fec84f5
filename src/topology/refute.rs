//! Corrects links, routes and theoretical rates where a link is believed to be another than it reads (see
//! [`super::belief`]).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::belief::{self, Belief, Beliefs, Known};
use super::{graph, nvlink, pcie, placeholder, routes};
use model::measurement::Measurements;
use model::pcie::{Connection, Refuted, RefutedBy, Shape};
use model::placement::Path;
use model::reading::Reading;
use model::snapshot::{FabricState, Gpu, Snapshot};
use model::topology::Topology;
use model::units::GbPerSecond;

/// Corrects what the readings of links claimed, if the figures, or readings under load, contradict them: the links and the
/// routes over them. Then sets the theoretical rate beside each figure between GPUs. Calling it twice changes nothing.
pub fn readings(snapshot: &Snapshot, topology: &mut Topology, measurements: &mut Measurements) {
    correct(snapshot, topology, measurements);
    for cell in &mut measurements.peer {
        let theory = topology.route(cell.pair).and_then(|route| route.theoretical(cell.setup.path));
        super::set_theory(
            (theory, cell.achieved_gbps),
            (&mut cell.theoretical_gbps, &mut cell.percent),
        );
    }
}

fn correct(snapshot: &Snapshot, topology: &mut Topology, measurements: &Measurements) {
    placeholder::by_driver(&measurements.driver, topology);
    let corrected = corrected(snapshot, topology, measurements);
    let carried = carried_by_nvlink(snapshot, topology, measurements);
    if corrected.is_empty() && carried.is_empty() {
        return;
    }
    let mut gpus: BTreeSet<u32> =
        corrected.iter().flat_map(|(_, link)| link.gpus.iter().copied()).collect();
    gpus.extend(&carried);
    for (at, link) in corrected {
        if let Some(drawn) = topology.links.get_mut(at) {
            graph::carry(drawn, link);
        }
    }
    // Pairs of other GPUs do not pass these links, nor do their staged copies.
    let changed: Vec<_> = routes::all(&with_fabric(snapshot, &carried), topology);
    let changed = changed.into_iter().filter(|route| {
        gpus.contains(&route.pair.source) || gpus.contains(&route.pair.destination)
    });
    let mut changed: HashMap<_, _> = changed.map(|route| (route.pair, route)).collect();
    for route in &mut topology.pairs {
        if let Some(again) = changed.remove(&route.pair) {
            *route = model::topology::PairRoute { peer_access: route.peer_access.clone(), ..again };
        }
    }
}

/// Returns the GPUs that copy faster than their PCIe links carry, although NVML reports that they are not registered
/// with the NVSwitch fabric: the registration failed or did not end. Their NVLinks must carry these copies.
fn carried_by_nvlink(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: &Measurements,
) -> BTreeSet<u32> {
    let doubtful = |index: u32| {
        let unfinished = |state| matches!(state, FabricState::NotStarted | FabricState::InProgress);
        let fabric = |gpu: &Gpu| {
            gpu.fabric.known().is_some_and(|fabric| fabric.status != 0 || unfinished(fabric.state))
        };
        snapshot.gpu(index).is_some_and(|gpu| fabric(gpu) && nvlink::switched(gpu).is_some())
    };
    let switched =
        |index: u32| snapshot.gpu(index).is_some_and(|gpu| nvlink::switched(gpu).is_some());
    let carries = |index: u32| pcie::rate(topology.pcie_link_of(index)?.possible);
    let mut carried = BTreeSet::new();
    for (copies, path, pair) in measurements.peer.iter().filter_map(belief::of_peers) {
        let ends = [pair.source, pair.destination];
        let faster = || {
            let most = carries(pair.source)?.min(carries(pair.destination)?);
            Some(copies.rate()?.0 > most)
        };
        if path == Path::Direct
            && ends.iter().any(|gpu| doubtful(*gpu))
            && ends.iter().all(|gpu| switched(*gpu))
            && faster() == Some(true)
        {
            carried.extend(ends.into_iter().filter(|gpu| doubtful(*gpu)));
        }
    }
    carried
}

/// Returns the snapshot for calculating routes, in which the fabrics of these GPUs work.
fn with_fabric<'a>(snapshot: &'a Snapshot, carried: &BTreeSet<u32>) -> Cow<'a, Snapshot> {
    if carried.is_empty() {
        return Cow::Borrowed(snapshot);
    }
    let mut snapshot = snapshot.clone();
    for gpu in snapshot.gpus.iter_mut().filter(|gpu| carried.contains(&gpu.index)) {
        if let Reading::Known(fabric) = &mut gpu.fabric {
            (fabric.state, fabric.status) = (FabricState::Completed, 0);
        }
    }
    Cow::Owned(snapshot)
}

/// Returns the links that are not what they read, with their indices.
fn corrected(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: &Measurements,
) -> Vec<(usize, Connection)> {
    // Slow copies lower no theory: they are what it is compared with.
    let beliefs = Beliefs::of(snapshot, topology, Some(measurements), |_| false);
    let links = topology.links.iter().enumerate();
    links
        .filter_map(|(at, drawn)| {
            let link = drawn.pcie.as_ref().filter(|link| !link.placeholder)?;
            Some((at, believed(link, beliefs.on(link))?))
        })
        .collect()
}

/// Returns this link as it is believed to be, or `None` if it is drawn so. The generation of a GPU's link stays the
/// highest that both ends support, see [`Connection::now`].
fn believed(link: &Connection, belief: Belief) -> Option<Connection> {
    // Without a reading there is nothing to refute.
    link.now.width?;
    let is = Shape {
        generation: match link.gpu {
            Some(_) => link.now.generation,
            None => belief.shape.generation,
        },
        ..belief.shape
    };
    let by = match belief.known {
        Known::Refuted(by) => Some(by),
        _ => is.width.map(|width| RefutedBy::UnderLoad { width }),
    };
    let refuted = Refuted {
        reading: link.now,
        allows_gbps: pcie::rate(link.now).map(GbPerSecond),
        by: by.filter(|_| is != link.now)?,
    };
    let mut link = link.clone();
    link.now = is;
    link.narrow = pcie::narrow(&link, link.now);
    link.refuted.push(refuted);
    Some(link)
}
