//! Figures of one GPU and the host by which two runs are compared, and how far healthy runs may differ. Figures that
//! only a link decides repeat well. Figures that depend on the host's memory or wait for its processor do not.

use std::fmt;

use model::asynchrony::{Call, HostCall};
use model::cell::Measurement;
use model::flow::HostMemory;
use model::host::{Allocation, HostCopy, HostDirection, HostWay};
use model::measurement::Measurements;
use model::pipeline::Pipeline;
use model::placement::Engine;
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

/// Least fall of copies between GPUs, per cent. Five runs on H200 lay within 0.41%; the rest is for clocks and driver.
pub(crate) const PAIR_PERCENT: f64 = 3.0;
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
    pub(crate) fn of_copy(copy: &HostCopy) -> Self {
        Self::Copy { way: copy.way(), at_once: copy.at_once }
    }

    pub(crate) fn of_pipeline(cell: &Pipeline) -> Self {
        Self::Pipeline { memory: cell.memory, batches: cell.batches, streams: cell.streams }
    }

    /// Returns one of each kind, with 2 for every number.
    pub(crate) fn each() -> Vec<Self> {
        let mut all = vec![Self::Turn { same: true }, Self::Turn { same: false }];
        let call = |call| Self::Call { call, memory: None, direction: None };
        all.extend(Call::ALL.map(call));
        for memory in HostMemory::ALL {
            all.push(Self::Pipeline { memory, batches: 2, streams: 2 });
            for direction in HostDirection::ALL {
                let (memory_of, direction_of) = (Some(memory), Some(direction));
                all.push(Self::Call {
                    call: Call::Copy,
                    memory: memory_of,
                    direction: direction_of,
                });
                for allocation in Allocation::ALL {
                    for engine in [Engine::Copy, Engine::Kernel] {
                        let way = HostWay { memory, direction, engine, allocation };
                        all.extend([1, 2].map(|at_once| Self::Copy { way, at_once }));
                    }
                }
            }
        }
        all
    }

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
            Self::Pipeline { memory: HostMemory::Pageable, .. } => DecidedBy::Processor,
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
            Self::Pipeline { memory, batches, streams } => {
                write!(f, "pipeline of {batches} batches in {streams} streams, {memory}")
            }
            Self::Call { call, memory, direction } => {
                f.write_str(&HostCall::in_words(call, memory, direction))
            }
            Self::Turn { same: true } => f.write_str("launch and wait for the same GPU"),
            Self::Turn { same: false } => f.write_str("launch and wait for another GPU"),
        }
    }
}

/// Passes each figure of the host and the GPUs on: GPU, kind, value if it is sound, and the spread of its samples.
pub(crate) fn each(
    measurements: &Measurements,
    mut add: impl FnMut(u32, What, Option<f64>, Option<f64>),
) {
    for copy in &measurements.host {
        let rate = copy.rate().map(|rate| rate.0);
        add(copy.gpu, What::of_copy(copy), rate, copy.spread_percent);
    }
    for cell in &measurements.pipeline {
        let rate = cell.several_streams_us.filter(|us| *us > 0.0).map(|us| {
            let bytes = cell.bytes.0.saturating_mul(u64::from(cell.batches));
            GbPerSecond::of(bytes, us * 1e3).0
        });
        let rate = rate.filter(|_| cell.cell().tested());
        add(cell.gpu, What::of_pipeline(cell), rate, cell.spread_percent);
    }
    // Calls that wait take as long as their work, and so do copies of pageable memory: other rules judge those.
    let is_pageable =
        |call: &HostCall| call.call == Call::Copy && call.memory == Some(HostMemory::Pageable);
    let only_calls = |call: &&HostCall| !call.waits() && !is_pageable(call);
    for cell in measurements.calls.iter().filter(only_calls) {
        let what = What::Call { call: cell.call, memory: cell.memory, direction: cell.direction };
        let us = cell.host_blocked_us.filter(|_| cell.cell().tested());
        add(cell.gpu, what, us, cell.spread_percent);
    }
    for cell in &measurements.launch_loop {
        let same = cell.gpu == cell.synchronized;
        let us = cell.turn_us.filter(|_| cell.cell().tested());
        add(cell.gpu, What::Turn { same }, us, cell.spread_percent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_decides_is_no_links() {
        let both =
            What::Copy { way: HostWay::PINNED.with_direction(HostDirection::BothWays), at_once: 1 };
        let together = What::Copy { way: HostWay::PINNED, at_once: 4 };
        let pipeline = What::Pipeline { memory: HostMemory::Pinned, batches: 8, streams: 3 };
        let up = What::Copy { way: HostWay::PINNED, at_once: 1 };
        let pageable =
            What::Copy { way: HostWay::PINNED.with_memory(HostMemory::Pageable), at_once: 1 };
        let kinds =
            [up, both, together, pipeline, pageable, What::Turn { same: true }].map(What::kind);
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
