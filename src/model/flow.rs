//! What is copied from where to where, and how: the unit of work of every probe.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::placement::{Direction, Engine, Pair, Path, Placement, Side};
use super::units::Bytes;

/// How host memory was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostMemory {
    /// Allocated by the driver, page-locked.
    Pinned,
    /// Allocated by the process as any other memory: the driver copies through a buffer of its own.
    Pageable,
    /// Allocated by the process and page-locked afterwards.
    Registered,
}

impl fmt::Display for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Registered => "registered",
        })
    }
}

/// Where bytes come from or go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// The memory of a GPU, by NVML's index.
    Gpu(u32),
    /// Memory of the host.
    Host {
        /// Its NUMA node; none where that is not known.
        node: Option<u32>,
        /// How it was allocated.
        memory: HostMemory,
    },
}

impl Endpoint {
    /// The GPU, where it is one.
    pub const fn gpu(self) -> Option<u32> {
        match self {
            Self::Gpu(index) => Some(index),
            Self::Host { .. } => None,
        }
    }

    /// The NUMA node, where it is memory of the host; none within where that is not known.
    pub const fn node(self) -> Option<Option<u32>> {
        match self {
            Self::Gpu(_) => None,
            Self::Host { node, .. } => Some(node),
        }
    }

    /// What a copy with this end depends on, however the memory was allocated.
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

/// A part of the machine that copies begin or end in. One that hangs is left alone.
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

/// Bytes from one endpoint to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Flow {
    /// Where they come from.
    pub from: Endpoint,
    /// Where they go to.
    pub to: Endpoint,
}

impl Flow {
    /// The same in the other direction.
    pub const fn reversed(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }

    /// The pair of GPUs, where the ends are two GPUs.
    pub fn pair(self) -> Option<Pair> {
        let pair = Pair {
            source: self.from.gpu()?,
            destination: self.to.gpu()?,
        };
        (pair.source != pair.destination).then_some(pair)
    }

    /// The GPU, where the bytes stay within it.
    pub fn within(self) -> Option<u32> {
        self.from.gpu().filter(|gpu| self.to.gpu() == Some(*gpu))
    }

    /// The GPU, where the other end is the host.
    pub fn with_host(self) -> Option<u32> {
        self.from.gpu().xor(self.to.gpu())
    }

    /// Both ends.
    pub const fn ends(self) -> [Endpoint; 2] {
        [self.from, self.to]
    }
}

impl From<Pair> for Flow {
    fn from(pair: Pair) -> Self {
        Self {
            from: Endpoint::Gpu(pair.source),
            to: Endpoint::Gpu(pair.destination),
        }
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

/// How bytes are copied: everything but the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Setup {
    /// Streams and host.
    pub placement: Placement,
    /// The device on whose stream the copy was enqueued.
    pub issuer: Side,
    /// What moved the bytes.
    pub engine: Engine,
    /// Whether the opposite direction was busy too.
    pub direction: Direction,
    /// Direct or through host memory.
    pub path: Path,
    /// Size of one copy.
    pub bytes: Bytes,
}

impl Setup {
    /// How pairs are judged, whatever the size: copy engine, issued by the source, one way, direct,
    /// reference placement.
    pub const REFERENCE: Self = Self {
        placement: Placement::REFERENCE,
        issuer: Side::Source,
        engine: Engine::Copy,
        direction: Direction::OneWay,
        path: Path::Direct,
        bytes: Bytes(0),
    };

    /// The same whatever the size: the key of figures that are compared with each other.
    #[must_use]
    pub const fn of_any_size(self) -> Self {
        self.with_bytes(Bytes(0))
    }

    /// Whether it is a direct copy by copy engine one way.
    pub fn is_plain(self) -> bool {
        (self.engine, self.path, self.direction) == (Engine::Copy, Path::Direct, Direction::OneWay)
    }

    /// The same with another size.
    #[must_use]
    pub const fn with_bytes(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }

    /// The same on another path.
    #[must_use]
    pub const fn with_path(self, path: Path) -> Self {
        Self { path, ..self }
    }

    /// The same in another placement.
    #[must_use]
    pub const fn with_placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// The same with another engine.
    #[must_use]
    pub const fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The same issued by the other side.
    #[must_use]
    pub const fn with_issuer(self, issuer: Side) -> Self {
        Self { issuer, ..self }
    }

    /// The same one way or both ways.
    #[must_use]
    pub const fn with_direction(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// Engine and issuer in words that say what they do.
    const fn mover(self) -> &'static str {
        match (self.engine, self.issuer) {
            (Engine::Copy, Side::Source) => "copy engine, issued by source",
            (Engine::Copy, Side::Destination) => "copy engine, issued by destination",
            (Engine::Kernel, Side::Source) => "kernel on source (writes)",
            (Engine::Kernel, Side::Destination) => "kernel on destination (reads)",
        }
    }

    /// In what it differs from [`Self::REFERENCE`], the size aside; empty where in nothing.
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
        write!(
            f,
            "{}, {}, {}, {}",
            self.mover(),
            self.direction,
            self.path,
            self.placement
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_gpus_is_a_flow_and_a_host_copy_is_no_pair() {
        let pair = Pair {
            source: 3,
            destination: 11,
        };
        assert_eq!(Flow::from(pair).pair(), Some(pair));
        assert_eq!(Flow::from(pair).to_string(), pair.to_string());
        assert_eq!(Flow::from(pair).reversed().pair(), Some(pair.reversed()));
        let host = Endpoint::Host {
            node: Some(1),
            memory: HostMemory::Pinned,
        };
        let up = Flow {
            from: host,
            to: Endpoint::Gpu(3),
        };
        assert_eq!(
            (up.pair(), up.to_string().as_str()),
            (None, "pinned host memory of NUMA node 1 → GPU 3")
        );
        assert_eq!(
            host.place(),
            Endpoint::Host {
                node: Some(1),
                memory: HostMemory::Pageable
            }
            .place()
        );
    }

    #[test]
    fn a_copy_within_a_gpu_is_no_pair() {
        let within = Flow {
            from: Endpoint::Gpu(3),
            to: Endpoint::Gpu(3),
        };
        assert_eq!(
            (within.pair(), within.within(), within.to_string().as_str()),
            (None, Some(3), "within GPU 3")
        );
        assert_eq!(
            Flow::from(Pair {
                source: 3,
                destination: 4
            })
            .within(),
            None
        );
    }

    #[test]
    fn a_setup_says_in_what_it_differs() {
        assert_eq!(Setup::REFERENCE.with_bytes(Bytes(7)).difference(), "");
        let kernel = Setup::REFERENCE
            .with_engine(Engine::Kernel)
            .with_issuer(Side::Destination);
        assert_eq!(
            kernel.with_path(Path::Staged).difference(),
            "kernel on destination (reads), staged"
        );
        assert_eq!(kernel.with_bytes(Bytes(1)).of_any_size(), kernel);
    }
}
