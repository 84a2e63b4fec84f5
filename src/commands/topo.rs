//! `topo`: facts and graph, without CUDA.

use std::time::Instant;

use super::output::{self, Files};
use super::{select, snapshot, timestamp};
use crate::cli::{Cli, TopoArgs, TopoFormat};
use crate::diagnose::{self, Evidence};
use crate::discover::Depth;
use crate::hardware::Machine;
use crate::model::finding::Severity;
use crate::model::report::{Report, SCHEMA, Timing, Tool};
use crate::report::Format;
use crate::topology;

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, machine: &Machine, args: &TopoArgs) -> Result<u8, String> {
    let started = Instant::now();
    let files = Files::prepare(&args.output, &[Format::Text, Format::Json, Format::Dot])?;
    let started_at = timestamp();
    // A person waits for the text; a file or JSON is for keeping, and has everything.
    let kept = args.verbose || args.format == TopoFormat::Json || !args.output.is_empty();
    let depth = if kept { Depth::Everything } else { Depth::Structure };
    let (snapshot, _) = snapshot(machine, depth);
    let snapshot = select::select(snapshot, &cli.gpus)?;
    let discover = started.elapsed().as_secs_f64();
    let topology = topology::build(&snapshot);
    let judging = Instant::now();
    let evidence = Evidence { snapshot: &snapshot, topology: &topology, measurements: None };
    let findings = diagnose::judge(&evidence);
    let verdict = diagnose::verdict(&findings, None, Severity::Error);
    let timing = Timing {
        discover,
        diagnose: judging.elapsed().as_secs_f64(),
        total: started.elapsed().as_secs_f64(),
        ..Timing::default()
    };
    let report = Report {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at,
        machine: machine.name().into(),
        snapshot,
        topology,
        measurements: None,
        findings,
        verdict,
        timing,
    };
    output::publish(&report, args.format.into(), &output::style(cli.color, args.verbose), &files)
}
