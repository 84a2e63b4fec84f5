//! Runs rounds on workers: watches their deadlines, replaces workers that hang or crash, and keeps every outcome.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::again::{TriedAgain, failed};
use super::handle::{Received, Worker};
use super::hangs::Hangs;
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, LeftOut, StartError, start, stuck};
use hardware::{ErrorKind, HardwareError};
use model::broken_off::{Again, Break, How};
use model::flow::Flow;
use model::measurement::Status;
use probes::{Outcome, Round};

mod losses;
mod together;

use together::Together;

/// Number of rounds sent ahead, so that the worker never waits for the pipe. The whole slot behind the running one is
/// sent in any case. Otherwise the worker would wait after every slot until all of its outcomes are recorded. With 72
/// GPUs a slot has up to 72 rounds.
const ROUNDS_AHEAD: usize = 8;
/// Pause before trying once more to start a worker.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The result of the rounds.
#[derive(Default)]
pub struct Results {
    /// True if the user stopped the run.
    pub interrupted: bool,
    /// The worker that served the last round. Dropping it ends it, which takes a while: the driver takes down the
    /// contexts of eight GPUs.
    pub idle: Option<Worker>,
}

/// Runs all rounds, replacing the worker as often as needed. Without a worker, which the last round of an earlier call may
/// have cost, it starts one.
pub fn run(
    worker: impl Into<Option<Worker>>,
    launch: &Launch,
    rounds: &[Round],
    stop: &AtomicBool,
    listener: &mut dyn Listener,
) -> Results {
    run_with(worker, launch.clone(), rounds, stop, listener, &mut Launch::spawn)
}

/// Runs all rounds with workers that `spawn` starts, for tests.
pub(super) fn run_with(
    worker: impl Into<Option<Worker>>,
    launch: Launch,
    rounds: &[Round],
    stop: &AtomicBool,
    listener: &mut dyn Listener,
    spawn: &mut dyn FnMut(&Launch) -> Result<Worker, HardwareError>,
) -> Results {
    let mut session = Session {
        launch,
        waiting: rounds.iter().collect(),
        put_off: VecDeque::new(),
        hangs: Hangs::default(),
        lost: HashSet::new(),
        tried: HashMap::new(),
        killed: 0,
        apart: HashSet::new(),
        all_apart: false,
        again: TriedAgain::default(),
        total: rounds.len(),
        results: Results::default(),
        listener,
        stop,
    };
    session.run(worker.into(), spawn);
    session.results
}

struct Session<'r, 'l> {
    launch: Launch,
    waiting: VecDeque<&'r Round>,
    /// Rounds of GPUs that keep hanging, which run after all others.
    put_off: VecDeque<&'r Round>,
    hangs: Hangs,
    /// Flows that hung or crashed together.
    lost: HashSet<Vec<Flow>>,
    /// Rounds whose worker ended by itself or was killed, which are tried once more; true if the cause came from
    /// outside.
    tried: HashMap<u32, bool>,
    /// Number of rounds lost because something outside killed their workers.
    killed: usize,
    /// Slots in which something went wrong. Their rounds run one by one.
    apart: HashSet<u32>,
    /// True if all further rounds run one by one.
    all_apart: bool,
    /// Rounds that broke off and are tried again.
    again: TriedAgain<'r>,
    total: usize,
    results: Results,
    listener: &'l mut dyn Listener,
    stop: &'l AtomicBool,
}

