//! Options of `soak`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::CheckArgs;
use super::values::time;

/// Options of `soak`.
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Time under load, after the check.
    #[arg(long = "for", value_name = "TIME", value_parser = time("1s", "7d"))]
    pub length: Duration,

    /// End at the first fault: wrong bytes, a copy that hangs or fails, a link that changes or counts errors.
    #[arg(long)]
    pub fail_fast: bool,

    /// Write the figures of the last minute to FILE, in Prometheus' text format, and replace it every minute.
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,

    /// Options of the check before it.
    #[command(flatten)]
    pub check: CheckArgs,
}
