//! A PCIe link: the shape that it trained to, the shapes that its two ends support, and its place.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::node::NodeId;
use super::placement::{Pair, Path};
use super::units::{GbPerSecond, Generation, Lanes, PciAddress, PcieLink};

/// Vendor id of NVIDIA.
pub const NVIDIA: u16 = 0x10de;
/// Class of a VGA controller, like all of these without the programming interface.
pub const VGA: u32 = 0x0300;
/// Class of a 3D controller.
pub const RENDERER: u32 = 0x0302;
/// Class of a PCI-to-PCI bridge, which includes the ports of Express switches and root complexes.
pub const BRIDGE: u32 = 0x0604;
/// Class of an NVSwitch: another bridge.
pub const SWITCH: u32 = 0x0680;
/// Classes of a GPU.
pub const DISPLAYS: [u32; 2] = [VGA, RENDERER];
/// Most levels of a tree of functions, of what is drawn of it, and of elements in XML: more than any machine has, and no more
/// than the stack takes.
pub const DEEPEST: usize = 64;

/// Returns true if a function of this class, with its programming interface, is NVIDIA's and in one of these classes.
pub fn is_nvidia(vendor: u16, class: u32, classes: &[u32]) -> bool {
    vendor == NVIDIA && classes.contains(&(class >> 8))
}

/// Generation and lanes. Each may be unknown independently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Shape {
    /// PCIe generation.
    pub generation: Option<Generation>,
    /// Lanes.
    pub width: Option<Lanes>,
}

impl Shape {
    /// Returns the link, if both figures are known.
    pub fn link(self) -> Option<PcieLink> {
        Some(PcieLink { generation: self.generation?, width: self.width? })
    }

    /// Returns the lower generation and the lower width: the shape that a link between two such ends trains to. Each
    /// is taken separately, because a link negotiates speed and width separately.
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
    /// Writes `Gen4 x16`, `x16` or `Gen4`; nothing if nothing is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation.map(|generation| format!("Gen{generation}"));
        let width = self.width.map(|width| format!("x{width}"));
        f.pad(&generation.into_iter().chain(width).collect::<Vec<_>>().join(" "))
    }
}

/// A way in which a link trained to less than both its ends support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Narrow {
    /// Fewer lanes.
    FewerLanes,
    /// A lower generation. Never reported at rest for the link of a GPU, which lowers it while idle.
    LowerGeneration,
}

/// A reading of a link that is not believed, and the reason. Ports save power too, and some keep showing the value
/// from rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Refuted {
    /// Shape of the link by this reading.
    pub reading: Shape,
    /// Payload rate that this shape would carry per direction. Null if its generation is not known.
    pub allows_gbps: Option<GbPerSecond>,
    /// Measurement that contradicts the reading.
    pub by: RefutedBy,
}

/// A measurement that contradicts a reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RefutedBy {
    /// The link showed more lanes while copies ran.
    UnderLoad {
        /// Number of lanes shown.
        width: Lanes,
    },
    /// Copies that pass the link were faster than the reading allows.
    Copies {
        /// Pair of the fastest of these copies.
        #[serde(flatten)]
        pair: Pair,
        /// Direct, or through host memory.
        path: Path,
        /// Rate of the copies.
        achieved_gbps: GbPerSecond,
    },
    /// Copies between the host and a GPU that pass the link were faster than the reading allows.
    HostCopies {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// Rate of the copies.
        achieved_gbps: GbPerSecond,
    },
}

impl RefutedBy {
    /// Returns the rate of the copies, if copies contradict the reading.
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
        let allows =
            self.allows_gbps.map(|rate| format!(", which carries {rate} GB/s")).unwrap_or_default();
        write!(f, "the reading {}{allows}, is not believed: ", self.reading)?;
        match self.by {
            RefutedBy::UnderLoad { width } => write!(f, "under load the link shows x{width}"),
            RefutedBy::HostCopies { gpu, achieved_gbps } => {
                write!(
                    f,
                    "copies between the host and GPU {gpu} reached {achieved_gbps} GB/s over the link"
                )
            }
            RefutedBy::Copies { pair, path, achieved_gbps } => {
                let staged = if path == Path::Staged { "staged " } else { "" };
                write!(f, "{staged}copies {pair} reached {achieved_gbps} GB/s over the link")
            }
        }
    }
}

/// One PCIe link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Connection {
    /// The port above, if it is visible.
    pub port: Option<PciAddress>,
    /// The function below.
    pub below: Option<PciAddress>,
    /// Label of the physical slot below the port, if the firmware names one.
    pub slot: Option<String>,
    /// Index of the GPU, if the function below is one.
    pub gpu: Option<u32>,
    /// GPUs whose way to the processor passes this link.
    pub gpus: Vec<u32>,
    /// Shape read while nothing ran: the lower of the values that both ends report.
    pub at_rest: Shape,
    /// Shape available to data: the lanes as trained, with the generation that counts. An idle GPU lowers its
    /// generation and raises it under load. For the link of a GPU, the generation is therefore the highest that both
    /// ends support. Other links have the generation that they show. Readings that a measurement refutes do not
    /// count.
    pub now: Shape,
    /// Shape that both ends together support.
    pub possible: Shape,
    /// Shape that the device below supports.
    pub device_possible: Shape,
    /// Shape that the port above supports.
    pub port_possible: Shape,
    /// True if the possible width was read from both ends, not from one alone.
    pub width_of_both: bool,
    /// True if the possible generation was read from both ends, not from one alone.
    pub generation_of_both: bool,
    /// Ways in which it trained to less than both ends support. Empty for a sound link.
    pub narrow: Vec<Narrow>,
    /// Disagreements between the two ends, a sentence each.
    pub notes: Vec<String>,
    /// Readings that a measurement contradicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuted: Vec<Refuted>,
    /// True if no copy passes the link, since its GPUs share the memory of the host, or have a link of another kind to
    /// it. Its readings are not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub placeholder: bool,
}

impl Connection {
    /// Returns the node at its lower end, which identifies a link of the tree.
    pub fn lower(&self) -> Option<NodeId> {
        self.gpu.map(NodeId::Gpu).or(self.below.map(NodeId::Pci))
    }

    /// Returns true if the link has fewer lanes than both its ends support.
    pub fn fewer_lanes(&self) -> bool {
        self.narrow.contains(&Narrow::FewerLanes)
    }

    /// Returns true if the link trained to a lower generation than both its ends support.
    pub fn lower_generation(&self) -> bool {
        self.narrow.contains(&Narrow::LowerGeneration)
    }
}
