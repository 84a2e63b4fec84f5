//! Where reports go: stdout and files.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::{Cli, Color, ReportArgs};
use hardware::limits;
use model::report::Report;
use model::timeline::Timeline;
use report::{self, Format, Of, Style, prometheus};

/// How often a reader of stdout who is late is looked after, where stdout does not wait itself.
const READER: Duration = Duration::from_millis(10);

/// A useful layout needs at least this many columns.
const NARROWEST: usize = 60;

/// The style of a report on stdout.
pub fn style_of(cli: &Cli, args: &ReportArgs) -> Style {
    Style {
        pairs: args.prometheus_pairs,
        brief: args.brief,
        ..style(cli.color, args.verbose)
    }
}

/// The style of text on stdout.
pub fn style(color: Color, verbose: bool) -> Style {
    let stdout = std::io::stdout();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            stdout.is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    };
    let width = terminal_size::terminal_size_of(&stdout)
        .map_or(Style::PLAIN.width, |(width, _)| usize::from(width.0));
    // A pipe can say how wide its reader is, as ls and git let it.
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let width = if stdout.is_terminal() {
        width
    } else {
        columns.unwrap_or(width)
    };
    let terminal = stdout.is_terminal();
    let ascii = terminal && !is_utf8(|name| std::env::var(name).ok());
    Style {
        width: width.max(NARROWEST),
        color,
        verbose,
        terminal,
        ascii,
        ..Style::PLAIN
    }
}

/// Whether the locale has more than ASCII, by the variables that decide it, the first that is set; the tool prints
/// UTF-8 where none is.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| variable(name));
    let locale = set
        .into_iter()
        .find(|value| !value.is_empty())
        .map(|value| value.to_ascii_lowercase());
    locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

/// Prints a report and writes its files; returns its exit code.
///
/// # Errors
///
/// A sentence that names what could not be written. Everything else is written.
pub fn publish(
    report: &Report,
    format: &Format,
    style: &Style,
    files: &Files,
) -> Result<u8, String> {
    publish_seen(report, &[], format, style, files)
}

/// The same with what was seen of the rounds that a timeline follows.
///
/// # Errors
///
/// As [`publish`].
pub fn publish_seen(
    report: &Report,
    timelines: &[Timeline],
    format: &Format,
    style: &Style,
    files: &Files,
) -> Result<u8, String> {
    let printed = printed(|stdout| report::write_seen(report, timelines, format, style, stdout));
    files.write(report, timelines, style).and(printed)?;
    Ok(report.verdict.exit_code)
}

/// Files to write in addition to stdout, checked before anything is measured: the name as it was given, the
/// place that it leads to, and the format.
pub struct Files(Vec<(PathBuf, PathBuf, &'static Format)>);

impl Files {
    /// Checks that each file's format is known and fits these reports, and that its folder is writable.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub fn prepare(paths: &[PathBuf], of: Of) -> Result<Self, String> {
        let mut files = Self(Vec::new());
        for path in paths {
            let format = format_of(path)?;
            if report::formats(of).all(|allowed| allowed != format) {
                return Err(format!(
                    "cannot write {}: this command does not have that format",
                    path.display()
                ));
            }
            let Whole { path, place } = files.beside(path)?;
            files.0.push((path, place, format));
        }
        Ok(files)
    }

    /// Checks that another file can be written, which is none of these.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub fn beside(&self, path: &Path) -> Result<Whole, String> {
        let place = destination(path).map_err(|error| cannot_write(path, &error))?;
        if place.is_dir() {
            return Err(format!("cannot write {}: it is a folder", path.display()));
        }
        if is_open_ended(&place) {
            let writable = rustix::fs::access(&place, rustix::fs::Access::WRITE_OK);
            writable.map_err(|error| cannot_write(path, &error.into()))?;
        } else {
            let folder = folder_of(&place);
            if !folder.is_dir() {
                return Err(format!(
                    "cannot write {}: there is no folder {}",
                    path.display(),
                    folder.display()
                ));
            }
            temporary_beside(&place).map_err(|error| cannot_write(path, &error))?;
            if let Some((other, ..)) = self.0.iter().find(|(_, other, _)| *other == place) {
                let (path, other) = (path.display(), other.display());
                return Err(format!(
                    "cannot write {path}: -o {other} is the same file, and would be replaced"
                ));
            }
        }
        Ok(Whole {
            path: path.to_owned(),
            place,
        })
    }

    /// The files of a report with measurements, prepared.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`]; also if series for every pair are requested without a Prometheus format.
    pub fn of_report(args: &ReportArgs) -> Result<Self, String> {
        let files = Self::prepare(&args.output, Of::All)?;
        let mut formats = files
            .0
            .iter()
            .map(|(.., format)| *format)
            .chain([args.format]);
        if args.prometheus_pairs && formats.all(|format| *format != prometheus::FORMAT) {
            return Err(
                "--prometheus-pairs: nothing is written for Prometheus; add --format prometheus or -o FILE.prom".into(),
            );
        }
        Ok(files)
    }

    /// Writes every file, whole or not at all. After a failure the others are still written.
    fn write(&self, report: &Report, timelines: &[Timeline], style: &Style) -> Result<(), String> {
        self.each(style, &|format, style, to| {
            report::write_seen(report, timelines, format, style, to)
        })
    }

    /// The same of what is made as one text for each format.
    ///
    /// # Errors
    ///
    /// A sentence that names what could not be written. Everything else is written.
    pub fn write_all(
        &self,
        style: &Style,
        render: &dyn Fn(&Format, &Style) -> String,
    ) -> Result<(), String> {
        self.each(style, &|format, style, to| {
            to.write_all(render(format, style).as_bytes())
        })
    }

    fn each(&self, style: &Style, contents: Formatted<'_>) -> Result<(), String> {
        let style = Style {
            width: Style::PLAIN.width,
            color: false,
            terminal: false,
            ascii: false,
            ..*style
        };
        let mut failure = Ok(());
        for (path, place, format) in &self.0 {
            failure = failure.and(write_to(path, place, &|to| contents(format, &style, to)));
        }
        failure
    }
}

