//! Where reports go: stdout and files.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::cli::{Cli, Color, ReportArgs};
use crate::hardware::limits;
use crate::model::report::Report;
use crate::report::{self, Format, Of, Style, prometheus, render};

/// A useful layout needs at least this many columns.
const NARROWEST: usize = 60;

/// The style of a report on stdout.
pub fn style_of(cli: &Cli, args: &ReportArgs) -> Style {
    Style { pairs: args.prometheus_pairs, ..style(cli.color, args.verbose) }
}

/// The style of text on stdout.
pub fn style(color: Color, verbose: bool) -> Style {
    let stdout = std::io::stdout();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let width = terminal_size::terminal_size_of(&stdout).map_or(Style::PLAIN.width, |(width, _)| usize::from(width.0));
    // A pipe can say how wide its reader is, as ls and git let it.
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = if stdout.is_terminal() { width } else { columns.unwrap_or(width) };
    Style { width: width.max(NARROWEST), color, verbose, ..Style::PLAIN }
}

/// Prints a report and writes its files; returns its exit code.
///
/// # Errors
///
/// A sentence that names what could not be written. Everything else is written.
pub fn publish(report: &Report, format: &Format, style: &Style, files: &Files) -> Result<u8, String> {
    let printed = print(&render(report, format, style));
    files.write(report, style).and(printed)?;
    Ok(report.verdict.exit_code)
}

/// Files to write in addition to stdout, checked before anything is measured.
pub struct Files(Vec<(PathBuf, &'static Format)>);

impl Files {
    /// Checks that each file's format is known and fits these reports, and that its folder is writable.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub fn prepare(paths: &[PathBuf], of: Of) -> Result<Self, String> {
        let mut files = Vec::new();
        for path in paths {
            let format = report::for_path(path)?;
            if report::formats(of).all(|allowed| allowed != format) {
                return Err(format!("cannot write {}: this command does not have that format", path.display()));
            }
            if path.is_dir() {
                return Err(format!("cannot write {}: it is a folder", path.display()));
            }
            let folder = folder_of(path);
            if !folder.is_dir() {
                return Err(format!("cannot write {}: there is no folder {}", path.display(), folder.display()));
            }
            temporary_beside(path).map_err(|error| cannot_write(path, &error))?;
            files.push((path.clone(), format));
        }
        Ok(Self(files))
    }

    /// The files of a report with measurements, prepared.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`]; also if series for every pair are requested without a Prometheus format.
    pub fn of_report(args: &ReportArgs) -> Result<Self, String> {
        let files = Self::prepare(&args.output, Of::All)?;
        let mut formats = files.0.iter().map(|(_, format)| *format).chain([args.format]);
        if args.prometheus_pairs && formats.all(|format| *format != prometheus::FORMAT) {
            return Err(
                "--prometheus-pairs: nothing is written for Prometheus; add --format prometheus or -o FILE.prom".into(),
            );
        }
        Ok(files)
    }

    /// Writes every file, whole or not at all. After a failure the others are still written.
    fn write(&self, report: &Report, style: &Style) -> Result<(), String> {
        let style = Style { width: Style::PLAIN.width, color: false, ..*style };
        let mut failure = Ok(());
        for (path, format) in &self.0 {
            if let Err(error) = write_whole(path, render(report, format, &style).as_bytes()) {
                failure = failure.and(Err(cannot_write(path, &error)));
            }
        }
        failure
    }
}

/// Writes to stdout. A reader that has closed the pipe has read what it wanted: that is not a failure.
///
/// # Errors
///
/// Another failure, such as a full disk.
pub fn print(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}{}", limit(&error)))
        }
        _ => Ok(()),
    }
}

fn write_whole(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = temporary_beside(path)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A file in the same folder, so that it can be renamed into place; it vanishes if it is not.
fn temporary_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix(".peerscope-")
        // The umask takes away what it takes away from every new file.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    // Its kind alone: the whole error would name the temporary file, which means nothing to the user.
    format!("cannot write {}: {}{}; choose another place with -o", path.display(), error.kind(), limit(error))
}

/// The limit of this process behind an error, to follow it.
fn limit(error: &std::io::Error) -> String {
    limits::of_error(error).map(|limit| format!(": {limit}")).unwrap_or_default()
}
