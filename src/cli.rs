//! Defines every flag and its help; does no work.

mod check;
mod fleet;
pub(crate) mod help;
mod installed;
mod output;
mod pick;
mod soak;
mod values;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::check::CheckArgs;
pub(crate) use self::fleet::FleetArgs;
pub(crate) use self::installed::{CompletionsArgs, ManualArgs};
pub(crate) use self::output::ReportArgs;
use self::output::{format_parser, output_help};
pub(crate) use self::pick::{PickArgs, PickFormat};
pub(crate) use self::soak::SoakArgs;
use self::values::{choice, parse_percent, severity, time};
pub(crate) use self::watch::{WatchArgs, WatchFormat};
use diagnose::{Contract, Terms};
use model::finding::Severity;
use report::{self, Format, Of};

/// Check whether the paths between the GPUs of this server are as fast as they should be. If not, report
/// which GPU, slot, link or pair is at fault, why, and what a technician should do.
#[derive(Debug, Parser)]
#[command(name = "peerscope", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Start with 'peerscope check', or 'peerscope check --machine demo' without a GPU.\n\
    Exit codes: 0 healthy, 1 a fault was found, 2 wrong usage or internal error, \
    3 not everything could be tested, 130 interrupted."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,

    /// This machine (live), or a simulated one: a name of 'peerscope machines', or a file (.toml).
    #[arg(long, global = true, default_value = "live", value_name = "NAME")]
    pub machine: String,

    /// GPUs to use, by index (0,1 or 0-3), UUID or PCI address [default: all].
    #[arg(long, global = true, value_delimiter = ',', value_name = "LIST")]
    pub gpus: Vec<String>,

    /// Severities and thresholds for the rules (TOML, see docs/rules).
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Meaning of the exit codes: default (0 healthy, 1 fault, 2 wrong usage, 3 not tested, 130 interrupted), or nagios
    /// (0 ok, 1 warning, 2 critical, 3 unknown).
    #[arg(long, global = true, value_parser = choice::<Contract>(), default_value = "default", value_name = "CONTRACT", hide_possible_values = true)]
    pub exit_contract: Contract,

    /// When to use colour: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: Color,

    /// Longest time to wait for the driver [default: 15s to read facts from NVML, 2m to start CUDA].
    #[arg(long, global = true, value_name = "TIME", value_parser = time("0.01s", "1h"))]
    pub driver_deadline: Option<Duration>,

    /// A sentence about an option that was given but has no effect on this command.
    #[arg(skip)]
    pub without_effect: Option<String>,
}

impl Cli {
    /// Returns the terms for judging a report.
    pub(crate) fn terms(&self, fail_on: Severity) -> Terms {
        Terms { fail_on, contract: self.exit_contract }
    }
}

/// Returns the exit contract that a refused command line asks for, as far as it can be recognised. A caller must
/// understand the exit code after a mistyped option too.
pub(crate) fn contract_in(arguments: impl IntoIterator<Item = OsString>) -> Contract {
    const FLAG: &str = "--exit-contract";
    let mut arguments =
        arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        let value = match argument.split_once('=') {
            Some((FLAG, value)) => Some(value.to_owned()),
            None if argument == FLAG => arguments.next(),
            _ if argument == "--" => break,
            _ => None,
        };
        let known =
            |value: String| choice().parse_ref(&clap::Command::default(), None, value.as_ref());
        if let Some(Ok(contract)) = value.map(known) {
            return contract;
        }
    }
    Contract::Default
}

/// Returns true if the output of a command line that is refused was for a shell to evaluate. `--shell` may be misspelt.
pub(crate) fn is_evaluated_in(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut arguments = arguments.into_iter();
    let says = |start: &'static str| {
        move |argument: OsString| argument.to_string_lossy().starts_with(start)
    };
    arguments.any(says("pick")) && arguments.any(says("--sh"))
}

impl Cli {
    /// Returns true if the output is for a shell to evaluate.
    pub fn is_evaluated(&self) -> bool {
        matches!(&self.command, Command::Pick(args) if args.shell)
    }
}

/// The subcommands with their options.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how the GPUs are connected, and what each link can carry. Does not open CUDA.
    Topo(TopoArgs),
    /// Test every path between the GPUs: report what is wrong and what to do.
    Check(CheckArgs),
    /// Check the machine, then keep it under load for hours.
    Soak(SoakArgs),
    /// Follow the traffic of a job that runs: which GPU, link or clock lags. Does not open CUDA.
    Watch(WatchArgs),
    /// Judge what other tools printed (nvidia-smi, lspci, dmesg, nvbandwidth, ...), or a saved report.
    Diagnose(DiagnoseArgs),
    /// Make the report of a run that was killed.
    Recover(RecoverArgs),
    /// Compare two reports of the same machine.
    Compare(CompareArgs),
    /// Look at the reports of many nodes at once: who is faulty, slow, different or missing.
    Fleet(FleetArgs),
    /// Write what machines like the one of a report must reach, for 'check --expect'.
    Expect(ExpectArgs),
    /// Pick the GPUs of a report that copy fastest among each other.
    Pick(PickArgs),
    /// Explain a finding, or list those about a word, or all.
    Explain(ExplainArgs),
    /// List the simulated machines, or print one as a template for your own.
    Machines(MachinesArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Write manual pages, for a package to install.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// The process that opens CUDA; started by 'check'.
    #[command(hide = true, name = run::worker::protocol::SUBCOMMAND)]
    Worker(WorkerArgs),
}

