//! A simulated machine as plain data. Everything that is not a fault is a fact about healthy hardware. Faults are
//! listed separately, so that a broken machine reads as a healthy one plus its faults.

mod check;
mod check_faults;
mod completed;
mod copy_faults;
mod faults;
mod gpu;
mod host;
mod numbers;
mod nvidia;
mod over_time;
mod peers;
mod problem;
mod sharing;
mod surroundings;
mod text;

use serde::{Deserialize, Serialize};

use hardware::SharingFacts;
use model::placement::{Engine, Path, Side};
use model::snapshot::{
    BoundDriver, ConfidentialComputing, P2pStatus, PciKind, PciPower, PcieErrors,
};
use model::units::{Bytes, PciAddress, PcieLink};

pub use copy_faults::{CopyFault, PairFault, PairTalkFault, TalkFault, WindowFault};
pub use faults::{
    Collapse, ContextFault, CounterFault, Drift, Faults, HostFault, InitFault, LateGate, LinkFault,
    LinkPart, LinkWay, NvLinkFault, OthersWork, Shared,
};
pub use gpu::{C2cSpec, FabricSpec, GpuSpec, GpuState, NvLinkErrors, NvLinkSpec, NvLinkTarget};
pub use host::{HostSpeeds, HostWay};
pub use numbers::{
    Bits, Celsius, Codewords, Counted, Engines, FlagTimes, Loss, LossPerDegree, Micros, Millis,
    Minute, Minutes, Payload, Percent, Rate, Ratio, Times, Traffic, Utilization,
};
pub use nvidia::Hidden;
pub use over_time::{Flap, Heat, LateCopyFault, NvLinkOverTime, OverTime, Program};
pub use peers::{CudaPeerRule, Pairs, PeerException, PeerRule, PeerSpec};
pub use problem::Problem;
pub use sharing::SharingFault;
pub use surroundings::{AdapterSpec, LogLine, READ_REQUEST};
pub(crate) use text::MOST_SYMBOLS;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// One line for lists.
    pub summary: String,
    /// Facts of the host.
    pub host: HostSpec,
    /// NUMA nodes, numbered by their index. One node if omitted.
    #[serde(default)]
    pub numa_nodes: Vec<NumaNodeSpec>,
    /// Every PCI function that is visible: ports, GPUs, adapters.
    pub pci: Vec<FunctionSpec>,
    /// GPUs in NVML's order.
    pub gpus: Vec<GpuSpec>,
    #[serde(default)]
    pub adapters: Vec<AdapterSpec>,
    /// Links that several root ports share on the way to the processor and that no file shows.
    #[serde(default)]
    pub uplinks: Vec<UplinkSpec>,
    /// Peer access.
    #[serde(default)]
    pub peers: PeerSpec,
    /// The devices that CUDA shows, by NVML index and in CUDA's order, as with `CUDA_VISIBLE_DEVICES`. All devices in
    /// NVML's order if omitted.
    pub visible_devices: Option<Vec<u32>>,
    /// Reached shares of the theoretical rates, and costs of calls.
    pub speeds: Speeds,
    /// Variation between measurements.
    pub noise: Noise,
    #[serde(default)]
    pub faults: Faults,
    /// Changes with time.
    #[serde(default)]
    pub over_time: OverTime,
}

