//! The graph as plain data: nodes, links, and the rate that every ordered pair of GPUs should reach.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::measurement::PeerAccess;
use super::node::NodeId;
use super::pcie::Connection;
use super::placement::{Pair, Path};
use super::units::{GbPerSecond, PciAddress, held_as_text};

/// Nodes, links and routes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Topology {
    /// Everything that data can come from or pass through.
    pub nodes: Vec<Node>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Every ordered pair of GPUs.
    pub pairs: Vec<PairRoute>,
    /// Path of every GPU to its root.
    #[serde(default)]
    pub gpu_paths: Vec<GpuPath>,
    /// Distance of every network adapter from every GPU.
    #[serde(default)]
    pub adapter_paths: Vec<AdapterPath>,
}

/// The distance of a network adapter from the GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AdapterPath {
    /// The kernel's name of the adapter.
    pub adapter: String,
    /// Its PCI address.
    pub pci: PciAddress,
    /// Distance to every GPU.
    pub gpus: Vec<GpuDistance>,
}

/// The distance of a GPU from a network adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuDistance {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Distance in nvidia-smi's words: PIX, PXB, PHB, NODE, SYS.
    pub class: LinkClass,
}

impl Topology {
    /// Returns the route of this ordered pair.
    pub fn route(&self, pair: Pair) -> Option<&PairRoute> {
        pair.find(&self.pairs, |route| route.pair)
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Returns the link from this node towards the processor.
    pub fn link_above(&self, id: NodeId) -> Option<&Link> {
        self.links.iter().find(|link| {
            link.lower == id && matches!(link.kind, LinkKind::Pcie | LinkKind::RootComplex)
        })
    }

    /// Returns this node and those between it and the memory of its NUMA node, upwards.
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

    /// Returns every PCIe link on the path of any GPU to its root, each once, without those that no copy passes.
    pub fn pcie_links(&self) -> impl Iterator<Item = &Connection> {
        self.links
            .iter()
            .filter_map(|link| link.pcie.as_ref())
            .filter(|link| !link.gpus.is_empty() && !link.placeholder)
    }

    /// Returns the PCIe link of this GPU, if copies pass it.
    pub fn pcie_link_of(&self, gpu: u32) -> Option<&Connection> {
        let link = self.link_above(NodeId::Gpu(gpu))?.pcie.as_ref();
        link.filter(|link| !link.placeholder)
    }

    /// Returns the payload rate of all active NVLinks of this GPU together, per direction; none if it has none, or if the rate
    /// of one is not known.
    pub fn nvlink_gbps(&self, gpu: u32) -> Option<GbPerSecond> {
        let id = NodeId::Gpu(gpu);
        let own = self.links.iter().filter(|link| link.kind == LinkKind::NvLink);
        let mut own = own.filter(|link| link.upper == id || link.lower == id).peekable();
        own.peek()?;
        own.map(|link| Some(link.capacity_gbps?.0)).sum::<Option<f64>>().map(GbPerSecond)
    }

    /// Returns the path of this GPU to its root, the host bridge first; see [`GpuPath::nodes`].
    pub fn gpu_path(&self, gpu: u32) -> &[NodeId] {
        self.gpu_paths.iter().find(|path| path.gpu == gpu).map_or(&[], |path| &path.nodes)
    }
}

/// The path of a GPU to its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuPath {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Ids of the nodes on the path, the host bridge first, the GPU itself last. Empty if the address of the GPU is
    /// not known or not in the PCI tree.
    pub nodes: Vec<NodeId>,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Node {
    /// Unique and stable: `gpu0`, `0000:3b:00.0`, `pci0000:00`, `numa0`, `nvswitch`.
    pub id: NodeId,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Name for people.
    pub label: String,
    /// PCI address, if it has one.
    pub pci: Option<PciAddress>,
    /// Label of the physical slot, if the firmware names one.
    #[serde(default)]
    pub slot: Option<String>,
}

/// The kind of a node.
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
    /// Id of the node nearer to the processor, or of the lower GPU.
    pub upper: NodeId,
    /// Id of the other node.
    pub lower: NodeId,
    /// Kind of the link.
    pub kind: LinkKind,
    /// For people: `Gen4 x16`, `18 x NVLink 4.0`.
    pub label: String,
    /// Current payload rate per direction. Null if not known.
    pub capacity_gbps: Option<GbPerSecond>,
    /// Payload rate per direction that both ends support.
    pub possible_gbps: Option<GbPerSecond>,
    /// Source of the figures.
    pub origin: String,
    /// Facts of a PCIe link. Null for other links and inside a switch.
    #[serde(default)]
    pub pcie: Option<Connection>,
}

/// The kind of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// PCI Express.
    Pcie,
    /// NVLink.
    NvLink,
    /// Within the processor: host bridge to NUMA node. Its capacity is not known.
    RootComplex,
    /// Between NUMA nodes. Its capacity is not known.
    Interconnect,
}

/// The connection between an ordered pair of GPUs, in nvidia-smi's words.
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

impl LinkClass {
    /// Returns true if both ends are below one PCIe switch: no host bridge is between them.
    pub const fn is_below_a_switch(self) -> bool {
        matches!(self, Self::Pix | Self::Pxb)
    }

    /// Returns true if stores of 128 bytes arrive whole on such a route: over NVLink, and, as NCCL takes it on Hopper and
    /// later, below one PCIe switch.
    pub const fn keeps_lines(self) -> bool {
        matches!(self, Self::NvLink(_) | Self::Pix)
    }
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
    /// Description of the link, for people.
    pub label: String,
    /// Current payload rate per direction. Null if not known.
    pub capacity_gbps: Option<GbPerSecond>,
}

/// The connection between an ordered pair of GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PairRoute {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Class of the connection, in nvidia-smi's words.
    pub class: LinkClass,
    /// The hops of the direct route.
    pub hops: Vec<Hop>,
    /// Payload rate of the narrowest hop of the direct route. Null if no hop's rate is known.
    pub theoretical_gbps: Option<GbPerSecond>,
    /// Source of `theoretical_gbps`.
    pub theoretical_source: String,
    /// The narrowest hop, for people: `GPU 3's slot 0000:3b:00.0 (Gen4 x4)`.
    pub bottleneck: Option<String>,
    /// Payload rate of the narrowest PCIe hop of the route through host memory, which staged copies use. Null if not
    /// known.
    #[serde(default)]
    pub staged_theoretical_gbps: Option<GbPerSecond>,
    /// Peer access as NVML and CUDA report it.
    pub peer_access: PeerAccess,
}

impl PairRoute {
    /// Returns the payload rate of the narrowest hop of this path.
    pub const fn theoretical(&self, path: Path) -> Option<GbPerSecond> {
        match path {
            Path::Direct => self.theoretical_gbps,
            Path::Staged => self.staged_theoretical_gbps,
        }
    }
}
