//! Rates of collective operations on a machine, calculated from measured copies.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::GbPerSecond;

/// The algorithm of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Every GPU passes its parts on to the next one.
    Ring,
    /// Two binary trees. In each of them, half of the data is summed upwards and sent down again.
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

/// Rate of an all-reduce of large sums over all GPUs of a pattern, if copies are the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AllReduce {
    /// Algorithm of the all-reduce.
    pub algorithm: Algorithm,
    /// Number of GPUs.
    pub gpus: u32,
    /// Rate that the slowest GPU sent at while all sent and received, GB/s. The other figures follow from it.
    pub sent_gbps: GbPerSecond,
    /// Pattern that this figure was measured with.
    pub pattern: String,
    /// Bus bandwidth, as nccl-tests defines it.
    pub bus_gbps: GbPerSecond,
    /// Bytes to be summed, divided by the time of the all-reduce.
    pub algorithm_gbps: GbPerSecond,
}
