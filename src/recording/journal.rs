//! The file that a run is written down in as it goes (docs/architecture.md): JSON lines, not a stable
//! interface. `peerscope recover` of the same version makes a report of it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::entry::{Entry, Header};
use super::place;
use hardware::limits;

/// A journal that is being written. What goes wrong with it never stops the run: the journal ends
/// there, and [`Journal::failure`] says why.
#[derive(Debug)]
pub struct Journal {
    /// None where none is kept, or no longer.
    file: Option<File>,
    /// Where it is, where this run made it.
    path: Option<PathBuf>,
    failure: Option<String>,
}

impl Journal {
    /// No journal.
    pub fn none() -> Self {
        Self {
            file: None,
            path: None,
            failure: None,
        }
    }

    /// Begins a journal in the first of these folders that takes it. Folders are made where they
    /// are missing.
    pub fn begin(folders: &[PathBuf], header: &Header) -> Self {
        let mut failure = None;
        for folder in folders {
            match place::ready(folder).and_then(|()| create(&folder.join(place::file_name(header))))
            {
                Ok((file, path)) => return Self::started(file, Some(path), header),
                // The first folder is the one that should have been.
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

    /// Begins a journal in a file.
    ///
    /// # Errors
    ///
    /// A sentence, where the file is there already: it may be the journal of another run. Whatever
    /// else keeps it from being written is a [`Journal::failure`].
    pub fn begin_at(path: &Path, header: &Header) -> Result<Self, String> {
        let name = path.display();
        if path.is_file() {
            return Err(format!(
                "--journal: {name} is there already: see what it holds with 'peerscope recover {name}', or choose \
                 another file"
            ));
        }
        // A device or a pipe is written to and not made.
        let made = !path.exists();
        let opened = if made {
            create(path).map(|(file, _)| file)
        } else {
            OpenOptions::new().write(true).open(path)
        };
        Ok(match opened {
            Ok(file) => Self::started(file, made.then(|| path.to_owned()), header),
            Err(why) => Self {
                failure: Some(format!("{name}: {}", why.kind())),
                ..Self::none()
            },
        })
    }

    fn started(file: File, path: Option<PathBuf>, header: &Header) -> Self {
        let mut journal = Self {
            file: Some(file),
            path,
            ..Self::none()
        };
        journal.put(header);
        journal
    }

    /// Writes an entry, if a journal is kept.
    pub fn write(&mut self, entry: &Entry) {
        self.put(entry);
    }

    fn put(&mut self, value: &impl Serialize) {
        let Some(file) = &mut self.file else { return };
        if let Err(why) = write_line(file, value) {
            let name = self
                .path
                .as_deref()
                .map(|path| format!("{}: ", path.display()))
                .unwrap_or_default();
            let limit = limits::of_error(&why)
                .map(|limit| format!(": {limit}"))
                .unwrap_or_default();
            self.failure = Some(format!("{name}{}{limit}", why.kind()));
            self.file = None;
        }
    }

    /// Why no journal is kept any more; reported once.
    pub fn failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// Where the journal is, as far as it goes.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Takes the journal away: everything in it is in a report now, or was worth nothing.
    pub fn remove(&self) {
        if let Some(path) = &self.path {
            // What cannot be removed is offered for recovery, which does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a line in one call, so that a process that is killed leaves whole lines. The page cache outlives the process:
/// nothing is lost but by a machine that goes down.
fn write_line(file: &mut File, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Makes a private file and locks it for as long as this process lives.
fn create(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    // Where a file system has no locks, a run that goes on cannot be distinguished from one that was cut off.
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(_) => Ok((file, path.to_owned())),
    }
}
