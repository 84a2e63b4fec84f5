//! Rates that several flows at once are expected to reach: max-min fair shares of what healthy machines get through
//! each hop.
//!
//! Two predictions are made of the same graph. Every figure has the rate that *healthy* machines reach beside it. Rules
//! judge by the rate that single flows *explain*: no flow has more than it reached alone, and a hop of unknown rate
//! carries what one flow got through it. So a slow pair or an old processor does not make a shared link look faulty.

use std::collections::BTreeMap;

use super::expected::{
    self, BOTH_WAYS_PCIE, BOTH_WAYS_STAGED, HOST, Machine, PCIE_NEAR, as_written, percent,
};
use super::models::Share;
use model::cell::Measurement;
use model::flow::{Endpoint, Flow, Setup};
use model::host::{HostDirection, HostWay};
use model::load::{LoadFlow, LoadPattern};
use model::measurement::{Measurements, PeerBandwidth};
use model::placement::{Direction, Engine, Pair, Path};
use model::snapshot::Snapshot;
use model::topology::{LinkKind, Topology};
use model::units::GbPerSecond;
use topology::load::{self, Leg, Load, Together, Ways, passage};
use topology::shares;

/// Share that is left over NVLink of a GPU's sending while it receives as well: 390 of 394.6 GB/s on 8 x H200, where
/// every GPU sent and received (measured). Per cent.
const SENDING_AND_RECEIVING_PERCENT: f64 = 98.9;

/// Rates of each flow alone, GB/s, by pair or by GPU and direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alone {
    /// Sum over all GPUs that copied with the host at once, if several did.
    host_together: BTreeMap<HostDirection, f64>,
    direct: BTreeMap<Pair, f64>,
    by_kernel: BTreeMap<Pair, f64>,
    staged: BTreeMap<Pair, f64>,
    both_ways: BTreeMap<Pair, f64>,
    /// By GPU, direction, and NUMA node of the host's memory.
    host: BTreeMap<(u32, HostDirection), BTreeMap<Option<u32>, f64>>,
}

impl Alone {
    /// Collects the rates of these measurements.
    pub(crate) fn of(measurements: &Measurements) -> Self {
        let rates = |setup: Setup| -> BTreeMap<Pair, f64> {
            let sound = |cell: &PeerBandwidth| cell.cell().tested() && !cell.verified.is_wrong();
            let cells = measurements.in_setup(setup).into_iter().filter(|(_, cell)| sound(cell));
            cells.filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?.0))).collect()
        };
        let setup = Setup::REFERENCE;
        let mut host: BTreeMap<_, BTreeMap<Option<u32>, f64>> = BTreeMap::new();
        for direction in [HostDirection::ToDevice, HostDirection::ToHost] {
            for copy in measurements.host_alone(HostWay::PINNED.with_direction(direction)) {
                if let Some(rate) = copy.rate() {
                    let nodes = host.entry((copy.gpu, direction)).or_default();
                    nodes.insert(copy.numa_node, rate.0);
                }
            }
        }
        Self {
            direct: rates(setup),
            by_kernel: rates(setup.with_engine(Engine::Kernel)),
            staged: rates(setup.with_path(Path::Staged)),
            both_ways: rates(setup.with_direction(Direction::BothWays)),
            host,
            host_together: Self::host_together(measurements).host_together,
        }
    }

    /// Collects only what several GPUs at once exchanged with the host: no link shows what its memory carries.
    fn host_together(measurements: &Measurements) -> Self {
        let sum = |direction: HostDirection| {
            let way = HostWay::PINNED.with_direction(direction);
            let of_way =
                || measurements.host.iter().filter(|copy| copy.way() == way && copy.at_once > 1);
            let most = of_way().map(|copy| copy.at_once).max()?;
            let rates =
                of_way().filter(|copy| copy.at_once == most).map(|copy| Some(copy.rate()?.0));
            let rates: Vec<f64> = rates.collect::<Option<_>>()?;
            (rates.len() == most as usize).then(|| (direction, rates.iter().sum()))
        };
        let together = [HostDirection::ToDevice, HostDirection::ToHost].into_iter().filter_map(sum);
        Self { host_together: together.collect(), ..Self::default() }
    }

    /// Returns the rate of this flow alone.
    pub(crate) fn rate(&self, flow: Flow, path: Path, engine: Engine) -> Option<f64> {
        match (flow.pair(), flow.from, flow.to) {
            (Some(pair), ..) if engine == Engine::Kernel => self.by_kernel.get(&pair).copied(),
            (Some(pair), ..) if path == Path::Direct => self.direct.get(&pair).copied(),
            (Some(pair), ..) => self.staged.get(&pair).copied(),
            (_, Endpoint::Gpu(gpu), Endpoint::Host { node, .. }) => {
                self.with_host(gpu, HostDirection::ToHost, node)
            }
            (_, Endpoint::Host { node, .. }, Endpoint::Gpu(gpu)) => {
                self.with_host(gpu, HostDirection::ToDevice, node)
            }
            _ => None,
        }
    }

    /// Returns the rate with memory of this node, or the lowest of all nodes if that was not measured.
    fn with_host(&self, gpu: u32, direction: HostDirection, node: Option<u32>) -> Option<f64> {
        let nodes = self.host.get(&(gpu, direction))?;
        let lowest = || nodes.values().copied().min_by(f64::total_cmp);
        nodes.get(&node).copied().or_else(lowest)
    }
}

