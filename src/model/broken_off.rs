//! Rounds that broke off and succeeded when their flows were tried again. No cell shows them, because each cell holds
//! the figure of the second try.

use serde::{Deserialize, Serialize};

use super::flow::Flow;
use super::status::Status;

/// The way in which a round broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It did not end before its deadline.
    Hung,
    /// It ended the worker; nothing outside did.
    Crashed,
    /// The driver returned an error.
    Failed,
}

impl How {
    /// Returns its word in a report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::Crashed => "crashed",
            Self::Failed => "failed",
        }
    }
}

/// One time when a round broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Break {
    /// The way in which it broke off.
    pub how: How,
    /// Signal that ended the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Exit code of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// CUDA's error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<u32>,
    /// The reason in words.
    pub reason: String,
}

impl Break {
    /// Returns a break without signal, exit code or error code.
    pub const fn of(how: How, reason: String) -> Self {
        Self { how, signal: None, exit_code: None, error_code: None, reason }
    }
}

/// Result of running all flows of the round together once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Again {
    /// They were not run together again.
    NotRun {
        /// Reason why they were not run again.
        why: String,
    },
    /// The second run succeeded.
    Worked,
    /// The second run broke off too.
    BrokeOff(Break),
}

/// A round that broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct BrokenOff {
    /// Number of the round within the plan. If several rounds ran at once, the number of the first.
    pub round: u32,
    /// The measurement that the round belonged to.
    pub measurement: String,
    /// All flows that were copied at the same time.
    pub flows: Vec<Flow>,
    /// The first time that it broke off.
    #[serde(flatten)]
    pub first: Break,
    /// Result of running it again unchanged.
    pub again: Again,
}

impl BrokenOff {
    /// Returns true if several flows ran at the same time.
    pub const fn in_company(&self) -> bool {
        self.flows.len() > 1
    }

    /// Returns every time that it broke off.
    pub fn events(&self) -> impl Iterator<Item = &Break> {
        let again = match &self.again {
            Again::BrokeOff(again) => Some(again),
            Again::NotRun { .. } | Again::Worked => None,
        };
        std::iter::once(&self.first).chain(again)
    }

    /// Returns true if it is a later record of the same round.
    pub fn is_of(&self, other: &Self) -> bool {
        self.round == other.round && self.flows == other.flows
    }
}

/// Converts the final status of a round. Fails for a status that does not show how the round broke off.
impl TryFrom<Status> for How {
    type Error = ();

    fn try_from(status: Status) -> Result<Self, ()> {
        match status {
            Status::Hung => Ok(Self::Hung),
            Status::Failed => Ok(Self::Failed),
            Status::Measured | Status::Skipped => Err(()),
        }
    }
}
