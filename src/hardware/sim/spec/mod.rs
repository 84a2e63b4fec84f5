//! A simulated machine as plain data. Everything that is not a fault is a fact about healthy
//! hardware; faults stand by themselves, so that a broken machine reads as a healthy one plus
//! what is wrong with it.

mod check;
mod check_faults;
mod completed;
mod defaults;
mod faults;
mod gpu;
mod host;
mod numbers;
mod nvidia;
mod peers;
mod problem;
mod surroundings;
mod text;

use serde::{Deserialize, Serialize};

use model::placement::{Engine, Path, Side};
use model::snapshot::{BoundDriver, ConfidentialComputing, PciKind, PciPower, PcieErrors};
use model::units::{Bytes, PciAddress, PcieLink};

pub use faults::{
    Collapse, ContextFault, CopyFault, CounterFault, Drift, Faults, HostFault, InitFault, LateGate,
    LinkFault, LinkPart, NvLinkFault, OthersWork, PairFault, Shared, Starved,
};
pub use gpu::{FabricSpec, GpuSpec, GpuState, NvLinkErrors, NvLinkSpec, NvLinkTarget};
pub use host::{HostSpeeds, HostWay};
pub use nvidia::Hidden;
pub use peers::{CudaPeerRule, Pairs, PeerException, PeerRule, PeerSpec};
pub use problem::Problem;
pub use surroundings::{AdapterSpec, LogLine, READ_REQUEST};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// One line for lists.
    pub summary: String,
    /// Facts of the host.
    #[serde(default)]
    pub host: HostSpec,
    /// NUMA nodes, numbered by their place. One where none is given.
    #[serde(default)]
    pub numa_nodes: Vec<NumaNodeSpec>,
    /// Every PCI function that is visible: ports, GPUs, adapters.
    pub pci: Vec<FunctionSpec>,
    /// GPUs in NVML's order.
    pub gpus: Vec<GpuSpec>,
    #[serde(default)]
    pub adapters: Vec<AdapterSpec>,
    /// What several root ports share on the way to the processor and no file shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<UplinkSpec>,
    /// Peer access.
    #[serde(default)]
    pub peers: PeerSpec,
    /// What CUDA shows, by NVML index and in its order, as `CUDA_VISIBLE_DEVICES` would have it;
    /// all of them in NVML's order where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<Vec<u32>>,
    /// How much of the theoretical rates is reached, and what calls cost.
    #[serde(default)]
    pub speeds: Speeds,
    /// How far one measurement is from the next.
    #[serde(default)]
    pub noise: Noise,
    #[serde(default)]
    pub faults: Faults,
}

/// Facts of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpec {
    /// NVIDIA kernel driver.
    pub driver_version: String,
    /// Newest CUDA version that the driver serves.
    pub cuda_version: String,
    /// Kernel release.
    pub kernel_version: String,
    /// Processor model.
    pub cpu: String,
    /// Virtual machine: AER counters, slots and IOMMU groups are then not visible.
    pub virtual_machine: bool,
    /// Whether peerscope runs in a container there.
    #[serde(skip_serializing_if = "is_default")]
    pub container: bool,
    /// Whether the IOMMU translates device addresses.
    pub iommu_translating: bool,
    /// Parameters of the kernel's command line that concern the IOMMU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iommu_parameters: Vec<String>,
    /// The control group of peerscope.
    #[serde(skip_serializing_if = "surroundings::is_top_group")]
    pub control_group: String,
    #[serde(skip_serializing_if = "surroundings::is_off")]
    pub confidential_computing: ConfidentialComputing,
    /// Whether nvidia_peermem is loaded.
    #[serde(skip_serializing_if = "is_default")]
    pub peer_memory_module: bool,
    /// Whether an MPS daemon serves the default folder.
    #[serde(skip_serializing_if = "is_default")]
    pub mps_daemon: bool,
    /// Variables of NCCL in peerscope's environment, as `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nccl_variables: Vec<String>,
    /// The kernel's log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_log: Vec<LogLine>,
    /// Whether the kernel's log may not be read.
    #[serde(skip_serializing_if = "is_default")]
    pub kernel_log_denied: bool,
    /// Memory that programs could get; nearly all of it where it is not given.
    #[serde(with = "text::size", skip_serializing_if = "defaults::is_all")]
    pub memory_available: Bytes,
    /// What the control group of this process leaves; there is no limit where it is not given.
    #[serde(with = "text::size", skip_serializing_if = "defaults::is_all")]
    pub group_leaves: Bytes,
    /// Bytes that this process may lock (`ulimit -l`); there is no limit where it is not given.
    #[serde(with = "text::size", skip_serializing_if = "defaults::is_all")]
    pub lock_limit: Bytes,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNodeSpec {
    /// Processors in the kernel's list form.
    pub cpus: String,
    #[serde(default = "defaults::host_memory", with = "text::size")]
    pub memory: Bytes,
    /// Rate at which all devices together read it, GB/s; the one of `speeds` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbps: Option<f64>,
    /// Rate at which all devices together write it, GB/s; the one of `speeds` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbps: Option<f64>,
}

