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

impl Status {
    /// Returns true if it was run and broke off.
    pub const fn broke_off(self) -> bool {
        matches!(self, Self::Failed | Self::Hung)
    }
}

/// The result of checking the bytes on the destination GPU before timing.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// Every byte is right.
    Ok,
    /// Bytes never arrived: the poison is still there.
    Dropped,
    /// Bytes of the last copy never arrived: those of the copy before are still there.
    Stale,
    /// Wrong bytes arrived.
    Corrupt,
    /// The check gave no result, for example for lack of memory.
    Inconclusive,
    /// The bytes were not checked.
    #[default]
    Skipped,
}

impl Verified {
    /// Returns true if bytes are known to have been lost or changed. A rate of such copies means nothing.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Self::Dropped | Self::Stale | Self::Corrupt)
    }

    /// Returns the result for a figure whose bytes should have been checked.
    pub(crate) const fn or_doubtful(self) -> Self {
        match self {
            Self::Skipped => Self::Inconclusive,
            known => known,
        }
    }
}

/// The end of a measurement: its status, and if its figure counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Ending {
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the same links or worked on the same GPUs. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// True if this platform cannot do it by design, as the driver says. It does not count as untested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_supported: bool,
}

impl Ending {
    /// The ending of a measurement that has a figure.
    pub const MEASURED: Self =
        Self { status: Status::Measured, reason: None, disturbed: false, not_supported: false };

    /// Creates an ending without a figure, for this reason.
    pub const fn without(status: Status, reason: Option<String>) -> Self {
        Self { status, reason, disturbed: false, not_supported: false }
    }

    /// Returns true if there is a figure that no other program disturbed.
    pub fn is_sound(&self) -> bool {
        self.status == Status::Measured && !self.disturbed
    }
}
