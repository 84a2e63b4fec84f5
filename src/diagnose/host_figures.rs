//! Figures of one GPU and the host by which two runs are compared, and how far healthy runs may differ. Figures that
//! only a link decides repeat well. Figures that depend on the host's memory or wait for its processor do not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::words;
use model::asynchrony::{Call, HostCall};
use model::cell::Measurement;
use model::flow::HostMemory;
use model::host::{Allocation, HostDirection, HostWay};
use model::measurement::Measurements;
use model::placement::Engine;
use model::rounding::short;
use model::units::GbPerSecond;

/// The part that a figure depends on most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecidedBy {
    /// The link of the GPU.
    Link,
    /// The memory of the host too, which other programs, and other machines on the same host, also use.
    Memory,
    /// The processor that moves the bytes, the contents of its cache, or the speed at which the system page-locks
    /// memory.
    Processor,
    /// The time that a call takes.
    Time,
}

/// Least fall of a figure that a link decides, per cent. Chosen: five times the 1% that copies of pinned memory one way
/// repeat within on H200; two machines of that model lay 2.7% apart.
pub(crate) const LINK_PERCENT: f64 = 5.0;
/// The same for figures that also depend on the memory of the host. Chosen: half as much again as the 20% that copies
/// both ways, and of several GPUs at once, fell by within an hour on H200.
pub(crate) const MEMORY_PERCENT: f64 = 30.0;
/// The same for bytes that the processor moves. Chosen: a quarter is left; pageable copies of healthy H200 had 4.5 to
/// 15.4 GB/s.
pub(crate) const PROCESSOR_PERCENT: f64 = 75.0;
/// Factor by which a call must take longer. Chosen: calls of healthy H200 differ by up to 3.3 times between machines.
pub(crate) const TIMES: f64 = 4.0;
/// Additional time that a call must take, microseconds. Chosen: the slowest cell that is known of healthy machines has
/// 39.
pub(crate) const LEAST_US: f64 = 40.0;

/// The kind of a figure, independent of the GPU, the NUMA node and the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// Copies between host and GPU.
    Copy {
        way: HostWay,
        /// Number of GPUs that copy at the same time.
        at_once: u32,
    },
    /// A pipeline in several streams.
    Pipeline {
        /// Allocation of the host's buffers.
        memory: HostMemory,
        /// Number of batches.
        batches: u32,
        /// Number of streams.
        streams: u32,
    },
    /// A call that need not wait for work.
    Call {
        call: Call,
        /// The memory of the host, for a copy.
        memory: Option<HostMemory>,
        /// The direction, for a copy.
        direction: Option<HostDirection>,
    },
    /// A turn of the loop of launches.
    Turn {
        /// True if it waits for the GPU that works.
        same: bool,
    },
}

impl What {
    pub fn kind(self) -> DecidedBy {
        match self {
            Self::Copy { way, .. } if way.memory == HostMemory::Pageable => DecidedBy::Processor,
            Self::Copy { way, .. } if way.allocation == Allocation::Anew => DecidedBy::Processor,
            Self::Copy { way, at_once }
                if at_once > 1
                    || way.direction == HostDirection::BothWays
                    || way.engine == Engine::Kernel =>
            {
                DecidedBy::Memory
            }
            Self::Copy { .. } => DecidedBy::Link,
            Self::Pipeline {
                memory: HostMemory::Pageable,
                ..
            } => DecidedBy::Processor,
            Self::Pipeline { .. } => DecidedBy::Memory,
            Self::Call { .. } | Self::Turn { .. } => DecidedBy::Time,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Copy { way, at_once: 1 } => write!(f, "{way}"),
            Self::Copy { way, at_once } => write!(f, "{way}, {at_once} GPUs at once"),
            Self::Pipeline {
                memory,
                batches,
                streams,
            } => {
                write!(
                    f,
                    "pipeline of {batches} batches in {streams} streams, {memory}"
                )
            }
            Self::Call {
                call,
                memory,
                direction,
            } => f.write_str(&HostCall::in_words(call, memory, direction)),
            Self::Turn { same: true } => f.write_str("launch and wait for the same GPU"),
            Self::Turn { same: false } => f.write_str("launch and wait for another GPU"),
        }
    }
}

