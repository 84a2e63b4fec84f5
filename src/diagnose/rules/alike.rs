//! Finds the normal figure of pairs that are connected alike, and the pairs below it. Low are single pairs, and GPUs
//! whose copies are slow towards every partner, or from every one.
//!
//! A slow GPU takes part in many pairs: if two of four GPUs are slow, in 5 of 6. So that these pairs do not set the
//! normal figure, the rows and columns of the matrix are judged first.

use super::bandwidth::Compared;
use super::prelude::*;
use explain::scatter;

/// Fewest pairs of GPUs (both directions together) that give a credible normal figure.
const LEAST_PAIRS: usize = 3;

/// Margins below normal that still count as usual, per cent.
#[derive(Clone, Copy)]
pub(super) struct Margins {
    /// Margin of a single pair.
    pub pair: f64,
    /// Margin of the median of a GPU's pairs in one direction. Each of these pairs lies below by more than half of it.
    pub gpu: f64,
}

/// One direction of a GPU: its copies as a source, or as a destination.
type Side = (u32, bool);

/// Figures that should be equal.
struct Group<'a> {
    cells: Vec<&'a PeerBandwidth>,
    /// The median spread of their samples, per cent.
    spread: f64,
    /// Scatter of the figures: largest distance below the others that proves nothing, per cent.
    scatter: f64,
}

/// Returns the figures that lie clearly below those of pairs connected alike, each with the number of these pairs.
/// `left` contains pairs reported by other rules: they are neither judged nor compared with.
pub(super) fn below<K: Ord>(
    alike: BTreeMap<K, Vec<&PeerBandwidth>>,
    left: &BTreeSet<Pair>,
    margins: Margins,
) -> Vec<(Compared, usize)> {
    let groups: Vec<_> = alike
        .into_values()
        .filter_map(|cells| Group::of(cells, left))
        .collect();
    let Normal { rates, slow } = normal(&groups, margins);
    let mut below = Vec::new();
    for (group, normal) in groups.iter().zip(rates) {
        for cell in &group.cells {
            let Some(compared) = group.compare(cell, normal) else {
                continue;
            };
            if sides(cell).iter().any(|side| slow.contains(side))
                || compared.is_below(margins.pair.max(group.scatter))
            {
                below.push((compared, group.cells.len()));
            }
        }
    }
    below
}

/// Returns the pairs of GPUs that are slow with every partner, or from every one, by GPU and direction. This includes
/// pairs with too few alike to be judged by themselves.
pub(super) fn of_slow_gpus<K: Ord>(
    alike: BTreeMap<K, Vec<&PeerBandwidth>>,
    margins: Margins,
) -> Vec<Vec<Pair>> {
    let none = BTreeSet::new();
    let cells: Vec<_> = alike.values().flatten().copied().collect();
    let groups: Vec<_> = alike
        .into_values()
        .filter_map(|cells| Group::of(cells, &none))
        .collect();
    let of_side = |side: Side| {
        cells
            .iter()
            .filter(|cell| sides(cell).contains(&side))
            .map(|cell| cell.pair)
            .collect()
    };
    normal(&groups, margins)
        .slow
        .into_iter()
        .map(of_side)
        .collect()
}

impl<'a> Group<'a> {
    /// Returns `None` if there are too few pairs alike, or if no spread is known.
    fn of(mut cells: Vec<&'a PeerBandwidth>, left: &BTreeSet<Pair>) -> Option<Self> {
        let pairs: BTreeSet<_> = cells.iter().map(|cell| cell.pair.unordered()).collect();
        cells.retain(|cell| !left.contains(&cell.pair) && cell.achieved_gbps.is_some());
        let spread = upper_median(
            cells
                .iter()
                .filter_map(|cell| cell.spread_percent)
                .collect(),
        )?;
        let rates = cells.iter().filter_map(|cell| Some(cell.achieved_gbps?.0));
        let scatter = scatter::allowance(rates);
        (pairs.len() >= LEAST_PAIRS).then_some(Self {
            cells,
            spread,
            scatter,
        })
    }

    fn compare(&self, cell: &PeerBandwidth, normal: f64) -> Option<Compared> {
        let spread = cell.spread_percent? + self.spread;
        Some(Compared {
            pair: cell.pair,
            achieved: cell.achieved_gbps?,
            normal: GbPerSecond(normal),
            spread,
        })
    }

    fn rates(&self, is_counted: impl Fn(&PeerBandwidth) -> bool) -> Vec<f64> {
        let counted = self.cells.iter().filter(|cell| is_counted(cell));
        counted
            .filter_map(|cell| cell.achieved_gbps.map(|rate| rate.0))
            .collect()
    }
}

