//! The output of other tools that a report was read from, and the origin of each fact and figure in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cuda::{
    CUDA_MAP_FAILED, CUDA_NO_PEER_ACCESS, CUDA_SYSTEM_NOT_READY, CUDA_TOO_MANY_PEERS,
};
use super::finding::Severity;
use super::units::{Bytes, GbPerSecond, PciAddress};

/// The input that a report was read from, instead of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Pasted {
    /// The inputs, in the given order.
    pub inputs: Vec<PastedInput>,
    /// Origin of each fact and figure.
    pub origins: Vec<Origin>,
    /// Lines in which a tool states a fault of the machine.
    pub faults: Vec<PastedFault>,
    /// Messages that the input has, each explained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<Explained>,
    /// Highest bus bandwidths of collectives within the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<Collective>,
    /// Values that contradict each other, a sentence each. The first one was kept.
    pub contradictions: Vec<String>,
    /// How the output was read where it leaves room: converted figures, figures that were set aside, numbers of GPUs
    /// that were matched. A sentence each.
    pub remarks: Vec<String>,
    /// Parts that the input would need to show that a machine is healthy.
    pub missing: Vec<Missing>,
}

/// The highest bus bandwidth that a collective of nccl-tests reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Collective {
    /// Number of its GPUs.
    pub gpus: u32,
    /// Size of its message.
    pub bytes: Bytes,
    /// Bus bandwidth, as nccl-tests defines it.
    pub bus_gbps: GbPerSecond,
}

/// A file or a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PastedInput {
    /// Its name as given.
    pub name: String,
    /// Number of its lines.
    pub lines: u32,
    /// The output of tools in it.
    pub sections: Vec<PastedSection>,
}

/// The output of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PastedSection {
    /// Kind of the output.
    pub kind: String,
    /// The command that prints it.
    pub tool: String,
    /// Version of the tool, if it prints one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line.
    pub last_line: u32,
    /// Number of facts and figures that were read from it.
    pub facts: u32,
}

/// The origin of a fact or a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Origin {
    /// The fact or figure, by its place in the report: `gpus[3].pcie_width`.
    pub of: String,
    /// Name of the input.
    pub input: String,
    /// Line in it, counted from 1.
    pub line: u32,
}

/// A line of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PastedLine {
    /// Its words.
    pub text: String,
    /// Address of the GPU, if the line has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// Name of the input.
    pub input: String,
    /// Its number in the input, counted from 1.
    pub line: u32,
}

impl fmt::Display for PastedLine {
    /// Its words and their place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" (line {} of {})", self.text, self.line, self.input)
    }
}

/// A fault of the machine that a tool states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PastedFault {
    pub kind: PastedFaultKind,
    /// The line that states it.
    #[serde(flatten)]
    pub said: PastedLine,
}

/// A message that is known, and its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Explained {
    /// Severity of the message.
    pub severity: Severity,
    /// What the message proves, and what it leaves open.
    pub meaning: String,
    /// The step to take.
    pub advice: String,
    /// True if another error usually causes it.
    pub follows: bool,
    /// Its first lines.
    pub lines: Vec<PastedLine>,
}

/// The fault that a line states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PastedFaultKind {
    /// The driver could not start a GPU.
    NotStarted,
    /// The driver could not start a GPU that has no window in the address space (BAR1).
    NoWindow,
    /// The driver does not support a GPU.
    Unsupported,
    /// Kernel module and libraries have different versions.
    Mismatch,
    /// Another kernel driver has the GPUs.
    OtherDriver,
    /// No driver answers.
    NoDriver,
    /// The driver has no GPU that works.
    NoDevices,
    /// NVML does not start, mostly in a container that has lost its device files.
    NoNvml,
    /// A GPU is lost.
    Lost,
    /// The driver asks for a reset of a GPU.
    NeedsReset,
    /// Memory of another GPU could not be mapped (CUDA error 205).
    PeerMapping,
    /// Peer access was refused, though it should be there (CUDA error 217).
    PeerRefused,
    /// More peers than a GPU can have at a time (CUDA error 711).
    TooManyPeers,
    /// CUDA does not start because of the NVSwitch fabric (error 802).
    NotReady,
    /// A program could not use the NVSwitch fabric.
    Fabric,
    /// A test of another program failed.
    TestFailed,
    /// The driver or a program names an error of the hardware: memory, an NVLink, power, heat.
    HardwareError,
    /// The IOMMU refused memory accesses of a GPU.
    Iommu,
    /// The PCIe link of a GPU that is at work is slower than both ends can.
    LinkSlow,
    /// A program found wrong values.
    WrongValues,
    /// The rate of a collective falls from a size on.
    RateFalls,
    /// A fatal PCIe error of a GPU whose place in the PCI tree is not in the input.
    PcieFatal,
    /// A sentence or a service names an Xid.
    NamedXid,
}

impl PastedFaultKind {
    /// Returns true if the driver did not start a GPU.
    pub fn is_of_start(self) -> bool {
        self <= Self::Unsupported
    }

    /// Returns CUDA's number of the error with which a program ended.
    pub const fn cuda_code(self) -> Option<u32> {
        match self {
            Self::PeerMapping => Some(CUDA_MAP_FAILED),
            Self::PeerRefused => Some(CUDA_NO_PEER_ACCESS),
            Self::TooManyPeers => Some(CUDA_TOO_MANY_PEERS),
            Self::NotReady => Some(CUDA_SYSTEM_NOT_READY),
            _ => None,
        }
    }
}

/// A part that the input would need to show that a machine is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Missing {
    /// What is not in the input.
    pub what: String,
    /// The command that prints it.
    pub command: String,
}
