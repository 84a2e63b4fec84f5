//! Runs the rounds of two processes: the parent starts both, with a socket between them, and asks them for one step after
//! the other. A step that hangs costs its round; both processes are then replaced.

mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::environment;
use super::handle::{Received, Worker};
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, stuck};
use hardware::{ErrorKind, HardwareError};
use measure::{Outcome, Selection};
use model::measurement::{CudaDevice, DriverFacts, Status, View};
use model::units::{Bytes, MIB};
use plan::Round;

/// Memory that each process may use on a GPU: the least with which a worker opens one.
const MEMORY: Bytes = Bytes(64 * MIB);
/// Times that the two processes are replaced, after which the other rounds are given up: chosen. Each costs a start.
const MOST_REPLACED: u32 = 4;
/// The reason that they then get.
const GIVEN_UP: &str = "two processes that share memory hung or ended again and again";
/// The folder where such a file is.
const SHARED_MEMORY: &str = "/dev/shm";
/// CUDA_ERROR_DEVICE_UNAVAILABLE: another process has the GPU in exclusive mode.
const EXCLUSIVE: u32 = 46;

/// The needs of two processes: the GPUs that CUDA shows to each, and those that each opens, by NVML index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Needs {
    view: View,
    gpus: [BTreeSet<u32>; 2],
}

impl Needs {
    /// Returns what the rounds of a view need.
    fn of(rounds: &[Round], view: View) -> Self {
        let mut gpus = [BTreeSet::new(), BTreeSet::new()];
        for (_, [owner, user]) in rounds.iter().filter_map(of).filter(|(of, _)| *of == view) {
            gpus[0].insert(owner);
            gpus[1].insert(user);
        }
        Self { view, gpus }
    }
}

/// Two processes that have begun to start.
pub struct Couple {
    needs: Needs,
    workers: Result<[Worker; 2], HardwareError>,
}

/// Returns view and GPUs of a round of two processes.
fn of(round: &Round) -> Option<(View, [u32; 2])> {
    let view = round.properties().view?;
    let flow = round.flows.first()?;
    Some((view, [flow.from.gpu()?, flow.to.gpu()?]))
}

/// Begins to start the processes for these rounds, two for each view. The main thread must call it: they die when it ends.
pub fn begin(launch: &Launch, rounds: &[Round]) -> Vec<Couple> {
    let mut couples: Vec<Couple> = Vec::new();
    for (view, _) in rounds.iter().filter_map(of) {
        if !couples.iter().any(|couple| couple.needs.view == view) {
            couples.push(Couple::spawn(launch, Needs::of(rounds, view)));
        }
    }
    couples
}

/// The end of the rounds of two processes.
pub struct Ended {
    /// True if the user stopped the run.
    pub interrupted: bool,
    /// The processes, which idle. The driver takes some tenths of a second to take their GPUs back, and serves nobody else
    /// meanwhile.
    pub idle: Vec<Worker>,
}

/// Runs the rounds.
pub fn run(
    couples: Vec<Couple>,
    launch: &Launch,
    rounds: &[Round],
    stop: &AtomicBool,
    listener: &mut dyn Listener,
) -> Ended {
    let opened = couples.into_iter().map(|couple| couple.open(launch));
    let mut open: Vec<Open> = opened.collect();
    let mut replaced = 0;
    for (ended, round) in rounds.iter().enumerate() {
        let Some((view, gpus)) = of(round) else {
            continue;
        };
        let given_up = match stop.load(Ordering::Relaxed) {
            true => Some("interrupted"),
            false => (replaced >= MOST_REPLACED).then_some(GIVEN_UP),
        };
        if let Some(why) = given_up {
            listener.ends(round.id, &lost(Status::Skipped, why));
            continue;
        }
        listener.begins(round, ended);
        let place = open.iter().position(|open| open.view == view);
        let place = place.unwrap_or_else(|| {
            open.push(Couple::spawn(launch, Needs::of(rounds, view)).open(launch));
            open.len() - 1
        });
        // All processes at once: while one opens a GPU, the driver takes turns with the kernels of the others.
        open.iter_mut().for_each(|open| open.wait(stop));
        let Some(current) = open.get_mut(place) else {
            continue;
        };
        let (outcome, usable) = current.run(round, gpus, stop);
        listener.ends(round.id, &outcome);
        if !usable {
            let problems = open.swap_remove(place).end();
            problems.iter().for_each(|problem| listener.problem(problem));
            replaced += 1;
        }
    }
    Ended {
        interrupted: stop.load(Ordering::Relaxed),
        idle: open.into_iter().flat_map(Open::close).collect(),
    }
}

fn lost(status: Status, reason: impl Into<String>) -> Outcome {
    Outcome::Lost { status, reason: reason.into() }
}

