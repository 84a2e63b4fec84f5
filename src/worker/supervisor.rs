//! The parent's side of the pipe: starts workers, watches their deadlines, replaces those that hang
//! or crash, and keeps every outcome.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::protocol::{Reply, Request, SUBCOMMAND};
use crate::hardware::{ErrorKind, Machine};
use crate::measure::assemble::describe;
use crate::measure::{Outcome, Selection};
use crate::model::measurement::{DriverFacts, Status};
use crate::model::units::Bytes;
use crate::plan::Round;

/// How long the driver may take to start. cuInit took 2.6 s on an 8 x H200 server; machines with
/// many GPUs and without persistence mode have been seen to need over half a minute.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a killed worker may take to die before it is left behind: one that is stuck in the
/// kernel driver dies when that lets go of it, or never.
const DEATH_LIMIT: Duration = Duration::from_secs(2);
/// Rounds sent ahead, so that the worker never waits for the pipe.
const ROUNDS_AHEAD: usize = 8;
/// How long to wait before a worker that could not be started is tried once more.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How often an interruption is looked for while waiting.
const POLL: Duration = Duration::from_millis(50);
/// How much of a worker's last words is kept, bytes.
const LAST_WORDS: usize = 2000;

/// What a session needs to start workers.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The machine.
    pub machine: Machine,
    /// The GPUs.
    pub selections: Vec<Selection>,
    /// Most memory to take on each.
    pub memory_limit: Bytes,
}

/// What came of the rounds.
#[derive(Default)]
pub struct Results {
    /// By round; what was not reached has none.
    pub outcomes: HashMap<u32, Outcome>,
    /// What went wrong beside single rounds.
    pub problems: Vec<String>,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// The worker that served the last round. Dropping it ends it, which takes the driver a while:
    /// contexts of eight GPUs are taken down.
    pub idle: Option<Worker>,
}

/// Why a worker could not be made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// A sentence for the user.
    Failed(String),
    /// The user stopped it.
    Interrupted,
}

