//! The task of a round.

use std::fmt;

use serde::{Deserialize, Serialize};

use model::flow::{Flow, Setup};
use model::host::Allocation;
use model::load::Pattern;
use model::placement::{Direction, Engine, Path, Side};
use model::sharing::{Processes, Rung, View};

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
    /// Time small, scattered blocks in every way, and check their bytes.
    Small {
        /// Rows of each way.
        samples: u32,
        /// Blocks in a row.
        blocks: u32,
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
        /// True while copies run both ways between the two GPUs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        under_load: bool,
    },
    /// Let kernels of all GPUs of the flows talk to each other at once.
    LiveGroup {
        /// Rounds of each phase.
        rounds: u32,
        /// The way in which it must fail, if it must.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trial: Option<Trial>,
    },
    /// Time loads of the destination from the source, each of which has the address of the next.
    Chase {
        /// Number of loads.
        loads: u32,
    },
    /// Time rows of copies into mapped memory beside rows into plain memory, and check their bytes.
    Mapped {
        /// Rows of each.
        rows: u32,
    },
    /// Hand memory from one process to another.
    Share { rung: Rung, view: View },
    /// Let kernels of two processes talk to each other while they run, each with a mailbox that the other has opened.
    ShareTalk {
        /// Rounds of each phase.
        rounds: u32,
        processes: Processes,
    },
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

impl Task {
    /// Returns the bytes that pass the link.
    pub(super) fn total_bytes(&self) -> u64 {
        let copies = match self.action {
            Action::Verify => 1,
            Action::Bandwidth { rows, copies } => rows.saturating_mul(copies.saturating_add(1)),
            Action::Overlap { samples } => samples + 1,
            Action::Latency { .. }
            | Action::Clocks
            | Action::Live { .. }
            | Action::LiveGroup { .. }
            | Action::Chase { .. } => 0,
            Action::Local { samples } => samples * (LOCAL_COPIES + 1),
            // In and out, including the marked and the single batches beside the timed ones.
            Action::Pipeline {
                samples, batches, ..
            } => (samples + 2).saturating_mul(4).saturating_mul(batches),
            Action::Engines { samples } => (samples + 1).saturating_mul(10),
            Action::Calls { samples } => (samples + 1).saturating_mul(4),
            Action::LaunchLoop { .. } => 0,
            Action::Hazard { samples } => (samples + 1).saturating_mul(2),
            Action::Host { rows, copies, .. } => rows.saturating_mul(copies.saturating_add(1)),
            // Three ways, each with a row that is not counted.
            Action::Small { samples, blocks } => samples
                .saturating_add(1)
                .saturating_mul(3)
                .saturating_mul(blocks),
            Action::Pinning { samples } => samples.saturating_mul(4),
            // One extra row, which measures how fast each flow is.
            Action::Load { rows, copies, .. } => rows
                .saturating_add(1)
                .saturating_mul(copies.saturating_add(1)),
            // Into plain and into mapped memory, and the copy whose bytes are checked.
            Action::Mapped { rows } => (2 * rows + 1).saturating_mul(LOCAL_COPIES + 1),
            Action::Share { .. } | Action::ShareTalk { .. } => 0,
            // Its deadline follows from its time.
            Action::Soak { .. } => 0,
        };
        self.setup.bytes.0.saturating_mul(u64::from(copies))
    }

    /// Returns true if it runs kernels, for these flows.
    pub(super) fn needs_kernels(&self, flows: &[Flow]) -> bool {
        match self.action {
            Action::Verify | Action::Bandwidth { .. } | Action::Host { .. } => {
                self.setup.engine == Engine::Kernel
            }
            Action::Overlap { .. }
            | Action::Pipeline { .. }
            | Action::Engines { .. }
            | Action::LaunchLoop { .. }
            | Action::Live { .. }
            | Action::LiveGroup { .. }
            | Action::ShareTalk { .. }
            | Action::Chase { .. }
            | Action::Hazard { .. } => true,
            // Copies with the host need no kernels; waits need a kernel to wait for.
            Action::Calls { .. } => flows.iter().any(|flow| flow.within().is_some()),
            Action::Latency { .. }
            | Action::Local { .. }
            | Action::Small { .. }
            | Action::Pinning { .. }
            | Action::Load { .. }
            | Action::Clocks => false,
            Action::Mapped { .. } => self.setup.engine == Engine::Kernel,
            // Kernels of both processes write and check the bytes.
            Action::Share { rung, .. } => rung != Rung::LegacyEvent,
            Action::Soak { pattern, .. } => pattern.is_none(),
        }
    }

