//! The steps of a round of two processes.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::handle::{Received, Worker};
use super::super::protocol::{Reply, Request};
use super::{gone, lost};
use hardware::ErrorKind;
use measure::Outcome;
use measure::share::{Handed, Step, Taken};
use model::measurement::{Rung, Status};
use plan::{Action, Round};

/// A step that ended the round.
enum Stop {
    /// Refused: the next round can run.
    Refused(Taken),
    /// The processes are of no more use.
    Broken(Outcome),
}

/// Two processes during a round.
struct Steps<'a> {
    workers: &'a mut [Worker; 2],
    /// The GPU of each.
    gpus: [u32; 2],
    until: Instant,
    stop: &'a AtomicBool,
}

/// Takes the steps of a round. Returns its outcome, and false if the processes must be replaced.
pub(super) fn run(
    workers: &mut [Worker; 2],
    gpus: [u32; 2],
    round: &Round,
    stop: &AtomicBool,
) -> (Outcome, bool) {
    let mut steps = Steps { workers, gpus, until: Instant::now() + round.deadline, stop };
    let Action::Share { rung, .. } = round.task.action else {
        return (lost(Status::Failed, "this is no sharing"), true);
    };
    match steps.ladder(rung, round.task.setup.bytes.0) {
        Ok(handed) => match steps.leave() {
            Ok(()) => (Outcome::Handed { handed: Box::new(handed) }, true),
            Err(Stop::Refused(taken)) => (refused(taken), false),
            Err(Stop::Broken(outcome)) => (outcome, false),
        },
        Err(Stop::Refused(taken)) => {
            let sticky = matches!(&taken, Taken::Refused { refusal } if refusal.error.kind == ErrorKind::Sticky);
            (refused(taken), !sticky && steps.leave().is_ok())
        }
        Err(Stop::Broken(outcome)) => (outcome, false),
    }
}

fn refused(taken: Taken) -> Outcome {
    match taken {
        Taken::Refused { refusal } => Outcome::Refused { refusal },
        _ => lost(Status::Failed, "a process gave another answer"),
    }
}

impl Steps<'_> {
    /// Hands memory from the first process to the second, and lets both check its bytes.
    fn ladder(&mut self, rung: Rung, bytes: u64) -> Result<Handed, Stop> {
        let (open_us, check, seed) = self.hand(rung, bytes)?;
        let mut checks: Vec<_> = check.into_iter().collect();
        match self.ask(0, &Step::Confirm { seed }, "checking it")? {
            Taken::Confirmed { check } => checks.extend(check),
            other => return Err(Stop::Refused(other)),
        }
        Ok(Handed { open_us, checks })
    }

    /// Hands memory of the first process to the other. Returns the time to open it, the check of its bytes, and the seed of what was
    /// written then.
    fn hand(&mut self, rung: Rung, bytes: u64) -> Result<(f64, Option<measure::Check>, u64), Stop> {
        let [owner, user] = self.gpus;
        let offer = Step::Offer { rung, gpu: owner, bytes };
        let (handle, seed, bytes) = match self.ask(0, &offer, "offering it")? {
            Taken::Offered { handle, seed, bytes } => (handle, seed, bytes),
            other => return Err(Stop::Refused(other)),
        };
        let take = Step::Take { rung, gpu: user, bytes, handle, seed };
        match self.ask(1, &take, "opening it")? {
            Taken::Opened { open_us, check, seed } => Ok((open_us, check, seed)),
            other => Err(Stop::Refused(other)),
        }
    }

    /// Lets both give back what they opened, and then what they offered.
    fn leave(&mut self) -> Result<(), Stop> {
        // The one that opened the memory leaves it first.
        for place in [1, 0] {
            match self.ask(place, &Step::Leave, "giving it back")? {
                Taken::Left => {}
                other => return Err(Stop::Refused(other)),
            }
        }
        Ok(())
    }

    /// Asks a process for a step, and waits for its answer.
    fn ask(&mut self, place: usize, step: &Step, what: &str) -> Result<Taken, Stop> {
        // A worker that is gone does not answer, which is reported then.
        let _ = self.workers[place].send(&Request::Share { step: step.clone() });
        let broken = |status, why: String| Err(Stop::Broken(lost(status, why)));
        let worker = &mut self.workers[place];
        let left = self.until.saturating_duration_since(Instant::now());
        match worker.receive(self.until, self.stop) {
            Received::Reply(Reply::Taken { taken: refused @ Taken::Refused { .. } }) => {
                Err(Stop::Refused(refused))
            }
            Received::Reply(Reply::Taken { taken }) => Ok(taken),
            Received::Reply(_) => broken(Status::Failed, "a process gave another answer".into()),
            Received::Late => broken(Status::Hung, hung(what, left)),
            Received::Gone => Err(Stop::Broken(gone(worker, what))),
            Received::Interrupted => broken(Status::Skipped, "interrupted".into()),
        }
    }
}

fn hung(what: &str, limit: Duration) -> String {
    format!("{what} did not end within {:.1} s", limit.as_secs_f64())
}