/// A pattern with the predictions for its flows.
pub(crate) struct Predicted<'a> {
    /// The prediction of how its flows share the graph.
    pub load: Load<'a>,
    /// The share of theory that each flow reaches alone without an obstacle.
    pub class: Vec<Share>,
    /// Rate of each flow alone, GB/s, if that was measured.
    pub alone: Vec<Option<f64>>,
    /// Rate of each flow while the opposite direction was busy, GB/s, if it is busy and that was measured.
    opposed: Vec<Option<f64>>,
    /// Expected rate of each flow alone, GB/s.
    caps: Vec<f64>,
    /// Part of the rate of each flow alone that is left while the opposite direction is busy.
    kept: Vec<f64>,
    /// Limits that flows with the host share, which no link shows.
    host_memory: Vec<Together>,
    /// The GPU whose copy engine makes the copies of a flow between GPUs.
    copied_by: Vec<Option<u32>>,
}

impl<'a> Predicted<'a> {
    /// Predicts this pattern.
    pub(crate) fn of(
        pattern: &LoadPattern,
        (ways, topology, snapshot): (&Ways<'a>, &Topology, &Snapshot),
        alone: &Alone,
        set: &BTreeMap<String, Share>,
    ) -> Self {
        let flows: Vec<Flow> = pattern.flows.iter().map(LoadFlow::flow).collect();
        let path = |flow: Flow| flow.pair().map_or(Path::Direct, |pair| ways.path(pair));
        let engine = pattern.pattern.engine();
        let class = |flow: &Flow| match flow.pair().and_then(|pair| topology.route(pair)) {
            Some(route) => {
                let class = expected::class_of(route, path(*flow), snapshot);
                expected::moved_by(engine, expected::share_of(class, set))
            }
            None => expected::share_of(HOST, set),
        };
        let load = Load::of(ways, flows.iter().copied());
        let class: Vec<Share> = flows.iter().map(class).collect();
        let narrowest = |way: &Vec<Leg<'_>>| {
            way.iter().filter_map(|(hop, _)| Some(hop.capacity_gbps?.0)).reduce(f64::min)
        };
        let caps = load.ways.iter().zip(&class).enumerate().map(|(at, (way, share))| {
            let staged = flows.get(at).is_some_and(|flow| path(*flow) == Path::Staged);
            let kept = if load.is_opposed(at) { kept(way, staged) } else { 1.0 };
            narrowest(way).map_or(f64::INFINITY, |rate| rate * share.percent / 100.0 * kept)
        });
        let caps = caps.collect();
        let of_alone = |(at, way): (usize, &Vec<Leg<'_>>)| {
            if load.is_opposed(at) { kept(way, false) } else { 1.0 }
        };
        let kept = load.ways.iter().enumerate().map(of_alone).collect();
        let both_ways = |(at, flow): (usize, &Flow)| {
            let pair = flow
                .pair()
                .filter(|pair| load.is_opposed(at) && ways.path(*pair) == Path::Direct)?;
            alone.both_ways.get(&pair).copied()
        };
        let opposed = flows.iter().enumerate().map(both_ways).collect();
        let host_memory = together(&flows, alone);
        let by_engine =
            |flow: &Flow| flow.pair().filter(|_| engine == Engine::Copy).map(|pair| pair.source);
        let copied_by = flows.iter().map(by_engine).collect();
        let alone = flows.iter().map(|flow| alone.rate(*flow, path(*flow), engine)).collect();
        Self { load, class, alone, opposed, caps, kept, host_memory, copied_by }
    }

