//! The protocol between parent and worker: one JSON object per line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use hardware::HardwareError;
use model::measurement::DriverFacts;
use model::timeline::Timeline;
use model::units::Bytes;
use probes::share::{Taken, Turn};
use probes::{Outcome, Round, Selection};

/// Name of the hidden subcommand that makes a process a worker.
pub const SUBCOMMAND: &str = "worker";

/// A message from the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Opens these GPUs. The driver itself starts earlier, as soon as the worker does.
    Open {
        selections: Vec<Selection>,
        /// Maximum memory to use on each GPU.
        memory_limit: Bytes,
        /// True to open one GPU after the other, which shows on which GPU a driver crashes. Slow.
        #[serde(default)]
        one_by_one: bool,
    },
    /// Runs rounds of one slot, at once if they allow it.
    Run { rounds: Vec<Round> },
    /// Takes a step of handing memory to another process, or of opening what that one has.
    Share { step: Turn },
}

/// A message from the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The driver could not be started; the worker ends.
    NoDriver { error: HardwareError },
    /// The following steps concern this GPU, by NVML index. If it hangs or crashes, the others can be opened without
    /// it.
    Opening { gpu: u32 },
    /// The GPUs are open, as far as they could be.
    Ready {
        /// Facts that the driver reported.
        facts: DriverFacts,
        /// Seconds that the driver's initialisation and the contexts alone took.
        floor_seconds: f64,
    },
    /// Rounds that ran at once went wrong, and the worker goes on with them one by one.
    Apart {
        /// The number of the first round.
        id: u32,
        error: HardwareError,
    },
    /// The timeline of a followed round; its outcome comes next.
    Seen { id: u32, timeline: Timeline },
    /// A step of sharing has ended.
    Taken { taken: Taken },
    /// A round has ended.
    Done {
        id: u32,
        outcome: Outcome,
        /// The driver's clock at the end of the round.
        #[serde(default)]
        clock: Duration,
    },
}
