//! The file that records a run while it goes on (docs/dev/architecture.md): JSON lines, not a stable interface.
//! `peerscope recover` of the same version makes a report of it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::entry::Header;
use super::outlet::{Outlet, was_given_up};
use super::place;
use hardware::limits;

/// A journal that is being written. A write error never stops the run: the journal ends there, and [`Journal::failure`]
/// returns the reason.
pub struct Journal {
    /// A file that this run created, a pipe or a device. None if no journal is kept, or no longer.
    to: Option<Box<dyn Write>>,
    /// Path of the file, if this run created it.
    path: Option<PathBuf>,
    failure: Option<String>,
}

impl Journal {
    /// Returns a journal that records nothing.
    pub fn none() -> Self {
        Self { to: None, path: None, failure: None }
    }

    /// Begins a journal in the first of these folders that accepts it. Creates missing folders.
    pub fn begin(folders: &[PathBuf], header: &Header) -> Self {
        let mut failure = None;
        for folder in folders {
            let path = folder.join(place::file_name(header));
            match place::ready(folder).and_then(|()| create(&path)) {
                Ok(file) => {
                    let mut journal = Self::started(file, Some(path), header);
                    let Some(why) = journal.failure() else {
                        return journal;
                    };
                    journal.remove();
                    failure = failure.or(Some(why));
                }
                // Report the first folder's error: that folder is the preferred one.
                Err(why) => {
                    failure = failure.or(Some(format!("{}: {}", folder.display(), why.kind())))
                }
            }
        }
        Self {
            failure: failure.or_else(|| Some("there is no place for it".into())),
            ..Self::none()
        }
    }

    /// Begins a journal in a file. If it is a pipe whose reader is late, waits for the reader until `stop` is set.
    ///
    /// # Errors
    ///
    /// A sentence if the file exists already: it may be the journal of another run. Every other obstacle is a
    /// [`Journal::failure`].
    pub fn begin_at(path: &Path, header: &Header, stop: &Arc<AtomicBool>) -> Result<Self, String> {
        let name = path.display();
        if path.is_file() {
            return Err(format!(
                "--journal: {name} is there already: see what it holds with 'peerscope recover {}', or choose \
                 another file",
                model::shell::word(&name.to_string())
            ));
        }
        // A device or a pipe exists already and is only written to.
        let made = !path.exists();
        let opened: std::io::Result<Box<dyn Write>> = match made {
            true => create(path).map(|file| file as _),
            false => Outlet::open(path, stop).map(|outlet| Box::new(outlet) as _),
        };
        Ok(match opened {
            Ok(to) => Self::started(to, made.then(|| path.to_owned()), header),
            Err(why) => Self { failure: Some(format!("{name}: {}", reason(&why))), ..Self::none() },
        })
    }

    fn started(to: Box<dyn Write>, path: Option<PathBuf>, header: &Header) -> Self {
        let mut journal = Self { to: Some(to), path, ..Self::none() };
        journal.write(header);
        journal
    }

    /// Writes an entry or the header, if a journal is kept.
    pub(super) fn write(&mut self, value: &impl Serialize) {
        let Some(to) = &mut self.to else { return };
        if let Err(why) = write_line(to, value) {
            let name = self
                .path
                .as_deref()
                .map(|path| format!("{}: ", path.display()))
                .unwrap_or_default();
            let limit =
                limits::of_error(&why).map(|limit| format!(": {limit}")).unwrap_or_default();
            self.failure = Some(format!("{name}{}{limit}", reason(&why)));
            self.to = None;
        }
    }

    /// Returns, once, the reason why no journal is kept any more.
    pub fn failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// Returns true if the journal contains every entry up to now.
    pub fn is_whole(&self) -> bool {
        self.to.is_some()
    }

    /// Returns the path of the journal, if this run created the file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Removes the journal: a report contains everything in it now, or it was worth nothing.
    pub fn remove(&self) {
        if let Some(path) = &self.path {
            // A journal that stays is offered for recovery, which does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns only the kind of an error, as every other sentence about a file does.
fn reason(error: &std::io::Error) -> String {
    if was_given_up(error) { error.to_string() } else { error.kind().to_string() }
}

/// Writes a line in one call, so that a killed process leaves whole lines. The page cache outlives the process: only a
/// crash of the machine loses data.
fn write_line(to: &mut dyn Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Creates a private file and locks it for as long as this process lives.
fn create(path: &Path) -> std::io::Result<Box<File>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Without locks in the file system, a running run cannot be distinguished from one that was cut off.
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(_) => Ok(Box::new(file)),
    }
}
