//! Readings of PCIe links that measurements contradict. Ports lower their generation at rest as GPUs do, and
//! some go on to show what they read then. A link cannot carry more than it is: a copy that was faster than
//! a reading allows refutes it, and theory then uses what is possible.

use std::collections::{BTreeSet, HashMap};

use super::{graph, pcie, routes};
use crate::model::measurement::{LinkUnderLoad, Measurements, PeerBandwidth, Status};
use crate::model::node::NodeId;
use crate::model::pcie::{Connection, Narrow, Refuted, RefutedBy, Shape};
use crate::model::placement::Path;
use crate::model::snapshot::Snapshot;
use crate::model::topology::{LinkKind, Topology};
use crate::model::units::GbPerSecond;

/// The fastest copies over every PCIe link.
pub struct Fastest<'a>(HashMap<NodeId, &'a PeerBandwidth>);

impl<'a> Fastest<'a> {
    /// Of these figures: direct copies pass the links of their route, staged ones those between both GPUs
    /// and the host. A rate of bytes that did not arrive proves nothing.
    pub fn of(topology: &Topology, cells: &'a [PeerBandwidth]) -> Self {
        let mut links = HashMap::new();
        for link in topology.links.iter().filter(|link| link.kind == LinkKind::Pcie && link.pcie.is_some()) {
            for ends in [(link.upper, link.lower), (link.lower, link.upper)] {
                links.insert(ends, link.lower);
            }
        }
        let (mut fastest, mut staged) = (Self(HashMap::new()), HashMap::new());
        for cell in cells.iter().filter(|cell| cell.status == Status::Measured && !cell.verified.is_wrong()) {
            match (cell.setup.path, topology.route(cell.pair)) {
                (Path::Direct, Some(route)) => {
                    let passed = route.hops.iter().filter_map(|hop| links.get(&(hop.from, hop.to)));
                    passed.for_each(|lower| keep_faster(&mut fastest.0, *lower, cell));
                }
                (Path::Direct, None) => {}
                (Path::Staged, _) => {
                    for gpu in [cell.pair.source, cell.pair.destination] {
                        keep_faster(&mut staged, gpu, cell);
                    }
                }
            }
        }
        for link in topology.links.iter().filter_map(|link| Some((link.lower, link.pcie.as_ref()?))) {
            let (lower, connection) = link;
            let passed = connection.gpus.iter().filter_map(|gpu| staged.get(gpu));
            passed.for_each(|cell| keep_faster(&mut fastest.0, lower, cell));
        }
        fastest
    }

    /// The fastest copy over this link, with its rate.
    pub fn over(&self, link: &Connection) -> Option<(&'a PeerBandwidth, GbPerSecond)> {
        let cell = *self.0.get(&link.lower()?)?;
        Some((cell, cell.achieved_gbps?))
    }

    /// What a link must be that reads as `reading`: more than that, where a copy over it was faster than the
    /// reading allows. A rate that not even both ends together allow refutes nothing: it is itself what
    /// cannot be.
    pub fn believable(&self, link: &Connection, reading: Shape) -> Shape {
        self.over(link).map_or(reading, |(_, carried)| believable(reading, link.possible, carried))
    }
}

fn keep_faster<'a, K: std::hash::Hash + Eq>(best: &mut HashMap<K, &'a PeerBandwidth>, key: K, cell: &'a PeerBandwidth) {
    let rate = |cell: &PeerBandwidth| cell.achieved_gbps.filter(|rate| rate.0.is_finite()).map(|rate| rate.0);
    if rate(cell).is_some() && best.get(&key).is_none_or(|known| rate(known) < rate(cell)) {
        best.insert(key, cell);
    }
}

/// A generation falls at rest and lanes rarely do, so the lanes are believed where a higher generation
/// explains the rate. A link whose lanes are read wrong is not believed in anything.
fn believable(reading: Shape, possible: Shape, carried: GbPerSecond) -> Shape {
    let allows = |shape: &Shape| pcie::rate(*shape).is_some_and(|rate| carried.0 <= rate);
    let best =
        Shape { generation: reading.generation.max(possible.generation), width: reading.width.max(possible.width) };
    if reading.link().is_none() {
        return reading;
    }
    let faster = Shape { width: reading.width, ..best };
    [reading, faster, best].into_iter().find(allows).unwrap_or(reading)
}

