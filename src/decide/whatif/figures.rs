//! The figures of a changed machine.
//!
//! A flow whose way did not change keeps its figure. One whose links changed keeps its part of what they carry; if it was
//! below the others of its kind, something else limited it, and it gets no faster. One with another way gets what others
//! of its kind get.

use std::collections::BTreeMap;

use diagnose::Settings;
use diagnose::expected;
use explain::Foresight;
use model::cell::Measurement;
use model::flow::{Flow, HostMemory, Setup};
use model::host::{Allocation, HostDirection, HostWay};
use model::measurement::{Measurements, PeerBandwidth};
use model::placement::{Direction, Pair, Path};
use model::report::Report;
use model::topology::{Hop, LinkClass};
use model::units::GbPerSecond;
use topology::load::Ways;

use super::change::Changed;

/// Part of what others of its kind reach below which something else than its links limits a flow. Chosen: twice the
/// difference between equal flows of healthy machines over PCIe (docs/dev/facts.md).
const LIMITED_BELOW: f64 = 0.9;

/// A kind of flow: class of the route, and how it is copied.
type Kind = (LinkClass, &'static str, bool);

/// Writes the figures of the changed machine into its report.
pub(super) fn fill(before: &Report, changed: &mut Changed, settings: &Settings) {
    let Some(old) = &before.measurements else {
        return;
    };
    let mut figures = old.clone();
    figures.driver = match &changed.report.measurements {
        Some(measurements) => measurements.driver.clone(),
        None => old.driver.clone(),
    };
    let links = changed.report.measurements.as_ref().map(|all| all.links.clone());
    figures.links = links.unwrap_or_default();
    let there = |flow: &Flow| {
        let gpus = flow.ends().into_iter().filter_map(model::flow::Endpoint::gpu);
        gpus.into_iter().all(|gpu| changed.report.snapshot.gpu(gpu).is_some())
    };
    figures.retain(|one| (0..one.parts()).all(|part| there(&one.flow_of(part))));
    figures.counted.retain(|counted| there(&Flow::inside(counted.gpu)));
    figures.driver.devices.retain(|device| there(&Flow::inside(device.index)));
    figures.driver.peer_access.retain(|said| there(&said.pair.into()));
    let mut prediction = Prediction::of(before, changed, settings, old);
    prediction.pairs(&mut figures);
    prediction.host(&mut figures);
    changed.report.measurements = Some(figures);
}

struct Prediction<'a> {
    before: &'a Report,
    changed: &'a Changed,
    settings: &'a Settings,
    foresight: Foresight<'a>,
    /// What flows of a kind reach of what their links carry.
    typical: BTreeMap<Kind, f64>,
    /// The same of copies with the host.
    typical_host: BTreeMap<HostDirection, f64>,
    old: BTreeMap<(Pair, Path), f64>,
}

impl<'a> Prediction<'a> {
    fn of(
        before: &'a Report,
        changed: &'a Changed,
        settings: &'a Settings,
        measurements: &'a Measurements,
    ) -> Self {
        let mut old = BTreeMap::new();
        for path in [Path::Direct, Path::Staged] {
            for (pair, cell) in measurements.reference(path) {
                old.extend(cell.achieved_gbps.map(|rate| ((pair, path), rate.0)));
            }
        }
        let shares = |(pair, path): &(Pair, Path), rate: &f64| {
            let route = before.topology.route(*pair)?;
            let kind = kind(before, *pair, *path)?;
            Some((kind, rate / route.theoretical(*path)?.0))
        };
        let shares = old.iter().filter_map(|(at, rate)| shares(at, rate));
        let mut typical_host: BTreeMap<HostDirection, Vec<f64>> = BTreeMap::new();
        for copy in &measurements.host {
            if let (Some(rate), Some(theory), 1) =
                (copy.rate(), copy.theoretical_gbps, copy.at_once)
                && copy.way() == HostWay::PINNED.with_direction(copy.direction)
            {
                typical_host.entry(copy.direction).or_default().push(rate.0 / theory.0);
            }
        }
        Self {
            typical: of_kinds(shares),
            typical_host: typical_host
                .into_iter()
                .filter_map(|(direction, shares)| Some((direction, high(shares)?)))
                .collect(),
            foresight: Foresight::of(
                &changed.report.snapshot,
                &changed.report.topology,
                measurements,
                &changed.causes,
            ),
            before,
            changed,
            settings,
            old,
        }
    }

