//! What a run finds, in the order in which it finds it.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::discover::LinksOfGpu;
use crate::hardware::LinkSample;
use crate::measure::Outcome;
use crate::measure::watch::{Counted, LoadCounted, NvLinksCounted};
use crate::model::background::Background;
use crate::model::broken_off::BrokenOff;
use crate::model::load;
use crate::model::measurement::{AerAdded, DriverFacts};
use crate::model::report::Tool;
use crate::model::request::Request;
use crate::model::snapshot::{GpuPair, Snapshot};
use crate::model::timeline::Timeline;
use crate::plan::Round;

/// The name and version of the journal's format.
pub const SCHEMA: &str = "peerscope.journal/4";
/// An older one that is read too: it has an entry for each reading of a link.
const OLDER: &str = "peerscope.journal/3";

/// Whether a journal of this schema is read.
pub fn is_read(schema: &str) -> bool {
    [SCHEMA, OLDER].contains(&schema)
}

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
#[serde(try_from = "Line")]
pub struct Entry {
    /// When, seconds since the run began.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What a run can find.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Event {
    /// The facts, of the GPUs that were asked for. The topology follows from them.
    Facts {
        /// The facts.
        snapshot: Snapshot,
    },
    /// What was asked for, where that is less than everything.
    Asked {
        /// What.
        request: Request,
    },
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
        /// What it said.
        facts: DriverFacts,
    },
    /// What the GPUs did while they were left alone.
    Background {
        /// GPU by GPU.
        seen: Vec<Background>,
    },
    /// What is to be measured.
    Plan {
        /// All of it, what cannot be run included. Shared with whoever runs them: 256 GPUs have 130 thousand.
        #[serde(serialize_with = "shared")]
        rounds: Arc<Vec<Round>>,
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
    /// Readings of the links of some GPUs, which are alike.
    Links {
        /// NVML's indices, each once.
        gpus: Vec<u32>,
        /// How often that was read of each in a row.
        times: u32,
        /// What was read.
        sample: LinkSample,
    },
    /// What was seen of a round that is followed for a timeline.
    Timeline {
        /// What.
        timeline: Timeline,
    },
    /// What became of a round.
    Outcome {
        /// The round's number within the plan.
        id: u32,
        /// How it ended.
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
    Counted {
        /// What was counted.
        #[serde(flatten)]
        counted: Counted,
    },
}

/// Shared rounds are written like any others.
fn shared<S: Serializer>(rounds: &Arc<Vec<Round>>, to: S) -> Result<S::Ok, S::Error> {
    rounds.as_ref().serialize(to)
}

/// What kind of line it is.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Facts,
    Asked,
    Late,
    Driver,
    Background,
    Plan,
    Watching,
    /// One reading of one GPU: of an older schema.
    Link,
    Links,
    Timeline,
    Outcome,
    Problem,
    BrokenOff,
    Limited,
    Traffic,
    Measured,
    Counted,
}

/// A line as it is read: whatever a kind of line has. Serde would first read a line into memory to find its kind, and
/// make the code that reads everything in it a second time for that.
#[derive(Deserialize)]
struct Line {
    at: f64,
    entry: Kind,
    snapshot: Option<Snapshot>,
    request: Option<Request>,
    pairs: Option<Vec<GpuPair>>,
    links: Option<Vec<LinksOfGpu>>,
    problems: Option<Vec<String>>,
    floor_seconds: Option<f64>,
    facts: Option<DriverFacts>,
    seen: Option<Vec<Background>>,
    rounds: Option<Vec<Round>>,
    left_out: Option<Vec<String>>,
    thinned_out: Option<Vec<String>>,
    gpus: Option<Vec<u32>>,
    gpu: Option<u32>,
    times: Option<u32>,
    sample: Option<LinkSample>,
    timeline: Option<Timeline>,
    id: Option<u32>,
    outcome: Option<Outcome>,
    problem: Option<String>,
    broken: Option<BrokenOff>,
    why: Option<String>,
    counted: Option<Vec<load::Counted>>,
    interrupted: Option<bool>,
    late: Option<Vec<u32>>,
    nvlinks: Option<Vec<NvLinksCounted>>,
    aer: Option<Vec<AerAdded>>,
    load: Option<LoadCounted>,
}

impl TryFrom<Line> for Entry {
    type Error = String;

    fn try_from(line: Line) -> Result<Self, String> {
        fn there<T>(value: Option<T>, key: &str) -> Result<T, String> {
            value.ok_or_else(|| format!("missing field `{key}`"))
        }
        let event = match line.entry {
            Kind::Facts => Event::Facts {
                snapshot: there(line.snapshot, "snapshot")?,
            },
            Kind::Asked => Event::Asked {
                request: there(line.request, "request")?,
            },
            Kind::Late => Event::Late {
                pairs: there(line.pairs, "pairs")?,
                links: line.links.unwrap_or_default(),
                problems: there(line.problems, "problems")?,
            },
            Kind::Driver => Event::Driver {
                floor_seconds: there(line.floor_seconds, "floor_seconds")?,
                facts: there(line.facts, "facts")?,
            },
            Kind::Background => Event::Background {
                seen: there(line.seen, "seen")?,
            },
            Kind::Plan => Event::Plan {
                rounds: Arc::new(there(line.rounds, "rounds")?),
                left_out: there(line.left_out, "left_out")?,
                thinned_out: there(line.thinned_out, "thinned_out")?,
            },
            Kind::Watching => Event::Watching {
                gpus: there(line.gpus, "gpus")?,
            },
            Kind::Link => {
                let sample = there(line.sample, "sample")?;
                Event::Links {
                    gpus: vec![there(line.gpu, "gpu")?],
                    times: 1,
                    sample,
                }
            }
            Kind::Links => Event::Links {
                gpus: there(line.gpus, "gpus")?,
                times: there(line.times, "times")?,
                sample: there(line.sample, "sample")?,
            },
            Kind::Timeline => Event::Timeline {
                timeline: there(line.timeline, "timeline")?,
            },
            Kind::Outcome => Event::Outcome {
                id: there(line.id, "id")?,
                outcome: there(line.outcome, "outcome")?,
            },
            Kind::Problem => Event::Problem {
                problem: there(line.problem, "problem")?,
            },
            Kind::BrokenOff => Event::BrokenOff {
                broken: there(line.broken, "broken")?,
            },
            Kind::Limited => Event::Limited {
                why: there(line.why, "why")?,
            },
            Kind::Traffic => Event::Traffic {
                counted: there(line.counted, "counted")?,
            },
            Kind::Measured => Event::Measured {
                interrupted: there(line.interrupted, "interrupted")?,
            },
            Kind::Counted => Event::Counted {
                counted: Counted {
                    late: there(line.late, "late")?,
                    nvlinks: there(line.nvlinks, "nvlinks")?,
                    aer: there(line.aer, "aer")?,
                    load: line.load,
                },
            },
        };
        Ok(Self { at: line.at, event })
    }
}
