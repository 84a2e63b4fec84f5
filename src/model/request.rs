//! What was asked for, where that is less than everything.

use serde::{Deserialize, Serialize};

use super::finding::Severity;
use super::rule_id::RuleId;

/// What the command line chose, and what a configuration silenced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Request {
    /// `--gpus` as it was given; empty where all GPUs of the machine are meant.
    pub gpus: Vec<String>,
    /// How many GPUs of the machine that left out.
    pub gpus_left_out: u32,
    /// `--only` as it was given.
    pub only: Vec<String>,
    /// `--skip` as it was given.
    pub skip: Vec<String>,
    /// Probe groups of the profile that those left out.
    pub probes_left_out: Vec<String>,
    /// The file of `--config` by which the report was judged.
    pub config: Option<String>,
    /// Rules that it switched off, or whose findings it holds below their usual severity.
    pub silenced: Vec<Silenced>,
}

/// A rule that a configuration silenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Silenced {
    /// Its code.
    pub code: RuleId,
    /// The severity that its findings have; null where it is switched off.
    pub severity: Option<Severity>,
}
