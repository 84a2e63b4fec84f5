//! What the probes measured, cell by cell, each with its status and reason.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::background::Background;
pub use super::cuda::{CudaDevice, CudaPeerAccess, DriverFacts, Hidden, Hindrance, PeerAccess};
use super::flow::{Endpoint, Flow, Setup};
use super::placement::{Pair, Path, Placement, Side};
pub use super::under_load::{AerAdded, LinkState, LinkUnderLoad, NvLinkErrorsAdded};
use super::units::{Bytes, GbPerSecond};

/// Everything that was measured, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measurements {
    /// The profile that chose the probes.
    pub profile: String,
    /// The driver as the worker found it.
    pub driver: DriverFacts,
    /// Bandwidth between GPUs.
    pub peer: Vec<PeerBandwidth>,
    /// Pairs that were copied at once, compared with one of them alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_once: Vec<AtOnce>,
    /// Overlap of copies with kernels.
    pub overlap: Vec<Overlap>,
    /// Small-copy latency.
    pub latency: Vec<Latency>,
    /// Copies within each GPU. Empty in reports that are older than that probe.
    #[serde(default)]
    pub local: Vec<LocalCopy>,
    /// Copies between host and GPU. Empty until that probe exists.
    #[serde(default)]
    pub host: Vec<serde_json::Value>,
    /// Several flows at once. Empty until that probe exists.
    #[serde(default)]
    pub load: Vec<serde_json::Value>,
    /// PCIe links and counters while copies ran.
    pub links: Vec<LinkUnderLoad>,
    /// PCI functions on the way to the GPUs whose AER counters rose during the run.
    #[serde(default)]
    pub aer_added: Vec<AerAdded>,
    /// What each GPU did while this program left it alone. Empty where that could not be read.
    #[serde(default)]
    pub background: Vec<Background>,
    /// Figures that cannot be, which the run came to and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impossible: Vec<Impossible>,
    /// What went wrong beside single cells (a worker that had to be replaced, say), a sentence each.
    pub problems: Vec<String>,
    /// What a limit of the process kept from being watched while copies ran, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<String>,
    /// What of the profile was left out on purpose, a sentence each: with many GPUs not everything is
    /// measured on every pair.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// What of the profile is measured on some pairs only because more of them would show nothing new, a sentence
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinned_out: Vec<String>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Whether the run was cut off (killed, say) and this was recovered from its journal:
    /// rounds without an outcome are missing, and counters that are read at the end.
    #[serde(default)]
    pub cut_off: bool,
}

impl Measurements {
    /// Everything that was to be measured, in the order of the report.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let peer = self.peer.iter().map(PeerBandwidth::cell);
        let overlap = self.overlap.iter().map(Overlap::cell);
        let latency = self.latency.iter().map(Latency::cell);
        peer.chain(overlap).chain(latency).chain(self.local.iter().map(LocalCopy::cell))
    }
}

/// A figure that cannot be: no number, or no quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Impossible {
    /// From where to where: `GPU 0 → GPU 1`.
    pub flow: String,
    /// Which measurement it was of.
    pub measurement: String,
    /// Its key, what it was and why it cannot be.
    pub why: String,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// The rate of large copies.
    Bandwidth,
    /// The time of small copies.
    Latency,
    /// Whether a copy and a kernel run at the same time.
    Overlap,
    /// The rate of copies within a GPU.
    Local,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::Overlap => "overlap",
            Self::Latency => "latency",
            Self::Local => "local",
        })
    }
}

/// One measurement that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// What was measured.
    pub probe: Probe,
    /// From where to where.
    pub flow: Flow,
    /// How.
    pub setup: Setup,
    /// How it ended.
    pub status: Status,
    /// Whether it has a figure.
    pub has_figure: bool,
    /// Why there is no figure.
    pub reason: Option<&'a str>,
    /// Whether the bytes arrived.
    pub verified: Verified,
    /// Whether another program was in its way.
    pub disturbed: bool,
}

impl Cell<'_> {
    /// Whether the bytes come from or go to this GPU.
    pub fn uses(&self, gpu: u32) -> bool {
        self.flow.ends().contains(&Endpoint::Gpu(gpu))
    }

    /// Whether it has an answer. Wrong bytes are one, whatever became of the timing.
    pub fn tested(&self) -> bool {
        self.verified.is_wrong() || (self.status == Status::Measured && self.has_figure && !self.disturbed)
    }
}

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It has a figure.
    Measured,
    /// It failed; the reason says how.
    Failed,
    /// It did not end before its deadline, and the worker was replaced.
    Hung,
    /// It was not run; the reason says why.
    Skipped,
}

/// Whether the bytes arrived, checked on the destination GPU before timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// Every byte is right.
    Ok,
    /// Bytes never arrived: the poison is still there.
    Dropped,
    /// Wrong bytes arrived.
    Corrupt,
    /// It was checked without a result (out of memory, say).
    Inconclusive,
    /// It was not tried.
    Skipped,
}