enum Served<'r> {
    All,
    Interrupted,
    Lost(&'r Round, Status, String),
    /// A round whose worker ended; with the crash, if it was one.
    Again(&'r Round, String, Option<Break>),
    /// Rounds that ran at once, with their break, unless somebody ended the worker.
    Apart(Vec<&'r Round>, String, Option<Break>),
}

/// Returns the flows of rounds that run at once, for people.
fn ways(rounds: &[&Round]) -> String {
    rounds.iter().map(|round| round.way()).collect::<Vec<_>>().join(", ")
}

/// Returns the result of a retry from the round's outcome.
fn result_of(outcome: &Outcome) -> Again {
    match outcome {
        Outcome::Failed { error } => Again::BrokeOff(failed(error)),
        _ => Again::Worked,
    }
}

impl<'r> Session<'r, '_> {
    fn run(
        &mut self,
        mut worker: Option<Worker>,
        spawn: &mut dyn FnMut(&Launch) -> Result<Worker, HardwareError>,
    ) {
        loop {
            let mut once_more = None;
            if self.waiting.is_empty() && !self.take_up() {
                once_more = self.once_more();
                if once_more.is_none() {
                    self.results.idle = worker;
                    return;
                }
            }
            let Some(mut current) = worker.take() else {
                match self.restart(spawn) {
                    Ok((fresh, left_out)) => {
                        self.leave_out(&left_out);
                        worker = Some(fresh);
                    }
                    Err(StartError::Interrupted) => return self.interrupt(),
                    Err(
                        StartError::Failed(HardwareError { message: why, .. })
                        | StartError::Late(why),
                    ) => {
                        self.problem(format!("no other worker could be started: {why}"));
                        return self.lose_if(&format!("no worker: {why}"), |_| true);
                    }
                }
                continue;
            };
            if let Some(rounds) = once_more {
                match self.run_together(&mut current, &rounds) {
                    Together::Usable => worker = Some(current),
                    Together::Ended => {}
                    Together::Interrupted => return self.interrupt(),
                }
                continue;
            }
            match self.serve(&mut current) {
                Served::All => worker = Some(current),
                Served::Interrupted => {
                    current
                        .stuck()
                        .map(stuck)
                        .into_iter()
                        .for_each(|problem| self.problem(problem));
                    return self.interrupt();
                }
                Served::Again(round, reason, crash) => {
                    let broken = crash.and_then(|crash| self.again.broke_off_alone(round, crash));
                    self.broke_off(broken);
                    self.problem(format!(
                        "{}: {reason}; it was tried again with another worker",
                        round.way()
                    ));
                    self.waiting.push_front(round);
                }
                Served::Apart(rounds, reason, broke) => {
                    self.one_by_one(&rounds, &reason, broke, current.stuck())
                }
                Served::Lost(round, status, reason) => {
                    self.lost(round, status, reason, current.stuck())
                }
            }
        }
    }

    /// Runs the waiting rounds on one worker until none is left or it fails.
    fn serve(&mut self, worker: &mut Worker) -> Served<'r> {
        let mut sent = 0;
        while let Some(&head) = self.waiting.front() {
            self.listener.begins(head, self.total - self.waiting.len() - self.put_off.len());
            let mut write_failed = false;
            while sent < self.waiting.len()
                && (sent < ROUNDS_AHEAD || self.is_one_slot(sent))
                && !write_failed
            {
                let counted =
                    |place: usize| self.waiting.get(place).is_some_and(|round| round.is_counted());
                // The counters would include any other copies that run meanwhile.
                if sent > 0 && (counted(0) || counted(sent)) {
                    break;
                }
                if counted(0) {
                    self.listener.counts(head);
                }
                let rounds: Vec<Round> = self.slot_at(sent).cloned().collect();
                sent += rounds.len();
                write_failed = worker.send(&Request::Run { rounds }).is_err();
            }
            let received = worker.receive(Instant::now() + head.deadline, self.stop);
            let received = match received {
                Received::Reply(Reply::Apart { id, error }) if id == head.id => {
                    self.went_wrong_at_once(head, &error);
                    continue;
                }
                Received::Reply(Reply::Seen { id, timeline }) if id == head.id => {
                    self.listener.seen(timeline);
                    continue;
                }
                received => received,
            };
            if !matches!(received, Received::Interrupted) {
                self.waiting.pop_front();
                sent = sent.saturating_sub(1);
            }
            match received {
                Received::Reply(Reply::Done { id, outcome, clock }) if id == head.id => {
                    self.listener.clock(clock);
                    if let Outcome::Failed { error } = &outcome
                        && error.kind == ErrorKind::Sticky
                    {
                        worker.end();
                        let with = self.at_once_with(head);
                        return match with.len() {
                            1 => Served::Lost(head, Status::Failed, error.message.clone()),
                            _ => Served::Apart(with, error.message.clone(), Some(failed(error))),
                        };
                    }
                    self.listener.ends(id, &outcome);
                    let broken = self.again.ended(head, result_of(&outcome));
                    self.broke_off(broken);
                    if self.waiting.front().is_none_or(|next| next.flows != head.flows) {
                        self.hangs.ended(&head.flows);
                    }
                }
                Received::Reply(other) => {
                    worker.end();
                    let reason = format!("the worker gave an unexpected answer: {other:?}");
                    return Served::Lost(head, Status::Failed, reason);
                }
                Received::Late => {
                    worker.end();
                    let (what, limit) = (head.task, head.deadline.as_secs_f64());
                    let reason = format!("{what} did not end within {limit:.1} s");
                    let with = self.at_once_with(head);
                    return match with.len() {
                        1 => Served::Lost(head, Status::Hung, reason),
                        _ => {
                            Served::Apart(with, reason.clone(), Some(Break::of(How::Hung, reason)))
                        }
                    };
                }
                Received::Gone => {
                    let (what, death) = (head.task, worker.death());
                    let reason = format!("the worker process ended during {what}: {}", death.how);
                    let with = self.at_once_with(head);
                    if with.len() > 1 {
                        self.tried.extend(with.iter().map(|round| (round.id, death.from_outside)));
                        let crash = death.crash(&reason);
                        return Served::Apart(with, reason, crash);
                    }
                    return match self.tried.insert(head.id, death.from_outside) {
                        None => {
                            let crash = death.crash(&reason);
                            Served::Again(head, reason, crash)
                        }
                        // Only a second crash blames the copied flows.
                        Some(false) if !death.from_outside => {
                            let again = death.crash(&reason).map(Again::BrokeOff);
                            let broken = again.and_then(|again| self.again.ended(head, again));
                            self.broke_off(broken);
                            Served::Lost(head, Status::Failed, reason)
                        }
                        Some(_) => {
                            self.killed += 1;
                            Served::Lost(
                                head,
                                Status::Skipped,
                                format!("{reason}, for the second time"),
                            )
                        }
                    };
                }
                Received::Interrupted => {
                    worker.end();
                    return Served::Interrupted;
                }
            }
        }
        Served::All
    }

    /// Returns true if the first `sent` rounds are of one slot that does not run one by one.
    fn is_one_slot(&self, sent: usize) -> bool {
        let slot = |place: usize| self.waiting.get(place).map(|round| round.slot);
        let last = sent.checked_sub(1).and_then(slot);
        last == slot(0) && last.is_some_and(|slot| !self.is_apart(slot))
    }

    /// Returns true if the rounds of this slot run one by one.
    fn is_apart(&self, slot: u32) -> bool {
        self.all_apart || self.apart.contains(&slot)
    }

    /// Returns a round that has left the queue, and those that ran at once with it.
    fn at_once_with(&self, head: &'r Round) -> Vec<&'r Round> {
        let is_apart = self.is_apart(head.slot);
        let rest =
            self.waiting.iter().copied().take_while(|round| !is_apart && round.slot == head.slot);
        std::iter::once(head).chain(rest).collect()
    }

    /// Returns the waiting rounds from this place on that run at once.
    fn slot_at(&self, place: usize) -> impl Iterator<Item = &'r Round> {
        let head = self.waiting.get(place).copied();
        let apart = head.is_some_and(|head| self.is_apart(head.slot));
        let of_slot = move |round: &&&'r Round| head.is_some_and(|head| head.slot == round.slot);
        let most = if apart { 1 } else { usize::MAX };
        let rounds: Vec<_> =
            self.waiting.iter().skip(place).take_while(of_slot).take(most).copied().collect();
        rounds.into_iter()
    }

    /// Handles rounds that ran at once and ended their worker, or left it stuck. Each is run by itself to find the one
    /// at fault.
    fn one_by_one(
        &mut self,
        rounds: &[&'r Round],
        reason: &str,
        broke: Option<Break>,
        pid: Option<u32>,
    ) {
        let broken = broke.and_then(|broke| self.again.broke_off(rounds, broke));
        self.broke_off(broken);
        let stuck = pid.map(|pid| format!("; {}", stuck(pid))).unwrap_or_default();
        self.problem(format!(
            "{} at once: {reason}{stuck}; they were tried one by one with another worker",
            ways(rounds)
        ));
        self.apart.extend(rounds.iter().map(|round| round.slot));
        if self.again.is_enough() && !self.all_apart {
            self.all_apart = true;
            self.problem(
                "rounds at once went wrong again and again: the rest was run one at a time"
                    .to_owned(),
            );
        }
        // The others are still in the queue.
        rounds.iter().take(1).for_each(|head| self.waiting.push_front(head));
    }

    fn restart(
        &mut self,
        spawn: &mut dyn FnMut(&Launch) -> Result<Worker, HardwareError>,
    ) -> Result<(Worker, LeftOut), StartError> {
        let mut start = || start(spawn(&self.launch), &mut self.launch, self.stop, spawn);
        // The release of the last worker's resources may take a moment.
        let ready = start().or_else(|error| match error {
            StartError::Failed(_) if !self.stop.load(Ordering::Relaxed) => {
                std::thread::sleep(RESTART_PAUSE);
                start()
            }
            error => Err(error),
        })?;
        ready.problems.into_iter().for_each(|problem| self.problem(problem));
        Ok((ready.worker, ready.left_out))
    }

    fn interrupt(&mut self) {
        self.results.interrupted = true;
        self.lose_if("interrupted", |_| true);
    }

    fn problem(&mut self, problem: String) {
        self.listener.problem(&problem);
    }
}
