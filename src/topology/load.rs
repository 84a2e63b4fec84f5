//! Capacity for several flows at once: the hops that each flow passes, its shares of them, and the hop that limits
//! it.

use std::collections::{BTreeMap, BTreeSet};

use super::host::is_beside_pcie;
use super::network::Network;
pub use super::shares::Together;
use super::shares::{FairShare, Passage, max_min};
use super::{graph, nvlink, routes};
use model::cell::Measurement;
use model::flow::{Endpoint, Flow};
use model::load::{LoadFlow, LoadPattern};
use model::measurement::{Impossible, Measurements, PeerBandwidth, Status};
use model::node::NodeId;
use model::placement::{Pair, Path};
use model::snapshot::Snapshot;
use model::topology::{Hop, Link, LinkClass, LinkKind, Topology};
use model::units::GbPerSecond;

/// Tolerance by which a sum may exceed the capacity of a hop before it is refused, per cent. Chosen: nothing is
/// subtracted from these figures, and healthy machines reach 62 to 92% of the capacity.
const ABOVE_PERCENT: f64 = 2.0;

/// The graph in which the ways of flows are looked up.
pub struct Ways<'a> {
    snapshot: &'a Snapshot,
    network: Network<'a>,
}

/// A hop of a way with its link.
pub type Leg<'a> = (Hop, &'a Link);

/// Returns the link and direction of a hop.
pub const fn passage(step: &Leg<'_>) -> Passage {
    (step.0.from, step.0.to)
}

impl<'a> Ways<'a> {
    /// Creates the ways of this machine.
    pub fn of(snapshot: &'a Snapshot, topology: &'a Topology) -> Self {
        Self { snapshot, network: Network::of(topology) }
    }

    /// Returns the hops that the copies of a flow pass: the direct way, unless CUDA refuses it. Empty if the way is
    /// not known.
    pub fn way(&self, flow: Flow) -> Vec<Leg<'a>> {
        match (flow.pair(), flow.with_host()) {
            (Some(pair), _) => self.between(pair),
            (_, Some(gpu)) => self.with_host(flow, gpu),
            _ => Vec::new(),
        }
    }

    /// Returns the path of a pair's copies: direct, or through the host if CUDA refuses access.
    pub fn path(&self, pair: Pair) -> Path {
        let refused = self
            .network
            .topology
            .route(pair)
            .is_some_and(|route| route.peer_access.cuda == Some(false));
        if refused { Path::Staged } else { Path::Direct }
    }

    fn between(&self, pair: Pair) -> Vec<Leg<'a>> {
        let topology = self.network.topology;
        if self.path(pair) == Path::Staged {
            let [mut way, down] =
                [pair.source, pair.destination].map(|gpu| topology.way_up(NodeId::Gpu(gpu)));
            way.extend(down.into_iter().rev());
            way.dedup();
            return self.network.over_pcie(&way);
        }
        let Some(route) = topology.route(pair) else {
            return Vec::new();
        };
        let way: Vec<NodeId> = route.hops.first().map(|hop| hop.from).into_iter().collect();
        let way: Vec<NodeId> = way.into_iter().chain(route.hops.iter().map(|hop| hop.to)).collect();
        match route.class {
            LinkClass::NvLink(_) => self.network.over_nvlink(&way),
            // Links that are up may carry data even if the fabric's state denies it.
            _ if self.may_pass_switches(pair) => Vec::new(),
            _ => self.network.over_pcie(&way),
        }
    }

    fn may_pass_switches(&self, pair: Pair) -> bool {
        let ends = [pair.source, pair.destination].map(|gpu| self.snapshot.gpu(gpu));
        ends.into_iter().all(|gpu| gpu.is_some_and(nvlink::may_reach_switches))
    }

    /// Returns the way over the links between the GPU and the root, and on to the memory of another node if needed.
    fn with_host(&self, flow: Flow, gpu: u32) -> Vec<Leg<'a>> {
        if is_beside_pcie(self.snapshot, self.network.topology, gpu) {
            return Vec::new();
        }
        let mut way = self.network.topology.way_up(NodeId::Gpu(gpu));
        let node = flow.ends().into_iter().find_map(Endpoint::node).flatten();
        let elsewhere =
            node.map(|node| NodeId::Numa(Some(node))).filter(|node| way.last() != Some(node));
        // If the graph shows no way to that node, only the way to the GPU's own node is known.
        way.extend(elsewhere.filter(|node| {
            way.last().is_some_and(|last| !self.network.over_pcie(&[*last, *node]).is_empty())
        }));
        if flow.to.gpu().is_some() {
            way.reverse();
        }
        self.network.over_pcie(&way)
    }

    /// Describes a hop so that someone can find it in the machine.
    pub fn describe(&self, passage: Passage) -> String {
        self.step(passage)
            .map(|(hop, link)| routes::describe(&self.network, &hop, link))
            .unwrap_or_default()
    }

    /// Returns the hop with its link.
    pub fn step(&self, (from, to): Passage) -> Option<Leg<'a>> {
        let over_nvlink = self.network.over_nvlink(&[from, to]);
        over_nvlink.into_iter().chain(self.network.over_pcie(&[from, to])).next()
    }

    /// Returns the most that a link can carry, regardless of how it trained and what it shows at rest, GB/s. Returns
    /// `None` for ports above a GPU in a virtual machine, because these ports are made up.
    fn most(&self, link: &Link) -> Option<f64> {
        let made_up = self.snapshot.host.virtual_machine.get() == Some(true);
        let is_known = link.kind == LinkKind::NvLink || link.lower.is_gpu() || !made_up;
        let rates = link.possible_gbps.into_iter().chain(link.capacity_gbps).map(|rate| rate.0);
        rates.reduce(f64::max).filter(|_| is_known)
    }
}

