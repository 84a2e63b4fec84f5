//! Finds out which copies and kernels of a GPU run at the same time. Two pieces of work, each in a stream of its own,
//! are released together and compared with each by itself.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::gpu_buffers::{Work, ends};
use crate::figures::{count, no_samples, without_figures};
use crate::statistics::median;
use hardware::HardwareError;
use model::pipeline::Engines;

/// Least overlap of two pieces of work that counts as such, per cent of the shorter one: halfway between taking turns
/// and running side by side.
pub(crate) const OVERLAPS_PERCENT: f64 = 50.0;

/// Times of two pieces of work alone and together, nanoseconds since their release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SideBySide {
    /// Time of each alone.
    pub alone_ns: [f64; 2],
    /// End of each when both were released together.
    pub together_ns: [f64; 2],
}

impl SideBySide {
    /// Returns the overlap, per cent of the shorter one.
    ///
    /// Overlap saves time, except for two that share a link. Their overlap shows in their ends: of two that take turns,
    /// the first has ended when the second begins.
    pub(crate) fn percent(&self) -> f64 {
        let [one, other] = self.alone_ns;
        let last = self.together_ns[0].max(self.together_ns[1]);
        let first = self.together_ns[0].min(self.together_ns[1]);
        let saved = (one + other - last) / one.min(other);
        let ends = 2.0 * first / last - 1.0;
        (100.0 * saved.max(ends)).clamp(0.0, 100.0)
    }
}

/// One sample of all combinations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EnginesSample {
    /// A copy to the GPU and one to the host.
    pub opposite: SideBySide,
    /// Two copies to the GPU.
    pub both_to_device: SideBySide,
    /// Two copies to the host.
    pub both_to_host: SideBySide,
    /// A copy to the GPU and a kernel.
    pub kernel_to_device: SideBySide,
    /// A copy to the host and a kernel.
    pub kernel_to_host: SideBySide,
}

impl Bench<'_> {
    /// Runs copies and kernels in pairs.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive"
    )]
    pub(crate) fn engines(&self, round: &Round, samples: u32) -> Result<Outcome, HardwareError> {
        let buffers = self.gpu_buffers(round)?;
        let alone = |work| Ok(self.set_off(&buffers, &[work])?.into_iter().fold(0.0, f64::max));
        let beside = |one: (Work, f64), other: (Work, f64)| -> Result<SideBySide, HardwareError> {
            let ends = self.set_off(&buffers, &[one.0, other.0])?;
            Ok(SideBySide { alone_ns: [one.1, other.1], together_ns: [ends[0], ends[1]] })
        };
        let mut all = Vec::new();
        // The first sample warms up and is not counted.
        for _ in 0..=samples {
            let up = (Work::In, alone(Work::In)?);
            let down = (Work::Out, alone(Work::Out)?);
            let as_long =
                |copy_ns: f64| (Work::Kernel(Duration::from_nanos(copy_ns as u64)), copy_ns);
            all.push(EnginesSample {
                opposite: beside(up, down)?,
                both_to_device: beside(up, up)?,
                both_to_host: beside(down, down)?,
                kernel_to_device: beside(up, as_long(up.1))?,
                kernel_to_host: beside(down, as_long(down.1))?,
            });
        }
        all.remove(0);
        Ok(Outcome::Engines { reported: self.driver.copy_engines(buffers.device)?, samples: all })
    }
}

/// Returns the cell of a round.
pub(crate) fn cell(round: &Round, outcome: &Outcome) -> Option<Engines> {
    let (gpu, numa_node, _) = ends(round)?;
    let mut cell = Engines::blank(gpu, numa_node, round.task.setup.bytes);
    let Outcome::Engines { reported, samples } = outcome else {
        cell.ending = without_figures(outcome);
        return Some(cell);
    };
    let over = |which: &dyn Fn(&EnginesSample) -> SideBySide| {
        median(&samples.iter().map(|sample| which(sample).percent()).collect::<Vec<_>>())
    };
    cell.reported = Some(*reported);
    cell.opposite_percent = over(&|sample| sample.opposite);
    cell.both_to_device_percent = over(&|sample| sample.both_to_device);
    cell.both_to_host_percent = over(&|sample| sample.both_to_host);
    cell.kernel_to_device_percent = over(&|sample| sample.kernel_to_device);
    cell.kernel_to_host_percent = over(&|sample| sample.kernel_to_host);
    cell.samples =
        count(&samples.iter().map(|sample| sample.opposite.together_ns[0]).collect::<Vec<_>>());
    cell.observed = observed(&cell);
    if cell.opposite_percent.is_none() {
        cell.ending = no_samples();
    }
    Some(cell)
}

/// Returns the number of copy engines that were busy at the same time.
fn observed(cell: &Engines) -> Option<u32> {
    let overlaps =
        |percent: Option<f64>| percent.map(|percent| u32::from(percent > OVERLAPS_PERCENT));
    if overlaps(cell.kernel_to_device_percent)? + overlaps(cell.kernel_to_host_percent)? == 0 {
        return Some(0);
    }
    let more = [cell.opposite_percent, cell.both_to_device_percent, cell.both_to_host_percent];
    Some(1 + more.into_iter().map(overlaps).sum::<Option<u32>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_turns_does_not_overlap_and_what_shares_a_link_does() {
        let percent =
            |alone_ns, together_ns| SideBySide { alone_ns, together_ns }.percent().round();
        assert_eq!(percent([10.0, 10.0], [10.0, 20.0]), 0.0, "one after the other");
        assert_eq!(percent([10.0, 10.0], [10.5, 10.8]), 94.0, "side by side");
        assert_eq!(percent([10.0, 10.0], [19.8, 20.0]), 98.0, "side by side at half the rate");
        // H200: 55.5 each way, 51 while both are busy.
        assert_eq!(percent([1.21, 1.21], [1.30, 1.31]), 98.0);
        // One direction is half as fast.
        assert_eq!(percent([10.0, 20.0], [10.0, 20.0]), 100.0);
        assert!(percent([10.0, 20.0], [10.0, 30.0]) <= 0.0);
        assert!(percent([10.0, 20.0], [30.0, 20.0]) < OVERLAPS_PERCENT);
    }
}
