//! `diagnose`: the rules again, over a saved report.

use std::path::Path;

use super::output::{self, Files};
use crate::cli::{Cli, DiagnoseArgs};
use crate::hardware::Machine;
use crate::model::report::{Report, SCHEMA};
use crate::report::Format;

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, args: &DiagnoseArgs) -> Result<u8, String> {
    if cli.machine != Machine::Live.name() || !cli.gpus.is_empty() {
        return Err("diagnose reads a saved report: --machine and --gpus have no meaning for it".into());
    }
    let files = Files::prepare(&args.out.output, &[Format::Text, Format::Json, Format::Html])?;
    let mut report = load(&args.report)?;
    super::judge(&mut report, args.out.fail_on.into());
    output::publish(&report, args.out.format.into(), &output::style(cli.color, args.out.verbose), &files)
}

fn load(path: &Path) -> Result<Report, String> {
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
