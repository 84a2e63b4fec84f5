//! What several flows at once are expected to reach: max-min fair shares of what healthy machines get through each
//! hop.
//!
//! Two predictions are made of the same graph. What *healthy* machines reach stands beside every figure. What the
//! figures of single flows *explain* is what rules judge by: no flow has more than it reached alone, and a hop whose
//! rate nobody knows carries what one flow got through it. So a slow pair or an old processor accuses no link that is
//! shared.

use std::collections::BTreeMap;

use super::expected::{self, BOTH_WAYS_PCIE, BOTH_WAYS_STAGED, HOST, PCIE_NEAR, as_written};
use super::models::Share;
use crate::model::flow::{Endpoint, Flow, Setup};
use crate::model::host::{HostDirection, HostWay};
use crate::model::load::{LoadFlow, LoadPattern};
use crate::model::measurement::{Measurements, PeerBandwidth};
use crate::model::placement::{Direction, Pair, Path};
use crate::model::snapshot::Snapshot;
use crate::model::topology::{LinkKind, Topology};
use crate::model::units::GbPerSecond;
use crate::topology::load::{self, Load, Step, Together, Ways, passage};
use crate::topology::shares;

/// What is left over NVLink of a GPU's sending while it receives as well: 390 of 394.6 GB/s on 8 x H200, where every
/// GPU sent and received (measured). Per cent.
const SENDING_AND_RECEIVING_PERCENT: f64 = 98.9;

/// What is left over NVLink of a GPU's copies with others while it copies with its host as well: 377 of 388 GB/s for
/// each flow on 2 x H200 (measured). Per cent.
const BESIDE_HOST_PERCENT: f64 = 97.2;

/// What each flow reached alone, GB/s, by what it is judged by.
#[derive(Debug, Clone, Default)]
pub struct Alone {
    /// What all GPUs that copied with the host at once reached together, where several did.
    host_together: BTreeMap<HostDirection, f64>,
    direct: BTreeMap<Pair, f64>,
    staged: BTreeMap<Pair, f64>,
    both_ways: BTreeMap<Pair, f64>,
    host: BTreeMap<(u32, HostDirection), f64>,
}

impl Alone {
    /// Those of these figures.
    pub fn of(measurements: &Measurements) -> Self {
        let rates = |setup: Setup| -> BTreeMap<Pair, f64> {
            let sound = |cell: &PeerBandwidth| cell.cell().tested() && !cell.verified.is_wrong();
            let cells = measurements
                .in_setup(setup)
                .into_iter()
                .filter(|(_, cell)| sound(cell));
            cells
                .filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?.0)))
                .collect()
        };
        let setup = Setup::REFERENCE;
        let mut host: BTreeMap<(u32, HostDirection), f64> = BTreeMap::new();
        for direction in [HostDirection::ToDevice, HostDirection::ToHost] {
            for copy in measurements.host_alone(HostWay::PINNED.with_direction(direction)) {
                if let Some(rate) = copy.rate() {
                    let best = host.entry((copy.gpu, direction)).or_insert(rate.0);
                    *best = best.max(rate.0);
                }
            }
        }
        Self {
            direct: rates(setup),
            staged: rates(setup.with_path(Path::Staged)),
            both_ways: rates(setup.with_direction(Direction::BothWays)),
            host,
            host_together: Self::host_together(measurements).host_together,
        }
    }

    /// Of these figures what several GPUs at once exchanged with the host: no link shows what its memory carries.
    fn host_together(measurements: &Measurements) -> Self {
        let sum = |direction: HostDirection| {
            let way = HostWay::PINNED.with_direction(direction);
            let of_way = || {
                measurements
                    .host
                    .iter()
                    .filter(|copy| copy.way() == way && copy.at_once > 1)
            };
            let most = of_way().map(|copy| copy.at_once).max()?;
            let rates = of_way()
                .filter(|copy| copy.at_once == most)
                .map(|copy| Some(copy.rate()?.0));
            let rates: Vec<f64> = rates.collect::<Option<_>>()?;
            (rates.len() == most as usize).then(|| (direction, rates.iter().sum()))
        };
        let together = [HostDirection::ToDevice, HostDirection::ToHost]
            .into_iter()
            .filter_map(sum);
        Self {
            host_together: together.collect(),
            ..Self::default()
        }
    }

    /// What this flow reached.
    pub fn rate(&self, flow: Flow, path: Path) -> Option<f64> {
        match (flow.pair(), flow.from, flow.to) {
            (Some(pair), ..) if path == Path::Direct => self.direct.get(&pair).copied(),
            (Some(pair), ..) => self.staged.get(&pair).copied(),
            (_, Endpoint::Gpu(gpu), _) => self.host.get(&(gpu, HostDirection::ToHost)).copied(),
            (_, _, Endpoint::Gpu(gpu)) => self.host.get(&(gpu, HostDirection::ToDevice)).copied(),
            _ => None,
        }
    }
}

