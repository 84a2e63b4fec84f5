//! Readings of PCIe links that measurements contradict. Ports lower their generation at rest as GPUs do, and some
//! keep showing that value. A link cannot carry more than its capacity. A copy that was faster than a reading allows
//! therefore refutes the reading, and the theoretical rate then uses the possible shape.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::{graph, host, nvlink, pcie, routes};
use model::host::HostCopy;
use model::measurement::{LinkUnderLoad, Measurements, PeerBandwidth, Status};
use model::node::NodeId;
use model::pcie::{Connection, Narrow, Refuted, RefutedBy, Shape};
use model::placement::{Pair, Path};
use model::reading::Reading;
use model::snapshot::{FabricState, Gpu, Snapshot};
use model::topology::{LinkKind, Topology};
use model::units::GbPerSecond;

/// The fastest copies over each PCIe link.
pub struct Fastest(HashMap<NodeId, RefutedBy>);

impl Fastest {
    /// Finds the fastest copies in these measurements. Direct copies pass the links of their route. Staged copies,
    /// and copies from and to the host, pass the links between the GPUs and the host. A rate of bytes that did not
    /// arrive proves nothing.
    pub fn of(snapshot: &Snapshot, topology: &Topology, measurements: &Measurements) -> Self {
        let mut links = HashMap::new();
        for link in topology
            .links
            .iter()
            .filter(|link| link.kind == LinkKind::Pcie && link.pcie.is_some())
        {
            for ends in [(link.upper, link.lower), (link.lower, link.upper)] {
                links.insert(ends, link.lower);
            }
        }
        let (mut fastest, mut with_host) = (Self(HashMap::new()), HashMap::new());
        for (copies, path, pair) in measurements.peer.iter().filter_map(of_peers) {
            match (path, topology.route(pair)) {
                (Path::Direct, Some(route)) => {
                    let passed = route
                        .hops
                        .iter()
                        .filter_map(|hop| links.get(&(hop.from, hop.to)));
                    passed.for_each(|lower| keep_faster(&mut fastest.0, *lower, copies));
                }
                (Path::Direct, None) => {}
                (Path::Staged, _) => {
                    [pair.source, pair.destination]
                        .into_iter()
                        .for_each(|gpu| keep_faster(&mut with_host, gpu, copies));
                }
            }
        }
        for copy in measurements
            .host
            .iter()
            .filter(|copy| !snapshot.gpu(copy.gpu).is_some_and(host::beside_pcie))
        {
            if let Some(copies) = of_host(copy) {
                keep_faster(&mut with_host, copy.gpu, copies);
            }
        }
        for link in topology
            .links
            .iter()
            .filter_map(|link| Some((link.lower, link.pcie.as_ref()?)))
        {
            let (lower, connection) = link;
            let passed = connection.gpus.iter().filter_map(|gpu| with_host.get(gpu));
            passed.for_each(|copies| keep_faster(&mut fastest.0, lower, *copies));
        }
        fastest
    }

    /// Returns the fastest copies over this link, with their rate.
    pub fn over(&self, link: &Connection) -> Option<(RefutedBy, GbPerSecond)> {
        let copies = *self.0.get(&link.lower()?)?;
        Some((copies, copies.rate()?))
    }

    /// Returns the shape that a link must have if it reads as `reading`. It is higher if a copy over the link was
    /// faster than the reading allows. A rate that exceeds what both ends together allow refutes nothing, because the
    /// rate itself is impossible.
    pub fn believable(&self, link: &Connection, reading: Shape) -> Shape {
        self.over(link).map_or(reading, |(_, carried)| {
            believable(reading, link.possible, carried)
        })
    }
}

fn of_peers(cell: &PeerBandwidth) -> Option<(RefutedBy, Path, Pair)> {
    let sound = cell.status == Status::Measured && !cell.verified.is_wrong();
    let achieved_gbps = cell
        .achieved_gbps
        .filter(|rate| sound && rate.0.is_finite())?;
    let (pair, path) = (cell.pair, cell.setup.path);
    Some((
        RefutedBy::Copies {
            pair,
            path,
            achieved_gbps,
        },
        path,
        pair,
    ))
}

fn of_host(copy: &HostCopy) -> Option<RefutedBy> {
    let sound = copy.status == Status::Measured && !copy.verified.is_wrong();
    let achieved_gbps = copy
        .achieved_gbps
        .filter(|rate| sound && rate.0.is_finite())?;
    Some(RefutedBy::HostCopies {
        gpu: copy.gpu,
        achieved_gbps,
    })
}

fn keep_faster<K: std::hash::Hash + Eq>(
    best: &mut HashMap<K, RefutedBy>,
    key: K,
    copies: RefutedBy,
) {
    if best
        .get(&key)
        .is_none_or(|known| known.rate() < copies.rate())
    {
        best.insert(key, copies);
    }
}

