//! `check`: facts, probes, findings, verdict.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::output::{self, Files};
use super::progress::Progress;
use super::{Judging, Observed, select, snapshot, tell, timestamp};
use crate::cli::{CheckArgs, Cli};
use crate::diagnose::Ending;
use crate::discover::Depth;
use crate::hardware::{DRIVER_START_LIMIT, Machine, Telemetry};
use crate::journal::{self, Entry, Header, Journal, place};
use crate::measure::assemble::assemble;
use crate::measure::watch::{self, Watch};
use crate::measure::{Outcome, Selection};
use crate::model::measurement::{CudaDevice, DriverFacts, Measurements, Status};
use crate::model::report::{Timing, Tool};
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;
use crate::plan::profile::Profile;
use crate::plan::{self, Group};
use crate::topology;
use crate::worker::Worker;
use crate::worker::start::{self, Launch, Ready, StartError};
use crate::worker::supervisor::{self, Listener, Results};

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, machine: &Machine, args: &CheckArgs) -> Result<u8, String> {
    let started = Instant::now();
    let profile = Profile::load(args.profile)?;
    let groups = groups(args, &profile)?;
    let files = Files::of_report(&args.out)?;
    let judging = Judging::with(cli, &args.out)?;
    let stop = stop_flag(cli.exit_contract.code(Ending::Interrupted))?;
    let started_at = timestamp();
    let journal = journal(args, machine, &started_at)?;
    // The driver starts while the facts are read.
    let start_limit = cli.driver_deadline.unwrap_or(DRIVER_START_LIMIT);
    let worker = Worker::spawn(machine, start_limit);
    let progress = Progress::starting();
    let (snapshot, telemetry) = snapshot(machine, Depth::Everything, cli.driver_deadline);
    let snapshot = match select::select(snapshot, &cli.gpus) {
        Ok(snapshot) => snapshot,
        Err(sentence) => {
            progress.clear();
            journal.remove();
            return Err(sentence);
        }
    };
    let discover = started.elapsed().as_secs_f64();

    let mut run = Run {
        args,
        profile,
        groups,
        machine,
        start_limit,
        snapshot,
        telemetry,
        stop,
        follower: Follower { progress, journal },
        timing: Timing::default(),
        idle: None,
    };
    let (measurements, topology) = run.measure(worker, started);
    run.follower.progress.clear();
    // It is ended once the report is out.
    let _idle = run.idle.take();

    let Run { snapshot, timing, follower: Follower { journal, .. }, .. } = run;
    let timing = Timing { discover, ..timing };
    let (machine, measurements) = (machine.name().to_owned(), Some(measurements));
    let observed = Observed { started, started_at, machine, snapshot, topology, measurements, timing };
    let report = observed.conclude(&judging);
    let code = output::publish(&report, args.out.format, &output::style_of(cli, &args.out), &files);
    // Nothing is lost with what could not be written.
    code.inspect(|_| journal.remove()).map_err(|sentence| match journal.path() {
        Some(path) => format!("{sentence}. What was measured is kept: peerscope recover {}", path.display()),
        None => sentence,
    })
}

/// Begins the journal of this run, and tells of one that an earlier run has left.
///
/// # Errors
///
/// The file that was chosen for it is there already.
fn journal(args: &CheckArgs, machine: &Machine, started_at: &str) -> Result<Journal, String> {
    if args.no_journal {
        return Ok(Journal::none());
    }
    let header = Header {
        schema: journal::SCHEMA.into(),
        tool: Tool::this(),
        started_at: started_at.to_owned(),
        machine: machine.name().to_owned(),
        profile: args.profile.as_str().into(),
        pid: std::process::id(),
        args: std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect(),
    };
    if let Some(path) = &args.journal {
        return Journal::begin_at(path, &header);
    }
    let folders = place::folders();
    if let Some(left) = place::prune(place::left_over(&folders)).first() {
        let started_at = &left.header.started_at;
        tell(&format!(
            "the run that began {started_at} was cut off: 'peerscope recover -o FILE.json' makes a report of its \
             journal, {}",
            left.path.display()
        ));
    }
    Ok(Journal::begin(&folders, &header))
}

