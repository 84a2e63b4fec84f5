//! The assessment of a fleet, as it is written to JSON (docs/fleet.md).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::sources::Broken;
use super::steps::Step;
use super::summary::{self, Metric};
use model::finding::Severity;
use model::report::{Conclusion, Tool};
use model::step::{self, When};

/// The name and version of the format.
pub(crate) const SCHEMA: &str = "peerscope.fleet/1";

/// The assessment of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fleet {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The program that wrote the file.
    pub tool: Tool,
    /// Time of writing, RFC 3339, UTC.
    pub made_at: String,
    /// The conclusion.
    pub verdict: Verdict,
    /// The input.
    pub read: Read,
    /// Findings that no single report can show.
    pub findings: Vec<Finding>,
    /// Findings of the rules, by code.
    pub codes: Vec<Code>,
    /// Nodes of the list that have no report, and the other way round; `null` without a list.
    pub list: Option<List>,
    /// Differences from an earlier fleet file; `null` without one.
    pub changes: Option<Changes>,
    /// Distribution of facts, by GPU model.
    pub inventory: Vec<Attribute>,
    /// Comparable nodes, with the figures that they are compared by.
    pub cohorts: Vec<Cohort>,
    /// Kinds of figures, to which the nodes refer.
    pub kinds: Vec<Metric>,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    /// Older reports of nodes with several reports; empty unless they were requested.
    pub history: Vec<Older>,
}

/// The conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The verdict in one word.
    pub verdict: Conclusion,
    /// The exit code of the contract (docs/exit-codes.md).
    pub exit_code: u8,
    /// Number of nodes without a fault that were tested as requested.
    pub healthy: usize,
    /// Number of nodes with a finding at or above `--fail-on`.
    pub faulty: usize,
    /// Number of nodes that were not tested as requested.
    pub inconclusive: usize,
    /// Number of nodes of the list without a report.
    pub missing: usize,
}

/// The input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Read {
    /// Number of reports.
    pub reports: usize,
    /// Number of reports that a newer one of the same node replaces.
    pub superseded: usize,
    /// Number of reports that were read twice: of the same node and moment as another.
    pub again: usize,
    /// True if a report is of a simulated machine.
    pub simulated: bool,
    /// Number of files of peerscope that are not reports.
    pub others: usize,
    /// Number of files in folders that were not read, since their names are not those of reports.
    pub left_out: usize,
    /// The first hundred of these files.
    pub left_out_files: Vec<String>,
    /// Files that cannot be read.
    pub broken: Vec<Broken>,
}

/// A finding about many nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// The code; see docs/fleet.md.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The nodes in Slurm's notation.
    pub nodes: String,
    /// Number of nodes.
    pub count: usize,
    /// GPUs by position, if the finding is about some.
    pub gpus: Vec<u32>,
    /// The finding in a sentence.
    pub message: String,
    /// Numbers behind the finding.
    pub evidence: BTreeMap<&'static str, Value>,
    /// The steps to take, in words.
    pub next_step: String,
    /// The same steps, each with its identifier and class.
    pub steps: Vec<step::Step>,
}

impl Finding {
    /// Creates a warning about these nodes. Its steps are to be taken at once.
    pub(crate) fn new(
        code: &'static str,
        nodes: String,
        count: usize,
        message: String,
        evidence: impl Into<BTreeMap<&'static str, Value>>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let steps: Vec<_> = steps.into_iter().map(|step| step.recorded(When::Now)).collect();
        Self {
            code,
            severity: Severity::Warning,
            nodes,
            count,
            gpus: Vec::new(),
            message,
            evidence: evidence.into(),
            next_step: step::sentences(&steps),
            steps,
        }
    }

    /// Sets the GPUs, by position.
    #[must_use]
    pub(crate) fn gpus(self, gpus: Vec<u32>) -> Self {
        Self { gpus, ..self }
    }
}

/// The nodes with findings of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Code {
    /// Code of the rule.
    pub code: String,
    /// The worst severity.
    pub severity: Severity,
    /// The nodes in Slurm's notation.
    pub nodes: String,
    /// Number of nodes.
    pub count: usize,
    /// Number of findings on these nodes.
    pub findings: usize,
    /// One of the findings' sentences.
    pub example: String,
}

