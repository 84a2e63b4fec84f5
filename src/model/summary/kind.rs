//! Kinds of measurements, and the figures of a report by kind.

use std::collections::HashMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cell::Measurement;
use crate::host::{HostCopy, HostWay};
use crate::load::{Counted, LoadPattern};
use crate::measurement::{Latency, LocalCopy, Measurements, PeerBandwidth, Tables};
use crate::placement::{Direction, Engine, Pair, Path, Placement, Side};
use crate::rounding::four_places;
use crate::topology::LinkClass;
use crate::units::GbPerSecond;

/// A kind of measurement with its setup: figures of one kind can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Kind {
    /// The probe with its setup.
    #[serde(flatten)]
    pub what: What,
    /// The class of the link, for pairs.
    pub class: Option<LinkClass>,
    /// Size of one copy, bytes.
    pub bytes: u64,
}

/// A probe with its setup.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(tag = "probe", content = "setup", rename_all = "kebab-case")]
pub enum What {
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
}

impl What {
    /// Returns true if lower figures are better.
    pub const fn is_time(&self) -> bool {
        matches!(self, Self::Latency { .. })
    }

    /// Returns the unit of its figures.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Latency { .. } => "us",
            Self::Counted(_) | Self::LeastLink(_) => "%",
            _ => "GB/s",
        }
    }

    /// Returns the name of the probe, as in a report.
    pub const fn probe(&self) -> &'static str {
        match self {
            Self::Peer { .. } => "peer",
            Self::Latency { .. } => "latency",
            Self::Local => "local",
            Self::Host(_) => "host",
            Self::Load(_) => "load",
            Self::Counted(_) | Self::LeastLink(_) => "counted",
        }
    }

    /// Returns the way of copies between host and GPU, and the number of GPUs at once, from the words that `Figures::host`
    /// wrote.
    pub fn host_way(&self) -> Option<(HostWay, u32)> {
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
            Self::Peer {
                path,
                direction,
                engine,
                issuer,
            } => {
                let engine = match engine {
                    Engine::Copy => "copy engine",
                    Engine::Kernel => "kernel",
                };
                format!("{path}, {direction}, {engine}, issued by the {issuer}")
            }
            Self::Latency { path } => path.to_string(),
            Self::Local => String::new(),
            Self::Host(setup) | Self::Load(setup) => setup.clone(),
            Self::Counted(setup) => format!("NVLinks of known traffic: {setup}"),
            Self::LeastLink(setup) => format!("least NVLink of an equal share: {setup}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self
            .class
            .map(|class| format!("{class} "))
            .unwrap_or_default();
        match &self.what {
            What::Peer { .. } => write!(f, "{class}copies ({})", self.what.setup()),
            What::Latency { path } => write!(f, "{class}latency ({path})"),
            What::Local => write!(f, "copies within the GPU"),
            What::Host(setup) => write!(f, "host copies ({setup})"),
            What::Load(pattern) => write!(f, "several flows at once ({pattern})"),
            What::Counted(setup) => write!(f, "counted on NVLinks of known traffic ({setup})"),
            What::LeastLink(setup) => {
                write!(f, "counted on the least NVLink of an equal share ({setup})")
            }
        }
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "Row", from = "Row")]
pub struct Figure {
    /// Index of its kind in [`Summary::kinds`](super::Summary::kinds).
    pub kind: u16,
    /// The GPUs of the figure.
    pub ends: Ends,
    /// `None` if it was not measured, or if something spoiled it.
    pub value: Option<f32>,
    /// Share of the theoretical value, per cent, if that is known.
    pub percent: Option<f32>,
}

/// A figure as it is written: kind, source, destination (both null for the machine), value, per cent. With names for
/// these, thousands of figures would take twice the space.
pub(super) type Row = (u16, Option<u16>, Option<u16>, Option<f32>, Option<f32>);

impl From<Figure> for Row {
    fn from(figure: Figure) -> Self {
        let ends = figure.ends.gpus();
        let [from, to] = [0, 1].map(|end| ends.map(|gpus| gpus[end]));
        (figure.kind, from, to, figure.value, figure.percent)
    }
}

impl From<Row> for Figure {
    fn from((kind, from, to, value, percent): Row) -> Self {
        let value = value.filter(|value| is_figure(*value));
        Self {
            kind,
            ends: from
                .zip(to)
                .map_or(Ends::Machine, |(from, to)| Ends::Gpus(from, to)),
            value,
            percent: percent.filter(|percent| value.is_some() && is_figure(*percent)),
        }
    }
}

/// Figures under construction.
pub(super) struct Figures {
    classes: HashMap<Pair, LinkClass>,
    numa: HashMap<u32, Option<u32>>,
    /// Each kind once.
    pub(super) kinds: Vec<Kind>,
    pub(super) figures: Vec<Figure>,
}

impl Figures {
    /// Collects the figures of a report whose pairs have these classes and whose GPUs are at these NUMA nodes.
    pub(super) fn of(
        measured: Option<&Measurements>,
        classes: HashMap<Pair, LinkClass>,
        numa: HashMap<u32, Option<u32>>,
    ) -> Self {
        let mut figures = Self {
            classes,
            numa,
            kinds: Vec::new(),
            figures: Vec::new(),
        };
        if let Some(measured) = measured {
            let Tables {
                peer,
                latency,
                local,
                host,
                load,
                overlap: _,
                small: _,
                pinning: _,
                pipeline: _,
                engines: _,
                calls: _,
                launch_loop: _,
                live: _,
                live_group: _,
                chase: _,
                hazard: _,
                mapped: _,
                sharing: _,
            } = measured.tables();
            peer.iter().for_each(|cell| figures.peer(cell));
            latency.iter().for_each(|cell| figures.latency(cell));
            local.iter().for_each(|cell| figures.local(cell));
            host.iter().for_each(|cell| figures.host(cell));
            load.iter().for_each(|cell| figures.load(cell));
            let counted = measured.counted.iter();
            counted.for_each(|cell| figures.counted(cell));
        }
        figures
    }

