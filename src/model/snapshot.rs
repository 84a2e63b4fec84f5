//! What a machine said of itself at one moment: its GPUs, their links, and the PCI tree.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::reading::facts;
use super::units::{Bytes, PciAddress, PcieLink};

/// Everything that discovery found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Facts of the whole machine.
    pub host: Host,
    /// The GPUs in NVML's order, those that could not be opened among them.
    pub gpus: Vec<Gpu>,
    /// What NVML says of each ordered pair.
    pub pairs: Vec<GpuPair>,
    /// The PCI functions on the way from a GPU or network adapter up to its root port.
    pub pci: Vec<PciFunction>,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaNode>,
    /// RDMA and Ethernet adapters with a PCI address.
    pub adapters: Vec<Adapter>,
    /// What could not be read at all, a sentence each.
    pub problems: Vec<String>,
}

impl Snapshot {
    /// The GPU with this NVML index.
    pub fn gpu(&self, index: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.index == index)
    }

    /// The PCI function at this address.
    pub fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        self.pci.iter().find(|function| function.address == address)
    }

    /// The functions from this address up to its root port, the address itself first. Ends where a
    /// parent is not in the snapshot, and after 64 steps should the parents of a broken file loop.
    pub fn path_up(&self, address: PciAddress) -> Vec<&PciFunction> {
        std::iter::successors(self.function(address), |function| {
            function.parent.and_then(|parent| self.function(parent))
        })
        .take(64)
        .collect()
    }
}

facts! {
    /// Facts of the whole machine.
    pub struct Host {
        => readings {
            /// Version of the NVIDIA kernel driver.
            driver_version: String,
            /// Version of the NVML library.
            nvml_version: String,
            /// Newest CUDA version that the driver serves, such as `13.0`.
            cuda_version: String,
            /// Kernel release.
            kernel_version: String,
            /// Host name.
            hostname: String,
            /// Processor model.
            cpu: String,
            /// Whether this is a virtual machine.
            virtual_machine: bool,
            /// Whether an IOMMU translates device addresses (any group of type DMA or DMA-FQ).
            iommu_translating: bool,
        }
    }
}

/// A NUMA node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub node: u32,
    /// Processors, in the kernel's list form (`0-63`).
    pub cpus: String,
    /// Memory of the node in bytes.
    pub memory_bytes: Bytes,
}

facts! {
    /// A GPU as NVML and sysfs describe it.
    pub struct Gpu {
        /// NVML's index, the one that nvidia-smi shows.
        index: u32,
        => readings {
            /// PCI address.
            pci: PciAddress,
            /// NVML's UUID, `GPU-…`.
            uuid: String,
            /// Product name.
            name: String,
            /// Architecture, such as `Hopper`.
            architecture: String,
            /// Minor number of the device file, /dev/nvidiaN.
            minor: u32,
            /// Serial number of the board.
            serial: String,
            /// Memory of the device in bytes.
            memory_total_bytes: Bytes,
            /// Free memory in bytes.
            memory_free_bytes: Bytes,
            /// Size of the BAR1 window in bytes.
            bar1_total_bytes: Bytes,
            /// PCIe generation now; an idle GPU may show 1.
            pcie_generation: u8,
            /// PCIe lanes now.
            pcie_width: u8,
            /// Highest PCIe generation that GPU and slot allow together.
            pcie_generation_max: u8,
            /// Most PCIe lanes that GPU and slot allow together.
            pcie_width_max: u8,
            /// Highest PCIe generation of the GPU itself, whatever the slot.
            pcie_generation_device_max: u8,
            /// PCIe replays since the driver was loaded.
            pcie_replays: u64,
            /// PCIe error counts since the driver was loaded.
            pcie_errors: PcieErrors,
            /// Every NVLink, inactive ones included; empty for a GPU without.
            nvlinks: Vec<NvLink>,
            /// State of the NVSwitch fabric as this GPU sees it.
            fabric: Fabric,
            /// Whether the chip-to-chip link to the processor is on.
            c2c: bool,
            /// Whether MIG mode is on.
            mig: bool,
            /// Compute mode.
            compute_mode: ComputeMode,
            /// Whether persistence mode is on.
            persistence: bool,
            /// Whether ECC is on.
            ecc: bool,
            /// Uncorrected ECC errors since the last reboot.
            ecc_uncorrected: u64,
            /// Remapped memory rows.
            remapped_rows: RemappedRows,
            /// Why the clocks are held back now, in NVML's names; empty when nothing does.
            throttle_reasons: Vec<String>,
            /// Clock of the multiprocessors, MHz.
            sm_clock_mhz: u32,
            /// Clock of the memory, MHz.
            memory_clock_mhz: u32,
            /// Performance state, 0 (highest) to 15.
            power_state: u8,
            /// Processes that hold memory on this GPU.
            processes: Vec<GpuProcess>,
            /// NUMA node of the slot, from sysfs.
            numa_node: u32,
        }
    }
}

