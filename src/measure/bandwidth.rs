//! Bandwidth of a row of copies.
//!
//! The gate is shut while a row is enqueued, so that the host's launch speed is never timed. Events
//! on the copying stream stand between the copies; the first copy, which carries the start-up of
//! the row, is not counted. Each of the others is one sample. A few small copies follow in the same
//! row, whose time tells what every copy costs beside its bytes (docs/measurement.md).

use std::ops::RangeInclusive;

use super::bench::{Bench, Origin};
use super::figures::{Rates, count};
use super::statistics::{median, spread_percent};
use super::verify::Verifications;
use super::{Outcome, Row};
use crate::hardware::{Buffer, ErrorKind, Event, HardwareError, Stream};
use crate::model::flow::Setup;
use crate::model::measurement::{PeerBandwidth, Status, Verified};
use crate::model::placement::{Engine, Pair, Path, Side};
use crate::model::topology::Topology;
use crate::model::units::{Bytes, GbPerSecond};
use crate::plan::{FIXED_COST_BYTES, FIXED_COST_COPIES, is_blocking, stream_of};

/// One flow of a row, with everything it needs.
struct Lane {
    from: Buffer,
    to: Buffer,
    /// The stream that copies, of the issuing device.
    issuing: Stream,
    /// The other device's current stream, which framework ordering ties to the copy.
    partner: Stream,
    /// The device index that issues.
    issuer_index: u32,
    partner_index: u32,
    /// Between the copies, one more than there are copies.
    marks: Vec<Event>,
    /// Work of the partner before the copy, and the copy's end.
    ready: Event,
    done: Event,
}

