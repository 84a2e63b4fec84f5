//! Figures over many pairs, and lists as people write them.

/// Smallest, median and largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub count: usize,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// Returns `None` if there is no finite figure.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { count: values.len(), min, median, max })
    }
}

/// Returns indices as people write them: `0-3,6`.
pub(crate) fn ranges(indices: &[u32]) -> String {
    let range = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(ToString::to_string).collect(),
    };
    let runs = indices.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    runs.map(range).collect::<Vec<_>>().join(",")
}

/// Returns a number with its noun: `1 pair`, `2 pairs`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_ranges() {
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0, 10.0]),
            Some(Spread { count: 4, min: 1.0, median: 2.5, max: 10.0 })
        );
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8, u32::MAX]), format!("0-2,5,7-8,{}", u32::MAX));
    }
}
