//! What the rules found: a subject, evidence in numbers, and a step that a technician can take.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::placement::Pair;
use super::units::PciAddress;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know; nothing to do.
    Info,
    /// Look into it.
    Warning,
    /// The machine is not what it should be.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Subject {
    /// The whole machine.
    Machine,
    /// One GPU.
    Gpu {
        /// NVML's index.
        index: u32,
    },
    /// An ordered pair of GPUs.
    Pair(Pair),
    /// A PCIe link.
    PcieLink {
        /// The function at its lower end.
        address: PciAddress,
    },
    /// One NVLink of a GPU.
    Link {
        /// NVML's index of the GPU.
        index: u32,
        /// Number of the link on its GPU.
        link: u8,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.pad("machine"),
            Self::Gpu { index } => f.pad(&format!("GPU {index}")),
            Self::Pair(pair) => f.pad(&pair.to_string()),
            Self::PcieLink { address } => f.pad(&format!("PCIe link of {address}")),
            Self::Link { index, link } => f.pad(&format!("GPU {index} NVLink {link}")),
        }
    }
}

/// One thing that stands out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Code of the rule, such as `pcie-narrow`. Codes are never reused.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What is the matter, in a sentence.
    pub message: String,
    /// The numbers behind it, with the unit in the key.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// What to do.
    pub next_step: String,
    /// Where it is: GPU, PCI path, slot. Empty where the whole machine is meant.
    #[serde(default)]
    pub location: String,
    /// What could be the cause, where the evidence fits several things, the likeliest first.
    #[serde(default)]
    pub suspects: Vec<Suspect>,
}

/// A possible cause, and how to tell it from the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Suspect {
    /// What it would be.
    pub cause: String,
    /// The test that would show it.
    pub test: String,
}
