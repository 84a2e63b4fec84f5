//! The list of probes.

use std::fmt;

/// The part of a machine that a probe measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The way from one GPU to another.
    Pair,
    /// Memory: of a GPU, of the host, and the way between them.
    Memory,
    /// The work of one GPU by itself, with or without copies to the host.
    Gpu,
    /// Two processes.
    Processes,
    /// Several ways at once.
    Flows,
}

/// Expands a macro with the list of probes, in the order of the report: name, word, scope, table and cell of each.
macro_rules! probes {
    ($with:ident) => {
        $with! {
            /// The rate of large copies.
            Bandwidth "bandwidth" in Pair: peer of PeerBandwidth;
            /// Overlap of a copy with a kernel.
            Overlap "overlap" in Pair: overlap of Overlap;
            /// The time of small copies.
            Latency "latency" in Pair: latency of Latency;
            /// Kernels that talk to each other while they run.
            Live "live talk" in Pair: live of LiveTalk;
            /// Kernels of all GPUs that talk to each other at once.
            Group "talk of all" in Flows: live_group of GroupTalk;
            /// The time of a load.
            Chase "pointer chase" in Memory: chase of PointerChase;
            /// The rate of copies within a GPU.
            Local "local" in Memory: local of LocalCopy;
            /// The rate of copies between host and GPU.
            Host "host" in Memory: host of HostCopy;
            /// Copies of small, scattered blocks.
            Small "scattered blocks" in Memory: small of SmallCopy;
            /// The cost of page-locking host memory.
            Pinning "pinning" in Memory: pinning of Pinning;
            /// Pipelines of copies and kernels.
            Pipeline "pipeline" in Gpu: pipeline of Pipeline;
            /// Copies that run at the same time.
            Engines "engines" in Gpu: engines of Engines;
            /// Time that calls block the host.
            Calls "calls" in Gpu: calls of HostCall;
            /// Loops of launches with a wait in each turn.
            LaunchLoop "launch loop" in Gpu: launch_loop of LaunchLoop;
            /// Data that is read before its copy has ended.
            Hazard "hazard" in Gpu: hazard of Hazard;
            /// Copies into memory that is mapped without peer access.
            Mapped "mapped memory" in Pair: mapped of Mapped;
            /// Memory handed from one process to another.
            Share "sharing" in Processes: sharing of Sharing;
            /// Several flows at once.
            Load "load" in Flows: load of LoadPattern;
        }
    };
}

/// Declares the names, words and scopes.
macro_rules! names {
    ($($(#[$about:meta])* $probe:ident $word:literal in $scope:ident: $table:ident of $cell:ident;)*) => {
        /// The subject of a measurement.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Probe {
            $($(#[$about])* $probe,)*
        }

        impl Probe {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$probe),*];

            /// Returns the part of a machine that it measures.
            pub(crate) const fn scope(self) -> Scope {
                match self {
                    $(Self::$probe => Scope::$scope,)*
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
