//! The protocol between parent and worker: one JSON object per line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use hardware::HardwareError;
use measure::{Outcome, Selection};
use model::measurement::DriverFacts;
use model::timeline::Timeline;
use model::units::Bytes;
use plan::Round;

/// Name of the hidden subcommand that makes a process a worker.
pub const SUBCOMMAND: &str = "worker";

/// A message as it is sent, without the end of its line.
///
/// # Errors
///
/// It cannot be said in JSON.
pub(super) fn text(message: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(message).map_err(|error| error.to_string())
}

/// From the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Open these GPUs. The driver itself starts before, as soon as the worker does.
    Open {
        selections: Vec<Selection>,
        /// Maximum memory to use on each.
        memory_limit: Bytes,
        /// One after the other, so that it is known on which GPU a driver crashes. Slow.
        #[serde(default)]
        one_by_one: bool,
    },
    /// Run rounds of one slot, at once where they allow it.
    Run { rounds: Vec<Round> },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The driver could not be started; the worker ends.
    NoDriver { error: HardwareError },
    /// What follows concerns this GPU, by NVML index: if it hangs or crashes, the others can be
    /// opened without it.
    Opening { gpu: u32 },
    /// The GPUs are open, as far as they could be.
    Ready {
        /// What the driver said.
        facts: DriverFacts,
        /// Seconds that the driver's initialisation and the contexts alone took.
        floor_seconds: f64,
    },
    /// Rounds that ran at once went wrong, and the worker goes on with them one by one.
    Apart {
        /// The number of the first.
        id: u32,
        /// Why.
        error: HardwareError,
    },
    /// What was seen of a round that is followed; its end is told next.
    Seen { id: u32, timeline: Timeline },
    /// A round has ended.
    Done {
        id: u32,
        outcome: Outcome,
        /// What the driver's clock shows then.
        #[serde(default)]
        clock: Duration,
    },
}