/// A figure: decimal GB/s, or microseconds for times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub value: f64,
    /// The spread of its samples, per cent.
    pub spread_percent: f64,
}

/// Figures by GPU and kind; `None` if one was to be measured and has no sound figure.
pub(crate) type Figures = BTreeMap<(u32, What), Option<Figure>>;

/// Returns all figures of a run. Of several NUMA nodes and sizes the best one counts: the most that the GPU's path
/// carries.
pub(crate) fn figures(measurements: &Measurements) -> Figures {
    let mut all = Figures::new();
    let mut add = |gpu: u32, what: What, value: Option<f64>, spread: Option<f64>| {
        let known = all.entry((gpu, what)).or_default();
        let value = value.filter(|value| value.is_finite() && *value > 0.0);
        let better = |value: &f64| match (*known, what.kind()) {
            (None, _) => true,
            (Some(known), DecidedBy::Time) => *value < known.value,
            (Some(known), _) => *value > known.value,
        };
        if let Some(value) = value.filter(better) {
            *known = Some(Figure {
                value,
                spread_percent: spread.unwrap_or_default(),
            });
        }
    };
    for copy in &measurements.host {
        let what = What::Copy {
            way: copy.way(),
            at_once: copy.at_once,
        };
        add(
            copy.gpu,
            what,
            copy.rate().map(|rate| rate.0),
            copy.spread_percent,
        );
    }
    for cell in &measurements.pipeline {
        let (memory, batches, streams) = (cell.memory, cell.batches, cell.streams);
        let rate = cell.several_streams_us.filter(|us| *us > 0.0).map(|us| {
            let bytes = cell.bytes.0.saturating_mul(u64::from(batches));
            GbPerSecond::of(bytes, us * 1e3).0
        });
        let what = What::Pipeline {
            memory,
            batches,
            streams,
        };
        add(
            cell.gpu,
            what,
            rate.filter(|_| cell.cell().tested()),
            cell.spread_percent,
        );
    }
    // Calls that wait take as long as their work, and so do copies of pageable memory: other rules judge those.
    let is_pageable =
        |call: &HostCall| call.call == Call::Copy && call.memory == Some(HostMemory::Pageable);
    let only_calls = |call: &&HostCall| !call.waits() && !is_pageable(call);
    for cell in measurements.calls.iter().filter(only_calls) {
        let what = What::Call {
            call: cell.call,
            memory: cell.memory,
            direction: cell.direction,
        };
        add(
            cell.gpu,
            what,
            cell.host_blocked_us.filter(|_| cell.cell().tested()),
            cell.spread_percent,
        );
    }
    for cell in &measurements.launch_loop {
        let what = What::Turn {
            same: cell.gpu == cell.synchronized,
        };
        add(
            cell.gpu,
            what,
            cell.turn_us.filter(|_| cell.cell().tested()),
            cell.spread_percent,
        );
    }
    all
}

/// A figure that is worse than another one, or than was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shortfall {
    pub gpu: u32,
    /// The kind of figure.
    pub what: What,
    /// The value it should be close to, or its lower or upper limit.
    pub wanted: f64,
    pub found: f64,
}

impl Shortfall {
    /// Returns how far a rate lies below, or a time above, per cent of the wanted value.
    pub(crate) fn percent(&self) -> f64 {
        let below = 100.0 * (self.wanted - self.found) / self.wanted;
        if self.what.kind() == DecidedBy::Time {
            -below
        } else {
            below
        }
    }
}

/// Figures that fell on some GPUs for what may be one cause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShortfallGroup {
    /// The GPUs, in order.
    pub gpus: Vec<u32>,
    /// The worst figure of the kind closest to the cause.
    pub worst: Shortfall,
    /// Number of other ways in which something is worse on these GPUs.
    pub others: usize,
}

impl ShortfallGroup {
    /// Returns words such as ` and in 3 other ways`.
    pub(crate) fn more(&self) -> String {
        match self.others {
            0 => String::new(),
            others => format!(" and in {}", words::count(others, "other way")),
        }
    }

