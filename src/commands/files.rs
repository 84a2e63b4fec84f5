//! Files to write, checked before anything is measured, and each written completely or not at all.

use std::io::{BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::remark;
use crate::cli::ReportArgs;
use hardware::limits;
use model::report::Report;
use model::timeline::Timeline;
use report::{self, Format, Of, Style, json};
use run::recording::outlet::{Outlet, was_given_up};

/// Outputs that could not be written.
#[derive(Debug)]
pub(super) struct NotWritten {
    /// A sentence that names the outputs.
    pub sentence: String,
    /// True if only the user stopped the outputs, by asking for the end while they waited for their readers.
    pub given_up: bool,
}

impl NotWritten {
    fn new(name: &str, error: &std::io::Error) -> Self {
        let given_up = was_given_up(error);
        // Use only the error's kind: the whole error would name the temporary file, which means nothing to the user.
        let why =
            if given_up { error.to_string() } else { format!("{}{}", error.kind(), limit(error)) };
        Self { sentence: format!("cannot write {name}: {why}"), given_up }
    }

    pub(super) fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self {
                sentence: format!("{}; {}", one.sentence, other.sentence),
                given_up: one.given_up && other.given_up,
            }),
            (one, other) => one.or(other),
        }
    }
}

/// The result of writing the files.
pub(super) struct Written {
    /// A file that contains the whole report.
    pub whole: Option<PathBuf>,
    /// False if a timeline could not be written.
    pub is_drawn: bool,
}

/// Files to write in addition to stdout, checked before anything is measured: the given name, the place that it leads
/// to, and the format.
pub(super) struct Files {
    files: Vec<(PathBuf, PathBuf, &'static Format)>,
    /// True once late readers are not waited for any longer.
    pub(super) stop: Arc<AtomicBool>,
}

impl Files {
    /// Checks that each file's format is known and fits these reports, and that its folder is writable.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub(super) fn prepare(paths: &[PathBuf], of: Of) -> Result<Self, String> {
        let mut files = Self { files: Vec::new(), stop: Arc::default() };
        for path in paths {
            let format = format_of(path)?;
            if report::formats(of).all(|allowed| allowed != format) {
                return Err(format!(
                    "cannot write {}: this command does not have that format",
                    path.display()
                ));
            }
            let Whole { path, place, .. } = files.beside(path)?;
            files.files.push((path, place, format));
        }
        Ok(files)
    }

    /// Makes these files, and stdout, wait for late readers only until `stop` is set.
    pub(super) fn until(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    /// Checks that another file can be written, and that it is not one of these.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub(super) fn beside(&self, path: &Path) -> Result<Whole, String> {
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
            self.apart(path)?;
        }
        Ok(Whole { path: path.to_owned(), place, stop: Arc::clone(&self.stop) })
    }

    /// Checks that another file is not one of these.
    ///
    /// # Errors
    ///
    /// A sentence that names both.
    pub(super) fn apart(&self, path: &Path) -> Result<(), String> {
        let place = destination(path).ok();
        match self.files.iter().find(|(_, other, _)| Some(other) == place.as_ref()) {
            Some((other, ..)) if !is_open_ended(other) => Err(format!(
                "cannot write {}: -o {} is the same file, and would be replaced",
                path.display(),
                other.display()
            )),
            _ => Ok(()),
        }
    }

    /// Prepares the files of a report with measurements.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`].
    pub(super) fn of_report(args: &ReportArgs) -> Result<Self, String> {
        Self::prepare(&args.output, Of::All)
    }

    /// Writes every file, completely or not at all, but no timeline that has nothing to show. After a failure the others
    /// are still written.
    pub(super) fn write(
        &self,
        report: &Report,
        timelines: &[Timeline],
        style: &Style,
    ) -> (Written, Option<NotWritten>) {
        let is_empty = timelines.iter().all(|timeline| timeline.parts.is_empty());
        let left_out = |format: &Format| is_empty && format.of == Of::Traced;
        for (path, _, format) in &self.files {
            if left_out(format) {
                let why = "nothing that a timeline shows was recorded, so there is no file";
                remark(&format!("{}: {why}", path.display()));
            }
        }
        let written = |format: &Format, style: &Style, to: &mut dyn Write| {
            report::write(report, timelines, format, style, to)
        };
        self.each(style, &|format| !left_out(format), &written)
    }

    /// Writes one rendered text per format to the files.
    ///
    /// # Errors
    ///
    /// A sentence that names the files that could not be written. All others are written.
    pub(super) fn write_all(
        &self,
        style: &Style,
        render: &dyn Fn(&Format, &Style) -> String,
    ) -> Result<(), String> {
        let written = |format: &Format, style: &Style, to: &mut dyn Write| {
            to.write_all(render(format, style).as_bytes())
        };
        let (_, failure) = self.each(style, &|_| true, &written);
        failure.map_or(Ok(()), |failure| Err(failure.sentence))
    }

    fn each(
        &self,
        style: &Style,
        is_wanted: &dyn Fn(&Format) -> bool,
        contents: Formatted<'_>,
    ) -> (Written, Option<NotWritten>) {
        let style = Style {
            width: Style::PLAIN.width,
            color: false,
            terminal: false,
            ascii: false,
            ..*style
        };
        let (mut whole, mut is_drawn, mut failure) = (None, true, None);
        // Outputs that may wait for a reader come last, so that they do not delay others.
        let (late, first): (Vec<_>, Vec<_>) = self
            .files
            .iter()
            .filter(|file| is_wanted(file.2))
            .partition(|(_, place, _)| is_open_ended(place));
        for (path, place, format) in first.iter().chain(&late) {
            let written = write_to(path, place, &self.stop, &|to| contents(format, &style, to));
            if written.is_ok() && **format == json::FORMAT && !is_open_ended(place) {
                whole.get_or_insert_with(|| path.clone());
            }
            is_drawn &= written.is_ok() || format.of != Of::Traced;
            failure = NotWritten::both(failure, written.err());
        }
        (Written { whole, is_drawn }, failure)
    }
}

