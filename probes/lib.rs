//! Runs rounds on a driver and makes measurements of their outcomes. The worker calls [`Bench::run`]; the parent calls
//! [`assemble`]. Each probe has a file of its own with both parts.

mod actions;
mod assemble;
mod asynchrony;
mod bench;
mod figures;
mod host;
mod latency;
mod live;
mod load;
mod local;
mod overlap;
mod peers;
mod pipeline;
pub mod plan;
pub mod share;
pub mod soak;
pub(crate) mod statistics;
pub mod watch;

use serde::{Deserialize, Serialize};

use crate::actions::Run;
pub use crate::assemble::assemble;
pub use crate::asynchrony::calls::CallTimes;
pub use crate::asynchrony::run::{HazardSample, LoopTimes};
pub use crate::bench::Bench;
pub use crate::bench::contents::Check;
pub use crate::bench::open_gpus::Selection;
pub use crate::host::pinning::Pinned;
pub use crate::live::chase::Loads;
pub use crate::live::run::{Side, Talked};
pub use crate::load::window::Sample;
pub use crate::pipeline::engines::EnginesSample;
pub use crate::pipeline::run::PipelineTimes;
use crate::plan::{FIXED_COST_COPIES, Round};
pub use crate::soak::run::{SoakFlow, SoakTimes};
use hardware::{ErrorKind, HardwareError};
use model::measurement::Status;
use model::placement::StreamKind;
use model::timeline::Timeline;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The bytes were checked.
    Verified {
        /// One check for each flow of the round.
        flows: Vec<Check>,
    },
    /// Copies were timed.
    Rows {
        /// One entry for each flow of the round.
        rows: Vec<Row>,
    },
    /// A copy and a kernel were timed against each other.
    Overlap {
        samples: Vec<OverlapSample>,
    },
    /// Copies within a GPU were timed.
    Within {
        /// Each row as a whole, of [`crate::plan::LOCAL_COPIES`].
        rows: Vec<Span>,
    },
    /// The round was for a timeline alone, and has no figure.
    Noted,
    /// Batches were copied in, processed and copied out.
    Pipeline {
        times: Box<PipelineTimes>,
    },
    /// Copies and kernels of a GPU were released two by two.
    Engines {
        /// Copy engines that the driver reports, if it does.
        reported: Option<u32>,
        samples: Vec<EnginesSample>,
    },
    /// Calls were timed.
    Calls {
        /// One entry for each call.
        calls: Vec<CallTimes>,
    },
    /// A loop of launches was timed.
    LaunchLoop {
        loops: Vec<LoopTimes>,
    },
    /// Data of copies was read before their end.
    Hazard {
        samples: Vec<HazardSample>,
    },
    /// Several flows were timed at once.
    Load {
        load: Box<LoadTimes>,
    },
    /// Flows were copied for a time.
    Soak {
        soak: Box<SoakTimes>,
    },
    /// Kernels talked to each other.
    Live {
        talk: Box<Talked>,
    },
    /// Loads were timed.
    Chase {
        /// One entry for each flow of the round.
        loads: Vec<Loads>,
    },
    /// Another process could use what one had.
    Handed {
        handed: Box<share::Handed>,
    },
    /// Another process could not.
    Refused {
        refusal: Box<share::Refusal>,
    },
    /// Page-locking was timed.
    Pinned {
        pinned: Box<Pinned>,
    },
    Failed {
        error: HardwareError,
    },
    /// The round was not run, or did not end; the parent reports this.
    Lost {
        /// Hung, failed or skipped.
        status: Status,
        reason: String,
    },
}

/// A span of time, nanoseconds on the worker's clock. The opening of a device's gate brings the device's times onto
/// this clock, exact to some microseconds. Differences between times of one device are exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub start_ns: f64,
    pub end_ns: f64,
}

impl Span {
    /// Returns the length.
    pub(crate) fn length_ns(self) -> f64 {
        self.end_ns - self.start_ns
    }

    /// Returns the time during which both ran.
    pub fn together_ns(self, other: Self) -> f64 {
        (self.end_ns.min(other.end_ns) - self.start_ns.max(other.start_ns)).max(0.0)
    }
}

/// The plain rows of one flow, each behind a gate of its own: from before its first copy to after its last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The GPU of the stream, by NVML index.
    pub gpu: u32,
    pub stream: StreamKind,
    /// Copies per row.
    pub copies: u32,
    /// The rows, in the order in which they ran.
    pub rows: Vec<Span>,
    /// One row of [`FIXED_COST_COPIES`] copies of [`crate::plan::FIXED_COST_BYTES`]; empty if the fixed cost is not measured.
    pub small: Vec<Span>,
    /// The copies of one more row, each by itself, if the directions of a round did not run at the same time. The first
    /// copy carries the start-up of the row and is not counted.
    pub marked: Vec<Span>,
    /// Nanoseconds of host time for one copy with its ordering, one per row.
    pub host_ns: Vec<f64>,
    /// Number of pairs that were copied at the same time, including this one.
    pub at_once: u32,
    /// Rows of this flow alone, if it was compared with the rows of several at once.
    pub alone: Vec<Span>,
    /// The rows of several at once that `alone` was compared with, if they differed and are not `rows`.
    pub together: Vec<Span>,
    /// Check of the bytes after the last row; none if they cannot be checked.
    pub check: Option<Check>,
}