    /// Returns the rate of a pair on the changed machine, if it is known.
    fn pair(&self, pair: Pair, path: Path) -> Option<f64> {
        let (before, after) = (&self.before.topology, &self.changed.report.topology);
        let route = after.route(pair)?;
        let old = self.old.get(&(pair, path)).copied();
        let earlier = before.route(pair);
        let theory = route.theoretical(path)?.0;
        let was = earlier.and_then(|route| Some(route.theoretical(path)?.0));
        let is_healed = self.changed.healed_pairs.contains(&pair)
            || [pair.source, pair.destination]
                .iter()
                .any(|gpu| self.changed.healed_gpus.contains(gpu));
        let has_moved =
            [pair.source, pair.destination].iter().any(|gpu| self.changed.moved.contains(gpu));
        let same_way = !has_moved
            && earlier.is_some_and(|earlier| {
                (earlier.class, nodes(&earlier.hops)) == (route.class, nodes(&route.hops))
            });
        let typical = self.typical_share(pair, path)?;
        let scaled = self.limited(pair.into(), typical * theory);
        let (Some(old), Some(was), true, false) = (old, was, same_way, is_healed) else {
            return Some(scaled);
        };
        Some(changed_rate(old, was, theory, typical))
    }

    /// Returns the part of what the links carry that such a pair reaches.
    fn typical_share(&self, pair: Pair, path: Path) -> Option<f64> {
        let report = &self.changed.report;
        let kind = kind(report, pair, path)?;
        let known = self.typical.get(&kind).copied();
        known.or_else(|| {
            let class = expected::class_of(report.topology.route(pair)?, path, &report.snapshot);
            let set = self.settings.shares.get(class.key);
            Some(set.map_or(class.share.percent, |set| set.percent) / 100.0)
        })
    }

    /// Returns no more than the causes that are left allow.
    fn limited(&self, flow: Flow, rate: f64) -> f64 {
        let limits = self.foresight.limits(&[flow]).into_iter();
        limits.map(|limit| limit.gbps).fold(rate, f64::min)
    }

    fn pairs(&mut self, figures: &mut Measurements) {
        let mut cells: Vec<PeerBandwidth> = Vec::new();
        let gpus: Vec<u32> =
            self.changed.report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        for pair in Pair::ordered(&gpus) {
            for path in [Path::Direct, Path::Staged] {
                let now = self.pair(pair, path);
                let old = self.old.get(&(pair, path)).copied();
                let Some(factor) = now.zip(old).map(|(now, old)| now / old) else {
                    cells.extend(now.and_then(|rate| self.new_cell(figures, pair, path, rate)));
                    continue;
                };
                let of_pair = figures.peer.iter_mut();
                let of_pair = of_pair.filter(|cell| cell.pair == pair && cell.setup.path == path);
                of_pair.for_each(|cell| self.scale(cell, factor));
            }
        }
        figures.peer.extend(cells);
    }

