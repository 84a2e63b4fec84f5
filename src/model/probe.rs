//! The probes by name, and the fields that the measurements of all probes share.

use std::fmt;

use super::flow::{Endpoint, Flow, Setup};
use super::status::{Status, Verified};

/// The subject of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// The rate of large copies.
    Bandwidth,
    /// The time of small copies.
    Latency,
    /// Overlap of a copy with a kernel.
    Overlap,
    /// The rate of copies within a GPU.
    Local,
    /// The rate of copies between host and GPU.
    Host,
    /// The cost of page-locking host memory.
    Pinning,
    /// Pipelines of copies and kernels.
    Pipeline,
    /// Copies that run at the same time.
    Engines,
    /// Time that calls block the host.
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

/// One requested measurement.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    pub probe: Probe,
    /// Source and destination.
    pub flow: Flow,
    /// Setup of the copy.
    pub setup: Setup,
    /// Status of the measurement.
    pub status: Status,
    /// True if it has a figure.
    pub has_figure: bool,
    /// Reason why there is no figure.
    pub reason: Option<&'a str>,
    /// Result of checking the bytes.
    pub verified: Verified,
    /// True if another program disturbed it.
    pub disturbed: bool,
}

impl Cell<'_> {
    /// Returns true if the bytes come from or go to this GPU.
    pub fn uses(&self, gpu: u32) -> bool {
        self.flow.ends().contains(&Endpoint::Gpu(gpu))
    }

    /// Returns true if it has a result. Wrong bytes are a result, regardless of the timing.
    pub fn tested(&self) -> bool {
        self.verified.is_wrong()
            || (self.status == Status::Measured && self.has_figure && !self.disturbed)
    }
}
