//! Runs the rounds of two processes: the parent starts both, with a socket between them, and asks them for one step after
//! the other. A step that hangs costs its round; both processes are then replaced.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::environment;
use super::handle::{Received, Worker};
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, stuck};
use hardware::{ErrorKind, HardwareError};
use measure::share::{Handed, Step, Taken};
use measure::{Outcome, Selection};
use model::measurement::{Status, View};
use model::units::{Bytes, MIB};
use plan::{Action, Round};

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

/// Two processes that have begun to start.
pub struct Couple {
    view: View,
    /// The GPUs of both, by NVML index.
    gpus: [u32; 2],
    workers: Result<[Worker; 2], HardwareError>,
}

/// Returns view and GPUs of a round of two processes.
fn of(round: &Round) -> Option<(View, [u32; 2])> {
    let Action::Share { view, .. } = round.task.action else {
        return None;
    };
    let flow = round.flows.first()?;
    Some((view, [flow.from.gpu()?, flow.to.gpu()?]))
}

/// Begins to start the processes for these rounds, the first of each view and GPUs. The main thread must call it: they die
/// when it ends.
pub fn begin(launch: &Launch, rounds: &[Round]) -> Vec<Couple> {
    let mut couples: Vec<Couple> = Vec::new();
    for (view, gpus) in rounds.iter().filter_map(of) {
        if !couples.iter().any(|couple| couple.is_for(view, gpus)) {
            couples.push(Couple::spawn(launch, view, gpus));
        }
    }
    couples
}

