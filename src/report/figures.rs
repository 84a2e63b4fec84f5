//! Figures over many pairs or GPUs, of which only sound cells count; groups, and lists as people write them.

use std::collections::HashSet;

use model::cell::{Figure, Measurement};
use model::measurement::Measurements;
use model::placement::{Pair, Path};

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
        let [low, high] = [(values.len() - 1) / 2, values.len() / 2].map(|at| values[at]);
        let median = if low == high { low } else { f64::midpoint(low, high) };
        Some(Self { count: values.len(), min, median, max })
    }
}

/// Figures over some measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// The main figure: for copies GB/s.
    pub rates: Option<Spread>,
    /// Achieved as per cent of what a healthy machine reaches.
    pub percents: Option<Spread>,
}

impl Figures {
    /// Computes the figures of the sound cells.
    pub(super) fn of<'a, M: Measurement + ?Sized + 'a>(
        cells: impl IntoIterator<Item = &'a M>,
    ) -> Self {
        let sound = cells.into_iter().filter(|cell| cell.is_sound());
        let sound: Vec<Vec<Figure>> = sound.map(Measurement::figures).collect();
        Self {
            rates: Spread::of(sound.iter().filter_map(|figures| figures.first()?.value)),
            percents: Spread::of(sound.iter().filter_map(|figures| healthy_percent(figures))),
        }
    }
}

/// Returns the figure that compares with a healthy machine, per cent.
fn healthy_percent(figures: &[Figure]) -> Option<f64> {
    let is_meant = |figure: &&Figure| figure.key == "healthy_percent" && figure.flow.is_none();
    figures.iter().find(is_meant)?.value
}

/// Returns pairs whose bytes did not arrive on a path: other measurements of such copies mean nothing.
pub(super) fn wrong_pairs(measurements: &Measurements) -> HashSet<(Pair, Path)> {
    let wrong = measurements.peer.iter().filter(|cell| cell.verified.is_wrong());
    wrong.map(|cell| (cell.pair, cell.setup.path)).collect()
}

/// Gathers values with equal keys, in the order of their first ones.
pub fn by_key<K: PartialEq, V>(all: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
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

/// Returns a pair in short: `0→1`.
pub(crate) fn arrow(pair: Pair) -> String {
    format!("{}→{}", pair.source, pair.destination)
}

/// Returns a number with its noun: `1 pair`, `2 pairs`.
pub fn count<N: std::fmt::Display + PartialEq + From<bool>>(number: N, noun: &str) -> String {
    format!("{number} {noun}{}", if number == N::from(true) { "" } else { "s" })
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
