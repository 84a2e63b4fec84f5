//! Results of the probes, cell by cell, each with its status and reason.

use serde::{Deserialize, Serialize};

use super::asynchrony::{Hazard, HostCall, LaunchLoop};
use super::background::Background;
use super::broken_off::BrokenOff;
pub use super::cell::Cell;
use super::cell::{Measurement, ended, figures};
use super::collective::AllReduce;
pub use super::cuda::{
    CudaDevice, CudaPeerAccess, DriverFacts, Hidden, Hindrance, PeerAccess, RdmaSupport,
};
use super::flow::{Endpoint, Flow, Setup};
use super::host::{HostCopy, Pinning};
use super::load::{Counted, LoadPattern};
use super::pipeline::{Engines, Pipeline};
use super::placement::{Pair, Path, Placement, Side};
pub use super::probe::Probe;
pub use super::status::{Status, Verified};
pub use super::under_load::{
    AerAdded, AroundLoad, GpuReadings, LinkState, LinkUnderLoad, NvLinkErrorsAdded,
};
use super::units::{Bytes, GbPerSecond};

/// Everything that was measured, and everything that was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Measurements {
    /// Profile that chose the probes.
    pub profile: String,
    /// State of the driver when the worker opened it.
    pub driver: DriverFacts,
    /// Bandwidth between GPUs.
    pub peer: Vec<PeerBandwidth>,
    /// Pairs that were copied at once, compared with one of these pairs copied alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_once: Vec<AtOnce>,
    /// Overlap of copies with kernels.
    pub overlap: Vec<Overlap>,
    /// Latency of small copies.
    pub latency: Vec<Latency>,
    /// Copies within each GPU. Empty in reports older than that probe.
    #[serde(default)]
    pub local: Vec<LocalCopy>,
    /// Copies between host and GPU. Empty in reports older than that probe.
    #[serde(default)]
    pub host: Vec<HostCopy>,
    /// Cost of page-locking host memory. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinning: Vec<Pinning>,
    /// Pipelines of copies and kernels. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Pipeline>,
    /// Copies of a GPU that run at the same time. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<Engines>,
    /// Time that calls block the host. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HostCall>,
    /// Loops of small launches with a wait in each turn. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launch_loop: Vec<LaunchLoop>,
    /// Data that is read before the end of a non-blocking copy. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hazard: Vec<Hazard>,
    /// Several flows at once. Empty if not measured.
    #[serde(default)]
    pub load: Vec<LoadPattern>,
    /// Counters during such traffic. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<Counted>,
    /// Upper bounds for an all-reduce, derived from such figures. Empty if these were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_reduce: Vec<AllReduce>,
    /// PCIe links and counters while copies ran.
    pub links: Vec<LinkUnderLoad>,
    /// PCI functions on the way to the GPUs whose AER counters rose during the run.
    #[serde(default)]
    pub aer_added: Vec<AerAdded>,
    /// Counters, clocks and temperatures of each GPU around the load patterns. Empty if no pattern ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around_load: Vec<AroundLoad>,
    /// The functions of `aer_added`, with the part of the counts that was added while the load patterns ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aer_added_around_load: Vec<AerAdded>,
    /// Activity of each GPU while this program left it idle. Empty if it could not be read.
    #[serde(default)]
    pub background: Vec<Background>,
    /// Impossible figures that the run arrived at and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impossible: Vec<Impossible>,
    /// Rounds that broke off and succeeded when their flows were tried again. No cell shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_off: Vec<BrokenOff>,
    /// Problems outside single cells, such as a worker that had to be replaced, a sentence each.
    pub problems: Vec<String>,
    /// Values that a limit of the process kept from being watched while copies ran, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<String>,
    /// Parts of the profile that were left out on purpose, a sentence each. With many GPUs, not everything is
    /// measured on every pair.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Parts of the profile that are measured on some pairs only, because more of them would show nothing new, a
    /// sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinned_out: Vec<String>,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// True if the run was cut off, for example killed, and the report was recovered from its journal. Rounds without
    /// an outcome are missing, as are counters that are read at the end.
    #[serde(default)]
    pub cut_off: bool,
    /// Number of requested measurements for which a saved report has no row. Not written, because it is counted from
    /// the request and the rows when the report is read.
    #[serde(skip)]
    pub absent: u32,
}

