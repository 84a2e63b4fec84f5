//! Overlap of a copy with a kernel on a default stream, per stream placement; a kernel on both GPUs at once,
//! which do not know of each other.
//!
//! Everything is enqueued behind one gate per device, which open together, so that the host's
//! launch speed plays no part. The kernel is set into the middle of the copy's time by a spacer
//! kernel before it: clocks of two devices are aligned by the opening of their gates, to a few
//! microseconds, and the spacer keeps both ends of the kernel farther than that from both ends of
//! the copy, whether the two overlap or follow one another.

use std::time::Duration;

use super::bench::Bench;
use super::figures::without_figures;
use super::statistics::median;
use super::{Outcome, OverlapSample};
use crate::hardware::{ErrorKind, HardwareError, Stream};
use crate::model::flow::Setup;
use crate::model::measurement::{Overlap, Status};
use crate::model::placement::{HostMode, Pair, Path, Placement, Side};
use crate::model::units::{Bytes, MIB};

/// Length of the spacer before the kernel, as a share of the copy's time.
const SPACER_SHARE: f64 = 0.2;
/// Length of the kernel, as a share of the copy's time. Spacer and kernel end well before the copy.
const KERNEL_SHARE: f64 = 0.5;
/// Rows timed to learn the pair's pace where no bandwidth was measured before.
const PACE_ROWS: u32 = 2;
/// Their size.
const PACE_BYTES: u64 = 64 * MIB;

impl Bench<'_> {
    pub(super) fn overlap(&self, pair: Pair, setup: Setup, samples: u32) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let pace = self.pace_of(pair)?;
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let copy_ns = pace * setup.bytes.0 as f64;
        // The first round of a placement warms it up and is not counted.
        let mut all = Vec::new();
        for _ in 0..=samples {
            all.push(self.overlap_once(pair, setup, copy_ns)?);
        }
        all.remove(0);
        Ok(Outcome::Overlap { samples: all })
    }

    /// Nanoseconds per byte of a direct copy of this pair.
    fn pace_of(&self, pair: Pair) -> Result<f64, HardwareError> {
        let key = (pair, Setup::REFERENCE);
        if self.pace.borrow().get(&key).is_none() {
            let largest = self.both_hold(pair)?;
            let setup = Setup::REFERENCE.with_bytes(Bytes(PACE_BYTES.min(largest)));
            self.bandwidth(&[pair], setup, PACE_ROWS, 1)?;
        }
        let no_pace = || HardwareError::new(ErrorKind::Other, "the pace of a copy could not be measured");
        self.pace.borrow().get(&key).copied().ok_or_else(no_pace)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive")]
    fn overlap_once(&self, pair: Pair, setup: Setup, copy_ns: f64) -> Result<OverlapSample, HardwareError> {
        let driver = self.driver;
        let Setup { placement, bytes: Bytes(bytes), .. } = setup;
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let from = self.current_stream(pair, placement, Side::Source)?;
        let to = self.current_stream(pair, placement, Side::Destination)?;
        let kernels = [Stream::default_of(source.device), Stream::default_of(destination.device)];
        let (on_source, on_destination) = (self.events(source.device, 4)?, self.events(destination.device, 3)?);
        let [copy_start, copy_end] = [on_source[0], on_source[1]];
        let marks = [[on_source[2], on_source[3]], [on_destination[0], on_destination[1]]];
        let ready = on_destination[2];
        let length = |share: f64| Duration::from_nanos((copy_ns * share) as u64);

        let mut host_ns = 0.0;
        let opened = self.gated(|| {
            let opened = [self.close_gate(pair.source)?, self.close_gate(pair.destination)?];
            for (stream, opened) in [from, to].into_iter().chain(kernels).zip(opened.into_iter().cycle()) {
                driver.wait(stream, opened)?;
            }
            host_ns = self.timed(|| {
                driver.record(ready, to)?;
                driver.wait(from, ready)?;
                driver.record(copy_start, from)?;
                // A copy larger than the buffers is made of several, one right after the other.
                let (mut left, most) = (bytes, source.send.bytes.min(destination.receive.bytes));
                while left > 0 {
                    let part = left.min(most);
                    driver.copy(from, destination.receive, source.send, part)?;
                    left -= part;
                }
                driver.record(copy_end, from)?;
                driver.wait(to, copy_end)
            })?;
            for (stream, [start, end]) in kernels.into_iter().zip(marks) {
                driver.spin(stream, length(SPACER_SHARE))?;
                driver.record(start, stream)?;
                driver.spin(stream, length(KERNEL_SHARE))?;
                driver.record(end, stream)?;
            }
            Ok(opened)
        })?;
        // The event, not the stream: on a default stream the kernel follows the copy.
        let blocking_ns = host_ns + self.timed(|| driver.synchronize_event(copy_end))?;
        for stream in [from, to].into_iter().chain(kernels) {
            driver.synchronize(stream)?;
        }
        self.gates_held()?;

        let [on_source, on_destination] = [0, 1].map(|side: usize| {
            let [start, end] = marks[side];
            self.span(self.opening(opened[side]), start, end)
        });
        let copy = self.span(self.opening(opened[0]), copy_start, copy_end)?;
        Ok(OverlapSample { copy, on_source: on_source?, on_destination: on_destination?, host_ns, blocking_ns })
    }
}

/// The cells of a round: a kernel on either GPU, beside a call that does not block and beside one that does.
/// The devices do the same in both; the one that blocks waits for the event after the copy.
pub(super) fn cells(pair: Pair, setup: Setup, outcome: &Outcome) -> Vec<Overlap> {
    let hosts = [HostMode::NonBlocking, HostMode::Blocking];
    let sides = [Side::Source, Side::Destination];
    hosts.into_iter().flat_map(|host| sides.map(|side| cell(pair, setup, host, side, outcome))).collect()
}

fn cell(pair: Pair, setup: Setup, host: HostMode, compute_on: Side, outcome: &Outcome) -> Overlap {
    let mut cell = Overlap {
        pair,
        placement: Placement { host, ..setup.placement },
        compute_on,
        bytes: setup.bytes,
        overlap_percent: None,
        host_blocked_us: None,
        copy_us: None,
        kernel_us: None,
        samples: 0,
        status: Status::Measured,
        reason: None,
        disturbed: false,
    };
    if let Outcome::Overlap { samples } = outcome {
        let over = |figure: &dyn Fn(&OverlapSample) -> f64| median(&samples.iter().map(figure).collect::<Vec<_>>());
        let kernel = |sample: &OverlapSample| match compute_on {
            Side::Source => sample.on_source,
            Side::Destination => sample.on_destination,
        };
        let host_ns = |sample: &OverlapSample| match host {
            HostMode::NonBlocking => sample.host_ns,
            HostMode::Blocking => sample.blocking_ns,
        };
        cell.overlap_percent =
            over(&|sample| 100.0 * sample.copy.together_ns(kernel(sample)) / kernel(sample).length_ns());
        cell.host_blocked_us = over(&|sample| host_ns(sample) / 1e3);
        cell.copy_us = over(&|sample| sample.copy.length_ns() / 1e3);
        cell.kernel_us = over(&|sample| kernel(sample).length_ns() / 1e3);
        cell.samples = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    } else {
        (cell.status, cell.reason) = without_figures(outcome);
    }
    cell
}