    /// Returns the shares that healthy machines reach.
    pub(crate) fn healthy(&self, near: Share) -> Vec<Option<shares::FairShare>> {
        self.load.shares(&self.caps, &self.together(&self.caps), |step| self.carries(step, near))
    }

    /// Returns the shares that the figures of single flows explain.
    pub(crate) fn explained(&self, near: Share) -> Vec<Option<shares::FairShare>> {
        let caps = self.caps_seen();
        let passed = self.load.passed();
        let proven = |step: &Leg<'a>| {
            let flows = passed.get(&passage(step)).into_iter().flatten();
            flows
                .filter_map(|flow| caps.get(*flow).copied())
                .filter(|cap| cap.is_finite())
                .reduce(f64::max)
        };
        let unknown = |step: &Leg<'a>| (!load::is_no_limit(step)).then(|| proven(step)).flatten();
        self.load.shares(&caps, &self.together(&caps), |step| {
            self.carries(step, near).or_else(|| unknown(step))
        })
    }

    /// Returns the limits that no link shows, of flows that have these rates alone.
    fn together(&self, alone: &[f64]) -> Vec<Together> {
        let mut limits = self.host_memory.clone();
        limits.extend(shares::in_turn(self.copied_by.iter().copied(), alone));
        limits
    }

    /// Returns the highest rate of each flow: the healthy rate, and no more than it reached alone.
    fn caps_seen(&self) -> Vec<f64> {
        let alone = self
            .alone
            .iter()
            .zip(&self.kept)
            .map(|(alone, kept)| alone.map_or(f64::INFINITY, |alone| alone * kept));
        let opposed = self.opposed.iter().map(|opposed| opposed.unwrap_or(f64::INFINITY));
        self.caps
            .iter()
            .zip(alone)
            .zip(opposed)
            .map(|((cap, alone), opposed)| cap.min(alone).min(opposed))
            .collect()
    }

    /// Returns the expected rate of all flows over a hop together, GB/s.
    pub(crate) fn carries(&self, step: &Leg<'a>, near: Share) -> Option<f64> {
        let (from, to) = passage(step);
        let passing = |way: &&Vec<Leg<'a>>| way.iter().any(|other| passage(other) == (from, to));
        let of_flows = self.load.ways.iter().zip(&self.class).filter(|(way, _)| passing(way));
        let best = of_flows.map(|(_, share)| share.percent).fold(0.0, f64::max);
        // Copies that cross a processor lose rate there, not on the links before it.
        let percent = if step.1.kind == LinkKind::Pcie { best.max(near.percent) } else { best };
        let kept = if self.load.step((to, from)).is_some() {
            kept(std::slice::from_ref(step), false)
        } else {
            1.0
        };
        Some(step.0.capacity_gbps?.0 * percent / 100.0 * kept)
    }

    /// Returns how far below the expected rate a sum may be, per cent: the largest margin of its flows.
    pub(crate) fn margin_percent(&self) -> f64 {
        self.class.iter().map(|share| share.margin_percent).fold(0.0, f64::max)
    }

    /// Returns the sum of the rates alone of the flows at these indices; `None` if one was not measured.
    pub(crate) fn sum_alone(&self, flows: &[usize]) -> Option<f64> {
        flows.iter().map(|flow| self.alone.get(*flow).copied().flatten()).sum()
    }

    /// Returns true if every flow at these indices that was measured alone reached a healthy rate.
    pub(crate) fn are_healthy_alone(&self, flows: &[usize]) -> bool {
        let is_low = |flow: &usize| {
            let (alone, cap, share) =
                (self.alone.get(*flow)?, self.caps.get(*flow)?, self.class.get(*flow)?);
            let seen = [*alone, self.opposed.get(*flow).copied().flatten()];
            Some(
                seen.into_iter()
                    .flatten()
                    .any(|seen| seen < cap * (1.0 - share.margin_percent / 100.0)),
            )
        };
        !flows.iter().any(|flow| is_low(flow).unwrap_or(false))
    }
}

