//! Options of `check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ReportArgs;
use super::values::{parse_budget, parse_memory, parse_overlap_bytes, parse_seconds, parse_wait};
use model::units::Bytes;
use plan::{Group, profile};

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Amount of measurements.
    #[arg(long, value_enum, default_value_t = profile::Name::Standard)]
    pub profile: profile::Name,

    /// Run only these probe groups.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS", conflicts_with = "skip")]
    pub only: Vec<Group>,

    /// Skip these probe groups.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS")]
    pub skip: Vec<Group>,

    /// Maximum memory to use on each GPU, 64MiB or more.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Bytes,

    /// Size of the copy in the overlap probe [default: from the profile].
    #[arg(long, value_name = "SIZE", value_parser = parse_overlap_bytes)]
    pub overlap_bytes: Option<Bytes>,

    /// Copy one pair at a time. Without this, pairs that share neither a GPU nor a link are copied at once, and
    /// compared with pairs alone.
    #[arg(long)]
    pub serial: bool,

    /// Longest time for one measurement, in seconds; after it, its pair is not tested any further
    /// [default: depends on the size, at least 5].
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub deadline: Option<Duration>,

    /// Longest time to wait while another peerscope checks this machine, in seconds [default: do not
    /// wait, exit with 3].
    #[arg(long, value_name = "SECONDS", value_parser = parse_wait)]
    pub wait: Option<Duration>,

    /// Measure only as much as fits into this time, such as '3s': the pairs and GPUs that were not measured for longest, by the
    /// ledger.
    #[arg(long, value_name = "TIME", value_parser = parse_budget, requires = "ledger")]
    pub budget: Option<Duration>,

    /// File that keeps what runs with --budget have measured; it is created if it does not exist.
    #[arg(long, value_name = "FILE", requires = "budget", conflicts_with_all = ["flows", "trace"])]
    pub ledger: Option<PathBuf>,

    /// Write the journal of this run to FILE, which must not exist [default: a file in the state
    /// folder, ~/.local/state/peerscope]. If the run is killed, 'peerscope recover' reads the journal;
    /// every other run removes it at its end.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Write no journal: if this run is killed, its measurements are lost.
    #[arg(long, conflicts_with = "journal")]
    pub no_journal: bool,

    /// Write a timeline to FILE (Chrome's and Perfetto's JSON, for <https://ui.perfetto.dev>): for one pair of GPUs,
    /// what ran when on which stream in each stream placement, and the host's calls. An HTML report shows it too.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Options for the report.
    #[command(flatten)]
    pub out: ReportArgs,
}
