//! Shared by the rules on copies between GPUs: which figures mean something, and comparison of two.

use super::figure_impossible;
use super::prelude::*;

/// Returns the reference figures of a path, without meaningless rates.
pub(super) fn sound<'a>(evidence: &Evidence<'a>, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
    let mut cells = evidence.reference(path);
    cells.retain(|_, cell| is_sound(evidence, cell));
    cells
}

/// Returns true if a meaningful rate was measured. A rate is meaningless if bytes arrived wrong or if no link could
/// carry it.
pub(super) fn is_sound(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> bool {
    let measured = cell.ending.status == Status::Measured && !cell.verified.is_wrong();
    measured && figure_impossible::beyond(evidence, cell).is_none()
}

/// Returns the pairs whose direct copies are below their floor.
pub(super) fn low_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    let mut cells = sound(evidence, Path::Direct);
    cells.retain(|_, cell| links::is_slow(evidence, cell) == Some(true));
    cells.into_keys().collect()
}

/// Spread of a figure that was measured once, as other tools do: repeats spread by 5 to 10% (cuda-samples issue 449).
const USUAL_SPREAD_PERCENT: f64 = 10.0;

/// A figure and the one it is compared with.
pub(crate) struct Compared {
    pub pair: Pair,
    pub achieved: GbPerSecond,
    /// The figure it should be close to.
    pub normal: GbPerSecond,
    /// Sum of both spreads, per cent. A smaller difference is no difference.
    pub spread: f64,
}

impl Compared {
    /// Compares a figure with another. Returns `None` if a rate or a spread is unknown.
    pub(crate) fn of(cell: &PeerBandwidth, other: &PeerBandwidth) -> Option<Self> {
        let spread = [cell, other].map(|cell| cell.spread_percent.unwrap_or(USUAL_SPREAD_PERCENT));
        Some(Self {
            pair: cell.pair,
            achieved: cell.achieved_gbps?,
            normal: other.achieved_gbps?,
            spread: spread.iter().sum(),
        })
    }

    /// Returns how far the figure lies below normal, as per cent of normal.
    pub(crate) fn below_percent(&self) -> f64 {
        100.0 - self.achieved.percent_of(self.normal)
    }

    /// Returns true if the figure lies below normal by more than this margin and by more than the spread.
    pub(crate) fn is_below(&self, margin_percent: f64) -> bool {
        self.below_percent() > margin_percent.max(self.spread)
    }
}

/// Returns the figure of this group that lies farthest below normal.
pub(super) fn lowest<'a>(compared: &'a [Compared], group: &cluster::Group) -> Option<&'a Compared> {
    let pairs = group.pair_set();
    let of_group = compared.iter().filter(|one| pairs.contains(&one.pair));
    words::largest(of_group, |one| one.below_percent())
}