/// Options of `topo`.
#[derive(Debug, Args)]
pub struct TopoArgs {
    /// An earlier report of 'topo' of this machine, or last, the newest one that was kept: report errors that were counted
    /// since, links that changed, and new Xids.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Neither keep this report, nor compare it with those of earlier runs on this machine.
    #[arg(long)]
    pub no_history: bool,

    /// Show UUIDs, serial numbers and the bottleneck of every pair.
    #[arg(short, long)]
    pub verbose: bool,

    /// Format on stdout.
    #[arg(long, value_parser = format_parser(Of::Topology), default_value = "text")]
    pub format: &'static Format,

    /// Draw the machine as a tree: the same as '--format tree'.
    #[arg(long, conflicts_with = "format")]
    pub tree: bool,

    /// Files to write as well.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::Topology))]
    pub output: Vec<PathBuf>,
}

impl TopoArgs {
    /// Returns the format on stdout.
    pub fn format(&self) -> &'static Format {
        let tree = report::named("tree").filter(|_| self.tree);
        tree.unwrap_or(self.format)
    }
}

/// Options of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier report; '-' is standard input.
    pub old: PathBuf,

    /// The later report; '-' is standard input.
    pub new: PathBuf,

    /// Exit with 1 (2 for Nagios) if the machine got worse by a finding at least this severe: info, warning or error.
    #[arg(long, default_value = "error", value_name = "SEVERITY", value_parser = severity(), hide_possible_values = true)]
    pub fail_on: Severity,

    /// Format on stdout.
    #[arg(long, value_parser = format_parser(Of::Comparison), default_value = "text")]
    pub format: &'static Format,

    /// Files to write as well.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::Comparison))]
    pub output: Vec<PathBuf>,
}

/// Options of `expect`.
#[derive(Debug, Args)]
pub struct ExpectArgs {
    /// A report of a machine that is known to be healthy; '-' is standard input.
    pub report: PathBuf,

    /// Distance of each floor below the lowest figure of its class, in per cent.
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = parse_percent)]
    pub margin: f64,

    /// Accept a report of a machine that is not healthy, or of some of its GPUs.
    #[arg(long)]
    pub anyway: bool,
}

/// Returns what `diagnose --help` says of its input.
fn what_is_read() -> String {
    format!(
        "Output of other tools on one machine, or a report of peerscope (JSON or HTML): files, folders, archives (.gz, \
         .tar); '-' is standard input. Read is the output of {}",
        pasted::tools().collect::<Vec<_>>().join(", ")
    )
}

/// Options of `diagnose`.
#[derive(Debug, Args)]
pub struct DiagnoseArgs {
    /// Output of other tools on one machine, such as 'nvidia-smi -q', 'nvidia-smi topo -m', 'lspci -vv', dmesg,
    /// nvbandwidth or p2pBandwidthLatencyTest; or a report of peerscope (JSON or HTML): files, folders, archives (.gz,
    /// .tar); '-' is standard input.
    #[arg(required = true, value_name = "FILE", long_help = what_is_read())]
    pub inputs: Vec<PathBuf>,

    /// Options for the report.
    #[command(flatten)]
    pub out: ReportArgs,
}

/// Options of `recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The journal [default: the newest of an interrupted run on this machine; it is removed once a
    /// .json report is written from it, and its .trace if it has a timeline].
    pub journal: Option<PathBuf>,

    /// Options for the report.
    #[command(flatten)]
    pub out: ReportArgs,
}

/// Options of the worker process.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The process that started it; the worker ends with it.
    #[arg(long)]
    pub parent: Option<u32>,

    /// The first line of its input describes the simulated machine (JSON).
    #[arg(long)]
    pub described: bool,

    /// Its stdin is a socket to its parent, its stdout one to another worker.
    #[arg(long)]
    pub partner: bool,
}

/// Options of `machines`.
#[derive(Debug, Args)]
pub struct MachinesArgs {
    /// Print the description of this machine (TOML, see docs/machines.md) as a template for your own.
    #[arg(long, value_name = "NAME")]
    pub show: Option<String>,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code of a finding, such as pcie-narrow, or any word.
    pub code: Option<String>,

    /// Also show how it is detected, the parameters, and the sources.
    #[arg(short, long)]
    pub verbose: bool,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[cfg(test)]
mod tests;
