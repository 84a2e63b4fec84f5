//! Records a run while it goes on. `check` writes each entry to its journal and folds it into a [`Recording`];
//! `recover` reads the entries of a journal and folds them in the same way. So a killed process loses nothing, and both
//! make the same report from the same entries.

mod entry;
mod fold;
mod journal;
mod kept;
pub mod outlet;
pub mod place;
mod read;

use std::time::Instant;

pub use self::entry::{Entry, Event, Header, SCHEMA};
pub use self::fold::{Recorded, Recording};
pub use self::journal::Journal;
pub use self::kept::Kept;
pub use self::place::is_going_on;
pub use self::read::read;
use model::soak::Soak;

/// The writer of a run's entries, which also folds them.
pub struct Recorder {
    journal: Journal,
    recording: Recording,
    began: Instant,
}

impl Recorder {
    /// Starts recording a run of this profile that began at this moment.
    pub fn new(journal: Journal, profile: &str, began: Instant) -> Self {
        Self { journal, recording: Recording::new(profile), began }
    }

    /// Records an event, with the current time.
    pub fn take(&mut self, event: Event) {
        let at = self.began.elapsed().as_secs_f64();
        let entry = Entry { at, event };
        self.journal.write(&entry);
        self.recording.take(entry);
    }

    /// Returns, once, the reason why no journal is kept any more.
    pub fn failure(&mut self) -> Option<String> {
        self.journal.failure()
    }

    /// Returns the hours under load so far, if there are any.
    pub fn soak(&self) -> Option<&Soak> {
        self.recording.soak()
    }

    /// Returns the rounds of single links, and of addresses, that have measured something.
    pub fn to_repeat(&self) -> impl Iterator<Item = &probes::Round> {
        self.recording.to_repeat()
    }

    /// Returns the result of the run if it ended now.
    pub fn so_far(&self) -> Recorded {
        let mut recording = self.recording.clone();
        recording.end();
        recording.conclude()
    }

    /// Returns the result of the run, and its journal.
    pub fn finish(mut self) -> (Recorded, Journal) {
        self.recording.end();
        (self.recording.conclude(), self.journal)
    }
}

#[cfg(test)]
mod journal_tests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
