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
pub(super) enum Entry {
    Number { value: String, percent: Option<f64> },
    Word(&'static str),
}

/// A word or mark in a cell of a matrix, with its meaning.
type Mark = (&'static str, &'static str);

/// All words and marks. Each is explained below a matrix that contains it, beside a map up to the comma.
const MARKS: [Mark; 9] = [
    ("hung", "did not end before its deadline"),
    ("fail", "the copy failed"),
    ("BAD", "bytes were lost or changed on the way, so there is no rate"),
    ("skip", "not run, for the reason given"),
    ("-", "not measured in this run"),
    ("s", "staged through host memory, per cent of the staged route"),
    ("!", "a finding above is about this pair"),
    ("?", "not verified: it is not known whether the bytes arrived"),
    ("~", "another program was at work: nothing is judged by this figure"),
];

/// Returns the meaning of a word or mark.
pub(super) fn meaning(mark: &str) -> &'static str {
    MARKS.iter().find(|(known, _)| *known == mark).map_or("", |(_, meaning)| meaning)
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

impl Entry {
    pub(super) fn of(peer: Option<&PeerBandwidth>) -> Self {
        let Some(peer) = peer else { return Self::Word("-") };
        let disturbed = peer.ending.disturbed;
        match peer.achieved_gbps {
            Some(achieved) if peer.is_sound() || disturbed => {
                let staged = if peer.setup.path == Path::Staged { "s" } else { "" };
                let unsure = if peer.verified == Verified::Inconclusive { "?" } else { "" };
                let disturbed = if disturbed { "~" } else { "" };
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
pub(super) fn legend<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Vec<Mark> {
    let used = |(mark, _): &Mark| entries.clone().any(|entry| entry.bears(mark));
    MARKS.into_iter().filter(used).collect()
}

/// Returns figures as cells in which values and per cent are aligned separately.
pub(super) fn cells(figures: &[(Pair, Entry)], highlights: &Highlights) -> Vec<(Pair, Cell)> {
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    let shares = figures.iter().filter_map(|(_, figure)| match figure {
        Entry::Number { percent, .. } => Some(*percent),
        Entry::Word(_) => None,
    });
    let any_share = shares.clone().any(|share| share.is_some());
    let width = shares.map(|share| text(share).len()).max().unwrap_or(0);
    let cell = |(pair, figure): &(Pair, Entry)| {
        let found = highlights.pair(*pair);
        let cell = match figure {
            Entry::Number { value, percent } if any_share => {
                Cell::new(format!("{value} {:>width$}", text(*percent)), found).with_share(*percent)
            }
            Entry::Number { value, .. } => Cell::new(value, found),
            Entry::Word(word) => Cell::new(word, found.max(paint(word))),
        };
        (*pair, cell)
    };
    figures.iter().map(cell).collect()
}
