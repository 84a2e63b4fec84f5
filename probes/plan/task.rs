//! The task of a round.

use std::fmt;

use serde::{Deserialize, Serialize};

use model::flow::{Flow, Setup};
use model::host::Allocation;
use model::load::Pattern;
use model::placement::{Direction, Engine, Path, Side};
use model::sharing::Rung;

/// Timed copies in a row within a GPU, after one that is not timed.
pub const LOCAL_COPIES: u32 = 2;

/// The task of a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Setup of the copy.
    #[serde(flatten)]
    pub setup: Setup,
    /// Action to take on the copy.
    #[serde(flatten)]
    pub action: Action,
}

/// An action on a copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Copy a pattern and check it on the destination.
    Verify,
    /// Time plain rows of copies.
    Bandwidth {
        /// Rows that must agree with each other. If they do not, more rows are measured.
        rows: u32,
        /// Copies in each row.
        copies: u32,
    },
    /// Time a copy against a kernel on each of the two GPUs.
    Overlap { samples: u32 },
    /// Time a row of small copies.
    Latency { samples: u32 },
    /// Time rows of copies within a GPU.
    Local {
        /// Number of rows.
        samples: u32,
    },
    /// Read the clocks of the GPUs relative to the host's.
    Clocks,
    /// Time batches that are copied in, processed and copied out, in one stream and in several.
    Pipeline {
        samples: u32,
        /// Number of batches.
        batches: u32,
        /// Number of streams in the runs with several streams.
        streams: u32,
    },
    /// Find the copies and kernels of a GPU that run at the same time.
    Engines { samples: u32 },
    /// Time how long calls block the host: copies to and from host memory if the round has such flows, otherwise the
    /// other calls.
    Calls {
        /// Samples of each call.
        samples: u32,
    },
    /// Time a loop of launches on the first flow's GPU, with a wait for the second's in each turn.
    LaunchLoop {
        samples: u32,
        /// Number of turns.
        turns: u32,
    },
    /// Read the data of a copy to the host before it has ended.
    Hazard { samples: u32 },
    /// Time rows of copies between host and GPU, and check their bytes.
    Host {
        /// Number of rows.
        rows: u32,
        /// Copies in each row.
        copies: u32,
        /// Origin of the host's buffer.
        allocation: Allocation,
    },
    /// Time page-locking and related calls.
    Pinning { samples: u32 },
    /// Time rows of several flows at once, and check their bytes.
    Load {
        /// Arrangement of the flows.
        pattern: Pattern,
        /// Number of rows.
        rows: u32,
        /// Copies of the slowest flow in each row.
        copies: u32,
        /// True if counters are read before and after it.
        counted: bool,
    },
    /// Let kernels of both ends talk to each other while they run.
    Live {
        /// Rounds of each phase.
        rounds: u32,
        /// The way in which the talk must fail, if it must.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trial: Option<Trial>,
    },
    /// Time loads of the destination from the source, each of which has the address of the next.
    Chase {
        /// Number of loads.
        loads: u32,
    },
    /// Hand memory from one process to another.
    Share { rung: Rung },
    /// Copy flows at once for a time, and check their bytes.
    Soak {
        /// Arrangement of the flows; none for copies by kernels within each GPU.
        pattern: Option<Pattern>,
        /// Time of the round, milliseconds.
        millis: u32,
        /// Parts of that time; the bytes are checked after each.
        bursts: u32,
    },
}

/// A talk that must fail, which shows on hardware that every wait ends. Never planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// One side is never launched.
    Alone,
    /// One side writes into the wrong mailbox.
    WrongPartner,
    /// No wait may take longer than a microsecond.
    ShortLimit,
}

/// Properties of a task by which it is planned and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Bytes that pass the link, of all its flows if they share it.
    pub(crate) link_bytes: u64,
    /// True if it runs kernels.
    pub(crate) needs_kernels: bool,
    /// True if a timeline shows it.
    pub(crate) in_timeline: bool,
    /// True if it takes two processes.
    pub two_processes: bool,
}

/// Whether a timeline shows a task. It is no `bool`, so that it cannot change places with the kernels.
#[derive(PartialEq)]
enum Timeline {
    Shows,
    LeavesOut,
}

use Timeline::{LeavesOut, Shows};

const KERNELS: bool = true;
const NO_KERNELS: bool = false;
const ONE_PROCESS: bool = false;
const TWO_PROCESSES: bool = true;

/// Returns the copies of rows that each begin with a copy that is not timed.
const fn copies_of(rows: u32, copies: u32) -> u32 {
    rows.saturating_mul(copies.saturating_add(1))
}

