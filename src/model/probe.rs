//! The names, words and choices of the probes in the list (`measurement.rs`).

use std::fmt;

use super::measurement::probes;

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

/// The formats that show a probe by code of their own. All others show it as its cell declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Text, page and Prometheus.
    ByHand,
    /// Text and page.
    TextByHand,
    /// None.
    AsDeclared,
}

/// The rules that report failures of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// `peer-copy-failed` and `peer-copy-hung`, together with those of other probes between the same places.
    Shared,
    /// Rules of its own: which of several flows at once failed is not known; memory that is mapped or shared may be
    /// refused where copies work.
    Own,
}

/// Declares the names, words and choices.
macro_rules! names {
    (
        $($(#[$about:meta])* $probe:ident $word:literal in $scope:ident by $work:ident, shown $shown:ident,
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

            /// Returns the formats that show it by hand.
            pub const fn shown(self) -> Shown {
                match self {
                    $(Self::$probe => Shown::$shown,)*
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
