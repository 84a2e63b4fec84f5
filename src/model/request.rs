//! The request, if it was for less than everything.

use serde::{Deserialize, Serialize};

use super::finding::Severity;
use super::rule_id::RuleId;
use super::units::PciAddress;

/// The choices on the command line, and the rules that a configuration silenced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Request {
    /// `--gpus` as given. Empty if all GPUs of the machine were requested.
    pub gpus: Vec<String>,
    /// Number of GPUs of the machine that `--gpus` left out, including those that NVML should list and does not.
    pub gpus_left_out: u32,
    /// The GPUs that were left out.
    pub left_out_gpus: Vec<LeftOutGpu>,
    /// `--only` as given.
    pub only: Vec<String>,
    /// `--skip` as given.
    pub skip: Vec<String>,
    /// Probe groups of the profile that `--only` and `--skip` left out.
    pub probes_left_out: Vec<String>,
    /// File of `--config` with which the report was judged.
    pub config: Option<String>,
    /// Rules that the file switched off, or whose findings it keeps below their usual severity.
    pub silenced: Vec<Silenced>,
}

/// The identity of a GPU that was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LeftOutGpu {
    /// NVML's index. Null if NVML does not list it.
    pub index: Option<u32>,
    /// Its PCI address. Null if not known.
    pub pci: Option<PciAddress>,
    /// Its UUID. Null if not known.
    pub uuid: Option<String>,
}

/// A rule that a configuration silenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Silenced {
    /// Code of the rule.
    pub code: RuleId,
    /// Severity of its findings. Null if the rule is switched off.
    pub severity: Option<Severity>,
}
