//! `check`: facts, probes, findings, verdict.

mod hours;
mod journal;
mod measuring;
mod outputs;
mod scope;
mod soak;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use self::hours::Hours;
use self::measuring::Run;
use self::outputs::Outputs;
use self::scope::Scope;
use super::history::History;
use super::machine_lock::{self, MachineLock};
use super::{Failure, Judging, Observed, release, remark, timestamp};
use crate::cli::{CheckArgs, Cli, SoakArgs};
use hardware::{Lock, Machine};
use model::choice::Choice;
use model::report::Report;
use model::timeline::Timeline;
use run::recording::{Journal, Recorded};
use run::worker::Worker;

/// Checks a machine and returns the exit code.
///
/// # Errors
///
/// A sentence for stderr.
pub(super) fn run(cli: &Cli, machine: &Arc<dyn Machine>, args: &CheckArgs) -> Result<u8, Failure> {
    check(cli, machine, args, None)
}

/// Checks a machine, keeps it under load for hours, and returns the exit code.
///
/// # Errors
///
/// A sentence for stderr.
pub(super) fn soak(cli: &Cli, machine: &Arc<dyn Machine>, args: &SoakArgs) -> Result<u8, Failure> {
    check(cli, machine, &args.check, Some(args))
}

fn check(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &CheckArgs,
    soak: Option<&SoakArgs>,
) -> Result<u8, Failure> {
    let scope = Scope::new(args)?;
    let stop = Arc::default();
    let command = if soak.is_some() { "soak" } else { "check" };
    let of_history = (args.no_history, args.out.baseline.as_deref());
    let history = History::of(machine.as_ref(), command, of_history);
    let outputs = Outputs::prepare(cli, args, (&scope, history), &stop)?;
    let soak = soak.map(|soak| Hours::prepare(soak, &outputs)).transpose()?;
    match conduct(cli, machine, args, (&scope, soak.as_ref()), &outputs, &stop)? {
        Conducted::Nothing(report) => outputs.publish_unmeasured(&report),
        Conducted::Measured {
            mut report,
            timelines,
            journal,
            last_workers,
            exclusive,
            lock: _lock,
        } => {
            outputs.judging.keep(&mut report);
            let code = outputs.publish(&report, &timelines, &journal);
            let waits = exclusive || code != Ok(0);
            let stuck =
                last_workers.into_iter().filter_map(|worker| release::release(worker, waits));
            stuck.for_each(|stuck| remark(&stuck));
            code
        }
    }
}

/// A run that has ended.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is taken apart at once")]
enum Conducted {
    /// The machine was locked.
    Nothing(Box<Report>),
    Measured {
        report: Box<Report>,
        timelines: Vec<Timeline>,
        journal: Journal,
        last_workers: Vec<Worker>,
        /// True if a GPU admits one process at a time.
        exclusive: bool,
        /// The machine, until the last worker is dead.
        lock: Option<Lock>,
    },
}

fn conduct(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &CheckArgs,
    (scope, soak): (&Scope, Option<&Hours>),
    outputs: &Outputs,
    stop: &Arc<AtomicBool>,
) -> Result<Conducted, Failure> {
    // From here on every wait looks at `stop`: the first signal no longer ends the program.
    super::interrupted_by_signals(stop, outputs.interrupted, || {})?;
    let lock = machine_lock::take(machine.as_ref(), args.wait, stop);
    let began = Began::now(machine.as_ref(), &outputs.judging);
    let (lock, unlocked) = match lock {
        MachineLock::Ours(lock) => (Some(lock), None),
        MachineLock::Unknown(why) => (None, Some(why)),
        MachineLock::Theirs(_) | MachineLock::Interrupted => {
            let nothing = machine_lock::nothing(args.profile.name(), lock);
            let report = began.report(nothing);
            return Ok(Conducted::Nothing(Box::new(report)));
        }
    };
    let journal = journal::begin(args, &began, stop)?;
    let (mut run, worker) =
        Run::begin(cli, machine, args, scope, &began, journal, Arc::clone(stop))?;
    unlocked.iter().for_each(|problem| run.problem(problem));
    let last_workers = run.measure(worker, soak);
    let exclusive = run.is_exclusive();
    let (mut recorded, journal) = run.finish();
    let timelines = std::mem::take(&mut recorded.timelines);
    let report = Box::new(began.report(recorded));
    Ok(Conducted::Measured { report, timelines, journal, last_workers, exclusive, lock })
}

/// The beginning of a run.
struct Began<'a> {
    clock: Instant,
    /// RFC 3339, UTC.
    at: String,
    /// `live`, or the name of the simulated machine.
    machine: String,
    judging: &'a Judging,
}

impl<'a> Began<'a> {
    fn now(machine: &dyn Machine, judging: &'a Judging) -> Self {
        let machine = machine.name().to_owned();
        Self { clock: Instant::now(), at: timestamp(), machine, judging }
    }

    /// Judges what the run recorded.
    fn report(self, recorded: Recorded) -> Report {
        Observed::recorded(self.clock, self.at, self.machine, recorded).conclude(self.judging)
    }
}
