//! Runs the rounds of two processes: the parent starts both, with a socket between them, and asks the one to offer memory
//! and the other to open it. Every round has processes of its own, so that a call that hangs costs only its round.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::handle::{Received, Worker};
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, Ready, StartError, start, stuck};
use hardware::{ErrorKind, HardwareError};
use measure::Outcome;
use measure::share::{Step, Taken};
use model::measurement::{CudaDevice, DriverFacts, Status};
use model::units::{Bytes, MIB};
use plan::{Action, Round};

/// Memory that each process may use on a GPU: the least with which a worker opens one.
const MEMORY: Bytes = Bytes(64 * MIB);
/// The folder of files that both processes register.
const SHARED_MEMORY: &str = "/dev/shm";
/// CUDA_ERROR_DEVICE_UNAVAILABLE: another process has the GPU in exclusive mode.
const EXCLUSIVE: u32 = 46;

/// Runs the rounds. The main thread must call it: the processes die when it ends.
pub fn run(launch: &Launch, rounds: &[Round], stop: &AtomicBool, listener: &mut dyn Listener) {
    for (ended, round) in rounds.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            listener.ends(round.id, &interrupted());
            continue;
        }
        listener.begins(round, ended);
        let mut workers = Vec::new();
        let outcome = hand(launch, round, stop, &mut workers).unwrap_or_else(|outcome| outcome);
        listener.ends(round.id, &outcome);
        workers.iter_mut().for_each(Worker::kill);
        for worker in &mut workers {
            worker.end();
            remove_files(worker.id());
            worker.stuck().map(stuck).iter().for_each(|problem| listener.problem(problem));
        }
    }
}

fn lost(status: Status, reason: impl Into<String>) -> Outcome {
    Outcome::Lost { status, reason: reason.into() }
}

fn interrupted() -> Outcome {
    lost(Status::Skipped, "interrupted")
}

fn another() -> Outcome {
    lost(Status::Failed, "a process gave another answer")
}

/// Starts two processes, and hands memory from the first to the second.
///
/// # Errors
///
/// The outcome of a round in which that did not work. The processes are kept in any case.
fn hand(
    launch: &Launch,
    round: &Round,
    stop: &AtomicBool,
    workers: &mut Vec<Worker>,
) -> Result<Outcome, Outcome> {
    let gpus = round.flows.first().and_then(|flow| Some([flow.from.gpu()?, flow.to.gpu()?]));
    let (Action::Share { rung }, Some(gpus)) = (&round.task.action, gpus) else {
        return Err(lost(Status::Failed, "this is no sharing"));
    };
    let (rung, [owner, user]) = (*rung, gpus);
    let started = start_both(launch).map_err(|error| Outcome::Failed { error })?;
    for (worker, gpu) in started.into_iter().zip(gpus) {
        workers.push(opened(worker, launch, gpu, stop)?);
    }
    let until = Instant::now() + round.deadline;
    let mut ask = |place: usize, step, what| ask(&mut workers[place], step, what, until, stop);
    let offer = Step::Offer { rung, gpu: owner, bytes: round.task.setup.bytes.0 };
    let Taken::Offered { handle, seed, bytes } = ask(0, offer, "offering it")? else {
        return Err(another());
    };
    match ask(1, Step::Take { rung, gpu: user, bytes, handle, seed }, "opening it")? {
        Taken::Opened { handed } => Ok(Outcome::Handed { handed }),
        _ => Err(another()),
    }
}

/// Starts both processes, whose drivers start at the same time.
fn start_both(launch: &Launch) -> Result<[Worker; 2], HardwareError> {
    let (one, other) = UnixStream::pair().map_err(|error| {
        let why = format!("no socket between two processes: {error}");
        hardware::limits::not_started(why, &error)
    })?;
    let spawn = |end: UnixStream| {
        let (machine, mask) = (launch.machine.as_ref(), launch.mask());
        Worker::spawn_partner(machine, launch.start_limit, mask.as_deref(), OwnedFd::from(end))
    };
    Ok([spawn(one)?, spawn(other)?])
}

/// Waits until a process has opened its GPU.
fn opened(worker: Worker, launch: &Launch, gpu: u32, stop: &AtomicBool) -> Result<Worker, Outcome> {
    let mut launch = Launch { memory_limit: MEMORY, unmasked: true, ..launch.clone() };
    launch.selections.retain(|one| one.index == gpu);
    let no_other = &mut |_: &Launch| {
        let why = "the driver did not start in a second process, which ended";
        Err(HardwareError::new(ErrorKind::Hindered, why))
    };
    match start(Ok(worker), &mut launch, stop, no_other) {
        Ok(Ready { worker, facts, .. }) => is_open(&facts).map(|()| worker),
        Err(StartError::Failed(error)) => Err(Outcome::Failed { error }),
        Err(StartError::Late(why)) => Err(lost(Status::Hung, why)),
        Err(StartError::Interrupted) => Err(interrupted()),
    }
}

/// Returns the outcome of a round if a process could not open its GPU.
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

/// Asks a process for a step, and waits for its answer.
fn ask(
    worker: &mut Worker,
    step: Step,
    what: &str,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Taken, Outcome> {
    let left = until.saturating_duration_since(Instant::now()).as_secs_f64();
    // A worker that is gone does not answer, which is reported then.
    let _ = worker.send(&Request::Share { step });
    match worker.receive(until, stop) {
        Received::Reply(Reply::Taken { taken: Taken::Refused { refusal } }) => {
            Err(Outcome::Refused { refusal })
        }
        Received::Reply(Reply::Taken { taken }) => Ok(taken),
        Received::Reply(_) => Err(another()),
        Received::Late => Err(lost(Status::Hung, format!("{what} did not end within {left:.1} s"))),
        Received::Gone => {
            // One that was killed from outside says nothing of the machine.
            let death = worker.death();
            let status = if death.from_outside { Status::Skipped } else { Status::Failed };
            Err(lost(status, format!("a process ended while {what}: {}", death.how)))
        }
        Received::Interrupted => Err(interrupted()),
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
