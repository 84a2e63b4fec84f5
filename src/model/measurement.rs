//! Results of the probes, cell by cell, each with its status and reason.

use serde::{Deserialize, Serialize};

use super::addresses::MemoryReach;
use super::asynchrony::{Hazard, HostCall, LaunchLoop};
use super::background::Background;
use super::broken_off::BrokenOff;
pub use super::cell::Cell;
use super::cell::Measurement;
use super::collective::AllReduce;
use super::contention::Contention;
use super::counted::Counted;
pub use super::cuda::{
    CudaAttributes, CudaDevice, CudaPeerAccess, DriverFacts, Hidden, Hindrance, PeerAccess,
    RdmaSupport,
};
use super::flow::Flow;
use super::host::{HostCopy, Pinning};
pub use super::latency::Latency;
use super::links::SingleLink;
use super::live::{LiveTalk, PointerChase};
use super::load::LoadPattern;
pub use super::local::LocalCopy;
pub use super::overlap::Overlap;
pub use super::peer::{AtOnce, PeerBandwidth};
use super::pipeline::{Engines, Pipeline};
use super::probe::probes;
pub use super::probe::{Failures, Probe, Scope, Work};
pub use super::sharing::{Obstacle, Rung, Sharing};
use super::soak::Soak;
pub use super::status::{Status, Verified};
pub use super::under_load::{
    AerAdded, LinkState, LinkUnderLoad, NvLinkCorrected, NvLinkErrorsAdded,
};

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
    /// Copies and kernels that ran at the same time. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<Contention>,
    /// Latency of small copies.
    pub latency: Vec<Latency>,
    /// Kernels that talk to each other while they run. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<LiveTalk>,
    /// Latency of loads from the memory of other GPUs, of the GPU itself and of the host. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chase: Vec<PointerChase>,
    /// Each NVLink of each pair by itself. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlinks: Vec<SingleLink>,
    /// Addresses all over the memory of each GPU, as others reach them. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MemoryReach>,
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
    /// Memory that one process handed to another. Empty if not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<Sharing>,
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
    /// Copies that were measured after the plan, because its figures had several explanations. Empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub second_looks: Vec<SecondLook>,
    /// Hours under load after the plan. Null if none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Box<Soak>>,
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

/// Declares the tables of measurements, of the probes in their list, and of everything else. A table that is in neither list
/// does not compile.
macro_rules! tables {
    (
        $($(#[$about:meta])* $probe:ident $word:literal in $scope:ident by $work:ident,
        failures $failures:ident: $table:ident of $cell:ident;)*
    ) => {
        tables! {
            $($table: $cell),*;
            other profile, driver, at_once, counted, all_reduce, links, aer_added,
            background, impossible, broken_off, problems, limited, left_out, thinned_out, second_looks, soak,
            interrupted, cut_off, absent
        }
    };
    ($($table:ident: $cell:ident),*; other $($other:ident),*) => {
        /// The tables of measurements. Code that lists all of them takes it apart, so that a new one does not compile there.
        #[derive(Debug, Clone, Copy)]
        pub struct Tables<'a> {
            $(pub $table: &'a [$cell],)*
        }

        impl Measurements {
            /// The keys of the tables in the report, in its order.
            pub const TABLES: &[&str] = &[$(stringify!($table)),*];

            pub fn tables(&self) -> Tables<'_> {
                let Self { $($table,)* .. } = self;
                Tables { $($table,)* }
            }

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

            /// Keeps the measurements for which this is true.
            pub fn retain(&mut self, keep: impl Fn(&dyn Measurement) -> bool) {
                let Self { $($table,)* $($other: _,)* } = self;
                $($table.retain(|one| keep(one));)*
            }

            /// Returns the names of everything that measurements are planned with, each once.
            pub fn axes() -> Vec<&'static str> {
                let mut names = Vec::new();
                for name in [$($cell::axis_names()),*].concat() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                names
            }
        }
    };
}

probes!(tables);

impl Measurements {
    /// Returns the cells of every planned measurement, in the order of the report.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let parts = |one: &dyn Measurement| 0..one.parts();
        self.each().flat_map(move |one| parts(one).map(move |number| one.part(number)))
    }
}

/// Copies that tell explanations of other figures apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SecondLook {
    /// One flow alone, or several at once.
    pub flows: Vec<Flow>,
    /// The explanations that predict different rates for them: `PCIe link of GPU 3`.
    pub between: Vec<String>,
}

impl SecondLook {
    /// Returns words such as `GPU 2 → GPU 3, to tell apart: GPU 2; GPU 3`.
    pub fn words(&self) -> String {
        let flows: Vec<String> = self.flows.iter().map(ToString::to_string).collect();
        let at_once = if flows.len() > 1 { " at once" } else { "" };
        format!("{}{at_once}, to tell apart: {}", flows.join(" and "), self.between.join("; "))
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
