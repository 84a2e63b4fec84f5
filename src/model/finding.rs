//! The findings of the rules: a subject, evidence in numbers, and a step that a technician can take.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::fact::{Fact, Facts, IntoFact};
use super::placement::Pair;
pub use super::rule_id::RuleId;
use super::step::{self, Step};
use super::units::{GbPerSecond, PciAddress};

words! {
    /// Severity of a finding.
    Severity {
        /// For information; no action is needed.
        Info = "info",
        /// A state that should be looked into.
        Warning = "warning",
        /// A machine that is not as it should be.
        Error = "error",
    }
}

/// The part of the machine that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
        /// The function at the lower end of the link.
        address: PciAddress,
    },
    /// A PCI function that is not a GPU in NVML's list.
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
    /// Returns the GPU if there is exactly one, otherwise the machine.
    pub const fn of_gpus(gpus: &[u32]) -> Self {
        match gpus {
            [index] => Self::Gpu { index: *index },
            _ => Self::Machine,
        }
    }

    /// Returns the pair if there is exactly one, otherwise the machine.
    pub const fn of_pairs(pairs: &[Pair]) -> Self {
        match pairs {
            [pair] => Self::Pair(*pair),
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

/// The pairs and GPUs of a finding beyond its subject, used to find root causes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    /// Ordered pairs whose copies the finding is about.
    pub pairs: Vec<Pair>,
    /// GPUs whose copies the finding is about.
    pub gpus: Vec<u32>,
    /// The rate to which the problem limits these copies, if it limits them.
    pub rate: Option<GbPerSecond>,
    /// The changes that explain the figures of the finding, by their numbers in the explanation.
    pub causes: BTreeSet<usize>,
    /// True if the finding is about the PCIe links of these GPUs themselves, not about one above them.
    pub own_links: bool,
}

impl Scope {
    /// Returns every GPU that the finding is about, by itself or in a pair.
    pub fn all_gpus(&self) -> BTreeSet<u32> {
        let ends = |pair: &Pair| [pair.source, pair.destination];
        let of_pairs = self.pairs.iter().flat_map(ends);
        self.gpus.iter().copied().chain(of_pairs).collect()
    }
}

impl From<&Subject> for Scope {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => {
                Self::default()
            }
            Subject::Gpu { index } | Subject::Link { index, .. } => {
                Self { gpus: vec![*index], ..Self::default() }
            }
            Subject::Pair(pair) => Self { pairs: vec![*pair], ..Self::default() },
        }
    }
}

/// A problem or peculiarity of the machine, reported by a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Finding {
    /// Code of the rule, such as `pcie-narrow`. Codes are never reused.
    pub code: RuleId,
    /// Severity of the finding.
    pub severity: Severity,
    /// The part of the machine that the finding is about.
    pub subject: Subject,
    /// The problem in a sentence; its beginning up to `; ` is complete in itself.
    pub message: String,
    /// The short sentence, if it is another one: it quotes words that may have a `; `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// The numbers behind the finding, with the unit in the key.
    pub evidence: Facts,
    /// Page of the rule: its path within the book of the documents, such as `rules/pcie-narrow.html`.
    #[serde(default)]
    pub help_url: String,
    /// The steps to take, in words.
    pub next_step: String,
    /// The same steps, each with its identifier and class.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Location: GPU, PCI path, slot. Empty if the whole machine is meant.
    #[serde(default)]
    pub location: String,
    /// Possible causes, the likeliest first, if the evidence fits several.
    #[serde(default)]
    pub suspects: Vec<Suspect>,
    /// The pairs and GPUs that the finding is about. Not written, because subject and facts contain them.
    #[serde(skip)]
    pub scope: Scope,
}

/// Returns the short sentence of a finding's message: its beginning up to the first `; `.
pub fn short(message: &str) -> &str {
    message.split("; ").next().unwrap_or_default()
}

