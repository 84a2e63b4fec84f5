//! Runs the rounds of two processes: the parent starts both, with a socket between them, and asks them for one step after
//! the other. A step that hangs costs its round; both processes are then replaced.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::handle::{Received, Worker};
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, stuck};
use hardware::{ErrorKind, HardwareError};
use model::measurement::{CudaDevice, DriverFacts, Rung, Status};
use model::units::{Bytes, MIB};
use probes::share::{Handed, Refusal, Share, Taken, Turn};
use probes::{Action, Outcome, Round};

/// Memory that each process may use on a GPU: the least with which a worker opens one.
const MEMORY: Bytes = Bytes(64 * MIB);
/// The folder where such a file is.
const SHARED_MEMORY: &str = "/dev/shm";
/// CUDA_ERROR_DEVICE_UNAVAILABLE: another process has the GPU in exclusive mode.
const EXCLUSIVE: u32 = 46;

/// Two processes, or the outcome of all their rounds: the owner of the memory, and the one that opens it.
struct Couple {
    gpus: [u32; 2],
    workers: Result<[Worker; 2], Outcome>,
}

/// Returns the GPUs of a round of two processes.
fn gpus(round: &Round) -> Option<[u32; 2]> {
    let flow = round.flows.first()?;
    Some([flow.from.gpu()?, flow.to.gpu()?])
}

/// Runs the rounds, which all have the same GPUs. The main thread must call it: the processes die when it ends. Returns
/// them, which idle: the driver takes some tenths of a second to take their GPUs back, and serves nobody else
/// meanwhile.
pub fn run(
    launch: &Launch,
    rounds: &[Round],
    stop: &AtomicBool,
    listener: &mut dyn Listener,
) -> Vec<Worker> {
    let mut couple = None;
    for (ended, round) in rounds.iter().enumerate() {
        let (false, Some(gpus)) = (stop.load(Ordering::Relaxed), gpus(round)) else {
            listener.ends(round.id, &lost(Status::Skipped, "interrupted"));
            continue;
        };
        listener.begins(round, ended);
        let mut current = couple.take().unwrap_or_else(|| Couple::start(launch, gpus, stop));
        let (outcome, usable) = current.run(round, stop);
        listener.ends(round.id, &outcome);
        if usable {
            couple = Some(current);
        } else {
            current.end().iter().for_each(|problem| listener.problem(problem));
        }
    }
    couple.map_or_else(Vec::new, Couple::close)
}

fn lost(status: Status, reason: impl Into<String>) -> Outcome {
    Outcome::Lost { status, reason: reason.into() }
}

/// Returns the outcome of a round during which a process ended. One that was killed from outside says nothing of the
/// machine.
fn gone(worker: &mut Worker, what: &str) -> Outcome {
    let death = worker.death();
    let status = if death.from_outside { Status::Skipped } else { Status::Failed };
    lost(status, format!("a process ended while {what}: {}", death.how))
}

/// Waits until a process has opened its GPU.
fn ready(worker: &mut Worker, until: Instant, stop: &AtomicBool) -> Result<(), Outcome> {
    loop {
        return match worker.receive(until, stop) {
            Received::Reply(Reply::Opening { .. }) => continue,
            Received::Reply(Reply::Ready { facts, .. }) => is_open(&facts),
            Received::Reply(Reply::NoDriver { error }) => Err(Outcome::Failed { error }),
            Received::Reply(_) => Err(lost(Status::Failed, "a process gave another answer")),
            Received::Late => {
                Err(lost(Status::Hung, "the driver did not start in a second process"))
            }
            Received::Gone => Err(gone(worker, "the driver started in it")),
            Received::Interrupted => Err(lost(Status::Skipped, "interrupted")),
        };
    }
}

/// Returns the outcome of all rounds if a process could not open its GPU.
fn is_open(facts: &DriverFacts) -> Result<(), Outcome> {
    let closed = |device: &CudaDevice| {
        let failure = device.failure.as_ref()?;
        let kind = match device.failure_code {
            // Two processes cannot use a GPU in that mode: a setting, not a fault.
            Some(EXCLUSIVE) => ErrorKind::Impossible,
            _ => ErrorKind::Hindered,
        };
        let why = format!("a second process cannot use GPU {}: {failure}", device.index);
        Some(Outcome::Failed { error: HardwareError::new(kind, why) })
    };
    if facts.devices.is_empty() {
        return Err(lost(Status::Skipped, "the second process opened no GPU"));
    }
    match (facts.devices.iter().find_map(closed), &facts.kernels_failure) {
        (Some(outcome), _) => Err(outcome),
        (None, Some(why)) => Err(lost(Status::Skipped, why.clone())),
        (None, None) => Ok(()),
    }
}