/// A file of its own, checked before anything is measured: the name as it was given, and the place that it leads to.
pub struct Whole {
    path: PathBuf,
    place: PathBuf,
}

impl Whole {
    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    ///
    /// A sentence that names it.
    pub fn write(&self, text: &str) -> Result<(), String> {
        write_to(&self.path, &self.place, &|to| to.write_all(text.as_bytes()))
    }
}

fn write_to(path: &Path, place: &Path, contents: Contents<'_>) -> Result<(), String> {
    let write = if is_open_ended(place) {
        write_through
    } else {
        write_whole
    };
    write(place, contents).map_err(|error| cannot_write(path, &error))
}

/// Writes what a file of a format is to have.
type Formatted<'a> = &'a dyn Fn(&Format, &Style, &mut dyn Write) -> std::io::Result<()>;

/// Writes to stdout. A reader that has closed the pipe has read what it wanted: that is not a failure.
///
/// # Errors
///
/// Another failure, such as a full disk.
pub fn print(text: &str) -> Result<(), String> {
    printed(|stdout| stdout.write_all(text.as_bytes()))
}

fn printed(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), String> {
    let mut stdout = Patient(std::io::stdout().lock());
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}{}", limit(&error)))
        }
        _ => Ok(()),
    }
}

/// Waits where the caller made stdout one that does not (`O_NONBLOCK`): such a one would lose the report as soon as its
/// reader is late.
struct Patient<W>(W);

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        patiently(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        patiently(|| self.0.flush())
    }
}

fn patiently<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(READER),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The format of a file: that of its extension, or JSON for a pipe or a device without one, which a program reads.
fn format_of(path: &Path) -> Result<&'static Format, String> {
    let json = |_| report::named("json").filter(|_| is_open_ended(path));
    report::for_path(path).or_else(|why| json(()).ok_or(why))
}

/// Where a name leads to when every symbolic link is followed; the last may lead to a file that is not there yet.
fn destination(path: &Path) -> std::io::Result<PathBuf> {
    let mut place = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        if is_open_ended(&place) {
            return Ok(place);
        }
        match std::fs::read_link(&place) {
            Ok(target) => place = folder_of(&place).join(target),
            Err(_) => {
                let folder = folder_of(&place).canonicalize();
                return Ok(folder
                    .ok()
                    .zip(place.file_name())
                    .map(|(folder, name)| folder.join(name))
                    .unwrap_or(place));
            }
        }
    }
    Err(ErrorKind::InvalidInput.into())
}

/// Whether this is a pipe, a device, or whatever the caller has opened for us (/dev/stdout, /dev/fd/3): something
/// that is written to and cannot be replaced.
fn is_open_ended(path: &Path) -> bool {
    let opened = ["/proc/self/fd", "/dev/fd"]
        .iter()
        .any(|folder| path.starts_with(folder))
        || ["/dev/stdout", "/dev/stderr"]
            .iter()
            .any(|name| path == Path::new(name));
    opened || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Writes what a file is to have.
type Contents<'a> = &'a dyn Fn(&mut dyn Write) -> std::io::Result<()>;

/// Writes to what is there. As on stdout, a reader that has closed its end has read what it wanted.
fn write_through(path: &Path, contents: Contents<'_>) -> std::io::Result<()> {
    // A file that the caller has opened may have something in it.
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    match contents(&mut file) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Replaces the file as a whole: no reader ever sees half of it. Its mode stays, and its owner where we may set it.
fn write_whole(path: &Path, contents: Contents<'_>) -> std::io::Result<()> {
    let mut file = temporary_beside(path)?;
    contents(&mut file)?;
    if let Ok(old) = std::fs::metadata(path) {
        use std::os::unix::fs::MetadataExt;
        // Only root may give a file away; others keep the group where they are in it.
        let _ = std::os::unix::fs::fchown(file.as_file(), Some(old.uid()), Some(old.gid()))
            .or_else(|_| std::os::unix::fs::fchown(file.as_file(), None, Some(old.gid())));
        file.as_file().set_permissions(old.permissions())?;
    }
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
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    // Its kind alone: the whole error would name the temporary file, which means nothing to the user.
    format!(
        "cannot write {}: {}{}; choose another place",
        path.display(),
        error.kind(),
        limit(error)
    )
}

/// The limit of this process behind an error, to follow it.
fn limit(error: &std::io::Error) -> String {
    limits::of_error(error)
        .map(|limit| format!(": {limit}"))
        .unwrap_or_default()
}