impl Bench<'_> {
    /// Times a row of copies of each pair, all at once.
    pub(super) fn bandwidth(&self, pairs: &[Pair], setup: Setup, samples: u32) -> Result<Outcome, HardwareError> {
        let mut lanes = Vec::new();
        for &pair in pairs {
            self.set_path(pair, setup.path)?;
            lanes.push(self.lane(pair, setup, samples)?);
        }
        let large = samples as usize + 1;
        let mut host_ns = vec![0.0; lanes.len()];
        let mut gated = false;
        let began = self.driver.now();
        self.gated(|| {
            // The staged path is not gated: its calls hold the host until staging buffers are
            // free, which a closed gate would never let happen.
            if setup.path == Path::Direct {
                gated = self.shut(&lanes)?;
            }
            // In passes, since the framework's ordering ties a copy to the other device's current
            // stream: one flow after the other, the second would wait for the first. The host's
            // time is that of a flow's own calls for the large copies.
            for (lane, ns) in lanes.iter().zip(&mut host_ns) {
                *ns += self.timed(|| {
                    self.driver.record(lane.ready, lane.partner)?;
                    self.driver.wait(lane.issuing, lane.ready)
                })?;
            }
            for (lane, ns) in lanes.iter().zip(&mut host_ns) {
                *ns += self.timed(|| self.enqueue_copies(lane, setup.engine, 0..=large, setup.bytes.0))?;
            }
            for lane in &lanes {
                self.enqueue_copies(lane, setup.engine, large + 1..=lane.marks.len() - 1, FIXED_COST_BYTES)?;
            }
            for (lane, ns) in lanes.iter().zip(&mut host_ns) {
                *ns += self.timed(|| {
                    self.driver.record(lane.done, lane.issuing)?;
                    self.driver.wait(lane.partner, lane.done)
                })?;
            }
            Ok(())
        })?;
        if is_blocking(setup.placement) {
            for (lane, ns) in lanes.iter().zip(&mut host_ns) {
                *ns += self.timed(|| self.driver.synchronize_event(lane.marks[large]))?;
            }
        }
        for lane in &lanes {
            self.driver.synchronize(lane.issuing)?;
            self.driver.synchronize(lane.partner)?;
        }
        self.gates_held()?;
        let row = |(lane, host_ns): (&Lane, f64)| {
            let origin = match gated {
                true => self.opening(self.seat(lane.issuer_index)?.opened),
                false => Origin { event: lane.marks[0], at: began },
            };
            Ok(Row {
                gpu: lane.issuer_index,
                stream: stream_of(setup.placement, setup.issuer),
                copies: self.spans(origin, &lane.marks[..=large])?,
                small: self.spans(origin, &lane.marks[large..])?,
                host_ns: vec![host_ns / f64::from(samples + 1)],
            })
        };
        let rows = lanes.iter().zip(host_ns).map(row).collect::<Result<Vec<_>, HardwareError>>()?;
        if let ([pair], [row]) = (pairs, rows.as_slice())
            && (setup.path, setup.engine) == (Path::Direct, Engine::Copy)
            && let Some(pace) = median(&row.copy_ns())
        {
            #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
            self.pace.borrow_mut().insert(*pair, pace / setup.bytes.0 as f64);
        }
        Ok(Outcome::Rows { rows })
    }

    fn lane(&self, pair: Pair, setup: Setup, samples: u32) -> Result<Lane, HardwareError> {
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let (partner_side, issuer_index, partner_index) = match setup.issuer {
            Side::Source => (Side::Destination, pair.source, pair.destination),
            Side::Destination => (Side::Source, pair.destination, pair.source),
        };
        let issuing = self.current_stream(pair, setup.placement, setup.issuer)?;
        let partner = self.current_stream(pair, setup.placement, partner_side)?;
        // Small copies on the staged path say something of its staging and nothing of a fixed cost.
        let small = if setup.path == Path::Direct { FIXED_COST_COPIES } else { 0 };
        // One mark at each end of every copy, and the end of the row for the partner.
        let count = samples as usize + 2 + small;
        let mut marks = self.events(issuing.device, count + 1)?;
        let done = marks.pop().ok_or_else(no_events)?;
        let ready = *self.events(partner.device, count + 2)?.last().ok_or_else(no_events)?;
        Ok(Lane {
            from: source.send,
            to: destination.receive,
            issuing,
            partner,
            issuer_index,
            partner_index,
            marks,
            ready,
            done,
        })
    }

    /// Closes the gates of the issuing devices, and lets every stream of theirs wait; whether it could.
    ///
    /// Where streams cannot be held, one flow by itself is measured all the same: its first copy takes
    /// longer than enqueueing the others, and is not counted. Several could not be compared.
    fn shut(&self, lanes: &[Lane]) -> Result<bool, HardwareError> {
        for gated in lanes {
            let opened = match self.close_gate(gated.issuer_index) {
                Err(error) if error.kind == ErrorKind::Unsupported && lanes.len() == 1 => return Ok(false),
                opened => opened?,
            };
            for lane in lanes {
                if lane.issuer_index == gated.issuer_index {
                    self.driver.wait(lane.issuing, opened)?;
                }
                if lane.partner_index == gated.issuer_index {
                    self.driver.wait(lane.partner, opened)?;
                }
            }
        }
        Ok(true)
    }

    /// Enqueues the copies that end at these marks, each with its mark; mark 0 ends none.
    fn enqueue_copies(
        &self,
        lane: &Lane,
        engine: Engine,
        marks: RangeInclusive<usize>,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        for index in marks {
            match engine {
                _ if index == 0 => {}
                Engine::Copy => self.driver.copy(lane.issuing, lane.to, lane.from, bytes)?,
                Engine::Kernel => self.driver.kernel_copy(lane.issuing, lane.to, lane.from, bytes)?,
            }
            self.driver.record(lane.marks[index], lane.issuing)?;
        }
        Ok(())
    }

    /// Host nanoseconds that something took.
    #[allow(clippy::cast_precision_loss, reason = "host times need no more than 53 bits")]
    pub(super) fn timed(&self, run: impl FnOnce() -> Result<(), HardwareError>) -> Result<f64, HardwareError> {
        let began = self.driver.now();
        run()?;
        Ok(self.driver.now().saturating_sub(began).as_nanos() as f64)
    }
}

