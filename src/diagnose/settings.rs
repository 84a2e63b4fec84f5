//! What a user may set: how severe the findings of a rule are, the figures that rules judge by, and
//! the shares that healthy machines reach.

use std::collections::BTreeMap;

use super::expected::Share;
use crate::model::finding::{RuleId, Severity};

/// What a user says of a rule's severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The rule is not applied.
    Off,
    /// Its findings have this severity.
    At(Severity),
}

/// Everything that was set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Severities by code.
    pub(super) levels: BTreeMap<String, Level>,
    /// Parameters by code and name.
    pub(super) parameters: BTreeMap<(String, String), f64>,
    /// Shares by the key of their class.
    pub shares: BTreeMap<String, Share>,
}

impl Settings {
    /// What was said of this rule's severity.
    pub fn level(&self, rule: &RuleId) -> Option<Level> {
        self.levels.get(&**rule).copied()
    }

    /// The value of a parameter that was set.
    pub fn parameter(&self, rule: &RuleId, name: &str) -> Option<f64> {
        self.parameters
            .get(&(rule.to_string(), name.to_owned()))
            .copied()
    }
}