    fn peer(&mut self, cell: &PeerBandwidth) {
        let setup = cell.setup;
        if setup.placement != Placement::REFERENCE {
            return;
        }
        let what = What::Peer {
            path: setup.path,
            direction: setup.direction,
            engine: setup.engine,
            issuer: setup.issuer,
        };
        let value = cell.achieved_gbps.filter(|_| cell.is_sound());
        self.add(what, cell.pair, setup.bytes.0, gbps(value), cell.percent);
    }

    fn latency(&mut self, cell: &Latency) {
        let what = What::Latency { path: cell.path };
        let value = cell.latency_us.filter(|_| cell.is_sound());
        self.add(what, cell.pair, cell.bytes.0, value, None);
    }

    fn local(&mut self, cell: &LocalCopy) {
        let value = cell.achieved_gbps.filter(|_| cell.is_sound());
        self.add(
            What::Local,
            alone(cell.gpu),
            cell.bytes.0,
            gbps(value),
            None,
        );
    }

    fn host(&mut self, cell: &HostCopy) {
        let near = match (self.numa.get(&cell.gpu).copied().flatten(), cell.numa_node) {
            (Some(own), Some(node)) if own == node => Some("near"),
            (Some(_), Some(_)) => Some("far"),
            _ => None,
        };
        let mut setup = vec![
            word(cell.memory),
            word(cell.direction),
            word(cell.engine),
            word(cell.allocation),
        ];
        setup.extend(near.map(str::to_owned));
        setup.extend((cell.at_once > 1).then(|| format!("{} at once", cell.at_once)));
        let (what, gpu) = (What::Host(setup.join(", ")), alone(cell.gpu));
        self.add(what, gpu, cell.bytes.0, gbps(cell.rate()), cell.percent);
    }

    fn load(&mut self, cell: &LoadPattern) {
        let kind = Kind {
            what: What::Load(cell.name()),
            class: None,
            bytes: cell.bytes.0,
        };
        self.put(kind, Ends::Machine, gbps(cell.rate()), cell.percent);
    }

    /// Adds the counts of NVLinks alone: PCIe counters are lower bounds.
    fn counted(&mut self, cell: &Counted) {
        let name = cell.name();
        let ways = [
            (
                "sent",
                cell.nvlink_sent_bytes,
                cell.sent_bytes,
                least(cell.links.iter().map(|link| link.sent_percent)),
            ),
            (
                "received",
                cell.nvlink_received_bytes,
                cell.received_bytes,
                least(cell.links.iter().map(|link| link.received_percent)),
            ),
        ];
        let gpu = alone(cell.gpu);
        for (way, counted, known, least) in ways.into_iter().filter(|(_, _, known, _)| known.0 > 0)
        {
            #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
            let share = counted
                .map(|counted| 100.0 * counted.0 as f64 / known.0 as f64)
                .filter(|_| !cell.disturbed);
            let least = least.filter(|_| !cell.disturbed);
            let setup = format!("{name}, {way}");
            self.add(What::Counted(setup.clone()), gpu, 0, share, None);
            self.add(What::LeastLink(setup), gpu, 0, least, None);
        }
    }

    fn add(
        &mut self,
        what: What,
        pair: Pair,
        bytes: u64,
        value: Option<f64>,
        percent: Option<f64>,
    ) {
        let (Ok(from), Ok(to)) = (u16::try_from(pair.source), u16::try_from(pair.destination))
        else {
            return;
        };
        let class = self.classes.get(&pair).copied();
        self.put(
            Kind { what, class, bytes },
            Ends::Gpus(from, to),
            value,
            percent,
        );
    }

    fn put(&mut self, kind: Kind, ends: Ends, value: Option<f64>, percent: Option<f64>) {
        let place = self
            .kinds
            .iter()
            .position(|known| *known == kind)
            .unwrap_or_else(|| {
                self.kinds.push(kind);
                self.kinds.len() - 1
            });
        let Ok(kind) = u16::try_from(place) else {
            return;
        };
        let value = value.and_then(figure);
        let percent = percent.and_then(figure).filter(|_| value.is_some());
        self.figures.push(Figure {
            kind,
            ends,
            value,
            percent,
        });
    }
}

/// Returns the pair that stands for one GPU.
const fn alone(gpu: u32) -> Pair {
    Pair {
        source: gpu,
        destination: gpu,
    }
}

fn gbps(rate: Option<GbPerSecond>) -> Option<f64> {
    rate.map(|rate| rate.0)
}

/// Returns the share of the least used link, with an equal share as 100. Returns `None` for one link, or if a share is
/// not known.
fn least(shares: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let links = u32::try_from(shares.len())
        .ok()
        .filter(|links| *links > 1)?;
    let shares: Vec<f64> = shares.collect::<Option<_>>()?;
    let least = shares.into_iter().min_by(f64::total_cmp)?;
    // Rounded as the report has it, so that a summary of the report that is read back is the same.
    Some(four_places(least) * f64::from(links))
}

/// Returns the value, rounded as in the rest of the report, if it can be a figure.
#[allow(
    clippy::cast_possible_truncation,
    reason = "seven digits are more than any measurement has"
)]
fn figure(value: f64) -> Option<f32> {
    Some(four_places(value) as f32).filter(|value| is_figure(*value))
}

/// Returns true for a value that can be measured: finite and positive.
fn is_figure(value: f32) -> bool {
    value.is_finite() && value > 0.0
}

/// Returns the word for a unit variant, as in the rest of the report.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
