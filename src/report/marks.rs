//! The cell of a pair in a matrix: a figure, or a word for the reason why there is none.

use super::highlight::Highlights;
use super::matrix::Cell;
use super::page::Paint;
use model::cell::Measurement;
use model::measurement::{PeerBandwidth, Status, Verified};
use model::placement::{Pair, Path};
use model::rounding::{percent, tight_rate};

/// Content of a cell: a figure with its mark and per cent, or a word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Figure {
    Number { value: String, percent: Option<f64> },
    Word(&'static str),
}

/// Words and marks with their meaning. Each is explained below a matrix that contains it.
const MARKS: [Mark; 9] = [
    Mark::new("hung", "did not end before its deadline"),
    Mark::new("fail", "the copy failed"),
    Mark::new("BAD", "bytes were lost or changed on the way").and("so there is no rate"),
    Mark::new("skip", "not run").and("for the reason given"),
    Mark::new("-", "not measured in this run"),
    Mark::new("s", "staged through host memory").and("per cent of the staged route"),
    Mark::new("!", "a finding above is about this pair"),
    Mark::new("?", "not verified: it is not known whether the bytes arrived"),
    Mark::new("~", "another program was at work: nothing is judged by this figure"),
];

/// A word or mark in a cell of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) mark: &'static str,
    pub(super) meaning: &'static str,
    /// Its meaning for the rest of the matrix; empty for most.
    besides: &'static str,
}

impl Mark {
    const fn new(mark: &'static str, meaning: &'static str) -> Self {
        Self { mark, meaning, besides: "" }
    }

    const fn and(self, besides: &'static str) -> Self {
        Self { besides, ..self }
    }

    /// Returns the whole meaning.
    pub(super) fn in_full(self) -> String {
        let parts = [self.meaning, self.besides];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the whole meaning of a word or mark.
pub(super) fn meaning(mark: &str) -> String {
    let known = MARKS.into_iter().find(|known| known.mark == mark);
    known.map(Mark::in_full).unwrap_or_default()
}

/// Returns the word for a measurement without a figure.
pub(super) const fn word(status: Status) -> &'static str {
    match status {
        Status::Hung => "hung",
        Status::Skipped => "skip",
        Status::Measured | Status::Failed => "fail",
    }
}

/// Returns the paint of a word: a measurement that was not requested is not a fault.
pub(super) fn paint(word: &str) -> Paint {
    if matches!(word, "-" | "skip") { Paint::Faint } else { Paint::Error }
}

impl Figure {
    pub(super) fn of(peer: Option<&PeerBandwidth>) -> Self {
        let Some(peer) = peer else {
            return Self::Word("-");
        };
        match peer.achieved_gbps {
            Some(achieved) if peer.is_sound() || peer.ending.disturbed => {
                let staged = if peer.setup.path == Path::Staged { "s" } else { "" };
                let unsure = if peer.verified == Verified::Inconclusive { "?" } else { "" };
                let disturbed = if peer.ending.disturbed { "~" } else { "" };
                Self::Number {
                    value: format!("{}{staged}{unsure}{disturbed}", tight_rate(achieved.0)),
                    percent: peer.healthy_percent,
                }
            }
            _ if peer.verified.is_wrong() => Self::Word("BAD"),
            _ => Self::Word(word(peer.ending.status)),
        }
    }

    /// Returns the figure with the mark of a pair that a finding is about.
    pub(super) fn marked(mut self, is_affected: bool) -> Self {
        if let Self::Number { value, .. } = &mut self
            && is_affected
        {
            value.push('!');
        }
        self
    }

    /// Returns true if the figure has this one of the [`MARKS`].
    fn bears(&self, mark: &str) -> bool {
        match self {
            Self::Word(word) => *word == mark,
            Self::Number { value, .. } => mark.len() == 1 && value.contains(mark) && mark != "-",
        }
    }
}

/// Returns the marks of these figures.
pub(super) fn legend<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Vec<Mark> {
    let figures: Vec<_> = figures.into_iter().collect();
    MARKS
        .into_iter()
        .filter(|known| figures.iter().any(|figure| figure.bears(known.mark)))
        .collect()
}

/// Returns figures as cells in which values and per cent are aligned separately.
pub(super) fn cells(figures: &[(Pair, Figure)], highlights: &Highlights) -> Vec<(Pair, Cell)> {
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    let has_percent =
        |figure: &&(Pair, Figure)| matches!(figure.1, Figure::Number { percent: Some(_), .. });
    let any_percent = figures.iter().any(|figure| has_percent(&figure));
    let widths = figures.iter().map(|(_, figure)| match figure {
        Figure::Number { percent, .. } if any_percent => text(*percent).len(),
        _ => 0,
    });
    let width = widths.max().unwrap_or(0);
    let cell = |pair: Pair, figure: &Figure| {
        let found = highlights.pair(pair);
        match figure {
            Figure::Number { value, percent } if any_percent => {
                Cell::new(format!("{value} {:>width$}", text(*percent)), found).with_share(*percent)
            }
            Figure::Number { value, .. } => Cell::new(value, found),
            Figure::Word(word) => Cell::new(word, found.max(paint(word))),
        }
    };
    figures.iter().map(|(pair, figure)| (*pair, cell(*pair, figure))).collect()
}
