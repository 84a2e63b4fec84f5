//! `check`: facts, probes, findings, verdict.

mod journal;
mod measuring;
mod outputs;
mod scope;

use std::sync::Arc;
use std::time::Instant;

use self::measuring::Run;
use self::outputs::Outputs;
use self::scope::Scope;
use super::machine_lock::{self, MachineLock};
use super::{Failure, Judging, Observed, release, remark, timestamp};
use crate::cli::{CheckArgs, Cli};
use hardware::Machine;
use model::report::Report;
use recording::Recorded;

/// Checks a machine and returns the exit code.
///
/// # Errors
///
/// A sentence for stderr.
pub(super) fn run(cli: &Cli, machine: &Arc<dyn Machine>, args: &CheckArgs) -> Result<u8, Failure> {
    let scope = Scope::new(args)?;
    let stop = Arc::default();
    let outputs = Outputs::prepare(cli, args, &scope, &stop)?;
    // From here on every wait looks at `stop`: the first signal no longer ends the program.
    outputs.interrupted_by_signals(&stop)?;
    let lock = machine_lock::take(machine.as_ref(), args.wait, &stop);
    let began = Began::now(machine.as_ref());
    let (_lock, unlocked) = match lock {
        MachineLock::Ours(lock) => (Some(lock), None),
        MachineLock::Unknown(why) => (None, Some(why)),
        MachineLock::Theirs(_) | MachineLock::Interrupted => {
            let nothing = machine_lock::nothing(args.profile.as_str(), lock);
            return outputs.publish_unmeasured(&began.report(nothing, &outputs.judging));
        }
    };
    let journal = journal::begin(args, &began, &stop)?;
    let (mut run, worker) = Run::begin(cli, machine, args, &scope, &began, journal, stop)?;
    unlocked.iter().for_each(|problem| run.problem(problem));
    let last_worker = run.measure(worker);
    let exclusive = run.is_exclusive();
    let (mut recorded, journal) = run.finish();
    let timelines = std::mem::take(&mut recorded.timelines);
    let report = began.report(recorded, &outputs.judging);
    let code = outputs.publish(&report, &timelines, &journal);
    let waits = exclusive || code != Ok(0);
    last_worker
        .and_then(|worker| release::release(worker, waits))
        .iter()
        .for_each(|stuck| remark(stuck));
    code
}

/// The beginning of a run.
struct Began {
    clock: Instant,
    /// RFC 3339, UTC.
    at: String,
    /// `live`, or the name of the simulated machine.
    machine: String,
}

impl Began {
    fn now(machine: &dyn Machine) -> Self {
        Self {
            clock: Instant::now(),
            at: timestamp(),
            machine: machine.name().to_owned(),
        }
    }

    /// Judges what the run recorded.
    fn report(self, recorded: Recorded, judging: &Judging) -> Report {
        Observed::recorded(self.clock, self.at, self.machine, recorded).conclude(judging)
    }
}
