//! A report as text, JSON, HTML or a graph: one file per format, each a pure function of the report.
//!
//! Nothing here prints or judges. Every string that came from a machine passes through [`escape`]
//! on its way into text or dot, so that a device name cannot steer the terminal.

use std::path::Path;

use crate::model::report::Report;

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
mod layout;
mod machine;
mod matrices;
mod matrix;
mod page;
mod paths;
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
    /// The topology as a Graphviz graph.
    Dot,
}

/// The extensions that `-o FILE` knows, and what they stand for.
const EXTENSIONS: [(&str, Format); 6] = [
    ("json", Format::Json),
    ("txt", Format::Text),
    ("html", Format::Html),
    ("htm", Format::Html),
    ("dot", Format::Dot),
    ("gv", Format::Dot),
];

impl Format {
    /// The format that a file's extension stands for.
    ///
    /// # Errors
    ///
    /// A sentence that names the file and lists the extensions there are.
    pub fn for_path(path: &Path) -> Result<Self, String> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let found = EXTENSIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
        found.map(|&(_, format)| format).ok_or_else(|| {
            let known = EXTENSIONS.map(|(extension, _)| format!(".{extension}")).join(", ");
            let name = path.to_string_lossy();
            format!("'{}' does not say which format to write: let its name end in {known}", escape::clean(&name))
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
        Format::Dot => dot::render(report),
    }
}
