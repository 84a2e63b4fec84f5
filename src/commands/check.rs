//! `check`: reads facts, runs probes, reports findings and a verdict.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::devices::{Facts, selections, with_unidentified};
use super::follower::Follower;
use super::output::{self, Files, NotWritten};
use super::progress::Progress;
use super::turn::{self, Turn};
use super::{Failure, Judging, Observed, keep, release, remark, select, timestamp, trace};
use crate::cli::{CheckArgs, Cli};
use diagnose::Ending;
use discover::{Late, LateFacts};
use hardware::{DRIVER_START_LIMIT, ErrorKind, HardwareError, Machine, limits};
use measure::Outcome;
use measure::background::Quiet;
use measure::counters::Counters;
use measure::mark::Marker;
use measure::watch::Watch;
use model::background::{LeftAlone, Moment};
use model::measurement::{DriverFacts, Hindrance, Status};
use model::report::{Report, Timing, Tool};
use model::request::Request;
use model::snapshot::{SlowFact, Snapshot};
use model::timeline::Timeline;
use plan::{self, Group, Profile, Round};
use recording::{self, Event, Header, Journal, Recorded, Recorder, place};
use worker::start::{self, Launch, Ready, StartError};
use worker::supervisor::{self, Listener, Results};
use worker::{Worker, environment};

/// Runs `check`.
///
/// # Errors
///
/// The failure to report on stderr.
pub fn run(cli: &Cli, machine: &Arc<dyn Machine>, args: &CheckArgs) -> Result<u8, Failure> {
    let profile = Profile::load(args.profile)?;
    let groups = groups(args, &profile)?;
    let stop = Arc::default();
    let files = Files::of_report(&args.out)?.until(&stop);
    let drawing = trace::prepare(args, &profile, &groups, &files)?;
    let judging = Judging::with(cli, &args.out)?;
    let interrupted = cli.exit_contract.code(Ending::Interrupted);
    // From here on no wait may ignore `stop`: the first signal does not end the program any more.
    stop_with(&stop, interrupted)?;
    let publish = |report: &Report, timelines: &[Timeline]| {
        output::publish_seen(
            report,
            timelines,
            args.out.format,
            &output::style_of(cli, &args.out),
            &files,
        )
    };
    let turn = turn::take(machine.as_ref(), args.wait, &stop);
    let (started, started_at) = (Instant::now(), timestamp());
    let (_lock, unlocked) = match turn {
        Turn::Ours(lock) => (Some(lock), None),
        Turn::Unknown(why) => (None, Some(why)),
        Turn::Theirs(..) | Turn::Interrupted => {
            let (recorded, machine) = (
                turn::nothing(args.profile.as_str(), turn),
                machine.name().to_owned(),
            );
            let report =
                Observed::recorded(started, started_at, machine, recorded).conclude(&judging);
            return publish(&report, &[])
                .code()
                .or_else(|failure| unwritten(failure, interrupted));
        }
    };
    let journal = journal(args, machine.as_ref(), &started_at, &stop)?;
    // Start the driver while the facts are read. If only some GPUs are wanted, wait until it is known which.
    let start_limit = cli.driver_deadline.unwrap_or(DRIVER_START_LIMIT);
    let progress = Progress::starting();
    let early = cli
        .gpus
        .is_empty()
        .then(|| Worker::spawn(machine.as_ref(), start_limit, None));
    let facts = Facts::open(machine, cli.driver_deadline);
    let masked = || {
        Worker::spawn(
            machine.as_ref(),
            start_limit,
            facts.mask(&cli.gpus).as_deref(),
        )
    };
    let worker = early.unwrap_or_else(masked);
    let snapshot = facts.read(SlowFact::BESIDE_THE_START);
    let there = snapshot.gpus.len();
    // Watch the GPUs that are left out too: their traffic may pass the same links.
    let quiet = LeftAlone::all(&snapshot);
    let (snapshot, request) = match select::select(snapshot, &cli.gpus) {
        Ok(selected) => selected,
        Err(sentence) => {
            progress.clear();
            journal.remove();
            return Err(sentence.into());
        }
    };
    let discover = started.elapsed().as_secs_f64();

    let mut follower = Follower {
        progress,
        recorder: Recorder::new(journal, args.profile.as_str(), started),
        watch: None,
        counters: None,
        marker: None,
    };
    unlocked
        .iter()
        .for_each(|problem| follower.problem(problem));
    let request = asked(request, args, &profile, &groups);
    let mut run = Run {
        args,
        profile,
        groups,
        machine,
        start_limit,
        facts,
        there,
        quiet,
        stop,
        follower,
    };
    run.follower.take(Event::Asked { request });
    let exclusive = release::is_exclusive(&snapshot);
    // The worker gets no more requests: it dies while the run is judged and the report is written.
    let mut idle = run.measure(worker, snapshot);
    idle.iter_mut().for_each(Worker::kill);

    let Follower {
        progress, recorder, ..
    } = run.follower;
    progress.clear();
    let (mut recorded, journal) = recorder.finish();
    let timelines = std::mem::take(&mut recorded.timelines);
    let (machine, timing) = (
        machine.name().to_owned(),
        Timing {
            discover,
            ..recorded.timing
        },
    );
    let observed = Observed::recorded(
        started,
        started_at,
        machine,
        Recorded { timing, ..recorded },
    );
    let report = observed.conclude(&judging);
    let published = publish(&report, &timelines);
    let whole = published.whole.clone();
    let drawn = trace::write(drawing.as_ref(), &timelines, &report, trace::NOT_MEASURED);
    let is_drawn = drawn.is_ok();
    let code = published
        .and(drawn)
        .code()
        .inspect(|_| journal.remove())
        .or_else(|failure| {
            let kept = keep::keep(&report, whole, is_drawn, &journal);
            unwritten(
                NotWritten {
                    sentence: format!("{}. {kept}", failure.sentence),
                    ..failure
                },
                interrupted,
            )
        });
    if let Some(stuck) =
        idle.and_then(|worker| release::release(worker, exclusive || code != Ok(0)))
    {
        remark(&stuck);
    }
    code
}

