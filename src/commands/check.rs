//! `check`: facts, probes, findings, verdict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::ValueEnum;

use super::output::{self, Files};
use super::progress::Progress;
use super::{Judging, Observed, select, snapshot, timestamp};
use crate::cli::{CheckArgs, Cli};
use crate::discover::Depth;
use crate::hardware::{Machine, Telemetry};
use crate::measure::assemble::assemble;
use crate::measure::watch::Watch;
use crate::measure::{Outcome, Selection};
use crate::model::measurement::{CudaDevice, DriverFacts, Measurements, Status};
use crate::model::report::Timing;
use crate::model::snapshot::Snapshot;
use crate::plan::profile::Profile;
use crate::plan::{self, Group};
use crate::report::Format;
use crate::topology;
use crate::worker::supervisor::{self, Results, Setup, StartError, Worker};

/// Exit code after Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, machine: &Machine, args: &CheckArgs) -> Result<u8, String> {
    let started = Instant::now();
    let profile = Profile::load(args.profile)?;
    let groups = groups(args, &profile)?;
    let files = Files::prepare(&args.out.output, &[Format::Text, Format::Json])?;
    let judging = Judging::with(cli, &args.out)?;
    let stop = stop_flag()?;
    let started_at = timestamp();
    // The driver starts while the facts are read.
    let worker = Worker::spawn(machine);
    let progress = Progress::starting();
    let (snapshot, telemetry) = snapshot(machine, Depth::Everything);
    let snapshot = select::select(snapshot, &cli.gpus).inspect_err(|_| progress.clear())?;
    let discover = started.elapsed().as_secs_f64();

    let mut run = Run {
        args,
        profile,
        groups,
        machine,
        snapshot,
        telemetry,
        stop,
        progress,
        timing: Timing::default(),
        idle: None,
    };
    let (measurements, topology) = run.measure(worker, started)?;
    run.progress.clear();
    // It is ended once the report is out.
    let _idle = run.idle.take();

    let Run { snapshot, timing, .. } = run;
    let timing = Timing { discover, ..timing };
    let (machine, measurements) = (machine.name().to_owned(), Some(measurements));
    let observed = Observed { started, started_at, machine, snapshot, topology, measurements, timing };
    let report = observed.conclude(&judging);
    output::publish(&report, args.out.format.into(), &output::style(cli.color, args.out.verbose), &files)
}

/// Everything that measuring needs and leaves behind.
struct Run<'a> {
    args: &'a CheckArgs,
    profile: Profile,
    groups: BTreeSet<Group>,
    machine: &'a Machine,
    snapshot: Snapshot,
    telemetry: Option<Arc<dyn Telemetry>>,
    stop: Arc<AtomicBool>,
    progress: Progress,
    timing: Timing,
    idle: Option<Worker>,
}

impl Run<'_> {
    fn measure(
        &mut self,
        worker: Result<Worker, String>,
        started: Instant,
    ) -> Result<(Measurements, crate::model::topology::Topology), String> {
        let topology = topology::build(&self.snapshot);
        let mut measurements = Measurements { profile: self.args.profile.as_str().into(), ..Measurements::default() };
        let setup = Setup {
            machine: self.machine.clone(),
            selections: selections(&self.snapshot),
            memory_limit: self.args.memory,
        };
        if setup.selections.is_empty() {
            // The snapshot says why there is no GPU; the driver would only say so again.
            let failure = self.snapshot.problems.first().cloned();
            let devices = with_unidentified(Vec::new(), &self.snapshot);
            measurements.driver = DriverFacts { failure, devices, ..DriverFacts::default() };
            return Ok((measurements, topology));
        }
        let opened = worker
            .map_err(StartError::Failed)
            .and_then(|mut worker| worker.open(&setup, &self.stop).map(|ready| (worker, ready)));
        self.timing.driver_start = started.elapsed().as_secs_f64();
        let (worker, (facts, floor)) = match opened {
            Ok(opened) => opened,
            Err(StartError::Failed(why)) => {
                measurements.driver = DriverFacts { failure: Some(why), ..DriverFacts::default() };
                return Ok((measurements, topology));
            }
            Err(StartError::Interrupted) => {
                measurements.interrupted = true;
                return Ok((measurements, topology));
            }
        };
        self.timing.driver_floor = floor;
        let facts = DriverFacts { devices: with_unidentified(facts.devices, &self.snapshot), ..facts };
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

        let measuring = Instant::now();
        let mut outcomes = HashMap::new();
        let mut runnable = Vec::new();
        for round in &rounds {
            match plan::obstacle(round, &facts) {
                Some(reason) => drop(outcomes.insert(round.id, Outcome::Lost { status: Status::Skipped, reason })),
                None => runnable.push(round.clone()),
            }
        }
        // Without a copy, a link is not under load.
        let watched = self.telemetry.as_ref().filter(|_| !runnable.is_empty());
        let watch = watched.map(|telemetry| Watch::start(telemetry, &gpus));
        self.progress.measuring(runnable.len());
        let mut progress = |round: &plan::Round, ended| self.progress.round(round, ended);
        let results = supervisor::run(worker, &setup, &runnable, &self.stop, &mut progress);
        self.timing.measure = measuring.elapsed().as_secs_f64();
        let Results { outcomes: run, problems, interrupted, idle } = results;
        outcomes.extend(run);
        self.idle = idle;
        let assembled = assemble(&rounds, &outcomes, &topology);
        Ok((
            Measurements {
                driver: facts,
                peer: assembled.peer,
                overlap: assembled.overlap,
                latency: assembled.latency,
                links: watch.map(Watch::finish).unwrap_or_default(),
                problems,
                interrupted,
                ..measurements
            },
            topology,
        ))
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

/// A flag that Ctrl-C, SIGTERM and SIGHUP set; the second time they end the program.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
    })
    .map_err(|error| format!("cannot listen for Ctrl-C: {error}"))?;
    Ok(stop)
}
