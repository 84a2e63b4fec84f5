//! A run, written down as it goes. `check` writes each entry to its journal and folds it into a
//! [`Recording`]; `recover` reads the entries of a journal and folds them in the same way. So a run whose
//! process is killed has lost nothing, and both make the same report of the same entries.

mod disturbed;
mod entry;
mod fold;
mod journal;
pub mod outlet;
pub mod place;
mod read;

use std::time::Instant;

pub use self::entry::{Entry, Event, Header, SCHEMA};
pub use self::fold::{Recorded, Recording};
pub use self::journal::Journal;
pub use self::place::is_going_on;
pub use self::read::{LONGEST, bounded, file, read};

/// Writes the entries of a run down, and folds them.
#[derive(Debug)]
pub struct Recorder {
    journal: Journal,
    recording: Recording,
    began: Instant,
}

impl Recorder {
    /// A run of this profile that began at this moment.
    pub fn new(journal: Journal, profile: &str, began: Instant) -> Self {
        Self {
            journal,
            recording: Recording::new(profile),
            began,
        }
    }

    /// Takes what was found.
    pub fn take(&mut self, event: Event) {
        let at = self.began.elapsed().as_secs_f64();
        let entry = Entry { at, event };
        self.journal.write(&entry);
        self.recording.take(entry);
    }

    /// Why no journal is kept any more; said once.
    pub fn failure(&mut self) -> Option<String> {
        self.journal.failure()
    }

    /// What the run came to, and its journal.
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
