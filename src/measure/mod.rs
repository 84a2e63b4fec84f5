//! Runs rounds on a driver and makes measurements of their outcomes. The worker calls [`Bench::run`];
//! the parent calls [`assemble`]. Each probe has a file of its own with both.

pub mod background;
mod bandwidth;
mod bench;
mod figures;
mod latency;
mod local;
mod overlap;
mod seeds;
pub mod statistics;
mod verify;
pub mod watch;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use self::bench::{Bench, Selection};
use self::verify::Verifications;
use crate::hardware::{ErrorKind, HardwareError};
use crate::model::measurement::{Measurements, Status, Verified};
use crate::model::placement::StreamKind;
use crate::model::topology::Topology;
use crate::plan::{Action, Round};

/// How a round ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The bytes were checked.
    Verified {
        /// What was found.
        verified: Verified,
        /// What was wrong, in words.
        detail: Option<String>,
    },
    /// Copies were timed.
    Rows {
        /// One for each flow of the round.
        rows: Vec<Row>,
    },
    /// A copy and a kernel were timed against each other.
    Overlap {
        /// One per sample.
        samples: Vec<OverlapSample>,
    },
    /// Copies within a GPU were timed.
    Within {
        /// Each row as a whole, of [`crate::plan::LOCAL_COPIES`].
        rows: Vec<Span>,
    },
    /// It did not work.
    Failed {
        /// Why.
        error: HardwareError,
    },
    /// It was not run, or did not end; said by the parent.
    Lost {
        /// Hung, failed or skipped.
        status: Status,
        /// Why.
        reason: String,
    },
}

/// When something ran, nanoseconds on the worker's clock. Times of a device are brought onto it by the
/// moment at which the device's gate opened, which is exact to some microseconds; differences
/// between times of one device are exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When it began.
    pub start_ns: f64,
    /// When it ended.
    pub end_ns: f64,
}

impl Span {
    /// How long it took.
    pub fn length_ns(self) -> f64 {
        self.end_ns - self.start_ns
    }

    /// How long both ran.
    pub fn together_ns(self, other: Self) -> f64 {
        (self.end_ns.min(other.end_ns) - self.start_ns.max(other.start_ns)).max(0.0)
    }
}

/// The copies of one flow, in the order in which they ran on one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The GPU whose stream it is, by NVML's index.
    pub gpu: u32,
    /// The stream.
    pub stream: StreamKind,
    /// Copies of the round's size. The first carries the start-up of the row and is not counted.
    pub copies: Vec<Span>,
    /// Copies of [`crate::plan::FIXED_COST_BYTES`] after them, whose first is not counted either; empty
    /// where the fixed cost is not measured.
    pub small: Vec<Span>,
    /// Nanoseconds of host time per copy, one for each time that the row was enqueued.
    pub host_ns: Vec<f64>,
}

impl Row {
    /// Nanoseconds of each counted copy.
    pub fn copy_ns(&self) -> Vec<f64> {
        self.copies.iter().skip(1).map(|span| span.length_ns()).collect()
    }

    /// Nanoseconds of each counted small copy.
    pub fn small_ns(&self) -> Vec<f64> {
        self.small.iter().skip(1).map(|span| span.length_ns()).collect()
    }
}

/// One sample of an overlap measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverlapSample {
    /// The copy.
    pub copy: Span,
    /// The kernel.
    pub kernel: Span,
    /// Nanoseconds that the host was in the copy call, waiting included.
    pub host_ns: f64,
}

impl Bench<'_> {
    /// Runs one round.
    pub fn run(&self, round: &Round) -> Outcome {
        if let (Action::Local { samples }, [flow]) = (round.task.action, round.flows.as_slice())
            && let Some(gpu) = flow.within()
        {
            let result = self.local(gpu, round.task.setup, samples);
            return result.unwrap_or_else(|error| Outcome::Failed { error });
        }
        let result = self.pairs(round).and_then(|pairs| {
            let (pair, setup) = (pairs[0], round.task.setup);
            match round.task.action {
                Action::Verify => self.verify(pair, setup),
                Action::Bandwidth { samples } => self.bandwidth(&pairs, setup, samples),
                Action::Overlap { compute_on, samples } => self.overlap(pair, setup, compute_on, samples),
                Action::Latency { samples } => self.latency(pair, setup, samples),
                Action::Local { .. } => Err(HardwareError::new(ErrorKind::Other, "copies within a GPU have one flow")),
            }
        });
        result.unwrap_or_else(|error| Outcome::Failed { error })
    }
}

/// The tables of all rounds, with theory and verification beside each figure; a round without outcome was
/// not reached.
pub fn assemble(rounds: &[Round], outcomes: &HashMap<u32, Outcome>, topology: &Topology) -> Measurements {
    let mut tables = Measurements::default();
    let mut verified = Verifications::default();
    let not_reached = Outcome::Lost { status: Status::Skipped, reason: "not reached".into() };
    for round in rounds {
        let (setup, outcome) = (round.task.setup, outcomes.get(&round.id).unwrap_or(&not_reached));
        let within = round.flows.iter().filter_map(|flow| flow.within());
        tables.local.extend(within.map(|gpu| local::cell(gpu, setup, outcome)));
        for (at, (&flow, pair)) in round.flows.iter().filter_map(|flow| Some((flow, flow.pair()?))).enumerate() {
            match round.task.action {
                Action::Verify => verified.take(flow, setup, outcome),
                Action::Bandwidth { .. } => {
                    let rates = figures::rates(outcome, at);
                    tables.peer.push(bandwidth::cell(pair, setup, rates, &verified, topology));
                }
                Action::Overlap { compute_on, .. } => {
                    tables.overlap.push(overlap::cell(pair, setup, compute_on, outcome));
                }
                Action::Latency { .. } => tables.latency.push(latency::cell(pair, setup, outcome)),
                Action::Local { .. } => {}
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;