/// A pattern with what is to be said of its flows.
pub struct Predicted<'a> {
    /// How its flows share the graph.
    pub load: Load<'a>,
    /// The share of theory that each flow reaches alone, where nothing is in its way.
    pub class: Vec<Share>,
    /// What each flow reached alone, GB/s, where that was measured.
    pub alone: Vec<Option<f64>>,
    /// What each flow reached while the opposite direction was busy, GB/s, where it is and that was measured.
    opposed: Vec<Option<f64>>,
    /// What each flow may be expected to reach alone, GB/s.
    caps: Vec<f64>,
    /// What is left of the rate of each flow alone for what else its GPUs do meanwhile.
    kept: Vec<f64>,
    /// What flows with the host share, which no link shows.
    host_memory: Vec<Together>,
}

impl<'a> Predicted<'a> {
    /// Of this pattern.
    pub fn of(
        pattern: &LoadPattern,
        (ways, topology, snapshot): (&Ways<'a>, &Topology, &Snapshot),
        alone: &Alone,
        set: &BTreeMap<String, Share>,
    ) -> Self {
        let flows: Vec<Flow> = pattern.flows.iter().map(LoadFlow::flow).collect();
        let path = |flow: Flow| flow.pair().map_or(Path::Direct, |pair| ways.path(pair));
        let class = |flow: &Flow| match flow.pair().and_then(|pair| topology.route(pair)) {
            Some(route) => {
                expected::share_of(expected::class_of(route, path(*flow), snapshot), set)
            }
            None => expected::share_of(HOST, set),
        };
        let load = Load::of(ways, flows.iter().copied());
        let class: Vec<Share> = flows.iter().map(class).collect();
        let narrowest = |way: &Vec<Step<'_>>| {
            way.iter()
                .filter_map(|(hop, _)| Some(hop.capacity_gbps?.0))
                .reduce(f64::min)
        };
        let beside: Vec<f64> = flows
            .iter()
            .zip(&load.ways)
            .map(|(flow, way)| beside_host(*flow, way, &flows))
            .collect();
        let caps = load
            .ways
            .iter()
            .zip(&class)
            .enumerate()
            .map(|(at, (way, share))| {
                let staged = flows
                    .get(at)
                    .is_some_and(|flow| path(*flow) == Path::Staged);
                let kept = if load.is_opposed(at) {
                    kept(way, staged)
                } else {
                    1.0
                } * beside[at];
                narrowest(way).map_or(f64::INFINITY, |rate| rate * share.percent / 100.0 * kept)
            });
        let caps = caps.collect();
        let of_alone = |(at, way): (usize, &Vec<Step<'_>>)| {
            if load.is_opposed(at) {
                kept(way, false) * beside[at]
            } else {
                beside[at]
            }
        };
        let kept = load.ways.iter().enumerate().map(of_alone).collect();
        let both_ways = |(at, flow): (usize, &Flow)| {
            let pair = flow
                .pair()
                .filter(|pair| load.is_opposed(at) && ways.path(*pair) == Path::Direct)?;
            Some(alone.both_ways.get(&pair)? * beside[at])
        };
        let opposed = flows.iter().enumerate().map(both_ways).collect();
        let host_memory = together(&flows, alone);
        let alone = flows
            .iter()
            .map(|flow| alone.rate(*flow, path(*flow)))
            .collect();
        Self {
            load,
            class,
            alone,
            opposed,
            caps,
            kept,
            host_memory,
        }
    }