/// Lists the tables of measurements, in the order of the report, and everything else. A table that is in neither list does
/// not compile.
macro_rules! tables {
    ($($table:ident),* $(,)?; other $($other:ident),* $(,)?) => {
        impl Measurements {
            /// Returns every planned measurement, in the order of the report.
            pub fn each(&self) -> impl Iterator<Item = &dyn Measurement> {
                let Self { $($table,)* $($other: _,)* } = self;
                std::iter::empty()
                    $(.chain($table.iter().map(|one| one as &dyn Measurement)))*
            }

            /// Returns the same, mutable.
            pub fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn Measurement> {
                let Self { $($table,)* $($other: _,)* } = self;
                std::iter::empty()
                    $(.chain($table.iter_mut().map(|one| one as &mut dyn Measurement)))*
            }
        }
    };
}

tables!(
    peer, overlap, latency, local, host, pinning, pipeline, engines, calls, launch_loop, hazard, load;
    other profile, driver, at_once, counted, all_reduce, links, aer_added, around_load, aer_added_around_load, background,
    impossible, broken_off, problems, limited, left_out, thinned_out, interrupted, cut_off, absent
);

impl Measurements {
    /// Returns the cells of every planned measurement, in the order of the report.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let parts = |one: &dyn Measurement| 0..one.parts();
        self.each()
            .flat_map(move |one| parts(one).map(move |number| one.part(number)))
    }

    /// Returns the measurements on one GPU: pipelines, copy engines, calls, launch loops and hazards.
    pub fn on_one_gpu(&self) -> impl Iterator<Item = &dyn Measurement> {
        self.each().filter(|one| one.probe().is_on_one_gpu())
    }
}

/// An impossible figure: not a number, or not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Impossible {
    /// The flow: `GPU 0 → GPU 1`.
    pub flow: String,
    /// The measurement that the figure belonged to.
    pub measurement: String,
    /// Key of the figure, its value, and why it is impossible.
    pub why: String,
}

/// Bandwidth from one GPU to another in one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PeerBandwidth {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Setup of the copy.
    #[serde(flatten)]
    pub setup: Setup,
    /// Bytes divided by the time of a plain row of copies, for this direction only, median over the rows. Nothing is
    /// subtracted.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Payload rate of the narrowest hop of the route.
    pub theoretical_gbps: Option<GbPerSecond>,
    /// Achieved rate as a percentage of the theoretical rate.
    pub percent: Option<f64>,
    /// Rate that healthy machines reach on a route of this class. Null if the theoretical rate is not known.
    #[serde(default)]
    pub expected_gbps: Option<GbPerSecond>,
    /// Lowest rate that healthy machines are known to have reached there. Null if none is known.
    #[serde(default)]
    pub expected_low_gbps: Option<GbPerSecond>,
    /// Highest rate that healthy machines are known to have reached there. Null if none is known.
    #[serde(default)]
    pub expected_high_gbps: Option<GbPerSecond>,
    /// Achieved rate as a percentage of the expected rate.
    #[serde(default)]
    pub expected_percent: Option<f64>,
    /// Number of rows.
    pub samples: u32,
    /// (Largest - smallest) / median of the rows, per cent.
    pub spread_percent: Option<f64>,
    /// Fixed cost of one copy in a row, beside its bytes, microseconds, from rows of small copies. Null if not
    /// measured. Reports from before 2026-11-22 subtracted it in `achieved_gbps`.
    #[serde(default)]
    pub fixed_cost_us: Option<f64>,
    /// Rate that a copy of unlimited size would reach, without the fixed cost. Null if not measured.
    #[serde(default)]
    pub asymptotic_gbps: Option<GbPerSecond>,
    /// Time that the host spent in the calls that enqueued one copy with its ordering, waiting included,
    /// microseconds.
    pub host_blocked_us: Option<f64>,
    /// Pairs that were copied at the same time, this one included. 1 is this pair alone.
    #[serde(default = "alone")]
    pub at_once: u32,
    /// Result of checking the bytes, when they were verified and after the timed copies.
    pub verified: Verified,
    /// Description of the wrong bytes. Null if nothing was wrong.
    #[serde(default)]
    pub verification_detail: Option<String>,
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the same links or worked on the same GPUs. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Measurement for PeerBandwidth {
    fn probe(&self) -> Probe {
        Probe::Bandwidth
    }

    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        self.setup
    }

    fn what(&self) -> String {
        format!("{}, {}", self.setup, self.setup.bytes)
    }

    fn verified(&self) -> Verified {
        self.verified
    }

    figures! {
        measured {
            achieved_gbps: Rate,
            percent: Percent,
            expected_percent: Percent,
            spread_percent: Amount,
            fixed_cost_us: Amount,
            asymptotic_gbps: Rate,
            host_blocked_us: Amount,
        }
        given {
            theoretical_gbps: Rate,
            expected_gbps: Rate,
            expected_low_gbps: Rate,
            expected_high_gbps: Rate,
        }
        other { pair, setup, samples, at_once, verified, verification_detail, status, reason, disturbed }
    }

    ended!();
}

