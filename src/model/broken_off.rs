//! Rounds that broke off and worked when their flows were tried again. No cell shows them: each has its figure from
//! the second try.

use serde::{Deserialize, Serialize};

use super::flow::Flow;
use super::status::Status;

/// How a round broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It did not end before its deadline.
    Hung,
    /// It ended the worker, and nothing outside did.
    Crashed,
    /// The driver gave an error.
    Failed,
}

impl How {
    /// Its word in a report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::Crashed => "crashed",
            Self::Failed => "failed",
        }
    }
}

/// One time that a round broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Break {
    /// How.
    pub how: How,
    /// The signal that ended the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The exit code of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// CUDA's code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<u32>,
    /// The same in words.
    pub reason: String,
}

impl Break {
    /// One without a number.
    pub const fn of(how: How, reason: String) -> Self {
        Self {
            how,
            signal: None,
            exit_code: None,
            error_code: None,
            reason,
        }
    }
}

/// What came of running all flows of the round together once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Again {
    /// They were not run together again.
    NotRun {
        /// Why.
        why: String,
    },
    /// It ended well.
    Worked,
    /// It broke off again.
    BrokeOff(Break),
}

/// A round that broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct BrokenOff {
    /// Its number within the plan; of several that ran at once, the first one's.
    pub round: u32,
    /// Which measurement it was of.
    pub measurement: String,
    /// Everything that was copied at the same time, from where to where.
    pub flows: Vec<Flow>,
    /// How it broke off first.
    #[serde(flatten)]
    pub first: Break,
    /// What came of running it again as it was.
    pub again: Again,
}

impl BrokenOff {
    /// Whether several flows ran at the same time.
    pub const fn in_company(&self) -> bool {
        self.flows.len() > 1
    }

    /// Every time that it broke off.
    pub fn events(&self) -> impl Iterator<Item = &Break> {
        let again = match &self.again {
            Again::BrokeOff(again) => Some(again),
            Again::NotRun { .. } | Again::Worked => None,
        };
        std::iter::once(&self.first).chain(again)
    }

    /// Whether it is a later account of the same round.
    pub fn is_of(&self, other: &Self) -> bool {
        self.round == other.round && self.flows == other.flows
    }
}

/// How a round broke off that has this status in the end; none where nothing is known of it.
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