    /// Returns a time or a rate as words.
    pub(crate) fn said(value: f64, kind: DecidedBy) -> String {
        if kind == DecidedBy::Time {
            short(value)
        } else {
            GbPerSecond(value).to_string()
        }
    }
}

/// Returns one group for each kind that is the first of some GPU: a slow link slows everything that passes it.
pub(crate) fn groups(worse: &[Shortfall]) -> Vec<ShortfallGroup> {
    let mut of_gpus: BTreeMap<u32, Vec<Shortfall>> = BTreeMap::new();
    for short in worse {
        of_gpus.entry(short.gpu).or_default().push(*short);
    }
    let mut by_kind: BTreeMap<DecidedBy, Vec<Shortfall>> = BTreeMap::new();
    for of_gpu in of_gpus.into_values() {
        if let Some(first) = of_gpu.iter().map(|short| short.what.kind()).min() {
            by_kind.entry(first).or_default().extend(of_gpu);
        }
    }
    let group = |(kind, shorts): (DecidedBy, Vec<Shortfall>)| {
        let leading = shorts.iter().filter(|short| short.what.kind() == kind);
        let worst = *leading.max_by(|one, other| one.percent().total_cmp(&other.percent()))?;
        let gpus: BTreeSet<u32> = shorts.iter().map(|short| short.gpu).collect();
        let ways: BTreeSet<What> = shorts.iter().map(|short| short.what).collect();
        Some(ShortfallGroup {
            gpus: gpus.into_iter().collect(),
            worst,
            others: ways.len().saturating_sub(1),
        })
    };
    by_kind.into_iter().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::host::HostCopy;
    use model::status::{Ending, Status};
    use model::testing::host_copy;

    const UP: What = What::Copy {
        way: HostWay::PINNED,
        at_once: 1,
    };
    const PAGEABLE: What = What::Copy {
        way: HostWay::PINNED.with_memory(HostMemory::Pageable),
        at_once: 1,
    };

    #[test]
    fn of_nodes_the_best_counts_and_what_has_no_figure_is_known_to_lack_it() {
        let far = HostCopy {
            numa_node: Some(1),
            ..host_copy(0, 40.0)
        };
        let failed = HostCopy {
            ending: Ending::without(Status::Failed, None),
            ..host_copy(1, 55.0)
        };
        let measurements = Measurements {
            host: vec![far, host_copy(0, 55.0), failed],
            ..Measurements::default()
        };
        let found = figures(&measurements);
        assert_eq!(found[&(0, UP)].map(|figure| figure.value), Some(55.0));
        assert_eq!((found[&(1, UP)], found.len()), (None, 2));
    }

    #[test]
    fn one_cause_is_one_group_and_the_link_comes_first() {
        let short = |gpu, what, found| Shortfall {
            gpu,
            what,
            wanted: 50.0,
            found,
        };
        let found = groups(&[
            short(2, UP, 40.0),
            short(2, PAGEABLE, 5.0),
            short(0, PAGEABLE, 4.0),
        ]);
        let [link, processor] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (&link.gpus[..], link.worst.found, link.others),
            (&[2][..], 40.0, 1)
        );
        assert_eq!(
            (&processor.gpus[..], processor.worst.found, processor.others),
            (&[0][..], 4.0, 0)
        );
    }

    #[test]
    fn what_the_host_decides_is_no_links() {
        let both = What::Copy {
            way: HostWay::PINNED.with_direction(HostDirection::BothWays),
            at_once: 1,
        };
        let together = What::Copy {
            way: HostWay::PINNED,
            at_once: 4,
        };
        let pipeline = What::Pipeline {
            memory: HostMemory::Pinned,
            batches: 8,
            streams: 3,
        };
        let kinds = [
            UP,
            both,
            together,
            pipeline,
            PAGEABLE,
            What::Turn { same: true },
        ]
        .map(What::kind);
        assert_eq!(
            kinds,
            [
                DecidedBy::Link,
                DecidedBy::Memory,
                DecidedBy::Memory,
                DecidedBy::Memory,
                DecidedBy::Processor,
                DecidedBy::Time
            ]
        );
    }
}
