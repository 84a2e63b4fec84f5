//! Peer access of a simulated machine.

use serde::{Deserialize, Serialize};

use model::snapshot::P2pStatus;

/// Peer access: a rule for every pair, and exceptions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSpec {
    #[serde(default)]
    pub rule: PeerRule,
    /// Exceptions; the last one that matches a pair applies.
    #[serde(default)]
    pub exceptions: Vec<PeerException>,
    /// Peers that one GPU may have enabled. If omitted, CUDA's limit of 8, or no limit with NVSwitches, which lift it.
    pub limit: Option<u32>,
}

/// The reported state of peer access, which may differ between NVML and CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerRule {
    /// NVML's status of reading, and of writing too if `nvml_write` is omitted.
    #[serde(default = "ok")]
    pub nvml: P2pStatus,
    /// NVML's status of writing, if it differs.
    pub nvml_write: Option<P2pStatus>,
    /// CUDA's answer.
    #[serde(default)]
    pub cuda: CudaPeerRule,
}

/// CUDA's answer about peer access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CudaPeerRule {
    /// Access is possible.
    #[default]
    Granted,
    /// Access is not possible.
    Refused,
    /// Access is reported as possible, but refused when it is enabled, as patched drivers do.
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
    /// A GPU and itself.
    Within(u32),
}

impl Pairs {
    /// Returns true if the entry includes data from `source` to `destination`.
    pub const fn contains(self, source: u32, destination: u32) -> bool {
        match self {
            Self::All => source != destination,
            Self::Ordered(a, b) => a == source && b == destination,
            Self::Within(gpu) => gpu == source && gpu == destination,
            Self::Both(a, b) => {
                (a == source && b == destination) || (b == source && a == destination)
            }
        }
    }
}

const fn ok() -> P2pStatus {
    P2pStatus::Ok
}

impl Default for PeerRule {
    fn default() -> Self {
        Self { nvml: P2pStatus::Ok, nvml_write: None, cuda: CudaPeerRule::Granted }
    }
}
