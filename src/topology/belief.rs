//! The belief on each PCIe link: its generation and lanes, the source of both, and whether the link was seen in use.
//! Readings contradict each other and the copies: ports and GPUs lower their generation at rest, some ports show fewer
//! lanes then, and some keep showing that under load. Only this file decides between them. Rules, theory and pages take
//! the result.

use std::collections::{BTreeSet, HashMap};

use super::{host, pcie};
use model::flow::Endpoint;
use model::host::HostCopy;
use model::measurement::{Cell, LinkUnderLoad, Measurements, PeerBandwidth, Status};
use model::node::NodeId;
use model::pcie::{Connection, RefutedBy, Shape};
use model::placement::{Pair, Path};
use model::snapshot::Snapshot;
use model::topology::{LinkClass, LinkKind, Topology};
use model::units::{GbPerSecond, Generation, Lanes};

/// Fewest readings under load that prove that a generation never rose. A link takes its time to speed up after the
/// first work. Three readings are one at the start and two after that time.
const READINGS_TO_BELIEVE: u32 = 3;

/// The source of a belief.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known {
    /// Read often enough while copies passed the link, or seen at its highest generation while copies ran: no link at
    /// rest shows that.
    UnderLoad,
    /// Too few readings under load, but every copy was as slow as the generation at rest makes it.
    ByCopies,
    /// Read at rest only. The generation of a GPU's link is then not known, and the highest is assumed.
    AtRest,
    /// A measurement contradicts the reading.
    Refuted(RefutedBy),
}

/// The belief on one link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    /// Generation and lanes.
    pub shape: Shape,
    /// Source of the shape.
    pub known: Known,
    /// True if copies passed the link, or if it is the link of a GPU that was seen at its highest generation: at rest
    /// it would be lower.
    pub in_use: bool,
}

impl Belief {
    /// Returns the lanes, if more than a reading at rest shows them.
    pub fn measured_lanes(&self) -> Option<Lanes> {
        let is_measured = matches!(self.known, Known::UnderLoad | Known::Refuted(_));
        self.shape.width.filter(|_| is_measured)
    }

    /// Returns the generation, if it was read under load and no copy contradicts it.
    pub fn measured_generation(&self) -> Option<Generation> {
        self.shape.generation.filter(|_| self.known == Known::UnderLoad)
    }
}

/// The beliefs on all PCIe links of a machine.
#[derive(Debug, Clone, Default)]
pub struct Beliefs(HashMap<NodeId, Belief>);

impl Beliefs {
    /// Decides on every link. `is_as_slow_as_at_rest` returns true if the copies over a link are as slow as the
    /// generation at rest makes them, and nothing else slows them. It is asked only if readings under load decide
    /// nothing. The result is the same if the links were corrected by an earlier one (see [`super::refute`]).
    pub fn of(
        snapshot: &Snapshot,
        topology: &Topology,
        measurements: Option<&Measurements>,
        is_as_slow_as_at_rest: impl Fn(&Connection) -> bool,
    ) -> Self {
        let nothing = Measurements::default();
        let measurements = measurements.unwrap_or(&nothing);
        let seen = Seen {
            loads: &measurements.links,
            used: gpus_over_pcie(measurements, topology),
            fastest: fastest(snapshot, topology, measurements),
        };
        let links = topology.links.iter().filter_map(|link| link.pcie.as_ref());
        let belief =
            |link: &Connection| Some((link.lower()?, seen.belief(link, &is_as_slow_as_at_rest)));
        Self(links.filter_map(belief).collect())
    }

    /// Returns the belief on this link.
    pub fn on(&self, link: &Connection) -> Belief {
        let known = link.lower().and_then(|lower| self.0.get(&lower));
        known.copied().unwrap_or(Belief { shape: link.now, known: Known::AtRest, in_use: false })
    }

    /// Returns the belief on the link of this GPU.
    pub fn on_gpu(&self, gpu: u32) -> Option<Belief> {
        self.0.get(&NodeId::Gpu(gpu)).copied()
    }
}

