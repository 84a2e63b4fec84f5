//! What a user may set: how severe the findings of a rule are, the figures that rules judge by, and
//! the shares that healthy machines reach.

use std::collections::BTreeMap;

use super::expected::Share;
use super::rules;
use crate::model::finding::{RuleId, Severity};
use crate::model::request::Silenced;

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

    /// The rules that are switched off, or whose findings are held at less than an error and no more than what is
    /// usual for them: some rules have findings of several severities.
    pub fn silenced(&self) -> Vec<Silenced> {
        let silenced = rules::ALL.iter().filter_map(|rule| match self.level(&rule.id)? {
            Level::Off => Some(Silenced { code: rule.id.clone(), severity: None }),
            Level::At(severity) => (severity < Severity::Error && severity <= rule.severity)
                .then(|| Silenced { code: rule.id.clone(), severity: Some(severity) }),
        });
        silenced.collect()
    }

    /// The value of a parameter that was set.
    pub fn parameter(&self, rule: &RuleId, name: &str) -> Option<f64> {
        self.parameters.get(&(rule.to_string(), name.to_owned())).copied()
    }
}
