//! What a machine said of itself at one moment: its GPUs, their links, and the PCI tree.

mod gpu;
mod nvlink;
mod pair;
mod pci;

use serde::{Deserialize, Serialize};

use super::reading::facts;
use super::units::{Bytes, PciAddress};

pub use gpu::{ComputeMode, Gpu, GpuProcess, PcieErrors, RemappedRows};
pub use nvlink::{Fabric, FabricState, NvLink, NvLinkRemote};
pub use pair::{CommonAncestor, GpuPair, P2pStatus};
pub use pci::{Adapter, AdapterKind, PciFunction, PciKind};

/// Everything that discovery found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// NVML's return code, where it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_failure_code: Option<u32>,
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
            /// Version of the NVIDIA kernel module that is loaded.
            kernel_module_version: String,
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub node: u32,
    /// Processors, in the kernel's list form (`0-63`).
    pub cpus: String,
    /// Memory of the node in bytes.
    pub memory_bytes: Bytes,
}