impl Finding {
    /// Creates a finding about its subject, without facts.
    pub fn new(
        code: RuleId,
        severity: Severity,
        subject: Subject,
        message: impl Into<String>,
        steps: Vec<Step>,
    ) -> Self {
        Self {
            help_url: format!("rules/{code}.html"),
            code,
            severity,
            scope: Scope::from(&subject),
            subject,
            message: message.into(),
            short: None,
            evidence: Facts::default(),
            next_step: step::sentences(&steps),
            steps,
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

    /// Sets the pairs that the finding is about. Adds them as a fact too, unless there are none.
    #[must_use]
    pub fn pairs(mut self, pairs: &[Pair]) -> Self {
        self.scope.pairs = pairs.to_vec();
        self.fact("pairs", (!pairs.is_empty()).then(|| pairs.to_vec()))
    }

    /// Sets the pairs that the finding is about, and adds no fact.
    #[must_use]
    pub fn about_pairs(mut self, pairs: Vec<Pair>) -> Self {
        self.scope.pairs = pairs;
        self
    }

    /// Sets the GPUs that the finding is about, and adds them as a fact.
    #[must_use]
    pub fn gpus(self, gpus: &[u32]) -> Self {
        self.fact("gpus", Fact::Gpus(gpus.to_vec())).about_gpus(gpus)
    }

    /// Sets the GPUs that the finding is about, and adds no fact.
    #[must_use]
    pub fn about_gpus(mut self, gpus: &[u32]) -> Self {
        self.scope.gpus = gpus.to_vec();
        self
    }

    /// Sets the severity.
    #[must_use]
    pub fn at(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Sets the severity if this is true.
    #[must_use]
    pub fn at_if(self, is_so: bool, severity: Severity) -> Self {
        if is_so { self.at(severity) } else { self }
    }

    /// Sets the steps.
    #[must_use]
    pub fn steps(mut self, steps: impl Into<Vec<Step>>) -> Self {
        let steps = steps.into();
        self.next_step = step::sentences(&steps);
        self.steps = steps;
        self
    }

    /// Returns the short sentence: it names subject, problem, number and slot; detail follows it.
    pub fn short(&self) -> &str {
        self.short.as_deref().unwrap_or_else(|| short(&self.message))
    }

    /// Sets the short sentence.
    #[must_use]
    pub fn in_short(mut self, short: impl Into<String>) -> Self {
        self.short = Some(short.into());
        self
    }

    /// Returns the next step in words, a text for each stage.
    pub fn stages(&self) -> Vec<String> {
        match self.steps.as_slice() {
            [] if self.next_step.is_empty() => Vec::new(),
            [] => vec![self.next_step.clone()],
            steps => step::stages(steps).collect(),
        }
    }

    /// Sets the suspects.
    #[must_use]
    pub fn suspecting(mut self, suspects: Vec<Suspect>) -> Self {
        self.suspects = suspects;
        self
    }
}

/// A possible cause, and a test that distinguishes it from the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Suspect {
    /// Its identifier, such as `iommu`. Identifiers are never reused.
    #[serde(default)]
    pub id: Cow<'static, str>,
    /// The possible cause.
    pub cause: String,
    /// The test that would confirm it.
    pub test: String,
    /// The steps of the test.
    #[serde(default)]
    pub steps: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_sentence_ends_before_the_detail() {
        let short = |message: &str| {
            let code = RuleId::new("pcie-narrow");
            let found = Finding::new(code, Severity::Error, Subject::Machine, message, Vec::new());
            found.short().to_owned()
        };
        assert_eq!(
            short("GPU 5 (slot 6): x4 of x16; both can do it; more"),
            "GPU 5 (slot 6): x4 of x16"
        );
        assert_eq!(short("GPU 5: x4"), "GPU 5: x4");
        let code = RuleId::new("pasted-fault");
        let found =
            Finding::new(code, Severity::Error, Subject::Machine, "says \"a; b\"; c", Vec::new());
        assert_eq!(found.in_short("says \"a; b\"").short(), "says \"a; b\"");
        assert_eq!(short(""), "");
    }
}
