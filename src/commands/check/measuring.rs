//! The measurements of a check: starts driver and facts, plans, runs the rounds, and records everything.

mod again;
mod driver;
mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::devices::Facts;
use super::super::follower::Follower;
use super::super::progress::Progress;
use super::super::{Failure, release, select};
use super::Began;
use super::hours::Hours;
use super::scope::Scope;
use crate::cli::{CheckArgs, Cli};
use hardware::{DRIVER_START_LIMIT, HardwareError, Machine};
use model::background::{LeftAlone, Moment};
use model::choice::Choice;
use model::snapshot::{SlowFact, Snapshot};
use probes::Group;
use probes::watch::background::Quiet;
use run::discover::{Late, LateFacts};
use run::recording::{Event, Journal, Recorded, Recorder};
use run::worker::{Listener, Worker};

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
    /// Workers that have ended their rounds of two processes.
    of_two: Vec<Worker>,
}

impl<'a> Run<'a> {
    /// Reads the facts while the driver starts. If only some GPUs are selected, the driver starts once it is known which.
    ///
    /// # Errors
    ///
    /// `--gpus` names a GPU that does not exist, or there is no last report. The journal is removed then.
    pub(super) fn begin(
        cli: &Cli,
        machine: &'a Arc<dyn Machine>,
        args: &'a CheckArgs,
        scope: &'a Scope,
        began: &Began<'_>,
        journal: Journal,
        stop: Arc<AtomicBool>,
    ) -> Result<(Self, Result<Worker, HardwareError>), Failure> {
        let start_limit = cli.driver_deadline.unwrap_or(DRIVER_START_LIMIT);
        let progress = Progress::starting();
        let spawn = |mask: Option<&str>| Worker::spawn(machine.as_ref(), start_limit, mask, None);
        let early = cli.gpus.is_empty().then(|| spawn(None));
        let facts = Facts::open(machine, cli.driver_deadline);
        let worker = early.unwrap_or_else(|| spawn(facts.mask(&cli.gpus).as_deref()));
        let snapshot = facts.read(SlowFact::BESIDE_THE_START);
        let there = snapshot.gpus.len();
        let quiet = LeftAlone::all(&snapshot);
        let selected = select::select(snapshot, &cli.gpus)
            .and_then(|selected| began.judging.find_last(&selected.0).map(|()| selected));
        let (snapshot, request) = match selected {
            Ok(selected) => selected,
            Err(sentence) => {
                progress.clear();
                journal.remove();
                return Err(sentence.into());
            }
        };
        let discover = began.clock.elapsed().as_secs_f64();
        let recorder = Recorder::new(journal, args.profile.name(), began.clock);
        let follower =
            Follower { progress, recorder, watch: None, counters: None, clock: Duration::ZERO };
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
            of_two: Vec::new(),
        };
        let request = scope.requested(request, args);
        run.follower.take(Event::Asked { request });
        Ok((run, worker))
    }

    /// Records a problem.
    pub(super) fn problem(&mut self, problem: &str) {
        self.follower.problem(problem);
    }

    /// Returns true if a GPU admits one process at a time.
    pub(super) fn is_exclusive(&self) -> bool {
        release::is_exclusive(&self.snapshot)
    }

    /// Ends the recording. Returns what the run recorded, and its journal.
    pub(super) fn finish(self) -> (Recorded, Journal) {
        let Follower { progress, recorder, .. } = self.follower;
        progress.clear();
        let (mut recorded, journal) = recorder.finish();
        recorded.timing.discover = self.discover;
        (recorded, journal)
    }

    /// Measures what was requested, and records it. Returns the last workers, which were killed: they die while the run is
    /// judged and the report is written.
    pub(super) fn measure(
        &mut self,
        worker: Result<Worker, HardwareError>,
        soak: Option<&Hours>,
    ) -> Vec<Worker> {
        let last = self.take_measurements(worker, soak);
        let mut last: Vec<Worker> = last.into_iter().chain(self.of_two.drain(..)).collect();
        last.iter_mut().for_each(Worker::kill);
        last
    }

    fn take_measurements(
        &mut self,
        worker: Result<Worker, HardwareError>,
        soak: Option<&Hours>,
    ) -> Option<Worker> {
        let mut snapshot = self.snapshot.clone();
        self.follower.take(Event::Facts { snapshot: snapshot.clone() });
        let quiet = self.leave_alone(Moment::Start);
        let Some((worker, launch, facts)) = self.open(worker, &snapshot) else {
            self.take_late(self.facts.read_late(&snapshot), &mut snapshot);
            return None;
        };
        self.others(quiet);
        let mut late = self.facts.read_late(&snapshot);
        if self.counts_at_once() {
            late.iter_mut().for_each(|late| late.wait_for_links(&mut snapshot));
        }
        let idle = self.run_rounds(worker, &launch, &facts, &snapshot);
        self.take_late(late, &mut snapshot);
        if let Some(watch) = self.follower.watch.take() {
            let quiet = self.leave_alone(Moment::End);
            let (readings, counted) = watch.finish(&snapshot);
            self.follower.take_readings(readings);
            self.others(quiet);
            self.follower.take(Event::Counted { counted });
        }
        match (idle, soak) {
            (idle, Some(hours)) if !self.stop.load(Ordering::Relaxed) => {
                // The hours are without them.
                self.of_two.clear();
                self.soak(idle, &launch, &facts, &snapshot, hours)
            }
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
            // From here on only the recording needs the pairs.
            LateFacts { links: late.links.clone(), ..LateFacts::default() }.put_into(snapshot);
            self.follower.take(Event::Late(late));
        }
    }

    /// Begins to watch what other programs do with the GPUs.
    fn leave_alone(&self, moment: Moment) -> Option<Quiet> {
        self.facts.telemetry().map(|telemetry| Quiet::begin(telemetry, &self.quiet, moment))
    }

    /// Records what other programs did with the GPUs.
    fn others(&mut self, quiet: Option<Quiet>) {
        if let Some(quiet) = quiet {
            let seen = quiet.end().into_iter();
            let seen = seen.map(|seen| seen.within(&self.snapshot)).collect();
            self.follower.take(Event::Background { seen });
        }
    }
}
