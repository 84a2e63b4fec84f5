//! The whole report, as it is written to JSON. Scripts rely on these keys (docs/report.md).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::finding::Finding;
use super::flow::Endpoint;
use super::measurement::Measurements;
use super::placement::Pair;
use super::request::Request;
use super::snapshot::Snapshot;
use super::topology::Topology;

/// The program's name, as reports and lists of processes have it.
pub const PROGRAM: &str = "peerscope";

/// The name and version of the report format.
pub const SCHEMA: &str = "peerscope.report/1";

/// Most GPUs that a machine may have to be checked and a report to be read: as many as the largest NVLink domain has. No
/// operating system shows more. Tables grow with the square of the number.
pub const MOST_GPUS: usize = 72;

/// A report: everything that was found, measured and concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// What wrote it.
    pub tool: Tool,
    /// When the run began, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// What was asked for, where that is less than everything.
    #[serde(default)]
    pub request: Request,
    /// The facts.
    pub snapshot: Snapshot,
    /// The graph and the routes.
    pub topology: Topology,
    /// The figures. Null for `topo`, which measures nothing.
    pub measurements: Option<Measurements>,
    /// What stands out, the worst first.
    pub findings: Vec<Finding>,
    /// What programs on this machine should do, from its own figures. It has no part in the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Where the time went.
    pub timing: Timing,
}

impl Report {
    /// Every GPU that the report speaks of, by index.
    pub fn gpus(&self) -> HashSet<u32> {
        let mut gpus: HashSet<u32> = self.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        gpus.extend(
            self.snapshot
                .pairs
                .iter()
                .flat_map(|pair| [pair.source, pair.destination]),
        );
        let mut pairs: Vec<Pair> = self.topology.pairs.iter().map(|route| route.pair).collect();
        if let Some(measurements) = &self.measurements {
            gpus.extend(
                measurements
                    .driver
                    .devices
                    .iter()
                    .map(|device| device.index),
            );
            gpus.extend(measurements.links.iter().map(|link| link.index));
            gpus.extend(
                measurements
                    .cells()
                    .flat_map(|cell| cell.flow.ends())
                    .filter_map(Endpoint::gpu),
            );
            pairs.extend(
                measurements
                    .driver
                    .peer_access
                    .iter()
                    .map(|access| access.pair),
            );
        }
        gpus.extend(
            pairs
                .into_iter()
                .flat_map(|pair| [pair.source, pair.destination]),
        );
        gpus
    }

    /// The name of [`Self::machine`] where it is a real one.
    pub const LIVE: &'static str = "live";

    /// Whether no figure of it comes from real hardware.
    pub fn is_simulated(&self) -> bool {
        self.machine != Self::LIVE
    }
}

/// What wrote a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Tool {
    /// `peerscope`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// This build.
    pub fn this() -> Self {
        Self {
            name: PROGRAM.into(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

/// The conclusion in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Everything that was asked for was tested, and nothing is at fault.
    Healthy,
    /// Something is at fault.
    Faulty,
    /// Nothing at fault was seen, but not everything asked for could be tested. What is not judged
    /// yet is no better.
    #[default]
    Inconclusive,
}

/// The conclusion, with what it rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Verdict {
    /// In one word.
    pub verdict: Conclusion,
    /// The exit code of the contract (docs/exit-codes.md).
    pub exit_code: u8,
    /// Measurements that have a figure.
    pub tested: u32,
    /// Measurements that were asked for and have none.
    pub untested: u32,
}

/// Where the time went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Timing {
    /// Reading the facts.
    pub discover: f64,
    /// From the start of the program until the worker could run its first round; reading the facts
    /// lies within it.
    pub driver_start: f64,
    /// Measuring.
    pub measure: f64,
    /// Judging.
    pub diagnose: f64,
    /// From start to report.
    pub total: f64,
    /// The driver's own start within `driver_start`: cuInit and contexts, as long as they took with NVML read beside
    /// them. A program that does nothing else is ready sooner.
    pub driver_floor: f64,
}
