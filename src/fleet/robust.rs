//! Medians, and a spread around them that a few bad figures do not change.

/// Factor from the median distance from the median to a standard deviation, for normally distributed figures: 1 / the
/// 75% quantile (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
const NORMAL: f32 = 1.4826;

/// Least spread that counts, as a share of the median. Figures of one setup repeat within 0.1% (writes) to 0.8% (reads)
/// on one machine (docs/dev/method.md). Differences below the noise of a run mean nothing, and many equal figures must
/// not make every other one an outlier.
const LEAST: f32 = 0.01;

/// Robust z beyond which a figure is an outlier. Chosen so that none of a million healthy figures is.
const Z: f32 = 5.0;

/// Share of the median, in per cent, from which a figure is no outlier: z alone flags what nobody would repair.
const PERCENT: f32 = 95.0;

/// Centre and spread of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Robust {
    pub median: f32,
    /// 1.4826 x the median distance from the median, at least 1% of the median.
    pub spread: f32,
}

/// The distance of an outlier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Odd {
    /// Distance from the median in spreads; negative below.
    pub z: f32,
    /// Share of the median, per cent.
    pub percent: f32,
}

impl Robust {
    /// Returns `None` if there are no figures.
    pub(crate) fn of(values: &[f32]) -> Option<Self> {
        let mut values = values.to_vec();
        let median = median(&mut values)?;
        values.iter_mut().for_each(|value| *value = (*value - median).abs());
        let spread = self::median(&mut values)? * NORMAL;
        Some(Self { median, spread: spread.max(median.abs() * LEAST) })
    }

    /// Returns the distance of an outlier on the bad side: low, or long for a time. Returns `None` for other figures.
    pub(crate) fn odd(self, value: f32, is_time: bool) -> Option<Odd> {
        let odd =
            Odd { z: (value - self.median) / self.spread, percent: 100.0 * value / self.median };
        let is_odd = match is_time {
            false => odd.z < -Z && odd.percent < PERCENT,
            true => odd.z > Z && odd.percent > 100.0 * 100.0 / PERCENT,
        };
        is_odd.then_some(odd)
    }
}

/// Returns the median; reorders the values.
pub(crate) fn median(values: &mut [f32]) -> Option<f32> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    let lower = below.iter().copied().max_by(f32::total_cmp).filter(|_| even);
    Some(lower.map_or(*upper, |lower| f32::midpoint(lower, *upper)))
}

/// Returns the probability that at least `hits` of `trials` random trials hit the same given one of `places`.
pub(crate) fn chance(hits: usize, trials: usize, places: usize) -> f64 {
    if hits == 0 || places < 2 {
        return 1.0;
    }
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let (n, p) = (trials as f64, 1.0 / places as f64);
    let mut term = n * (1.0 - p).ln();
    let mut sum = 0.0;
    for hit in 0..trials {
        #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
        let k = hit as f64;
        term += ((n - k) / (k + 1.0)).ln() + (p / (1.0 - p)).ln();
        if hit + 1 >= hits {
            sum += term.exp();
        }
    }
    f64::min(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bad_figures_move_neither_median_nor_spread() {
        let mut values: Vec<f32> = (0..100_u8).map(|n| 400.0 + f32::from(n % 11) - 5.0).collect();
        let healthy = Robust::of(&values).unwrap();
        values[..20].fill(100.0);
        let some_bad = Robust::of(&values).unwrap();
        assert!((healthy.median - some_bad.median).abs() < 2.0, "{healthy:?} {some_bad:?}");
        assert!(some_bad.odd(100.0, false).is_some() && some_bad.odd(396.0, false).is_none());
    }

    #[test]
    fn a_figure_stands_out_by_z_and_by_share() {
        let equal = Robust::of(&[396.0; 9]).unwrap();
        assert_eq!(equal.odd(380.0, false), None, "96% of the median");
        assert!(equal.odd(370.0, false).unwrap().z < -5.0);
        assert_eq!(equal.odd(500.0, false), None, "fast is not bad");
        assert!(equal.odd(500.0, true).is_some() && equal.odd(300.0, true).is_none());
        let wide = Robust::of(&[100.0, 110.0, 120.0, 90.0, 80.0]).unwrap();
        assert_eq!(wide.odd(80.0, false), None, "80% of the median, where that is the spread");
        assert_eq!(Robust::of(&[]), None);
    }

    #[test]
    fn medians_of_even_numbers_lie_between() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [7.0]), Some(7.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn chances_are_those_of_the_binomial_distribution() {
        assert!((chance(1, 1, 8) - 0.125).abs() < 1e-12);
        assert!((chance(2, 2, 8) - 1.0 / 64.0).abs() < 1e-12);
        assert!((chance(1, 2, 2) - 0.75).abs() < 1e-12);
        assert!(chance(10, 10, 8) < 1e-8 && chance(3, 24, 8) > 0.5);
        assert_eq!(chance(0, 5, 8), 1.0);
    }
}
