//! The graph as plain data: nodes, links, and what every ordered pair of GPUs should reach.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::measurement::PeerAccess;
use super::node::NodeId;
use super::pcie::Connection;
use super::placement::{Pair, Path};
use super::units::{GbPerSecond, Lanes, PciAddress, held_as_text};

/// Nodes, links and routes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Topology {
    /// Everything that data can pass through or come from.
    pub nodes: Vec<Node>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Every ordered pair of GPUs.
    pub pairs: Vec<PairRoute>,
    /// The way of every GPU to its root.
    #[serde(default)]
    pub gpu_paths: Vec<GpuPath>,
    /// How far every network adapter is from every GPU.
    #[serde(default)]
    pub adapter_paths: Vec<AdapterPath>,
}

/// How far a network adapter is from the GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AdapterPath {
    /// The kernel's name of the adapter.
    pub adapter: String,
    /// Its PCI address.
    pub pci: PciAddress,
    /// Every GPU.
    pub gpus: Vec<GpuDistance>,
}

/// How far a GPU is from a network adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuDistance {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// In nvidia-smi's words: PIX, PXB, PHB, NODE, SYS.
    pub class: LinkClass,
}

impl Topology {
    /// The route of this ordered pair.
    pub fn route(&self, pair: Pair) -> Option<&PairRoute> {
        pair.find(&self.pairs, |route| route.pair)
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The link from this node towards the processor.
    pub fn link_above(&self, id: NodeId) -> Option<&Link> {
        self.links.iter().find(|link| {
            link.lower == id && matches!(link.kind, LinkKind::Pcie | LinkKind::RootComplex)
        })
    }

    /// This node and those between it and the memory of its NUMA node, upwards.
    pub fn way_up(&self, id: NodeId) -> Vec<NodeId> {
        let mut way = vec![id];
        let mut next = self.link_above(id);
        // A broken PCI tree may make parents loop.
        while let Some(link) = next.filter(|link| !way.contains(&link.upper)) {
            way.push(link.upper);
            next = self.link_above(link.upper);
        }
        way
    }

    /// Every PCIe link on the way of any GPU to its root, each once.
    pub fn pcie_links(&self) -> impl Iterator<Item = &Connection> {
        self.links
            .iter()
            .filter_map(|link| link.pcie.as_ref())
            .filter(|link| !link.gpus.is_empty())
    }

    /// The PCIe link of this GPU.
    pub fn pcie_link_of(&self, gpu: u32) -> Option<&Connection> {
        self.link_above(NodeId::Gpu(gpu))?.pcie.as_ref()
    }

    /// The lanes of this GPU's link, where a reading of it was refuted: what was read is not what it has.
    pub fn believed_lanes(&self, gpu: u32) -> Option<Lanes> {
        self.pcie_link_of(gpu)
            .filter(|link| !link.refuted.is_empty())?
            .now
            .width
    }

    /// The way of this GPU to its root, the host bridge first; see [`GpuPath::nodes`].
    pub fn gpu_path(&self, gpu: u32) -> &[NodeId] {
        self.gpu_paths
            .iter()
            .find(|path| path.gpu == gpu)
            .map_or(&[], |path| &path.nodes)
    }
}

/// The way of a GPU to its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuPath {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Ids of the nodes on the way, the host bridge first, the GPU itself last. Empty where the address of
    /// the GPU is not known or not in the PCI tree.
    pub nodes: Vec<NodeId>,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Node {
    /// Unique and stable: `gpu0`, `0000:3b:00.0`, `pci0000:00`, `numa0`, `nvswitch`.
    pub id: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// Name for people.
    pub label: String,
    /// PCI address, where it has one.
    pub pci: Option<PciAddress>,
    /// Label of the physical slot, where the firmware names one.
    #[serde(default)]
    pub slot: Option<String>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Link {
    /// Id of the node nearer to the processor (or of the lower GPU).
    pub upper: NodeId,
    /// Id of the other node.
    pub lower: NodeId,
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
    /// What is known of a PCIe link. Null for other links and inside a switch.
    #[serde(default)]
    pub pcie: Option<Connection>,
}

/// What a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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

held_as_text!(LinkClass);

/// One hop of a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Hop {
    /// Id of the node it leaves.
    pub from: NodeId,
    /// Id of the node it reaches.
    pub to: NodeId,
    /// What the link is, for people.
    pub label: String,
    /// Payload rate per direction as it is. Null where it is not known.
    pub capacity_gbps: Option<GbPerSecond>,
}

/// What an ordered pair of GPUs has between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
    #[serde(default)]
    pub staged_theoretical_gbps: Option<GbPerSecond>,
    /// NVML's and CUDA's word on peer access.
    pub peer_access: PeerAccess,
}

impl PairRoute {
    /// Payload rate of the narrowest hop of this path.
    pub const fn theoretical(&self, path: Path) -> Option<GbPerSecond> {
        match path {
            Path::Direct => self.theoretical_gbps,
            Path::Staged => self.staged_theoretical_gbps,
        }
    }
}
