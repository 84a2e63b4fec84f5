//! Keeps a machine under load after its check, round and round, until the time is over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::super::follower::Follower;
use super::super::remark;
use super::hours::Hours;
use super::measuring::Run;
use model::broken_off::BrokenOff;
use model::measurement::DriverFacts;
use model::snapshot::Snapshot;
use model::soak::SoakEnd;
use probes::soak::Soak;
use probes::soak::minutes::{Counted, Minutes};
use probes::watch::Watch;
use probes::{Action, Outcome, Round};
use report::soak_series;
use run::recording::Event;
use run::worker::supervisor::{self, Results};
use run::worker::{Launch, Listener, Worker};

/// Failures of a round after which it is left out: it costs its deadline each time.
const MOST_FAILURES: u32 = 2;

/// Minutes between two entries of single links in the journal.
const RECORDED_EVERY: usize = 60;
/// First number of the rounds of the check that are repeated. No plan has as many rounds.
const LINKS_FROM: u32 = 1 << 30;

impl Run<'_> {
    /// Runs rounds until the time is over. Without a worker, which the check may have cost, one is started. Returns the last
    /// worker.
    pub(super) fn soak(
        &mut self,
        worker: Option<Worker>,
        launch: &Launch,
        facts: &DriverFacts,
        snapshot: &Snapshot,
        hours: &Hours,
    ) -> Option<Worker> {
        let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let topology = topology::with_cuda(topology::build(snapshot), facts);
        let request = probes::Request {
            gpus: &gpus,
            driver: facts,
            topology: &topology,
            profile: &self.scope.profile,
            groups: &self.scope.groups,
            deadline: self.args.deadline,
            serial: self.args.serial,
        };
        let rounds: Vec<Round> = probes::plan::soak(&request, hours.length)
            .into_iter()
            .filter(|round| probes::plan::obstacle(round, facts).is_none())
            .collect();
        let telemetry = self.facts.telemetry().cloned();
        let counted = || {
            telemetry
                .as_ref()
                .map(|telemetry| Counted::now(telemetry, snapshot))
                .unwrap_or_default()
        };
        let mut soaking = Soaking {
            minutes: Minutes::new(&rounds, &gpus, self.follower.clock, counted()),
            watch: telemetry.as_ref().map(|telemetry| Watch::start_for_hours(telemetry, &gpus)),
            follower: &mut self.follower,
            counted: &counted,
            carried: &|flow, bytes| {
                if let Some(telemetry) = &telemetry {
                    telemetry.carried(flow, bytes);
                }
            },
            hours,
            rounds: &rounds,
            links: Vec::new(),
            last: Vec::new(),
            links_due: false,
            links_seen: HashMap::new(),
            failures: HashMap::new(),
            next: 0,
            line: String::new(),
            not_written: None,
        };
        let to_repeat = soaking.follower.recorder.to_repeat().map(numbered_apart);
        (soaking.last, soaking.links) = to_repeat.partition(Round::is_of_addresses);
        soaking.show();
        soaking.follower.take(Event::Soak {
            seconds: hours.length.as_secs_f64(),
            paths: soaking.minutes.paths().to_vec(),
        });
        let mut idle = worker;
        let ended = loop {
            let next = soaking.next_rounds();
            if next.is_empty() {
                break soaking.reason();
            }
            // The last round of the ones before may have cost the worker.
            let Results { interrupted, idle: last } =
                supervisor::run(idle.take(), launch, &next, &self.stop, &mut soaking);
            idle = last;
            if interrupted {
                break SoakEnd::Interrupted;
            }
        };
        soaking.end(ended);
        if ended == SoakEnd::Interrupted {
            self.follower.take(Event::Measured { interrupted: true });
        }
        idle
    }
}

/// The listener of a soak.
struct Soaking<'a> {
    follower: &'a mut Follower,
    minutes: Minutes,
    watch: Option<Watch>,
    counted: &'a dyn Fn() -> Counted,
    carried: &'a dyn Fn(model::flow::Flow, u64),
    hours: &'a Hours,
    rounds: &'a [Round],
    /// Rounds of single links, which run once a minute between the others, and whether they are due.
    links: Vec<Round>,
    /// Rounds that run once the time is over.
    last: Vec<Round>,
    links_due: bool,
    /// Their outcomes since the last entry in the journal, by the numbers of the check.
    links_seen: HashMap<u32, Outcome>,
    /// Number of times in a row that a round did not run to its end.
    failures: HashMap<u32, u32>,
    /// Place of the next round, if they run one by one.
    next: usize,
    /// The figures so far, for the terminal.
    line: String,
    /// Why the last minute was not written.
    not_written: Option<String>,
}

