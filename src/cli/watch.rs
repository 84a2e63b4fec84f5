//! Options of `watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::output::output_help;
use super::values::{severity, time};
use model::finding::Severity;
use report::Of;

/// Options of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Time after which it ends [default: at 'q' or Ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = time("2s", "7d"))]
    pub length: Option<Duration>,

    /// Exit with 1 (2 for Nagios) if a finding is at least this severe: info, warning or error.
    #[arg(long, default_value = "error", value_name = "SEVERITY", value_parser = severity(), hide_possible_values = true)]
    pub fail_on: Severity,

    /// text: a screen that follows the job, then a report; json: a line each second.
    #[arg(long, value_enum, default_value_t = WatchFormat::Text, value_name = "FORMAT")]
    pub format: WatchFormat,

    /// Files to write at the end.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::Topology))]
    pub output: Vec<PathBuf>,
}

/// The format of the output of `watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WatchFormat {
    /// A screen, then a report.
    Text,
    /// A line of JSON each second.
    Json,
}
