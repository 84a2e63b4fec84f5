//! The processes of the rounds that take two of them, which start while the last rounds of the one process run.

use plan::Round;
use worker::share::{self, Couple};
use worker::start::Launch;

/// Processes that start once so many rounds have ended.
pub(super) struct OfTwo {
    after: usize,
    launch: Launch,
    rounds: Vec<Round>,
    begun: Option<Vec<Couple>>,
}

impl OfTwo {
    /// Plans the processes of these rounds.
    pub(super) const fn new(after: usize, launch: Launch, rounds: Vec<Round>) -> Self {
        Self { after, launch, rounds, begun: None }
    }

    /// Starts them if it is time. The main thread must call it: they die when it ends.
    pub(super) fn begins(&mut self, ended: usize) {
        if ended >= self.after && self.begun.is_none() {
            self.begun = Some(share::begin(&self.launch, &self.rounds));
        }
    }

    /// Returns them. The last rounds may all have been left out, so that nothing began.
    pub(super) fn started(mut self) -> Vec<Couple> {
        self.begins(self.after);
        self.begun.unwrap_or_default()
    }
}
