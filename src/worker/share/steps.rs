//! The steps of a round of two processes.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::handle::{Received, Worker};
use super::super::protocol::{Reply, Request};
use super::{gone, lost};
use hardware::ErrorKind;
use measure::share::{Handed, Step, Taken};
use measure::{Outcome, Side, Talked};
use model::live::Phase;
use model::measurement::{Rung, Status};
use plan::{Action, Round};

/// Bytes of a mailbox, which the driver may round up.
const MAILBOX: u64 = hardware::MAILBOX_BYTES;
/// Times that two kernels are launched which did not meet, before their stores are blamed: chosen. Another program may have
/// kept one of them from running.
const TRIES: u32 = 3;
/// Distance between the flags of two tries: more than the rounds of a talk.
const FLAGS_OF_A_TRY: u32 = 1 << 20;

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
    let (outcome, offers) = match round.task.action {
        Action::Share { rung, .. } => {
            let handed = steps.ladder(rung, round.task.setup.bytes.0);
            let outcome = handed.map(|handed| Outcome::Handed { handed: Box::new(handed) });
            (outcome, 1)
        }
        Action::ShareTalk { rounds, processes } => {
            let talked = steps.talk(processes.rung, rounds);
            let outcome = talked.map(|talked| Outcome::Live { talk: Box::new(talked) });
            (outcome, 2)
        }
        _ => return (lost(Status::Failed, "this is no sharing"), true),
    };
    match outcome {
        Ok(outcome) => match steps.leave(offers) {
            Ok(()) => (outcome, true),
            Err(Stop::Refused(taken)) => (refused(taken), false),
            Err(Stop::Broken(outcome)) => (outcome, false),
        },
        Err(Stop::Refused(taken)) => {
            let sticky = matches!(&taken, Taken::Refused { refusal } if refusal.error.kind == ErrorKind::Sticky);
            (refused(taken), !sticky && steps.leave(offers).is_ok())
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
        let (open_us, check, seed) = self.hand(0, rung, bytes)?;
        let mut checks: Vec<_> = check.into_iter().collect();
        match self.ask(0, &Step::Confirm { seed }, "checking it")? {
            Taken::Confirmed { check } => checks.extend(check),
            other => return Err(Stop::Refused(other)),
        }
        Ok(Handed { open_us, checks })
    }

    /// Hands memory of one process to the other. Returns the time to open it, the check of its bytes, and the seed of what was
    /// written then.
    fn hand(
        &mut self,
        owner: usize,
        rung: Rung,
        bytes: u64,
    ) -> Result<(f64, Option<measure::Check>, u64), Stop> {
        let gpu = self.gpus[owner];
        let offer = Step::Offer { rung, gpu, bytes };
        let (handle, seed, bytes) = match self.ask(owner, &offer, "offering it")? {
            Taken::Offered { handle, seed, bytes } => (handle, seed, bytes),
            other => return Err(Stop::Refused(other)),
        };
        let user = 1 - owner;
        let take = Step::Take { rung, gpu: self.gpus[user], bytes, handle, seed };
        match self.ask(user, &take, "opening it")? {
            Taken::Opened { open_us, check, seed } => Ok((open_us, check, seed)),
            other => Err(Stop::Refused(other)),
        }
    }

    /// Lets kernels of both processes talk, each with a mailbox that it handed to the other.
    fn talk(&mut self, rung: Rung, rounds: u32) -> Result<Talked, Stop> {
        let (.., seed) = self.hand(0, rung, MAILBOX)?;
        self.hand(1, rung, MAILBOX)?;
        // The seeds of a process differ in their upper halves.
        #[allow(clippy::cast_possible_truncation, reason = "any number will do")]
        let mut base = (seed ^ seed.rotate_right(32)) as u32;
        let mut tries = 0;
        loop {
            let sides = self.talk_once(rounds, base)?;
            tries += 1;
            let met = |side: &Side| {
                let unseen = side.unseen.map(|unseen| unseen.phase);
                unseen != Some(Phase::Arrival)
            };
            if sides.iter().all(met) || tries == TRIES {
                return Ok(Talked { sides, native_atomics: None });
            }
            base = base.wrapping_add(FLAGS_OF_A_TRY);
        }
    }

    fn talk_once(&mut self, rounds: u32, base: u32) -> Result<Vec<Side>, Stop> {
        // Both before the first answer: each kernel waits for the other.
        for (place, gpu) in self.gpus.into_iter().enumerate() {
            let answers = place == 1;
            self.say(place, &Step::Talk { gpu, answers, rounds, base });
        }
        let mut sides = Vec::new();
        let mut stopped = None;
        for place in 0..self.gpus.len() {
            match self.answer(place, "talking") {
                Ok(Taken::Talked { side }) => sides.push(*side),
                // The memory was handed over: this is no refusal of the way. The answer of the other process must not be taken
                // for one to the next step.
                Err(Stop::Refused(Taken::Refused { refusal })) => {
                    stopped = Some(Stop::Broken(Outcome::Failed { error: refusal.error }));
                }
                Ok(other) | Err(Stop::Refused(other)) => stopped = Some(Stop::Refused(other)),
                Err(broken) => return Err(broken),
            }
        }
        stopped.map_or(Ok(sides), Err)
    }

    /// Lets both give back what they opened, and then what they offered.
    fn leave(&mut self, offers: u32) -> Result<(), Stop> {
        for _ in 0..offers {
            // The one that opened the memory leaves it first.
            for place in [1, 0] {
                match self.ask(place, &Step::Leave, "giving it back")? {
                    Taken::Left => {}
                    other => return Err(Stop::Refused(other)),
                }
            }
        }
        Ok(())
    }

    /// Asks a process for a step, and waits for its answer.
    fn ask(&mut self, place: usize, step: &Step, what: &str) -> Result<Taken, Stop> {
        self.say(place, step);
        self.answer(place, what)
    }

    fn say(&mut self, place: usize, step: &Step) {
        // A worker that is gone does not answer, which is reported then.
        let _ = self.workers[place].send(&Request::Share { step: step.clone() });
    }

    fn answer(&mut self, place: usize, what: &str) -> Result<Taken, Stop> {
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
