//! `pick`, `order`, `what-if` and `export`: decisions from a report, saved or made now.

use std::path::Path;
use std::sync::Arc;

use super::{Failure, Judging, check, complain, output, topo};
use crate::cli::{
    Cli, DecisionFormat, ExportArgs, Exported, FailOn, OrderArgs, PickArgs, WhatIfArgs,
};
use ::decide::{Outlook, Wanted, causes};
use ::diagnose::Ending;
use explain::Cause;
use hardware::Machine;
use model::report::Report;
use report::decisions;
use report::read::load;

/// A judged report with the changes that its figures show.
struct Explained {
    report: Report,
    causes: Vec<Cause>,
    judging: Judging,
}

impl Explained {
    /// Reads the report, or measures.
    fn of(cli: &Cli, machine: &Arc<dyn Machine>, path: Option<&Path>) -> Result<Self, Failure> {
        let judging = Judging::of(cli, FailOn::Error)?;
        let report = match path {
            Some(path) => {
                let mut report = saved(cli, path)?;
                judging.judge(&mut report);
                report
            }
            None => check::measured(cli, machine)?,
        };
        Ok(Self { causes: causes(&report, &judging.settings), report, judging })
    }

    fn outlook(&self) -> Option<Outlook<'_>> {
        let outlook = Outlook::of(&self.report, &self.causes, &self.judging.settings)?;
        let measurements = self.report.measurements.as_ref()?;
        let has_figures = measurements.cells().any(|cell| cell.tested());
        has_figures.then_some(outlook)
    }
}

/// Reads a saved report.
fn saved(cli: &Cli, path: &Path) -> Result<Report, Failure> {
    let option = match (cli.machine.as_str(), cli.gpus.is_empty()) {
        (live::NAME, true) => return Ok(load(path)?),
        (live::NAME, false) => "--gpus",
        _ => "--machine",
    };
    Err(format!("{option} has no effect on a saved report: leave out one of the two").into())
}

/// Runs `pick`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn pick(cli: &Cli, machine: &Arc<dyn Machine>, args: &PickArgs) -> Result<u8, Failure> {
    let explained = Explained::of(cli, machine, args.report.as_deref())?;
    let Some(outlook) = explained.outlook() else {
        return Ok(without_figures(cli, &explained.report));
    };
    let gpus = usize::from(args.number);
    let there = explained.report.snapshot.gpus.len();
    if gpus > there {
        return Err(
            format!("-k {gpus}: the machine has {}", report::figures::count(there, "GPU")).into()
        );
    }
    let wanted = Wanted { gpus, all: args.all, leave_out: args.leave_out.into() };
    let picked = match ::decide::pick(&outlook, wanted) {
        Ok(picked) => picked,
        Err(why) => {
            complain(&why.into());
            return Ok(cli.exit_contract.code(Ending::Fault));
        }
    };
    let text = match args.format {
        _ if args.shell => decisions::pick_shell(&picked, args.all),
        DecisionFormat::Json => decisions::json("pick", &explained.report, &picked),
        DecisionFormat::Text => {
            decisions::pick(&picked, &explained.report, &output::style(cli.color, false))
        }
    };
    output::print(&text)?;
    Ok(0)
}

/// Runs `order`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn order(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &OrderArgs,
) -> Result<u8, Failure> {
    let explained = Explained::of(cli, machine, args.report.as_deref())?;
    let Some(outlook) = explained.outlook() else {
        return Ok(without_figures(cli, &explained.report));
    };
    let Some(order) = ::decide::order(&outlook) else {
        if explained.report.snapshot.gpus.len() < 2 {
            return Err("one GPU has no order".into());
        }
        return Ok(without_figures(cli, &explained.report));
    };
    let text = match args.format {
        DecisionFormat::Json => decisions::json("order", &explained.report, &order),
        DecisionFormat::Text => {
            decisions::order(&order, &explained.report, &output::style(cli.color, false))
        }
    };
    output::print(&text)?;
    Ok(0)
}

/// Runs `what-if`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn what_if(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &WhatIfArgs,
) -> Result<u8, Failure> {
    let explained = Explained::of(cli, machine, Some(&args.report))?;
    if explained.outlook().is_none() {
        return Ok(without_figures(cli, &explained.report));
    }
    let settings = &explained.judging.settings;
    let changes = args.changes.all();
    let found = ::decide::what_if(&explained.report, &explained.causes, &changes, settings)?;
    let text = match args.format {
        DecisionFormat::Json => decisions::json("what-if", &explained.report, &found),
        DecisionFormat::Text => {
            decisions::what_if(&found, &explained.report, &output::style(cli.color, false))
        }
    };
    output::print(&text)?;
    Ok(0)
}

/// Runs `export`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn export(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &ExportArgs,
) -> Result<u8, Failure> {
    let report = match &args.report {
        Some(path) => saved(cli, path)?,
        None => topo::read(cli, machine)?,
    };
    let judging = Judging::of(cli, FailOn::Error)?;
    let causes = causes(&report, &judging.settings);
    let text = match args.what {
        Exported::NcclTopo => ::decide::nccl::export(&report, &causes)?,
    };
    output::print(&text)?;
    Ok(0)
}

/// Reports that there is nothing to decide by. Returns the exit code.
fn without_figures(cli: &Cli, report: &Report) -> u8 {
    let driver = report.measurements.as_ref().and_then(|all| all.driver.failure.clone());
    let why = match (&report.measurements, driver) {
        (None, _) => "the report is one of 'topo'; run 'peerscope check'".to_owned(),
        (Some(_), Some(failure)) => failure,
        (Some(_), None) => "no copy was measured; 'peerscope check' says why".to_owned(),
    };
    complain(&format!("there are no figures to decide by: {why}").into());
    cli.exit_contract.code(Ending::Incomplete)
}
