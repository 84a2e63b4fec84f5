//! The probes by name.

use std::fmt;

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

/// The part of a machine that a probe measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The way from one GPU to another.
    Pair,
    /// Memory: of a GPU, of the host, and the way between them.
    Memory,
    /// The work of one GPU by itself, with or without copies to the host.
    Gpu,
    /// Several ways at once.
    Flows,
}

impl Probe {
    /// Returns the part of a machine that it measures.
    pub(crate) const fn scope(self) -> Scope {
        match self {
            Self::Bandwidth | Self::Latency | Self::Overlap => Scope::Pair,
            Self::Local | Self::Host | Self::Pinning => Scope::Memory,
            Self::Pipeline | Self::Engines | Self::Calls | Self::LaunchLoop | Self::Hazard => {
                Scope::Gpu
            }
            Self::Load => Scope::Flows,
        }
    }
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