impl Task {
    /// Returns its properties for these flows.
    pub fn properties(&self, flows: &[Flow]) -> Properties {
        let by_kernel = self.setup.engine == Engine::Kernel;
        // Copies that pass the link, kernels, timeline, processes.
        let (copies, needs_kernels, timeline, two_processes) = match self.action {
            Action::Verify => (1, by_kernel, LeavesOut, ONE_PROCESS),
            Action::Bandwidth { rows, copies } | Action::Host { rows, copies, .. } => {
                (copies_of(rows, copies), by_kernel, LeavesOut, ONE_PROCESS)
            }
            Action::Overlap { samples } => (samples + 1, KERNELS, Shows, ONE_PROCESS),
            Action::Latency { .. } | Action::Clocks => (0, NO_KERNELS, LeavesOut, ONE_PROCESS),
            Action::Live { .. } | Action::Chase { .. } => (0, KERNELS, LeavesOut, ONE_PROCESS),
            Action::Local { samples } => {
                let copies = copies_of(samples, LOCAL_COPIES);
                (copies, NO_KERNELS, LeavesOut, ONE_PROCESS)
            }
            // In and out, including the marked and the single batches beside the timed ones.
            Action::Pipeline { samples, batches, .. } => {
                let copies = (samples + 2).saturating_mul(4).saturating_mul(batches);
                (copies, KERNELS, Shows, ONE_PROCESS)
            }
            Action::Engines { samples } => {
                let copies = (samples + 1).saturating_mul(10);
                (copies, KERNELS, LeavesOut, ONE_PROCESS)
            }
            // Copies with the host need no kernels; waits need a kernel to wait for.
            Action::Calls { samples } => {
                let waits = flows.iter().any(|flow| flow.within().is_some());
                ((samples + 1).saturating_mul(4), waits, Shows, ONE_PROCESS)
            }
            Action::LaunchLoop { .. } => (0, KERNELS, Shows, ONE_PROCESS),
            Action::Hazard { samples } => {
                let copies = (samples + 1).saturating_mul(2);
                (copies, KERNELS, LeavesOut, ONE_PROCESS)
            }
            Action::Pinning { samples } => {
                let copies = samples.saturating_mul(4);
                (copies, NO_KERNELS, LeavesOut, ONE_PROCESS)
            }
            // One extra row, which measures how fast each flow is. The flows share links.
            Action::Load { rows, copies, .. } => {
                let flows = u32::try_from(flows.len()).unwrap_or(u32::MAX);
                let copies = copies_of(rows.saturating_add(1), copies).saturating_mul(flows);
                (copies, by_kernel, LeavesOut, ONE_PROCESS)
            }
            // Kernels of both processes write and check the bytes.
            Action::Share { .. } => (0, KERNELS, LeavesOut, TWO_PROCESSES),
            // Its deadline follows from its time.
            Action::Soak { pattern, .. } => (0, pattern.is_none(), LeavesOut, ONE_PROCESS),
        };
        Properties {
            link_bytes: self.setup.bytes.0.saturating_mul(copies.into()),
            needs_kernels,
            in_timeline: timeline == Shows,
            two_processes,
        }
    }

    /// Returns true if the opposite direction is busy too. Both directions then succeed or fail together.
    pub fn is_both_ways(&self) -> bool {
        self.setup.direction == Direction::BothWays
    }
}

/// Writes the parts that apply, each after a comma.
fn append(f: &mut fmt::Formatter<'_>, parts: &[(bool, &str)]) -> fmt::Result {
    let mut applying = parts.iter().filter(|(applies, _)| *applies);
    applying.try_for_each(|(_, part)| write!(f, ", {part}"))
}

impl fmt::Display for Task {
    /// Describes the task for progress messages and reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { placement, issuer, engine, direction, path, .. } = self.setup;
        let by_destination = (issuer == Side::Destination, "issued by destination");
        let kernel = (engine == Engine::Kernel, "kernel");
        let both_ways = (direction == Direction::BothWays, "both ways");
        let staged = (path == Path::Staged, "staged");
        match self.action {
            Action::Verify => {
                write!(f, "verification of the {path} path ({engine}")?;
                append(f, &[by_destination, both_ways])?;
                write!(f, ")")
            }
            Action::Overlap { .. } => {
                write!(f, "overlap {}/{}", placement.source, placement.destination)
            }
            Action::Latency { .. } => write!(f, "latency, {path}"),
            Action::Live { .. } => write!(f, "live talk of kernels"),
            Action::Chase { .. } => write!(f, "pointer chase"),
            Action::Local { .. } => write!(f, "copies within a GPU"),
            Action::Clocks => write!(f, "clocks of the GPUs"),
            Action::Pipeline { batches, streams, .. } => {
                write!(f, "pipeline of {batches} batches in {streams} streams")
            }
            Action::Engines { .. } => write!(f, "copies at the same time"),
            Action::Calls { .. } => write!(f, "host time of calls"),
            Action::LaunchLoop { turns, .. } => write!(f, "loop of {turns} launches"),
            Action::Hazard { .. } => write!(f, "data that is read too early"),
            Action::Host { allocation, .. } => {
                let anew = (allocation == Allocation::Anew, "page-locked anew");
                write!(f, "host copies")?;
                append(f, &[anew, kernel, both_ways])
            }
            Action::Pinning { .. } => write!(f, "page-locking"),
            Action::Load { pattern, .. } => write!(f, "load pattern {pattern}"),
            Action::Share { rung } => write!(f, "sharing between processes by {rung}"),
            Action::Soak { pattern: Some(pattern), .. } => write!(f, "soak, {pattern}"),
            Action::Soak { pattern: None, .. } => write!(f, "soak, kernels"),
            Action::Bandwidth { .. } => {
                write!(f, "{placement}")?;
                append(f, &[by_destination, kernel, both_ways, staged])
            }
        }
    }
}