impl Gpu {
    /// The name for people: `GPU 3`.
    pub fn label(&self) -> String {
        format!("GPU {}", self.index)
    }

    /// The PCIe link as NVML reads it now, where both figures are known.
    pub fn pcie_link(&self) -> Option<PcieLink> {
        Some(PcieLink { generation: self.pcie_generation.get()?, width: self.pcie_width.get()? })
    }
}

/// PCIe error counts of one GPU, since the driver was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieErrors {
    /// Errors that the link corrected by itself.
    pub correctable: u64,
    /// Errors that were not corrected, not fatal to the link.
    pub non_fatal: u64,
    /// Errors that took the link down.
    pub fatal: u64,
}

/// Rows of GPU memory that were replaced by spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemappedRows {
    /// Rows remapped after corrected errors.
    pub corrected: u32,
    /// Rows remapped after uncorrected errors.
    pub uncorrected: u32,
    /// A remapping waits for a GPU reset.
    pub pending: bool,
    /// A remapping failed.
    pub failed: bool,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process id; in a container it may belong to the host's numbering.
    pub pid: u32,
    /// GPU memory it holds, where NVML tells.
    pub memory_bytes: Option<Bytes>,
}

/// NVML's compute mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One context per device (retired by NVIDIA).
    ExclusiveThread,
    /// No compute context at all.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

facts! {
    /// One NVLink of a GPU.
    pub struct NvLink {
        /// Number of the link on its GPU, from 0.
        link: u8,
        => readings {
            /// Whether the link is up.
            active: bool,
            /// NVLink version, such as `4.0`.
            version: String,
            /// Raw rate of the link per direction, MB/s. Lies 6.25% above the payload rate on
            /// versions 4 and 5.
            speed_mbps: u32,
            /// What is at the other end.
            remote: NvLinkRemote,
            /// PCI address of the other end.
            remote_pci: PciAddress,
            /// CRC errors in flits, since the driver was loaded.
            crc_errors: u64,
            /// Replays.
            replay_errors: u64,
            /// Recoveries.
            recovery_errors: u64,
        }
    }
}

/// What an NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvLinkRemote {
    /// Another GPU.
    Gpu,
    /// An NVSwitch.
    Switch,
    /// A processor (POWER).
    Npu,
}

/// State of the NVSwitch fabric as one GPU sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// Progress of the registration.
    pub state: FabricState,
    /// NVML's return code of the registration, 0 when it succeeded.
    pub status: u32,
    /// Bits of the health mask, 0 when nothing is degraded. Null where the driver has none.
    pub health_mask: Option<u32>,
    /// Clique within the cluster: GPUs of other cliques are not reachable over NVLink.
    pub clique_id: u32,
    /// UUID of the cluster, in hex; all zeros on one machine by itself.
    pub cluster_uuid: String,
}

/// Progress of a GPU's registration with the fabric manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricState {
    /// This GPU has no NVSwitch fabric.
    NotSupported,
    /// Not started.
    NotStarted,
    /// In progress.
    InProgress,
    /// Completed; see the status for whether it succeeded.
    Completed,
}

facts! {
    /// What NVML says of an ordered pair of GPUs.
    pub struct GpuPair {
        /// Index of the GPU that data leaves.
        source: u32,
        /// Index of the GPU that data reaches.
        destination: u32,
        => readings {
            /// Lowest PCI level that both share.
            common_ancestor: CommonAncestor,
            /// Whether the source may read the destination's memory.
            p2p_read: P2pStatus,
            /// Whether the source may write the destination's memory.
            p2p_write: P2pStatus,
            /// Whether they reach each other over NVLink.
            p2p_nvlink: P2pStatus,
            /// Whether atomics work between them.
            p2p_atomics: P2pStatus,
        }
    }
}

