//! The PCI tree and what hangs in it beside the GPUs.

use serde::{Deserialize, Serialize};

use crate::model::reading::facts;
use crate::model::units::{Generation, Lanes, PciAddress};

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
            generation: Generation as u8,
            /// Lanes of that link, now.
            width: Lanes as u8,
            /// Highest generation that this end of the link can do.
            generation_max: Generation as u8,
            /// Most lanes that this end can do.
            width_max: Lanes as u8,
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

/// What a PCI function is in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AdapterKind {
    /// An RDMA device (InfiniBand or RoCE).
    Rdma,
    /// A network interface without RDMA.
    Ethernet,
}
