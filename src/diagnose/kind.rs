//! Kinds of figures by which two runs are compared, and how far healthy runs may differ. Figures that only a link
//! decides repeat well. Figures that depend on the host's memory or wait for its processor do not.

use std::fmt;

use model::asynchrony::{Call, HostCall};
use model::flow::{HostMemory, Setup};
use model::host::{Allocation, HostDirection, HostWay};
use model::measurement::Probe;
use model::placement::{Direction, Engine, Path, Placement, Side};

/// The part that a figure depends on most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DecidedBy {
    /// The path between two GPUs.
    Path,
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

/// Largest overhead of a copy, after which the host may wait, microseconds. Chosen: 9 to 12 on H200 for copies of 1 to 64 MiB.
pub(crate) const COPY_OVERHEAD_US: f64 = 15.0;
/// Largest share of a copy's time that its overhead may take. Chosen: smaller copies show nothing about the rate of a link.
pub(crate) const MOST_OVERHEAD: f64 = 0.2;

/// The same for all, in the order of [`DecidedBy`].
pub(crate) const LEAST_PERCENT: [f64; 5] =
    [PAIR_PERCENT, LINK_PERCENT, MEMORY_PERCENT, PROCESSOR_PERCENT, 100.0 * (TIMES - 1.0)];
/// The unit of rates.
pub(crate) const RATE: &str = "GB/s";
/// The unit of most times.
pub(crate) const TIME: &str = "us";

/// The kind of a figure, independent of its GPUs, the NUMA node and the size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub(crate) probe: Probe,
    /// The part that it depends on most.
    pub(crate) decided_by: DecidedBy,
    /// Its name among the figures of its probe.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
}

impl Kind {
    /// Returns the kind of copies between GPUs.
    pub fn of_pair(setup: Setup) -> Self {
        let Setup { engine, path, issuer, direction, placement, .. } = setup;
        let name = if setup.of_any_size() == Setup::REFERENCE.with_path(path) {
            path.to_string()
        } else {
            format!("{engine} copies, {path}, issued by {issuer}, {direction}, {placement}")
        };
        Self { probe: Probe::Bandwidth, decided_by: DecidedBy::Path, name, unit: RATE }
    }

    /// Returns true if the figures of a probe have bounds: rates and times. Shares have no better side that holds for all.
    pub(crate) const fn bounds(probe: Probe) -> bool {
        !matches!(
            probe,
            Probe::Overlap | Probe::Contention | Probe::Engines | Probe::Hazard | Probe::Share
        )
    }

    /// Returns the kind of the copies by which pairs are judged.
    pub(crate) fn reference(path: Path) -> Self {
        Self::of_pair(Setup::REFERENCE.with_path(path))
    }

    /// Returns the kind of copies of this many GPUs with the host.
    pub fn of_host(way: HostWay, at_once: u32) -> Self {
        let decided_by =
            if way.memory == HostMemory::Pageable || way.allocation != Allocation::Reused {
                DecidedBy::Processor
            } else if at_once > 1
                || way.direction == HostDirection::BothWays
                || way.engine == Engine::Kernel
            {
                DecidedBy::Memory
            } else {
                DecidedBy::Link
            };
        let name = match at_once {
            1 => way.to_string(),
            _ => format!("{way}, {at_once} GPUs at once"),
        };
        Self { probe: Probe::Host, decided_by, name, unit: RATE }
    }

    pub(crate) fn of_pipeline(memory: HostMemory, batches: u32, streams: u32) -> Self {
        let decided_by = match memory {
            HostMemory::Pageable => DecidedBy::Processor,
            HostMemory::Pinned | HostMemory::Registered => DecidedBy::Memory,
        };
        let name = format!("pipeline of {batches} batches in {streams} streams, {memory}");
        Self { probe: Probe::Pipeline, decided_by, name, unit: RATE }
    }

