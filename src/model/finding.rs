//! What the rules found: a subject, evidence in numbers, and a step that a technician can take.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fact::{Fact, Facts, IntoFact};
use super::placement::Pair;
pub use super::rule_id::RuleId;
use super::units::{GbPerSecond, PciAddress};

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
    /// A PCI function that is no GPU of NVML's.
    PciFunction {
        /// Its address.
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

impl Subject {
    /// The GPU where it is one, or else the machine.
    pub const fn of_gpus(gpus: &[u32]) -> Self {
        match gpus {
            [index] => Self::Gpu { index: *index },
            _ => Self::Machine,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.pad("machine"),
            Self::Gpu { index } => f.pad(&format!("GPU {index}")),
            Self::Pair(pair) => f.pad(&pair.to_string()),
            Self::PcieLink { address } => f.pad(&format!("PCIe link of {address}")),
            Self::PciFunction { address } => f.pad(&address.to_string()),
            Self::Link { index, link } => f.pad(&format!("GPU {index} NVLink {link}")),
        }
    }
}

/// What a finding is about beyond its subject. Root causes are found by it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    /// Ordered pairs whose copies it is about.
    pub pairs: Vec<Pair>,
    /// GPUs whose copies it is about.
    pub gpus: Vec<u32>,
    /// The rate that it leaves to these copies, where it limits them.
    pub rate: Option<GbPerSecond>,
    /// Whether it is about the PCIe links of these GPUs themselves, rather than about one above them.
    pub own_links: bool,
}

impl From<&Subject> for Scope {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => {
                Self::default()
            }
            Subject::Gpu { index } | Subject::Link { index, .. } => Self {
                gpus: vec![*index],
                ..Self::default()
            },
            Subject::Pair(pair) => Self {
                pairs: vec![*pair],
                ..Self::default()
            },
        }
    }
}

/// One thing that stands out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Code of the rule, such as `pcie-narrow`. Codes are never reused.
    pub code: RuleId,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What is the matter, in a sentence.
    pub message: String,
    /// The numbers behind it, with the unit in the key.
    pub evidence: Facts,
    /// What to do.
    pub next_step: String,
    /// Where it is: GPU, PCI path, slot. Empty where the whole machine is meant.
    #[serde(default)]
    pub location: String,
    /// What could be the cause, where the evidence fits several things, the likeliest first.
    #[serde(default)]
    pub suspects: Vec<Suspect>,
    /// The pairs and GPUs that it is about. Not written: subject and facts have it.
    #[serde(skip)]
    pub scope: Scope,
}

impl Finding {
    /// A finding about its subject, without facts.
    pub fn new(
        code: RuleId,
        severity: Severity,
        subject: Subject,
        message: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self {
            code,
            severity,
            scope: Scope::from(&subject),
            subject,
            message: message.into(),
            evidence: Facts::default(),
            next_step: next_step.into(),
            location: String::new(),
            suspects: Vec::new(),
        }
    }

    /// Adds a fact, unless it is `None`.
    #[must_use]
    pub fn fact(mut self, name: &str, fact: impl IntoFact) -> Self {
        self.evidence.add(name, fact);
        self
    }

    /// Says that it is about these pairs; they are a fact too, unless there are none.
    #[must_use]
    pub fn pairs(mut self, pairs: &[Pair]) -> Self {
        self.scope.pairs = pairs.to_vec();
        self.fact("pairs", (!pairs.is_empty()).then(|| pairs.to_vec()))
    }

    /// Says that it is about these pairs.
    #[must_use]
    pub fn about_pairs(mut self, pairs: Vec<Pair>) -> Self {
        self.scope.pairs = pairs;
        self
    }

    /// Says that it is about these GPUs; they are a fact too.
    #[must_use]
    pub fn gpus(self, gpus: &[u32]) -> Self {
        self.fact("gpus", Fact::Gpus(gpus.to_vec()))
            .about_gpus(gpus)
    }

    /// Says that it is about these GPUs.
    #[must_use]
    pub fn about_gpus(mut self, gpus: &[u32]) -> Self {
        self.scope.gpus = gpus.to_vec();
        self
    }

    /// Gives it this severity.
    #[must_use]
    pub fn at(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Gives it these suspects.
    #[must_use]
    pub fn suspecting(mut self, suspects: Vec<Suspect>) -> Self {
        self.suspects = suspects;
        self
    }
}

/// A possible cause, and how to tell it from the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Suspect {
    /// What it would be.
    pub cause: String,
    /// The test that would show it.
    pub test: String,
    /// The setting of the machine, where it is one that the facts show. Not written.
    #[serde(skip)]
    pub setting: Option<Setting>,
}

/// A setting of the machine that can spoil copies over PCIe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The IOMMU translates device addresses.
    Iommu,
    /// ACS redirects peer requests.
    Acs,
}