/// The list of nodes that should have a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct List {
    /// Number of names on the list.
    pub nodes: usize,
    /// Listed nodes without a report.
    pub missing: String,
    /// Number of listed nodes without a report.
    pub missing_count: usize,
    /// Nodes with a report that are not on the list.
    pub unexpected: String,
    /// Number of nodes with a report that are not on the list.
    pub unexpected_count: usize,
}

/// The distribution of a fact over the nodes of one GPU model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Attribute {
    /// Model of the GPUs.
    pub model: String,
    /// The fact.
    pub attribute: String,
    /// The values, most frequent first.
    pub values: Vec<Bin>,
}

/// The nodes with one value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bin {
    /// The value.
    pub value: String,
    /// Number of nodes with the value.
    pub count: usize,
    /// The nodes in Slurm's notation.
    pub nodes: String,
}

/// Comparable nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cohort {
    /// The cohort's number, from 1, the largest cohort first.
    pub cohort: usize,
    /// Model of the GPUs.
    pub model: String,
    /// Connections of the GPUs.
    pub topology: String,
    /// Hash of the class of every pair.
    pub signature: String,
    /// Number of nodes.
    pub count: usize,
    /// The nodes in Slurm's notation.
    pub nodes: String,
    /// Figures that the nodes are compared by.
    pub figures: Vec<Stats>,
}

/// The figures of one kind in a cohort.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stats {
    /// The probe: `peer`, `latency`, `local`, `host`, `load`, `counted`.
    pub probe: &'static str,
    /// The setup in words.
    pub setup: String,
    /// Class of the link, for pairs.
    pub class: Option<String>,
    /// Size of one copy, bytes.
    pub bytes: u64,
    /// Unit of the figures: `GB/s`, `us` or `%`.
    pub unit: &'static str,
    /// Number of nodes with such a figure.
    pub nodes: usize,
    /// Number of figures.
    pub figures: usize,
    /// Median of the figures.
    pub median: f64,
    /// Smallest figure.
    pub min: f64,
    /// Largest figure.
    pub max: f64,
    /// Spread of the figures on the scale of a standard deviation. It is 1.4826 x the median distance from the median
    /// of the same position. The median is taken over the positions.
    pub spread: f64,
    /// Number of outlying figures.
    pub odd: usize,
}

/// A node by its newest report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// Name of the node.
    pub node: String,
    /// The conclusion.
    pub verdict: Conclusion,
    /// File of the report.
    pub file: String,
    /// Start of the report's run, RFC 3339.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Profile of the check; `null` for a report of facts alone.
    pub profile: Option<String>,
    /// Number of its cohort.
    pub cohort: usize,
    /// Hash of the class of every pair.
    pub signature: String,
    /// Facts by name, as in [`Fleet::inventory`].
    pub facts: BTreeMap<String, String>,
    /// UUIDs of its GPUs.
    pub uuids: Vec<String>,
    /// Number of measurements with a result.
    pub tested: u32,
    /// Number of requested measurements without a result.
    pub untested: u32,
    /// Findings of the rules.
    pub findings: Vec<summary::Finding>,
    /// Lowest share of the cohort's figures for each GPU, per cent; only if a figure is an outlier.
    pub percent_of_cohort: BTreeMap<u32, f64>,
    /// Worst figure of each kind, by its place in [`Fleet::kinds`].
    pub worst: BTreeMap<usize, f64>,
}

/// An older report of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Older {
    /// Name of the node.
    pub node: String,
    /// Start of the report's run, RFC 3339.
    pub started_at: String,
    /// The conclusion of that report.
    pub verdict: Conclusion,
    /// Codes of the report's findings.
    pub codes: Vec<String>,
    /// File of the report.
    pub file: String,
}

/// Differences from an earlier fleet file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// Time at which the earlier file was made.
    pub since: String,
    /// Nodes by how their verdict changed: `healthy to faulty`.
    pub verdicts: BTreeMap<String, String>,
    /// New findings: nodes by code.
    pub appeared: BTreeMap<String, String>,
    /// Resolved findings: nodes by code.
    pub gone: BTreeMap<String, String>,
    /// Changed facts: nodes by fact, with the old and the new value.
    pub facts: BTreeMap<String, String>,
    /// Figures that changed by more than is allowed: nodes by `worse` or `better` and the kind of figure. The worst figures of
    /// a node are compared.
    pub figures: BTreeMap<String, String>,
    /// Nodes with other GPUs.
    pub other_gpus: String,
    /// New nodes.
    pub new_nodes: String,
    /// Nodes that had a report in the earlier file and have none now.
    pub lost_nodes: String,
}
