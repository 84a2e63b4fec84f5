//! Where bytes are copied from and to, and how: the unit of work of every probe.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::placement::{Direction, Engine, Pair, Path, Placement, Side};
use super::units::Bytes;

words! {
    /// The way in which host memory was allocated.
    HostMemory {
        /// Allocated by the driver, page-locked.
        Pinned = "pinned",
        /// Allocated by the process as any other memory. The driver copies through a buffer of its own.
        Pageable = "pageable",
        /// Allocated by the process and page-locked afterwards.
        Registered = "registered",
    }
}

words! {
    /// The origin of the buffers of a copy with the host.
    Allocation {
        /// A buffer that existed before the copies and is used by all of them.
        Reused = "re-used",
        /// A buffer that is allocated and page-locked for each copy and freed after it. The figure includes that time, and not
        /// that of filling the buffer.
        Anew = "anew",
        /// The same, and one thread fills the buffer from pageable memory in the time of the figure: `x.pin_memory().to()`.
        AnewFilled = "anew, filled first",
        /// A buffer that is used by all copies. One thread fills it from pageable memory before each: `pinned.copy_(x)`.
        Filled = "filled first",
        /// The same in two halves: the second one is filled while the first one is copied to the GPU.
        FilledInHalves = "filled first in halves",
        /// A buffer that is used by all copies, into memory of the GPU that is allocated for each in the time of the figure.
        IntoNew = "into new GPU memory",
    }
}

words! {
    /// The arrangement that the flows of a load have in common.
    Pattern {
        /// Two flows of different GPUs that pass the same hop of the graph.
        ThroughOneHop = "through one hop",
        /// One GPU to all others.
        OneToAll = "one to all",
        /// All others to one GPU.
        AllToOne = "all to one",
        /// Every GPU to the next one, the last to the first.
        Ring = "ring",
        /// The same, copied by kernels instead of copy engines.
        RingByKernels = "ring by kernels",
        /// Every GPU to the one a fixed number of places further: a permutation.
        Shift = "shift",
        /// The memory of the host to all GPUs.
        HostToAll = "host to all",
        /// All GPUs to the memory of the host.
        AllToHost = "all to host",
        /// Flows that tell explanations of other figures apart (`second_looks`).
        SecondLook = "second look",
    }
}

impl Pattern {
    /// Returns what moves the bytes of its flows.
    pub const fn engine(self) -> Engine {
        match self {
            Self::RingByKernels => Engine::Kernel,
            Self::ThroughOneHop
            | Self::OneToAll
            | Self::AllToOne
            | Self::Ring
            | Self::Shift
            | Self::HostToAll
            | Self::AllToHost
            | Self::SecondLook => Engine::Copy,
        }
    }
}

/// The source or destination of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// The memory of a GPU, by NVML's index.
    Gpu(u32),
    /// Memory of the host.
    Host {
        /// Its NUMA node; `None` if not known.
        node: Option<u32>,
        /// The way in which it was allocated.
        memory: HostMemory,
    },
}

impl Endpoint {
    /// Returns the GPU, if the endpoint is one.
    pub const fn gpu(self) -> Option<u32> {
        match self {
            Self::Gpu(index) => Some(index),
            Self::Host { .. } => None,
        }
    }

    /// Returns the NUMA node, if the endpoint is host memory. The inner `None` means that the node is not known.
    pub const fn node(self) -> Option<Option<u32>> {
        match self {
            Self::Gpu(_) => None,
            Self::Host { node, .. } => Some(node),
        }
    }

    /// Returns the place that a copy with this end depends on, regardless of the allocation.
    pub const fn place(self) -> Place {
        match self {
            Self::Gpu(index) => Place::Gpu(index),
            Self::Host { node, .. } => Place::Host(node),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Gpu(_) => self.place().to_string(),
            Self::Host { memory, .. } => format!("{memory} {}", self.place()),
        })
    }
}

/// A part of the machine where copies begin or end. A place that hangs is not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A GPU, by NVML's index.
    Gpu(u32),
    /// The memory of a NUMA node.
    Host(Option<u32>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Gpu(index) => format!("GPU {index}"),
            Self::Host(Some(node)) => format!("host memory of NUMA node {node}"),
            Self::Host(None) => "host memory".to_owned(),
        })
    }
}

/// A copy of bytes from one endpoint to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Flow {
    /// Source of the bytes.
    pub from: Endpoint,
    /// Destination of the bytes.
    pub to: Endpoint,
}

impl Flow {
    /// The flow of bytes that stay within a GPU.
    pub const fn inside(gpu: u32) -> Self {
        Self { from: Endpoint::Gpu(gpu), to: Endpoint::Gpu(gpu) }
    }

    /// The flow from memory of the host to a GPU.
    pub const fn from_host(node: Option<u32>, memory: HostMemory, gpu: u32) -> Self {
        Self { from: Endpoint::Host { node, memory }, to: Endpoint::Gpu(gpu) }
    }

    /// Returns the flow in the other direction.
    pub const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// Returns the pair of GPUs, if the ends are two GPUs.
    pub fn pair(self) -> Option<Pair> {
        let pair = Pair { source: self.from.gpu()?, destination: self.to.gpu()? };
        (pair.source != pair.destination).then_some(pair)
    }

    /// Returns the GPU, if the bytes stay within it.
    pub fn within(self) -> Option<u32> {
        self.from.gpu().filter(|gpu| self.to.gpu() == Some(*gpu))
    }

