//! Scatter of figures that should be equal. Real machines are less even than their links: a figure is low only if it lies
//! farther below its siblings than these differ among themselves.

use std::collections::BTreeMap;

/// Fewest figures whose scatter means something.
const LEAST: usize = 6;
/// Largest allowance, per cent: a figure that has lost more is low whatever the others do. Chosen.
const MOST_PERCENT: f64 = 50.0;

/// Returns how far below the usual figure one of these may lie, per cent of it. Zero if there are too few.
///
/// The scatter is the width of the narrowest range that holds half of the figures (the shortest half). A fault that slows
/// up to half of them therefore does not widen it, nor does one that slows nearly all. The factor was found by simulation:
/// of 500 groups of normally distributed figures, one has a figure below the allowance if there are 12 figures or more;
/// with fewer, some ten have.
pub fn allowance(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut logs: Vec<f64> = figures
        .into_iter()
        .filter(|figure| figure.is_finite() && *figure > 0.0)
        .map(f64::ln)
        .collect();
    if logs.len() < LEAST {
        return 0.0;
    }
    logs.sort_by(f64::total_cmp);
    let narrowest = shortest_half(&logs).map_or(0.0, |(_, width)| width);
    #[allow(clippy::cast_precision_loss, reason = "a number of figures")]
    let factor = (3.5 + 70.0 / logs.len() as f64).min(10.0);
    (100.0 * (1.0 - (-factor * narrowest).exp())).min(MOST_PERCENT)
}

/// Returns where the narrowest range that holds half of these sorted figures begins, and its width. Two figures make one range.
fn shortest_half(sorted: &[f64]) -> Option<(f64, f64)> {
    let half = match sorted.len() {
        2 => 2,
        more => more.div_ceil(2),
    };
    let ranges = sorted.windows(half.max(1));
    let ranges = ranges.filter_map(|range| Some((*range.first()?, range.last()? - range.first()?)));
    ranges.min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Fewest figures of a run whose scatter says something of the whole machine.
const LEAST_OF_RUN: usize = 8;
/// Standard deviation that every machine has, as a natural logarithm: tolerances and floors know it. Chosen: repeats of one
/// machine differ by less than 1% (docs/dev/method.md).
const USUAL: f64 = 0.01;
/// Standard deviations beyond that by which a figure may be low. Chosen: the deviation is known from few figures, and a run
/// has hundreds.
const OF_RUN: f64 = 5.0;
/// The distance of a figure from the closer half of its siblings is less than its deviation, the more so the fewer these are;
/// so is the narrowest range of few figures. Both found by simulation with normally distributed figures: with these, nine of
/// ten machines show their deviation or more.
const FEW_SIBLINGS: f64 = 4.0;
const FEW_FIGURES: f64 = 16.0;
/// Ratio of the shortest half of normally distributed figures to their standard deviation.
const HALF_OF_NORMAL: f64 = 1.349;

/// Returns how far below its rate any figure of a run may lie because all figures of this machine scatter, per cent. Groups
/// too small to show their own scatter show it together. Each group has figures that should be equal. A fault that slows less
/// than half of the figures beside their siblings adds 1 or 2%.
pub(crate) fn of_run<'a>(groups: impl IntoIterator<Item = &'a [f64]>) -> f64 {
    let mut residuals: Vec<f64> = Vec::new();
    for group in groups.into_iter().filter(|group| group.len() > 1) {
        let mut logs: Vec<f64> = group.iter().map(|figure| figure.ln()).collect();
        logs.retain(|log| log.is_finite());
        logs.sort_by(f64::total_cmp);
        let number = logs.len();
        // Half of the figures may be low: the middle of all would then lie between both kinds.
        let Some((from, width)) = shortest_half(&logs) else {
            continue;
        };
        let middle = from + width / 2.0;
        #[allow(clippy::cast_precision_loss, reason = "a number of figures")]
        let bias = match number {
            2 => std::f64::consts::SQRT_2,
            more => 1.0 + FEW_SIBLINGS / more as f64,
        };
        residuals.extend(logs.iter().map(|log| (log - middle) * bias));
    }
    if residuals.len() < LEAST_OF_RUN {
        return 0.0;
    }
    residuals.sort_by(f64::total_cmp);
    let width = shortest_half(&residuals).map_or(0.0, |(_, width)| width);
    #[allow(clippy::cast_precision_loss, reason = "a number of figures")]
    let few = 1.0 + FEW_FIGURES / residuals.len() as f64;
    let deviation = few * width / HALF_OF_NORMAL;
    let beyond = (deviation - USUAL).max(0.0);
    (100.0 * (1.0 - (-OF_RUN * beyond).exp())).min(MOST_PERCENT)
}

