//! The list of probes.

use std::fmt;

/// The part of a machine that a probe measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The way from one GPU to another.
    Pair,
    /// The same, or a way within one GPU where there is no other.
    PairOrGpu,
    /// Memory: of a GPU, of the host, and the way between them.
    Memory,
    /// The work of one GPU by itself, with or without copies to the host.
    Gpu,
    /// Two processes.
    Processes,
    /// Several ways at once.
    Flows,
}

impl Scope {
    /// Returns true if a measurement that begins and ends in the same place has tested a way. A copy within a GPU shows
    /// nothing of the paths to others.
    pub const fn is_way_within(self) -> bool {
        match self {
            Self::Processes => true,
            Self::Pair | Self::PairOrGpu | Self::Memory | Self::Gpu | Self::Flows => false,
        }
    }
}

/// The work of a probe, which hangs if the probe hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Copies, even if kernels run beside them.
    Copies,
    /// Kernels or other calls, with or without copies.
    Kernels,
}

/// The rules that report failures of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// `copy-failed` and `peer-copy-hung`, together with those of other probes between the same places.
    Shared,
    /// Rules of its own: which of several flows at once failed is not known; memory that is shared may be refused
    /// where copies work.
    Own,
}

/// Expands a macro with the list of probes, in the order of the report: name, word, scope, work, rules of its
/// failures, table and cell of each.
macro_rules! probes {
    ($with:ident) => {
        $with! {
            /// The rate of large copies.
            Bandwidth "bandwidth" in Pair by Copies, failures Shared: peer of PeerBandwidth;
            /// Overlap of a copy with a kernel.
            Overlap "overlap" in Pair by Copies, failures Shared: overlap of Overlap;
            /// Copies and kernels at the same time.
            Contention "contention" in Gpu by Kernels, failures Shared: contention of Contention;
            /// The time of small copies.
            Latency "latency" in Pair by Copies, failures Shared: latency of Latency;
            /// Kernels that talk to each other while they run.
            Live "live talk" in PairOrGpu by Kernels, failures Shared: live of LiveTalk;
            /// The time of a load.
            Chase "pointer chase" in Memory by Kernels, failures Shared: chase of PointerChase;
            /// Single NVLinks.
            Links "NVLink" in Pair by Kernels, failures Shared: nvlinks of SingleLink;
            /// Addresses all over the memory of a GPU.
            Addresses "addresses" in Pair by Copies, failures Shared: addresses of MemoryReach;
            /// The rate of copies within a GPU.
            Local "local" in Memory by Copies, failures Shared: local of LocalCopy;
            /// The rate of copies between host and GPU.
            Host "host" in Memory by Copies, failures Shared: host of HostCopy;
            /// The cost of page-locking host memory.
            Pinning "pinning" in Memory by Copies, failures Shared: pinning of Pinning;
            /// Pipelines of copies and kernels.
            Pipeline "pipeline" in Gpu by Kernels, failures Shared: pipeline of Pipeline;
            /// Copies that run at the same time.
            Engines "engines" in Gpu by Copies, failures Shared: engines of Engines;
            /// Time that calls block the host.
            Calls "calls" in Gpu by Kernels, failures Shared: calls of HostCall;
            /// Loops of launches with a wait in each turn.
            LaunchLoop "launch loop" in Gpu by Kernels, failures Shared: launch_loop of LaunchLoop;
            /// Data that is read before its copy has ended.
            Hazard "hazard" in Gpu by Copies, failures Shared: hazard of Hazard;
            /// Memory handed from one process to another.
            Share "sharing" in Processes by Copies, failures Own: sharing of Sharing;
            /// Several flows at once.
            Load "load" in Flows by Copies, failures Own: load of LoadPattern;
        }
    };
}

/// Declares the names, words and choices.
macro_rules! names {
    (
        $($(#[$about:meta])* $probe:ident $word:literal in $scope:ident by $work:ident,
        failures $failures:ident: $table:ident of $cell:ident;)*
    ) => {
        /// The subject of a measurement.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Probe {
            $($(#[$about])* $probe,)*
        }

        impl Probe {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$probe),*];

            /// Returns the part of a machine that it measures.
            pub const fn scope(self) -> Scope {
                match self {
                    $(Self::$probe => Scope::$scope,)*
                }
            }

            /// Returns the work that it does there.
            pub const fn work(self) -> Work {
                match self {
                    $(Self::$probe => Work::$work,)*
                }
            }

            /// Returns the rules that report its failures.
            pub const fn failures(self) -> Failures {
                match self {
                    $(Self::$probe => Failures::$failures,)*
                }
            }
        }

        impl fmt::Display for Probe {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$probe => $word,)*
                })
            }
        }
    };
}

probes!(names);
pub(crate) use probes;