/// A separate file, checked before anything is measured: the given name, and the place that it leads to.
pub(super) struct Whole {
    path: PathBuf,
    place: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Whole {
    /// Writes the file, completely or not at all.
    ///
    /// # Errors
    ///
    /// The file could not be written.
    pub(super) fn write(&self, text: &str) -> Result<(), NotWritten> {
        write_to(&self.path, &self.place, &self.stop, &|to| to.write_all(text.as_bytes()))
    }
}

fn write_to(
    path: &Path,
    place: &Path,
    stop: &Arc<AtomicBool>,
    contents: Contents<'_>,
) -> Result<(), NotWritten> {
    let written = if is_open_ended(place) {
        // Append: a file that the caller has opened may contain something already.
        Outlet::open(place, stop).and_then(|mut outlet| write_through(&mut outlet, contents))
    } else {
        write_whole(place, contents)
    };
    written.map_err(|error| {
        let NotWritten { sentence, given_up } =
            NotWritten::new(&path.display().to_string(), &error);
        let advice = if given_up { "" } else { "; choose another place" };
        NotWritten { sentence: sentence + advice, given_up }
    })
}

/// A function that writes the contents of a file in a format.
type Formatted<'a> = &'a dyn Fn(&Format, &Style, &mut dyn Write) -> std::io::Result<()>;

/// Returns the format of a file: that of its extension, or JSON for a pipe or a device without one, which a program
/// reads.
fn format_of(path: &Path) -> Result<&'static Format, String> {
    let json = |_| report::named("json").filter(|_| is_open_ended(path));
    report::for_path(path).or_else(|why| json(()).ok_or(why))
}

/// Returns the place that a name leads to, after every symbolic link. The last link may lead to a file that does not
/// exist yet.
fn destination(path: &Path) -> std::io::Result<PathBuf> {
    let mut place = path.to_owned();
    // Linux follows at most this many links.
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
    Err(rustix::io::Errno::LOOP.into())
}

/// Returns true for a pipe, a device, or a file the caller has opened for us (/dev/stdout, /dev/fd/3): outputs that are
/// written to and cannot be replaced.
fn is_open_ended(path: &Path) -> bool {
    let opened = ["/proc/self/fd", "/dev/fd"].iter().any(|folder| path.starts_with(folder))
        || ["/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name));
    opened || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A function that writes the contents of a file.
pub(super) type Contents<'a> = &'a dyn Fn(&mut dyn Write) -> std::io::Result<()>;

/// Writes to an existing output. A reader that has closed its end has read enough.
pub(super) fn write_through<F: AsFd>(
    outlet: &mut Outlet<F>,
    contents: Contents<'_>,
) -> std::io::Result<()> {
    let mut buffered = BufWriter::new(outlet);
    let written = contents(&mut buffered).and_then(|()| buffered.flush());
    // Drop bytes that the output refused: another flush would wait again.
    let _ = buffered.into_parts();
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Replaces the file as a whole: no reader ever sees half of it. Keeps its mode, and its owner if permitted.
fn write_whole(path: &Path, contents: Contents<'_>) -> std::io::Result<()> {
    let mut file = temporary_beside(path)?;
    contents(&mut file)?;
    if let Ok(old) = std::fs::metadata(path) {
        use std::os::unix::fs::MetadataExt;
        // Only root may give a file away; others can keep the group if they are in it.
        let _ = std::os::unix::fs::fchown(file.as_file(), Some(old.uid()), Some(old.gid()))
            .or_else(|_| std::os::unix::fs::fchown(file.as_file(), None, Some(old.gid())));
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Creates a file in the same folder, so that it can be renamed into place. It vanishes if it is not renamed.
fn temporary_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix(".peerscope-")
        // The umask applies as to every new file.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    // Use only the error's kind: the whole error would name the temporary file, which means nothing to the user.
    format!(
        "cannot write {}: {}{}; choose another place",
        path.display(),
        error.kind(),
        limit(error)
    )
}

/// Returns the limit of this process behind an error, as the end of a sentence.
pub(super) fn limit(error: &std::io::Error) -> String {
    limits::of_error(error).map(|limit| format!(": {limit}")).unwrap_or_default()
}
