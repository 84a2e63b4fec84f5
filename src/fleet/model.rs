//! What is said of a fleet, as it is written to JSON (docs/fleet.md).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::sources::Broken;
use model::finding::{Severity, Subject};
use model::report::{Conclusion, Tool};

/// The name and version of the format.
pub const SCHEMA: &str = "peerscope.fleet/1";

/// Everything that is said of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fleet {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What wrote it.
    pub tool: Tool,
    /// When it was made, RFC 3339, UTC.
    pub made_at: String,
    /// The conclusion.
    pub verdict: Verdict,
    /// What was read.
    pub read: Read,
    /// What the fleet shows and no report alone can.
    pub findings: Vec<Finding>,
    /// What the rules found, by code.
    pub codes: Vec<Code>,
    /// Nodes of the list that have no report, and the other way round; none without a list.
    pub list: Option<List>,
    /// What is different from an earlier fleet file; none without one.
    pub changes: Option<Changes>,
    /// How facts are spread, by GPU model.
    pub inventory: Vec<Attribute>,
    /// Nodes that can be compared, with the figures that they are compared by.
    pub cohorts: Vec<Cohort>,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    /// Older reports of the nodes that have several; empty unless they were asked for.
    pub history: Vec<Older>,
}

/// The conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// In one word.
    pub verdict: Conclusion,
    /// The exit code of the contract (docs/exit-codes.md).
    pub exit_code: u8,
    /// Nodes without a fault that were tested as asked.
    pub healthy: usize,
    /// Nodes with a finding at or above `--fail-on`.
    pub faulty: usize,
    /// Nodes that were not tested as asked.
    pub inconclusive: usize,
    /// Nodes of the list without a report.
    pub missing: usize,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Read {
    /// Reports.
    pub reports: usize,
    /// Reports that a newer one of the same node replaces.
    pub superseded: usize,
    /// Whether a report is of a simulated machine.
    pub simulated: bool,
    /// Files of peerscope's that are no reports.
    pub others: usize,
    /// Files that cannot be read.
    pub broken: Vec<Broken>,
}

/// Something that stands out among many nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Its code; see docs/fleet.md.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The nodes, as Slurm writes them.
    pub nodes: String,
    /// How many they are.
    pub count: usize,
    /// GPUs by position, where it is about some.
    pub gpus: Vec<u32>,
    /// The sentence.
    pub message: String,
    /// The numbers behind it.
    pub evidence: BTreeMap<&'static str, Value>,
    /// What to do.
    pub next_step: String,
}

/// How many nodes a rule reports a finding on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Code {
    /// Code of the rule.
    pub code: String,
    /// The worst severity.
    pub severity: Severity,
    /// The nodes, as Slurm writes them.
    pub nodes: String,
    /// How many they are.
    pub count: usize,
    /// How many findings they have.
    pub findings: usize,
    /// One of the sentences.
    pub example: String,
}

/// The list of nodes that should have a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct List {
    /// How many names it has.
    pub nodes: usize,
    /// Those without a report.
    pub missing: String,
    /// How many they are.
    pub missing_count: usize,
    /// Nodes with a report that are not on the list.
    pub unexpected: String,
    /// How many they are.
    pub unexpected_count: usize,
}

/// How a fact is spread over the nodes of one GPU model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Attribute {
    /// The GPUs' model.
    pub model: String,
    /// The fact.
    pub attribute: &'static str,
    /// Its values, the most frequent first.
    pub values: Vec<Share>,
}

/// The nodes with one value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Share {
    /// The value.
    pub value: String,
    /// How many nodes have it.
    pub count: usize,
    /// The nodes, as Slurm writes them.
    pub nodes: String,
}

/// Nodes that can be compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cohort {
    /// Its number, from 1, the largest first.
    pub cohort: usize,
    /// The GPUs' model.
    pub model: String,
    /// How the GPUs are connected.
    pub topology: String,
    /// Hash of the class of every pair.
    pub signature: String,
    /// How many nodes it has.
    pub count: usize,
    /// The nodes, as Slurm writes them.
    pub nodes: String,
    /// The figures that they are compared by.
    pub figures: Vec<Figures>,
}

/// The figures of one kind in a cohort.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    /// The probe: `peer`, `latency`, `local`, `host`, `load`, `counted`.
    pub probe: &'static str,
    /// The setup in words.
    pub setup: String,
    /// Class of the link, for pairs.
    pub class: Option<String>,
    /// Size of one copy.
    pub bytes: u64,
    /// Unit of the figures: `GB/s`, `us` or `%`.
    pub unit: &'static str,
    /// Nodes with such a figure.
    pub nodes: usize,
    /// How many figures there are.
    pub figures: usize,
    /// Their median.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Their spread as a standard deviation would be: 1.4826 x the median distance from the median of the same
    /// position, the median over the positions.
    pub spread: f64,
    /// How many stand out.
    pub odd: usize,
}

/// A node by its newest report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// Its name.
    pub node: String,
    /// The conclusion.
    pub verdict: Conclusion,
    /// Its report.
    pub file: String,
    /// When the report began, RFC 3339.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Profile of the check; none for a report of facts alone.
    pub profile: Option<String>,
    /// Number of its cohort.
    pub cohort: usize,
    /// Hash of the class of every pair.
    pub signature: String,
    /// Facts by their names, those of [`Fleet::inventory`].
    pub facts: BTreeMap<&'static str, String>,
    /// UUIDs of its GPUs.
    pub uuids: Vec<String>,
    /// Measurements with a result.
    pub tested: u32,
    /// Measurements that were asked for and have none.
    pub untested: u32,
    /// What the rules found.
    pub findings: Vec<NodeFinding>,
    /// Per GPU the lowest share of what the cohort reaches, per cent; only where something stands out.
    pub percent_of_cohort: BTreeMap<u32, f64>,
}

/// What a rule found on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeFinding {
    /// Code of the rule.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// The sentence.
    pub message: String,
}

/// An older report of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Older {
    /// Its name.
    pub node: String,
    /// When the report began, RFC 3339.
    pub started_at: String,
    /// The conclusion of that report.
    pub verdict: Conclusion,
    /// Codes of its findings.
    pub codes: Vec<String>,
    /// The file.
    pub file: String,
}

/// What is different from an earlier fleet file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// When that was made.
    pub since: String,
    /// Nodes by how their verdict changed: `healthy to faulty`.
    pub verdicts: BTreeMap<String, String>,
    /// Findings that nodes have now and had not: nodes by code.
    pub appeared: BTreeMap<String, String>,
    /// Findings that nodes had and have no more: nodes by code.
    pub gone: BTreeMap<String, String>,
    /// Facts that are different: nodes by fact, with the old and the new value.
    pub facts: BTreeMap<String, String>,
    /// Nodes that have other GPUs.
    pub other_gpus: String,
    /// Nodes that are new.
    pub new_nodes: String,
    /// Nodes that had a report and have none.
    pub lost_nodes: String,
}