/// Shows how far the run is, and writes it down.
struct Follower {
    progress: Progress,
    journal: Journal,
}

impl Follower {
    fn write(&mut self, entry: &Entry<'_>) {
        self.journal.write(entry);
        self.tell_failure();
    }

    fn tell_failure(&mut self) {
        if let Some(why) = self.journal.failure() {
            self.progress.aside(|| {
                tell(&format!(
                    "the journal cannot be written ({why}): if this run is killed, what it measured is lost; choose \
                     another place with --journal, or none with --no-journal"
                ));
            });
        }
    }
}

impl Listener for Follower {
    fn begins(&mut self, round: &plan::Round, ended: usize) {
        self.progress.round(round, ended);
    }

    fn ends(&mut self, id: u32, outcome: &Outcome) {
        self.write(&Entry::Outcome { at: self.journal.now(), id, outcome: Cow::Borrowed(outcome) });
    }

    fn problem(&mut self, problem: &str) {
        self.write(&Entry::Problem { problem: problem.into() });
    }
}

/// Everything that measuring needs and leaves behind.
struct Run<'a> {
    args: &'a CheckArgs,
    profile: Profile,
    groups: BTreeSet<Group>,
    machine: &'a Machine,
    start_limit: Duration,
    snapshot: Snapshot,
    telemetry: Option<Arc<dyn Telemetry>>,
    stop: Arc<AtomicBool>,
    follower: Follower,
    timing: Timing,
    idle: Option<Worker>,
}

impl Run<'_> {
    fn measure(&mut self, worker: Result<Worker, String>, started: Instant) -> (Measurements, Topology) {
        self.follower.tell_failure();
        let at = self.follower.journal.now();
        self.follower.write(&Entry::Facts { at, snapshot: Cow::Borrowed(&self.snapshot) });
        let topology = topology::build(&self.snapshot);
        let mut measurements = Measurements { profile: self.args.profile.as_str().into(), ..Measurements::default() };
        let mut launch = Launch {
            machine: self.machine.clone(),
            selections: selections(&self.snapshot),
            memory_limit: self.args.memory,
            start_limit: self.start_limit,
        };
        if launch.selections.is_empty() {
            // The snapshot says why there is no GPU; the driver would only say so again.
            let failure = self.snapshot.problems.first().cloned();
            let devices = with_unidentified(Vec::new(), &self.snapshot);
            measurements.driver = DriverFacts { failure, devices, ..DriverFacts::default() };
            self.journal_driver(&measurements.driver, 0.0);
            return (measurements, topology);
        }
        let mut spawn = || Worker::spawn(self.machine, self.start_limit);
        let opened = start::start(worker, &mut launch, &self.stop, &mut spawn);
        self.timing.driver_start = started.elapsed().as_secs_f64();
        let Ready { worker, facts, floor_seconds: floor, problems: while_starting, .. } = match opened {
            Ok(ready) => ready,
            Err(StartError::Failed(why) | StartError::Late(why)) => {
                measurements.driver = DriverFacts { failure: Some(why), ..DriverFacts::default() };
                self.journal_driver(&measurements.driver, 0.0);
                return (measurements, topology);
            }
            Err(StartError::Interrupted) => {
                measurements.interrupted = true;
                return (measurements, topology);
            }
        };
        self.timing.driver_floor = floor;
        let facts = DriverFacts {
            devices: with_unidentified(facts.devices, &self.snapshot),
            start_seconds: Some(floor),
            ..facts
        };
        self.journal_driver(&facts, floor);
        while_starting.iter().for_each(|problem| self.follower.problem(problem));
        let topology = topology::with_cuda(topology, &facts);
        let gpus: Vec<u32> = self.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let rounds = plan::rounds(&plan::Request {
            gpus: &gpus,
            driver: &facts,
            topology: &topology,
            profile: &self.profile,
            groups: &self.groups,
            overlap_bytes: self.args.overlap_bytes,
            deadline: self.args.deadline,
        });

        let at = self.follower.journal.now();
        self.follower.write(&Entry::Plan { at, rounds: Cow::Borrowed(&rounds) });
        let measuring = Instant::now();
        let mut outcomes = HashMap::new();
        let mut runnable = Vec::new();
        for round in &rounds {
            match plan::obstacle(round, &facts) {
                Some(reason) => {
                    let outcome = Outcome::Lost { status: Status::Skipped, reason };
                    self.follower.ends(round.id, &outcome);
                    outcomes.insert(round.id, outcome);
                }
                None => runnable.push(round.clone()),
            }
        }
        // Without a copy, a link is not under load.
        let watched = self.telemetry.as_ref().filter(|_| !runnable.is_empty());
        let watch = watched.map(|telemetry| Watch::start(telemetry, &gpus));
        self.follower.progress.measuring(runnable.len());
        let results = supervisor::run(worker, &launch, &runnable, &self.stop, &mut self.follower);
        self.timing.measure = measuring.elapsed().as_secs_f64();
        let Results { outcomes: run, problems, interrupted, idle } = results;
        outcomes.extend(run);
        self.idle = idle;
        let assembled = assemble(&rounds, &outcomes, &topology);
        let measured = Measurements {
            driver: facts,
            peer: assembled.peer,
            overlap: assembled.overlap,
            latency: assembled.latency,
            links: watch.map(|watch| watch.finish(&self.snapshot.gpus)).unwrap_or_default(),
            aer_added: watched.map(|telemetry| watch::aer_added(telemetry, &self.snapshot.pci)).unwrap_or_default(),
            problems: while_starting.into_iter().chain(problems).collect(),
            left_out: plan::left_out(&gpus, &self.groups).into_iter().collect(),
            interrupted,
            ..measurements
        };
        (measured, topology)
    }

    fn journal_driver(&mut self, facts: &DriverFacts, floor_seconds: f64) {
        let at = self.follower.journal.now();
        self.follower.write(&Entry::Driver { at, floor_seconds, facts: Cow::Borrowed(facts) });
    }
}