impl Verified {
    /// Whether bytes are known to have been lost or changed: a rate of such copies means nothing.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Self::Dropped | Self::Corrupt)
    }
}

/// Bandwidth from one GPU to another in one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerBandwidth {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// How the bytes were copied.
    #[serde(flatten)]
    pub setup: Setup,
    /// Bytes over time of a plain row of copies, of this one direction, median over the rows: nothing is taken
    /// out.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Payload rate of the narrowest hop of the route.
    pub theoretical_gbps: Option<GbPerSecond>,
    /// Achieved as per cent of theoretical.
    pub percent: Option<f64>,
    /// What healthy machines reach on a route of this class. Null where theory is not known.
    #[serde(default)]
    pub expected_gbps: Option<GbPerSecond>,
    /// The lowest rate that healthy machines are known to have reached there. Null where none is known.
    #[serde(default)]
    pub expected_low_gbps: Option<GbPerSecond>,
    /// The highest one.
    #[serde(default)]
    pub expected_high_gbps: Option<GbPerSecond>,
    /// Achieved as per cent of expected.
    #[serde(default)]
    pub expected_percent: Option<f64>,
    /// Number of rows.
    pub samples: u32,
    /// (Largest - smallest) / median of the rows, per cent.
    pub spread_percent: Option<f64>,
    /// What a copy of a row costs beside its bytes, microseconds, from rows of small copies. Null where that
    /// was not measured. Reports of before 2026-11-22 took it out of `achieved_gbps`.
    #[serde(default)]
    pub fixed_cost_us: Option<f64>,
    /// What a copy without end would reach: the bytes alone, without the fixed cost. Null where that was not
    /// measured.
    #[serde(default)]
    pub asymptotic_gbps: Option<GbPerSecond>,
    /// Time that the host spent in the calls that enqueued one copy with its ordering, waiting included,
    /// microseconds.
    pub host_blocked_us: Option<f64>,
    /// Pairs that were copied at the same time, this one included; 1 is this pair alone.
    #[serde(default = "alone")]
    pub at_once: u32,
    /// Whether the bytes arrived, when they were verified and after the timed copies.
    pub verified: Verified,
    /// What was wrong with the bytes, in words; null when nothing was.
    #[serde(default)]
    pub verification_detail: Option<String>,
    /// How the measurement ended.
    pub status: Status,
    /// Why there is no figure.
    pub reason: Option<String>,
    /// Whether another program moved data over the same links or worked on the same GPUs: the figure is
    /// shown, and nothing is judged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

const fn alone() -> u32 {
    1
}

/// One of several pairs that were copied at once, and the same alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AtOnce {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// How the bytes were copied.
    #[serde(flatten)]
    pub setup: Setup,
    /// The rate while others were copied, median of the rows.
    pub at_once_gbps: GbPerSecond,
    /// The rate alone, median of the rows.
    pub alone_gbps: GbPerSecond,
    /// How far the first lies above the second, per cent.
    pub difference_percent: f64,
    /// Whether they differ so much that pairs of this kind were copied one at a time from then on.
    pub apart: bool,
}

/// Overlap of a copy with a kernel, in one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Overlap {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Streams and host.
    pub placement: Placement,
    /// The device on whose default stream the kernel ran.
    pub compute_on: Side,
    /// Bytes that were copied.
    pub bytes: Bytes,
    /// Share of the kernel's time during which the copy ran, per cent, median.
    pub overlap_percent: Option<f64>,
    /// Time that the host spent in the copy call, waiting included, microseconds, median.
    pub host_blocked_us: Option<f64>,
    /// Duration of the copy, microseconds, median.
    pub copy_us: Option<f64>,
    /// Duration of the kernel, microseconds, median.
    pub kernel_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// How the measurement ended.
    pub status: Status,
    /// Why there is no figure.
    pub reason: Option<String>,
    /// Whether another program moved data over the same links or worked on the same GPUs: the figure is
    /// shown, and nothing is judged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

/// Time of one small copy in a row of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Direct or through host memory.
    pub path: Path,
    /// Size of one copy.
    pub bytes: Bytes,
    /// Median time of one copy, microseconds.
    pub latency_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median, per cent.
    pub spread_percent: Option<f64>,
    /// How the measurement ended.
    pub status: Status,
    /// Why there is no figure.
    pub reason: Option<String>,
    /// Whether another program moved data over the same links or worked on the same GPUs: the figure is
    /// shown, and nothing is judged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

/// Copies within one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LocalCopy {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Size of one copy.
    pub bytes: Bytes,
    /// Median over the samples: bytes copied per second, not read plus written.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Number of samples, each a row of copies.
    pub samples: u32,
    /// (Largest - smallest) / median, per cent.
    pub spread_percent: Option<f64>,
    /// How the measurement ended.
    pub status: Status,
    /// Why there is no figure.
    pub reason: Option<String>,
    /// Whether another program moved data over the links of this GPU or worked on it: the figure is shown, and
    /// nothing is judged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}
