//! What the rules on slow copies share, so that each slow pair is told by one of them: below the
//! floor, else slower than its other direction, else an outlier among its like.

use std::collections::{BTreeMap, BTreeSet};

use super::peer_bandwidth_asymmetric::{BELOW, PeerBandwidthAsymmetric};
use super::peer_bandwidth_outlier::{LEAST_PAIRS, OUTLIER, PeerBandwidthOutlier};
use crate::diagnose::expected::Expectation;
use crate::diagnose::rule::Evidence;
use crate::model::measurement::{PeerBandwidth, Verified};
use crate::model::node::NodeId;
use crate::model::placement::{Pair, Path};
use crate::model::topology::{LinkClass, PairRoute};
use crate::model::units::GbPerSecond;

/// The reference figures of a path, without those whose bytes arrived wrong: a rate of those means
/// nothing.
pub fn sound<'a>(evidence: &Evidence<'a>, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
    let mut cells = evidence.reference(path);
    cells.retain(|_, cell| !matches!(cell.verified, Verified::Dropped | Verified::Corrupt));
    cells
}

/// A figure below the floor of its class.
pub struct Slow<'a> {
    /// The figure.
    pub cell: &'a PeerBandwidth,
    /// What was expected of it.
    pub expected: Expectation,
    /// What was reached.
    pub achieved: GbPerSecond,
}

impl<'a> Slow<'a> {
    /// `None` where the cell is fast enough, or there is nothing to compare it with.
    pub fn of(evidence: &Evidence<'_>, cell: &'a PeerBandwidth) -> Option<Self> {
        let slow = Self { cell, expected: evidence.expected(cell)?, achieved: cell.achieved_gbps? };
        (slow.achieved < slow.expected.floor_gbps()).then_some(slow)
    }

    /// Achieved as per cent of expected.
    pub fn percent(&self) -> f64 {
        self.achieved.percent_of(self.expected.gbps)
    }
}

/// The pairs of a path below their floor.
pub fn below_floor<'a>(evidence: &Evidence<'a>, path: Path) -> Vec<Slow<'a>> {
    sound(evidence, path).values().filter_map(|cell| Slow::of(evidence, cell)).collect()
}

/// A figure and what it is compared with.
pub struct Compared {
    /// The pair.
    pub pair: Pair,
    /// What it reaches.
    pub achieved: GbPerSecond,
    /// What it should be near to.
    pub normal: GbPerSecond,
}

impl Compared {
    /// How far the figure lies below, per cent of what it should be near to.
    pub fn below_percent(&self) -> f64 {
        100.0 - self.achieved.percent_of(self.normal)
    }
}

/// Pairs above their floor that are clearly slower than their other direction, and the pairs of which
/// both directions could be compared.
pub fn asymmetric(evidence: &Evidence<'_>) -> (Vec<Compared>, Vec<Pair>) {
    let margin = evidence.parameter(&PeerBandwidthAsymmetric, BELOW);
    let low: BTreeSet<_> = below_floor(evidence, Path::Direct).iter().map(|slow| slow.cell.pair).collect();
    let cells = sound(evidence, Path::Direct);
    let (mut slower, mut seen) = (Vec::new(), Vec::new());
    for (pair, cell) in cells.iter().filter(|(pair, _)| !low.contains(pair)) {
        let Some(other) = cells.get(&pair.reversed()) else { continue };
        let rates = cell.achieved_gbps.zip(other.achieved_gbps);
        let spreads = cell.spread_percent.zip(other.spread_percent);
        let (Some((achieved, normal)), Some((own, others))) = (rates, spreads) else { continue };
        seen.push(*pair);
        let compared = Compared { pair: *pair, achieved, normal };
        if compared.below_percent() > margin.max(own + others) {
            slower.push(compared);
        }
    }
    (slower, seen)
}

/// Pairs above their floor that lie clearly below the median of their like, with the number of
/// pairs alike.
pub fn outliers(evidence: &Evidence<'_>) -> Vec<(Compared, usize)> {
    let margin = evidence.parameter(&PeerBandwidthOutlier, OUTLIER);
    let mut told: BTreeSet<_> = below_floor(evidence, Path::Direct).iter().map(|slow| slow.cell.pair).collect();
    told.extend(asymmetric(evidence).0.iter().map(|compared| compared.pair));
    let mut alike: BTreeMap<Like, Vec<&PeerBandwidth>> = BTreeMap::new();
    for (pair, cell) in sound(evidence, Path::Direct) {
        if let Some(like) = evidence.topology.route(pair).and_then(|route| Like::of(evidence, route)) {
            alike.entry(like).or_default().push(cell);
        }
    }
    let mut outliers = Vec::new();
    for cells in alike.values() {
        let median_of = |figure: &dyn Fn(&PeerBandwidth) -> Option<f64>| {
            median(cells.iter().filter_map(|cell| figure(cell)).collect())
        };
        let normal = median_of(&|cell| cell.achieved_gbps.map(|rate| rate.0));
        let spread = median_of(&|cell| cell.spread_percent);
        let pairs: BTreeSet<_> = cells.iter().map(|cell| two(cell.pair)).collect();
        let (Some(normal), Some(spread)) = (normal, spread) else { continue };
        if pairs.len() < LEAST_PAIRS {
            continue;
        }
        for cell in cells.iter().filter(|cell| !told.contains(&cell.pair)) {
            let (Some(achieved), Some(own)) = (cell.achieved_gbps, cell.spread_percent) else { continue };
            let compared = Compared { pair: cell.pair, achieved, normal: GbPerSecond(normal) };
            // What repeated samples scatter by is no difference between pairs.
            if compared.below_percent() > margin.max(own + spread) {
                outliers.push((compared, cells.len()));
            }
        }
    }
    outliers
}

/// The middle figure, the upper one of two: where one of four GPUs is slow, half of all pairs are.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn two(pair: Pair) -> (u32, u32) {
    (pair.source.min(pair.destination), pair.source.max(pair.destination))
}

/// What makes routes equal: class, rate, and for those that leave a host bridge the memories that
/// they cross, since processors are not equally far from each other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Like {
    class: LinkClass,
    theoretical_mbps: u64,
    crossed: BTreeSet<NodeId>,
}

impl Like {
    /// `None` where it cannot be told: the class or the rate is not known, or a virtual machine
    /// hides what is crossed.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate in MB/s, rounded")]
    fn of(evidence: &Evidence<'_>, route: &PairRoute) -> Option<Self> {
        let nvlink = matches!(route.class, LinkClass::NvLink(_));
        if route.class == LinkClass::Unknown || (!nvlink && evidence.virtual_machine()) {
            return None;
        }
        let numa = route.hops.iter().flat_map(|hop| [&hop.from, &hop.to]).filter(|id| matches!(id, NodeId::Numa(_)));
        let theoretical_mbps = (route.theoretical_gbps?.0 * 1000.0).round() as u64;
        Some(Self { class: route.class, theoretical_mbps, crossed: numa.copied().collect() })
    }
}
