//! The faults of a simulated machine.

use serde::{Deserialize, Serialize};

use super::copy_faults::{CopyFault, PairFault, PairTalkFault, WindowFault};
use super::numbers::error_code;
use super::{
    Counted, FlagTimes, HostWay, Loss, MachineSpec, Micros, Millis, NvLinkErrors, Pairs, Rate,
    Ratio, SharingFault, Traffic, Utilization, text,
};
use model::background::Moment;
use model::flow::HostMemory;
use model::snapshot::{ComputeMode, PcieErrors};
use model::units::{PciAddress, PcieLink};

/// The faults of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Pairs whose copies go wrong; the first entry that matches a copy applies.
    pub pairs: Vec<PairFault>,
    /// PCIe links with a fault while copies run.
    pub links: Vec<LinkFault>,
    /// NVLinks that count errors while copies run, or are unlike the others of their GPU.
    pub nvlinks: Vec<NvLinkFault>,
    /// GPUs that fell off the bus: NVML counts them and cannot open them, CUDA does not show them.
    pub lost_gpus: Vec<u32>,
    /// Failure of `cuInit`.
    pub cuda_init: Option<InitFault>,
    /// GPUs whose context cannot be created.
    pub contexts: Vec<ContextFault>,
    /// The sentence with which loading the GPU kernels fails.
    pub kernels: Option<String>,
    /// True if streams cannot be held either.
    pub no_hold: bool,
    /// True if the first copy between two GPUs waits for all earlier work, as where the driver sets their channel up then.
    /// Behind a closed gate it waits until the gate opens by itself.
    pub lazy_peers: bool,
    /// True if work for the default stream of a thread runs on the legacy default stream.
    pub per_thread_is_default: bool,
    /// GPUs that begin late with the gates of their streams.
    pub late_gates: Vec<LateGate>,
    /// Work of other programs on GPUs. It only shows in counters; copies that it slows down are described as pairs.
    pub others: Vec<OthersWork>,
    /// GPUs whose direct copies grow slower over the run.
    pub drifts: Vec<Drift>,
    /// Hops that carry less in all as soon as several flows pass.
    pub collapses: Vec<Collapse>,
    /// Copies between host and GPU that go wrong; the first entry that matches a copy applies.
    pub host: Vec<HostFault>,
    /// Wrong traffic counters.
    pub counters: Vec<CounterFault>,
    /// Pairs whose direct copies go over PCIe although NVLinks join them.
    pub over_pcie: Vec<Pairs>,
    /// Pairs whose kernels do not see each other's stores as they should while both run; the first entry that matches applies.
    pub talk: Vec<PairTalkFault>,
    /// Ranges of a GPU's memory that direct copies of other GPUs do not reach; the first entry that matches a copy applies.
    pub windows: Vec<WindowFault>,
    /// Failure to page-lock memory of the host.
    pub pinning: Option<InitFault>,
    /// Ways to share memory between processes that go wrong.
    pub sharing: Vec<SharingFault>,
}

/// A GPU that begins late with the gates of its streams, like one that other programs use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateGate {
    /// NVML's index.
    pub gpu: u32,
    /// Delay, microseconds.
    pub us: Micros,
    /// Number of times, from the start of the driver on; always if omitted.
    pub times: Option<u32>,
}

/// A GPU whose direct copies, to it and from it, grow slower evenly over a time and stay so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    pub gpu: u32,
    /// Final loss of the rate, per cent.
    pub percent: Loss,
    /// Time from the start of the driver on, milliseconds of the simulated clock.
    pub over_ms: Millis,
}

/// A hop that carries less in all as soon as several flows pass it in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collapse {
    pub at: Shared,
    /// Total rate of the flows then, GB/s.
    pub gbps: Rate,
}

/// A resource that flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shared {
    /// The PCIe link above this function, which is its lower end.
    Pci(PciAddress),
    /// An uplink, by its index.
    Uplink(usize),
    /// The interconnect of the sockets.
    Interconnect,
    /// The NVLinks from a GPU to the switches.
    Nvlinks(u32),
}

/// Work of other programs on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OthersWork {
    pub gpu: u32,
    /// Moment of the work; all the time if omitted.
    pub only_at: Option<Moment>,
    /// Data sent and received over its NVLinks, GB/s.
    #[serde(default)]
    pub nvlink: [Traffic; 2],
    /// Bytes sent and received over PCIe, GB/s.
    #[serde(default)]
    pub pcie: [Traffic; 2],
    /// Its utilisation, per cent.
    #[serde(default)]
    pub utilization: Utilization,
    /// True if NVML returns an error instead of the counters that would show it.
    #[serde(default)]
    pub unread: bool,
    /// True if it is there only while counters are read around load patterns.
    #[serde(default)]
    pub only_under_load: bool,
}

