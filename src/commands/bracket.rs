//! `bracket`: reads counters before and after a job, and reports what its time added. CUDA is not opened.

mod job;
mod state;

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use self::state::State;
use super::files::Files;
use super::output;
use super::{DISCOVERY_LIMIT, Failure, Judging, Observed, complain, timestamp};
use crate::cli::{BeginArgs, BracketArgs, BracketOutput, Cli, EndArgs, FailOn, Side};
use ::diagnose::Ending;
use hardware::{Machine, Telemetry};
use measure::bracket::{Added, Meanwhile, Taken, added, take};
use model::bracket::Bracket;
use model::report::{Report, Timing};
use model::request::Request;
use report::{Of, Style};
use std::time::Instant;

/// Runs `bracket` and returns the exit code.
///
/// # Errors
///
/// A sentence for stderr.
pub(super) fn run(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &BracketArgs,
) -> Result<u8, Failure> {
    match &args.side {
        Some(Side::Begin(args)) => begin(cli, machine, args),
        Some(Side::End(args)) => end(cli, machine, args),
        None if args.command.is_empty() => {
            Err("bracket needs a command after '--', or 'begin' before a job and 'end' after it"
                .into())
        }
        None => job::run(cli, machine, args),
    }
}

/// A reading, with its time.
struct Reading {
    /// RFC 3339, UTC.
    at: String,
    /// Time since the system started, with the time in which it slept.
    clock: Duration,
    seconds: f64,
    taken: Taken,
}

/// The source of readings. Opening it takes a part of the time of the first one.
struct Source {
    telemetry: Result<Arc<dyn Telemetry>, hardware::HardwareError>,
    limit: Duration,
    opening: Option<Instant>,
}

impl Source {
    fn open(cli: &Cli, machine: &Arc<dyn Machine>) -> Self {
        let opening = Some(Instant::now());
        let limit = cli.driver_deadline.unwrap_or(DISCOVERY_LIMIT);
        Self { telemetry: discover::open(machine, limit), limit, opening }
    }

    /// Reads everything that can change while a job runs.
    fn read(&mut self) -> Reading {
        let (at, clock) = (timestamp(), clock());
        let started = self.opening.take().unwrap_or_else(Instant::now);
        let taken = match &self.telemetry {
            Ok(telemetry) => {
                let snapshot = discover::around_a_job(Arc::clone(telemetry), self.limit);
                take(telemetry, snapshot)
            }
            Err(error) => Taken { snapshot: discover::without_telemetry(error), gpus: Vec::new() },
        };
        Reading { at, clock, seconds: started.elapsed().as_secs_f64(), taken }
    }
}

/// Returns the time since the system started. It does not jump when the date is set.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

fn begin(cli: &Cli, machine: &Arc<dyn Machine>, args: &BeginArgs) -> Result<u8, Failure> {
    let file = Files::prepare(&[], Of::All)?.beside(&args.state)?;
    let reading = Source::open(cli, machine).read();
    let no_gpu = reading.taken.gpus.is_empty();
    let why = reading.taken.snapshot.problems.join("; ");
    let state = State::new(machine.name(), args.job.clone(), reading);
    file.write(&state.text()).map_err(|failure| failure.sentence)?;
    if no_gpu {
        let why = if why.is_empty() { "there is none" } else { &why };
        complain(&format!("no GPU could be read before the job: {why}").into());
        return Ok(cli.exit_contract.code(Ending::Incomplete));
    }
    Ok(0)
}