/// Returns the exit code of a run whose report could not be written everywhere.
///
/// # Errors
///
/// Something other than a signal kept the report from being written.
fn unwritten(failure: NotWritten, interrupted: u8) -> Result<u8, Failure> {
    if !failure.given_up {
        return Err(failure.sentence.into());
    }
    remark(&failure.sentence);
    Ok(interrupted)
}

/// Begins the journal of this run, and announces one that an earlier run left behind, once.
///
/// # Errors
///
/// The file chosen for it exists already.
fn journal(
    args: &CheckArgs,
    machine: &dyn Machine,
    started_at: &str,
    stop: &Arc<AtomicBool>,
) -> Result<Journal, String> {
    if args.no_journal {
        return Ok(Journal::none());
    }
    let header = Header {
        schema: recording::SCHEMA.into(),
        tool: Tool::this(),
        started_at: started_at.to_owned(),
        machine: machine.name().to_owned(),
        profile: args.profile.as_str().into(),
        pid: std::process::id(),
        args: std::env::args_os()
            .skip(1)
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
    };
    if let Some(path) = &args.journal {
        return Journal::begin_at(path, &header, stop);
    }
    let folders = place::folders();
    if let Some(left) = place::tell(&place::prune(place::left_over(&folders))) {
        let started_at = &left.header.started_at;
        remark(&format!(
            "the run that began {started_at} did not finish: 'peerscope recover -o FILE.json' makes a report from \
             its journal, {}",
            left.path.display()
        ));
    }
    Ok(Journal::begin(&folders, &header))
}

/// The state of a check while it measures.
struct Run<'a> {
    args: &'a CheckArgs,
    profile: Profile,
    groups: BTreeSet<Group>,
    machine: &'a Arc<dyn Machine>,
    start_limit: Duration,
    facts: Facts,
    /// Number of GPUs in the machine, including those not selected.
    there: usize,
    /// Every GPU of the machine, to watch for other programs.
    quiet: Vec<LeftAlone>,
    stop: Arc<AtomicBool>,
    follower: Follower,
}

