//! What is wrong with a simulated machine.

use serde::{Deserialize, Serialize};

use super::{HostWay, MachineSpec, NvLinkErrors, Pairs, text};
use model::background::Moment;
use model::flow::HostMemory;
use model::placement::{Engine, Path, Side};
use model::snapshot::{ComputeMode, PcieErrors};
use model::units::{PciAddress, PcieLink};

/// What is wrong with a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Pairs whose copies go wrong; the first that fits a copy holds.
    pub pairs: Vec<PairFault>,
    /// PCIe links that do something while copies run.
    pub links: Vec<LinkFault>,
    /// NVLinks that count errors while copies run.
    pub nvlinks: Vec<NvLinkFault>,
    /// GPUs that fell off the bus: NVML counts them and cannot open them, CUDA does not show them.
    pub lost_gpus: Vec<u32>,
    /// How `cuInit` fails.
    pub cuda_init: Option<InitFault>,
    /// GPUs whose context cannot be created.
    pub contexts: Vec<ContextFault>,
    /// The sentence with which loading the GPU kernels fails.
    pub kernels: Option<String>,
    /// Streams cannot be held either.
    pub no_hold: bool,
    /// GPUs that begin late with what holds their streams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late_gates: Vec<LateGate>,
    /// What other programs do with GPUs. It shows in counters alone: copies that it slows down are
    /// described as pairs.
    pub others: Vec<OthersWork>,
    /// GPUs whose direct copies grow slower over the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<Drift>,
    /// What carries less in all as soon as several flows pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collapses: Vec<Collapse>,
    /// What lets the flows of a GPU have too little as soon as several pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starved: Vec<Starved>,
    /// Copies between host and GPU that go wrong; the first that fits a copy holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostFault>,
    /// What counters of traffic show other than it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterFault>,
    /// Pairs whose direct copies go over PCIe although NVLinks join them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_pcie: Vec<Pairs>,
    /// How page-locking memory of the host fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinning: Option<InitFault>,
}

/// A GPU that begins late with what holds its streams, as one does that other programs use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateGate {
    /// NVML's index.
    pub gpu: u32,
    /// How late, microseconds.
    pub us: f64,
    /// How often, from the start of the driver on; always where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

/// A GPU whose direct copies, to it and from it, grow slower evenly over a time and stay so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    pub gpu: u32,
    /// What is lost of the rate in the end, per cent.
    pub percent: f64,
    /// From the start of the driver on, milliseconds of the simulated clock.
    pub over_ms: f64,
}

/// Something that carries less in all as soon as several flows pass it in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collapse {
    pub at: Shared,
    /// What the flows have together then, GB/s.
    pub gbps: f64,
}

/// A GPU whose flows have too little of something as soon as several flows pass it in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starved {
    /// Of what.
    pub at: Shared,
    /// The GPU, by NVML's index: flows from it and to it.
    pub gpu: u32,
    /// The most that each of them has of what all have together, from 0 to 1.
    pub part: f64,
}

/// Something that flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shared {
    /// The PCIe link above this function, which is its lower end.
    Pci(PciAddress),
    /// An uplink, by its place.
    Uplink(usize),
    /// The interconnect of the sockets.
    Interconnect,
    /// The NVLinks from a GPU to the switches.
    Nvlinks(u32),
}

/// What other programs do with a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OthersWork {
    pub gpu: u32,
    /// When; all the time where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_at: Option<Moment>,
    /// Data sent and received over its NVLinks, GB/s.
    #[serde(default)]
    pub nvlink: [f64; 2],
    /// Bytes sent and received over PCIe, GB/s.
    #[serde(default)]
    pub pcie: [f64; 2],
    /// Its utilisation, per cent.
    #[serde(default)]
    pub utilization: u8,
    /// Whether NVML gives an error instead of the counters that would show it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// Whether it is there only while counters are read around load patterns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_under_load: bool,
}

impl OthersWork {
    /// Whether it is there only while load patterns run.
    pub fn is_only_under_load(&self) -> bool {
        self.only_under_load || self.only_at == Some(Moment::Load)
    }
}

/// A GPU whose counters of traffic are odd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterFault {
    pub gpu: u32,
    /// Links that carry more or less than the others.
    #[serde(default)]
    pub links: Vec<LinkPart>,
    /// What is counted of what moved over NVLinks: 1 is all.
    #[serde(default = "all")]
    pub counted: f64,
    /// Whether NVML gives an error instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// Whether this GPU or driver has no such counters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsupported: bool,
}

const fn all() -> f64 {
    1.0
}

/// What a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    pub link: u8,
    /// Beside 1, which others carry.
    pub part: f64,
}

/// A GPU whose context cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFault {
    pub gpu: u32,
    /// The code that `cuDevicePrimaryCtxRetain` gives.
    pub code: u32,
    pub meaning: String,
    /// The compute mode that NVML shows with it.
    pub compute_mode: ComputeMode,
}

