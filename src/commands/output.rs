//! Writes reports to stdout, and to files.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::files::{Files, NotWritten, Written, limit, write_through};
use crate::cli::{Cli, Color, ReportArgs};
use model::report::Report;
use model::timeline::Timeline;
use report::{self, Format, Level, Style, json};
use run::recording::outlet::{Outlet, was_given_up};

/// Least number of columns for a useful layout.
const NARROWEST: usize = 60;

/// Returns the style of a report on stdout.
pub(super) fn style_of(cli: &Cli, args: &ReportArgs) -> Style {
    let level = if args.figures { Level::Figures } else { Level::Short };
    style(cli.color, if args.verbose { Level::Every } else { level })
}

/// Returns the style of text on stdout.
pub(super) fn style(color: Color, level: Level) -> Style {
    let stdout = std::io::stdout();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            stdout.is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
        }
    };
    let width = terminal_size::terminal_size_of(&stdout)
        .map_or(Style::PLAIN.width, |(width, _)| usize::from(width.0));
    // COLUMNS can give the width of a pipe's reader, as ls and git allow.
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = if stdout.is_terminal() { width } else { columns.unwrap_or(width) };
    let terminal = stdout.is_terminal();
    let ascii = terminal && !is_utf8(|name| std::env::var(name).ok());
    Style { width: width.max(NARROWEST), color, level, terminal, ascii }
}

/// Returns true if the locale supports more than ASCII. The first of the deciding variables that is set counts; the
/// tool prints UTF-8 if none is.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| variable(name));
    let locale =
        set.into_iter().find(|value| !value.is_empty()).map(|value| value.to_ascii_lowercase());
    locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

/// Prints a report and writes its files; returns its exit code.
///
/// # Errors
///
/// A sentence that names the outputs that could not be written. All others are written.
pub(super) fn publish(
    report: &Report,
    format: &Format,
    style: &Style,
    files: &Files,
) -> Result<u8, String> {
    publish_seen(report, &[], format, style, files).code().map_err(|failure| failure.sentence)
}

/// Writes the files of a report whose text was printed otherwise; `printed` is why that failed.
pub(super) fn write_files(
    report: &Report,
    style: &Style,
    files: &Files,
    printed: Option<String>,
) -> Published {
    let (Written { whole, is_drawn }, failure) = files.write(report, &[], style);
    let printed = printed.map(|sentence| NotWritten { sentence, given_up: false });
    let code = report.verdict.exit_code;
    Published { code, whole, is_drawn, failure: NotWritten::both(failure, printed) }
}

/// The result of publishing a report.
#[derive(Debug)]
pub(super) struct Published {
    code: u8,
    /// A file that contains the whole report, whatever else could not be written.
    pub whole: Option<PathBuf>,
    /// True if no timeline that was asked for is missing.
    pub is_drawn: bool,
    failure: Option<NotWritten>,
}

impl Published {
    /// Returns the exit code of the report.
    ///
    /// # Errors
    ///
    /// An error for each output that failed. All other outputs are written.
    pub(super) fn code(self) -> Result<u8, NotWritten> {
        self.failure.map_or(Ok(self.code), Err)
    }
}

/// Prints a report and writes its files. Formats with a timeline also get the events of the followed rounds.
pub(super) fn publish_seen(
    report: &Report,
    timelines: &[Timeline],
    format: &Format,
    style: &Style,
    files: &Files,
) -> Published {
    let printed =
        printed(&files.stop, |stdout| report::write(report, timelines, format, style, stdout));
    let code = report.verdict.exit_code;
    let (written, failure) = files.write(report, timelines, style);
    let Written { whole, is_drawn } = written;
    Published { code, whole, is_drawn, failure: NotWritten::both(failure, printed.err()) }
}

/// Writes the whole report to a new file of any name in this folder.
///
/// # Errors
///
/// It cannot be written there; then no file is left.
pub(super) fn write_anew(report: &Report, folder: &Path) -> std::io::Result<PathBuf> {
    let mut file =
        tempfile::Builder::new().prefix("peerscope-").suffix(".json").tempfile_in(folder)?;
    report::write(report, &[], &json::FORMAT, &Style::PLAIN, &mut file)?;
    file.as_file().sync_all()?;
    Ok(file.keep().map_err(|error| error.error)?.1)
}

/// Writes to stdout. A reader that has closed the pipe has read enough: that is not a failure.
///
/// # Errors
///
/// Another failure, such as a full disk.
pub(super) fn print(text: &str) -> Result<(), String> {
    printed(&Arc::default(), |stdout| stdout.write_all(text.as_bytes()))
        .map_err(|failure| failure.sentence)
}

fn printed(
    stop: &Arc<AtomicBool>,
    write: impl Fn(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), NotWritten> {
    match write_through(&mut Outlet::new(std::io::stdout().lock(), stop), &write) {
        // A closed stdout is not an error, as in the standard library: whoever closed it wants no output.
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::BADF.raw_os_error()) => {
            let given_up = was_given_up(&error);
            Err(NotWritten {
                sentence: format!("cannot write to stdout: {error}{}", limit(&error)),
                given_up,
            })
        }
        _ => Ok(()),
    }
}
