//! What programs on this machine should do, worked out from its own figures.

use serde::{Deserialize, Serialize};

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Advice {
    /// What it is about, with the figures behind it.
    #[serde(flatten)]
    pub basis: Basis,
    /// A sentence for people.
    pub sentence: String,
    /// What does it in PyTorch.
    pub pytorch: Vec<String>,
}

/// What a piece of advice is about, and the figures behind it: medians over all pairs or GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "topic")]
pub enum Basis {
    /// Which streams to copy on between GPUs, so that kernels run beside the copies.
    Streams {
        /// Pairs that were measured.
        pairs: u32,
        /// Share of a kernel's time that a copy ran beside it, per cent, with side streams on both GPUs.
        side_percent: f64,
        /// The same with the default streams of both. Null where that was not measured.
        default_percent: Option<f64>,
    },
    /// Whether to pin host memory.
    Pinning {
        /// GPUs that were measured.
        gpus: u32,
        /// From pinned memory that is used again and again to the GPU.
        pinned_gbps: f64,
        /// From pageable memory.
        pageable_gbps: f64,
        /// From memory that is pinned anew for each copy, the time for that counted in. Null where that was not
        /// measured.
        pinned_anew_gbps: Option<f64>,
    },
    /// How many batches to keep in flight.
    Batches {
        /// GPUs that were measured.
        gpus: u32,
        /// Streams that take the batches in turn.
        streams: u32,
        /// All batches in one stream, microseconds.
        one_stream_us: f64,
        /// All batches in several streams, microseconds.
        several_streams_us: f64,
        /// How many times as fast several streams are.
        speed_up: f64,
    },
}

impl Basis {
    /// What it is about, in a word.
    pub const fn topic(&self) -> &'static str {
        match self {
            Self::Streams { .. } => "streams",
            Self::Pinning { .. } => "pinning",
            Self::Batches { .. } => "batches",
        }
    }
}
