//! What to set so that no program uses what failed between GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::placement::Pair;

/// What keeps programs from what failed in this report. It takes ways away, and never gives one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Veto {
    /// What failed, the lower index first: each pair in both directions.
    pub failed: Vec<FailedPair>,
    /// Variables for the environment of every program.
    pub environment: Vec<Setting>,
    /// The file in which vLLM and SGLang keep between which GPUs peer access works. Null if no pair lost it.
    pub pairs_file: Option<PairsFile>,
    /// What programs that copy by themselves have to do, as PyTorch has no variable for it. Empty if nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<String>,
}

/// A pair between which something failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct FailedPair {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Codes of the findings.
    pub codes: Vec<String>,
    /// True if peer access failed; false if only sharing between processes did.
    pub access: bool,
}

/// A variable and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Setting {
    /// Name of the variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The program that reads it.
    pub program: String,
    /// What it takes away.
    pub effect: String,
}

/// A file of pairs as vLLM and SGLang read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PairsFile {
    /// The GPUs that CUDA shows, which the name of the file lists if CUDA_VISIBLE_DEVICES is not set: `0,1,2,3`.
    pub devices: String,
    /// Whether peer access works, by `SOURCE->DESTINATION` in CUDA's numbers. Both programs need every pair.
    pub works: BTreeMap<String, bool>,
}
