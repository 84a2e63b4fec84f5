//! Statuses of a measurement, and results of checking its bytes.

use serde::{Deserialize, Serialize};

/// The status of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It has a figure.
    Measured,
    /// It failed; the reason contains the cause.
    Failed,
    /// It did not end before its deadline, and the worker was replaced.
    Hung,
    /// It was not run; the reason explains why.
    Skipped,
}

/// The result of checking the bytes on the destination GPU before timing.
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
    /// The check gave no result, for example for lack of memory.
    Inconclusive,
    /// The bytes were not checked.
    Skipped,
}

impl Verified {
    /// Returns true if bytes are known to have been lost or changed. A rate of such copies means nothing.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Self::Dropped | Self::Corrupt)
    }
}