/// A PCI function and its end of the link towards the root (of the link below, for root and
/// downstream ports).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    pub address: PciAddress,
    /// The bridge above.
    pub parent: Option<PciAddress>,
    /// The host bridge as the kernel names it. Where it is not given, that of the bridge above, and
    /// at the top the one named after domain and bus.
    #[serde(default)]
    pub host_bridge: String,
    #[serde(default = "defaults::endpoint")]
    pub kind: PciKind,
    /// Vendor and device id, written `10de:2335`. By default one that fits what it is.
    #[serde(default, with = "text::pci_id")]
    pub id: (u16, u16),
    /// Class code, 24 bits, written `030200`. By default one that fits what it is.
    #[serde(default, with = "text::class")]
    pub class: u32,
    /// NUMA node; that of the bridge above where it is not given, and none at the top: the
    /// firmware does not tell.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// What this end can do; none when there is no link to read.
    #[serde(default, with = "text::link", skip_serializing_if = "Option::is_none")]
    pub max: Option<PcieLink>,
    /// What the link trained to, at its lower end. Without it the best that both ends allow.
    #[serde(default, with = "text::link", skip_serializing_if = "Option::is_none")]
    pub trained: Option<PcieLink>,
    /// What the link falls back to while nothing runs over it. Without it, it does not.
    #[serde(default, with = "text::link", skip_serializing_if = "Option::is_none")]
    pub idle: Option<PcieLink>,
    /// Whether it goes on to show that while copies run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stale: bool,
    /// Errors that were counted before the tool looked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub errors: PcieErrors,
    /// The kernel driver that is bound to it. NVIDIA's for GPUs and NVSwitches, none for other functions where it
    /// is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<BoundDriver>,
    /// How a container hides it, for a display function that is none of the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Hidden>,
    /// Whether a parameter of the NVIDIA driver excludes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub excluded: bool,
    /// Label of the physical slot.
    #[serde(default)]
    pub slot: Option<String>,
    /// Whether peer requests are sent up to the root.
    #[serde(default)]
    pub acs_redirect: bool,
    /// Most payload of a packet, bytes.
    #[serde(
        default = "surroundings::payload",
        skip_serializing_if = "surroundings::is_payload"
    )]
    pub payload: u16,
    /// The same that it could be set to; twice as much where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_max: Option<u16>,
    /// Power state.
    #[serde(
        default = "surroundings::on",
        skip_serializing_if = "surroundings::is_on"
    )]
    pub power_state: PciPower,
    /// Whether the firmware says that a user can take it out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub removable: bool,
    /// Its largest window (BAR1), of GPUs; the BAR1 of its GPU where it is not given.
    #[serde(
        default,
        with = "text::optional_size",
        skip_serializing_if = "Option::is_none"
    )]
    pub bar: Option<Bytes>,
    /// The largest that could be set; none where it cannot be resized.
    #[serde(
        default,
        with = "text::optional_size",
        skip_serializing_if = "Option::is_none"
    )]
    pub bar_max: Option<Bytes>,
    /// Share of their rate that copies reach which it sends up to the root; all of it where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_share: Option<f64>,
    /// How the link wakes up after a rest. Without it, it is always awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<WakeSpec>,
}

/// How a link wakes up: it carries a share of its rate for a while when nothing has passed it before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeSpec {
    /// How long nothing must have passed, milliseconds.
    pub after_ms: f64,
    /// How long it carries less, milliseconds.
    pub for_ms: f64,
    /// Which share it carries then.
    pub share: f64,
}

/// A link above several root ports that no file shows, such as the one from a chipset to its
/// processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkSpec {
    /// The root ports that share it.
    pub ports: Vec<PciAddress>,
    /// Its payload rate per direction, GB/s, before what is lost to protocol.
    pub gbps: f64,
}

