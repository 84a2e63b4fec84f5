//! Options of `check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ReportArgs;
use super::values::{choice, parse_memory, parse_overlap_bytes, time};
use model::units::{Bytes, GIB};
use probes::Group;
use probes::plan::profile::Name;

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Amount of measurements.
    #[arg(long, value_parser = choice::<Name>(), default_value = "standard")]
    pub profile: Name,

    /// Measure only these groups.
    #[arg(long, value_parser = choice::<Group>(), value_delimiter = ',', value_name = "GROUPS", conflicts_with = "skip")]
    pub only: Vec<Group>,

    /// Leave out these groups, see --only.
    #[arg(
        long,
        value_parser = choice::<Group>(),
        value_delimiter = ',',
        value_name = "GROUPS",
        hide_possible_values = true
    )]
    pub skip: Vec<Group>,

    /// Maximum memory to use on each GPU, 64MiB or more; then 'addresses' is left out [default: 1GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<Bytes>,

    /// Size of the copy that overlaps a kernel [default: from the profile].
    #[arg(long, value_name = "SIZE", value_parser = parse_overlap_bytes)]
    pub overlap_bytes: Option<Bytes>,

    /// Copy one pair at a time. Without this, pairs that share neither a GPU nor a link are copied at once, and
    /// compared with pairs alone.
    #[arg(long)]
    pub serial: bool,

    /// Options for the report.
    #[command(flatten)]
    pub out: ReportArgs,

    /// Time after which a measurement counts as hung, and its pair is given up [default: depends on the size, at least 5s].
    #[arg(long, value_name = "TIME", value_parser = time("0.01s", "1h"))]
    pub deadline: Option<Duration>,

    /// Longest time to wait while another peerscope checks this machine [default: do not wait, exit with 3].
    #[arg(long, value_name = "TIME", value_parser = time("0s", "1d"))]
    pub wait: Option<Duration>,

    /// Where to keep the measurements during the run, for 'peerscope recover' if it is killed: a new file, or none
    /// [default: a file in ~/.local/state/peerscope, removed at the end].
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Neither keep this report, nor compare it with those of earlier runs on this machine [default: the last 20 of each
    /// command are kept in ~/.local/state/peerscope/history, and changes are shown].
    #[arg(long)]
    pub no_history: bool,
}

impl CheckArgs {
    /// Returns the memory to use on each GPU for large buffers.
    pub(crate) fn buffers(&self) -> Bytes {
        self.memory.unwrap_or(Bytes(GIB))
    }
}