/// Runs the rounds, and ends the processes. Returns true if the user stopped the run.
pub fn run(
    mut couples: Vec<Couple>,
    launch: &Launch,
    rounds: &[Round],
    stop: &AtomicBool,
    listener: &mut dyn Listener,
) -> bool {
    let mut open: Option<Open> = None;
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
        let fits = |open: &Open| (open.view, open.gpus) == (view, gpus);
        if !open.as_ref().is_some_and(fits) {
            // Ends those of before, so that they do not disturb these.
            drop(open.take());
            let place = couples.iter().position(|couple| couple.is_for(view, gpus));
            let couple = match place {
                Some(place) => couples.swap_remove(place),
                None => Couple::spawn(launch, view, gpus),
            };
            open = Some(couple.open(launch, stop));
        }
        let Some(current) = &mut open else { continue };
        let (outcome, usable) = current.ladder(round, stop);
        listener.ends(round.id, &outcome);
        if !usable {
            let problems = current.end();
            problems
                .iter()
                .for_each(|problem| listener.problem(problem));
            replaced += 1;
            drop(open.take());
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    if let Some(mut last) = open {
        last.end();
    }
    interrupted
}

fn lost(status: Status, reason: impl Into<String>) -> Outcome {
    Outcome::Lost {
        status,
        reason: reason.into(),
    }
}

impl Couple {
    fn is_for(&self, view: View, gpus: [u32; 2]) -> bool {
        self.view == view && self.gpus == gpus
    }

    fn spawn(launch: &Launch, view: View, gpus: [u32; 2]) -> Self {
        let sockets = UnixStream::pair().map_err(|error| {
            hardware::limits::not_started(
                format!("no socket between two processes: {error}"),
                &error,
            )
        });
        let workers = sockets.and_then(|(one, other)| {
            let spawn = |gpu: u32, end: UnixStream| {
                let own = selected(launch, gpu);
                let mask = match view {
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
            Ok([spawn(gpus[0], one)?, spawn(gpus[1], other)?])
        });
        Self {
            view,
            gpus,
            workers,
        }
    }

    /// Opens the GPU of each process.
    fn open(self, launch: &Launch, stop: &AtomicBool) -> Open {
        let Self {
            view,
            gpus,
            workers,
        } = self;
        let workers = workers.map_err(|error| Outcome::Failed { error });
        let workers = workers.and_then(|mut workers| {
            for (worker, gpu) in workers.iter_mut().zip(gpus) {
                // A worker that is gone does not answer, which is reported then.
                let _ = worker.send(&Request::Open {
                    selections: selected(launch, gpu),
                    memory_limit: MEMORY,
                    one_by_one: false,
                });
            }
            let until = Instant::now() + launch.start_limit;
            for worker in &mut workers {
                ready(worker, until, stop)?;
            }
            Ok(workers)
        });
        Open {
            view,
            gpus,
            workers,
        }
    }
}

fn selected(launch: &Launch, gpu: u32) -> Vec<Selection> {
    let selections = launch.selections.iter();
    selections
        .filter(|selection| selection.index == gpu)
        .cloned()
        .collect()
}

fn unnamed() -> HardwareError {
    let why = "the GPU has no UUID by which a process could be shown it alone";
    HardwareError::new(ErrorKind::Hindered, why)
}

/// Waits until a process has opened its GPU.
fn ready(worker: &mut Worker, until: Instant, stop: &AtomicBool) -> Result<(), Outcome> {
    loop {
        return match worker.receive(until, stop) {
            Received::Reply(Reply::Opening { .. }) => continue,
            Received::Reply(Reply::Ready { facts, .. }) => {
                let failed = facts.devices.iter().find(|device| device.failure.is_some());
                let kernels = facts.kernels_failure;
                match (failed, kernels) {
                    (None, None) if !facts.devices.is_empty() => Ok(()),
                    (Some(device), _) => {
                        let kind = match device.failure_code {
                            // Two processes cannot use a GPU in that mode: a setting, not a fault.
                            Some(EXCLUSIVE) => ErrorKind::Impossible,
                            _ => ErrorKind::Hindered,
                        };
                        let why = device.failure.clone().unwrap_or_default();
                        let why =
                            format!("a second process cannot use GPU {}: {why}", device.index);
                        Err(Outcome::Failed {
                            error: HardwareError::new(kind, why),
                        })
                    }
                    (_, kernels) => Err(lost(
                        Status::Skipped,
                        kernels.unwrap_or_else(|| "the second process opened no GPU".to_owned()),
                    )),
                }
            }
            Received::Reply(Reply::NoDriver { error }) => Err(Outcome::Failed { error }),
            Received::Reply(_) => Err(lost(Status::Failed, "a process gave another answer")),
            Received::Late => Err(lost(
                Status::Hung,
                "the driver did not start in a second process",
            )),
            Received::Gone => {
                let death = worker.death();
                let status = if death.from_outside {
                    Status::Skipped
                } else {
                    Status::Failed
                };
                let why = format!(
                    "a second process ended while the driver started: {}",
                    death.how
                );
                Err(lost(status, why))
            }
            Received::Interrupted => Err(lost(Status::Skipped, "interrupted")),
        };
    }
}

/// Two processes with their GPUs open, or the outcome of all their rounds.
struct Open {
    view: View,
    gpus: [u32; 2],
    workers: Result<[Worker; 2], Outcome>,
}

/// A step that ended the round.
enum Stop {
    /// Refused: the next round can run.
    Refused(Taken),
    /// The processes are of no more use.
    Broken(Outcome),
}

impl Open {
    /// Runs a round. Returns its outcome, and false if the processes must be replaced.
    fn ladder(&mut self, round: &Round, stop: &AtomicBool) -> (Outcome, bool) {
        let workers = match &mut self.workers {
            Ok(workers) => workers,
            Err(outcome) => return (outcome.clone(), true),
        };
        let until = Instant::now() + round.deadline;
        let steps = steps(workers, self.gpus, round, until, stop);
        let leave = |workers: &mut [Worker; 2]| {
            // The one that opened the memory leaves it first.
            let mut both = workers.iter_mut().rev();
            both.try_for_each(|worker| {
                match ask(worker, &Step::Leave, "giving it back", until, stop)? {
                    Taken::Left => Ok(()),
                    other => Err(Stop::Refused(other)),
                }
            })
        };
        match steps {
            Ok(handed) => match leave(workers) {
                Ok(()) => (
                    Outcome::Handed {
                        handed: Box::new(handed),
                    },
                    true,
                ),
                Err(Stop::Refused(taken)) => (refused(taken), false),
                Err(Stop::Broken(outcome)) => (outcome, false),
            },
            Err(Stop::Refused(taken)) => {
                let sticky = matches!(&taken, Taken::Refused { refusal } if refusal.error.kind == ErrorKind::Sticky);
                (refused(taken), !sticky && leave(workers).is_ok())
            }
            Err(Stop::Broken(outcome)) => (outcome, false),
        }
    }

    /// Ends both processes, and removes the files that they left. Returns sentences about those that do not end.
    fn end(&mut self) -> Vec<String> {
        let Ok(workers) = &mut self.workers else {
            return Vec::new();
        };
        workers.iter_mut().for_each(Worker::kill);
        let ended = workers.iter_mut().filter_map(|worker| {
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

fn refused(taken: Taken) -> Outcome {
    match taken {
        Taken::Refused { refusal } => Outcome::Refused { refusal },
        _ => lost(Status::Failed, "a process gave another answer"),
    }
}

/// Takes the steps of a round.
fn steps(
    [owner, user]: &mut [Worker; 2],
    gpus: [u32; 2],
    round: &Round,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Handed, Stop> {
    let Action::Share { rung, .. } = round.task.action else {
        return Err(Stop::Broken(lost(Status::Failed, "this is no sharing")));
    };
    let bytes = round.task.setup.bytes.0;
    let offer = Step::Offer {
        rung,
        gpu: gpus[0],
        bytes,
    };
    let (handle, seed, bytes) = match ask(owner, &offer, "offering it", until, stop)? {
        Taken::Offered {
            handle,
            seed,
            bytes,
        } => (handle, seed, bytes),
        other => return Err(Stop::Refused(other)),
    };
    let take = Step::Take {
        rung,
        gpu: gpus[1],
        bytes,
        handle,
        seed,
    };
    let (open_us, check, seed) = match ask(user, &take, "opening it", until, stop)? {
        Taken::Opened {
            open_us,
            check,
            seed,
        } => (open_us, check, seed),
        other => return Err(Stop::Refused(other)),
    };
    let mut checks: Vec<_> = check.into_iter().collect();
    match ask(owner, &Step::Confirm { seed }, "checking it", until, stop)? {
        Taken::Confirmed { check } => checks.extend(check),
        other => return Err(Stop::Refused(other)),
    }
    Ok(Handed { open_us, checks })
}

/// Asks a process for a step, and waits for its answer.
fn ask(
    worker: &mut Worker,
    step: &Step,
    what: &str,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Taken, Stop> {
    let broken = |status, why: String| Err(Stop::Broken(lost(status, why)));
    // A worker that is gone does not answer, which is reported then.
    let _ = worker.send(&Request::Share { step: step.clone() });
    let left = until.saturating_duration_since(Instant::now());
    match worker.receive(until, stop) {
        Received::Reply(Reply::Taken {
            taken: refused @ Taken::Refused { .. },
        }) => Err(Stop::Refused(refused)),
        Received::Reply(Reply::Taken { taken }) => Ok(taken),
        Received::Reply(_) => broken(Status::Failed, "a process gave another answer".into()),
        Received::Late => broken(Status::Hung, hung(what, left)),
        Received::Gone => {
            let death = worker.death();
            let status = if death.from_outside {
                Status::Skipped
            } else {
                Status::Failed
            };
            broken(
                status,
                format!("a process ended while {what}: {}", death.how),
            )
        }
        Received::Interrupted => broken(Status::Skipped, "interrupted".into()),
    }
}

fn hung(what: &str, limit: Duration) -> String {
    format!("{what} did not end within {:.1} s", limit.as_secs_f64())
}