const fn alone() -> u32 {
    1
}

/// One of several pairs that were copied at once, and the same pair alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AtOnce {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Setup of the copy.
    #[serde(flatten)]
    pub setup: Setup,
    /// Rate while others were copied, median of the rows.
    pub at_once_gbps: GbPerSecond,
    /// Rate alone, median of the rows.
    pub alone_gbps: GbPerSecond,
    /// Amount by which `at_once_gbps` exceeds `alone_gbps`, per cent.
    pub difference_percent: f64,
    /// True if the rates differ so much that pairs of this kind were copied one at a time from then on.
    pub apart: bool,
}

/// Overlap of a copy with a kernel, in one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Overlap {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Streams of the copy, and the host mode.
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
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the same links or worked on the same GPUs. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Measurement for Overlap {
    fn probe(&self) -> Probe {
        Probe::Overlap
    }

    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE
            .with_placement(self.placement)
            .with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!(
            "{}, {}, kernel on {}",
            self.setup(),
            self.bytes,
            self.compute_on
        )
    }

    figures! {
        measured { overlap_percent: Share, host_blocked_us: Amount, copy_us: Amount, kernel_us: Amount }
        other { pair, placement, compute_on, bytes, samples, status, reason, disturbed }
    }

    ended!();
}

/// Time of one small copy in a row of small copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Latency {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Direct, or through host memory.
    pub path: Path,
    /// Size of one copy.
    pub bytes: Bytes,
    /// Median time of one copy, microseconds.
    pub latency_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median, per cent.
    pub spread_percent: Option<f64>,
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the same links or worked on the same GPUs. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Measurement for Latency {
    fn probe(&self) -> Probe {
        Probe::Latency
    }

    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_path(self.path).with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{}, {}", self.setup(), self.bytes)
    }

    figures! {
        measured { latency_us: Duration, spread_percent: Amount }
        other { pair, path, bytes, samples, status, reason, disturbed }
    }

    ended!();
}

/// Copies within one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LocalCopy {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Size of one copy.
    pub bytes: Bytes,
    /// Bytes copied per second, not read plus written, median over the samples.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Number of samples, each a row of copies.
    pub samples: u32,
    /// (Largest - smallest) / median, per cent.
    pub spread_percent: Option<f64>,
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the links of this GPU or worked on it. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Measurement for LocalCopy {
    fn probe(&self) -> Probe {
        Probe::Local
    }

    fn flow(&self) -> Flow {
        Flow {
            from: Endpoint::Gpu(self.gpu),
            to: Endpoint::Gpu(self.gpu),
        }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        self.bytes.to_string()
    }

    figures! {
        measured { achieved_gbps: Rate, spread_percent: Amount }
        other { gpu, bytes, samples, status, reason, disturbed }
    }

    ended!();
}
