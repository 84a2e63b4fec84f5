//! Runs rounds on a driver and makes measurements of their outcomes. The worker calls [`Bench`];
//! the parent calls [`assemble`].

pub mod assemble;
mod bandwidth;
mod bench;
mod latency;
mod overlap;
pub mod statistics;
mod verify;
pub mod watch;

use serde::{Deserialize, Serialize};

pub use self::bench::{Bench, Selection};
use crate::hardware::HardwareError;
use crate::model::measurement::Status;
use crate::model::measurement::Verified;

/// How a round ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The bytes were checked.
    Verified {
        /// What was found.
        verified: Verified,
        /// What was wrong, in words.
        detail: Option<String>,
    },
    /// Copies were timed.
    Times {
        /// Nanoseconds per copy, source to destination.
        copy_ns: Vec<f64>,
        /// Nanoseconds per copy of [`crate::plan::FIXED_COST_BYTES`] on the same streams; empty
        /// where the fixed cost is not told.
        small_ns: Vec<f64>,
        /// Nanoseconds of host time per copy.
        host_ns: Vec<f64>,
    },
    /// A copy and a kernel were timed against each other.
    Overlap {
        /// One per sample.
        samples: Vec<OverlapSample>,
    },
    /// It did not work.
    Failed {
        /// Why.
        error: HardwareError,
    },
    /// It was not run, or did not end; said by the parent.
    Lost {
        /// Hung, failed or skipped.
        status: Status,
        /// Why.
        reason: String,
    },
}

/// One sample of an overlap measurement, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverlapSample {
    /// How long the copy took.
    pub copy_ns: f64,
    /// How long the kernel took.
    pub kernel_ns: f64,
    /// How long both ran.
    pub both_ns: f64,
    /// How long the host was in the copy call, waiting included.
    pub host_ns: f64,
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;