/// Facts of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Version of the NVIDIA kernel driver.
    pub driver_version: String,
    /// Newest CUDA version that the driver supports.
    pub cuda_version: String,
    /// Kernel release.
    pub kernel_version: String,
    /// Processor model.
    pub cpu: String,
    /// True for a virtual machine: AER counters, slots and IOMMU groups are then not visible.
    pub virtual_machine: bool,
    /// True if peerscope runs in a container there.
    pub container: bool,
    /// True if the IOMMU translates device addresses.
    pub iommu_translating: bool,
    /// Parameters of the kernel's command line that concern the IOMMU.
    pub iommu_parameters: Vec<String>,
    /// The control group of peerscope.
    pub control_group: String,
    pub confidential_computing: ConfidentialComputing,
    /// True if nvidia_peermem is loaded.
    pub peer_memory_module: bool,
    /// True if NVIDIA's kernel modules are the open ones.
    pub open_kernel_module: bool,
    /// True if the service of the fabric manager runs; there is no such service if not given.
    pub fabric_manager_running: Option<bool>,
    /// True if an MPS daemon serves the default folder.
    pub mps_daemon: bool,
    /// Mean number of tasks that ran in the minute before the check.
    pub busy_tasks: u32,
    /// Bytes of the last-level caches of all processors together; not known if not given.
    pub last_level_cache: Option<Bytes>,
    /// Seconds since the system started; not known if not given.
    pub up_seconds: Option<u64>,
    /// The kernel's identifier of this start of the system; not known if not given.
    pub boot_id: Option<String>,
    /// Variables of NCCL in peerscope's environment, as `NAME=value`.
    pub nccl_variables: Vec<String>,
    /// Size of /dev/shm, of which nothing is used; not known if not given.
    pub shm: Option<Bytes>,
    /// The kernel's log.
    pub kernel_log: Vec<LogLine>,
    /// True if the kernel's log may not be read.
    pub kernel_log_denied: bool,
    /// Memory that programs could get; nearly all of it if omitted.
    #[serde(default, with = "text")]
    pub memory_available: Option<Bytes>,
    /// Memory that the control group of this process has left; no limit if omitted.
    #[serde(default, with = "text")]
    pub group_leaves: Option<Bytes>,
    /// Bytes that this process may lock (`ulimit -l`); no limit if omitted.
    #[serde(default, with = "text")]
    pub lock_limit: Option<Bytes>,
    /// Facts that decide how processes can share memory. Nothing is in the way where they are omitted.
    pub sharing: SharingFacts,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNodeSpec {
    /// Processors in the kernel's list form.
    pub cpus: String,
    #[serde(default = "completed::host_memory", with = "text")]
    pub memory: Bytes,
    /// Rate at which all devices together read it, GB/s; the one of `speeds` if omitted.
    pub read_gbps: Option<Rate>,
    /// Rate at which all devices together write it, GB/s; the one of `speeds` if omitted.
    pub write_gbps: Option<Rate>,
}

/// A PCI function and its end of the link towards the root. For root and downstream ports, the link is the one below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    pub address: PciAddress,
    /// The bridge above.
    pub parent: Option<PciAddress>,
    /// The host bridge as the kernel names it. If omitted, that of the bridge above, and at the top the one named after
    /// domain and bus.
    pub host_bridge: String,
    pub kind: PciKind,
    /// Vendor and device id, written `10de:2335`. By default one that fits the kind of function.
    #[serde(with = "text")]
    pub id: (u16, u16),
    /// Class code, 24 bits, written `030200`. By default one that fits the kind of function.
    #[serde(with = "text")]
    pub class: u32,
    /// NUMA node. If omitted, that of the bridge above, and none at the top: the firmware does not report one.
    pub numa_node: Option<u32>,
    /// Best link that this end supports; `"none"` if there is no link to read. If omitted, that of the model for GPUs, and
    /// none for other functions.
    #[serde(default, with = "text")]
    pub max: Option<PcieLink>,
    /// Trained state of the link, at its lower end. If omitted, the best that both ends support.
    #[serde(default, with = "text")]
    pub trained: Option<PcieLink>,
    /// State that the link falls back to while idle. If omitted, it does not fall back.
    #[serde(default, with = "text")]
    pub idle: Option<PcieLink>,
    /// True if it still shows the idle state while copies run.
    pub stale: bool,
    /// Errors counted before the tool started.
    #[serde(default)]
    pub errors: PcieErrors,
    /// The kernel driver that is bound to it. If omitted, NVIDIA's for GPUs and NVSwitches, none for other functions.
    pub driver: Option<BoundDriver>,
    /// The way in which a container hides it. For a display function that is none of the GPUs.
    pub hidden: Option<Hidden>,
    /// True if a parameter of the NVIDIA driver excludes it.
    pub excluded: bool,
    /// Label of the physical slot.
    pub slot: Option<String>,
    /// True if peer requests are sent up to the root.
    pub acs_redirect: bool,
    /// Largest payload of a packet, bytes.
    pub payload: Payload,
    /// Largest payload that could be set, bytes; twice `payload` if omitted.
    pub payload_max: Option<Payload>,
    /// Power state.
    pub power_state: PciPower,
    /// True if the firmware reports that a user can remove it.
    pub removable: bool,
    /// Its largest window (BAR1), for GPUs; the BAR1 of its GPU if omitted.
    #[serde(default, with = "text")]
    pub bar: Option<Bytes>,
    /// The largest window that could be set; `None` if it cannot be resized.
    #[serde(default, with = "text")]
    pub bar_max: Option<Bytes>,
    /// Share of their rate that copies keep if this port sends them up to the root; all of it if omitted.
    pub redirect_share: Option<Ratio>,
    /// Wake-up of the link after a rest. If omitted, the link is always awake.
    pub wakes: Option<WakeSpec>,
}

