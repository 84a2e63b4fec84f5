//! Overlap of copies with kernels.

use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::{KernelStream, Pair, Placement, Side};
use super::units::Bytes;

cell! {
    /// Overlap of a copy with a kernel, in one placement.
    Overlap: Overlap
    with {
        /// The ordered pair.
        #[serde(flatten)]
        pair: Pair,
        /// Streams of the copy, and the host mode.
        placement: Placement,
        /// The device on which the kernel ran.
        compute_on: Side,
        /// The stream on which the kernel ran.
        #[serde(default)]
        kernel_stream: KernelStream,
        /// Bytes that were copied.
        bytes: Bytes,
    }
    has {
        /// Share of the kernel's time during which the copy ran, per cent, median.
        overlap_percent: Option<f64> => main Share,
        /// The same by CUDA's order of streams and the events of frameworks, per cent: 0 or 100.
        #[serde(default)]
        expected_overlap_percent: Option<f64> => given Share,
        /// Time that the host spent in the copy call, waiting included, microseconds, median.
        host_blocked_us: Option<f64> => Amount,
        /// Duration of the copy, microseconds, median.
        copy_us: Option<f64> => Amount,
        /// Duration of the kernel, microseconds, median.
        kernel_us: Option<f64> => Amount,
        /// Number of samples.
        samples: u32,
    }
}

impl Overlap {
    /// Share of a kernel's time, per cent, from which a copy counts as running beside it. Halfway between the 100 of
    /// placements that overlap and the 0 to 1 of those that do not, measured on H100 and H200.
    pub const BESIDE_PERCENT: f64 = 50.0;

    /// Returns true if CUDA's order of streams and the events of frameworks let the copy run beside the kernel.
    pub const fn should_overlap(&self) -> bool {
        self.placement.should_overlap(self.compute_on, self.kernel_stream)
    }

    /// Returns true if the share contradicts CUDA's order of streams. Returns `None` if there is no figure.
    pub fn is_against(&self) -> Option<bool> {
        Some((self.overlap_percent? >= Self::BESIDE_PERCENT) != self.should_overlap())
    }
}

impl Subject for Overlap {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_placement(self.placement).with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        let Self { bytes, compute_on, kernel_stream, .. } = self;
        format!("{}, {bytes}, kernel on {compute_on}, {kernel_stream} stream", self.setup())
    }
}
