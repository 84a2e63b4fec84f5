//! The definition of a format, and the style of text. The table of all formats is in the parent module.

use super::digest::Digest;

/// The style of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; no line is longer. Values below 60 count as 60.
    pub width: usize,
    /// True if ANSI colours may be used. Nothing is shown by colour alone.
    pub color: bool,
    /// How much a page for people shows.
    pub level: Level,
    /// True if the text goes to a terminal, where the beginning of a long page scrolls away.
    pub terminal: bool,
    /// True if drawings use ASCII only.
    pub ascii: bool,
}

impl Style {
    /// The style of files, and of text that does not go to a terminal.
    pub const PLAIN: Self =
        Self { width: 100, color: false, level: Level::Short, terminal: false, ascii: false };
}

/// How much a page for people shows; each level has all of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The verdict, what is wrong, what to do, and one line of figures.
    Short,
    /// A line for each kind of figure.
    Figures,
    /// Every table, and matrices whose cells differ.
    Every,
}

/// A format for reports.
#[derive(Debug)]
pub struct Format {
    /// The name for `--format`.
    pub name: &'static str,
    /// File extensions, without the dot; empty if the format is for stdout only.
    pub extensions: &'static [&'static str],
    /// The purpose, for the help of `--format`.
    pub purpose: &'static str,
    /// The reports that the format supports.
    pub of: Of,
    /// True if a person waits for it: `topo` then leaves out facts that are slow to read.
    pub is_looked_at: bool,
    /// Renders a report.
    pub(super) render: fn(&Digest<'_>, &Style) -> String,
}

impl Format {
    /// Creates a format for every report that is kept for later.
    pub(super) const fn new(
        name: &'static str,
        extensions: &'static [&'static str],
        purpose: &'static str,
        render: fn(&Digest<'_>, &Style) -> String,
    ) -> Self {
        Self { name, extensions, purpose, of: Of::All, is_looked_at: false, render }
    }
}

impl Format {
    /// Returns true if the format shows more on request: the two formats made of a page for people.
    pub fn has_verbose(&self) -> bool {
        matches!(self.name, "text" | "html")
    }
}

/// The reports that a format supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Every report.
    All,
    /// Every report of one machine: all except those of `fleet`.
    One,
    /// Reports of `topo`: the format shows no measurements.
    Topology,
    /// Runs with measurements: the format shows their timeline, whose rounds run for it.
    Traced,
    /// Reports of `fleet`: see [`crate::formats`].
    Fleet,
    /// Comparisons of two reports.
    Comparison,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}
