//! A report as text, JSON, HTML or a graph: one file per format, each a pure function of the digest of a report.
//!
//! Nothing here prints or judges. Every string that came from a machine passes through [`escape`] on its way into text
//! so that a device name cannot steer the terminal.

use std::io::Write;
use std::path::Path;

use model::report::Report;
use model::timeline::Timeline;

mod changes;
pub mod comparison;
mod counters;
mod csv;
mod declared;
mod digest;
pub mod escape;
mod evidence;
pub mod figures;
pub mod files;
mod findings;
mod format;
mod gaps;
pub mod gauges;
mod groups;
mod highlight;
#[cfg(test)]
mod hostile;
pub mod html;
#[cfg(test)]
mod impossible_tests;
pub mod json;
pub mod junit;
mod line;
mod machine;
pub mod markdown;
mod marks;
mod matrices;
pub mod matrix;
mod overlap;
pub mod page;
#[cfg(test)]
mod page_tests;
pub mod paint;
mod partial;
mod paths;
pub mod pick;
mod picture;
pub mod prometheus;
pub mod read;
mod screen;
mod sections;
mod soak;
mod soak_series;
#[cfg(test)]
mod tests;
pub mod text;
mod topo;
mod trace;
mod watched;
pub mod wrap;

pub use digest::held;
pub use findings::{at_once, part};
pub use format::{Format, Level, Of, Style};
pub use screen::screen;
pub use soak::{duration, line as soak_line};
pub use soak_series::series as soak_series;

/// Every format. Flags, extensions, help, the table of docs/formats.md and the tests that hold for
/// all formats follow from this list.
pub const FORMATS: &[&Format] = &[
    &text::FORMAT,
    &json::FORMAT,
    &html::FORMAT,
    &markdown::FORMAT,
    &junit::FORMAT,
    &prometheus::FORMAT,
    &line::FORMAT,
    &csv::FORMAT,
    &picture::FORMAT,
    &picture::tree::FORMAT,
    &trace::FORMAT,
];

/// Returns the formats that these reports can be written in.
pub fn formats(of: Of) -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(move |format| match (format.of, of) {
        (_, Of::Comparison) => comparison::FORMATS.contains(&format.name),
        (Of::All, _) => true,
        (Of::One, of) => of != Of::Fleet,
        (Of::Traced, of) => of == Of::All,
        (only, of) => only == of,
    })
}

pub fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// Returns the possible endings of file names: `.txt`, `.json`, ....
pub fn extensions(formats: impl Iterator<Item = &'static Format>) -> String {
    let all = formats.flat_map(|format| format.extensions);
    all.map(|extension| format!(".{extension}")).collect::<Vec<_>>().join(", ")
}

/// Returns the format for a file's extension.
///
/// # Errors
///
/// Returns a sentence that names the file and lists the known extensions.
pub fn for_path(path: &Path) -> Result<&'static Format, String> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is = |known: &&str| known.eq_ignore_ascii_case(extension);
    let all = || FORMATS.iter().copied();
    all().find(|format| format.extensions.iter().any(is)).ok_or_else(|| {
        let name = path.to_string_lossy();
        let (name, known) = (escape::clean(&name), extensions(all()));
        format!("'{name}' does not say which format to write: let its name end in {known}")
    })
}

/// Writes the report in this format, with the events of traced rounds where the format has a timeline. JSON is written as it
/// is produced. A report without measurements reads as `topo` shows it.
///
/// # Errors
///
/// Returns the errors of the writer.
pub fn write(
    report: &Report,
    timelines: &[Timeline],
    format: &Format,
    style: &Style,
    to: &mut dyn Write,
) -> std::io::Result<()> {
    if *format == json::FORMAT {
        return json::write(report, to);
    }
    let digest = digest::Digest { timelines, ..digest::Digest::of(report) };
    to.write_all((format.render)(&digest, style).as_bytes())
}

/// Returns the limits of a report's verdict, a sentence each without its full stop: what was interrupted, left out or
/// silenced.
pub fn caveats(report: &Report) -> Vec<String> {
    let mut caveats = digest::Digest::of(report).caveats;
    caveats.remove(&digest::Caveat::Simulated);
    caveats.into_values().collect()
}

pub fn render(report: &Report, format: &Format, style: &Style) -> String {
    (format.render)(&digest::Digest::of(report), style)
}