/// How much of the theoretical rates is reached, and what calls cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speeds {
    /// Between GPUs over NVLink.
    #[serde(deserialize_with = "defaults::nvlink")]
    pub nvlink: PathSpeed,
    /// Between GPUs over PCIe within a socket.
    #[serde(deserialize_with = "defaults::pcie")]
    pub pcie: PathSpeed,
    /// Between GPUs over PCIe and the interconnect of the sockets.
    #[serde(deserialize_with = "defaults::cross_socket")]
    pub cross_socket: PathSpeed,
    /// Through host memory, without peer access.
    #[serde(deserialize_with = "defaults::staged")]
    pub staged: PathSpeed,
    /// Share of an NVLink's payload rate that all flows together reach.
    pub nvlink_shared: f64,
    /// Share of a PCIe link's rate that all flows together reach.
    pub pcie_shared: f64,
    /// Rate between two sockets per direction, GB/s.
    pub interconnect_gbps: f64,
    /// Rate of the host memory of a NUMA node for staged copies, all together, GB/s: of writing it and of reading
    /// it, where the node has no rates of its own.
    pub host_memory_gbps: f64,
    /// Host time of a call that enqueues a copy, microseconds.
    pub copy_call_us: f64,
    /// Host time of any other call, microseconds.
    pub call_us: f64,
    /// Host time that a staged copy takes besides, microseconds per MiB.
    pub staged_call_us_per_mib: f64,
    /// Copies between host and GPU, and page-locking.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostSpeeds,
}

/// How far one measurement is from the next: every copy takes longer by a share that is drawn
/// evenly between nothing and this much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// The most, per cent.
    pub percent: f64,
    /// Where the draw starts: the same seed gives the same figures.
    #[serde(default)]
    pub seed: u64,
}

/// What copies of one path reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpeed {
    /// Share of the narrowest hop's rate that a copy engine reaches.
    pub copy: f64,
    /// The same of a kernel that writes into the peer.
    pub push: f64,
    /// The same of a kernel that reads from the peer.
    pub pull: f64,
    /// What is left of a rate while the opposite direction is busy.
    pub both_ways: f64,
    /// What is left of a rate while a GPU at either end copies with its host.
    pub beside_host: f64,
    /// Fixed cost of every copy in a row, microseconds.
    pub each_us: f64,
    /// What a copy takes at least, microseconds: the time of one small copy in a row of them, where that is more.
    pub least_us: f64,
    /// Cost of the first of a row besides, microseconds: of a large one, smaller ones cost somewhat
    /// less.
    pub first_us: f64,
    /// Cost of every copy besides that the destination issues, microseconds.
    pub from_destination_us: f64,
    /// Cost of a copy by a copy engine besides where an event was recorded between it and the one before in the
    /// same row, microseconds.
    pub event_us: f64,
    /// The same besides where the destination issues it: of a small copy, large ones hide it.
    pub event_from_destination_us: f64,
}

impl MachineSpec {
    /// The PCI function at this address.
    pub fn function(&self, address: PciAddress) -> Option<&FunctionSpec> {
        self.pci.iter().find(|function| function.address == address)
    }

    /// What holds for peer access from one GPU to the memory of another.
    pub fn peer_rule(&self, device: u32, peer: u32) -> PeerRule {
        let exception = self
            .peers
            .exceptions
            .iter()
            .rev()
            .find(|exception| exception.pairs.contains(device, peer));
        exception.map_or(self.peers.rule, |exception| exception.rule)
    }

    /// What is wrong with the copies of this pair by this engine on this path that this side issues, if something
    /// is.
    pub fn copy_fault(
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

    /// What CUDA shows, by NVML index and in its order. As `CUDA_VISIBLE_DEVICES` has it, an entry
    /// that names no GPU, a lost one, or one a second time hides itself and all that follow.
    pub fn visible(&self) -> Vec<u32> {
        let there = |gpu: u32| (gpu as usize) < self.gpus.len() && !self.lost(gpu);
        let Some(wanted) = &self.visible_devices else {
            // A GPU that fell off the bus is not among CUDA's, so ordinals shift against NVML's.
            return self
                .gpus
                .iter()
                .zip(0..)
                .map(|(_, gpu)| gpu)
                .filter(|gpu| there(*gpu))
                .collect();
        };
        let sound = |(place, gpu): &(usize, &u32)| there(**gpu) && !wanted[..*place].contains(gpu);
        wanted
            .iter()
            .enumerate()
            .take_while(sound)
            .map(|(_, gpu)| *gpu)
            .collect()
    }

    /// Whether this GPU fell off the bus.
    pub fn lost(&self, gpu: u32) -> bool {
        self.faults.lost_gpus.contains(&gpu)
    }
}

/// The UUID of a simulated GPU, as NVML writes it.
pub fn uuid(gpu: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{gpu:012x}")
}

/// Whether a value need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