impl Soaking<'_> {
    /// Returns the rounds that still fit into the time, without those that failed too often. Returns none if the soak is
    /// over.
    fn next_rounds(&mut self) -> Vec<Round> {
        let left = self.hours.length.as_secs_f64() - self.minutes.seconds();
        let faulty = self.hours.fail_fast && self.minutes.has_fault();
        if left <= 0.0 || faulty {
            let last = std::mem::take(&mut self.last);
            return if faulty { Vec::new() } else { last };
        }
        if std::mem::take(&mut self.links_due) {
            return self.links.clone();
        }
        let usable = |round: &&Round| {
            self.failures.get(&round.id).is_none_or(|failures| *failures < MOST_FAILURES)
        };
        let usable: Vec<&Round> = self.rounds.iter().filter(usable).collect();
        if usable.is_empty() {
            return std::mem::take(&mut self.last);
        }
        if self.hours.fail_fast {
            // A fault ends the soak before the next round.
            let next = usable.get(self.next % usable.len().max(1));
            self.next += 1;
            return next.copied().cloned().into_iter().collect();
        }
        let mut time = 0.0;
        let fits = |round: &&Round| {
            let fits = time < left;
            time += seconds_of(round);
            fits
        };
        usable.into_iter().take_while(fits).cloned().collect()
    }

    /// Shows the time left and the figures so far.
    fn show(&self) {
        let left = self.hours.length.as_secs_f64() - self.minutes.seconds();
        self.follower.progress.hours(left, &self.line);
    }

    fn reason(&self) -> SoakEnd {
        if self.hours.fail_fast && self.minutes.has_fault() {
            SoakEnd::FirstFault
        } else if self.minutes.seconds() >= self.hours.length.as_secs_f64() {
            SoakEnd::TimeOver
        } else {
            SoakEnd::NothingRuns
        }
    }

    /// Takes the readings since the last round.
    fn drain(&mut self) {
        if let Some(watch) = &self.watch {
            self.minutes.read(&watch.drain());
        }
    }

    /// Closes the minute, if it is over or `anyway`.
    fn close(&mut self, anyway: bool) {
        if !anyway && !self.minutes.is_over() {
            return;
        }
        let minute = self.minutes.close((self.counted)());
        self.links_due = !self.links.is_empty();
        if self
            .follower
            .recorder
            .soak()
            .is_some_and(|soak| soak.minutes.len() % RECORDED_EVERY == 0)
        {
            self.record_links();
        }
        self.follower.take(Event::Minute {
            minute,
            events: self.minutes.take_events(),
            ran: self.minutes.ran,
            lost: self.minutes.lost,
        });
        let Some(soak) = self.follower.recorder.soak() else {
            return;
        };
        self.line = report::soak_line(soak);
        if let Some(file) = &self.hours.textfile {
            let failure = file.write(&soak_series(soak)).err();
            let failure = failure.map(|failure| failure.sentence);
            // One remark for all minutes that fail alike.
            if let Some(sentence) = failure.as_ref().filter(|_| failure != self.not_written) {
                self.follower.progress.aside(|| remark(sentence));
            }
            self.not_written = failure;
        }
    }

    /// Writes the outcomes of single links. One for each minute would be most of a day's journal.
    fn record_links(&mut self) {
        for (id, mut outcome) in std::mem::take(&mut self.links_seen) {
            outcome.sum_up();
            self.follower.take(Event::Outcome { id, outcome });
        }
    }

    fn end(mut self, ended: SoakEnd) {
        if let Some(watch) = &mut self.watch {
            for gpu in watch.stop() {
                let what =
                    format!("NVML did not answer for GPU {gpu}; its later readings are missing");
                self.minutes.problem(&what);
            }
        }
        self.drain();
        self.close(true);
        self.record_links();
        self.follower.take(Event::SoakEnded { ended, events: self.minutes.take_events() });
    }
}

impl Listener for Soaking<'_> {
    fn begins(&mut self, _round: &Round, _ended: usize) {}

    fn ends(&mut self, id: u32, outcome: &Outcome) {
        if let Some(of_check) = id.checked_sub(LINKS_FROM) {
            if matches!(outcome, Outcome::Lost { .. }) {
                // It would cost its deadline each minute.
                self.links.retain(|round| round.id != id);
            }
            match self.links_seen.entry(of_check) {
                Entry::Occupied(known) => known.into_mut().add(outcome.clone()),
                Entry::Vacant(none) => drop(none.insert(outcome.clone())),
            }
            return;
        }
        let Some(round) = self.rounds.iter().find(|round| round.id == id) else {
            return;
        };
        for (flow, bytes) in self.minutes.ended(round, outcome) {
            (self.carried)(flow, bytes);
        }
        if matches!(outcome, Outcome::Failed { .. } | Outcome::Lost { .. }) {
            *self.failures.entry(id).or_default() += 1;
        } else {
            self.failures.remove(&id);
        }
        self.drain();
        self.close(false);
        self.show();
    }

    fn broke_off(&mut self, broken: &BrokenOff) {
        self.minutes.broke_off(broken);
    }

    fn clock(&mut self, now: Duration) {
        self.minutes.clock(now);
        self.watch.iter_mut().for_each(|watch| watch.follow(now));
    }

    fn problem(&mut self, problem: &str) {
        self.minutes.problem(problem);
    }
}

/// Returns a round of the check under a number that no round of the soak has.
fn numbered_apart(round: &Round) -> Round {
    Round { id: LINKS_FROM + round.id, slot: LINKS_FROM + round.slot, ..round.clone() }
}

/// Returns the seconds that a round takes.
fn seconds_of(round: &Round) -> f64 {
    match round.task.action {
        Action::Soak(Soak { millis, .. }) => f64::from(millis) / 1e3,
        _ => 0.0,
    }
}