fn end(cli: &Cli, machine: &Arc<dyn Machine>, args: &EndArgs) -> Result<u8, Failure> {
    let files = Files::prepare(&args.out.output, Of::All)?;
    let judging = Judging::of(cli, args.fail_on)?;
    let state = match state::load(&args.state, machine.name(), args.job.as_deref()) {
        Ok(state) => state,
        Err(state::Unusable::NoVerdict(why)) => {
            complain(&why.into());
            return Ok(cli.exit_contract.code(Ending::Incomplete));
        }
        Err(state::Unusable::Wrong(why)) => return Err(why.into()),
    };
    let started = Instant::now();
    let after = Source::open(cli, machine).read();
    if let Some(why) = state.is_of_another_machine(&after.taken.snapshot) {
        complain(&format!("{} {why}", args.state.display()).into());
        return Ok(cli.exit_contract.code(Ending::Incomplete));
    }
    let job = Job { name: state.job.clone(), ..Job::default() };
    let before = state.reading();
    let report =
        conclude(machine.name(), started, job, (before, after, &Meanwhile::default()), &judging);
    let style = style(cli, &args.out);
    let code = output::publish(&report, args.out.format, &style, &files)?;
    // A reading serves one job. If the report could not be written, it is kept for another attempt.
    let _ = std::fs::remove_file(&args.state);
    Ok(code)
}

fn style(cli: &Cli, out: &BracketOutput) -> Style {
    Style { brief: out.brief, ..output::style(cli.color, out.verbose) }
}

/// The job as far as it is known.
#[derive(Default)]
struct Job {
    name: Option<String>,
    command: Option<Vec<String>>,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

/// Judges what the time between two readings added.
fn conclude(
    machine: &str,
    started: Instant,
    job: Job,
    (before, after, meanwhile): (Reading, Reading, &Meanwhile),
    judging: &Judging,
) -> Report {
    let mut not_comparable = began_again(&before, &after);
    let found = added(&before.taken, &after.taken, meanwhile);
    if not_comparable.is_empty() {
        not_comparable.extend(found.began_again.clone());
    }
    let bracket = bracket(job, &before, &after, found, not_comparable);
    let snapshot = after.taken.snapshot;
    let observed = Observed {
        started,
        started_at: before.at,
        machine: machine.to_owned(),
        request: Request::default(),
        read_from: None,
        topology: topology::build(&snapshot),
        snapshot,
        measurements: None,
        bracket: Some(Box::new(bracket)),
        rolling: None,
        timing: Timing { discover: after.seconds, ..Timing::default() },
    };
    observed.conclude(judging)
}

/// Returns why counters of two readings are not those of one run of the driver, a sentence each.
fn began_again(before: &Reading, after: &Reading) -> Vec<String> {
    let [was, now] = [before, after].map(|reading| &reading.taken.snapshot.host);
    let restarted = match (was.boot_id.known(), now.boot_id.known()) {
        (Some(was), Some(now)) => was != now,
        _ => after.clock < before.clock,
    };
    if restarted {
        return vec!["the system was started again since the reading before it".into()];
    }
    let versions = was.driver_version.known().zip(now.driver_version.known());
    let changed = versions.filter(|(was, now)| was != now);
    let words = |(was, now)| {
        format!("the driver was loaded again: its version was {was} before it and is {now} now")
    };
    changed.map(words).into_iter().collect()
}

fn bracket(
    job: Job,
    before: &Reading,
    after: &Reading,
    found: Added,
    not_comparable: Vec<String>,
) -> Bracket {
    // The counters of another start of the system say nothing.
    let found = if not_comparable.is_empty() { found } else { Added::default() };
    Bracket {
        job: job.name,
        command: job.command,
        exit_code: job.exit_code,
        signal: job.signal,
        seconds: after.clock.saturating_sub(before.clock).as_secs_f64(),
        reading_seconds: [before.seconds, after.seconds],
        before: before.taken.snapshot.clone(),
        not_comparable,
        gpus: found.gpus,
        links: found.links,
        aer_added: found.aer,
        xids: found.xids,
        not_read: found.not_read,
    }
}

/// Returns how a report on a job that peerscope runs is judged: its exit code is the job's.
fn judging_of_command(cli: &Cli) -> Result<Judging, Failure> {
    Judging::of(cli, FailOn::Error)
}
