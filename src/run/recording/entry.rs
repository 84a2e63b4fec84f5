//! The events of a run, in the order in which they occur.

use serde::{Deserialize, Serialize};

use crate::discover::LateFacts;
use hardware::LinkSample;
use model::background::Background;
use model::broken_off::BrokenOff;
use model::counted;
use model::measurement::{DriverFacts, SecondLook};
use model::report::Tool;
use model::request::Request;
use model::snapshot::Snapshot;
use model::soak::{Minute, SoakEnd, SoakEvent, SoakPath};
use model::timeline::Timeline;
use probes::watch::Counted;
use probes::{Outcome, Round};

/// The name and version of the journal's format.
pub const SCHEMA: &str = "peerscope.journal/5";

/// The identity of a run: the first line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that writes the journal.
    pub tool: Tool,
    /// Start of the run, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// The profile that chose the probes.
    pub profile: String,
    /// The process that makes the run.
    pub pid: u32,
    /// The command line, without the program's name.
    pub args: Vec<String>,
}

/// One event of a run and its time: every line of the journal after the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since the run began.
    pub at: f64,
    pub event: Event,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Event {
    /// The facts of the requested GPUs. The topology follows from them.
    Facts { snapshot: Snapshot },
    /// The request, if it asks for less than everything.
    Asked { request: Request },
    /// Facts read while copies ran, and the problems of reading them.
    Late(LateFacts),
    /// The driver is ready, or was given up.
    Driver {
        /// Seconds that the driver's own start took.
        floor_seconds: f64,
        facts: DriverFacts,
    },
    /// The activity of the GPUs while this program left them alone.
    Background {
        /// One entry per GPU.
        seen: Vec<Background>,
    },
    /// The plan of the measurements.
    Plan {
        /// All rounds, including those that cannot run.
        rounds: Vec<Round>,
        /// Parts of the profile left out on purpose, one sentence each.
        left_out: Vec<String>,
        /// Parts of the profile measured on some pairs only, one sentence each.
        thinned_out: Vec<String>,
    },
    /// Rounds after those of the plan, because its figures have several explanations.
    SecondLooks {
        /// What they measure, and what that tells apart.
        looks: Vec<SecondLook>,
        /// Their numbers follow those of the plan.
        rounds: Vec<Round>,
    },
    /// The links of these GPUs are watched from now on.
    Watching {
        /// NVML indices.
        gpus: Vec<u32>,
    },
    /// Readings of the watched links.
    Links {
        /// NVML index and reading. The readings of one GPU are in their order.
        readings: Vec<(u32, LinkSample)>,
    },
    /// The timeline of a round.
    Timeline { timeline: Timeline },
    /// The outcome of a round.
    Outcome {
        /// The round's number within the plan.
        id: u32,
        outcome: Outcome,
    },
    /// Something went wrong outside single rounds.
    Problem {
        /// One sentence.
        problem: String,
    },
    /// A round broke off, or its retry has a result. This replaces an earlier account of the same round.
    BrokenOff {
        /// The facts known so far.
        broken: BrokenOff,
    },
    /// A limit of the process kept something from being read or measured.
    Limited {
        /// One sentence.
        why: String,
    },
    /// Counter readings of a round's traffic. The round's outcome follows.
    Traffic {
        /// One entry per GPU.
        counted: Vec<counted::Counted>,
    },
    /// Hours under load begin.
    Soak {
        /// Time that was asked for, seconds.
        seconds: f64,
        /// The flows of its rounds.
        paths: Vec<SoakPath>,
    },
    /// A minute under load, and what happened since the last one.
    Minute {
        minute: Minute,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<SoakEvent>,
        /// Rounds so far that ran to their end, and that did not.
        ran: u64,
        lost: u64,
    },
    /// Hours under load have ended.
    SoakEnded {
        ended: SoakEnd,
        /// Events since the last minute.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<SoakEvent>,
    },
    /// The last round has ended.
    Measured {
        /// True if the user stopped the run.
        interrupted: bool,
    },
    /// The watch of the links has ended, and the counters were read again.
    Counted { counted: Counted },
}