    /// What healthy machines reach.
    pub fn healthy(&self, near: Share) -> Vec<Option<shares::Share>> {
        self.load.shares(&self.caps, &self.host_memory, |step| {
            self.carries(step, near)
        })
    }

    /// What the figures of single flows explain.
    pub fn explained(&self, near: Share) -> Vec<Option<shares::Share>> {
        let caps = self.caps_seen();
        let passed = self.load.passed();
        let proven = |step: &Step<'a>| {
            let flows = passed.get(&passage(step)).into_iter().flatten();
            flows
                .filter_map(|flow| caps.get(*flow).copied())
                .filter(|cap| cap.is_finite())
                .reduce(f64::max)
        };
        let unknown = |step: &Step<'a>| (!load::is_no_limit(step)).then(|| proven(step)).flatten();
        self.load.shares(&caps, &self.host_memory, |step| {
            self.carries(step, near).or_else(|| unknown(step))
        })
    }

    /// What each flow may reach at most: what is healthy, and no more than it reached alone.
    fn caps_seen(&self) -> Vec<f64> {
        let alone = self
            .alone
            .iter()
            .zip(&self.kept)
            .map(|(alone, kept)| alone.map_or(f64::INFINITY, |alone| alone * kept));
        let opposed = self
            .opposed
            .iter()
            .map(|opposed| opposed.unwrap_or(f64::INFINITY));
        self.caps
            .iter()
            .zip(alone)
            .zip(opposed)
            .map(|((cap, alone), opposed)| cap.min(alone).min(opposed))
            .collect()
    }

    /// The least that all flows together reach in whatever order they take turns: as much as the slowest of them. Some
    /// hop is always full.
    pub fn in_any_order(&self) -> f64 {
        self.caps_seen().into_iter().fold(f64::INFINITY, f64::min)
    }

    /// What all flows over a hop together may be expected to reach, GB/s.
    fn carries(&self, step: &Step<'a>, near: Share) -> Option<f64> {
        let (from, to) = passage(step);
        let passing = |way: &&Vec<Step<'a>>| way.iter().any(|other| passage(other) == (from, to));
        let of_flows = self
            .load
            .ways
            .iter()
            .zip(&self.class)
            .filter(|(way, _)| passing(way));
        let best = of_flows.map(|(_, share)| share.percent).fold(0.0, f64::max);
        // Copies that cross a processor lose to that, not to the links before it.
        let percent = if step.1.kind == LinkKind::Pcie {
            best.max(near.percent)
        } else {
            best
        };
        let kept = if self.load.step((to, from)).is_some() {
            kept(std::slice::from_ref(step), false)
        } else {
            1.0
        };
        Some(step.0.capacity_gbps?.0 * percent / 100.0 * kept)
    }

    /// How far below what is expected a sum may be, per cent: as far as any of its flows.
    pub fn margin_percent(&self) -> f64 {
        self.class
            .iter()
            .map(|share| share.margin_percent)
            .fold(0.0, f64::max)
    }

    /// The sum of what the flows of these places reached alone; none where one was not measured.
    pub fn sum_alone(&self, flows: &[usize]) -> Option<f64> {
        flows
            .iter()
            .map(|flow| self.alone.get(*flow).copied().flatten())
            .sum()
    }

    /// Whether every flow of these places that was measured alone reached there what is healthy.
    pub fn are_healthy_alone(&self, flows: &[usize]) -> bool {
        let is_low = |flow: &usize| {
            let (alone, cap, share) = (
                self.alone.get(*flow)?,
                self.caps.get(*flow)?,
                self.class.get(*flow)?,
            );
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

/// The part of a rate over NVLink that is left while a GPU at either end copies with its host.
fn beside_host(flow: Flow, way: &[Step<'_>], all: &[Flow]) -> f64 {
    let over_nvlink = way.iter().any(|(_, link)| link.kind == LinkKind::NvLink);
    let ends = flow.ends();
    let is_beside = |other: &Flow| {
        other
            .with_host()
            .is_some_and(|gpu| ends.contains(&Endpoint::Gpu(gpu)))
    };
    if over_nvlink && flow.pair().is_some() && all.iter().any(is_beside) {
        BESIDE_HOST_PERCENT / 100.0
    } else {
        1.0
    }
}

/// What flows with the host share in each direction, where it was measured what several have together.
fn together(flows: &[Flow], alone: &Alone) -> Vec<Together> {
    let of = |(direction, gbps): (&HostDirection, &f64)| {
        let is_meant = |flow: &Flow| {
            flow.with_host().is_some()
                && flow.to.gpu().is_some() == (*direction == HostDirection::ToDevice)
        };
        let flows: Vec<usize> = (0..)
            .zip(flows)
            .filter(|(_, flow)| is_meant(flow))
            .map(|(at, _)| at)
            .collect();
        (flows.len() > 1).then_some(Together { flows, gbps: *gbps })
    };
    alone.host_together.iter().filter_map(of).collect()
}

/// The part of a rate that is left while the opposite direction of these hops is busy.
fn kept(way: &[Step<'_>], staged: bool) -> f64 {
    let over_nvlink = way.iter().any(|(_, link)| link.kind == LinkKind::NvLink);
    let percent = match (staged, over_nvlink) {
        (true, _) => BOTH_WAYS_STAGED.percent,
        (_, true) => SENDING_AND_RECEIVING_PERCENT,
        _ => BOTH_WAYS_PCIE.percent,
    };
    percent / 100.0
}

/// What copies over PCIe that never reach a processor get of a link.
pub fn near(set: &BTreeMap<String, Share>) -> Share {
    expected::share_of(PCIE_NEAR, set)
}

/// Writes beside every figure what was expected of it, and how evenly the flows shared it.
pub fn fill(
    measurements: &mut Measurements,
    topology: &Topology,
    snapshot: &Snapshot,
    set: &BTreeMap<String, Share>,
) {
    if measurements.load.is_empty() {
        return;
    }
    let ways = Ways::of(snapshot, topology);
    let alone = Alone::host_together(measurements);
    for pattern in &mut measurements.load {
        let shares =
            Predicted::of(pattern, (&ways, topology, snapshot), &alone, set).healthy(near(set));
        for (flow, share) in pattern.flows.iter_mut().zip(&shares) {
            flow.expected_gbps = share.map(|share| as_written(GbPerSecond(share.gbps)));
        }
        pattern.expected_gbps = load::sum(&shares).map(as_written);
        let rates = pattern.achieved_gbps.zip(pattern.expected_gbps);
        pattern.expected_percent =
            rates.map(|(achieved, expected)| as_written(achieved).percent_of(expected));
        pattern.fairness = fairness(&pattern.flows);
    }
}

/// The part that each flow has of what it should, GB/s of GB/s; of equal flows where that is not known.
pub fn parts(flows: &[LoadFlow]) -> Option<Vec<f64>> {
    let known = flows
        .iter()
        .all(|flow| flow.expected_gbps.is_some_and(|expected| expected.0 > 0.0));
    let part = |flow: &LoadFlow| {
        let expected = if known { flow.expected_gbps?.0 } else { 1.0 };
        Some(as_written(flow.achieved_gbps?).0 / expected)
    };
    flows.iter().map(part).collect()
}

/// Jain's index of what the flows have of what they should (Jain, Chiu, Hawe: A Quantitative Measure of Fairness,
/// DEC-TR-301, 1984).
#[allow(clippy::cast_precision_loss, reason = "a number of flows")]
fn fairness(flows: &[LoadFlow]) -> Option<f64> {
    let parts = parts(flows).filter(|parts| parts.len() > 1)?;
    let (sum, squares) = (
        parts.iter().sum::<f64>(),
        parts.iter().map(|part| part * part).sum::<f64>(),
    );
    (squares > 0.0).then(|| sum * sum / (parts.len() as f64 * squares))
}

#[cfg(test)]
#[path = "expected_load_tests.rs"]
mod tests;
