//! Kinds of measurements, and the figures of a report by kind.

use std::collections::HashMap;
use std::fmt;

use super::excerpt::{Counted, HostCopy, Latency, Load, Local, Measurements, Peer};
use model::load::Pattern;
use model::measurement::{Status, Verified};
use model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use model::topology::LinkClass;

/// A kind of measurement with its setup: figures of one kind can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// The probe with its setup.
    pub what: What,
    /// The class of the link, for pairs.
    pub class: Option<LinkClass>,
    /// Size of one copy, bytes.
    pub bytes: u64,
}

/// A probe with its setup.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    pub(crate) const fn is_time(&self) -> bool {
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Index of its kind in [`Digest::kinds`].
    pub kind: u16,
    /// The GPUs of the figure.
    pub ends: Ends,
    /// `None` if it was not measured, or if something spoiled it.
    pub value: Option<f32>,
    /// Share of the theoretical value, per cent, if that is known.
    pub percent: Option<f32>,
}

/// Figures under construction.
pub(crate) struct Figures {
    classes: HashMap<Pair, LinkClass>,
    numa: HashMap<u32, Option<u32>>,
    /// Each kind once.
    pub kinds: Vec<Kind>,
    pub figures: Vec<Figure>,
}

impl Figures {
    /// Collects the figures of a report whose pairs have these classes and whose GPUs are at these NUMA nodes.
    pub(crate) fn of(
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
            measured.peer.iter().for_each(|cell| figures.peer(cell));
            measured
                .latency
                .iter()
                .for_each(|cell| figures.latency(cell));
            measured.local.iter().for_each(|cell| figures.local(cell));
            measured.host.iter().for_each(|cell| figures.host(cell));
            measured.load.iter().for_each(|cell| figures.load(cell));
            measured
                .counted
                .iter()
                .for_each(|cell| figures.counted(cell));
        }
        figures
    }

    fn peer(&mut self, cell: &Peer) {
        if cell.placement != Placement::REFERENCE {
            return;
        }
        let Peer {
            path,
            direction,
            engine,
            issuer,
            ..
        } = *cell;
        let what = What::Peer {
            path,
            direction,
            engine,
            issuer,
        };
        let sound = is_sound(cell.status, Some(cell.verified), cell.disturbed);
        self.add(
            what,
            [cell.source, cell.destination],
            cell.bytes,
            cell.achieved_gbps.filter(|_| sound),
            cell.percent,
        );
    }

    fn latency(&mut self, cell: &Latency) {
        let sound = is_sound(cell.status, None, cell.disturbed);
        let what = What::Latency { path: cell.path };
        self.add(
            what,
            [cell.source, cell.destination],
            cell.bytes,
            cell.latency_us.filter(|_| sound),
            None,
        );
    }

    fn local(&mut self, cell: &Local) {
        let sound = is_sound(cell.status, None, cell.disturbed);
        self.add(
            What::Local,
            [cell.gpu, cell.gpu],
            cell.bytes,
            cell.achieved_gbps.filter(|_| sound),
            None,
        );
    }

    fn host(&mut self, cell: &HostCopy) {
        let Some(gpu) = cell.gpu else { return };
        let memory = cell
            .memory
            .map(|memory| format!("{memory:?}").to_lowercase());
        let near = match (self.numa.get(&gpu).copied().flatten(), cell.numa_node) {
            (Some(own), Some(node)) if own == node => Some("near"),
            (Some(_), Some(_)) => Some("far"),
            _ => None,
        };
        let words = [
            memory.as_deref(),
            cell.direction.as_deref(),
            cell.engine.as_deref(),
            cell.allocation.as_deref(),
            near,
        ];
        let mut setup: Vec<_> = words.into_iter().flatten().map(str::to_owned).collect();
        setup.extend(
            cell.at_once
                .filter(|number| *number > 1)
                .map(|number| format!("{number} at once")),
        );
        let sound = is_sound(
            cell.status.unwrap_or(Status::Skipped),
            cell.verified,
            cell.disturbed,
        );
        let value = cell.achieved_gbps.filter(|_| sound);
        self.add(
            What::Host(setup.join(", ")),
            [gpu, gpu],
            cell.bytes.unwrap_or(0),
            value,
            cell.percent,
        );
    }

    fn load(&mut self, cell: &Load) {
        let sound = is_sound(cell.status, Some(cell.verified), cell.disturbed);
        let kind = Kind {
            what: What::Load(named(&cell.pattern, &cell.of)),
            class: None,
            bytes: cell.bytes,
        };
        self.put(
            kind,
            Ends::Machine,
            cell.achieved_gbps.filter(|_| sound),
            cell.percent,
        );
    }

    /// Adds the counts of NVLinks alone: PCIe counters are lower bounds.
    fn counted(&mut self, cell: &Counted) {
        let name = named(&cell.pattern, &cell.of);
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
        for (way, counted, known, least) in ways.into_iter().filter(|(_, _, known, _)| *known > 0) {
            #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
            let share = counted
                .map(|counted| 100.0 * counted as f64 / known as f64)
                .filter(|_| !cell.disturbed);
            let setup = format!("{name}, {way}");
            self.add(What::Counted(setup.clone()), [cell.gpu; 2], 0, share, None);
            self.add(
                What::LeastLink(setup),
                [cell.gpu; 2],
                0,
                least.filter(|_| !cell.disturbed),
                None,
            );
        }
    }

    fn add(
        &mut self,
        what: What,
        [source, destination]: [u32; 2],
        bytes: u64,
        value: Option<f64>,
        percent: Option<f64>,
    ) {
        let (Ok(from), Ok(to)) = (u16::try_from(source), u16::try_from(destination)) else {
            return;
        };
        let class = self
            .classes
            .get(&Pair {
                source,
                destination,
            })
            .copied();
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

/// Returns the name of a pattern of flows, with the part that distinguishes it.
fn named(pattern: &Pattern, of: &str) -> String {
    if of.is_empty() {
        pattern.to_string()
    } else {
        format!("{pattern}, {of}")
    }
}

/// Returns the share of the least used link, with an equal share as 100. Returns `None` for one link, or if a share is
/// not known.
fn least(shares: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let links = u32::try_from(shares.len())
        .ok()
        .filter(|links| *links > 1)?;
    let shares: Vec<f64> = shares.collect::<Option<_>>()?;
    shares
        .into_iter()
        .min_by(f64::total_cmp)
        .map(|least| least * f64::from(links))
}

/// Returns the value if it can be a figure: finite and positive.
#[allow(
    clippy::cast_possible_truncation,
    reason = "seven digits are more than any measurement has"
)]
fn figure(value: f64) -> Option<f32> {
    (value.is_finite() && value > 0.0)
        .then_some(value as f32)
        .filter(|value| value.is_finite() && *value > 0.0)
}

fn is_sound(status: Status, verified: Option<Verified>, disturbed: bool) -> bool {
    status == Status::Measured && !disturbed && !verified.is_some_and(Verified::is_wrong)
}
