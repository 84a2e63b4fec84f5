//! How figures stand to what is expected of them, in a word.

use super::super::figures::Spread;
use model::rounding::percent;

/// Below the lowest rate that is expected by less than this share is as expected: figures are rounded.
const JUST_BELOW: f64 = 0.99;

/// Above the highest one by less than this share too: repeats spread by 5 to 10% (cuda-samples issue 449).
const JUST_ABOVE: f64 = 1.05;

/// Figures beside what is expected of them: where they stand lowest and highest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Standing {
    /// The least share of the lowest rate that is expected.
    low: f64,
    /// The largest share of the highest one.
    high: f64,
}

impl Standing {
    /// Of rates, each with the lowest and the highest that is expected of it; none where nothing is.
    pub(super) fn of(rates: impl IntoIterator<Item = (f64, [f64; 2])>) -> Option<Self> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for (rate, [least, most]) in rates {
            low.push(rate / least);
            high.push(rate / most);
        }
        Some(Self {
            low: Spread::of(low)?.min,
            high: Spread::of(high)?.max,
        })
    }

    /// Whether none is below.
    pub(super) fn is_fine(self) -> bool {
        self.low >= JUST_BELOW
    }

    pub(super) fn words(self) -> String {
        if !self.is_fine() {
            return format!("{}% below expected", percent(100.0 - 100.0 * self.low));
        }
        if self.high > JUST_ABOVE {
            "more than expected"
        } else {
            "as expected"
        }
        .to_owned()
    }
}

/// `, as expected`, or nothing where nothing is expected.
pub(super) fn after_comma(standing: Option<Standing>) -> String {
    standing
        .map(|standing| format!(", {}", standing.words()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_decides() {
        let words =
            |rates: &[(f64, [f64; 2])]| Standing::of(rates.iter().copied()).map(Standing::words);
        assert_eq!(words(&[]), None);
        assert_eq!(words(&[(395.0, [390.0, 397.0])]).unwrap(), "as expected");
        assert_eq!(
            words(&[(388.0, [390.0, 397.0]), (402.0, [390.0, 397.0])]).unwrap(),
            "as expected"
        );
        assert_eq!(
            words(&[(395.0, [390.0, 397.0]), (195.0, [390.0, 397.0])]).unwrap(),
            "50% below expected"
        );
        assert_eq!(
            words(&[(500.0, [390.0, 397.0])]).unwrap(),
            "more than expected"
        );
    }
}