/// Everything that a run saw of the links.
struct Seen<'a> {
    loads: &'a [LinkUnderLoad],
    /// The GPUs over whose PCIe link something was copied.
    used: BTreeSet<u32>,
    /// The fastest copies over each link, by its lower end.
    fastest: HashMap<NodeId, RefutedBy>,
}

impl Seen<'_> {
    fn belief(
        &self,
        link: &Connection,
        is_as_slow_as_at_rest: impl Fn(&Connection) -> bool,
    ) -> Belief {
        let highest = |load: &LinkUnderLoad| load.generation?[1].try_into().ok();
        let most_lanes = |load: &LinkUnderLoad| load.width?[1].try_into().ok();
        let is_full = |generation: Option<Generation>| {
            let full = link.possible.generation;
            full.is_some_and(|full| generation >= Some(full))
        };
        let of_gpu = |gpu| self.loads.iter().find(|load| load.index == gpu);
        // More lanes than possible are a broken reading.
        let load = link.gpu.and_then(of_gpu).filter(|load| {
            let lanes = load.width.zip(link.possible.width);
            lanes.is_none_or(|([_, most], possible)| most <= u8::from(possible))
        });
        let used = link.gpu.is_some_and(|gpu| self.used.contains(&gpu));
        let enough = |load: &LinkUnderLoad| used && load.readings >= READINGS_TO_BELIEVE;
        let under_load = load.filter(|load| enough(load) || is_full(highest(load)));

        // Some ports show fewer lanes at rest, none shows more. Few readings may all be of the time before the copies.
        let width = match under_load.and_then(most_lanes) {
            Some(lanes) => Some(lanes),
            None => link.now.width.max(load.and_then(most_lanes)),
        };
        let (rest, seen) = (link.at_rest.generation, load.and_then(highest));
        let as_at_rest = || link.gpu.is_some() && seen <= rest && is_as_slow_as_at_rest(link);
        let (generation, known) = match under_load.and_then(highest) {
            Some(generation) => (Some(generation), Known::UnderLoad),
            None if as_at_rest() => (rest, Known::ByCopies),
            None if link.gpu.is_some() => (link.possible.generation, Known::AtRest),
            None => (link.now.generation, Known::AtRest),
        };
        let reading = Shape { generation, width };
        let copies = link.lower().and_then(|lower| self.fastest.get(&lower));
        let carried = copies.and_then(|copies| copies.rate());
        let shape = carried.map_or(reading, |carried| explaining(reading, link.possible, carried));
        let known = match (copies, width) {
            (Some(copies), _) if shape != reading => Known::Refuted(*copies),
            _ if known != Known::AtRest => known,
            (_, Some(width)) if link.now.width.is_some_and(|now| now != width) => {
                Known::Refuted(RefutedBy::UnderLoad { width })
            }
            _ => link.refuted.last().map_or(known, |refuted| Known::Refuted(refuted.by)),
        };
        let awake = link.gpu.is_some() && is_full(seen.max(rest));
        Belief { shape, known, in_use: carried.is_some() || used || awake }
    }
}

/// Returns the least shape that explains the rate. A generation falls at rest, but lanes rarely do. The lanes are
/// therefore believed if a higher generation explains the rate. If the lanes of a link are read wrong, none of its
/// readings is believed. A rate that exceeds what both ends together allow refutes nothing, because the rate itself is
/// impossible.
fn explaining(reading: Shape, possible: Shape, carried: GbPerSecond) -> Shape {
    let allows = |shape: &Shape| pcie::rate(*shape).is_some_and(|rate| carried.0 <= rate);
    let best = Shape {
        generation: reading.generation.max(possible.generation),
        width: reading.width.max(possible.width),
    };
    if reading.link().is_none() {
        return reading;
    }
    let faster = Shape { width: reading.width, ..best };
    [reading, faster, best].into_iter().find(allows).unwrap_or(reading)
}

