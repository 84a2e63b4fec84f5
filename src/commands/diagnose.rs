//! `diagnose`: the rules again, over a saved report.

use std::path::Path;

use super::Judging;
use super::output::{self, Files};
use crate::cli::{Cli, DiagnoseArgs};
use crate::hardware::Machine;
use crate::model::report::{Report, SCHEMA};

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, args: &DiagnoseArgs) -> Result<u8, String> {
    if cli.machine != Machine::Live.name() || !cli.gpus.is_empty() {
        return Err("diagnose reads a saved report: --machine and --gpus have no meaning for it".into());
    }
    let files = Files::of_report(&args.out)?;
    let judging = Judging::with(cli, &args.out)?;
    let mut report = load(&args.report)?;
    judging.judge(&mut report);
    output::publish(&report, args.out.format(), &output::style(cli.color, args.out.verbose), &files)
}

/// Reads a saved report.
///
/// # Errors
///
/// A sentence that names the file and what is wrong with it.
pub fn load(path: &Path) -> Result<Report, String> {
    let name = path.display();
    let text = std::fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| format!("{name} is not JSON: {error}"))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => return Err(format!("{name} has the schema '{other}', this version reads {SCHEMA}")),
        None => return Err(format!("{name} is not a peerscope report: it has no \"schema\"")),
    }
    serde_json::from_value(value).map_err(|error| format!("{name} is not a complete report: {error}"))
}
