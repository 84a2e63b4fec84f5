//! NVML's reports on ordered pairs of GPUs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reading::{Unknown, facts};

facts! {
    /// NVML's report on an ordered pair of GPUs.
    pub struct GpuPair {
        /// Index of the GPU that data leaves.
        source: u32,
        /// Index of the GPU that data reaches.
        destination: u32,
        => readings {
            /// Lowest PCI level that both share.
            common_ancestor: CommonAncestor,
            /// Read access of the source to the destination's memory.
            p2p_read: P2pStatus,
            /// Write access of the source to the destination's memory.
            p2p_write: P2pStatus,
            /// Access to each other over NVLink.
            p2p_nvlink: P2pStatus,
            /// Atomics between them.
            p2p_atomics: P2pStatus,
            /// Access to each other over PCIe. Not asked if they reach each other over NVLink.
            p2p_pci: P2pStatus,
        }
    }
}

impl GpuPair {
    /// Returns the reason why access over PCIe is not known for a pair with NVLink.
    pub fn has_nvlink() -> Unknown {
        Unknown::NotRead("the pair has NVLink".into())
    }

    /// Returns the reason why the shared PCI level of a pair with NVLink is not known before NVML was asked. No plan
    /// depends on it, and NVML takes 61 ms for the first answer (4 x H200, driver 580).
    pub fn ancestor_not_asked() -> Unknown {
        Unknown::NotRead(
            "asking about the PCI level that a pair with NVLink shares takes long; 'check' reads it".into(),
        )
    }

    /// Returns the reason why access over PCIe is not known before NVML was asked.
    pub fn pci_not_asked() -> Unknown {
        Unknown::NotRead("asking about access over PCIe takes long; 'check' reads it".into())
    }
}

/// NVML's topology level, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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

/// NVML's answer on peer access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum P2pStatus {
    /// Access works, as NVML reports it.
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
    /// Not supported, without a specific reason.
    #[serde(rename = "NS")]
    NotSupported,
    /// NVML does not know.
    #[serde(rename = "U")]
    Unknown,
}

impl P2pStatus {
    /// Returns nvidia-smi's abbreviation.
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

    /// Returns the meaning of the abbreviation.
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