/// The cell of one flow.
pub(super) fn cell(
    pair: Pair,
    setup: Setup,
    rates: Result<Rates, (Status, Option<String>)>,
    verified: &Verifications,
    topology: &Topology,
) -> PeerBandwidth {
    let guard = verified.of(pair.into(), setup);
    let theoretical = topology.route(pair).and_then(|route| route.theoretical(setup.path));
    let (mut status, mut reason) = (Status::Measured, None);
    let (mut gbps, mut host_ns, mut fixed) = (Vec::new(), Vec::new(), None);
    match rates {
        Ok(rates) => {
            fixed = fixed_cost_ns(setup.bytes, &rates.copy_ns, &rates.small_ns);
            let rate = |ns: &f64| GbPerSecond::of(setup.bytes.0, ns - fixed.unwrap_or(0.0)).0;
            gbps = rates.copy_ns.iter().map(rate).collect();
            host_ns = rates.host_ns;
        }
        Err(why) => {
            (status, reason) = why;
            if let (Status::Skipped, Some((lost, why))) = (status, verified.lost(pair.into(), setup)) {
                (status, reason) = (*lost, Some(why.clone()));
            }
        }
    }
    let achieved = median(&gbps).map(GbPerSecond);
    if status == Status::Measured && achieved.is_none() {
        (status, reason) = (Status::Failed, Some("the worker gave no samples".into()));
    }
    PeerBandwidth {
        pair,
        setup,
        achieved_gbps: achieved,
        theoretical_gbps: theoretical,
        percent: achieved.zip(theoretical).map(|(achieved, theoretical)| achieved.percent_of(theoretical)),
        expected_gbps: None,
        expected_low_gbps: None,
        expected_high_gbps: None,
        expected_percent: None,
        samples: count(&gbps),
        spread_percent: spread_percent(&gbps),
        fixed_cost_us: fixed.map(|ns| ns / 1e3),
        host_blocked_us: median(&host_ns).map(|ns| ns / 1e3),
        verified: guard.map_or(Verified::Skipped, |guard| guard.verified),
        verification_detail: guard.and_then(|guard| guard.detail.clone()),
        status,
        reason,
        disturbed: false,
    }
}

/// What every copy of a row costs beside its bytes, nanoseconds: two sizes give a line, whose value
/// at no bytes it is. The fastest small copy counts: what varies from copy to copy is not fixed, and
/// taking it out would give figures that no copy has reached. None where there are no small copies,
/// or where the line makes no sense.
#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn fixed_cost_ns(bytes: Bytes, copy_ns: &[f64], small_ns: &[f64]) -> Option<f64> {
    let (large, small) = (median(copy_ns)?, small_ns.iter().copied().reduce(f64::min)?);
    if bytes.0 <= FIXED_COST_BYTES || small >= large {
        return None;
    }
    let per_byte = (large - small) / (bytes.0 - FIXED_COST_BYTES) as f64;
    let fixed = small - per_byte * FIXED_COST_BYTES as f64;
    (0.0..large).contains(&fixed).then_some(fixed)
}

fn no_events() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "no events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::MIB;

    #[test]
    fn the_fixed_cost_is_found_and_taken_out() {
        // 400 GB/s and 6 µs for every copy.
        let time = |bytes: u64| bytes as f64 / 400.0 + 6000.0;
        let bytes = Bytes(64 * MIB);
        let fixed = fixed_cost_ns(bytes, &[time(bytes.0); 3], &[time(MIB); 3]).unwrap();
        assert!((fixed - 6000.0).abs() < 1e-6, "{fixed}");
        assert!((GbPerSecond::of(bytes.0, time(bytes.0) - fixed).0 - 400.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_that_makes_no_sense_takes_nothing_out() {
        let bytes = Bytes(64 * MIB);
        assert_eq!(fixed_cost_ns(bytes, &[100.0], &[]), None);
        assert_eq!(fixed_cost_ns(bytes, &[100.0], &[200.0]), None);
        assert_eq!(fixed_cost_ns(bytes, &[6400.0], &[50.0]), None);
        assert_eq!(fixed_cost_ns(Bytes(MIB), &[100.0], &[90.0]), None);
    }
}
