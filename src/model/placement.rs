//! The dimensions of a peer copy. `plan` combines these small enums.

use std::fmt;

use serde::{Deserialize, Serialize};

words! {
    /// The kind of stream that is a device's current one.
    #[derive(Default)]
    StreamKind {
        /// The legacy default stream.
        #[default]
        Default = "default",
        /// The default stream of the calling thread, `CU_STREAM_PER_THREAD`: that of programs built with
        /// `--default-stream per-thread`.
        PerThread = "per-thread",
        /// A stream created without a flag, as by `cudaStreamCreate`, CuPy and Numba.
        SideBlocking = "side-blocking",
        /// A stream created non-blocking, as PyTorch creates its own.
        Side = "side",
    }
}

words! {
    /// The stream of a kernel that runs beside a copy.
    #[derive(Default)]
    KernelStream {
        /// The legacy default stream of its GPU.
        #[default]
        Default = "default",
        /// The current stream of its GPU in the placement of the copy.
        Same = "same",
        /// A non-blocking stream of its own.
        Other = "other",
    }
}

words! {
    /// The behaviour of the host after it issued a copy.
    HostMode {
        /// The call returns once the copy is enqueued.
        NonBlocking = "non-blocking",
        /// The host waits until the copy has ended.
        Blocking = "blocking",
    }
}

/// The streams of a copy on both devices, and the host mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Placement {
    /// The source device's current stream.
    pub source: StreamKind,
    /// The destination device's current stream.
    pub destination: StreamKind,
    /// Behaviour of the host after the call.
    pub host: HostMode,
}

impl Placement {
    /// `side/side/non-blocking`: the placement that overlaps with everything, and the reference.
    pub const REFERENCE: Self = Self {
        source: StreamKind::Side,
        destination: StreamKind::Side,
        host: HostMode::NonBlocking,
    };

    /// Returns the eight placements of the experiment, on default streams and non-blocking ones.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::every().filter(|placement| placement.is_of_experiment())
    }

    /// Returns the thirty-two placements on every kind of stream.
    pub fn every() -> impl Iterator<Item = Self> {
        StreamKind::ALL.into_iter().flat_map(|source| {
            StreamKind::ALL.into_iter().flat_map(move |destination| {
                HostMode::ALL.into_iter().map(move |host| Self { source, destination, host })
            })
        })
    }

    /// Returns true if both streams are default or non-blocking ones.
    pub fn is_of_experiment(self) -> bool {
        !self.has(StreamKind::PerThread) && !self.has(StreamKind::SideBlocking)
    }

    /// Returns true if one of its streams is of this kind.
    pub fn has(self, kind: StreamKind) -> bool {
        [self.source, self.destination].contains(&kind)
    }

    /// Returns true if the call blocks the host.
    pub const fn is_blocking(self) -> bool {
        matches!(self.host, HostMode::Blocking)
    }

    /// Returns the stream that a side's work goes to.
    pub const fn stream_of(self, side: Side) -> StreamKind {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }

    /// Returns true if CUDA's order and the events of frameworks let the copy run beside a kernel on this stream of
    /// `compute_on`. The copy runs on the source's current stream. From a legacy default stream it keeps the order with those
    /// of both devices (CUDA Programming Guide, 3.4.2.1). The destination's current stream waits for it. Measured on H100
    /// and H200 (docs/dev/facts.md, "Stream placement and overlap").
    pub const fn should_overlap(self, compute_on: Side, kernel: KernelStream) -> bool {
        match kernel {
            KernelStream::Same => false,
            KernelStream::Other => true,
            // It keeps the order with every stream of its device that is not non-blocking.
            KernelStream::Default => {
                matches!(self.stream_of(compute_on), StreamKind::Side)
                    && (matches!(compute_on, Side::Source)
                        || !matches!(self.source, StreamKind::Default))
            }
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}/{}", self.source, self.destination, self.host))
    }
}

words! {
    /// One end of a copy.
    Side {
        /// The device that data leaves.
        Source = "source",
        /// The device that data reaches.
        Destination = "destination",
    }
}

words! {
    /// The engine that moves the bytes.
    Engine {
        /// A copy engine (DMA).
        Copy = "copy engine",
        /// A kernel on the multiprocessors of the issuing device.
        Kernel = "kernel",
    }
}

words! {
    /// One way, or with the opposite direction busy too. Figures are always those of one direction.
    Direction {
        /// Only source to destination.
        OneWay = "one way",
        /// Both directions at once.
        BothWays = "both ways",
    }
}

words! {
    /// The way of a copy between devices.
    Path {
        /// Peer access is enabled.
        Direct = "direct",
        /// Peer access is not enabled: the driver copies through host memory.
        Staged = "staged",
    }
}

/// An ordered pair of GPUs by NVML index: data goes from source to destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Pair {
    /// The GPU that data leaves.
    pub source: u32,
    /// The GPU that data reaches.
    pub destination: u32,
}

