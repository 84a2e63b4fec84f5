//! The observer of a run.

use std::time::Duration;

use model::broken_off::BrokenOff;
use model::timeline::Timeline;
use probes::{Outcome, Round};

/// An observer that is notified of events as they happen.
pub trait Listener {
    /// Called when a round runs; `ended` is the number of rounds that have ended.
    fn begins(&mut self, round: &Round, ended: usize);

    /// Called before a round whose counters are read is sent; nothing else runs until it has an outcome.
    fn counts(&mut self, _round: &Round) {}

    /// Called when a round has an outcome.
    fn ends(&mut self, id: u32, outcome: &Outcome);

    /// Called with the time on the driver's clock, which starts anew with every worker.
    fn clock(&mut self, _now: Duration) {}

    /// Called with the timeline of a followed round; its outcome comes next.
    fn seen(&mut self, _timeline: Timeline) {}

    /// Called when a round broke off and its flows are tried again, and called again with the result of that.
    fn broke_off(&mut self, _broken: &BrokenOff) {}

    /// Called for a problem outside single rounds.
    fn problem(&mut self, problem: &str);
}
