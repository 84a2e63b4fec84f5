//! What the rules on slow copies share, so that exactly one of them reports each slow pair: below
//! the floor, else slower than its other direction, else an outlier among comparable pairs.

use super::bandwidth_impossible;
use super::prelude::*;
use crate::expected::Expectation;

/// The reference figures of a path, without those whose rate means nothing.
pub fn sound<'a>(evidence: &Evidence<'a>, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
    let mut cells = evidence.reference(path);
    cells.retain(|_, cell| is_sound(evidence, cell));
    cells
}

/// Whether a rate was measured that means something: that of bytes which arrived wrong does not, and one
/// that no link could carry does not.
pub fn is_sound(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> bool {
    let measured = cell.status == Status::Measured && !cell.verified.is_wrong();
    measured && bandwidth_impossible::beyond(evidence, cell).is_none()
}

/// A figure below the floor of its class.
pub struct Slow<'a> {
    pub cell: &'a PeerBandwidth,
    pub expected: Expectation,
    pub achieved: GbPerSecond,
}

impl<'a> Slow<'a> {
    /// `None` where the cell is fast enough, or there is nothing to compare it with.
    pub fn of(evidence: &Evidence<'_>, cell: &'a PeerBandwidth) -> Option<Self> {
        let slow = Self {
            cell,
            expected: evidence.expected(cell)?,
            achieved: cell.achieved_gbps?,
        };
        (slow.expected.is_missed_by(cell) == Some(true)).then_some(slow)
    }

    /// Achieved as per cent of expected.
    pub fn percent(&self) -> f64 {
        self.achieved.percent_of(self.expected.gbps)
    }
}

/// The pairs of a path below their floor.
pub fn below_floor<'a>(evidence: &Evidence<'a>, path: Path) -> Vec<Slow<'a>> {
    sound(evidence, path)
        .values()
        .filter_map(|cell| Slow::of(evidence, cell))
        .collect()
}

/// The pairs whose direct copies are below their floor.
pub fn low_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    below_floor(evidence, Path::Direct)
        .iter()
        .map(|slow| slow.cell.pair)
        .collect()
}

/// A figure and what it is compared with.
pub struct Compared {
    pub pair: Pair,
    pub achieved: GbPerSecond,
    /// What it should be near to.
    pub normal: GbPerSecond,
    /// How far the samples of both scatter together, per cent: less than that is no difference.
    pub spread: f64,
}

impl Compared {
    /// Compares a figure with another one; `None` where a rate or a spread is not known.
    pub fn of(cell: &PeerBandwidth, other: &PeerBandwidth) -> Option<Self> {
        let spread = cell.spread_percent? + other.spread_percent?;
        Some(Self {
            pair: cell.pair,
            achieved: cell.achieved_gbps?,
            normal: other.achieved_gbps?,
            spread,
        })
    }

    /// How far the figure lies below, per cent of what it should be near to.
    pub fn below_percent(&self) -> f64 {
        100.0 - self.achieved.percent_of(self.normal)
    }

    /// Whether it lies below by more than this margin, and by more than the samples scatter.
    pub fn is_below(&self, margin_percent: f64) -> bool {
        self.below_percent() > margin_percent.max(self.spread)
    }
}

/// The figure of this group that lies farthest below.
pub fn lowest<'a>(compared: &'a [Compared], group: &cluster::Group) -> Option<&'a Compared> {
    let pairs = group.pair_set();
    let of_group = compared
        .iter()
        .filter(|compared| pairs.contains(&compared.pair));
    of_group.max_by(|one, other| one.below_percent().total_cmp(&other.below_percent()))
}

/// The figure of this group that reaches the least of what is expected.
pub fn slowest<'a, 'c>(slow: &'a [Slow<'c>], group: &cluster::Group) -> Option<&'a Slow<'c>> {
    let pairs = group.pair_set();
    let of_group = slow.iter().filter(|slow| pairs.contains(&slow.cell.pair));
    of_group.min_by(|one, other| one.percent().total_cmp(&other.percent()))
}
