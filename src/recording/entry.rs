//! What a run finds, in the order in which it finds it.

use serde::{Deserialize, Serialize};

use discover::LinksOfGpu;
use hardware::LinkSample;
use measure::Outcome;
use measure::watch::Counted;
use model::background::Background;
use model::broken_off::BrokenOff;
use model::load;
use model::measurement::DriverFacts;
use model::report::Tool;
use model::request::Request;
use model::snapshot::{GpuPair, Snapshot};
use model::timeline::Timeline;
use plan::Round;

/// The name and version of the journal's format.
pub const SCHEMA: &str = "peerscope.journal/5";

/// Which run it is: the first line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What writes it.
    pub tool: Tool,
    /// When the run began, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// The profile that chose the probes.
    pub profile: String,
    /// The process.
    pub pid: u32,
    /// The command line, without the program's name.
    pub args: Vec<String>,
}

/// Something that a run found: every other line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, seconds since the run began.
    pub at: f64,
    pub event: Event,
}

/// What a run can find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Event {
    /// The facts, of the GPUs that were asked for. The topology follows from them.
    Facts { snapshot: Snapshot },
    /// What was asked for, where that is less than everything.
    Asked { request: Request },
    /// What was read while copies ran, and what went wrong with it.
    Late {
        /// All pairs of the facts.
        pairs: Vec<GpuPair>,
        /// The GPUs whose NVLinks were read, with all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        links: Vec<LinksOfGpu>,
        /// A sentence each.
        problems: Vec<String>,
    },
    /// The driver is ready, or was given up.
    Driver {
        /// Seconds that its own start took.
        floor_seconds: f64,
        facts: DriverFacts,
    },
    /// What the GPUs did while they were left alone.
    Background {
        /// GPU by GPU.
        seen: Vec<Background>,
    },
    /// What is to be measured.
    Plan {
        /// All of it, what cannot be run included.
        rounds: Vec<Round>,
        /// What of the profile was left out on purpose, a sentence each.
        left_out: Vec<String>,
        /// What of it is measured on some pairs only, a sentence each.
        thinned_out: Vec<String>,
    },
    /// The links of these GPUs are watched from now on.
    Watching {
        /// NVML's indices.
        gpus: Vec<u32>,
    },
    /// Readings of the links that were watched.
    Links {
        /// NVML's index with each, those of a GPU in their order.
        readings: Vec<(u32, LinkSample)>,
    },
    /// What was seen of a round that is followed for a timeline.
    Timeline { timeline: Timeline },
    /// What became of a round.
    Outcome {
        /// The round's number within the plan.
        id: u32,
        outcome: Outcome,
    },
    /// Something went wrong beside single rounds.
    Problem {
        /// A sentence.
        problem: String,
    },
    /// A round broke off, or what came of trying it again: this replaces an earlier account of the same round.
    BrokenOff {
        /// What is known of it by now.
        broken: BrokenOff,
    },
    /// A limit of the process kept something from being read or measured.
    Limited {
        /// A sentence.
        why: String,
    },
    /// What counters saw of a round's traffic; its outcome comes next.
    Traffic {
        /// GPU by GPU.
        counted: Vec<load::Counted>,
    },
    /// The last round has ended.
    Measured {
        /// Whether the user stopped it.
        interrupted: bool,
    },
    /// The links are watched no more, and the counters were read again.
    Counted { counted: Counted },
}
