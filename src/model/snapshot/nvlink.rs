//! NVLinks and the NVSwitch fabric, as one GPU sees them.

use serde::{Deserialize, Serialize};

use crate::reading::facts;
use crate::units::PciAddress;

facts! {
    /// One NVLink of a GPU.
    pub struct NvLink {
        /// Number of the link on its GPU, from 0.
        link: u8,
        => readings {
            /// True if the link is up.
            active: bool,
            /// NVLink version, such as `4.0`.
            version: String,
            /// Raw rate of the link per direction, MB/s. It is 6.25% above the payload rate on versions 4 and 5.
            speed_mbps: u32,
            /// Kind of device at the other end.
            remote: NvLinkRemote,
            /// PCI address of the other end.
            remote_pci: PciAddress,
            /// CRC errors in flits since the driver was loaded.
            crc_errors: u64,
            /// Replays.
            replay_errors: u64,
            /// Recoveries.
            recovery_errors: u64,
            /// Errors that NVLink 5 and later count, beside recoveries.
            packet_errors: NvLinkPacketErrors,
            /// Codewords that forward error correction received, by the number of symbols that it corrected in them, from
            /// 0 on. NVLink 5 and later count them.
            fec_histogram: Vec<u64>,
        }
    }
}

/// Errors that NVLink 5 and later count since the driver was loaded; null for what the driver does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NvLinkPacketErrors {
    /// Recoveries that failed, after which the link was down.
    pub failed_recoveries: Option<u64>,
    /// Packets that were malformed, did not fit the buffer, or were discarded.
    pub lost_packets: Option<u64>,
    /// Errors that forward error correction did not correct.
    pub uncorrected: Option<u64>,
    /// Decimal logarithm of the share of bits that are wrong after forward error correction.
    pub bit_error_rate_log10: Option<f64>,
}

/// NVLinks between two GPUs, by their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NvLinkBond {
    /// Index of the GPU that data leaves.
    pub source: u32,
    /// Index of the GPU that data reaches.
    pub destination: u32,
    /// Number of NVLinks.
    pub links: u8,
    /// NVLink version, such as `4.0`. Null if not known.
    pub version: Option<String>,
    /// Raw rate of a link per direction, MB/s. Null if not known.
    pub speed_mbps: Option<u32>,
    /// True if the links lead to NVSwitches: all pairs of the GPU share them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_switches: bool,
}

/// The kind of device that an NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Fabric {
    /// Progress of the registration.
    pub state: FabricState,
    /// NVML's return code of the registration, 0 if it succeeded.
    pub status: u32,
    /// Bits of the health mask, 0 if nothing is degraded. Null if the driver has no mask.
    pub health_mask: Option<u32>,
    /// Clique within the cluster. GPUs of other cliques are not reachable over NVLink.
    pub clique_id: u32,
    /// UUID of the cluster, in hex. All zeros on a standalone machine.
    pub cluster_uuid: String,
}

impl Fabric {
    /// Returns the bits of a fabric health mask that report a degradation: 0 is healthy.
    ///
    /// In NVML's mask a healthy part is not 0. Each part is a number: 0 "not supported", 1 "yes", 2 "no" (nvml.h,
    /// `NVML_GPU_FABRIC_HEALTH_MASK_*`). Degraded bandwidth starts at bit 0, route recovery at 2, unhealthy route at
    /// 4, access timeout recovery at 6; all are two bits wide. The configuration starts at bit 8 and is four bits
    /// wide. It is 1 if correct and higher if not.
    pub const fn degraded(mask: u32) -> u32 {
        // A part is "yes" when its low bit is set and its high bit is not.
        let yes = mask & !(mask >> 1) & 0b0101_0101;
        let configuration = mask >> 8 & 0xf;
        if configuration > 1 { yes | configuration << 8 } else { yes }
    }
}

/// Progress of a GPU's registration with the fabric manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FabricState {
    /// This GPU has no NVSwitch fabric.
    NotSupported,
    /// Not started.
    NotStarted,
    /// In progress.
    InProgress,
    /// Completed; the status shows if it succeeded.
    Completed,
}
