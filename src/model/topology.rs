//! The graph as plain data: nodes, links, and what every ordered pair of GPUs should reach.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::measurement::PeerAccess;
use super::placement::Pair;
use super::units::{GbPerSecond, PciAddress};

/// Nodes, links and routes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Topology {
    /// Everything that data can pass through or come from.
    pub nodes: Vec<Node>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Every ordered pair of GPUs.
    pub pairs: Vec<PairRoute>,
}

impl Topology {
    /// The route of this ordered pair.
    pub fn route(&self, pair: Pair) -> Option<&PairRoute> {
        // They stand in order, but for files that somebody else has written.
        let found = self.pairs.binary_search_by_key(&pair, |route| route.pair).ok();
        let found = found.and_then(|place| self.pairs.get(place));
        found.or_else(|| self.pairs.iter().find(|route| route.pair == pair))
    }
}

/// A node of the graph. Its `id` is unique and stable: `gpu0`, `0000:3b:00.0`, `pci0000:00`,
/// `numa0`, `nvswitch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// Unique name.
    pub id: String,
    /// What it is.
    pub kind: NodeKind,
    /// Name for people.
    pub label: String,
    /// PCI address, where it has one.
    pub pci: Option<PciAddress>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A NUMA node: processors and memory.
    NumaNode,
    /// A host bridge.
    HostBridge,
    /// A root port.
    RootPort,
    /// A port of a PCIe switch.
    SwitchPort,
    /// Another bridge.
    Bridge,
    /// A GPU.
    Gpu,
    /// All NVSwitches together, as one plane.
    NvSwitchPlane,
    /// A network adapter.
    Adapter,
}

/// A link between two nodes, with its capacity per direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Link {
    /// Id of the node nearer to the processor (or of the lower GPU).
    pub upper: String,
    /// Id of the other node.
    pub lower: String,
    /// What the link is.
    pub kind: LinkKind,
    /// For people: `Gen4 x16`, `18 x NVLink 4.0`.
    pub label: String,
    /// Payload rate per direction as it is. Null where it is not known.
    pub capacity_gbps: Option<GbPerSecond>,
    /// Payload rate per direction that both ends could do.
    pub possible_gbps: Option<GbPerSecond>,
    /// Where the figures come from.
    pub origin: String,
}

/// What a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// PCI Express.
    Pcie,
    /// NVLink.
    NvLink,
    /// Within the processor: host bridge to NUMA node. Capacity not known.
    RootComplex,
    /// Between NUMA nodes. Capacity not known.
    Interconnect,
}

/// What an ordered pair of GPUs is joined by, in nvidia-smi's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkClass {
    /// `NV#`: this many NVLinks.
    NvLink(u8),
    /// `PIX`: at most one PCIe bridge.
    Pix,
    /// `PXB`: several PCIe bridges, no host bridge.
    Pxb,
    /// `PHB`: a host bridge.
    Phb,
    /// `NODE`: several host bridges of one NUMA node.
    Node,
    /// `SYS`: the link between NUMA nodes.
    Sys,
    /// `?`: not known.
    Unknown,
}

impl fmt::Display for LinkClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink(links) => f.pad(&format!("NV{links}")),
            Self::Pix => f.pad("PIX"),
            Self::Pxb => f.pad("PXB"),
            Self::Phb => f.pad("PHB"),
            Self::Node => f.pad("NODE"),
            Self::Sys => f.pad("SYS"),
            Self::Unknown => f.pad("?"),
        }
    }
}

impl std::str::FromStr for LinkClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "PIX" => Self::Pix,
            "PXB" => Self::Pxb,
            "PHB" => Self::Phb,
            "NODE" => Self::Node,
            "SYS" => Self::Sys,
            "?" => Self::Unknown,
            _ => {
                let links = text.strip_prefix("NV").and_then(|links| links.parse().ok());
                Self::NvLink(links.ok_or_else(|| format!("'{text}' is not a link class"))?)
            }
        })
    }
}

impl Serialize for LinkClass {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkClass {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One hop of a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hop {
    /// Id of the node it leaves.
    pub from: String,
    /// Id of the node it reaches.
    pub to: String,
    /// What the link is, for people.
    pub label: String,
    /// Payload rate per direction as it is. Null where it is not known.
    pub capacity_gbps: Option<GbPerSecond>,
}

/// What an ordered pair of GPUs has between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PairRoute {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// In nvidia-smi's words.
    pub class: LinkClass,
    /// The hops of the direct route.
    pub hops: Vec<Hop>,
    /// Payload rate of the narrowest hop of the direct route. Null where no hop's rate is known.
    pub theoretical_gbps: Option<GbPerSecond>,
    /// Where that figure comes from.
    pub theoretical_source: String,
    /// The narrowest hop, for people: `GPU 3's slot 0000:3b:00.0 (Gen4 x4)`.
    pub bottleneck: Option<String>,
    /// Payload rate of the narrowest PCIe hop of the route through host memory, which staged
    /// copies take. Null where not known.
    pub staged_theoretical_gbps: Option<GbPerSecond>,
    /// NVML's and CUDA's word on peer access.
    pub peer_access: PeerAccess,
}