/// Returns true if a hop has no limit of its own: the inside of a switch or a root port carries what its links carry.
pub fn is_no_limit(step: &Leg<'_>) -> bool {
    let port = step.1.kind == LinkKind::RootComplex && matches!(step.1.lower, NodeId::Pci(_));
    is_inside_switch(step) || port
}

/// Returns true if a hop lies between two ports of one switch.
pub fn is_inside_switch(step: &Leg<'_>) -> bool {
    step.1.label == graph::INSIDE_SWITCH
}

/// Returns an artificial hop that belongs to no link, a different one for each joint limit.
fn artificial(number: usize) -> Passage {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    (NodeId::Numa(None), NodeId::Gpu(u32::MAX - number))
}

/// The flows of a load and the hops that they pass.
#[derive(Debug)]
pub struct Load<'a> {
    /// Hops of each flow, in the order of the flows.
    pub ways: Vec<Vec<Leg<'a>>>,
}

impl<'a> Load<'a> {
    /// Creates the load of these flows, all at once.
    pub fn of(ways: &Ways<'a>, flows: impl IntoIterator<Item = Flow>) -> Self {
        Self { ways: flows.into_iter().map(|flow| ways.way(flow)).collect() }
    }

    /// Returns every hop with the indices of the flows that pass it.
    pub fn passed(&self) -> BTreeMap<Passage, Vec<usize>> {
        let mut passed: BTreeMap<Passage, Vec<usize>> = BTreeMap::new();
        for (flow, way) in self.ways.iter().enumerate() {
            way.iter().for_each(|step| passed.entry(passage(step)).or_default().push(flow));
        }
        passed
    }

    /// Returns the step of this hop.
    pub fn step(&self, of: Passage) -> Option<&Leg<'a>> {
        self.ways.iter().flatten().find(|step| passage(step) == of)
    }

    /// Returns true if another flow passes a hop of this flow in the other direction.
    pub fn is_opposed(&self, flow: usize) -> bool {
        let opposite = |(from, to): Passage| self.step((to, from)).is_some();
        self.ways.get(flow).into_iter().flatten().any(|step| opposite(passage(step)))
    }

    /// Returns the share of each flow if hops carry `carries` and flows can use no more than `caps`, GB/s. `None` for
    /// a flow none of whose hops is known.
    pub fn shares(
        &self,
        caps: &[f64],
        together: &[Together],
        carries: impl Fn(&Leg<'a>) -> Option<f64>,
    ) -> Vec<Option<FairShare>> {
        let hops = self.limits(carries);
        let limits: Vec<&Together> = hops.iter().map(|(_, hop)| hop).chain(together).collect();
        let by = |number: usize| match hops.get(number) {
            Some((hop, _)) => *hop,
            None => artificial(number - hops.len()),
        };
        let named = |share: FairShare<usize>| FairShare { gbps: share.gbps, by: share.by.map(by) };
        let shares = max_min(caps, &limits);
        shares.into_iter().map(|share| share.map(named)).collect()
    }

    /// Returns the limit of every hop whose rate is known, in the order in which flows pass them first.
    pub fn limits(&self, carries: impl Fn(&Leg<'a>) -> Option<f64>) -> Vec<(Passage, Together)> {
        let passed = self.passed();
        let mut seen = BTreeSet::new();
        let first = |step: &&Leg<'a>| seen.insert(passage(step));
        let steps: Vec<&Leg<'a>> = self.ways.iter().flatten().filter(first).collect();
        let limit = |step: &Leg<'a>| {
            let flows = passed.get(&passage(step))?.clone();
            let gbps = carries(step)?;
            Some((passage(step), Together { flows, gbps }))
        };
        steps.into_iter().filter_map(limit).collect()
    }

    /// Returns the shares that the graph alone allows.
    fn theory(&self) -> Vec<Option<FairShare>> {
        self.shares(&vec![f64::INFINITY; self.ways.len()], &[], |(hop, _)| {
            Some(hop.capacity_gbps?.0)
        })
    }
}

/// Returns the sum of all shares, or `None` if one is not known.
pub fn sum(shares: &[Option<FairShare>]) -> Option<GbPerSecond> {
    let all: Option<Vec<f64>> = shares.iter().map(|share| share.map(|share| share.gbps)).collect();
    all.filter(|all| !all.is_empty()).map(|all| GbPerSecond(all.iter().sum()))
}

