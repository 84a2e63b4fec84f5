//! What is measured, by name, and what the measurements of every probe have in common.

use std::fmt;

use super::flow::{Endpoint, Flow, Setup};
use super::status::{Status, Verified};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// The rate of large copies.
    Bandwidth,
    /// The time of small copies.
    Latency,
    /// Whether a copy and a kernel run at the same time.
    Overlap,
    /// The rate of copies within a GPU.
    Local,
    /// The rate of copies between host and GPU.
    Host,
    /// The cost of page-locking memory of the host.
    Pinning,
    /// Pipelines of copies and kernels.
    Pipeline,
    /// Which copies run at the same time.
    Engines,
    /// How long calls hold the host.
    Calls,
    /// Loops of launches with a wait in each turn.
    LaunchLoop,
    /// Data that is read before its copy has ended.
    Hazard,
    /// Several flows at once.
    Load,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::Overlap => "overlap",
            Self::Latency => "latency",
            Self::Local => "local",
            Self::Host => "host",
            Self::Pinning => "pinning",
            Self::Pipeline => "pipeline",
            Self::Engines => "engines",
            Self::Calls => "calls",
            Self::LaunchLoop => "launch loop",
            Self::Hazard => "hazard",
            Self::Load => "load",
        })
    }
}

/// One measurement that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// What was measured.
    pub probe: Probe,
    /// From where to where.
    pub flow: Flow,
    /// How.
    pub setup: Setup,
    /// How it ended.
    pub status: Status,
    /// Whether it has a figure.
    pub has_figure: bool,
    /// Why there is no figure.
    pub reason: Option<&'a str>,
    /// Whether the bytes arrived.
    pub verified: Verified,
    /// Whether another program was in its way.
    pub disturbed: bool,
}

impl Cell<'_> {
    /// Whether the bytes come from or go to this GPU.
    pub fn uses(&self, gpu: u32) -> bool {
        self.flow.ends().contains(&Endpoint::Gpu(gpu))
    }

    /// Whether it has an answer. Wrong bytes are one, whatever became of the timing.
    pub fn tested(&self) -> bool {
        self.verified.is_wrong()
            || (self.status == Status::Measured && self.has_figure && !self.disturbed)
    }
}
