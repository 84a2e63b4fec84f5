//! The measurements of a check: starts driver and facts, plans, runs the rounds, and records everything.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::devices::{Facts, selections, with_unidentified};
use super::super::follower::Follower;
use super::super::progress::Progress;
use super::super::{Failure, Judging, Observed, release, select};
use super::Began;
use super::hours::Hours;
use super::rolling::Budget;
use super::scope::Scope;
use crate::cli::{CheckArgs, Cli};
use diagnose::{Evidence, Settings};
use discover::{Late, LateFacts};
use hardware::{DRIVER_START_LIMIT, ErrorKind, HardwareError, Machine};
use measure::Outcome;
use measure::background::Quiet;
use measure::counters::Counters;
use measure::mark::Marker;
use measure::watch::Watch;
use model::background::{LeftAlone, Moment};
use model::finding::Finding;
use model::flow::Flow;
use model::measurement::{DriverFacts, Hindrance, SecondLook, Status};
use model::snapshot::{SlowFact, Snapshot};
use plan::{self, Group, Round};
use recording::{Event, Journal, Recorded, Recorder};
use worker::share;
use worker::start::{self, Launch, Ready, StartError};
use worker::supervisor::{self, Listener, Results};
use worker::{Worker, environment};

/// Part of the rounds, as a divisor, during which the two processes of the last ones start: chosen. The driver takes about
/// half a second to start, and `full` some seconds.
const LAST_PART: usize = 8;

/// A check whose facts are read and whose driver starts.
pub(super) struct Run<'a> {
    pub(super) args: &'a CheckArgs,
    pub(super) scope: &'a Scope,
    machine: &'a Arc<dyn Machine>,
    start_limit: Duration,
    pub(super) facts: Facts,
    /// The facts of the selected GPUs.
    snapshot: Snapshot,
    /// Number of GPUs of the machine, selected or not.
    there: usize,
    /// Every GPU of the machine: traffic of those that are not selected may pass the same links.
    quiet: Vec<LeftAlone>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) follower: Follower,
    /// Seconds that reading the facts took.
    discover: f64,
    /// The budget of this run, if it has one.
    pub budget: Option<Budget>,
    judged: Option<(&'a Judging, &'a Began)>,
}

impl<'a> Run<'a> {
    /// Reads the facts while the driver starts. If only some GPUs are selected, the driver starts once it is known which.
    ///
    /// # Errors
    ///
    /// `--gpus` names a GPU that does not exist. The journal is removed then.
    pub(super) fn begin(
        cli: &Cli,
        machine: &'a Arc<dyn Machine>,
        args: &'a CheckArgs,
        scope: &'a Scope,
        began: &Began,
        journal: Journal,
        stop: Arc<AtomicBool>,
    ) -> Result<(Self, Result<Worker, HardwareError>), Failure> {
        let start_limit = cli.driver_deadline.unwrap_or(DRIVER_START_LIMIT);
        let progress = Progress::starting();
        let spawn = |mask: Option<&str>| Worker::spawn(machine.as_ref(), start_limit, mask);
        let early = cli.gpus.is_empty().then(|| spawn(None));
        let facts = Facts::open(machine, cli.driver_deadline);
        let worker = early.unwrap_or_else(|| spawn(facts.mask(&cli.gpus).as_deref()));
        let snapshot = facts.read(SlowFact::BESIDE_THE_START);
        let there = snapshot.gpus.len();
        let quiet = LeftAlone::all(&snapshot);
        let selected = select::select(snapshot, &cli.gpus).and_then(|(snapshot, request)| {
            // A machine without GPUs has another reason to give.
            if !args.flows.is_empty() && !snapshot.gpus.is_empty() {
                plan::check_given(&args.flows, &snapshot)?;
            }
            Ok((snapshot, request))
        });
        let (snapshot, request) = match selected {
            Ok(selected) => selected,
            Err(sentence) => {
                progress.clear();
                journal.remove();
                return Err(sentence.into());
            }
        };
        let discover = began.clock.elapsed().as_secs_f64();
        let recorder = Recorder::new(journal, args.profile.as_str(), began.clock);
        let follower = Follower {
            progress,
            recorder,
            watch: None,
            counters: None,
            marker: None,
            clock: Duration::ZERO,
        };
        let mut run = Self {
            args,
            scope,
            machine,
            start_limit,
            facts,
            snapshot,
            there,
            quiet,
            stop,
            follower,
            discover,
            budget: None,
            judged: None,
        };
        let request = scope.requested(request, args);
        run.follower.take(Event::Asked { request });
        Ok((run, worker))
    }

