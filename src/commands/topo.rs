//! `topo`: reports facts and graph, without CUDA.

use std::time::Instant;

use super::devices::Facts;
use super::files::Files;
use super::history::History;
use super::output;
use super::{Failure, Judging, Observed, select, timestamp};
use crate::cli::{Cli, TopoArgs};
use hardware::Machine;
use model::finding::Severity;
use model::report::{Report, Timing};
use model::snapshot::SlowFact;
use report::{Level, Of};
use std::sync::Arc;

/// Runs `topo`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, machine: &Arc<dyn Machine>, args: &TopoArgs) -> Result<u8, Failure> {
    let files = Files::prepare(&args.output, Of::Topology)?;
    let mut judging = Judging::of(cli, Severity::Error)?;
    let of_history = (args.no_history, args.baseline.as_deref());
    judging.history = Some(History::of(machine.as_ref(), "topo", of_history));
    judging.against(args.baseline.as_deref())?;
    // A person waits for the text, so slow facts are left out. A file or JSON is kept, and contains everything.
    let format = args.format();
    let kept =
        args.verbose || args.baseline.is_some() || !format.is_looked_at || !args.output.is_empty();
    let slow = if kept { SlowFact::ALL } else { run::discover::JUDGED };
    let mut report = facts(cli, machine, slow, &judging)?;
    judging.keep(&mut report);
    let level = if args.verbose { Level::Every } else { Level::Short };
    let style = output::style(cli.color, level);
    Ok(output::publish(&report, format, &style, &files)?)
}

fn facts(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    slow: &'static [SlowFact],
    judging: &Judging,
) -> Result<Report, Failure> {
    let (started, started_at) = (Instant::now(), timestamp());
    let snapshot = Facts::open(machine, cli.driver_deadline).read(slow);
    let (snapshot, request) = select::select(snapshot, &cli.gpus)?;
    judging.find_last(&snapshot)?;
    let discover = started.elapsed().as_secs_f64();
    let topology = topology::build(&snapshot);
    let timing = Timing { discover, ..Timing::default() };
    let machine = machine.name().to_owned();
    let observed = Observed {
        started,
        started_at,
        machine,
        request,
        read_from: None,
        snapshot,
        topology,
        measurements: None,
        watched: None,
        timing,
    };
    Ok(observed.conclude(judging))
}