/// The wake-up of a link. It carries a share of its rate for a while if nothing has passed it before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeSpec {
    /// Idle time after which it sleeps, milliseconds.
    pub after_ms: Millis,
    /// Time that it carries less, milliseconds.
    pub for_ms: Millis,
    /// Share of the rate that it carries then.
    pub share: Ratio,
}

/// A link above several root ports that no file shows, such as the one from a chipset to its processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkSpec {
    /// The root ports that share it.
    pub ports: Vec<PciAddress>,
    /// Its payload rate per direction, GB/s, before protocol overhead.
    pub gbps: Rate,
}

/// Reached shares of the theoretical rates, and costs of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speeds {
    /// Between GPUs over NVLink.
    pub nvlink: PathSpeed,
    /// Between GPUs over PCIe within a socket.
    pub pcie: PathSpeed,
    /// Between GPUs over PCIe and the interconnect of the sockets.
    pub cross_socket: PathSpeed,
    /// Through host memory, without peer access.
    pub staged: PathSpeed,
    /// Share of an NVLink's payload rate that all flows together reach.
    pub nvlink_shared: Ratio,
    /// Share of a PCIe link's rate that all flows together reach.
    pub pcie_shared: Ratio,
    /// Rate between two sockets per direction, GB/s.
    pub interconnect_gbps: Rate,
    /// Rate of the host memory of a NUMA node for all staged copies together, GB/s, for writing and for reading. Used
    /// if the node has no rates of its own.
    pub host_memory_gbps: Rate,
    /// Host time of a call that enqueues a copy, microseconds.
    pub copy_call_us: Micros,
    /// Host time of any other call, microseconds.
    pub call_us: Micros,
    /// Additional host time of a staged copy, microseconds per MiB.
    pub staged_call_us_per_mib: Micros,
    /// Copies between host and GPU, and page-locking.
    pub host: HostSpeeds,
}

/// The variation between measurements: every copy takes longer by a share drawn evenly between nothing and `percent`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Most extra time, per cent.
    pub percent: Percent,
    /// Seed of the draws: the same seed returns the same figures.
    pub seed: u64,
}

