//! Who hears of a run.

use std::time::Duration;

use measure::Outcome;
use model::broken_off::BrokenOff;
use model::timeline::Timeline;
use plan::Round;

/// Is notified of events as they happen.
pub trait Listener {
    /// A round is running; `ended` rounds have ended.
    fn begins(&mut self, round: &Round, ended: usize);

    /// A round whose counters are read is about to be sent; nothing else runs until it has an outcome.
    fn counts(&mut self, _round: &Round) {}

    /// A round has an outcome.
    fn ends(&mut self, id: u32, outcome: &Outcome);

    /// The driver's clock, which begins anew with every worker, shows this.
    fn clock(&mut self, _now: Duration) {}

    /// A round that is followed was seen; its outcome comes next.
    fn seen(&mut self, _timeline: Timeline) {}

    /// A round broke off, and its flows are tried again; or what came of that.
    fn broke_off(&mut self, _broken: &BrokenOff) {}

    /// A problem that is not that of a single round.
    fn problem(&mut self, problem: &str);
}