impl Run<'_> {
    /// Measures what was requested, and records it. Returns the last worker: ending it takes the driver a while.
    fn measure(
        &mut self,
        worker: Result<Worker, HardwareError>,
        mut snapshot: Snapshot,
    ) -> Option<Worker> {
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
        let idle = self.run_rounds(worker, &launch, facts, &snapshot);
        self.take_late(late, &mut snapshot);
        if let Some(watch) = self.follower.watch.take() {
            let quiet = self.leave_alone(&snapshot, Moment::End);
            let (readings, counted) = watch.finish(&snapshot, self.follower.marker.take());
            self.follower.take_readings(readings);
            self.others(quiet);
            self.follower.take(Event::Counted { counted });
        }
        idle
    }

    /// Returns true if the error counters of NVLinks must be read before the first copies. That is so if these counters
    /// judge the first copies, or if the machine's time passes only with the copies. Otherwise the counters are read
    /// beside the first copies. On 4 x H200 they take NVML 72 ms, and a link that errs does so again after that.
    fn counts_at_once(&self) -> bool {
        let follows = self
            .facts
            .telemetry()
            .is_some_and(|telemetry| telemetry.follows_the_driver());
        follows || self.groups.iter().eq([&Group::Load])
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
        facts: DriverFacts,
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let topology = topology::with_cuda(topology::build(snapshot), &facts);
        let request = plan::Request {
            gpus: &gpus,
            driver: &facts,
            topology: &topology,
            profile: &self.profile,
            groups: &self.groups,
            overlap_bytes: self.args.overlap_bytes,
            deadline: self.args.deadline,
            serial: self.args.serial,
        };
        let rounds = plan::rounds(&request);
        let rounds = if self.args.trace.is_some() {
            plan::follow(rounds, &facts)
        } else {
            rounds
        };
        let left_out = plan::left_out(&gpus, &self.groups)
            .into_iter()
            .chain(plan::gpus_left_out(&gpus, &self.groups, &self.profile))
            .collect();
        let thinned_out = plan::thinned_out(&request).into_iter().collect();
        self.follower.take(Event::Plan {
            rounds: rounds.clone(),
            left_out,
            thinned_out,
        });
        let runnable = self.without_obstacles(&rounds, &facts);
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
            self.follower.take(Event::Watching { gpus });
        }
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } =
            supervisor::run(worker, launch, &runnable, &self.stop, &mut self.follower);
        self.follower.take(Event::Measured { interrupted });
        idle
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

/// Returns the requested probe groups.
///
/// # Errors
///
/// The profile does not contain a group that was requested by name.
fn groups(args: &CheckArgs, profile: &Profile) -> Result<BTreeSet<Group>, String> {
    let name = args.profile.as_str();
    if let Some(missing) = args.only.iter().find(|&&group| !profile.has(group)) {
        let group = name_of(*missing);
        return Err(format!(
            "--only {group}: profile {name} does not measure that; choose --profile standard"
        ));
    }
    if !args.skip.is_empty() && !args.skip.iter().any(|&group| profile.has(group)) {
        return Err(format!(
            "--skip: profile {name} measures none of these probe groups anyway"
        ));
    }
    let only = |group: &Group| args.only.is_empty() || args.only.contains(group);
    let groups: BTreeSet<_> = Group::ALL
        .into_iter()
        .filter(only)
        .filter(|group| !args.skip.contains(group))
        .collect();
    if args.overlap_bytes.is_some()
        && !(groups.contains(&Group::Overlap) && profile.has(Group::Overlap))
    {
        return Err(format!(
            "--overlap-bytes: profile {name} with these probe groups does not measure overlap"
        ));
    }
    Ok(groups)
}

/// Adds the probe groups of this run to a request.
fn asked(
    request: Request,
    args: &CheckArgs,
    profile: &Profile,
    groups: &BTreeSet<Group>,
) -> Request {
    let names = |groups: &[Group]| groups.iter().map(|&group| name_of(group)).collect();
    let left_out = Group::ALL
        .into_iter()
        .filter(|group| profile.has(*group) && !groups.contains(group));
    let probes_left_out = left_out.map(name_of).collect();
    Request {
        only: names(&args.only),
        skip: names(&args.skip),
        probes_left_out,
        ..request
    }
}

fn name_of(group: Group) -> String {
    group
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// Makes Ctrl-C, SIGTERM and SIGHUP set this flag; the second signal ends the program with `code`.
fn stop_with(stop: &Arc<AtomicBool>, code: u8) -> Result<(), String> {
    let flag = Arc::clone(stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(code));
        }
    })
    .map_err(|error| match error {
        ctrlc::Error::System(why) => {
            limits::not_started(format!("cannot listen for Ctrl-C: {why}"), &why).message
        }
        error => format!("cannot listen for Ctrl-C: {error}"),
    })
}
