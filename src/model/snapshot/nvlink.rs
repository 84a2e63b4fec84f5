//! NVLinks and the NVSwitch fabric, as one GPU sees them.

use serde::{Deserialize, Serialize};

use crate::model::reading::facts;
use crate::model::units::PciAddress;

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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

impl Fabric {
    /// What of a fabric health mask says that something is degraded, in its own bits: 0 is healthy.
    ///
    /// In NVML's mask a healthy part is not 0: each part is a number, 0 "not supported", 1 "yes" and
    /// 2 "no" (nvml.h, `NVML_GPU_FABRIC_HEALTH_MASK_*`): degraded bandwidth from bit 0, route recovery
    /// from 2, unhealthy route from 4, access timeout recovery from 6, all two bits wide; the
    /// configuration from bit 8, four bits wide, is 1 when correct and higher when not.
    pub const fn degraded(mask: u32) -> u32 {
        // A part is "yes" when its low bit is set and its high bit is not.
        let yes = mask & !(mask >> 1) & 0b0101_0101;
        let configuration = mask >> 8 & 0xf;
        if configuration > 1 {
            yes | configuration << 8
        } else {
            yes
        }
    }
}

/// Progress of a GPU's registration with the fabric manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
