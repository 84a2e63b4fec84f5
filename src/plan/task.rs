//! What a round does.

use std::fmt;

use serde::{Deserialize, Serialize};

use model::flow::Setup;
use model::host::Allocation;
use model::load::Pattern;
use model::placement::{Direction, Engine, Path, Side};

/// Timed copies of a row within a GPU, after one that is not.
pub const LOCAL_COPIES: u32 = 2;

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// How the bytes are copied.
    #[serde(flatten)]
    pub setup: Setup,
    /// What is found out about the copy.
    #[serde(flatten)]
    pub action: Action,
}

/// What is found out about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Copy a pattern and check it on the destination.
    Verify,
    /// Time plain rows of copies.
    Bandwidth {
        /// Rows that must agree with each other; where they do not, some more are taken.
        rows: u32,
        /// Copies in each of them.
        copies: u32,
    },
    /// Time a copy against a kernel on each of both GPUs.
    Overlap { samples: u32 },
    /// Time a row of small copies.
    Latency { samples: u32 },
    /// Time rows of copies within a GPU.
    Local {
        /// How many rows.
        samples: u32,
    },
    /// Read how the clocks of the GPUs stand to the host's.
    Clocks,
    /// Time batches that are copied in, worked on and copied out, in one stream and in several.
    Pipeline {
        samples: u32,
        /// How many batches.
        batches: u32,
        /// How many streams, where there are several.
        streams: u32,
    },
    /// Find out which copies and kernels of a GPU run at the same time.
    Engines { samples: u32 },
    /// Time how long calls hold the host: copies to and from host memory where the round has such flows, else the
    /// others.
    Calls {
        /// How often each.
        samples: u32,
    },
    /// Time a loop of launches on the first flow's GPU, with a wait for the second's in each turn.
    LaunchLoop {
        samples: u32,
        /// How many turns.
        turns: u32,
    },
    /// Read what a copy to the host brings before it has ended.
    Hazard { samples: u32 },
    /// Time rows of copies between host and GPU, and check their bytes.
    Host {
        /// How many rows.
        rows: u32,
        /// Copies in each of them.
        copies: u32,
        /// Whether the host's buffer was there before.
        allocation: Allocation,
    },
    /// Time page-locking and what belongs to it.
    Pinning { samples: u32 },
    /// Time rows of several flows at once, and check their bytes.
    Load {
        /// What the flows have in common.
        pattern: Pattern,
        /// How many rows.
        rows: u32,
        /// Copies of the slowest flow in each of them.
        copies: u32,
        /// Whether counters are read before and after it.
        counted: bool,
    },
}

impl Task {
    /// Bytes that go over the link.
    pub(super) fn total_bytes(&self) -> u64 {
        let copies = match self.action {
            Action::Verify => 1,
            Action::Bandwidth { rows, copies } => rows.saturating_mul(copies.saturating_add(1)),
            Action::Overlap { samples } => samples + 1,
            Action::Latency { .. } | Action::Clocks => 0,
            Action::Local { samples } => samples * (LOCAL_COPIES + 1),
            // In and out; the marked ones and the single ones beside those that are timed.
            Action::Pipeline {
                samples, batches, ..
            } => (samples + 2).saturating_mul(4).saturating_mul(batches),
            Action::Engines { samples } => (samples + 1).saturating_mul(10),
            Action::Calls { samples } => (samples + 1).saturating_mul(4),
            Action::LaunchLoop { .. } => 0,
            Action::Hazard { samples } => (samples + 1).saturating_mul(2),
            Action::Host { rows, copies, .. } => rows.saturating_mul(copies.saturating_add(1)),
            Action::Pinning { samples } => samples.saturating_mul(4),
            // Once more to see how fast each flow is.
            Action::Load { rows, copies, .. } => rows
                .saturating_add(1)
                .saturating_mul(copies.saturating_add(1)),
        };
        self.setup.bytes.0.saturating_mul(u64::from(copies))
    }

    /// Whether the opposite direction is busy too, so that its fate is this one's.
    pub fn is_both_ways(&self) -> bool {
        self.setup.direction == Direction::BothWays
    }
}

impl fmt::Display for Task {
    /// For progress and reasons.
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
            Action::Pinning { .. } => write!(f, "page-locking"),
            Action::Load { pattern, .. } => write!(f, "load pattern {pattern}"),
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