/// Returns the limits that flows with the host share in each direction, if the sum of several was measured.
fn together(flows: &[Flow], alone: &Alone) -> Vec<Together> {
    let of = |(direction, gbps): (&HostDirection, &f64)| {
        let is_meant = |flow: &Flow| {
            flow.with_host().is_some()
                && flow.to.gpu().is_some() == (*direction == HostDirection::ToDevice)
        };
        let flows: Vec<usize> =
            (0..).zip(flows).filter(|(_, flow)| is_meant(flow)).map(|(at, _)| at).collect();
        (flows.len() > 1).then_some(Together { flows, gbps: *gbps })
    };
    alone.host_together.iter().filter_map(of).collect()
}

/// Returns the part of a rate that is left while the opposite direction of these hops is busy.
fn kept(way: &[Leg<'_>], staged: bool) -> f64 {
    let over_nvlink = way.iter().any(|(_, link)| link.kind == LinkKind::NvLink);
    let percent = match (staged, over_nvlink) {
        (true, _) => BOTH_WAYS_STAGED.percent,
        (_, true) => SENDING_AND_RECEIVING_PERCENT,
        _ => BOTH_WAYS_PCIE.percent,
    };
    percent / 100.0
}

/// Returns the share of a link that copies over PCIe get if they never reach a processor.
pub(crate) fn near(set: &BTreeMap<String, Share>) -> Share {
    expected::share_of(PCIE_NEAR, set)
}

/// Writes beside every figure what the machine as it is, and the healthy one, should reach.
pub(super) fn fill(
    measurements: &mut Measurements,
    is: Machine<'_>,
    healthy: Machine<'_>,
    set: &BTreeMap<String, Share>,
) {
    if measurements.load.is_empty() {
        return;
    }
    let alone = Alone::host_together(measurements);
    let [is_ways, healthy_ways] = [is, healthy].map(|(facts, graph)| Ways::of(facts, graph));
    for pattern in &mut measurements.load {
        let shares = |ways, (snapshot, topology): Machine<'_>| {
            Predicted::of(pattern, (ways, topology, snapshot), &alone, set).healthy(near(set))
        };
        let (is, healthy) = (shares(&is_ways, is), shares(&healthy_ways, healthy));
        let rate =
            |share: &Option<shares::FairShare>| share.map(|one| as_written(GbPerSecond(one.gbps)));
        for (flow, (is, healthy)) in pattern.flows.iter_mut().zip(is.iter().zip(&healthy)) {
            (flow.expected_gbps, flow.healthy_gbps) = (rate(is), rate(healthy));
        }
        pattern.expected_gbps = load::sum(&is).map(as_written);
        pattern.expected_percent = percent(pattern.achieved_gbps, pattern.expected_gbps);
        pattern.healthy_gbps = load::sum(&healthy).map(as_written);
        pattern.healthy_percent = percent(pattern.achieved_gbps, pattern.healthy_gbps);
    }
}

#[cfg(test)]
#[path = "expected_load_tests.rs"]
mod tests;
