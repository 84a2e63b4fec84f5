//! A report as text, JSON, HTML or a graph: one file per format, each a pure function of the report.
//!
//! Nothing here prints or judges. Every string that came from a machine passes through [`escape`]
//! on its way into text or dot, so that a device name cannot steer the terminal.

use std::path::Path;

use crate::model::report::Report;

mod brief;
pub mod comparison;
mod crowd;
pub mod dot;
pub mod escape;
mod evidence;
mod figures;
mod findings;
mod highlight;
#[cfg(test)]
mod hostile;
pub mod html;
pub mod json;
pub mod junit;
mod layout;
pub mod line;
mod machine;
pub mod markdown;
mod matrices;
mod matrix;
mod page;
mod paths;
pub mod prometheus;
pub mod read;
pub mod rules;
#[cfg(test)]
pub(crate) mod sample;
mod tables;
#[cfg(test)]
mod tests;
pub mod text;
pub mod topo;

/// How text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; no line is longer. Fewer than 60 are taken as 60.
    pub width: usize,
    /// Whether ANSI colours may be used. Nothing is ever said by colour alone.
    pub color: bool,
    /// Whether every matrix is shown, not only those most people need.
    pub verbose: bool,
}

/// What a report can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `check` for people.
    Text,
    /// `topo` for people.
    Topo,
    /// For scripts.
    Json,
    /// For a browser: one file by itself.
    Html,
    /// JUnit XML, for CI systems.
    Junit,
    /// One line, for node health checkers.
    Line,
    /// For a ticket.
    Markdown,
    /// Prometheus text format, for node_exporter's textfile collector.
    Prometheus {
        /// Whether there are series of every pair, beside those of the machine.
        pairs: bool,
    },
    /// The topology as a Graphviz graph.
    Dot,
}

/// The extensions that `-o FILE` knows, and what they stand for.
const EXTENSIONS: &[(&str, Format)] = &[
    ("json", Format::Json),
    ("txt", Format::Text),
    ("html", Format::Html),
    ("htm", Format::Html),
    ("md", Format::Markdown),
    ("xml", Format::Junit),
    ("prom", Format::Prometheus { pairs: false }),
    ("dot", Format::Dot),
    ("gv", Format::Dot),
];

impl Format {
    /// Every format, with all that it can hold.
    #[cfg(test)]
    pub const ALL: &[Self] = &[
        Self::Text,
        Self::Topo,
        Self::Json,
        Self::Html,
        Self::Dot,
        Self::Markdown,
        Self::Junit,
        Self::Line,
        Self::Prometheus { pairs: true },
    ];

    /// What every report can be written to a file as.
    pub const OF_REPORTS: &[Self] =
        &[Self::Text, Self::Json, Self::Html, Self::Markdown, Self::Junit, Self::Prometheus { pairs: false }];

    /// What a report of `topo` can be written to a file as.
    pub const OF_TOPOLOGY: &[Self] = &[
        Self::Text,
        Self::Json,
        Self::Html,
        Self::Markdown,
        Self::Junit,
        Self::Prometheus { pairs: false },
        Self::Dot,
    ];

    /// The same format, with or without series of every pair where it has such.
    #[must_use]
    pub const fn with_pairs(self, pairs: bool) -> Self {
        match self {
            Self::Prometheus { .. } => Self::Prometheus { pairs },
            other => other,
        }
    }

    /// The format that a file's extension stands for.
    ///
    /// # Errors
    ///
    /// A sentence that names the file and lists the extensions there are.
    pub fn for_path(path: &Path) -> Result<Self, String> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let found = EXTENSIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
        found.map(|&(_, format)| format).ok_or_else(|| {
            let known: Vec<_> = EXTENSIONS.iter().map(|(extension, _)| format!(".{extension}")).collect();
            let name = path.to_string_lossy();
            format!(
                "'{}' does not say which format to write: let its name end in {}",
                escape::clean(&name),
                known.join(", ")
            )
        })
    }
}

/// The report in this format. A report without measurements reads as `topo` shows it.
pub fn render(report: &Report, format: Format, style: &Style) -> String {
    match format {
        Format::Topo => topo::render(report, style),
        Format::Text if report.measurements.is_none() => topo::render(report, style),
        Format::Text => text::render(report, style),
        Format::Json => json::render(report),
        Format::Html => html::render(report, style.verbose),
        Format::Junit => junit::render(report),
        Format::Line => line::render(report),
        Format::Markdown => markdown::render(report),
        Format::Prometheus { pairs } => prometheus::render(report, pairs),
        Format::Dot => dot::render(report),
    }
}
