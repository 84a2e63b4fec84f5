//! What ran when, on which stream, and which call of the host launched it: of the rounds that `check --trace` follows.
//! Raw: every time is on the clock of that on which it happened, and [`ClockReading`] has how these clocks stood.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was seen of a round that was followed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// How the clocks of its GPUs stood to the host's when it began.
    pub clocks: Vec<ClockReading>,
    /// Its parts, one after the other, such as the placements of a copy.
    pub parts: Vec<Part>,
    /// Why something of it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How a GPU's clock stood to the host's: it showed `gpu_ns` at some moment between two of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// When its clock was set to 0, nanoseconds of the host's clock. Another worker sets another clock.
    pub zero_ns: f64,
    /// What it showed, nanoseconds.
    pub gpu_ns: f64,
    /// That was not before this, nanoseconds of the host's clock.
    pub not_before_ns: f64,
    /// And not after this.
    pub not_after_ns: f64,
}

/// One thing that was tried, from its first call to the end of its last work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What it shows: `overlap`.
    pub probe: String,
    /// Which of its kind: `side/default/blocking`.
    pub name: String,
    /// The host's calls, one after the other.
    pub calls: Vec<Call>,
    /// What they launched.
    pub work: Vec<Work>,
    /// When the gates opened that held this work: each a reading of a clock too, at the time that matters.
    #[serde(default)]
    pub gates: Vec<ClockReading>,
}

/// A call of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// What it does.
    pub name: String,
    /// When it was made, nanoseconds of the host's clock.
    pub start_ns: f64,
    /// When it had returned.
    pub end_ns: f64,
}

/// What a GPU did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What it did: `copy 64 MiB to GPU 1`.
    pub name: String,
    /// Which kind of work.
    pub kind: WorkKind,
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Its stream: 0 is the legacy default stream.
    pub stream: u32,
    /// When it began, nanoseconds of the GPU's clock.
    pub start_ns: f64,
    /// When it had ended.
    pub end_ns: f64,
    /// The call that launched it, by its place among the calls of its part.
    pub call: Option<usize>,
}

/// Which kind of work a GPU did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// It copied.
    Copy,
    /// It ran a kernel.
    Kernel,
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Copy => "copy",
            Self::Kernel => "kernel",
        })
    }
}
