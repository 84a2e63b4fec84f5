//! Coverage over several runs: what a check within a budget stands on.

use serde::{Deserialize, Serialize};

/// What runs within a budget have covered by now, from their ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Rolling {
    /// The ledger.
    pub ledger: String,
    /// The budget of this run, seconds.
    pub budget_seconds: f64,
    /// Runs that the ledger has, with this one.
    pub runs: u64,
    /// Parts of the machine that the runs cover in turn: pairs of GPUs, and the probes of each GPU.
    pub parts: u32,
    /// Parts that this run covered.
    pub covered_now: u32,
    /// Parts that no run has covered yet.
    pub never_covered: u32,
    /// Time since the part was covered that was not covered for longest, seconds. Null if one never was.
    pub oldest_seconds: Option<f64>,
    /// That part: `GPU 2 and GPU 5`.
    pub oldest: Option<String>,
    /// Runs within which every part is covered, at this budget and at the speed of the runs so far.
    pub all_within_runs: u32,
    /// Parts whose last run found a fault. They are covered by every run until they are sound.
    pub suspected: Vec<String>,
    /// Problems with the ledger, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}