    /// Returns the GPU, if the other end is the host.
    pub fn with_host(self) -> Option<u32> {
        self.from.gpu().xor(self.to.gpu())
    }

    /// Returns both ends.
    pub const fn ends(self) -> [Endpoint; 2] {
        [self.from, self.to]
    }

    /// Returns the GPUs at its ends, the source first; twice the same if the bytes stay within it.
    pub fn gpus(self) -> impl Iterator<Item = u32> + Clone {
        self.ends().into_iter().filter_map(Endpoint::gpu)
    }
}

impl From<Pair> for Flow {
    fn from(pair: Pair) -> Self {
        Self { from: Endpoint::Gpu(pair.source), to: Endpoint::Gpu(pair.destination) }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            f.pad(&format!("within {}", self.from))
        } else {
            f.pad(&format!("{} → {}", self.from, self.to))
        }
    }
}

/// Everything about a copy except its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Setup {
    /// Streams of the copy, and the host mode.
    pub placement: Placement,
    /// The device on whose stream the copy was enqueued.
    pub issuer: Side,
    /// The engine that moves the bytes.
    pub engine: Engine,
    /// One way, or with the opposite direction busy too.
    pub direction: Direction,
    /// Direct, or through host memory.
    pub path: Path,
    /// Size of one copy.
    pub bytes: Bytes,
}

impl Setup {
    /// The setup by which pairs are judged, regardless of size: copy engine, issued by the source, one way, direct,
    /// reference placement.
    pub const REFERENCE: Self = Self {
        placement: Placement::REFERENCE,
        issuer: Side::Source,
        engine: Engine::Copy,
        direction: Direction::OneWay,
        path: Path::Direct,
        bytes: Bytes(0),
    };

    /// Returns the setup without its size: the key of figures that are compared with each other.
    #[must_use]
    pub const fn of_any_size(self) -> Self {
        self.with_bytes(Bytes(0))
    }

    /// Returns true for a direct one-way copy by copy engine.
    pub fn is_plain(self) -> bool {
        (self.engine, self.path, self.direction) == (Engine::Copy, Path::Direct, Direction::OneWay)
    }

    /// Returns the setup with another size.
    #[must_use]
    pub const fn with_bytes(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the setup on another path.
    #[must_use]
    pub const fn with_path(self, path: Path) -> Self {
        Self { path, ..self }
    }

    /// Returns the setup in another placement.
    #[must_use]
    pub const fn with_placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// Returns the setup with another engine.
    #[must_use]
    pub const fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// Returns the setup issued by the other side.
    #[must_use]
    pub const fn with_issuer(self, issuer: Side) -> Self {
        Self { issuer, ..self }
    }

    /// Returns the setup one way or both ways.
    #[must_use]
    pub const fn with_direction(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// Describes engine and issuer by what they do.
    const fn mover(self) -> &'static str {
        match (self.engine, self.issuer) {
            (Engine::Copy, Side::Source) => "copy engine, issued by source",
            (Engine::Copy, Side::Destination) => "copy engine, issued by destination",
            (Engine::Kernel, Side::Source) => "kernel on source (writes)",
            (Engine::Kernel, Side::Destination) => "kernel on destination (reads)",
        }
    }

    /// Describes the differences from [`Self::REFERENCE`], except the size. Empty if there are none.
    pub fn difference(self) -> String {
        let reference = Self::REFERENCE;
        let mover = (self.engine, self.issuer) != (reference.engine, reference.issuer);
        let parts = [
            mover.then(|| self.mover().to_owned()),
            (self.direction != reference.direction).then(|| self.direction.to_string()),
            (self.path != reference.path).then(|| self.path.to_string()),
            (self.placement != reference.placement).then(|| self.placement.to_string()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}, {}", self.mover(), self.direction, self.path, self.placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_gpus_is_a_flow_and_a_host_copy_is_no_pair() {
        let pair = Pair { source: 3, destination: 11 };
        assert_eq!(Flow::from(pair).pair(), Some(pair));
        assert_eq!(Flow::from(pair).to_string(), pair.to_string());
        assert_eq!(Flow::from(pair).reversed().pair(), Some(pair.reversed()));
        let host = Endpoint::Host { node: Some(1), memory: HostMemory::Pinned };
        let up = Flow { from: host, to: Endpoint::Gpu(3) };
        assert_eq!(
            (up.pair(), up.to_string().as_str()),
            (None, "pinned host memory of NUMA node 1 → GPU 3")
        );
        assert_eq!(
            host.place(),
            Endpoint::Host { node: Some(1), memory: HostMemory::Pageable }.place()
        );
    }

    #[test]
    fn a_copy_within_a_gpu_is_no_pair() {
        let within = Flow { from: Endpoint::Gpu(3), to: Endpoint::Gpu(3) };
        assert_eq!(
            (within.pair(), within.within(), within.to_string().as_str()),
            (None, Some(3), "within GPU 3")
        );
        assert_eq!(Flow::from(Pair { source: 3, destination: 4 }).within(), None);
    }

    #[test]
    fn a_setup_says_in_what_it_differs() {
        assert_eq!(Setup::REFERENCE.with_bytes(Bytes(7)).difference(), "");
        let kernel = Setup::REFERENCE.with_engine(Engine::Kernel).with_issuer(Side::Destination);
        assert_eq!(
            kernel.with_path(Path::Staged).difference(),
            "kernel on destination (reads), staged"
        );
        assert_eq!(kernel.with_bytes(Bytes(1)).of_any_size(), kernel);
    }
}