    /// Records a problem.
    pub(super) fn problem(&mut self, problem: &str) {
        self.follower.problem(problem);
    }

    /// Limits the run to a budget, if there is one. Findings within it are judged like those of the whole run.
    pub(super) fn within(
        &mut self,
        budget: Option<Budget>,
        judging: &'a Judging,
        began: &'a Began,
    ) {
        self.budget = budget;
        self.judged = Some((judging, began));
    }

    /// Returns true if a GPU admits one process at a time.
    pub(super) fn is_exclusive(&self) -> bool {
        release::is_exclusive(&self.snapshot)
    }

    /// Ends the recording. Returns what the run recorded, and its journal.
    pub(super) fn finish(self) -> (Recorded, Journal) {
        let Follower {
            progress, recorder, ..
        } = self.follower;
        progress.clear();
        let (mut recorded, journal) = recorder.finish();
        recorded.timing.discover = self.discover;
        (recorded, journal)
    }

    /// Measures what was requested, and records it. Returns the last worker, which was killed: it dies while the run is
    /// judged and the report is written.
    pub(super) fn measure(
        &mut self,
        worker: Result<Worker, HardwareError>,
        soak: Option<&Hours>,
    ) -> Option<Worker> {
        let mut idle = self.take_measurements(worker, soak);
        idle.iter_mut().for_each(Worker::kill);
        idle
    }

    fn take_measurements(
        &mut self,
        worker: Result<Worker, HardwareError>,
        soak: Option<&Hours>,
    ) -> Option<Worker> {
        let mut snapshot = self.snapshot.clone();
        self.follower.take(Event::Facts {
            snapshot: snapshot.clone(),
        });
        let quiet = self.leave_alone(&snapshot, Moment::Start);
        let Some((worker, launch, facts)) = self.open(worker, &snapshot) else {
            self.take_late(self.facts.read_late(&snapshot), &mut snapshot);
            return None;
        };
        self.others(quiet);
        let mut late = self.facts.read_late(&snapshot);
        if self.counts_at_once() {
            late.iter_mut()
                .for_each(|late| late.wait_for_links(&mut snapshot));
        }
        let idle = self.run_rounds(worker, &launch, &facts, &snapshot);
        self.take_late(late, &mut snapshot);
        if let Some(watch) = self.follower.watch.take() {
            let quiet = self.leave_alone(&snapshot, Moment::End);
            let (readings, counted) = watch.finish(&snapshot, self.follower.marker.take());
            self.follower.take_readings(readings);
            self.others(quiet);
            self.follower.take(Event::Counted { counted });
        }
        match (idle, soak) {
            (Some(worker), Some(hours)) => self.soak(worker, &launch, &facts, &snapshot, hours),
            (idle, _) => idle,
        }
    }

    /// Returns true if the error counters of NVLinks must be read before anything is copied, because the first copies are
    /// judged by them. Otherwise they are read beside the first copies: on 4 x H200 they take NVML 72 ms, and a link that
    /// has errors has them again after that.
    fn counts_at_once(&self) -> bool {
        self.scope.groups.iter().eq([&Group::Load])
    }

    /// Records the facts read while copies ran, and puts them into the snapshot.
    fn take_late(&mut self, late: Option<Late>, snapshot: &mut Snapshot) {
        if let Some(late) = late.map(|late| late.end(snapshot)) {
            let LateFacts {
                pairs,
                links,
                problems,
            } = late;
            // From here on only the recording needs the pairs.
            LateFacts {
                pairs: Vec::new(),
                links: links.clone(),
                problems: Vec::new(),
            }
            .put_into(snapshot);
            self.follower.take(Event::Late {
                pairs,
                links,
                problems,
            });
        }
    }

