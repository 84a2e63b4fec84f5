//! Options of `fleet`.

use std::path::PathBuf;

use clap::Args;

use super::values::severity;
use super::{format_parser, output_help};
use model::finding::Severity;
use report::{Format, Of};

/// Options of `fleet`.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Reports, folders, archives (.tar, .tar.gz, .json.gz); '-' is a list of them on standard input, a line each. A folder or
    /// an archive with the output of other tools, as 'diagnose' reads it, is a machine.
    #[arg(required = true)]
    pub reports: Vec<PathBuf>,

    /// Nodes that should have a report, as Slurm writes them (node[001-128],gpu1); @FILE is a file with them.
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,

    /// An earlier file of 'fleet -o FILE.json': show what is different.
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,

    /// Show older reports of a node as well; the newest one counts.
    #[arg(long)]
    pub history: bool,

    /// Exit with 1 (2 for Nagios) if a finding is at least this severe: info, warning or error.
    #[arg(long, default_value = "error", value_name = "SEVERITY", value_parser = severity(), hide_possible_values = true)]
    pub fail_on: Severity,

    /// Also write tables (CSV) into this folder, see docs/fleet.md: nodes, gpus, links, cells, findings.
    #[arg(long, value_name = "FOLDER")]
    pub export: Option<PathBuf>,

    /// Show every node, finding and cohort.
    #[arg(short, long)]
    pub verbose: bool,

    /// Format on stdout.
    #[arg(long, value_parser = format_parser(Of::Fleet), default_value = "text")]
    pub format: &'static Format,

    /// Files to write as well.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::Fleet))]
    pub output: Vec<PathBuf>,
}
