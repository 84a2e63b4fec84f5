//! Kinds of measurements, and a figure of a kind.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use model::host::HostWay;
use model::live::{Chased, Phase};
use model::placement::{Direction, Engine, Path, Side};
use model::topology::LinkClass;

/// A kind of measurement with its setup: figures of one kind can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Metric {
    /// The probe with its setup.
    #[serde(flatten)]
    pub what: Method,
    /// The class of the link, for pairs.
    pub class: Option<LinkClass>,
    /// Size of one copy, bytes.
    pub bytes: u64,
}

/// A probe with its setup.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "probe", content = "setup", rename_all = "kebab-case")]
pub enum Method {
    /// Large copies between GPUs, in the reference placement.
    Peer {
        /// Direct or through host memory.
        path: Path,
        /// One way or both ways.
        direction: Direction,
        /// The engine that moved the bytes.
        engine: Engine,
        /// The side that issued the copy.
        issuer: Side,
    },
    /// Small copies between GPUs.
    Latency {
        /// Direct or through host memory.
        path: Path,
    },
    /// Flags between running kernels of two GPUs, there and back: pushed or pulled.
    Live {
        /// The part of the talk.
        phase: Phase,
    },
    /// Loads by one thread of a GPU.
    Chase {
        /// The memory that they read.
        memory: Chased,
    },
    /// Copies within a GPU.
    Local,
    /// Copies between host and GPU, described in words.
    Host(String),
    /// Several flows at once, all together: the pattern.
    Load(String),
    /// NVLink counts of known traffic, as a share of the traffic: the pattern and the direction.
    Counted(String),
    /// Traffic of the least used NVLink, as a share of an equal share: the pattern and the direction.
    LeastLink(String),
    /// Loads over the slowest NVLink of a pair, as a share of the median of its links.
    SlowestLink,
}

impl Method {
    /// Returns true if lower figures are better.
    pub(crate) const fn is_time(&self) -> bool {
        matches!(self, Self::Latency { .. } | Self::Live { .. } | Self::Chase { .. })
    }

    /// Returns the unit of its figures.
    pub const fn unit(&self) -> &'static str {
        match self {
            _ if self.is_time() => "us",
            Self::Counted(_) | Self::LeastLink(_) | Self::SlowestLink => "%",
            _ => "GB/s",
        }
    }

    /// Returns the name of the probe, as in a report.
    pub const fn probe(&self) -> &'static str {
        match self {
            Self::Peer { .. } => "peer",
            Self::Latency { .. } => "latency",
            Self::Live { .. } => "live",
            Self::Chase { .. } => "chase",
            Self::Local => "local",
            Self::Host(_) => "host",
            Self::Load(_) => "load",
            Self::Counted(_) | Self::LeastLink(_) => "counted",
            Self::SlowestLink => "nvlinks",
        }
    }

    /// Returns the way of copies between host and GPU, and the number of GPUs at once, from the words that `Points::host`
    /// wrote.
    pub(crate) fn host_way(&self) -> Option<(HostWay, u32)> {
        fn read<T: DeserializeOwned>(word: Option<&str>) -> Option<T> {
            serde_json::from_value(word?.into()).ok()
        }
        let Self::Host(setup) = self else {
            return None;
        };
        let mut words = setup.split(", ");
        let way = HostWay {
            memory: read(words.next())?,
            direction: read(words.next())?,
            engine: read(words.next())?,
            allocation: read(words.next())?,
        };
        let at_once = words.find_map(|word| word.strip_suffix(" at once")?.parse().ok());
        Some((way, at_once.unwrap_or(1)))
    }

    /// Returns the setup in words.
    pub fn setup(&self) -> String {
        match self {
            Self::Peer { path, direction, engine, issuer } => {
                let engine = match engine {
                    Engine::Copy => "copy engine",
                    Engine::Kernel => "kernel",
                };
                format!("{path}, {direction}, {engine}, issued by the {issuer}")
            }
            Self::Latency { path } => path.to_string(),
            Self::Live { phase } => phase.to_string(),
            Self::Chase { memory } => match memory {
                Chased::Peer => "memory of another GPU",
                Chased::Own => "own memory",
                Chased::Host => "page-locked memory",
            }
            .to_owned(),
            Self::Local => String::new(),
            Self::Host(setup) | Self::Load(setup) => setup.clone(),
            Self::Counted(setup) => format!("NVLinks of known traffic: {setup}"),
            Self::LeastLink(setup) => format!("least NVLink of an equal share: {setup}"),
            Self::SlowestLink => "loads, per cent of the pair's median".to_owned(),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class.map(|class| format!("{class} ")).unwrap_or_default();
        let what = match &self.what {
            Method::Peer { .. } => "copies",
            Method::Latency { .. } => "latency",
            Method::Live { .. } => "round trips",
            Method::Chase { .. } => "loads",
            Method::Host(_) => "host copies",
            Method::Load(_) => "several flows at once",
            Method::SlowestLink => "the slowest single NVLink",
            Method::Local => return write!(f, "copies within the GPU"),
            Method::Counted(setup) => {
                return write!(f, "counted on NVLinks of known traffic ({setup})");
            }
            Method::LeastLink(setup) => {
                return write!(f, "counted on the least NVLink of an equal share ({setup})");
            }
        };
        write!(f, "{class}{what} ({})", self.what.setup())
    }
}

/// The flows that a figure measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ends {
    /// All flows of the machine together.
    Machine,
    /// The source GPU and the destination GPU; the same GPU twice if there is only one.
    Gpus(u16, u16),
}

impl Ends {
    /// Returns the GPUs, the same twice if there is only one.
    pub const fn gpus(self) -> Option<[u16; 2]> {
        match self {
            Self::Machine => None,
            Self::Gpus(from, to) => Some([from, to]),
        }
    }
}

/// One figure, in the unit of its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Index of its kind in [`Summary::kinds`](super::Summary::kinds).
    pub kind: u16,
    /// The GPUs of the figure.
    pub ends: Ends,
    /// `None` if it was not measured, or if something spoiled it.
    pub value: Option<f32>,
    /// Share of the theoretical value, per cent, if that is known.
    pub percent: Option<f32>,
}
