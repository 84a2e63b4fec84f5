//! The resources that flows pass: parts of the machine, each direction by itself.

use std::collections::BTreeMap;
use std::fmt;

use model::node::NodeId;
use model::topology::LinkClass;

/// A kind of copy whose figures are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Direct copies over NVLink.
    NvLink,
    /// Direct copies over PCIe, by the distance of the two GPUs.
    Pcie(LinkClass),
    /// Copies of two GPUs through host memory.
    Staged,
    /// Copies between a GPU and host memory.
    Host,
    /// Copies within a GPU.
    Local,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink => f.pad("NVLink"),
            Self::Pcie(class) => write!(f, "PCIe {class}"),
            Self::Staged => f.pad("staged"),
            Self::Host => f.pad("host"),
            Self::Local => f.pad("local"),
        }
    }
}

/// A part of the machine that a flow passes. Some parts are links of the graph. The others stand for whatever the
/// copies of one GPU, pair or class have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A link of the PCI tree, by its lower end. A host bridge stands for the root complex above it.
    Link(NodeId),
    /// The NVLinks between two GPUs, the lower index first.
    NvPair(u32, u32),
    /// The NVLinks of a GPU to the NVSwitches.
    NvPort(u32),
    /// The way between the memories of two NUMA nodes, the lower id first.
    Interconnect(NodeId, NodeId),
    /// The memory of a NUMA node.
    Memory(Option<u32>),
    /// A GPU in its copies with others: its copy engines, its memory.
    Gpu(u32),
    /// A GPU in its copies with the host.
    Host(u32),
    /// A GPU in copies within it.
    Local(u32),
    /// A GPU in staged copies.
    Stage(u32),
    /// The direct copies of two GPUs, the lower index first.
    Pair(u32, u32),
    /// The staged copies of two GPUs, the lower index first.
    StagedPair(u32, u32),
    /// The way of a GPU out of what the PCI tree shows. Several GPUs may share a hop there that no file shows.
    Exit(u32),
    /// Every copy of a class.
    Class(Class),
    /// Every copy of the machine.
    Machine,
}

impl Part {
    /// Returns true for a part whose capacity several flows share.
    pub(crate) const fn is_physical(self) -> bool {
        matches!(
            self,
            Self::Link(_)
                | Self::NvPair(..)
                | Self::NvPort(_)
                | Self::Interconnect(..)
                | Self::Memory(_)
        )
    }

    /// Returns true for a part that all GPUs of a processor share by design.
    pub(crate) const fn is_of_processor(self) -> bool {
        matches!(
            self,
            Self::Link(NodeId::HostBridge(..) | NodeId::HiddenRoot)
                | Self::Interconnect(..)
                | Self::Memory(_)
        )
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(node @ (NodeId::HostBridge(..) | NodeId::HiddenRoot)) => {
                write!(f, "root complex of {node}")
            }
            Self::Link(node) => write!(f, "PCIe link of {node}"),
            Self::NvPair(one, other) => write!(f, "NVLinks between GPU {one} and GPU {other}"),
            Self::NvPort(gpu) => write!(f, "NVLinks of GPU {gpu}"),
            Self::Interconnect(one, other) => write!(f, "way between {one} and {other}"),
            Self::Memory(Some(node)) => write!(f, "memory of NUMA node {node}"),
            Self::Memory(None) => f.pad("host memory"),
            Self::Gpu(gpu) => write!(f, "GPU {gpu}"),
            Self::Host(gpu) => write!(f, "GPU {gpu} with the host"),
            Self::Local(gpu) => write!(f, "memory of GPU {gpu}"),
            Self::Stage(gpu) => write!(f, "GPU {gpu} in staged copies"),
            Self::Pair(one, other) => write!(f, "pair {one}-{other}"),
            Self::StagedPair(one, other) => write!(f, "pair {one}-{other} in staged copies"),
            Self::Exit(gpu) => write!(f, "hop above GPU {gpu} that no file shows"),
            Self::Class(class) => write!(f, "all {class} copies"),
            Self::Machine => f.pad("all copies"),
        }
    }
}

/// A direction of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Out of the GPU, into host memory, or from the lower index or id to the higher.
    Up,
    /// The other way.
    Down,
    /// Both at once: what a part loses only while both directions are busy.
    Both,
}

impl Way {
    /// Returns [`Self::Up`] if this holds, [`Self::Down`] otherwise.
    pub(crate) const fn up_if(up: bool) -> Self {
        if up { Self::Up } else { Self::Down }
    }
}

/// One direction of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub part: Part,
    pub way: Way,
}

impl Resource {
    pub(crate) const fn new(part: Part, way: Way) -> Self {
        Self { part, way }
    }
}

/// The number of a resource in [`Resources`].
pub(crate) type Number = usize;

/// Every resource that a flow passes, numbered in the order of its first appearance.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    all: Vec<Resource>,
    numbers: BTreeMap<Resource, Number>,
}

impl Resources {
    /// Returns the number of a resource, a new one if it has none yet.
    pub(crate) fn number(&mut self, resource: Resource) -> Number {
        let next = self.all.len();
        let number = *self.numbers.entry(resource).or_insert(next);
        if number == next {
            self.all.push(resource);
        }
        number
    }

    /// Returns the number of a resource that some flow passes.
    pub(crate) fn known(&self, part: Part, way: Way) -> Option<Number> {
        self.numbers.get(&Resource::new(part, way)).copied()
    }

    pub(crate) fn get(&self, number: Number) -> Option<Resource> {
        self.all.get(number).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns all resources with their numbers, in the order of parts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Resource, Number)> {
        self.numbers.iter().map(|(resource, number)| (*resource, *number))
    }
}
