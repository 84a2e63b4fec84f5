//! How a measurement ended, and whether its bytes arrived.

use serde::{Deserialize, Serialize};

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It has a figure.
    Measured,
    /// It failed; the reason says how.
    Failed,
    /// It did not end before its deadline, and the worker was replaced.
    Hung,
    /// It was not run; the reason says why.
    Skipped,
}

/// Whether the bytes arrived, checked on the destination GPU before timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// Every byte is right.
    Ok,
    /// Bytes never arrived: the poison is still there.
    Dropped,
    /// Wrong bytes arrived.
    Corrupt,
    /// It was checked without a result (out of memory, say).
    Inconclusive,
    /// It was not tried.
    Skipped,
}

impl Verified {
    /// Whether bytes are known to have been lost or changed: a rate of such copies means nothing.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Self::Dropped | Self::Corrupt)
    }
}