    fn scale(&self, cell: &mut PeerBandwidth, factor: f64) {
        let route = self.changed.report.topology.route(cell.pair);
        cell.theoretical_gbps = route.and_then(|route| route.theoretical(cell.setup.path));
        if (factor - 1.0).abs() > 1e-9 {
            cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * factor));
        }
    }

    /// Makes a cell for a pair that had none on this path: direct copies become possible.
    fn new_cell(
        &self,
        figures: &Measurements,
        pair: Pair,
        path: Path,
        rate: f64,
    ) -> Option<PeerBandwidth> {
        let route = self.changed.report.topology.route(pair)?;
        if path != Path::Direct || route.peer_access.cuda != Some(true) {
            return None;
        }
        let setup = Setup::REFERENCE;
        let is_model = |cell: &&PeerBandwidth| {
            cell.cell().tested()
                && cell.setup.with_path(Path::Direct).of_any_size() == setup
                && cell.setup.direction == Direction::OneWay
        };
        let like = figures.peer.iter().find(is_model)?;
        Some(PeerBandwidth {
            pair,
            setup: setup.with_bytes(like.setup.bytes),
            achieved_gbps: Some(GbPerSecond(rate)),
            theoretical_gbps: route.theoretical(path),
            ..like.clone()
        })
    }

    fn host(&self, figures: &mut Measurements) {
        let ways = [&self.before.topology, &self.changed.report.topology];
        let snapshots = [&self.before.snapshot, &self.changed.report.snapshot];
        let ways = [0, 1].map(|at| Ways::of(snapshots[at], ways[at]));
        // What the better ones reach of each way of copying, whatever their link.
        let mut of_way: BTreeMap<HostWay, Vec<f64>> = BTreeMap::new();
        for copy in figures.host.iter().filter(|copy| copy.at_once == 1) {
            of_way.entry(copy.way()).or_default().extend(copy.rate().map(|rate| rate.0));
        }
        let of_way: BTreeMap<HostWay, f64> =
            of_way.into_iter().filter_map(|(way, rates)| Some((way, high(rates)?))).collect();
        for copy in figures.host.iter_mut().filter(|copy| copy.at_once == 1) {
            let flow = copy.flow();
            let [was, now] = [&ways[0], &ways[1]].map(|ways| ways.way(flow));
            let narrowest = |way: &[topology::load::Step<'_>]| {
                let rates = way.iter().filter_map(|(hop, _)| Some(hop.capacity_gbps?.0));
                rates.reduce(f64::min)
            };
            let (Some(old), Some(before), Some(after), Some(typical)) = (
                copy.achieved_gbps,
                narrowest(&was),
                narrowest(&now),
                self.typical_host.get(&copy.direction).copied(),
            ) else {
                continue;
            };
            let changes = self.changed.moved.contains(&copy.gpu)
                || self.changed.healed_gpus.contains(&copy.gpu);
            let by_link =
                copy.memory == HostMemory::Pinned && copy.allocation == Allocation::Reused;
            let rate = if !by_link {
                // The processor limits these, and the link if it carries less.
                let most = of_way.get(&copy.way()).copied().unwrap_or(old.0);
                let is_same = !changes && (before - after).abs() < 1e-9;
                if is_same { old.0 } else { most.min(typical * after) }
            } else if changes {
                self.limited(flow, typical * after)
            } else {
                changed_rate(old.0, before, after, typical)
            };
            let factor = rate / old.0;
            for figure in
                [&mut copy.achieved_gbps, &mut copy.to_device_gbps, &mut copy.to_host_gbps]
            {
                *figure = figure.map(|rate| GbPerSecond(rate.0 * factor));
            }
            copy.theoretical_gbps = Some(GbPerSecond(after));
        }
        // What all carry together depends on each of them.
        figures.host.retain(|copy| copy.at_once == 1 || self.is_untouched());
    }

    fn is_untouched(&self) -> bool {
        self.before.snapshot == self.changed.report.snapshot
    }
}

/// Returns the rate of a flow whose links carried `was` and carry `now`, if such flows reach this part of it.
fn changed_rate(old: f64, was: f64, now: f64, typical: f64) -> f64 {
    if (was - now).abs() < 1e-9 {
        return old;
    }
    let own = old / was;
    if own < LIMITED_BELOW * typical { old.min(typical * now) } else { own * now }
}

fn nodes(hops: &[Hop]) -> Vec<(model::node::NodeId, model::node::NodeId)> {
    hops.iter().map(|hop| (hop.from, hop.to)).collect()
}

fn kind(report: &Report, pair: Pair, path: Path) -> Option<Kind> {
    let route = report.topology.route(pair)?;
    let class = expected::class_of(route, path, &report.snapshot);
    // The number of NVLinks is in what they carry.
    let word = match (route.class, path) {
        // Both legs of a staged copy may pass one link.
        (_, Path::Staged) if meet(report, pair) => LinkClass::Pxb,
        (_, Path::Staged) => LinkClass::Sys,
        (LinkClass::NvLink(_), _) => LinkClass::NvLink(0),
        (class, _) => class,
    };
    Some((word, class.key, path == Path::Staged))
}

/// Returns true if two GPUs share a PCIe link above their own.
fn meet(report: &Report, pair: Pair) -> bool {
    let ends = [pair.source, pair.destination];
    let mut links = report.topology.pcie_links();
    links.any(|link| ends.iter().all(|gpu| link.gpus.contains(gpu)))
}

fn of_kinds(shares: impl Iterator<Item = (Kind, f64)>) -> BTreeMap<Kind, f64> {
    let mut all: BTreeMap<Kind, Vec<f64>> = BTreeMap::new();
    for (kind, share) in shares {
        all.entry(kind).or_default().push(share);
    }
    let typical = all.into_iter();
    typical.filter_map(|(kind, shares)| Some((kind, high(shares)?))).collect()
}

/// Returns what the better ones reach: the best of two, the second best of up to twelve, else the tenth part from above, as
/// the explanation takes it (docs/dev/explanation.md).
fn high(mut shares: Vec<f64>) -> Option<f64> {
    shares.sort_by(|one, other| other.total_cmp(one));
    let at = match shares.len() {
        0..=2 => 0,
        3..=12 => 1,
        more => more / 10,
    };
    shares.get(at).copied()
}
