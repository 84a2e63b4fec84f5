//! Advice for programs on this machine, derived from its own figures.

use serde::{Deserialize, Serialize};

use super::contention::KernelNeed;
use super::placement::Engine;
use super::units::Bytes;

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Advice {
    /// The topic, with the figures behind it.
    #[serde(flatten)]
    pub basis: Basis,
    /// The advice as a sentence for people.
    pub sentence: String,
    /// Lines of programs that follow the advice.
    #[serde(default)]
    pub programs: Vec<Lines>,
}

words! {
    /// The library or language of a program.
    Framework {
        Pytorch = "PyTorch",
        Cupy = "CuPy",
        Numba = "Numba",
        Cuda = "CUDA C++",
    }
}

/// Lines of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Lines {
    pub framework: Framework,
    pub lines: Vec<String>,
}

impl Lines {
    pub fn new(framework: Framework, lines: &[&str]) -> Self {
        Self { framework, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }
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
        /// The same share with blocking streams on both GPUs, as `cudaStreamCreate`, CuPy and Numba create them. Null if
        /// not measured.
        #[serde(default)]
        blocking_percent: Option<f64>,
    },
    /// The slow-down of copies and kernels that run at the same time.
    Costs {
        /// Medians for each engine of the copy and each kind of kernel.
        costs: Vec<Cost>,
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
        /// Rate to the GPU if one thread copies the bytes from pageable into pinned memory first. Null if not measured.
        #[serde(default)]
        filled_gbps: Option<f64>,
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
        /// Bytes of a GPU that the batch in one stream takes. Null if not known.
        #[serde(default)]
        one_stream_bytes: Option<Bytes>,
        /// Bytes of a GPU that the batches in several streams take. Null if not known.
        #[serde(default)]
        several_streams_bytes: Option<Bytes>,
    },
}

/// The slow-down of a copy and a kernel that run at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Cost {
    /// The engine that copies.
    pub engine: Engine,
    /// The resource that the kernel uses most.
    pub kernel: KernelNeed,
    /// Rate of the copy beside the kernel, per cent of its rate alone.
    pub copy_keeps_percent: f64,
    /// Speed of the kernel beside the copy, per cent of its speed alone.
    pub kernel_keeps_percent: f64,
}

impl Basis {
    /// Returns the topic as one word.
    pub const fn topic(&self) -> &'static str {
        match self {
            Self::Streams { .. } => "streams",
            Self::Costs { .. } => "costs",
            Self::Pinning { .. } => "pinning",
            Self::Batches { .. } => "batches",
        }
    }
}
