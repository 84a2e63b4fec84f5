//! The journal of a run: what it found, written down as it comes, so that a run whose process is
//! killed has lost nothing (docs/architecture.md). A file of JSON lines, not a stable interface:
//! `peerscope recover` of the same version makes a report of it.

pub mod place;
pub mod read;

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::measure::Outcome;
use crate::model::measurement::DriverFacts;
use crate::model::report::Tool;
use crate::model::snapshot::Snapshot;
use crate::plan::Round;

/// The name and version of the journal's format.
pub const SCHEMA: &str = "peerscope.journal/1";

/// The first line: which run this is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What writes it.
    pub tool: Tool,
    /// When the run began, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// The profile that chose the probes.
    pub profile: String,
    /// The process.
    pub pid: u32,
    /// The command line, without the program's name.
    pub args: Vec<String>,
}

/// Every other line. Times are seconds since the run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Entry<'a> {
    /// The facts, from which the topology follows.
    Facts {
        /// When they were there.
        at: f64,
        /// The facts, of the GPUs that were asked for.
        snapshot: Cow<'a, Snapshot>,
    },
    /// What the driver said.
    Driver {
        /// When it was ready, or was given up.
        at: f64,
        /// Seconds that its own start took.
        floor_seconds: f64,
        /// What it said.
        facts: Cow<'a, DriverFacts>,
    },
    /// What is to be measured.
    Plan {
        /// When the first round began.
        at: f64,
        /// All of it, what cannot be run included.
        rounds: Cow<'a, [Round]>,
    },
    /// What became of a round.
    Outcome {
        /// When.
        at: f64,
        /// The round's number within the plan.
        id: u32,
        /// How it ended.
        outcome: Cow<'a, Outcome>,
    },
    /// What went wrong beside single rounds.
    Problem {
        /// A sentence.
        problem: Cow<'a, str>,
    },
}

/// A journal that is being written. What goes wrong with it never stops the run: the journal ends
/// there, and [`Journal::failure`] says why.
#[derive(Debug)]
pub struct Journal {
    /// None where none is kept, or no longer.
    file: Option<File>,
    /// Where it is, where this run made it.
    path: Option<PathBuf>,
    failure: Option<String>,
    began: Instant,
}

impl Journal {
    /// No journal.
    pub fn none() -> Self {
        Self { file: None, path: None, failure: None, began: Instant::now() }
    }

    /// Begins a journal in the first of these folders that takes it. Folders are made where they
    /// are missing.
    pub fn begin(folders: &[PathBuf], header: &Header) -> Self {
        let mut failure = None;
        for folder in folders {
            match place::ready(folder).and_then(|()| create(&folder.join(place::file_name(header)))) {
                Ok((file, path)) => return Self::started(file, Some(path), header),
                // The first folder is the one that should have been.
                Err(why) => failure = failure.or(Some(format!("{}: {}", folder.display(), why.kind()))),
            }
        }
        Self { failure: failure.or_else(|| Some("there is no place for it".into())), ..Self::none() }
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
        let opened = if made { create(path).map(|(file, _)| file) } else { OpenOptions::new().write(true).open(path) };
        Ok(match opened {
            Ok(file) => Self::started(file, made.then(|| path.to_owned()), header),
            Err(why) => Self { failure: Some(format!("{name}: {}", why.kind())), ..Self::none() },
        })
    }

    fn started(file: File, path: Option<PathBuf>, header: &Header) -> Self {
        let mut journal = Self { file: Some(file), path, ..Self::none() };
        journal.line(header);
        journal
    }

    /// Seconds since the journal began.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Writes an entry, if a journal is kept.
    pub fn write(&mut self, entry: &Entry<'_>) {
        self.line(entry);
    }

    fn line(&mut self, value: &impl Serialize) {
        let Some(file) = &mut self.file else { return };
        let written = serde_json::to_vec(value).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // In one call, so that a process that is killed leaves whole lines. The page cache
            // outlives the process: nothing is lost but by a machine that goes down.
            file.write_all(&line)
        });
        if let Err(why) = written {
            let name = self.path.as_deref().map(|path| format!("{}: ", path.display())).unwrap_or_default();
            self.failure = Some(format!("{name}{}", why.kind()));
            self.file = None;
        }
    }

    /// Why no journal is kept any more; told once.
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

/// Makes a private file and locks it for as long as this process lives.
fn create(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Where a file system has no locks, a run that goes on is not told from one that was cut off.
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(_) => Ok((file, path.to_owned())),
    }
}

/// Whether the run that writes this journal is still going.
///
/// # Errors
///
/// The file cannot be opened.
pub fn is_going_on(path: &Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
    Ok(locked.is_err_and(|why| std::io::Error::from(why).kind() == ErrorKind::WouldBlock))
}

#[cfg(test)]
mod tests;