/// A worker process. Its driver starts at once; [`Worker::open`] waits for it.
pub struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<Reply>,
    last_words: Arc<Mutex<String>>,
}

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    ///
    /// The program cannot be started again.
    pub fn spawn(machine: &Machine) -> Result<Self, String> {
        // Not by its path, which an update may have taken away or given to another version.
        let mut child = Command::new("/proc/self/exe")
            .arg0(env!("CARGO_PKG_NAME"))
            .args(["--machine", machine.name(), SUBCOMMAND])
            // A kernel that is loaded lazily while a gate is shut would wait for the gate.
            .env("CUDA_MODULE_LOADING", "EAGER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C reaches the whole foreground group; the parent decides what it means.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start a worker process: {error}"))?;
        let requests = child.stdin.take();
        let (sender, replies) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let Ok(reply) = serde_json::from_str(&line) else { return };
                    if sender.send(reply).is_err() {
                        return;
                    }
                }
            });
        }
        let last_words = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&last_words);
            std::thread::spawn(move || keep_last_words(stderr, &kept));
        }
        Ok(Self { child, requests, replies, last_words })
    }

    /// Opens the GPUs and waits until the worker is ready.
    ///
    /// # Errors
    ///
    /// The driver does not start, or not in time.
    pub fn open(&mut self, setup: &Setup, stop: &AtomicBool) -> Result<(DriverFacts, f64), StartError> {
        // A worker without a driver may be gone before it reads this; it has said why then.
        let sent = self.send(&Request::Open { selections: setup.selections.clone(), memory_limit: setup.memory_limit });
        match self.receive(Instant::now() + START_LIMIT, stop) {
            Received::Reply(Reply::Ready { facts, floor_seconds }) => Ok((facts, floor_seconds)),
            Received::Reply(Reply::NoDriver { error }) => Err(StartError::Failed(error.message)),
            Received::Reply(Reply::Done { .. }) => {
                Err(StartError::Failed("the worker answered before it was asked".into()))
            }
            Received::Late => {
                self.end();
                let limit = START_LIMIT.as_secs();
                Err(StartError::Failed(format!(
                    "the CUDA driver did not start within {limit} s: see dmesg for NVRM and Xid messages"
                )))
            }
            Received::Gone => {
                let why = self.death();
                let sent = sent.err().map(|error| format!(" ({error})")).unwrap_or_default();
                Err(StartError::Failed(format!("the worker process ended while the driver started: {why}{sent}")))
            }
            Received::Interrupted => Err(StartError::Interrupted),
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), String> {
        let requests = self.requests.as_mut().ok_or("the worker is gone")?;
        let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        line.push(b'\n');
        requests.write_all(&line).and_then(|()| requests.flush()).map_err(|error| error.to_string())
    }

    fn receive(&self, until: Instant, stop: &AtomicBool) -> Received {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Received::Interrupted;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left.min(POLL)) {
                Ok(reply) => return Received::Reply(reply),
                Err(RecvTimeoutError::Disconnected) => return Received::Gone,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Received::Late,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Kills the process and waits a little; one that does not die is left behind.
    fn end(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        // It may have ended by itself already.
        let _ = self.child.kill();
        let until = Instant::now() + DEATH_LIMIT;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// How a worker that is gone ended, with its last words.
    fn death(&mut self) -> String {
        // Its pipe closes a moment before the process can be waited for.
        let until = Instant::now() + DEATH_LIMIT;
        let mut status = None;
        while status.is_none() && Instant::now() < until {
            status = self.child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = status.or_else(|| self.end());
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((_, Some(signal))) => format!("it was ended by signal {signal}"),
            Some((Some(code), _)) => format!("it exited with code {code}"),
            _ => "it could not be ended".to_owned(),
        };
        let words = self.last_words.lock().map(|words| words.trim().replace('\n', " / ")).unwrap_or_default();
        if words.is_empty() { how } else { format!("{how}; its last words: {words}") }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

enum Received {
    Reply(Reply),
    Late,
    Gone,
    Interrupted,
}

fn keep_last_words(mut from: impl Read, kept: &Mutex<String>) {
    let mut buffer = [0; 512];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Ok(mut kept) = kept.lock() {
            kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
            let excess = kept.len().saturating_sub(LAST_WORDS);
            if let Some(start) = (excess..kept.len()).find(|&at| kept.is_char_boundary(at)) {
                kept.drain(..start);
            }
        }
    }
}

/// Runs all rounds, replacing the worker as often as needed. `progress` hears of every round before
/// it is waited for, with the number of rounds that have ended.
pub fn run(
    worker: Worker,
    setup: &Setup,
    rounds: &[Round],
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Round, usize),
) -> Results {
    let mut results = Results::default();
    let mut waiting: VecDeque<&Round> = rounds.iter().collect();
    let mut worker = Some(worker);
    let mut pairs_lost = HashSet::new();
    while !waiting.is_empty() {
        let Some(mut current) = worker.take() else {
            match restart(setup, stop) {
                Ok(fresh) => {
                    worker = Some(fresh);
                    continue;
                }
                Err(StartError::Interrupted) => {
                    results.interrupted = true;
                    break;
                }
                Err(StartError::Failed(why)) => {
                    results.problems.push(format!("no further worker could be started: {why}"));
                    lose(&mut results, waiting.drain(..), Status::Skipped, &format!("no worker: {why}"));
                    break;
                }
            }
        };
        match serve(&mut current, &mut waiting, &mut results, rounds.len(), stop, progress) {
            Served::All => {
                results.idle = Some(current);
                break;
            }
            Served::Interrupted => {
                results.interrupted = true;
                break;
            }
            Served::Lost(round, status, reason) => {
                results.problems.push(format!("{}: {reason}; the worker was replaced", round.pair));
                // One replacement per pair at most, or a broken driver would be restarted for ever.
                pairs_lost.insert(round.pair);
                let why = format!("not run, since {} of {} went wrong: {reason}", describe(&round.task), round.pair);
                results.outcomes.insert(round.id, Outcome::Lost { status, reason });
                let is_lost = |waiting: &&Round| {
                    pairs_lost.contains(&waiting.pair)
                        || (waiting.task.is_both_ways() && pairs_lost.contains(&waiting.pair.reversed()))
                };
                let (lost, kept): (VecDeque<_>, VecDeque<_>) = waiting.drain(..).partition(is_lost);
                waiting = kept;
                lose(&mut results, lost, Status::Skipped, &why);
            }
        }
    }
    if results.interrupted {
        lose(&mut results, waiting.drain(..), Status::Skipped, "interrupted");
    }
    results
}

fn restart(setup: &Setup, stop: &AtomicBool) -> Result<Worker, StartError> {
    let start = || {
        let mut worker = Worker::spawn(&setup.machine).map_err(StartError::Failed)?;
        worker.open(setup, stop)?;
        Ok(worker)
    };
    // What the last worker left behind may take a moment to go.
    start().or_else(|error| match error {
        StartError::Interrupted => Err(error),
        StartError::Failed(_) => {
            std::thread::sleep(RESTART_PAUSE);
            start()
        }
    })
}

fn lose<'r>(results: &mut Results, rounds: impl IntoIterator<Item = &'r Round>, status: Status, reason: &str) {
    for round in rounds {
        results.outcomes.insert(round.id, Outcome::Lost { status, reason: reason.to_owned() });
    }
}

enum Served<'r> {
    All,
    Interrupted,
    Lost(&'r Round, Status, String),
}

/// Has one worker run the waiting rounds until none is left or it fails.
fn serve<'r>(
    worker: &mut Worker,
    waiting: &mut VecDeque<&'r Round>,
    results: &mut Results,
    total: usize,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Round, usize),
) -> Served<'r> {
    let mut sent = 0;
    while let Some(&head) = waiting.front() {
        progress(head, total - waiting.len());
        let mut write_failed = false;
        while sent < waiting.len().min(ROUNDS_AHEAD) && !write_failed {
            write_failed = worker.send(&Request::Run { round: waiting[sent].clone() }).is_err();
            sent += usize::from(!write_failed);
        }
        let received = worker.receive(Instant::now() + head.deadline, stop);
        match received {
            Received::Reply(Reply::Done { id, outcome }) if id == head.id => {
                let broken = matches!(&outcome, Outcome::Failed { error } if error.kind == ErrorKind::Sticky);
                waiting.pop_front();
                sent = sent.saturating_sub(1);
                if let (true, Outcome::Failed { error }) = (broken, &outcome) {
                    worker.end();
                    return Served::Lost(head, Status::Failed, error.message.clone());
                }
                results.outcomes.insert(id, outcome);
            }
            Received::Reply(other) => {
                waiting.pop_front();
                worker.end();
                return Served::Lost(head, Status::Failed, format!("the worker gave an unexpected answer: {other:?}"));
            }
            Received::Late => {
                waiting.pop_front();
                worker.end();
                let what = describe(&head.task);
                let limit = head.deadline.as_secs_f64();
                return Served::Lost(head, Status::Hung, format!("{what} did not end within {limit:.1} s"));
            }
            Received::Gone => {
                waiting.pop_front();
                let why = worker.death();
                let what = describe(&head.task);
                return Served::Lost(head, Status::Failed, format!("the worker process ended during {what}: {why}"));
            }
            Received::Interrupted => {
                worker.end();
                return Served::Interrupted;
            }
        }
    }
    Served::All
}
