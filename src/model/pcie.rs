//! What a PCIe link is: how it trained, what its two ends could do, and where it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::node::NodeId;
use super::placement::{Pair, Path};
use super::units::{GbPerSecond, Generation, Lanes, PciAddress, PcieLink};

/// Generation and lanes, each of which may be unknown by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Shape {
    /// PCIe generation.
    pub generation: Option<Generation>,
    /// Lanes.
    pub width: Option<Lanes>,
}

impl Shape {
    /// The link, where both figures are known.
    pub fn link(self) -> Option<PcieLink> {
        Some(PcieLink {
            generation: self.generation?,
            width: self.width?,
        })
    }

    /// The lower generation and the lower width: what a link trains to between two such ends. Both
    /// are taken by themselves, since speed and width are settled by themselves.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            generation: least(self.generation, other.generation),
            width: least(self.width, other.width),
        }
    }
}

impl fmt::Display for Shape {
    /// `Gen4 x16`, `x16` or `Gen4`; nothing where nothing is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation.map(|generation| format!("Gen{generation}"));
        let width = self.width.map(|width| format!("x{width}"));
        f.pad(
            &generation
                .into_iter()
                .chain(width)
                .collect::<Vec<_>>()
                .join(" "),
        )
    }
}

/// Why a link counts as narrow: it trained to less than both its ends can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Narrow {
    /// Fewer lanes.
    FewerLanes,
    /// A lower generation. Never so at rest for the link of a GPU, which lowers it while idle.
    LowerGeneration,
}

/// A reading of a link that is not believed, and why: ports save power too, and some go on to show what they
/// read at rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refuted {
    /// What the link would be by this reading.
    pub reading: Shape,
    /// Payload rate that this would carry per direction. Null where its generation is not known.
    pub allows_gbps: Option<GbPerSecond>,
    /// What contradicts it.
    pub by: RefutedBy,
}

/// What contradicts a reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RefutedBy {
    /// The link showed more lanes while copies ran.
    UnderLoad {
        /// How many.
        width: Lanes,
    },
    /// Copies that pass the link were faster than the reading allows.
    Copies {
        /// The fastest of them.
        #[serde(flatten)]
        pair: Pair,
        /// Direct or through host memory.
        path: Path,
        /// Their rate.
        achieved_gbps: GbPerSecond,
    },
    /// Copies between the host and a GPU that pass the link were faster than the reading allows.
    HostCopies {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// Their rate.
        achieved_gbps: GbPerSecond,
    },
}

impl RefutedBy {
    /// The rate of the copies, where it is copies.
    pub const fn rate(self) -> Option<GbPerSecond> {
        match self {
            Self::UnderLoad { .. } => None,
            Self::Copies { achieved_gbps, .. } | Self::HostCopies { achieved_gbps, .. } => {
                Some(achieved_gbps)
            }
        }
    }
}

impl fmt::Display for Refuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allows = self
            .allows_gbps
            .map(|rate| format!(", which carries {rate} GB/s"))
            .unwrap_or_default();
        write!(f, "the reading {}{allows}, is not believed: ", self.reading)?;
        match self.by {
            RefutedBy::UnderLoad { width } => write!(f, "under load the link shows x{width}"),
            RefutedBy::HostCopies { gpu, achieved_gbps } => {
                write!(
                    f,
                    "copies between the host and GPU {gpu} reached {achieved_gbps} GB/s over the link"
                )
            }
            RefutedBy::Copies {
                pair,
                path,
                achieved_gbps,
            } => {
                let staged = if path == Path::Staged { "staged " } else { "" };
                write!(
                    f,
                    "{staged}copies {pair} reached {achieved_gbps} GB/s over the link"
                )
            }
        }
    }
}

/// One PCIe link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connection {
    /// The port above, where it is visible.
    pub port: Option<PciAddress>,
    /// The function below.
    pub below: Option<PciAddress>,
    /// Label of the physical slot below the port, where the firmware names one.
    pub slot: Option<String>,
    /// Index of the GPU, where the function below is one.
    pub gpu: Option<u32>,
    /// The GPUs whose way to the processor has this link.
    pub gpus: Vec<u32>,
    /// As it was read while nothing ran: the lower of what both ends say.
    pub at_rest: Shape,
    /// What data gets: lanes as trained, with the generation that counts. An idle GPU lowers its
    /// generation and raises it under load, so for its link that is the one that both ends can reach.
    /// Other links have the generation that they show. What a measurement refutes does not count.
    pub now: Shape,
    /// What both ends can do together.
    pub possible: Shape,
    /// What the device below can do.
    pub device_possible: Shape,
    /// What the port above can do.
    pub port_possible: Shape,
    /// Whether the possible width is that of both ends and not of one alone.
    pub width_of_both: bool,
    /// Whether the possible generation is that of both ends and not of one alone.
    pub generation_of_both: bool,
    /// In which ways it trained to less than both ends can do; empty for a sound link.
    pub narrow: Vec<Narrow>,
    /// What the two ends disagree on, a sentence each.
    pub notes: Vec<String>,
    /// Readings that a measurement contradicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuted: Vec<Refuted>,
}

impl Connection {
    /// The node at its lower end, by which a link of the tree is known.
    pub fn lower(&self) -> Option<NodeId> {
        self.gpu.map(NodeId::Gpu).or(self.below.map(NodeId::Pci))
    }

    /// Whether the link has fewer lanes than both its ends can do.
    pub fn fewer_lanes(&self) -> bool {
        self.narrow.contains(&Narrow::FewerLanes)
    }

    /// Whether the link trained to a lower generation than both its ends can do.
    pub fn lower_generation(&self) -> bool {
        self.narrow.contains(&Narrow::LowerGeneration)
    }
}