/// The probe groups that were asked for.
///
/// # Errors
///
/// The profile has nothing for what was asked for by name.
fn groups(args: &CheckArgs, profile: &Profile) -> Result<BTreeSet<Group>, String> {
    let name = args.profile.as_str();
    if let Some(missing) = args.only.iter().find(|&&group| !profile.has(group)) {
        let group = missing.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        return Err(format!("--only {group}: profile {name} does not measure that; choose --profile standard"));
    }
    let only = |group: &Group| args.only.is_empty() || args.only.contains(group);
    let groups: BTreeSet<_> = Group::ALL.into_iter().filter(only).filter(|group| !args.skip.contains(group)).collect();
    if args.overlap_bytes.is_some() && !(groups.contains(&Group::Overlap) && profile.has(Group::Overlap)) {
        return Err(format!("--overlap-bytes: no overlap is measured with profile {name} and these probe groups"));
    }
    Ok(groups)
}

/// The GPUs that the worker is to open: those that could be identified.
fn selections(snapshot: &Snapshot) -> Vec<Selection> {
    let identified = snapshot.gpus.iter().map(|gpu| Selection {
        index: gpu.index,
        uuid: gpu.uuid.known().cloned(),
        pci: gpu.pci.get(),
    });
    identified.filter(|selection| selection.uuid.is_some() || selection.pci.is_some()).collect()
}

/// The devices that CUDA was asked for, and those that could not even be asked for.
fn with_unidentified(mut devices: Vec<CudaDevice>, snapshot: &Snapshot) -> Vec<CudaDevice> {
    for gpu in &snapshot.gpus {
        if devices.iter().all(|device| device.index != gpu.index) {
            let why = gpu.uuid.unknown().map(ToString::to_string).unwrap_or_default();
            let failure = Some(format!("it could not be identified ({why})"));
            devices.push(CudaDevice { index: gpu.index, ordinal: None, failure, budget_bytes: None });
        }
    }
    devices.sort_by_key(|device| device.index);
    devices
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set; the second time they end the program with `code`.
fn stop_flag(code: u8) -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(code));
        }
    })
    .map_err(|error| format!("cannot listen for Ctrl-C: {error}"))?;
    Ok(stop)
}
