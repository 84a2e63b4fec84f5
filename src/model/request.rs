//! What was asked for, where that is less than everything.

use serde::{Deserialize, Serialize};

use super::finding::Severity;
use super::rule_id::RuleId;
use super::units::PciAddress;

/// What the command line chose, and what a configuration silenced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Request {
    /// `--gpus` as it was given; empty where all GPUs of the machine are meant.
    pub gpus: Vec<String>,
    /// How many GPUs of the machine that left out, those among them that NVML should list and does not.
    pub gpus_left_out: u32,
    /// Which ones these are.
    pub left_out_gpus: Vec<LeftOutGpu>,
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

/// What tells a GPU that was left out from others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LeftOutGpu {
    /// NVML's index; null where NVML does not list it.
    pub index: Option<u32>,
    /// Its PCI address; null where it is not known.
    pub pci: Option<PciAddress>,
    /// Its UUID; null where it is not known.
    pub uuid: Option<String>,
}

/// A rule that a configuration silenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Silenced {
    /// Its code.
    pub code: RuleId,
    /// The severity that its findings have; null where it is switched off.
    pub severity: Option<Severity>,
}