    /// Begins to watch what other programs do with the GPUs.
    fn leave_alone(&self, snapshot: &Snapshot, moment: Moment) -> Option<Quiet> {
        let gpus: Vec<_> = self.quiet.iter().map(|gpu| gpu.within(snapshot)).collect();
        self.facts
            .telemetry()
            .map(|telemetry| Quiet::begin(telemetry, &gpus, moment))
    }

    /// Records what other programs did with the GPUs.
    fn others(&mut self, quiet: Option<Quiet>) {
        if let Some(quiet) = quiet {
            self.follower.take(Event::Background { seen: quiet.end() });
        }
    }

    /// Waits for the driver. If it does not start, records that and returns none.
    fn open(
        &mut self,
        worker: Result<Worker, HardwareError>,
        snapshot: &Snapshot,
    ) -> Option<(Worker, Launch, DriverFacts)> {
        let mut launch = Launch {
            machine: Arc::clone(self.machine),
            selections: selections(snapshot),
            memory_limit: self.args.memory,
            start_limit: self.start_limit,
            there: self.there,
            unmasked: false,
        };
        if launch.selections.is_empty() {
            // The snapshot contains the reason for the missing GPUs; the driver would only repeat it.
            let failure = snapshot.problems.first().cloned();
            let devices = with_unidentified(Vec::new(), snapshot);
            let facts = DriverFacts {
                failure,
                devices,
                ..DriverFacts::default()
            };
            self.driver(0.0, facts);
            return None;
        }
        let opened = start::start(worker, &mut launch, &self.stop, &mut Launch::spawn);
        let Ready {
            worker,
            facts,
            floor_seconds,
            problems,
            ..
        } = match opened {
            Ok(ready) => ready,
            Err(StartError::Failed(HardwareError {
                message: why,
                code: failure_code,
                kind,
            })) => {
                let hindrance = (kind == ErrorKind::Hindered).then_some(Hindrance::ProcessLimit);
                let facts = DriverFacts {
                    failure: Some(why),
                    failure_code,
                    hindrance,
                    ..DriverFacts::default()
                };
                self.driver(0.0, facts);
                return None;
            }
            Err(StartError::Late(why)) => {
                let facts = DriverFacts {
                    failure: Some(why),
                    ..DriverFacts::default()
                };
                self.driver(0.0, facts);
                return None;
            }
            Err(StartError::Interrupted) => {
                self.driver(0.0, DriverFacts::default());
                self.follower.take(Event::Measured { interrupted: true });
                return None;
            }
        };
        let devices = with_unidentified(facts.devices, snapshot);
        let facts = DriverFacts {
            devices,
            start_seconds: Some(floor_seconds),
            ..facts
        };
        let facts = self.driver(floor_seconds, facts);
        problems
            .iter()
            .for_each(|problem| self.follower.problem(problem));
        Some((worker, launch, facts))
    }

    /// Records the facts that the driver reported, and the variables it was started without.
    fn driver(&mut self, floor_seconds: f64, facts: DriverFacts) -> DriverFacts {
        let facts = DriverFacts {
            environment_removed: environment::removed(self.machine.as_ref()),
            ..facts
        };
        self.follower.take(Event::Driver {
            floor_seconds,
            facts: facts.clone(),
        });
        facts
    }