    /// Returns the kind of turns of the loop of launches, by whether they wait for the GPU that works.
    pub(crate) fn of_turn(waits_for_same: bool) -> Self {
        let gpu = if waits_for_same { "the same" } else { "another" };
        Self::of_time(Probe::LaunchLoop, format!("launch and wait for {gpu} GPU"))
    }

    /// Returns the kind of the rates of a probe's setup, in words.
    pub fn of_rate(probe: Probe, name: String) -> Self {
        // Chosen: it is not known how far all probes repeat. A ring both ways reached 792 to 1554 GB/s on one machine
        // (4 x H200), depending on the order of its copies.
        let decided_by = match probe {
            Probe::Load => DecidedBy::Processor,
            Probe::Links => DecidedBy::Link,
            _ => DecidedBy::Memory,
        };
        Self { probe, decided_by, name, unit: RATE }
    }

    /// Returns the kind of the times of a probe's setup, in words.
    pub fn of_time(probe: Probe, name: String) -> Self {
        Self { probe, decided_by: DecidedBy::Time, name, unit: TIME }
    }

    /// Returns true if it is of copies between GPUs.
    pub(crate) fn is_of_pairs(&self) -> bool {
        self.decided_by == DecidedBy::Path
    }

    /// Returns true if it is of copies, pipelines and calls of one GPU and the host.
    pub(crate) const fn is_of_host(&self) -> bool {
        matches!(self.probe, Probe::Host | Probe::Pipeline | Probe::Calls | Probe::LaunchLoop)
    }

    /// Returns true if lower figures are better.
    pub(crate) fn is_time(&self) -> bool {
        self.decided_by == DecidedBy::Time
    }

    /// Returns how much worse the later value is, per cent of the earlier one; negative if it is better.
    pub(crate) fn percent_worse(&self, then: f64, now: f64) -> f64 {
        let below = 100.0 * (then - now) / then;
        if self.is_time() { -below } else { below }
    }

    /// Returns the kinds of copies between GPUs and of the host, with 2 for every number.
    pub(crate) fn known() -> Vec<Self> {
        let mut all = [true, false].map(Self::of_turn).to_vec();
        let call = |call, memory, direction| {
            Self::of_time(Probe::Calls, HostCall::in_words(call, memory, direction))
        };
        all.extend(Call::ALL.map(|of| call(of, None, None)));
        for engine in Engine::ALL {
            for memory in HostMemory::ALL {
                all.push(Self::of_pipeline(memory, 2, 2));
                for direction in HostDirection::ALL {
                    all.push(call(Call::Copy, Some(memory), Some(direction)));
                    let ways = Allocation::ALL.map(|allocation| HostWay {
                        memory,
                        direction,
                        engine,
                        allocation,
                    });
                    let ways = ways.iter().filter(|way| way.exists());
                    all.extend(ways.flat_map(|way| [1, 2].map(|gpus| Self::of_host(*way, gpus))));
                }
            }
            for (path, issuer) in
                Path::ALL.iter().flat_map(|path| Side::ALL.map(|side| (*path, side)))
            {
                for (direction, placement) in Direction::ALL
                    .iter()
                    .flat_map(|one| Placement::every().map(|placement| (*one, placement)))
                {
                    all.push(Self::of_pair(Setup {
                        engine,
                        path,
                        issuer,
                        direction,
                        placement,
                        ..Setup::REFERENCE
                    }));
                }
            }
        }
        all
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_decides_is_no_links() {
        let both = Kind::of_host(HostWay::PINNED.with_direction(HostDirection::BothWays), 1);
        let together = Kind::of_host(HostWay::PINNED, 4);
        let pipeline = Kind::of_pipeline(HostMemory::Pinned, 8, 3);
        let up = Kind::of_host(HostWay::PINNED, 1);
        let pageable = Kind::of_host(HostWay::PINNED.with_memory(HostMemory::Pageable), 1);
        let kinds = [up, both, together, pipeline, pageable, Kind::of_turn(true)]
            .map(|kind| kind.decided_by);
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
