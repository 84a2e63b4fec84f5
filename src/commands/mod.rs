//! One thin file per subcommand: wires stages, nothing else.

mod check;
mod diagnose;
mod explain;
mod machines;
mod output;
mod progress;
mod select;
mod topo;

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cli::{Cli, Command};
use crate::discover::{self, Depth};
use crate::hardware::{Machine, Telemetry};
use crate::model::snapshot::Snapshot;
use crate::worker;

/// How long discovery may take. NVML answers within a second on healthy machines and can block for
/// minutes on sick ones.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(15);

/// Exit code of wrong usage and of internal errors.
pub const EXIT_USAGE: u8 = 2;

/// Runs a command and gives the exit code.
///
/// # Errors
///
/// One sentence for stderr; the exit code is [`EXIT_USAGE`] then.
pub fn run(cli: &Cli) -> Result<u8, String> {
    let machine = Machine::parse(&cli.machine)?;
    match &cli.command {
        Command::Topo(args) => topo::run(cli, &machine, args),
        Command::Check(args) => check::run(cli, &machine, args),
        Command::Diagnose(args) => diagnose::run(cli, args),
        Command::Explain(args) => explain::run(args),
        Command::Machines => machines::run(),
        Command::Worker => worker::child::serve(&machine, std::io::stdout()).map(|()| 0),
    }
}

/// Prints a failure, as `peerscope: sentence`.
#[allow(clippy::disallowed_macros, reason = "commands may print")]
pub fn complain(sentence: &str) {
    eprintln!("peerscope: {sentence}");
}

/// Now, in RFC 3339, UTC.
fn timestamp() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// Facts of the machine, and the telemetry to watch it further with. A machine without NVML gives
/// a snapshot without GPUs that says why.
fn snapshot(machine: &Machine, depth: Depth) -> (Snapshot, Option<Arc<dyn Telemetry>>) {
    match discover::open(machine, DISCOVERY_LIMIT) {
        Ok(telemetry) => (discover::discover(Arc::clone(&telemetry), depth, DISCOVERY_LIMIT), Some(telemetry)),
        Err(error) => (discover::without_telemetry(&error), None),
    }
}
