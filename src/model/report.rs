//! The whole report as it is written to JSON. Scripts rely on these keys (docs/report.md).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::finding::{Finding, Subject};
use super::flow::Endpoint;
use super::measurement::Measurements;
use super::pasted::Pasted;
use super::placement::Pair;
use super::request::Request;
use super::rule_id::RuleId;
use super::snapshot::Snapshot;
use super::topology::Topology;
use super::watched::Watched;

/// Name of the program, as written in reports and shown in lists of processes.
pub const PROGRAM: &str = "peerscope";

/// The name and version of the report format.
pub const SCHEMA: &str = "peerscope.report/1";

/// Limit on the GPUs of a machine that is checked, and of a report that is read: the size of the largest NVLink
/// domain. No operating system shows more. Tables grow with the square of the number.
pub const MOST_GPUS: usize = 32;

/// A report: everything that was found, measured and concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Program that wrote the report.
    pub tool: Tool,
    /// Start of the run, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// The request, if it was for less than everything.
    #[serde(default)]
    pub request: Request,
    /// The output of other tools that the report was read from. Left out if peerscope read the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<Pasted>,
    /// The facts.
    pub snapshot: Snapshot,
    /// The graph and the routes.
    pub topology: Topology,
    /// The figures. Null for `topo`, which measures nothing.
    pub measurements: Option<Measurements>,
    /// The readings of a running job. Only `watch` writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// What changed since the last report of this machine that was kept. Null if nothing did, or if there is none. It does
    /// not affect the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Advice for programs on this machine, derived from its own figures. It does not affect the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Time spent in each stage.
    pub timing: Timing,
}

impl Report {
    /// Returns the index of every GPU that the report mentions.
    pub fn gpus(&self) -> HashSet<u32> {
        let mut gpus: HashSet<u32> = self.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        gpus.extend(self.snapshot.pairs.iter().flat_map(|pair| [pair.source, pair.destination]));
        let mut pairs: Vec<Pair> = self.topology.pairs.iter().map(|route| route.pair).collect();
        if let Some(measurements) = &self.measurements {
            gpus.extend(measurements.driver.devices.iter().map(|device| device.index));
            gpus.extend(measurements.links.iter().map(|link| link.index));
            gpus.extend(
                measurements.cells().flat_map(|cell| cell.flow.ends()).filter_map(Endpoint::gpu),
            );
            pairs.extend(measurements.driver.peer_access.iter().map(|access| access.pair));
        }
        gpus.extend(self.watched.iter().flat_map(|all| all.gpus.iter().map(|gpu| gpu.gpu)));
        gpus.extend(pairs.into_iter().flat_map(|pair| [pair.source, pair.destination]));
        gpus
    }

    /// Value of [`Self::machine`] for a real machine.
    pub const LIVE: &'static str = "live";

    /// Returns true if no figure of the report comes from real hardware.
    pub fn is_simulated(&self) -> bool {
        self.machine != Self::LIVE
    }
}

/// The changes since an earlier report of the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Changes {
    /// Start of the earlier run, RFC 3339, UTC.
    pub since: String,
    /// The files of the earlier report and of this one. The second is null if it could not be written.
    pub reports: [Option<String>; 2],
    /// The changes: findings that are gone, new ones, then parts, versions and settings, then figures.
    pub list: Vec<Change>,
}

/// A change since an earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Change {
    /// What changed.
    pub what: Changed,
    /// Code of the finding. Left out if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<RuleId>,
    /// The part that the finding is about. Left out if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The change in words.
    pub text: String,
}

words! {
    /// The kind of a change.
    Changed {
        /// A finding that is gone, and what would show it was tested.
        Fixed = "fixed",
        /// A finding that the earlier run would have shown.
        New = "new",
        /// A part, a version, a setting, or a start of the system.
        Machine = "machine",
        /// A figure.
        Figure = "figure",
    }
}

/// The program that wrote a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Tool {
    /// `peerscope`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// Returns the name and version of this build.
    pub fn this() -> Self {
        Self { name: PROGRAM.into(), version: env!("CARGO_PKG_VERSION").into() }
    }
}

/// The conclusion in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Everything requested was tested, and nothing is at fault.
    Healthy,
    /// Something is at fault.
    Faulty,
    /// Nothing at fault was seen, but not everything requested could be tested. A report that is not judged yet is
    /// inconclusive too.
    #[default]
    Inconclusive,
}

/// The conclusion and its basis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The conclusion in one word.
    pub verdict: Conclusion,
    /// The exit code of the contract (docs/exit-codes.md).
    pub exit_code: u8,
    /// Measurements that have a figure.
    pub tested: u32,
    /// Measurements that were requested and have no figure.
    pub untested: u32,
}

/// Time spent in each stage, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Timing {
    /// Reading the facts.
    pub discover: f64,
    /// Time from the start of the program until the worker could run its first round. It includes reading the facts.
    pub driver_start: f64,
    /// Measuring.
    pub measure: f64,
    /// Judging.
    pub diagnose: f64,
    /// Time from the start of the program to the report.
    pub total: f64,
    /// Time of the driver's own start within `driver_start`: cuInit and contexts, measured while NVML is read at the
    /// same time. A program that does nothing else is ready sooner.
    pub driver_floor: f64,
}