impl Row {
    /// Returns the nanoseconds per copy of each row.
    pub fn copy_ns(&self) -> Vec<f64> {
        each(&self.rows, self.copies)
    }

    /// Returns the nanoseconds per small copy of each row of them.
    pub(crate) fn small_ns(&self) -> Vec<f64> {
        each(&self.small, FIXED_COST_COPIES)
    }
}

/// Returns the nanoseconds per copy of rows of this many copies.
fn each(rows: &[Span], copies: u32) -> Vec<f64> {
    rows.iter().map(|row| row.length_ns() / f64::from(copies.max(1))).collect()
}

/// One sample of an overlap measurement: a copy, and a kernel on the default stream of each GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverlapSample {
    pub copy: Span,
    /// The kernel on the source.
    pub on_source: Span,
    /// The kernel on the destination.
    pub on_destination: Span,
    /// Nanoseconds that the host spent in the call that copies.
    pub host_ns: f64,
    /// Nanoseconds that the host spent in that call and the wait for the end of the copy, as in a blocking call.
    pub blocking_ns: f64,
}

/// Figures of several flows that ran at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadTimes {
    /// One sample per row.
    pub samples: Vec<Sample>,
    /// Checks of the bytes of each flow after the last row; none if they cannot be checked.
    pub checks: Vec<Option<Check>>,
    /// Total bytes that each flow has copied.
    pub copied: Vec<u64>,
}

impl Bench<'_> {
    /// Runs rounds that share nothing at once if they allow it, else one after the other. Reports each outcome as soon
    /// as it exists.
    pub fn run(&self, rounds: &[Round], tell: &mut dyn FnMut(RunEvent<'_>)) {
        match self.at_once(rounds) {
            Some(Ok(outcomes)) => {
                return tell(RunEvent::Together(rounds.iter().zip(outcomes).collect()));
            }
            // Run each by itself to find the one at fault. If none fails alone, the error must not be lost.
            Some(Err(error)) => {
                rounds
                    .first()
                    .into_iter()
                    .for_each(|head| tell(RunEvent::Apart(head, error.clone())));
                // A wait that fails will fail again in the rounds below.
                let _ = rounds.iter().try_for_each(|round| self.drain(round));
            }
            None => {}
        }
        for round in rounds {
            let (outcome, timeline) =
                self.following(round, || self.near(round, || self.run_one(round)));
            if let Some(timeline) = timeline {
                tell(RunEvent::Seen(round, timeline));
            }
            tell(RunEvent::Ended(round, outcome));
        }
    }

    /// Runs a round by itself, and gives back the host buffers that it borrowed, after an error too. Reports the first error.
    pub fn run_one(&self, round: &Round) -> Outcome {
        let ran = match actions::of(round).run {
            Run::Alone(run) => run(self),
            Run::AtOnce(run) => run(self, &[round]).map(first),
        };
        let given_back = self.give_back();
        ran.and_then(|outcome| given_back.map(|()| outcome))
            .unwrap_or_else(|error| Outcome::Failed { error })
    }

    /// Runs rounds of the same task at the same time, and returns their outcomes. Returns none for a single round, and if
    /// rounds of this action run one after the other.
    fn at_once(&self, rounds: &[Round]) -> Option<Result<Vec<Outcome>, HardwareError>> {
        let [head, _, ..] = rounds else {
            return None;
        };
        let Run::AtOnce(run) = actions::of(head).run else {
            return None;
        };
        let all: Vec<&Round> = rounds.iter().collect();
        let is_same = all.iter().all(|round| round.task == head.task);
        is_same.then(|| together(rounds.len(), run(self, &all)))
    }
}

/// Returns the outcome of a round that ran by itself.
fn first(outcomes: Vec<Outcome>) -> Outcome {
    let none = || HardwareError::new(ErrorKind::Other, "the round has no outcome");
    outcomes.into_iter().next().unwrap_or_else(|| Outcome::Failed { error: none() })
}

/// Returns the outcomes of rounds that ran at once. After a sticky error nothing more can run here, and the round at fault is
/// unknown.
fn together(
    rounds: usize,
    outcomes: Result<Vec<Outcome>, HardwareError>,
) -> Result<Vec<Outcome>, HardwareError> {
    match outcomes {
        Err(error) if error.kind == ErrorKind::Sticky => {
            Ok(vec![Outcome::Failed { error }; rounds])
        }
        outcomes => outcomes,
    }
}

/// An event while rounds run.
pub enum RunEvent<'r> {
    Ended(&'r Round, Outcome),
    /// These rounds have ended together. None has left work on the devices that would need a wait.
    Together(Vec<(&'r Round, Outcome)>),
    /// The timeline of a followed round, reported before its end.
    Seen(&'r Round, Timeline),
    /// The rounds that begin with this one went wrong at once, and are run one by one.
    Apart(&'r Round, HardwareError),
}

#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod one_gpu_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;