/// Returns the least shape that explains the rate. A generation falls at rest, but lanes rarely do. The lanes are
/// therefore believed if a higher generation explains the rate. If the lanes of a link are read wrong, none of its
/// readings is believed.
fn believable(reading: Shape, possible: Shape, carried: GbPerSecond) -> Shape {
    let allows = |shape: &Shape| pcie::rate(*shape).is_some_and(|rate| carried.0 <= rate);
    let best = Shape {
        generation: reading.generation.max(possible.generation),
        width: reading.width.max(possible.width),
    };
    if reading.link().is_none() {
        return reading;
    }
    let faster = Shape {
        width: reading.width,
        ..best
    };
    [reading, faster, best]
        .into_iter()
        .find(allows)
        .unwrap_or(reading)
}

/// Corrects what the readings of links claimed, if the figures, or readings under load, contradict them. Corrects the
/// links, the routes over them, and the theoretical rate beside each figure. Calling it twice changes nothing.
pub fn readings(snapshot: &Snapshot, topology: &mut Topology, measurements: &mut Measurements) {
    let corrected = corrected(snapshot, topology, measurements);
    let carried = carried_by_nvlink(snapshot, topology, measurements);
    if corrected.is_empty() && carried.is_empty() {
        return;
    }
    let mut gpus: BTreeSet<u32> = corrected
        .iter()
        .flat_map(|(_, link)| link.gpus.iter().copied())
        .collect();
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
            *route = model::topology::PairRoute {
                peer_access: route.peer_access.clone(),
                ..again
            };
        }
    }
    for cell in measurements
        .peer
        .iter_mut()
        .filter(|cell| gpus.iter().any(|gpu| cell.pair.touches(*gpu)))
    {
        cell.theoretical_gbps = topology
            .route(cell.pair)
            .and_then(|route| route.theoretical(cell.setup.path));
        let rates = cell.achieved_gbps.zip(cell.theoretical_gbps);
        cell.percent = rates.map(|(achieved, theoretical)| achieved.percent_of(theoretical));
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
            gpu.fabric
                .known()
                .is_some_and(|fabric| fabric.status != 0 || unfinished(fabric.state))
        };
        snapshot
            .gpu(index)
            .is_some_and(|gpu| fabric(gpu) && nvlink::switched(gpu).is_some())
    };
    let switched = |index: u32| {
        snapshot
            .gpu(index)
            .is_some_and(|gpu| nvlink::switched(gpu).is_some())
    };
    let carries = |index: u32| pcie::rate(topology.pcie_link_of(index)?.possible);
    let mut carried = BTreeSet::new();
    for (copies, path, pair) in measurements.peer.iter().filter_map(of_peers) {
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
    for gpu in snapshot
        .gpus
        .iter_mut()
        .filter(|gpu| carried.contains(&gpu.index))
    {
        if let Reading::Known(fabric) = &mut gpu.fabric {
            (fabric.state, fabric.status) = (FabricState::Completed, 0);
        }
    }
    Cow::Owned(snapshot)
}

/// Returns the links that are faster than they read, with their indices.
fn corrected(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: &Measurements,
) -> Vec<(usize, Connection)> {
    let fastest = Fastest::of(snapshot, topology, measurements);
    let links = topology
        .links
        .iter()
        .enumerate()
        .filter_map(|(at, link)| Some((at, link.pcie.as_ref()?)));
    links
        .filter_map(|(at, link)| Some((at, believed(link, &fastest, &measurements.links)?)))
        .collect()
}

/// Returns this link without its contradicted readings, or `None` if none is contradicted.
fn believed(link: &Connection, fastest: &Fastest, loads: &[LinkUnderLoad]) -> Option<Connection> {
    let mut link = link.clone();
    let before = link.refuted.len();
    let load = link
        .gpu
        .and_then(|gpu| loads.iter().find(|load| load.index == gpu));
    let wider = load
        .and_then(|load| load.width?[1].try_into().ok())
        .filter(|width| {
            link.now.width.is_some_and(|now| now < *width)
                && link.possible.width.is_none_or(|most| *width <= most)
        });
    if let Some(width) = wider {
        let is = Shape {
            width: Some(width),
            ..link.now
        };
        take_back(&mut link, is, RefutedBy::UnderLoad { width });
    }
    if let Some((copies, _)) = fastest.over(&link) {
        let is = fastest.believable(&link, link.now);
        if is != link.now {
            take_back(&mut link, is, copies);
        }
    }
    (link.refuted.len() > before).then_some(link)
}

fn take_back(link: &mut Connection, is: Shape, by: RefutedBy) {
    let allows_gbps = pcie::rate(link.now).map(GbPerSecond);
    link.refuted.push(Refuted {
        reading: link.now,
        allows_gbps,
        by,
    });
    link.now = is;
    let possible = link.possible;
    link.narrow.retain(|narrow| match narrow {
        Narrow::FewerLanes => is.width < possible.width,
        Narrow::LowerGeneration => is.generation < possible.generation,
    });
}