/// Returns the middle one of these figures, the upper of two; `None` if there are none.
pub fn middle(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Collects figures by group.
pub(crate) fn grouped<K: Ord>(
    figures: impl IntoIterator<Item = (K, f64)>,
) -> BTreeMap<K, Vec<f64>> {
    let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for (key, figure) in figures {
        groups.entry(key).or_default().push(figure);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures with the quantiles of a normal distribution, in no order.
    fn spread(number: u32, percent: f64) -> Vec<f64> {
        let quantile = |place: u32| {
            // The logistic distribution is close enough to the normal one.
            let share = (f64::from(place) + 0.5) / f64::from(number);
            (share / (1.0 - share)).ln() / 1.7
        };
        (0..number)
            .map(|place| 100.0 * (percent / 100.0 * quantile(place * 7 % number)).exp())
            .collect()
    }

    #[test]
    fn even_figures_allow_nothing_and_uneven_ones_several_times_their_deviation() {
        assert_eq!(allowance(vec![394.0; 56]), 0.0);
        let of_three = allowance(spread(56, 3.0));
        assert!((10.0..20.0).contains(&of_three), "{of_three}");
        let of_six = allowance(spread(56, 6.0));
        assert!((20.0..40.0).contains(&of_six), "{of_six}");
        assert_eq!(allowance(spread(56, 60.0)), MOST_PERCENT);
        assert_eq!(allowance(spread(5, 6.0)), 0.0, "too few to know");
    }

    #[test]
    fn figures_that_are_low_do_not_excuse_themselves() {
        let healthy = spread(55, 0.1);
        let none = allowance(healthy.clone());
        for low in [1, 8, 27] {
            let mut figures = healthy.clone();
            figures.iter_mut().take(low).for_each(|figure| *figure *= 0.7);
            let with = allowance(figures);
            // With half of them low, the range holds all healthy figures, and not the closer half of them.
            assert!(with < 4.0 * none, "{low}: {with} beside {none}");
        }
        // Nearly all.
        let mut figures = healthy;
        figures.iter_mut().skip(4).for_each(|figure| *figure *= 0.7);
        assert!(allowance(figures) < 2.0 * none);
    }

    #[test]
    fn small_groups_show_the_scatter_of_a_machine_together() {
        let pairs = |percent: f64| {
            let figures = spread(40, percent);
            figures.chunks(2).map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let of = |groups: &[Vec<f64>]| of_run(groups.iter().map(Vec::as_slice));
        assert_eq!(of(&pairs(0.5)), 0.0, "every machine scatters as much");
        let (three, nine) = (of(&pairs(4.5)), of(&pairs(9.0)));
        // The figures of each pair are neighbours of a kind, so they differ less than chance would have it.
        assert!((6.0..30.0).contains(&three) && (18.0..50.0).contains(&nine), "{three} {nine}");
        assert_eq!(of(&pairs(9.0)[..3]), 0.0, "too few to know");
        // One of two GPUs has half of its rate in a third of the groups.
        let mut faulty = pairs(0.5);
        faulty.iter_mut().step_by(3).for_each(|group| group[0] *= 0.5);
        // The halves that are left hold more of the rest of the figures, so their range is a little wider.
        assert!(of(&faulty) < 2.0, "{}", of(&faulty));
    }
}
