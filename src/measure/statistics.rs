//! Medians and spreads.

/// Median of the samples; none when there are none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// (Largest - smallest) / median in per cent; none for fewer than two samples.
pub fn spread_percent(samples: &[f64]) -> Option<f64> {
    let finite = || samples.iter().copied().filter(|sample| sample.is_finite());
    let median = median(samples)?;
    let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
    (finite().count() > 1 && median > 0.0).then(|| 100.0 * (high - low) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn spread_needs_two_samples() {
        assert_eq!(spread_percent(&[1.0]), None);
        assert_eq!(spread_percent(&[90.0, 100.0, 110.0]), Some(20.0));
    }
}
