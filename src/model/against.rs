//! A topology or graph of NCCL from a file, beside the machine.

use serde::{Deserialize, Serialize};

/// Where a file of NCCL and the machine differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Against {
    /// The file.
    pub file: String,
    /// What the file has.
    pub kind: AgainstKind,
    /// Number of statements of the file that were compared.
    pub compared: u32,
    /// The differences.
    pub differences: Vec<Difference>,
}

/// What a file of NCCL has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AgainstKind {
    /// A topology: NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE.
    Topology,
    /// Graphs: NCCL_GRAPH_DUMP_FILE.
    Graphs,
}

/// A statement of the file that is not true of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Difference {
    /// What it is about: `GPU 5 (0000:44:00.0)`.
    pub of: String,
    /// What the file says.
    pub file: String,
    /// What the machine has.
    pub machine: String,
    /// What it costs to believe the file. Null if nothing is known to be lost.
    pub costs: Option<String>,
}
