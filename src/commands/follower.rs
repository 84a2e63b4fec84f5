//! Follows a run while it goes on.

use std::time::Duration;

use super::progress::Progress;
use super::remark;
use hardware::LinkSample;
use model::broken_off::BrokenOff;
use model::timeline::Timeline;
use probes::Outcome;
use probes::watch::Watch;
use probes::watch::counters::Counters;
use run::recording::{Event, Recorder};
use run::worker::Listener;

/// A listener that shows the progress of a run, and records it.
pub(super) struct Follower {
    pub progress: Progress,
    pub recorder: Recorder,
    pub watch: Option<Watch>,
    pub counters: Option<Counters>,
    /// The clock of the current worker's driver, as it was reported last.
    pub clock: Duration,
}

impl Follower {
    pub(super) fn take(&mut self, event: Event) {
        self.recorder.take(event);
        self.tell_failure();
    }

    /// Reports, once, the reason why no journal is kept any more.
    fn tell_failure(&mut self) {
        if let Some(why) = self.recorder.failure() {
            self.progress.aside(|| {
                remark(&format!(
                    "cannot write the journal ({why}): if this run is killed, what it measures from now on is lost; choose \
                     another place with --journal FILE, or none with --journal none"
                ));
            });
        }
    }

    pub(super) fn take_readings(&mut self, readings: Vec<(u32, LinkSample)>) {
        if !readings.is_empty() {
            self.take(Event::Links { readings });
        }
    }
}

impl Listener for Follower {
    fn begins(&mut self, round: &probes::Round, ended: usize) {
        self.progress.round(round, ended);
    }

    fn counts(&mut self, round: &probes::Round) {
        self.counters.iter_mut().for_each(|counters| counters.begin(round));
    }

    fn ends(&mut self, id: u32, outcome: &Outcome) {
        let readings = self.watch.as_ref().map(Watch::drain).unwrap_or_default();
        self.take_readings(readings);
        // Read the counters at once, before anything else is copied.
        let counted =
            self.counters.as_mut().map(|counters| counters.end(id, outcome)).unwrap_or_default();
        if !counted.is_empty() {
            self.take(Event::Traffic { counted });
        }
        let seen = self.counters.as_mut().map(Counters::foreign).unwrap_or_default();
        if !seen.is_empty() {
            self.take(Event::Background { seen });
        }
        self.take(Event::Outcome { id, outcome: outcome.clone() });
    }

    fn clock(&mut self, now: Duration) {
        self.clock = now;
        self.watch.iter_mut().for_each(|watch| watch.follow(now));
    }

    fn seen(&mut self, timeline: Timeline) {
        self.take(Event::Timeline { timeline });
    }

    fn broke_off(&mut self, broken: &BrokenOff) {
        self.take(Event::BrokenOff { broken: broken.clone() });
    }

    fn problem(&mut self, problem: &str) {
        // A problem leaves the amount copied by then unknown.
        self.counters.iter_mut().for_each(Counters::lost);
        self.take(Event::Problem { problem: problem.into() });
    }
}
