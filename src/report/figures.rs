//! Figures picked out of the measurements: configurations, spreads over pairs, cells.

use std::collections::HashMap;

use super::highlight::Highlights;
use super::matrix::Cell;
use super::page::Paint;
use crate::model::flow::Setup;
use crate::model::measurement::{Measurements, PeerBandwidth, Status, Verified};
use crate::model::placement::{Pair, Path};
use crate::model::report::Report;

/// Every configuration that was planned, whatever its size, in the order in which it was.
pub(super) fn setups(measurements: &Measurements) -> Vec<Setup> {
    let mut setups: Vec<Setup> = Vec::new();
    for setup in measurements.peer.iter().map(|peer| peer.setup.of_any_size()) {
        if !setups.contains(&setup) {
            setups.push(setup);
        }
    }
    setups
}

/// The measurements made in this configuration, whatever their size.
pub(super) fn of_setup(measurements: &Measurements, setup: Setup) -> impl Iterator<Item = &PeerBandwidth> {
    measurements.peer.iter().filter(move |peer| peer.setup.of_any_size() == setup.of_any_size())
}

/// The same by their pairs.
pub(super) fn by_pair(measurements: &Measurements, setup: Setup) -> HashMap<Pair, &PeerBandwidth> {
    of_setup(measurements, setup).map(|peer| (peer.pair, peer)).collect()
}

/// Smallest, median and largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) count: usize,
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Spread {
    /// None when there is no figure.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { count: values.len(), min, median, max })
    }
}

/// A figure in three significant digits or whole: `396`, `35.2`, `7.88`.
pub(super) fn short(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

/// A rate: `396`, `35.2`, `7.9`. One decimal place is what repeated runs agree on.
pub(super) fn rate(value: f64) -> String {
    format!("{value:.*}", usize::from(value < 99.95))
}

/// A rate for a crowded matrix: `396`, `35`, `7.9`. The per cent beside it carry the precision.
fn tight_rate(value: f64) -> String {
    format!("{value:.*}", usize::from(value < 9.95))
}

/// What stands in a cell: a figure with its mark and per cent, or a word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Figure {
    Number { value: String, percent: Option<f64> },
    Word(&'static str),
}

/// Words and marks, with what they mean. Printed below a matrix where they occur.
const MARKS: [(&str, &str); 7] = [
    ("hung", "did not end before its deadline"),
    ("fail", "the copy failed"),
    ("BAD", "bytes were lost or changed on the way, so a rate would mean nothing"),
    ("skip", "not run, for the reason given"),
    ("-", "not measured in this run"),
    ("s", "staged through host memory, per cent of the staged route"),
    ("?", "whether the bytes arrived could not be told"),
];

/// What a word or mark means.
pub(super) fn meaning(mark: &str) -> &'static str {
    MARKS.iter().find(|(known, _)| *known == mark).map_or("", |(_, meaning)| meaning)
}

impl Figure {
    pub(super) fn of(peer: Option<&PeerBandwidth>) -> Self {
        let Some(peer) = peer else { return Self::Word("-") };
        if matches!(peer.verified, Verified::Dropped | Verified::Corrupt) {
            return Self::Word("BAD");
        }
        match (peer.status, peer.achieved_gbps) {
            (Status::Measured, Some(achieved)) => {
                let staged = if peer.setup.path == Path::Staged { "s" } else { "" };
                let unsure = if peer.verified == Verified::Inconclusive { "?" } else { "" };
                Self::Number { value: format!("{}{staged}{unsure}", tight_rate(achieved.0)), percent: peer.percent }
            }
            (Status::Measured | Status::Failed, _) => Self::Word("fail"),
            (Status::Hung, _) => Self::Word("hung"),
            (Status::Skipped, _) => Self::Word("skip"),
        }
    }

    /// The direct figure, or the staged one where a direct copy was not possible. A direct copy
    /// that failed stays visible.
    pub(super) fn direct_or_staged(direct: Option<&PeerBandwidth>, staged: Option<&PeerBandwidth>) -> Self {
        Self::of(preferred(direct, staged))
    }

