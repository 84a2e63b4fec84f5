//! Advice for programs on this machine, derived from its own figures.

use serde::{Deserialize, Serialize};

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Advice {
    /// The topic, with the figures behind it.
    #[serde(flatten)]
    pub basis: Basis,
    /// The advice as a sentence for people.
    pub sentence: String,
    /// Lines of PyTorch that follow the advice.
    pub pytorch: Vec<String>,
}

/// The topic of a piece of advice and the figures behind it: medians over all pairs or GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "topic")]
pub enum Basis {
    /// Streams to copy on between GPUs, so that kernels run beside the copies.
    Streams {
        /// Number of measured pairs.
        pairs: u32,
        /// Share of a kernel's time during which a copy ran, per cent, with side streams on both GPUs.
        side_percent: f64,
        /// The same share with the default streams of both GPUs. Null if not measured.
        default_percent: Option<f64>,
    },
    /// Reasons to pin host memory.
    Pinning {
        /// Number of measured GPUs.
        gpus: u32,
        /// Rate to the GPU from pinned memory that is reused for every copy.
        pinned_gbps: f64,
        /// Rate to the GPU from pageable memory.
        pageable_gbps: f64,
        /// Rate to the GPU from memory pinned anew for each copy, pinning time included. Null if not measured.
        pinned_anew_gbps: Option<f64>,
    },
    /// Number of batches to keep in flight.
    Batches {
        /// Number of measured GPUs.
        gpus: u32,
        /// Number of streams that take the batches in turn.
        streams: u32,
        /// Time of all batches in one stream, microseconds.
        one_stream_us: f64,
        /// Time of all batches in several streams, microseconds.
        several_streams_us: f64,
        /// Speed-up from several streams.
        speed_up: f64,
    },
}

impl Basis {
    /// Returns the topic as one word.
    pub const fn topic(&self) -> &'static str {
        match self {
            Self::Streams { .. } => "streams",
            Self::Pinning { .. } => "pinning",
            Self::Batches { .. } => "batches",
        }
    }
}