impl Couple {
    /// Starts both processes, and waits until they have opened their GPUs.
    fn start(launch: &Launch, gpus: [u32; 2], stop: &AtomicBool) -> Self {
        let sockets = UnixStream::pair().map_err(|error| {
            let why = format!("no socket between two processes: {error}");
            hardware::limits::not_started(why, &error)
        });
        let workers = sockets.and_then(|(one, other)| {
            let spawn = |end: UnixStream| {
                let (machine, mask) = (launch.machine.as_ref(), launch.mask());
                let end = Some(OwnedFd::from(end));
                Worker::spawn(machine, launch.start_limit, mask.as_deref(), end)
            };
            Ok([spawn(one)?, spawn(other)?])
        });
        let opened = workers.map_err(|error| Outcome::Failed { error }).and_then(|mut workers| {
            for (worker, gpu) in workers.iter_mut().zip(gpus) {
                let selections = launch.selections.iter();
                // A worker that is gone does not answer, which is reported then.
                let _ = worker.send(&Request::Open {
                    selections: selections.filter(|one| one.index == gpu).cloned().collect(),
                    memory_limit: MEMORY,
                    one_by_one: false,
                });
            }
            let until = Instant::now() + launch.start_limit;
            workers.iter_mut().try_for_each(|one| ready(one, until, stop)).map(|()| workers)
        });
        Self { gpus, workers: opened }
    }

    /// Runs a round. Returns its outcome, and false if the processes must be replaced.
    fn run(&mut self, round: &Round, stop: &AtomicBool) -> (Outcome, bool) {
        let Action::Share(Share { rung }) = round.task.action else {
            return (lost(Status::Failed, "this is no sharing"), true);
        };
        let workers = match &mut self.workers {
            Ok(workers) => workers,
            Err(outcome) => return (outcome.clone(), true),
        };
        let until = Instant::now() + round.deadline;
        let mut steps = Steps { workers, gpus: self.gpus, until, stop };
        match steps.hand(rung, round.task.setup.bytes.0) {
            Ok(handed) => (Outcome::Handed { handed: Box::new(handed) }, true),
            Err(Stop::Refused(refusal)) => {
                let usable = refusal.error.kind != ErrorKind::Sticky
                    && steps.ask(0, Turn::Confirm { seed: None }, "giving it back").is_ok();
                (Outcome::Refused { refusal }, usable)
            }
            Err(Stop::Broken(outcome)) => (outcome, false),
        }
    }

    /// Returns the processes. Removes the files that they left: they have answered everything.
    fn close(self) -> Vec<Worker> {
        let workers: Vec<Worker> = self.workers.into_iter().flatten().collect();
        workers.iter().for_each(|worker| remove_files(worker.id()));
        workers
    }

    /// Ends both processes, and removes the files that they left. Returns sentences about those that do not end.
    fn end(&mut self) -> Vec<String> {
        self.workers.iter_mut().flatten().for_each(Worker::kill);
        let ended = self.workers.iter_mut().flatten().filter_map(|worker| {
            worker.end();
            remove_files(worker.id());
            worker.stuck().map(stuck)
        });
        ended.collect()
    }
}

/// A step that ended the round.
enum Stop {
    /// Refused: the next round can run.
    Refused(Box<Refusal>),
    /// The processes are of no more use.
    Broken(Outcome),
}

fn another() -> Stop {
    Stop::Broken(lost(Status::Failed, "a process gave another answer"))
}

/// Two processes during a round.
struct Steps<'a> {
    workers: &'a mut [Worker; 2],
    gpus: [u32; 2],
    until: Instant,
    stop: &'a AtomicBool,
}

impl Steps<'_> {
    /// Hands memory from the first process to the second, and lets both check its bytes.
    fn hand(&mut self, rung: Rung, bytes: u64) -> Result<Handed, Stop> {
        let [owner, user] = self.gpus;
        let offer = Turn::Offer { rung, gpu: owner, bytes };
        let Taken::Offered { handle, seed, bytes } = self.ask(0, offer, "offering it")? else {
            return Err(another());
        };
        let take = Turn::Take { rung, gpu: user, bytes, handle, seed };
        let Taken::Opened { open_us, check, seed } = self.ask(1, take, "opening it")? else {
            return Err(another());
        };
        match self.ask(0, Turn::Confirm { seed: Some(seed) }, "checking it")? {
            Taken::Confirmed { check: Some(own) } => {
                Ok(Handed { open_us, checks: vec![check, own] })
            }
            _ => Err(another()),
        }
    }

    /// Asks a process for a step, and waits for its answer.
    fn ask(&mut self, place: usize, step: Turn, what: &str) -> Result<Taken, Stop> {
        let broken = |status, why: String| Err(Stop::Broken(lost(status, why)));
        let worker = &mut self.workers[place];
        let left = self.until.saturating_duration_since(Instant::now());
        // A worker that is gone does not answer, which is reported then.
        let _ = worker.send(&Request::Share { step });
        match worker.receive(self.until, self.stop) {
            Received::Reply(Reply::Taken { taken: Taken::Refused { refusal } }) => {
                Err(Stop::Refused(refusal))
            }
            Received::Reply(Reply::Taken { taken }) => Ok(taken),
            Received::Reply(_) => Err(another()),
            Received::Late => {
                let limit = left.as_secs_f64();
                broken(Status::Hung, format!("{what} did not end within {limit:.1} s"))
            }
            Received::Gone => Err(Stop::Broken(gone(worker, what))),
            Received::Interrupted => broken(Status::Skipped, "interrupted".into()),
        }
    }
}

/// Removes the files of shared memory that a process has made and that nobody has opened.
fn remove_files(process: u32) {
    let Ok(files) = std::fs::read_dir(SHARED_MEMORY) else {
        return;
    };
    let own = format!("peerscope-{process}-");
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(&own) {
            // A file that stays is a few MiB until the next start of the system.
            let _ = std::fs::remove_file(file.path());
        }
    }
}