/// Returns the hop that limits the most flows, and how many other hops limit as many.
pub fn limit(shares: &[Option<FairShare>]) -> Option<(Passage, usize)> {
    let mut kept: BTreeMap<Passage, usize> = BTreeMap::new();
    for hop in shares.iter().flatten().filter_map(|share| share.by) {
        *kept.entry(hop).or_default() += 1;
    }
    let most = kept.values().copied().max()?;
    let mut fullest = kept.into_iter().filter(|(_, flows)| *flows == most).map(|(hop, _)| hop);
    Some((fullest.next()?, fullest.count()))
}

/// Adds the theoretical rate and the limiting hop to every figure. Calling it twice changes nothing.
pub fn fill(snapshot: &Snapshot, topology: &Topology, loads: &mut [LoadPattern]) {
    if loads.is_empty() {
        return;
    }
    let ways = Ways::of(snapshot, topology);
    for pattern in loads {
        let load = Load::of(&ways, pattern.flows.iter().map(LoadFlow::flow));
        let shares = load.theory();
        let is_new = super::set_theory(
            (sum(&shares), pattern.achieved_gbps),
            (&mut pattern.theoretical_gbps, &mut pattern.percent),
        );
        if is_new || pattern.limited_by.is_none() {
            let named = |(hop, others)| named(&ways, &load, hop, others);
            pattern.limited_by = limit(&shares).map(named);
        }
    }
}

/// Describes the hop: `18 x NVLink 4.0 of GPU 3, shared by 7 flows`, `18 x NVLink 4.0 of GPU 0, and 7 hops like it`.
fn named(ways: &Ways<'_>, load: &Load<'_>, hop: Passage, others: usize) -> String {
    let place = ways.describe(hop);
    let flows = load.passed().get(&hop).map_or(1, Vec::len);
    let shared = if flows > 1 { format!(", shared by {flows} flows") } else { String::new() };
    let alike = match others {
        0 => String::new(),
        1 => ", and another hop like it".into(),
        more => format!(", and {more} hops like it"),
    };
    format!("{place}{shared}{alike}")
}

/// Removes the figures of flows that cannot have run at the same time: their sum exceeds the capacity of a hop that
/// several of them pass. Each rate alone would be possible, so the flows ran one after another. Calling it twice
/// changes nothing.
pub fn refuse(snapshot: &Snapshot, topology: &Topology, measurements: &mut Measurements) {
    if measurements.load.is_empty() {
        return;
    }
    let ways = Ways::of(snapshot, topology);
    let alone: BTreeMap<Pair, f64> =
        measurements.reference(Path::Direct).into_iter().filter_map(rate_of).collect();
    let mut found = Vec::new();
    for pattern in
        measurements.load.iter_mut().filter(|pattern| pattern.ending.status == Status::Measured)
    {
        let Some(why) = beyond(&ways, pattern, &alone) else {
            continue;
        };
        let flow = pattern.flows.first().map(|flow| flow.flow().to_string()).unwrap_or_default();
        found.push(Impossible {
            flow,
            measurement: format!("load, {}", pattern.name()),
            why: why.clone(),
        });
        pattern.forget();
        (pattern.ending.status, pattern.ending.reason) =
            (Status::Skipped, Some(format!("set aside: {why}")));
    }
    measurements.impossible.extend(found);
}

fn rate_of((pair, cell): (Pair, &PeerBandwidth)) -> Option<(Pair, f64)> {
    Some((pair, cell.achieved_gbps?.0))
}

/// Returns why these figures are impossible, or `None` if they are possible. If a single flow exceeds the capacity of
/// a hop, the data about the hop is wrong, which `figure-impossible` reports.
fn beyond(ways: &Ways<'_>, pattern: &LoadPattern, alone: &BTreeMap<Pair, f64>) -> Option<String> {
    let load = Load::of(ways, pattern.flows.iter().map(LoadFlow::flow));
    let rate = |flow: &usize| Some(pattern.flows.get(*flow)?.achieved_gbps?.0);
    load.passed().into_iter().filter(|(_, flows)| flows.len() > 1).find_map(|(hop, flows)| {
        let sum: f64 = flows.iter().filter_map(rate).sum();
        let most = ways.most(load.step(hop)?.1)? * (1.0 + ABOVE_PERCENT / 100.0);
        let single = |flow: &usize| alone.get(&pattern.flows.get(*flow)?.flow().pair()?).copied();
        let is_wrong = flows.iter().filter_map(single).any(|rate| rate > most);
        (sum > most && !is_wrong).then(|| {
            let most = most / (1.0 + ABOVE_PERCENT / 100.0);
            let (sum, most, flows) = (GbPerSecond(sum), GbPerSecond(most), flows.len());
            let place = ways.describe(hop);
            format!("{sum} GB/s of {flows} flows through {place}, which carries {most} at most: they did not run at the same time")
        })
    })
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