/// The normal figure of each group, and the slow sides.
struct Normal {
    rates: Vec<f64>,
    slow: BTreeSet<Side>,
}

/// Starts from the fastest figure of each group, by which most sides are slow. It then takes the normal figure from the
/// remaining sides until nothing changes. If more than half of the sides stay slow, one figure is too high rather than
/// all others too low. In that case it starts again from the upper quarter.
fn normal(groups: &[Group<'_>], margins: Margins) -> Normal {
    let all: BTreeSet<Side> = groups
        .iter()
        .flat_map(|group| &group.cells)
        .flat_map(|cell| sides(cell))
        .collect();
    let fastest: fn(Vec<f64>) -> Option<f64> = |rates| rates.into_iter().reduce(f64::max);
    for first in [fastest, upper_quarter] {
        let mut rates: Vec<_> = groups
            .iter()
            .map(|group| first(group.rates(|_| true)).unwrap_or_default())
            .collect();
        let mut slow = slow_sides(groups, &rates, margins);
        // Each turn removes a side or is the last.
        for _ in &all {
            rates = groups
                .iter()
                .zip(rates)
                .map(|(group, rate)| without(group, &slow, margins).unwrap_or(rate))
                .collect();
            let fewer = slow_sides(groups, &rates, margins);
            if fewer == slow {
                break;
            }
            slow = fewer;
        }
        if slow.len() * 2 <= all.len() {
            return Normal { rates, slow };
        }
    }
    let none = BTreeSet::new();
    let rates = groups
        .iter()
        .map(|group| without(group, &none, margins).unwrap_or_default())
        .collect();
    Normal { rates, slow: none }
}

/// Returns the median of the pairs without a slow side that are not slow themselves. Returns `None` if there are fewer
/// than two pairs without a slow side.
fn without(group: &Group<'_>, slow: &BTreeSet<Side>, margins: Margins) -> Option<f64> {
    let rates = group.rates(|cell| !sides(cell).iter().any(|side| slow.contains(side)));
    if rates.len() < 2 {
        return None;
    }
    let least = upper_quarter(rates.clone())? * (1.0 - margins.pair / 100.0);
    upper_median(rates.into_iter().filter(|rate| *rate >= least).collect())
}

/// Returns the sides whose figures all lie below normal, and whose median is clearly below.
fn slow_sides(groups: &[Group<'_>], normal: &[f64], margins: Margins) -> BTreeSet<Side> {
    let mut below: BTreeMap<Side, Vec<(f64, f64)>> = BTreeMap::new();
    for (group, normal) in groups.iter().zip(normal) {
        for cell in &group.cells {
            let Some(compared) = group.compare(cell, *normal) else {
                continue;
            };
            for side in sides(cell) {
                below
                    .entry(side)
                    .or_default()
                    .push((compared.below_percent(), compared.spread));
            }
        }
    }
    let middles = below.values().filter_map(|figures| {
        lower_median(figures.iter().map(|(below, _)| 100.0 - below).collect())
    });
    let least = margins.gpu.max(scatter::allowance(middles));
    let is_slow = |figures: &Vec<(f64, f64)>| {
        let middle = |of: fn(&(f64, f64)) -> f64| lower_median(figures.iter().map(of).collect());
        let all_below = figures.iter().all(|(below, _)| *below > margins.gpu / 2.0);
        let Some((below, spread)) = middle(|figure| figure.0).zip(middle(|figure| figure.1)) else {
            return false;
        };
        figures.len() > 1 && all_below && below > least.max(spread)
    };
    below
        .into_iter()
        .filter(|(_, figures)| is_slow(figures))
        .map(|(side, _)| side)
        .collect()
}

fn sides(cell: &PeerBandwidth) -> [Side; 2] {
    [(cell.pair.source, false), (cell.pair.destination, true)]
}

/// Returns the median, the upper of the two middle figures: if one of four GPUs is slow, half of all pairs are.
fn upper_median(values: Vec<f64>) -> Option<f64> {
    at_share(values, 2)
}

/// Returns the median, the lower of the two middle figures.
fn lower_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Returns the figure that a quarter of all reach.
fn upper_quarter(values: Vec<f64>) -> Option<f64> {
    at_share(values, 4)
}

/// Returns the figure that one in `part` of all reach.
fn at_share(mut values: Vec<f64>, part: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values
        .get(values.len() - values.len().div_ceil(part).min(values.len()))
        .copied()
}