    /// Returns true if a timeline shows it.
    pub(super) const fn is_shown(&self) -> bool {
        match self.action {
            Action::Overlap { .. }
            | Action::Pipeline { .. }
            | Action::Calls { .. }
            | Action::LaunchLoop { .. } => true,
            Action::Verify
            | Action::Bandwidth { .. }
            | Action::Latency { .. }
            | Action::Local { .. }
            | Action::Clocks
            | Action::Live { .. }
            | Action::LiveGroup { .. }
            | Action::Chase { .. }
            | Action::Engines { .. }
            | Action::Hazard { .. }
            | Action::Host { .. }
            | Action::Small { .. }
            | Action::Pinning { .. }
            | Action::Load { .. }
            | Action::Mapped { .. }
            | Action::Share { .. }
            | Action::ShareTalk { .. }
            | Action::Soak { .. } => false,
        }
    }

    /// Returns true if it takes two processes.
    pub(super) const fn is_shared(&self) -> bool {
        self.view().is_some()
    }

    /// Returns the GPUs that CUDA shows to each of two processes; none if one process does it.
    pub const fn view(&self) -> Option<View> {
        match self.action {
            Action::Share { view, .. } => Some(view),
            Action::ShareTalk { processes, .. } => Some(processes.view),
            _ => None,
        }
    }

    /// Returns true if the opposite direction is busy too. Both directions then succeed or fail together.
    pub fn is_both_ways(&self) -> bool {
        self.setup.direction == Direction::BothWays
    }
}

impl fmt::Display for Task {
    /// Describes the task for progress messages and reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            placement,
            issuer,
            engine,
            direction,
            path,
            ..
        } = self.setup;
        match self.action {
            Action::Verify => {
                write!(f, "verification of the {path} path ({engine}")?;
                let parts = [
                    (issuer == Side::Destination, "issued by destination"),
                    (direction == Direction::BothWays, "both ways"),
                ];
                parts
                    .into_iter()
                    .filter(|(is, _)| *is)
                    .try_for_each(|(_, part)| write!(f, ", {part}"))?;
                write!(f, ")")
            }
            Action::Overlap { .. } => {
                write!(f, "overlap {}/{}", placement.source, placement.destination)
            }
            Action::Latency { .. } => write!(f, "latency, {path}"),
            Action::Live {
                under_load: true, ..
            } => write!(f, "live talk of kernels under load"),
            Action::Live { .. } => write!(f, "live talk of kernels"),
            Action::LiveGroup { .. } => write!(f, "talk of all kernels at once"),
            Action::Chase { .. } => write!(f, "pointer chase"),
            Action::Local { .. } => write!(f, "copies within a GPU"),
            Action::Clocks => write!(f, "clocks of the GPUs"),
            Action::Pipeline {
                batches, streams, ..
            } => {
                write!(f, "pipeline of {batches} batches in {streams} streams")
            }
            Action::Engines { .. } => write!(f, "copies at the same time"),
            Action::Calls { .. } => write!(f, "host time of calls"),
            Action::LaunchLoop { turns, .. } => write!(f, "loop of {turns} launches"),
            Action::Hazard { .. } => write!(f, "data that is read too early"),
            Action::Host { allocation, .. } => {
                write!(f, "host copies")?;
                let parts = [
                    (allocation == Allocation::Anew, "page-locked anew"),
                    (engine == Engine::Kernel, "kernel"),
                    (direction == Direction::BothWays, "both ways"),
                ];
                parts
                    .into_iter()
                    .filter(|(is, _)| *is)
                    .try_for_each(|(_, part)| write!(f, ", {part}"))
            }
            Action::Small { blocks, .. } => write!(f, "{blocks} scattered blocks"),
            Action::Pinning { .. } => write!(f, "page-locking"),
            Action::Load { pattern, .. } => write!(f, "load pattern {pattern}"),
            Action::Mapped { .. } => write!(f, "copies into mapped memory, {engine}"),
            Action::Share { rung, view } => {
                write!(f, "sharing between processes by {rung}, {view}")
            }
            Action::ShareTalk { processes, .. } => write!(f, "live talk {processes}"),
            Action::Soak {
                pattern: Some(pattern),
                ..
            } => write!(f, "soak, {pattern}"),
            Action::Soak { pattern: None, .. } => write!(f, "soak, kernels"),
            Action::Bandwidth { .. } => {
                write!(f, "{placement}")?;
                let parts = [
                    (issuer == Side::Destination, "issued by destination"),
                    (engine == Engine::Kernel, "kernel"),
                    (direction == Direction::BothWays, "both ways"),
                    (path == Path::Staged, "staged"),
                ];
                parts
                    .into_iter()
                    .filter(|(is, _)| *is)
                    .try_for_each(|(_, part)| write!(f, ", {part}"))
            }
        }
    }
}
