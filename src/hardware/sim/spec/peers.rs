//! Peer access of a simulated machine.

use serde::{Deserialize, Serialize};

use super::defaults;
use model::snapshot::P2pStatus;

/// Peer access: a rule for every pair, and exceptions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSpec {
    #[serde(default)]
    pub rule: PeerRule,
    /// Exceptions; the last that fits a pair holds.
    #[serde(default)]
    pub exceptions: Vec<PeerException>,
    /// Peers that one GPU may have enabled. Where it is not given it is CUDA's 8, and none with
    /// NVSwitches, which lift it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What is said of peer access, which need not be the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerRule {
    /// NVML's word on reading, and on writing too where nothing else is given.
    #[serde(default = "defaults::ok")]
    pub nvml: P2pStatus,
    /// NVML's word on writing, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_write: Option<P2pStatus>,
    /// CUDA's word.
    #[serde(default)]
    pub cuda: CudaPeerRule,
}

/// CUDA's word on peer access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CudaPeerRule {
    /// It can be had.
    #[default]
    Granted,
    /// It cannot.
    Refused,
    /// It is said to be possible and refused when it is enabled, as patched drivers do.
    RefusedOnEnabling,
}

/// Peer access of some pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerException {
    pub pairs: Pairs,
    pub rule: PeerRule,
}

/// Pairs of GPUs by NVML index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pairs {
    /// Every ordered pair.
    All,
    /// One direction.
    Ordered(u32, u32),
    /// Both directions.
    Both(u32, u32),
}

impl Pairs {
    /// Whether data from `source` to `destination` is meant.
    pub const fn contains(self, source: u32, destination: u32) -> bool {
        match self {
            Self::All => true,
            Self::Ordered(a, b) => a == source && b == destination,
            Self::Both(a, b) => {
                (a == source && b == destination) || (b == source && a == destination)
            }
        }
    }
}

impl Default for PeerRule {
    fn default() -> Self {
        Self {
            nvml: P2pStatus::Ok,
            nvml_write: None,
            cuda: CudaPeerRule::Granted,
        }
    }
}
