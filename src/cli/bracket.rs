//! Options of `bracket`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{FailOn, format_parser, output_help};
use report::{Format, Of};

/// Options of `bracket`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BracketArgs {
    /// The reading before or after a job that another program starts.
    #[command(subcommand)]
    pub side: Option<Side>,

    /// Name of the job, for the report.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// Options for the report, which goes to stderr.
    #[command(flatten)]
    pub out: BracketOutput,

    /// The command to run between the readings, with its arguments. It has stdin and stdout, and gets signals; its exit
    /// code is the exit code.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The two readings around a job that another program starts.
#[derive(Debug, Subcommand)]
pub enum Side {
    /// Read the counters before a job and keep them in a file: for a prolog.
    Begin(BeginArgs),
    /// Read the counters after a job, report what it added, and remove the file: for an epilog.
    End(EndArgs),
}

/// Options of `bracket begin`.
#[derive(Debug, Args)]
pub struct BeginArgs {
    /// File to keep the reading in; an earlier one is replaced.
    #[arg(long, value_name = "FILE")]
    pub state: PathBuf,

    /// Name of the job: 'end' refuses the reading of another one.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
}

/// Options of `bracket end`.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// The file of 'bracket begin'.
    #[arg(long, value_name = "FILE")]
    pub state: PathBuf,

    /// Name of the job; the reading must be that of the same job.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// Exit with 1 (2 for Nagios) when a finding is at least this severe.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub fail_on: FailOn,

    /// Options for the report.
    #[command(flatten)]
    pub out: BracketOutput,
}

/// Options for the report on a job.
#[derive(Debug, Args)]
pub struct BracketOutput {
    /// Also show the machine, and all findings in full.
    #[arg(short, long)]
    pub verbose: bool,

    /// Show the verdict and a line for each finding, and no more.
    #[arg(long, conflicts_with = "verbose")]
    pub brief: bool,

    /// Format of the report.
    #[arg(long, value_parser = format_parser(Of::All), default_value = "text")]
    pub format: &'static Format,

    /// Files to write as well.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::All))]
    pub output: Vec<PathBuf>,
}
