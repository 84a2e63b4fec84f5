//! What the probes measured, cell by cell, each with its status and reason.

use serde::{Deserialize, Serialize};

use super::asynchrony::{Hazard, HostCall, LaunchLoop};
use super::background::Background;
use super::broken_off::BrokenOff;
use super::collective::AllReduce;
pub use super::cuda::{
    CudaDevice, CudaPeerAccess, DriverFacts, Hidden, Hindrance, PeerAccess, RdmaSupport,
};
use super::flow::Setup;
use super::host::{HostCopy, Pinning};
use super::load::{Counted, LoadPattern};
use super::one_gpu::OneGpu;
use super::pipeline::{Engines, Pipeline};
use super::placement::{Pair, Path, Placement, Side};
pub use super::probe::{Cell, Probe};
pub use super::status::{Status, Verified};
pub use super::under_load::{
    AerAdded, AroundLoad, GpuReadings, LinkState, LinkUnderLoad, NvLinkErrorsAdded,
};
use super::units::{Bytes, GbPerSecond};

/// Everything that was measured, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
    /// Copies between host and GPU. Empty in reports that are older than that probe.
    #[serde(default)]
    pub host: Vec<HostCopy>,
    /// What it costs to page-lock memory of the host. Empty where that was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinning: Vec<Pinning>,
    /// Pipelines of copies and kernels. Empty where they were not measured, like the next four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Pipeline>,
    /// Which copies of a GPU run at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<Engines>,
    /// How long calls hold the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HostCall>,
    /// Loops of small launches with a wait in each turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launch_loop: Vec<LaunchLoop>,
    /// What is read before the end of a copy that does not block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hazard: Vec<Hazard>,
    /// Several flows at once. Empty where that was not measured.
    #[serde(default)]
    pub load: Vec<LoadPattern>,
    /// What counters saw of such traffic. Empty where that was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<Counted>,
    /// What an all-reduce could reach, from such figures. Empty where they were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_reduce: Vec<AllReduce>,
    /// PCIe links and counters while copies ran.
    pub links: Vec<LinkUnderLoad>,
    /// PCI functions on the way to the GPUs whose AER counters rose during the run.
    #[serde(default)]
    pub aer_added: Vec<AerAdded>,
    /// Counters, clocks and heat of each GPU around the load patterns. Empty where none ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around_load: Vec<AroundLoad>,
    /// The same functions as in `aer_added`, and what was counted of it while the load patterns ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aer_added_around_load: Vec<AerAdded>,
    /// What each GPU did while this program left it alone. Empty where that could not be read.
    #[serde(default)]
    pub background: Vec<Background>,
    /// Figures that cannot be, which the run came to and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impossible: Vec<Impossible>,
    /// Rounds that broke off and worked when their flows were tried again: no cell shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_off: Vec<BrokenOff>,
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
    /// How many measurements were asked for of which a saved report has no row. Not written: what was asked for and the
    /// rows that are there say it when the report is read.
    #[serde(skip)]
    pub absent: u32,
}

impl Measurements {
    /// Everything that was to be measured, in the order of the report.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let peer = self.peer.iter().map(PeerBandwidth::cell);
        let overlap = self.overlap.iter().map(Overlap::cell);
        let latency = self.latency.iter().map(Latency::cell);
        let local = self.local.iter().map(LocalCopy::cell);
        let host = self
            .host
            .iter()
            .map(HostCopy::cell)
            .chain(self.pinning.iter().map(Pinning::cell));
        let one_gpu = self.on_one_gpu().map(OneGpu::cell);
        let load = self.load.iter().flat_map(LoadPattern::cells);
        peer.chain(overlap)
            .chain(latency)
            .chain(local)
            .chain(host)
            .chain(one_gpu)
            .chain(load)
    }
}

/// A figure that cannot be: no number, or no quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Impossible {
    /// From where to where: `GPU 0 → GPU 1`.
    pub flow: String,
    /// Which measurement it was of.
    pub measurement: String,
    /// Its key, what it was and why it cannot be.
    pub why: String,
}

/// Bandwidth from one GPU to another in one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
