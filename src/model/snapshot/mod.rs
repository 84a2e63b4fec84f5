//! The state of a machine at one moment, as the machine reports it: its GPUs, their links, and the PCI tree.

mod adapter;
mod gpu;
mod host;
mod nvlink;
mod pair;
mod pci;
mod xid;

use serde::{Deserialize, Serialize};

use super::placement::Pair;
use super::reading::Unknown;
use super::units::{Bytes, PciAddress};

pub use adapter::{Adapter, AdapterKind, AdapterPort};
pub use gpu::{
    C2cErrors, C2cLinks, ComputeMode, Gpu, GpuProcess, PcieErrors, RemappedRows, THROTTLE_REASONS,
    throttle_reason,
};
pub use host::{ConfidentialComputing, Host};
pub use nvlink::{Fabric, FabricState, NvLink, NvLinkBond, NvLinkPacketErrors, NvLinkRemote};
pub use pair::{CommonAncestor, GpuPair, P2pStatus};
pub use pci::{
    Bar, BoundDriver, DeviceFile, DisplayFunction, NvSwitch, PciFunction, PciKind, PciPower,
    RuntimeStatus,
};
pub use xid::{NVLINK_XID, OFF_THE_BUS, Xid, XidCause, XidKey, is_sxid, named_xid};

/// Everything that discovery found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Facts of the whole machine.
    pub host: Host,
    /// GPUs in NVML's order, including those that could not be opened.
    pub gpus: Vec<Gpu>,
    /// NVML's report on each ordered pair.
    pub pairs: Vec<GpuPair>,
    /// Numbers of NVLinks between GPUs, from tools that count them and do not name them. Only in reports that were read
    /// from the output of other tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bonds: Vec<NvLinkBond>,
    /// The PCI functions on the way from a GPU or network adapter up to its root port.
    pub pci: Vec<PciFunction>,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaNode>,
    /// RDMA and Ethernet adapters with a PCI address.
    pub adapters: Vec<Adapter>,
    /// NVIDIA display functions on the bus that are not among the GPUs that NVML identifies. Empty if NVML does not
    /// start.
    #[serde(default)]
    pub unlisted_gpus: Vec<DisplayFunction>,
    /// NVSwitches on the bus. Virtual machines rarely have them.
    #[serde(default)]
    pub nvswitches: Vec<NvSwitch>,
    /// Sources that could not be read at all, a sentence each.
    pub problems: Vec<String>,
    /// NVML's return code, if it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_failure_code: Option<u32>,
}

/// Facts that NVML takes long to read. A command reads them only if it needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowFact {
    /// Error counters of the NVLinks: 1 ms each (H200, driver 580).
    NvLinkErrors,
    /// Read and write access of GPUs to each other's memory: takes twice as long as atomics.
    PeerAccess,
    /// Support for atomics between a pair, access over PCIe if there is no NVLink, and the PCI level that a pair with
    /// NVLink shares. Takes 1.7 ms for each ordered pair, one after the other regardless of threads.
    PeerAtomics,
}

impl SlowFact {
    pub const ALL: &[Self] = &[Self::NvLinkErrors, Self::PeerAccess, Self::PeerAtomics];
    /// The facts that are read before the driver has started. The others are read afterwards, because each NVML call
    /// blocks the starting driver for as long as the call takes.
    pub const BESIDE_THE_START: &[Self] = &[];

    /// Returns the reason that is recorded for such a fact when it is left out.
    pub fn not_read(self) -> Unknown {
        let why = match self {
            Self::NvLinkErrors => "error counters take long; 'check' reads them",
            Self::PeerAccess => "asking about peer access takes long; 'check' reads them",
            Self::PeerAtomics => "asking about atomics takes long; 'check' reads them",
        };
        Unknown::NotRead(why.into())
    }
}

impl Snapshot {
    /// Returns the GPU with this NVML index.
    pub fn gpu(&self, index: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.index == index)
    }

    /// Returns the product name of the GPU with this NVML index, if it is known.
    pub fn model_of(&self, index: u32) -> Option<&String> {
        self.gpu(index)?.name.known()
    }

    /// Returns the indices of the GPUs of which this is true.
    pub fn gpus_with(&self, is_so: impl Fn(&Gpu) -> bool) -> Vec<u32> {
        let with = self.gpus.iter().filter(|gpu| is_so(gpu));
        with.map(|gpu| gpu.index).collect()
    }

    /// Returns NVML's report on this ordered pair.
    pub fn pair(&self, pair: Pair) -> Option<&GpuPair> {
        pair.find(&self.pairs, |said| Pair { source: said.source, destination: said.destination })
    }

    /// Returns the address of the GPU with this NVML index. If NVML does not report it, the address follows by
    /// elimination.
    pub fn address_of(&self, index: u32) -> Option<PciAddress> {
        let told = self.gpu(index)?.pci.get();
        told.or_else(|| {
            Some(self.unlisted_gpus.iter().find(|function| function.gpu == Some(index))?.address)
        })
    }

    /// Returns the PCI function at this address.
    pub fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        self.pci.iter().find(|function| function.address == address)
    }
}

impl Snapshot {
    /// Returns the NUMA nodes whose memory is the host's. Where a GPU has a coherent link to the processor (C2C), the
    /// kernel lists the GPUs' own memory as nodes without processors, and empty ones for its instances (NVIDIA Grace
    /// performance tuning guide). Elsewhere a node without processors is memory of the host, such as CXL.
    pub fn host_nodes(&self) -> impl Iterator<Item = &NumaNode> {
        let coherent = self.gpus.iter().any(|gpu| gpu.c2c.get() == Some(true));
        self.numa_nodes
            .iter()
            .filter(move |node| node.memory_bytes.0 > 0 && !(coherent && node.cpus.is_empty()))
    }
}

/// A NUMA node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub node: u32,
    /// Processors, in the kernel's list form (`0-63`).
    pub cpus: String,
    /// Memory of the node in bytes.
    pub memory_bytes: Bytes,
}

impl NumaNode {
    /// Returns its processors, as far as their list can be read.
    pub fn processors(&self) -> Vec<usize> {
        /// A limit above what Linux supports.
        const MOST: usize = 1 << 16;
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < MOST);
            Some(number(first)?..=number(last)?)
        };
        self.cpus.split(',').filter_map(range).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_far_as_they_make_sense() {
        let processors = |cpus: &str| {
            NumaNode { node: 0, cpus: cpus.to_owned(), memory_bytes: Bytes(0) }.processors()
        };
        assert_eq!(processors("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(processors("5-2,x,-,7 "), [7]);
        assert_eq!(processors("0-99999999999999,1"), [1]);
        assert_eq!(processors(""), [0; 0]);
    }
}
