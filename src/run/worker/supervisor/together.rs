//! Records rounds that went wrong while they ran at once, and runs them together once more.

use std::collections::HashSet;
use std::time::Instant;

use super::{Session, ways};
use crate::worker::again::failed;
use crate::worker::handle::{Received, Worker};
use crate::worker::protocol::{Reply, Request};
use crate::worker::start::stuck;
use hardware::{ErrorKind, HardwareError};
use model::broken_off::{Again, Break, BrokenOff, How};
use probes::{Outcome, Round};

/// The state of a worker after it ran rounds together once more.
pub(super) enum Together {
    /// The worker can be used.
    Usable,
    /// The worker was ended.
    Ended,
    /// The user stopped the run.
    Interrupted,
}

impl<'r> Session<'r, '_> {
    /// Handles an error of rounds at once that their worker survived: it goes on with them one by one. The rounds count
    /// as broken off if the error is evidence about the machine.
    pub(super) fn went_wrong_at_once(&mut self, head: &'r Round, error: &HardwareError) {
        let rounds: Vec<_> =
            self.waiting.iter().copied().take_while(|round| round.slot == head.slot).collect();
        if error.kind == ErrorKind::Other {
            let broken = self.again.broke_off(&rounds, failed(error));
            self.broke_off(broken);
        }
        self.problem(format!("{} at once: {error}; they were tried one by one", ways(&rounds)));
        self.apart.insert(head.slot);
    }

    /// Returns the rounds to run together once more, after all others have ended.
    pub(super) fn once_more(&mut self) -> Option<Vec<&'r Round>> {
        let (hangs, launch) = (&self.hangs, &self.launch);
        let obstacle = |rounds: &[&Round]| {
            let is_open =
                |gpu: u32| launch.selections.iter().any(|selection| selection.index == gpu);
            let mut gpus =
                rounds.iter().flat_map(|round| &round.flows).flat_map(|flow| flow.ends());
            let gone = gpus.find_map(|end| end.gpu().filter(|gpu| !is_open(*gpu)));
            hangs.enough().or_else(|| gone.map(|gpu| format!("GPU {gpu} is no longer used")))
        };
        let (rounds, settled) = self.again.next(obstacle);
        settled.iter().for_each(|broken| self.listener.broke_off(broken));
        rounds
    }

    /// Runs rounds together once more that broke off together and worked one by one. Their figures exist already: only
    /// their end counts.
    pub(super) fn run_together(&mut self, worker: &mut Worker, rounds: &[&'r Round]) -> Together {
        let Some(head) = rounds.first() else {
            return Together::Usable;
        };
        self.listener.begins(head, self.total);
        // The receive below reports a worker that is gone.
        let _ = worker.send(&Request::Run { rounds: rounds.iter().copied().cloned().collect() });
        let mut left: HashSet<u32> = rounds.iter().map(|round| round.id).collect();
        let mut again = Again::Worked;
        let mut usable = true;
        while usable && !left.is_empty() {
            match worker.receive(Instant::now() + head.deadline, self.stop) {
                Received::Reply(Reply::Apart { error, .. }) => {
                    again = Again::BrokeOff(failed(&error))
                }
                Received::Reply(Reply::Done { id, outcome, clock }) if left.remove(&id) => {
                    self.listener.clock(clock);
                    if let Outcome::Failed { error } = &outcome {
                        again = Again::BrokeOff(failed(error));
                        usable = error.kind != ErrorKind::Sticky;
                    }
                }
                Received::Reply(other) => {
                    again = Again::NotRun {
                        why: format!("the worker gave an unexpected answer: {other:?}"),
                    };
                    usable = false;
                }
                Received::Late => {
                    let (what, limit) = (head.task, head.deadline.as_secs_f64());
                    again = Again::BrokeOff(Break::of(
                        How::Hung,
                        format!("{what} did not end within {limit:.1} s"),
                    ));
                    usable = false;
                }
                Received::Gone => {
                    let death = worker.death();
                    let reason =
                        format!("the worker process ended during {}: {}", head.task, death.how);
                    let crash = death.crash(&reason);
                    again = crash.map_or(Again::NotRun { why: reason }, Again::BrokeOff);
                    usable = false;
                }
                Received::Interrupted => {
                    worker.end();
                    return Together::Interrupted;
                }
            }
        }
        if !usable {
            worker.end();
        }
        let came = match &again {
            Again::Worked => "it ended well".to_owned(),
            Again::BrokeOff(again) => again.reason.clone(),
            Again::NotRun { why } => why.clone(),
        };
        let stuck = worker.stuck().map(|pid| format!("; {}", stuck(pid))).unwrap_or_default();
        self.problem(format!("{} at once, once more: {came}{stuck}", ways(rounds)));
        let broken = self.again.ended_together(again);
        self.broke_off(broken);
        if usable { Together::Usable } else { Together::Ended }
    }

    pub(super) fn broke_off(&mut self, broken: Option<BrokenOff>) {
        broken.iter().for_each(|broken| self.listener.broke_off(broken));
    }
}
