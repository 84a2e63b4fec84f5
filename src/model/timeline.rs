//! The sequence of work on each stream, and the host calls that launched it, in the rounds that `check -o FILE.trace`
//! follows. The data is raw: every time is on the clock of the device where it was taken, and [`ClockReading`]
//! relates these clocks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The record of a round that was followed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Relation of its GPUs' clocks to the host's clock when the round began.
    pub clocks: Vec<ClockReading>,
    /// Its parts, one after the other, such as the placements of a copy.
    pub parts: Vec<Attempt>,
    /// Reason why a part of the timeline is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A reading of a GPU's clock relative to the host's: it showed `gpu_ns` at some moment between two host times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Host time at which its clock was set to 0, nanoseconds. Another worker sets another clock.
    pub zero_ns: f64,
    /// Time that its clock showed, nanoseconds.
    pub gpu_ns: f64,
    /// Earliest host time of the reading, nanoseconds.
    pub not_before_ns: f64,
    /// Latest host time of the reading, nanoseconds.
    pub not_after_ns: f64,
}

/// One attempt, from its first call to the end of its last work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The probe: `overlap`.
    pub probe: String,
    /// Name of the part: `side/default/blocking`.
    pub name: String,
    /// Calls of the host, one after the other.
    pub calls: Vec<Call>,
    /// Work that these calls launched.
    pub work: Vec<Work>,
    /// Opening times of the gates that held this work. Each is also a clock reading, taken at the time that matters.
    #[serde(default)]
    pub gates: Vec<ClockReading>,
}

/// A call of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Name of the call.
    pub name: String,
    /// Start of the call, nanoseconds of the host's clock.
    pub start_ns: f64,
    /// Return of the call, nanoseconds of the host's clock.
    pub end_ns: f64,
}

/// A piece of work of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Description of the work: `copy 64 MiB to GPU 1`.
    pub name: String,
    /// Kind of the work.
    pub kind: WorkKind,
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Its stream. 0 is the legacy default stream.
    pub stream: u32,
    /// Start, nanoseconds of the GPU's clock.
    pub start_ns: f64,
    /// End, nanoseconds of the GPU's clock.
    pub end_ns: f64,
    /// Index of the call that launched it, among the calls of its part.
    pub call: Option<usize>,
}

/// The kind of work that a GPU did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// A copy.
    Copy,
    /// A kernel.
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
