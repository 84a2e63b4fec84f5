//! What collective operations could reach on a machine, worked out from copies that were measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::GbPerSecond;

/// How an all-reduce goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Every GPU passes its parts on to the next one.
    Ring,
    /// Two binary trees, in each of which half of the data is summed upwards and sent down again.
    Tree,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
        })
    }
}

/// The most that an all-reduce over all GPUs of a pattern could reach where copies are the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AllReduce {
    /// How.
    pub algorithm: Algorithm,
    /// Number of GPUs.
    pub gpus: u32,
    /// What the slowest of them sent while all sent and received, GB/s: the figure that the others follow from.
    pub sent_gbps: GbPerSecond,
    /// The pattern of that figure.
    pub pattern: String,
    /// Bus bandwidth, as nccl-tests defines it.
    pub bus_gbps: GbPerSecond,
    /// Bytes to be summed over the time that it takes.
    pub algorithm_gbps: GbPerSecond,
}