/// Returns the GPUs over whose PCIe link something was copied. Copies over NVLink leave it idle.
fn gpus_over_pcie(measurements: &Measurements, topology: &Topology) -> BTreeSet<u32> {
    let over_nvlink = |pair: Pair| {
        topology.route(pair).is_some_and(|route| matches!(route.class, LinkClass::NvLink(_)))
    };
    let over_pcie = |cell: &Cell<'_>| {
        let with_host = cell.setup.path == Path::Staged || cell.flow.with_host().is_some();
        with_host || cell.flow.pair().is_some_and(|pair| !over_nvlink(pair))
    };
    let copied = measurements.cells().filter(|cell| cell.tested() && over_pcie(cell));
    copied.flat_map(|cell| cell.flow.ends()).filter_map(Endpoint::gpu).collect()
}

/// Returns the fastest copies over each link. Direct copies pass the links of their route. Staged copies, and copies
/// from and to the host, pass the links between the GPUs and the host. A rate of bytes that did not arrive proves
/// nothing.
fn fastest(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: &Measurements,
) -> HashMap<NodeId, RefutedBy> {
    let mut links = HashMap::new();
    for link in
        topology.links.iter().filter(|link| link.kind == LinkKind::Pcie && link.pcie.is_some())
    {
        for ends in [(link.upper, link.lower), (link.lower, link.upper)] {
            links.insert(ends, link.lower);
        }
    }
    let (mut fastest, mut with_host) = (HashMap::new(), HashMap::new());
    for (copies, path, pair) in measurements.peer.iter().filter_map(of_peers) {
        match (path, topology.route(pair)) {
            (Path::Direct, Some(route)) => {
                let passed = route.hops.iter().filter_map(|hop| links.get(&(hop.from, hop.to)));
                passed.for_each(|lower| keep_faster(&mut fastest, *lower, copies));
            }
            (Path::Direct, None) => {}
            (Path::Staged, _) => {
                [pair.source, pair.destination]
                    .into_iter()
                    .for_each(|gpu| keep_faster(&mut with_host, gpu, copies));
            }
        }
    }
    for copy in
        measurements.host.iter().filter(|copy| !host::is_beside_pcie(snapshot, topology, copy.gpu))
    {
        if let Some(copies) = of_host(copy) {
            keep_faster(&mut with_host, copy.gpu, copies);
        }
    }
    for link in topology.links.iter().filter_map(|link| Some((link.lower, link.pcie.as_ref()?))) {
        let (lower, connection) = link;
        let passed = connection.gpus.iter().filter_map(|gpu| with_host.get(gpu));
        passed.for_each(|copies| keep_faster(&mut fastest, lower, *copies));
    }
    fastest
}

/// Returns the sound copies of a figure between GPUs.
pub(super) fn of_peers(cell: &PeerBandwidth) -> Option<(RefutedBy, Path, Pair)> {
    let sound = cell.ending.status == Status::Measured && !cell.verified.is_wrong();
    let achieved_gbps = cell.achieved_gbps.filter(|rate| sound && rate.0.is_finite())?;
    let (pair, path) = (cell.pair, cell.setup.path);
    Some((RefutedBy::Copies { pair, path, achieved_gbps }, path, pair))
}

fn of_host(copy: &HostCopy) -> Option<RefutedBy> {
    let sound = copy.ending.status == Status::Measured && !copy.verified.is_wrong();
    let achieved_gbps = copy.achieved_gbps.filter(|rate| sound && rate.0.is_finite())?;
    Some(RefutedBy::HostCopies { gpu: copy.gpu, achieved_gbps })
}

fn keep_faster<K: std::hash::Hash + Eq>(
    best: &mut HashMap<K, RefutedBy>,
    key: K,
    copies: RefutedBy,
) {
    if best.get(&key).is_none_or(|known| known.rate() < copies.rate()) {
        best.insert(key, copies);
    }
}