    /// Which of [`MARKS`] it bears.
    fn bears(&self, mark: &str) -> bool {
        match self {
            Self::Word(word) => *word == mark,
            Self::Number { value, .. } => mark.len() == 1 && value.contains(mark) && mark != "-",
        }
    }
}

/// The direct measurement of a pair, or the staged one where a direct copy was not possible. A
/// direct copy that failed stays visible.
pub(super) fn preferred<'a>(
    direct: Option<&'a PeerBandwidth>,
    staged: Option<&'a PeerBandwidth>,
) -> Option<&'a PeerBandwidth> {
    match (direct, staged) {
        (None, Some(_)) => staged,
        (Some(cell), Some(_)) if cell.status == Status::Skipped => staged,
        _ => direct,
    }
}

/// The marks that these figures bear, with their meaning.
pub(super) fn legend<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Vec<(&'static str, &'static str)> {
    let figures: Vec<_> = figures.into_iter().collect();
    MARKS.into_iter().filter(|(mark, _)| figures.iter().any(|figure| figure.bears(mark))).collect()
}

/// Figures as cells in which values and per cent each keep to a column of their own.
pub(super) fn cells(figures: &[(Pair, Figure)], highlights: &Highlights) -> Vec<(Pair, Cell)> {
    let text = |percent: f64| format!("{percent:.0}%");
    let mut percent_width = 0;
    for (_, figure) in figures {
        if let Figure::Number { percent: Some(percent), .. } = figure {
            percent_width = percent_width.max(text(*percent).len());
        }
    }
    let cell = |pair: Pair, figure: &Figure| {
        let found = highlights.pair(pair);
        match figure {
            Figure::Number { value, percent: Some(percent) } => {
                let cell = Cell::new(format!("{value} {:>percent_width$}", text(*percent)), found);
                cell.with_share(Some(*percent))
            }
            Figure::Number { value, percent: None } if percent_width > 0 => {
                Cell::new(format!("{value} {:>percent_width$}", "?"), found)
            }
            Figure::Number { value, percent: None } => Cell::new(value, found),
            Figure::Word(word @ ("-" | "skip")) => Cell::new(word, found.max(Paint::Faint)),
            Figure::Word(word) => Cell::new(word, Paint::Error),
        }
    };
    figures.iter().map(|(pair, figure)| (*pair, cell(*pair, figure))).collect()
}

/// The GPUs that this run was about: those that CUDA was asked for and those measured; all GPUs
/// of the machine where neither tells.
pub(super) fn gpus(report: &Report) -> Vec<u32> {
    let mut gpus: Vec<u32> = Vec::new();
    if let Some(measurements) = &report.measurements {
        gpus.extend(measurements.driver.devices.iter().map(|device| device.index));
        gpus.extend(measurements.peer.iter().flat_map(|peer| [peer.pair.source, peer.pair.destination]));
    }
    if gpus.is_empty() {
        gpus.extend(report.snapshot.gpus.iter().map(|gpu| gpu.index));
    }
    gpus.sort_unstable();
    gpus.dedup();
    gpus
}

/// Indices as people write them: `0-3,6`.
pub(super) fn ranges(indices: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &index in indices {
        match ranges.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(index) => *end = index,
            _ => ranges.push((index, index)),
        }
    }
    let text = |&(start, end): &(u32, u32)| if start == end { start.to_string() } else { format!("{start}-{end}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// `1 pair`, `2 pairs`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_roundings() {
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0, 10.0]), Some(Spread { count: 4, min: 1.0, median: 2.5, max: 10.0 }));
        assert_eq!([396.3, 99.96, 35.24, 7.88, 0.0].map(rate), ["396", "100", "35.2", "7.9", "0.0"]);
        assert_eq!([396.3, 35.24, 9.96, 7.88].map(tight_rate), ["396", "35", "10", "7.9"]);
        assert_eq!([2.345, 14.26, 480.2].map(short), ["2.35", "14.3", "480"]);
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