/// The speeds of copies on one path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpeed {
    /// Share of the narrowest hop's rate that a copy engine reaches.
    pub copy: Ratio,
    /// The same share of a kernel that writes into the peer.
    pub push: Ratio,
    /// The same share of a kernel that reads from the peer.
    pub pull: Ratio,
    /// Factor of a rate while the opposite direction is busy.
    pub both_ways: Ratio,
    /// Fixed cost of every copy in a row, microseconds.
    pub each_us: Micros,
    /// Least time of a copy, microseconds: the time of one small copy in a row of them, if that is more than the fixed
    /// cost.
    pub least_us: Micros,
    /// Additional cost of the first copy of a row, microseconds. This is for a large copy; smaller ones cost somewhat
    /// less.
    pub first_us: Micros,
    /// Additional cost of every copy that the destination issues, microseconds.
    pub from_destination_us: Micros,
    /// Additional cost of a copy by a copy engine if an event was recorded between it and the one before in the same
    /// row, microseconds.
    pub event_us: Micros,
    /// Further cost of the event if the destination issues the copy, microseconds. This is for a small copy; large ones
    /// hide it.
    pub event_from_destination_us: Micros,
}

impl MachineSpec {
    /// Returns the PCI function at this address.
    pub fn function(&self, address: PciAddress) -> Option<&FunctionSpec> {
        self.pci.iter().find(|function| function.address == address)
    }

    /// Returns the rule of peer access from one GPU to the memory of another.
    pub fn peer_rule(&self, device: u32, peer: u32) -> PeerRule {
        let exception = self
            .peers
            .exceptions
            .iter()
            .rev()
            .find(|exception| exception.pairs.contains(device, peer));
        exception.map_or(self.peers.rule, |exception| exception.rule)
    }

    /// Returns true if a GPU's atomics on the memory of another one are native: the simulated boards support them over NVLink
    /// only.
    pub fn native_atomics(&self, device: u32, peer: u32) -> bool {
        self.joined_by_nvlink(device, peer) && self.peer_rule(device, peer).nvml == P2pStatus::Ok
    }

    /// Returns the fault of the copies of this pair by this engine on this path that this side issues, if there is one.
    pub(crate) fn copy_fault(
        &self,
        pair: (u32, u32),
        engine: Engine,
        issuer: Side,
        path: Path,
    ) -> Option<PairFault> {
        let fits = |fault: &&PairFault| {
            fault.pairs.contains(pair.0, pair.1)
                && fault.engine.is_none_or(|only| only == engine)
                && fault.issuer.is_none_or(|only| only == issuer)
                && fault.path == path
        };
        self.faults.pairs.iter().find(fits).copied()
    }

    /// Returns true if a fault occurs at the temperatures of this time.
    pub(crate) fn is_hot_enough(&self, fault: &PairFault, pair: (u32, u32), seconds: f64) -> bool {
        let reaches = |above: u32, gpu: u32| {
            let usual = self.gpus.get(gpu as usize).map(|gpu| gpu.state.temperature_under_load_c);
            let now = self.temperature_at(gpu, seconds).or(usual.map(f64::from));
            now.is_some_and(|now| now >= f64::from(above))
        };
        fault.above_c.is_none_or(|above| reaches(above, pair.0) || reaches(above, pair.1))
    }

    /// Returns the devices that CUDA shows, by NVML index and in CUDA's order. As with `CUDA_VISIBLE_DEVICES`, an entry
    /// that names no GPU, a lost one, or one a second time hides itself and all that follow.
    pub fn visible(&self) -> Vec<u32> {
        let there = |gpu: u32| (gpu as usize) < self.gpus.len() && !self.lost(gpu);
        let Some(wanted) = &self.visible_devices else {
            // CUDA does not show a GPU that fell off the bus, so ordinals shift against NVML's.
            return self
                .gpus
                .iter()
                .zip(0..)
                .map(|(_, gpu)| gpu)
                .filter(|gpu| there(*gpu))
                .collect();
        };
        let sound = |(place, gpu): &(usize, &u32)| there(**gpu) && !wanted[..*place].contains(gpu);
        wanted.iter().enumerate().take_while(sound).map(|(_, gpu)| *gpu).collect()
    }

    /// Returns true if this GPU fell off the bus.
    pub fn lost(&self, gpu: u32) -> bool {
        self.faults.lost_gpus.contains(&gpu)
    }
}

/// Returns the UUID of a simulated GPU, as NVML writes it.
pub fn uuid(gpu: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{gpu:012x}")
}
