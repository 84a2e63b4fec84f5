//! Overlap of a copy with a kernel on a default stream, per stream placement.
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
use crate::model::placement::{Pair, Path, Side};
use crate::model::units::{Bytes, MIB};
use crate::plan::is_blocking;

/// Length of the spacer before the kernel, as a share of the copy's time.
const SPACER_SHARE: f64 = 0.2;
/// Length of the kernel, as a share of the copy's time. Spacer and kernel end well before the copy.
const KERNEL_SHARE: f64 = 0.5;
/// Copies timed to learn the pair's pace where no bandwidth was measured before.
const PACE_SAMPLES: u32 = 2;
/// Their size.
const PACE_BYTES: u64 = 64 * MIB;

impl Bench<'_> {
    pub(super) fn overlap(
        &self,
        pair: Pair,
        setup: Setup,
        compute_on: Side,
        samples: u32,
    ) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let pace = self.pace_of(pair)?;
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let copy_ns = pace * setup.bytes.0 as f64;
        // The first round of a placement warms it up and is not counted.
        let mut all = Vec::new();
        for _ in 0..=samples {
            all.push(self.overlap_once(pair, setup, compute_on, copy_ns)?);
        }
        all.remove(0);
        Ok(Outcome::Overlap { samples: all })
    }

    fn pace_of(&self, pair: Pair) -> Result<f64, HardwareError> {
        let known = || self.pace.borrow().get(&pair).copied();
        if known().is_none() {
            let most = self.seat(pair.source)?.send.bytes.min(self.seat(pair.destination)?.receive.bytes);
            let setup = Setup::REFERENCE.with_bytes(Bytes(PACE_BYTES.min(most)));
            self.bandwidth(&[pair], setup, PACE_SAMPLES)?;
        }
        known().ok_or_else(|| HardwareError::new(ErrorKind::Other, "the pair's pace could not be measured"))
    }

    fn overlap_once(
        &self,
        pair: Pair,
        Setup { placement, bytes, .. }: Setup,
        compute_on: Side,
        copy_ns: f64,
    ) -> Result<OverlapSample, HardwareError> {
        let driver = self.driver;
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let from = self.current_stream(pair, placement, Side::Source)?;
        let to = self.current_stream(pair, placement, Side::Destination)?;
        let computing = match compute_on {
            Side::Source => source.device,
            Side::Destination => destination.device,
        };
        let compute = Stream::default_of(computing);
        let [copy_start, copy_end, kernel_start, kernel_end, ready] = {
            let (on_source, on_destination) = (self.events(source.device, 4)?, self.events(destination.device, 4)?);
            let on_compute = if compute_on == Side::Source { &on_source } else { &on_destination };
            [on_source[0], on_source[1], on_compute[2], on_compute[3], on_destination[0]]
        };
        let length = |share: f64| Duration::from_nanos((copy_ns * share) as u64);

        let mut host_ns = 0.0;
        let (source_opened, destination_opened) = self.gated(|| {
            let source_opened = self.close_gate(pair.source)?;
            let destination_opened = self.close_gate(pair.destination)?;
            driver.wait(from, source_opened)?;
            driver.wait(to, destination_opened)?;
            driver.wait(compute, if compute_on == Side::Source { source_opened } else { destination_opened })?;

            host_ns = self.timed(|| {
                driver.record(ready, to)?;
                driver.wait(from, ready)?;
                driver.record(copy_start, from)?;
                // A copy larger than the buffers is made of several, one right after the other.
                let (mut left, most) = (bytes.0, source.send.bytes.min(destination.receive.bytes));
                while left > 0 {
                    let part = left.min(most);
                    driver.copy(from, destination.receive, source.send, part)?;
                    left -= part;
                }
                driver.record(copy_end, from)?;
                driver.wait(to, copy_end)
            })?;

            driver.spin(compute, length(SPACER_SHARE))?;
            driver.record(kernel_start, compute)?;
            driver.spin(compute, length(KERNEL_SHARE))?;
            driver.record(kernel_end, compute)?;
            Ok((source_opened, destination_opened))
        })?;
        if is_blocking(placement) {
            // The event, not the stream: on a default stream the kernel follows the copy.
            host_ns += self.timed(|| driver.synchronize_event(copy_end))?;
        }
        for stream in [from, to, compute] {
            driver.synchronize(stream)?;
        }
        self.gates_held()?;

        let kernel_zero = if compute_on == Side::Source { source_opened } else { destination_opened };
        Ok(OverlapSample {
            copy: self.span(self.opening(source_opened), copy_start, copy_end)?,
            kernel: self.span(self.opening(kernel_zero), kernel_start, kernel_end)?,
            host_ns,
        })
    }
}

/// The cell of a round.
pub(super) fn cell(pair: Pair, setup: Setup, compute_on: Side, outcome: &Outcome) -> Overlap {
    let mut cell = Overlap {
        pair,
        placement: setup.placement,
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
        cell.overlap_percent =
            over(&|sample| 100.0 * sample.copy.together_ns(sample.kernel) / sample.kernel.length_ns());
        cell.host_blocked_us = over(&|sample| sample.host_ns / 1e3);
        cell.copy_us = over(&|sample| sample.copy.length_ns() / 1e3);
        cell.kernel_us = over(&|sample| sample.kernel.length_ns() / 1e3);
        cell.samples = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    } else {
        (cell.status, cell.reason) = without_figures(outcome);
    }
    cell
}