/// Takes back what is said of links by readings that the figures, or readings under load, contradict: in the
/// links, in the routes over them, and in the theory beside each figure. Doing so twice changes nothing.
pub fn readings(snapshot: &Snapshot, topology: &mut Topology, measurements: &mut Measurements) {
    let corrected = corrected(topology, measurements);
    if corrected.is_empty() {
        return;
    }
    let gpus: BTreeSet<u32> = corrected.iter().flat_map(|(_, link)| link.gpus.iter().copied()).collect();
    for (at, link) in corrected {
        if let Some(drawn) = topology.links.get_mut(at) {
            graph::carry(drawn, link);
        }
    }
    // Pairs of other GPUs do not pass these links, nor do their staged copies.
    let changed: Vec<_> = routes::all(snapshot, topology);
    let changed =
        changed.into_iter().filter(|route| gpus.contains(&route.pair.source) || gpus.contains(&route.pair.destination));
    let mut changed: HashMap<_, _> = changed.map(|route| (route.pair, route)).collect();
    for route in &mut topology.pairs {
        if let Some(again) = changed.remove(&route.pair) {
            *route = crate::model::topology::PairRoute { peer_access: route.peer_access.clone(), ..again };
        }
    }
    for cell in measurements.peer.iter_mut().filter(|cell| gpus.iter().any(|gpu| cell.pair.touches(*gpu))) {
        cell.theoretical_gbps = topology.route(cell.pair).and_then(|route| route.theoretical(cell.setup.path));
        let rates = cell.achieved_gbps.zip(cell.theoretical_gbps);
        cell.percent = rates.map(|(achieved, theoretical)| achieved.percent_of(theoretical));
    }
}

/// The links that are more than they read, by their place.
fn corrected(topology: &Topology, measurements: &Measurements) -> Vec<(usize, Connection)> {
    let fastest = Fastest::of(topology, &measurements.peer);
    let links = topology.links.iter().enumerate().filter_map(|(at, link)| Some((at, link.pcie.as_ref()?)));
    links.filter_map(|(at, link)| Some((at, believed(link, &fastest, &measurements.links)?))).collect()
}

/// This link without its readings that are contradicted; `None` where none is.
fn believed(link: &Connection, fastest: &Fastest<'_>, loads: &[LinkUnderLoad]) -> Option<Connection> {
    let mut link = link.clone();
    let before = link.refuted.len();
    let load = link.gpu.and_then(|gpu| loads.iter().find(|load| load.index == gpu));
    let wider = load.and_then(|load| load.width?[1].try_into().ok()).filter(|width| {
        link.now.width.is_some_and(|now| now < *width) && link.possible.width.is_none_or(|most| *width <= most)
    });
    if let Some(width) = wider {
        let is = Shape { width: Some(width), ..link.now };
        take_back(&mut link, is, RefutedBy::UnderLoad { width });
    }
    if let Some((cell, achieved_gbps)) = fastest.over(&link) {
        let is = fastest.believable(&link, link.now);
        if is != link.now {
            take_back(&mut link, is, RefutedBy::Copies { pair: cell.pair, path: cell.setup.path, achieved_gbps });
        }
    }
    (link.refuted.len() > before).then_some(link)
}

fn take_back(link: &mut Connection, is: Shape, by: RefutedBy) {
    let allows_gbps = pcie::rate(link.now).map(GbPerSecond);
    link.refuted.push(Refuted { reading: link.now, allows_gbps, by });
    link.now = is;
    let possible = link.possible;
    link.narrow.retain(|narrow| match narrow {
        Narrow::FewerLanes => is.width < possible.width,
        Narrow::LowerGeneration => is.generation < possible.generation,
    });
}
