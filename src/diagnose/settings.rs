//! User settings: the severity of the findings of a rule, the figures that rules judge by, and the shares that healthy
//! machines reach.

use std::collections::BTreeMap;

use super::expected::Share;
use model::finding::{RuleId, Severity};

/// The user's setting for a rule's severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The rule is not applied.
    Off,
    /// Its findings have this severity.
    At(Severity),
}

/// All settings of the user.
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
    /// Returns the severity setting of this rule.
    pub fn level(&self, rule: &RuleId) -> Option<Level> {
        self.levels.get(&**rule).copied()
    }

    /// Returns the value of a parameter that was set.
    pub(crate) fn parameter(&self, rule: &str, name: &str) -> Option<f64> {
        self.parameters.get(&(rule.to_owned(), name.to_owned())).copied()
    }
}