impl OthersWork {
    /// Returns true if it is there only while load patterns run.
    pub fn is_only_under_load(&self) -> bool {
        self.only_under_load || self.only_at == Some(Moment::Load)
    }
}

/// A GPU with wrong traffic counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterFault {
    pub gpu: u32,
    /// Links that carry more or less than the others.
    #[serde(default)]
    pub links: Vec<LinkPart>,
    /// Share of the NVLink traffic that is counted: 1 is all.
    #[serde(default = "all")]
    pub counted: Counted,
    /// True if NVML returns an error instead.
    #[serde(default)]
    pub unread: bool,
    /// True if this GPU or driver lacks such counters.
    #[serde(default)]
    pub unsupported: bool,
}

const fn all() -> Counted {
    Counted(1.0)
}

/// The traffic of one link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    pub link: u8,
    /// Traffic relative to the other links, which carry 1.
    pub part: Counted,
}

/// A GPU whose context cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFault {
    pub gpu: u32,
    /// The code that `cuDevicePrimaryCtxRetain` returns.
    #[serde(deserialize_with = "error_code")]
    pub code: u32,
    pub meaning: String,
    /// The compute mode that NVML then shows.
    pub compute_mode: ComputeMode,
}

/// The failure of `cuInit` or another call of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitFault {
    /// CUDA's code.
    #[serde(deserialize_with = "error_code")]
    pub code: u32,
    pub meaning: String,
}

/// The behaviour of a PCIe link while copies run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFault {
    /// The function at its lower end.
    pub function: PciAddress,
    /// Link state that it trains down to, after it was seen at its full state.
    #[serde(default, with = "text")]
    pub trains_down_to: Option<PcieLink>,
    /// Replays that it counts.
    #[serde(default)]
    pub replays: u64,
    /// Errors that it counts.
    #[serde(default)]
    pub errors: PcieErrors,
    /// True if replays and errors are counted only while several flows run at the same time.
    #[serde(default)]
    pub only_under_load: bool,
}

/// An NVLink with errors, or unlike the others of its GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkFault {
    pub gpu: u32,
    pub link: u32,
    /// Errors that it counts while copies run.
    #[serde(default)]
    pub errors: NvLinkErrors,
    /// Only its way to this GPU is slow or late; all ways if omitted.
    pub to: Option<u32>,
    /// The slow direction; both if omitted.
    pub only: Option<LinkWay>,
    /// Share of its rate that it reaches. Copies are spread over all links, so that they wait for the slowest.
    #[serde(default = "whole_rate")]
    pub rate: Ratio,
    /// Factor of the time that a load takes over it.
    #[serde(default = "in_time")]
    pub latency: FlagTimes,
    /// True if it is up and nothing is sent over it.
    #[serde(default)]
    pub unused: bool,
    /// True if it is counted only while several flows run at the same time.
    #[serde(default)]
    pub only_under_load: bool,
}

/// A direction of a link, as its GPU sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkWay {
    /// From the GPU.
    Sent,
    /// To the GPU.
    Received,
}

impl NvLinkFault {
    /// Creates a link that counts these errors.
    pub const fn new(gpu: u32, link: u32, errors: NvLinkErrors) -> Self {
        let (rate, latency) = (whole_rate(), in_time());
        let (to, only, unused, only_under_load) = (None, None, false, false);
        Self { gpu, link, errors, to, only, rate, latency, unused, only_under_load }
    }
}

const fn whole_rate() -> Ratio {
    Ratio(1.0)
}

const fn in_time() -> FlagTimes {
    FlagTimes(1.0)
}

/// Copies between host and GPU that go wrong, and the fault. Omitted conditions match all copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFault {
    /// Only copies of this GPU, by NVML's index.
    pub gpu: Option<u32>,
    /// Only memory of this NUMA node.
    pub node: Option<u32>,
    /// Only memory that was allocated in this way.
    pub memory: Option<HostMemory>,
    /// Only this direction.
    pub direction: Option<HostWay>,
    /// The fault. Bytes from a wrong source or an earlier copy, and errors that come late, are possible for copies
    /// between GPUs only.
    pub fault: CopyFault,
}

impl MachineSpec {
    /// Returns the fault of such a copy, if it has one.
    pub(crate) fn host_fault(
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