impl Pair {
    /// Returns true if this GPU is one of the two.
    pub const fn touches(self, gpu: u32) -> bool {
        self.source == gpu || self.destination == gpu
    }

    /// Returns the two GPUs, the source first.
    pub const fn gpus(self) -> [u32; 2] {
        [self.source, self.destination]
    }

    /// Returns the two GPUs, the lower index first.
    pub const fn unordered(self) -> (u32, u32) {
        if self.source < self.destination {
            (self.source, self.destination)
        } else {
            (self.destination, self.source)
        }
    }

    /// Returns the pair in the other direction.
    pub const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }

    /// Returns the entry of this pair in a list. Most lists contain all pairs of GPUs numbered from 0, row by row, or
    /// some of these pairs in that order. Files from other sources may have any order.
    pub fn find<T>(self, list: &[T], pair: impl Fn(&T) -> Self) -> Option<&T> {
        let others = list.len().isqrt();
        let before =
            (self.source as usize).saturating_mul(others).saturating_add(self.destination as usize);
        let usual = list.get(before.saturating_sub(usize::from(self.destination > self.source)));
        let in_order =
            || list.binary_search_by_key(&self, &pair).ok().and_then(|place| list.get(place));
        usual
            .filter(|found| pair(found) == self)
            .or_else(in_order)
            .or_else(|| list.iter().find(|found| pair(found) == self))
    }

    /// Returns every ordered pair of these GPUs, row by row.
    pub fn ordered(gpus: &[u32]) -> Vec<Self> {
        let mut pairs = Vec::new();
        for &source in gpus {
            pairs.extend(
                gpus.iter()
                    .filter(|&&gpu| gpu != source)
                    .map(|&destination| Self { source, destination }),
            );
        }
        pairs
    }
}

impl std::str::FromStr for Pair {
    type Err = String;

    /// Reads the displayed form of a pair: `GPU 0 → GPU 1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let gpu = |text: &str| text.trim().strip_prefix("GPU ")?.parse().ok();
        let pair = text.split_once('→').and_then(|(source, destination)| {
            Some(Self { source: gpu(source)?, destination: gpu(destination)? })
        });
        pair.ok_or_else(|| format!("'{text}' is not a pair such as GPU 0 → GPU 1"))
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("GPU {} → GPU {}", self.source, self.destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_eight_placements_of_the_experiment_among_thirty_two() {
        let all: std::collections::HashSet<_> = Placement::all().collect();
        assert_eq!(all.len(), 8);
        assert!(all.contains(&Placement::REFERENCE));
        let every: std::collections::HashSet<_> = Placement::every().collect();
        assert_eq!(every.len(), 32);
        assert!(all.is_subset(&every));
        assert_eq!(Placement::REFERENCE.to_string(), "side/side/non-blocking");
    }

    #[test]
    fn a_kernel_runs_beside_a_copy_as_measured_on_h100() {
        // facts.md, "Every kind of stream": where a kernel on a legacy default stream overlaps.
        use StreamKind::{PerThread, Side as NonBlocking, SideBlocking};
        for placement in Placement::every() {
            let Placement { source, destination, .. } = placement;
            let on = |side| placement.should_overlap(side, KernelStream::Default);
            assert_eq!(on(Side::Source), source == NonBlocking, "{placement}");
            let from = [PerThread, SideBlocking, NonBlocking].contains(&source);
            assert_eq!(on(Side::Destination), from && destination == NonBlocking, "{placement}");
            for side in Side::ALL {
                assert!(!placement.should_overlap(side, KernelStream::Same));
                assert!(placement.should_overlap(side, KernelStream::Other));
            }
        }
    }

    #[test]
    fn a_pair_is_read_as_it_is_shown() {
        let pair = Pair { source: 3, destination: 11 };
        assert_eq!(pair.to_string().parse::<Pair>().unwrap(), pair);
        for text in ["", "GPU 1", "1 → 2", "GPU 1 → GPU x"] {
            assert!(text.parse::<Pair>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_pair_is_found_wherever_it_stands() {
        for gpus in [0..2_u32, 0..9, 0..16, 3..7] {
            let all = Pair::ordered(&gpus.collect::<Vec<_>>());
            let turned: Vec<Pair> = all.iter().rev().copied().collect();
            let some: Vec<Pair> = all.iter().step_by(3).copied().collect();
            for list in [all, turned, some] {
                assert!(
                    list.iter().all(|pair| pair.find(&list, |found| *found) == Some(pair)),
                    "{list:?}"
                );
                for (source, destination) in [(1, 1), (0, 99), (u32::MAX, 0), (u32::MAX, u32::MAX)]
                {
                    assert_eq!(Pair { source, destination }.find(&list, |found| *found), None);
                }
            }
        }
        assert_eq!(Pair { source: 0, destination: 1 }.find(&[], |found: &Pair| *found), None);
    }

    #[test]
    fn every_ordered_pair_once() {
        assert_eq!(Pair::ordered(&[0, 1, 2]).len(), 6);
        assert_eq!(Pair::ordered(&[4]).len(), 0);
    }
}
