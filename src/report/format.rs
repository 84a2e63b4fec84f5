//! What a format is, and how text is to look. The table of them all is in the parent module.

use super::digest::Digest;

/// How a report is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; no line is longer. Fewer than 60 are taken as 60.
    pub width: usize,
    /// Whether ANSI colours may be used. Nothing is ever said by colour alone.
    pub color: bool,
    /// Whether every matrix is shown, not only those most people need.
    pub verbose: bool,
    /// Whether metrics have series of every pair, beside those of the machine.
    pub pairs: bool,
}

impl Style {
    /// How files look, and text that goes to no terminal.
    pub const PLAIN: Self = Self { width: 100, color: false, verbose: false, pairs: false };
}

/// Something that a report can be written as.
#[derive(Debug)]
pub struct Format {
    /// Its name for `--format`.
    pub name: &'static str,
    /// What the names of its files end in, without the dot; empty where it is for stdout alone.
    pub extensions: &'static [&'static str],
    /// What it is for, as the help of `--format` says it.
    pub purpose: &'static str,
    /// Which reports can be written as it.
    pub of: Of,
    /// Whether somebody looks at it and waits for it: `topo` leaves out facts that are slow to read.
    pub is_looked_at: bool,
    /// Writes it.
    pub(super) render: fn(&Digest<'_>, &Style) -> String,
}

impl Format {
    /// A format that every report can be written as and that is kept for later.
    pub(super) const fn new(
        name: &'static str,
        extensions: &'static [&'static str],
        purpose: &'static str,
        render: fn(&Digest<'_>, &Style) -> String,
    ) -> Self {
        Self { name, extensions, purpose, of: Of::All, is_looked_at: false, render }
    }
}

/// Which reports can be written as a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Every report.
    All,
    /// Those of `topo`: it shows nothing of what was measured.
    Topology,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}