/// NVML's topology level, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommonAncestor {
    /// Both on one board.
    Internal,
    /// At most one PCIe bridge between them.
    SingleSwitch,
    /// Several PCIe bridges, no host bridge.
    MultipleSwitches,
    /// One host bridge.
    HostBridge,
    /// Several host bridges of one NUMA node.
    NumaNode,
    /// The link between sockets.
    System,
}

/// NVML's word on peer access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum P2pStatus {
    /// It works, says NVML.
    #[serde(rename = "OK")]
    Ok,
    /// The chipset does not support it.
    #[serde(rename = "CNS")]
    ChipsetNotSupported,
    /// The GPU does not support it.
    #[serde(rename = "GNS")]
    GpuNotSupported,
    /// The topology does not allow it.
    #[serde(rename = "TNS")]
    TopologyNotSupported,
    /// Disabled by a registry key of the driver.
    #[serde(rename = "DR")]
    DisabledByRegkey,
    /// Not supported, without a closer reason.
    #[serde(rename = "NS")]
    NotSupported,
    /// NVML does not know.
    #[serde(rename = "U")]
    Unknown,
}

impl P2pStatus {
    /// nvidia-smi's short word.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::ChipsetNotSupported => "CNS",
            Self::GpuNotSupported => "GNS",
            Self::TopologyNotSupported => "TNS",
            Self::DisabledByRegkey => "DR",
            Self::NotSupported => "NS",
            Self::Unknown => "U",
        }
    }

    /// What the word means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "supported",
            Self::ChipsetNotSupported => "the chipset does not support it",
            Self::GpuNotSupported => "the GPU does not support it",
            Self::TopologyNotSupported => "the topology does not allow it",
            Self::DisabledByRegkey => "disabled by a registry key of the driver",
            Self::NotSupported => "not supported",
            Self::Unknown => "unknown to NVML",
        }
    }
}

impl fmt::Display for P2pStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

facts! {
    /// A PCI function on the way from a device up to its root port.
    pub struct PciFunction {
        /// Its address.
        address: PciAddress,
        /// The bridge above it; null at a root port and at a device of the root bus.
        parent: Option<PciAddress>,
        /// The host bridge it hangs below, as the kernel names it (`pci0000:00`).
        host_bridge: String,
        /// What it is.
        kind: PciKind,
        => readings {
            /// PCI vendor id.
            vendor: u16,
            /// PCI device id.
            device_id: u16,
            /// Class code, 24 bits.
            class: u32,
            /// PCIe generation of the link towards the root, now.
            generation: u8,
            /// Lanes of that link, now.
            width: u8,
            /// Highest generation that this end of the link can do.
            generation_max: u8,
            /// Most lanes that this end can do.
            width_max: u8,
            /// NUMA node.
            numa_node: u32,
            /// Label of the physical slot, where the firmware names one.
            slot: String,
            /// Corrected errors, from the AER counters.
            aer_correctable: u64,
            /// Errors that were not corrected, not fatal.
            aer_nonfatal: u64,
            /// Fatal errors.
            aer_fatal: u64,
            /// IOMMU group.
            iommu_group: u32,
            /// How the IOMMU treats the group: `identity`, `DMA`, `DMA-FQ`, `blocked`.
            iommu_type: String,
            /// Whether access control sends peer requests up to the root (request redirect).
            acs_redirect: bool,
        }
    }
}

impl PciFunction {
    /// The link towards the root now, where both figures are known.
    pub fn link(&self) -> Option<PcieLink> {
        Some(PcieLink { generation: self.generation.get()?, width: self.width.get()? })
    }

    /// What this end of that link can do.
    pub fn link_max(&self) -> Option<PcieLink> {
        Some(PcieLink { generation: self.generation_max.get()?, width: self.width_max.get()? })
    }
}

/// What a PCI function is in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PciKind {
    /// A port of the root complex. Its link figures are those of the link below it.
    RootPort,
    /// Upstream port of a switch.
    SwitchUpstream,
    /// Downstream port of a switch. Its link figures are those of the link below it.
    SwitchDownstream,
    /// A bridge whose part in the tree is not known.
    Bridge,
    /// A device.
    Endpoint,
}

/// A network adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// The kernel's name, `mlx5_0` or `eth0`.
    pub name: String,
    /// RDMA or Ethernet.
    pub kind: AdapterKind,
    /// PCI address.
    pub pci: PciAddress,
}

/// What an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterKind {
    /// An RDMA device (InfiniBand or RoCE).
    Rdma,
    /// A network interface without RDMA.
    Ethernet,
}
