//! What programs will use on a machine: NCCL's transport of each pair, and the all-reduce of inference engines.

use serde::{Deserialize, Serialize};

use super::placement::Pair;
use super::units::Bytes;

/// What programs will use, by their own rules and the facts of the report. Nothing is measured for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Forecast {
    /// NCCL's transports.
    pub nccl: NcclForecast,
    /// The all-reduce that inference engines bring along, by engine and number of GPUs.
    pub all_reduce: Vec<AllReduceForecast>,
}

/// The transport of each pair by the rules of one version of NCCL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NcclForecast {
    /// The version whose rules were applied.
    pub version: String,
    /// What the report lacks that could change every line. Empty if nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Pairs that are alike, with their transport. Each pair of GPUs is in one group, the lower index first.
    pub groups: Vec<PairsForecast>,
}

/// Pairs for which NCCL decides alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PairsForecast {
    /// The pairs, in both directions.
    pub pairs: Vec<Pair>,
    /// The transport between processes with one GPU each. Null if not known.
    pub transport: Option<Transport>,
    /// The transport between GPUs of one process. Null if not known.
    pub in_one_process: Option<Transport>,
    /// True if the protocol LL128 is used beside LL and Simple, in a job of GPUs that are all connected like this pair.
    /// Null if not known.
    pub ll128: Option<bool>,
    /// The facts that decide.
    pub because: String,
    /// What the report lacks. Empty if nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

/// NCCL's way between two GPUs, in the words of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// `P2P/CUMEM`: peer access to memory of `cuMemCreate`, shared by descriptor.
    P2pCumem,
    /// `P2P/IPC`: peer access to memory that is shared by CUDA's older handles.
    P2pIpc,
    /// `P2P/direct pointer`: peer access within one process.
    P2pDirect,
    /// Peer access; whether as `P2P/CUMEM` or `P2P/IPC` is not known.
    P2p,
    /// `P2P/indirect`: through a GPU that has NVLinks to both.
    P2pIndirect,
    /// `SHM`: through memory of the host.
    Shm,
    /// `NET`: through network adapters.
    Net,
    /// NCCL ends with an error when it starts.
    Fails,
}

impl Transport {
    /// Returns the word of NCCL's log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::P2pCumem => "P2P/CUMEM",
            Self::P2pIpc => "P2P/IPC",
            Self::P2pDirect => "P2P/direct",
            Self::P2p => "P2P",
            Self::P2pIndirect => "P2P/indirect",
            Self::Shm => "SHM",
            Self::Net => "NET",
            Self::Fails => "fails",
        }
    }
}

/// Whether an engine's own all-reduce runs with this number of GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AllReduceForecast {
    /// The engine.
    pub engine: Engine,
    /// Number of GPUs of the job.
    pub gpus: u32,
    /// The sets of so many GPUs with which it runs. Null if not known.
    pub runs: Option<Runs>,
    /// A set of GPUs with which it runs, if it does not with every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub example: Vec<u32>,
    /// Size of a message up to which it is used instead of NCCL. Null if it does not run.
    pub up_to_bytes: Option<Bytes>,
    /// The facts that decide.
    pub because: String,
    /// What the report lacks, or did not test. Empty if nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

/// The sets of GPUs with which something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Runs {
    /// Every set.
    Every,
    /// Some sets.
    Some,
    /// No set.
    None,
}

/// An inference engine with an all-reduce of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    TensorrtLlm,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::TensorrtLlm];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::TensorrtLlm => "TensorRT-LLM",
        }
    }
}