impl Couple {
    fn spawn(launch: &Launch, needs: Needs) -> Self {
        let sockets = UnixStream::pair().map_err(|error| {
            hardware::limits::not_started(
                format!("no socket between two processes: {error}"),
                &error,
            )
        });
        let workers = sockets.and_then(|(one, other)| {
            let spawn = |gpus: &BTreeSet<u32>, end: UnixStream| {
                let own = selected(launch, gpus);
                let mask = match needs.view {
                    View::All => launch.mask(),
                    View::Own => Some(environment::only(&own).ok_or_else(unnamed)?),
                };
                Worker::spawn_partner(
                    launch.machine.as_ref(),
                    launch.start_limit,
                    mask.as_deref(),
                    OwnedFd::from(end),
                )
            };
            Ok([spawn(&needs.gpus[0], one)?, spawn(&needs.gpus[1], other)?])
        });
        Self { needs, workers }
    }

    /// Lets both processes open their GPUs, and does not wait for that.
    fn open(self, launch: &Launch) -> Open {
        let Self { needs, workers } = self;
        let mut workers = workers.map_err(|error| Outcome::Failed { error });
        for (worker, gpus) in workers.iter_mut().flatten().zip(&needs.gpus) {
            // A worker that is gone does not answer, which is reported then.
            let _ = worker.send(&Request::Open {
                selections: selected(launch, gpus),
                memory_limit: MEMORY,
                one_by_one: false,
            });
        }
        Open {
            view: needs.view,
            workers,
            opens_until: Some(Instant::now() + launch.start_limit),
            closed: [BTreeMap::new(), BTreeMap::new()],
        }
    }
}

fn selected(launch: &Launch, gpus: &BTreeSet<u32>) -> Vec<Selection> {
    let selections = launch.selections.iter();
    selections.filter(|selection| gpus.contains(&selection.index)).cloned().collect()
}

fn unnamed() -> HardwareError {
    let why = "the GPU has no UUID by which a process could be shown it alone";
    HardwareError::new(ErrorKind::Hindered, why)
}

/// GPUs that a process could not open, and the outcome of the rounds that need them.
type Closed = BTreeMap<u32, Outcome>;

/// Waits until a process has opened its GPUs. Returns those that it could not open.
fn ready(worker: &mut Worker, until: Instant, stop: &AtomicBool) -> Result<Closed, Outcome> {
    loop {
        return match worker.receive(until, stop) {
            Received::Reply(Reply::Opening { .. }) => continue,
            Received::Reply(Reply::Ready { facts, .. }) => closed(&facts),
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

/// Returns the outcome of a round during which a process ended. One that was killed from outside says nothing of the machine.
fn gone(worker: &mut Worker, what: &str) -> Outcome {
    let death = worker.death();
    let status = if death.from_outside { Status::Skipped } else { Status::Failed };
    lost(status, format!("a process ended while {what}: {}", death.how))
}

/// Returns the GPUs that a process could not open.
fn closed(facts: &DriverFacts) -> Result<Closed, Outcome> {
    let why_closed = |device: &CudaDevice| {
        let failure = device.failure.as_ref()?;
        let kind = match device.failure_code {
            // Two processes cannot use a GPU in that mode: a setting, not a fault.
            Some(EXCLUSIVE) => ErrorKind::Impossible,
            _ => ErrorKind::Hindered,
        };
        let why = format!("a second process cannot use GPU {}: {failure}", device.index);
        let error = HardwareError::new(kind, why);
        Some((device.index, Outcome::Failed { error }))
    };
    if facts.devices.is_empty() {
        return Err(lost(Status::Skipped, "the second process opened no GPU"));
    }
    let closed: Closed = facts.devices.iter().filter_map(why_closed).collect();
    match &facts.kernels_failure {
        Some(why) if closed.is_empty() => Err(lost(Status::Skipped, why.clone())),
        _ => Ok(closed),
    }
}

/// Two processes that open their GPUs, or have opened them; or the outcome of all their rounds.
struct Open {
    view: View,
    workers: Result<[Worker; 2], Outcome>,
    /// The moment until which they must have opened them; none once that is known.
    opens_until: Option<Instant>,
    closed: [Closed; 2],
}

impl Open {
    /// Waits until both have opened their GPUs.
    fn wait(&mut self, stop: &AtomicBool) {
        if let (Some(until), Ok(workers)) = (self.opens_until.take(), &mut self.workers) {
            for (worker, closed) in workers.iter_mut().zip(&mut self.closed) {
                match ready(worker, until, stop) {
                    Ok(found) => *closed = found,
                    Err(outcome) => {
                        self.workers = Err(outcome);
                        break;
                    }
                }
            }
        }
    }

    /// Runs a round. Returns its outcome, and false if the processes must be replaced.
    fn run(&mut self, round: &Round, gpus: [u32; 2], stop: &AtomicBool) -> (Outcome, bool) {
        let workers = match &mut self.workers {
            Ok(workers) => workers,
            Err(outcome) => return (outcome.clone(), true),
        };
        let mut ends = self.closed.iter().zip(gpus);
        match ends.find_map(|(closed, gpu)| closed.get(&gpu)) {
            Some(outcome) => (outcome.clone(), true),
            None => steps::run(workers, gpus, round, stop),
        }
    }

    /// Returns the processes. Removes the files that they left: they have answered everything.
    fn close(self) -> Vec<Worker> {
        let workers: Vec<Worker> = self.workers.into_iter().flatten().collect();
        for worker in &workers {
            remove_files(worker.id());
        }
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