    /// Plans the rounds, and runs those that can run. Returns the last worker.
    fn run_rounds(
        &mut self,
        worker: Worker,
        launch: &Launch,
        facts: &DriverFacts,
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let topology = topology::with_cuda(topology::build(snapshot), facts);
        let caches = snapshot.host.last_level_cache_bytes.get();
        let profile = self.scope.profile.clone().beyond_caches(caches, gpus.len());
        let request = plan::Request {
            gpus: &gpus,
            driver: facts,
            topology: &topology,
            profile: &profile,
            groups: &self.scope.groups,
            overlap_bytes: self.args.overlap_bytes,
            deadline: self.args.deadline,
            serial: self.args.serial,
        };
        let rounds = plan::rounds(&request);
        let rounds = if self.args.trace.is_some() {
            plan::follow(rounds, facts)
        } else {
            rounds
        };
        let rounds = self.within_budget(rounds, snapshot);
        let Scope { profile, groups } = self.scope;
        let left_out = plan::left_out(&gpus, groups)
            .into_iter()
            .chain(plan::gpus_left_out(&gpus, groups, profile))
            .chain(self.budget.as_ref().and_then(Budget::left_out))
            .collect();
        let thinned_out = plan::thinned_out(&request)
            .into_iter()
            .chain(plan::load_left_out(&request, &rounds))
            .collect();
        self.follower.take(Event::Plan {
            rounds: rounds.clone(),
            left_out,
            thinned_out,
        });
        let runnable = self.without_obstacles(&rounds, facts);
        // A link is under load only while something is copied.
        if let Some(telemetry) = self.facts.telemetry().filter(|_| !runnable.is_empty()) {
            self.follower.counters = Some(Counters::new(telemetry, snapshot, &runnable));
            self.follower.marker = Marker::new(telemetry, snapshot, &runnable);
            let watch = Watch::start(telemetry, &gpus);
            watch
                .unwatched()
                .into_iter()
                .for_each(|why| self.follower.take(Event::Limited { why }));
            self.follower.watch = Some(watch);
            self.follower.take(Event::Watching { gpus: gpus.clone() });
        }
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } = self.run_planned(worker, launch, &runnable);
        let idle = match idle {
            Some(worker) if !interrupted && self.budget.is_some() => {
                return self.confirm(worker, launch, &runnable);
            }
            Some(worker) if !interrupted => {
                return self.look_again(worker, launch, &request, &rounds, snapshot);
            }
            idle => idle,
        };
        self.follower.take(Event::Measured { interrupted });
        idle
    }

    /// Runs the rounds of one process, and then those of two. The two processes start while the last rounds of the one run,
    /// and open their GPUs only when these have ended.
    fn run_planned(&mut self, worker: Worker, launch: &Launch, rounds: &[Round]) -> Results {
        let of_two: Vec<Round> = rounds
            .iter()
            .filter(|round| round.is_shared())
            .cloned()
            .collect();
        if of_two.is_empty() {
            return supervisor::run(worker, launch, rounds, &self.stop, &mut self.follower);
        }
        let of_one: Vec<Round> = rounds
            .iter()
            .filter(|round| !round.is_shared())
            .cloned()
            .collect();
        let (first, last) = of_one.split_at(of_one.len() - of_one.len() / LAST_PART);
        let mut results = supervisor::run(worker, launch, first, &self.stop, &mut self.follower);
        let couples = match results.idle {
            Some(_) => share::begin(launch, &of_two),
            None => Vec::new(),
        };
        self.follower.progress.goes_on_after(first.len());
        if let Some(worker) = results.idle.take() {
            results = supervisor::run(worker, launch, last, &self.stop, &mut self.follower);
        } else {
            self.lose(last, results.interrupted);
        }
        if results.interrupted {
            drop(couples);
            self.lose(&of_two, true);
            return results;
        }
        self.follower.progress.goes_on_after(of_one.len());
        // What other processes copy is no traffic of this worker.
        let counters = self.follower.counters.take();
        let interrupted = share::run(couples, launch, &of_two, &self.stop, &mut self.follower);
        self.follower.counters = counters;
        self.follower.counters.iter_mut().for_each(Counters::lost);
        Results {
            interrupted,
            ..results
        }
    }

    /// Records rounds that were not run.
    fn lose(&mut self, rounds: &[Round], interrupted: bool) {
        let reason = if interrupted {
            "interrupted"
        } else {
            "no other worker could be started"
        };
        for round in rounds {
            let lost = Outcome::Lost {
                status: Status::Skipped,
                reason: reason.to_owned(),
            };
            self.follower.ends(round.id, &lost);
        }
    }

    /// Returns the rounds that fit into the budget.
    fn within_budget(&mut self, rounds: Vec<Round>, snapshot: &Snapshot) -> Vec<Round> {
        let spent = self.judged.map(|(_, began)| began.clock.elapsed());
        match (&mut self.budget, spent) {
            (Some(budget), Some(spent)) => budget.choose(rounds, snapshot, spent.as_secs_f64()),
            _ => rounds,
        }
    }

    /// Runs the rounds of parts with findings once more: the later outcome of a round counts. Returns the last worker.
    fn confirm(&mut self, worker: Worker, launch: &Launch, rounds: &[Round]) -> Option<Worker> {
        let of_facts = self.findings(false);
        if let Some(budget) = &mut self.budget {
            budget.known(of_facts);
        }
        let first = self.findings(true);
        let suspects = self
            .budget
            .as_ref()
            .map(|budget| budget.suspects(&first, rounds));
        let suspects = suspects.unwrap_or_default();
        if suspects.is_empty() {
            self.follower.take(Event::Measured { interrupted: false });
            return Some(worker);
        }
        self.follower.progress.measuring(suspects.len());
        let Results { interrupted, idle } = self.run_planned(worker, launch, &suspects);
        self.follower.take(Event::Measured { interrupted });
        let second = self.findings(true);
        if let Some(budget) = self.budget.as_mut().filter(|_| !interrupted) {
            budget.looked_again(&first, &second);
        }
        idle
    }

    /// Returns the findings so far, of facts and figures or of facts alone.
    fn findings(&self, with_figures: bool) -> Vec<Finding> {
        let Some((judging, began)) = self.judged else {
            return Vec::new();
        };
        let recorded = self.follower.recorder.so_far();
        let (at, machine) = (began.at.clone(), began.machine.clone());
        let observed = Observed::recorded(began.clock, at, machine, recorded);
        let measurements = observed.measurements.clone().filter(|_| with_figures);
        let observed = Observed {
            measurements,
            ..observed
        };
        observed.conclude(judging).findings
    }

    /// Measures what would tell apart the explanations of the figures so far, if these have several. Returns the last
    /// worker.
    fn look_again(
        &mut self,
        worker: Worker,
        launch: &Launch,
        request: &plan::Request<'_>,
        after: &[Round],
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let looks = self.second_looks(snapshot);
        let flows: Vec<&[Flow]> = looks.iter().map(|look| look.flows.as_slice()).collect();
        let rounds = plan::second_looks(request, &flows, after);
        let (looks, rounds): (Vec<SecondLook>, Vec<Round>) = looks
            .into_iter()
            .zip(rounds)
            .filter_map(|(look, round)| Some((look, round?)))
            .unzip();
        if rounds.is_empty() {
            self.follower.take(Event::Measured { interrupted: false });
            return Some(worker);
        }
        self.follower.take(Event::SecondLooks {
            looks,
            rounds: rounds.clone(),
        });
        let runnable = self.without_obstacles(&rounds, request.driver);
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } =
            supervisor::run(worker, launch, &runnable, &self.stop, &mut self.follower);
        self.follower.take(Event::Measured { interrupted });
        idle
    }

    /// Returns the copies that would tell explanations of the figures so far apart.
    fn second_looks(&self, snapshot: &Snapshot) -> Vec<SecondLook> {
        let Recorded {
            request,
            topology,
            measurements,
            ..
        } = self.follower.recorder.so_far();
        diagnose::second_looks(&Evidence {
            request: &request,
            read_from: None,
            snapshot,
            topology: &topology,
            measurements: Some(&measurements),
            bracket: None,
            measured_seconds: 0.0,
            settings: &Settings::default(),
            expectations: None,
            baseline: None,
            index: None,
            beliefs: None,
        })
    }

    /// Returns the rounds that can run, and records the others as skipped. Usually all can run, and then none is
    /// cloned.
    fn without_obstacles<'r>(
        &mut self,
        rounds: &'r [Round],
        facts: &DriverFacts,
    ) -> Cow<'r, [Round]> {
        let obstacle = |round: &Round| Some((round.id, plan::obstacle(round, facts)?));
        let obstacles: BTreeMap<u32, String> = rounds.iter().filter_map(obstacle).collect();
        if obstacles.is_empty() {
            return Cow::Borrowed(rounds);
        }
        let runnable = rounds
            .iter()
            .filter(|round| !obstacles.contains_key(&round.id))
            .cloned()
            .collect();
        for (id, reason) in obstacles {
            self.follower.ends(
                id,
                &Outcome::Lost {
                    status: Status::Skipped,
                    reason,
                },
            );
        }
        Cow::Owned(runnable)
    }
}
