//! Computes medians and spreads.

/// Returns the median of the samples; none if there are none.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> =
        samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns (largest - smallest) / median in per cent; none for fewer than two samples.
pub(crate) fn spread_percent(samples: &[f64]) -> Option<f64> {
    let finite = || samples.iter().copied().filter(|sample| sample.is_finite());
    let median = median(samples)?;
    let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
    (finite().count() > 1 && median > 0.0).then(|| 100.0 * (high - low) / median)
}

/// Largest difference of successive samples of a steady link, as a share of the smaller one. A larger difference means
/// a link that still wakes up, or one that is not steady.
const AWAKE_SHARE: f64 = 0.01;

/// Returns the samples from the first one that agrees with the next, if all before it took longer: those were taken
/// while a link woke up. Returns all samples if no two agree, or if an earlier one was as fast: such a path is not
/// steady.
pub(crate) fn settled(samples: &[f64]) -> &[f64] {
    let agree = |two: &[f64]| (two[0] - two[1]).abs() <= AWAKE_SHARE * two[0].min(two[1]);
    let first = samples.windows(2).position(agree).unwrap_or(0);
    let (before, after) = samples.split_at(first);
    if before.iter().all(|early| after.first().is_some_and(|awake| early > awake)) {
        after
    } else {
        samples
    }
}

/// Time from which a row is far longer than the others, as a multiple of their median. Chosen: four times what is usual
/// between repeats (cuda-samples issue 449: 5 to 10%).
const SLOW_TIMES: f64 = 1.4;

/// Returns the samples that took far longer than the median of all. A median hides one copy in thirty that takes five
/// times as long.
pub(crate) fn slow(samples: &[f64]) -> Vec<f64> {
    // Of two samples neither is the usual one.
    let Some(usual) = median(settled(samples)).filter(|_| samples.len() > 2) else {
        return Vec::new();
    };
    let all = samples.iter().copied();
    all.filter(|sample| *sample >= SLOW_TIMES * usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_took_far_longer_counts_before_the_figure_settled_too() {
        assert_eq!(slow(&[500.0, 100.0, 100.1, 150.0]), [500.0, 150.0]);
        assert_eq!(slow(&[130.0, 100.0, 100.1, 139.0]), [0.0; 0]);
        assert_eq!(slow(&[500.0, 100.0]), [0.0; 0]);
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn samples_count_from_the_first_two_that_agree() {
        assert_eq!(settled(&[150.0, 110.0, 100.0, 100.5, 90.0]), [100.0, 100.5, 90.0]);
        assert_eq!(settled(&[100.0, 100.0]), [100.0, 100.0]);
        assert_eq!(settled(&[100.0, 120.0, 90.0]), [100.0, 120.0, 90.0], "never steady");
        assert_eq!(
            settled(&[100.0, 120.0, 120.5]),
            [100.0, 120.0, 120.5],
            "no link is faster while it wakes up"
        );
        assert_eq!(
            settled(&[100.0, 125.0, 100.4, 100.2]),
            [100.0, 125.0, 100.4, 100.2],
            "nor now and then"
        );
        assert_eq!(settled(&[7.0]), [7.0]);
        assert!(settled(&[]).is_empty());
    }

    #[test]
    fn spread_needs_two_samples() {
        assert_eq!(spread_percent(&[1.0]), None);
        assert_eq!(spread_percent(&[90.0, 100.0, 110.0]), Some(20.0));
    }
}