/// Pairs whose copies go wrong, and how.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairFault {
    pub pairs: Pairs,
    pub fault: CopyFault,
    /// Copies of this engine alone; both where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Copies that this side issues alone: writes those of the source, reads those of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Side>,
    /// Copies on this path alone: direct ones, or those through host memory.
    #[serde(default = "direct", skip_serializing_if = "is_direct")]
    pub path: Path,
    /// Only while the opposite direction is busy too.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub both_ways: bool,
    /// Only while another flow is busy at one of the two GPUs.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub under_load: bool,
    /// Only while one of the two GPUs copies with somebody else as well.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub beside_third: bool,
    /// Only while at least so many flows are on their way on the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_at_once: Option<u32>,
    /// How often it shows at most until the driver is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl PairFault {
    /// One of direct copies by any engine, whatever the opposite direction does.
    pub const fn new(pairs: Pairs, fault: CopyFault) -> Self {
        let (engine, issuer, path) = (None, None, Path::Direct);
        let (both_ways, under_load, beside_third) = (false, false, false);
        let (flows_at_once, times) = (None, None);
        Self {
            pairs,
            fault,
            engine,
            issuer,
            path,
            both_ways,
            under_load,
            beside_third,
            flows_at_once,
            times,
        }
    }

    /// Whether it depends on what else is busy.
    pub const fn is_conditional(&self) -> bool {
        self.both_ways || self.under_load || self.beside_third || self.flows_at_once.is_some()
    }
}

const fn direct() -> Path {
    Path::Direct
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_direct(path: &Path) -> bool {
    *path == Path::Direct
}

/// How a copy goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CopyFault {
    /// It takes its time and no byte arrives.
    Dropped,
    /// This many 8-byte words, spread evenly, arrive wrong.
    Corrupt { words: u64 },
    /// The bytes come from the buffer of another GPU, at the same place.
    WrongSource,
    /// The bytes arrive this much further on, those at the end at the beginning.
    Shifted {
        /// How far.
        bytes: u64,
    },
    /// One bit arrives flipped.
    FlippedBit {
        /// Which, counted from the beginning; from the beginning again where the copy is shorter.
        bit: u64,
    },
    /// The last bytes do not arrive.
    MissingTail { bytes: u64 },
    /// What the last copy to the same GPU brought arrives again.
    Stale,
    /// It reaches this share of the rate that it should.
    Slow {
        /// From 0 to 1.
        share: f64,
    },
    /// Every copy takes longer by a share drawn evenly between nothing and this much.
    Unstable {
        /// The most, per cent.
        percent: f64,
    },
    /// One copy in so many, drawn by chance, takes so many times as long.
    Outliers {
        /// How many copies there are for one of them.
        one_in: u32,
        /// How many times as long it takes.
        times: f64,
    },
    /// It ends well, and a later call for the device that issued it gives an error, as every one does from then on.
    LateError {
        /// CUDA's code.
        code: u32,
        /// Which call it is, counted from the end of the copy.
        calls: u32,
    },
    /// It never ends.
    Hangs,
    /// It ends the process.
    Crashes,
}

/// How `cuInit` or another call of the driver fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitFault {
    /// CUDA's code.
    pub code: u32,
    pub meaning: String,
}

/// What a PCIe link does while copies run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFault {
    /// The function at its lower end.
    pub function: PciAddress,
    /// What it trains down to, after it was seen at what it should be.
    #[serde(default, with = "text::link", skip_serializing_if = "Option::is_none")]
    pub trains_down_to: Option<PcieLink>,
    /// Replays that are counted.
    #[serde(default)]
    pub replays: u64,
    /// Errors that are counted.
    #[serde(default)]
    pub errors: PcieErrors,
    /// Whether replays and errors are counted only while several flows run at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_under_load: bool,
}

/// Errors that an NVLink counts while copies run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkFault {
    pub gpu: u32,
    pub link: u32,
    pub errors: NvLinkErrors,
    /// Whether it is counted only while several flows run at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_under_load: bool,
}

/// Copies between host and GPU that go wrong, and how. What is not given holds for all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFault {
    /// Copies of this GPU alone, by NVML's index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Memory of this NUMA node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Memory that was allocated so alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<HostMemory>,
    /// This direction alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<HostWay>,
    /// How. Bytes from a wrong source or an earlier copy, and errors that come late, are faults of copies between GPUs.
    pub fault: CopyFault,
}

impl MachineSpec {
    /// What is wrong with such a copy, if something is.
    pub fn host_fault(
        &self,
        gpu: u32,
        node: u32,
        memory: HostMemory,
        way: HostWay,
    ) -> Option<CopyFault> {
        let fits = |fault: &&HostFault| {
            fault.gpu.is_none_or(|only| only == gpu)
                && fault.node.is_none_or(|only| only == node)
                && fault.memory.is_none_or(|only| only == memory)
                && fault.direction.is_none_or(|only| only == way)
        };
        self.faults.host.iter().find(fits).map(|fault| fault.fault)
    }
}
