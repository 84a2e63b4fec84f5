//! Bandwidth of a row of copies.
//!
//! The gate is shut while a row is enqueued, so that the host's launch speed is never timed. Events
//! on the copying stream stand between the copies; the first copy, which carries the start-up of
//! the row, is not counted. Each of the others is one sample. A few small copies follow in the same
//! row, whose time tells what every copy costs beside its bytes (docs/measurement.md).

use super::Outcome;
use std::ops::RangeInclusive;

use super::bench::Bench;
use crate::hardware::{Buffer, ErrorKind, Event, HardwareError, Stream};
use crate::model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use crate::plan::{FIXED_COST_BYTES, FIXED_COST_COPIES, is_blocking};

/// How far a copy may stick out of the time of both directions, as a share of its length.
const SLACK_SHARE: f64 = 0.1;

/// What to time.
pub(super) struct Row {
    pub placement: Placement,
    pub issuer: Side,
    pub engine: Engine,
    pub direction: Direction,
    pub path: Path,
    pub bytes: u64,
    pub samples: u32,
}

/// One direction of a row, with everything it needs.
struct Flow {
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
    pub(super) fn bandwidth(&self, pair: Pair, row: &Row) -> Result<Outcome, HardwareError> {
        self.set_path(pair, row.path)?;
        let mut flows = vec![self.flow(pair, row)?];
        if row.direction == Direction::BothWays {
            flows.push(self.flow(pair.reversed(), row)?);
        }
        let large = row.samples as usize + 1;
        let mut host_ns = 0.0;
        self.gated(|| {
            // The staged path is not gated: its calls hold the host until staging buffers are
            // free, which a closed gate would never let happen.
            if row.path == Path::Direct {
                self.shut(&flows)?;
            }
            // In passes, since the framework's ordering ties a copy to the other device's current
            // stream: one flow after the other, the second would wait for the first. The host's
            // time is that of the first flow's calls for the large copies.
            for (index, flow) in flows.iter().enumerate() {
                let ns = self.timed(|| {
                    self.driver.record(flow.ready, flow.partner)?;
                    self.driver.wait(flow.issuing, flow.ready)
                })?;
                host_ns += if index == 0 { ns } else { 0.0 };
            }
            for (index, flow) in flows.iter().enumerate() {
                let ns = self.timed(|| self.enqueue_copies(flow, row.engine, 0..=large, row.bytes))?;
                host_ns += if index == 0 { ns } else { 0.0 };
            }
            for flow in &flows {
                self.enqueue_copies(flow, row.engine, large + 1..=flow.marks.len() - 1, FIXED_COST_BYTES)?;
            }
            for (index, flow) in flows.iter().enumerate() {
                let ns = self.timed(|| {
                    self.driver.record(flow.done, flow.issuing)?;
                    self.driver.wait(flow.partner, flow.done)
                })?;
                host_ns += if index == 0 { ns } else { 0.0 };
            }
            Ok(())
        })?;
        if is_blocking(row.placement) {
            host_ns += self.timed(|| self.driver.synchronize_event(flows[0].marks[large]))?;
        }
        for flow in &flows {
            self.driver.synchronize(flow.issuing)?;
            self.driver.synchronize(flow.partner)?;
        }
        self.gates_held()?;
        let mut copy_ns = self.intervals(&flows[0].marks[..=large])?;
        let small_ns = self.intervals(flows[0].marks.get(large..).unwrap_or_default())?;
        if let [one, other] = flows.as_slice() {
            copy_ns = while_both(&self.mark_times(one, large)?, &self.mark_times(other, large)?);
        }
        if row.path == Path::Direct
            && row.engine == Engine::Copy
            && let Some(pace) = super::statistics::median(&copy_ns)
        {
            #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
            self.pace.borrow_mut().insert(pair, pace / row.bytes as f64);
        }
        Ok(Outcome::Times { copy_ns, small_ns, host_ns: vec![host_ns / f64::from(row.samples + 1)] })
    }

    /// When the counted copies of a flow began and ended, nanoseconds after its gate opened.
    fn mark_times(&self, flow: &Flow, large: usize) -> Result<Vec<f64>, HardwareError> {
        let opened = self.seat(flow.issuer_index)?.opened;
        flow.marks[1..=large].iter().map(|mark| self.driver.elapsed_ns(opened, *mark)).collect()
    }

    fn flow(&self, pair: Pair, row: &Row) -> Result<Flow, HardwareError> {
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let (partner_side, issuer_index, partner_index) = match row.issuer {
            Side::Source => (Side::Destination, pair.source, pair.destination),
            Side::Destination => (Side::Source, pair.destination, pair.source),
        };
        let issuing = self.current_stream(pair, row.placement, row.issuer)?;
        let partner = self.current_stream(pair, row.placement, partner_side)?;
        // Small copies on the staged path tell of its staging, not of a fixed cost.
        let small = if row.path == Path::Direct { FIXED_COST_COPIES } else { 0 };
        // One mark at each end of every copy, and the end of the row for the partner.
        let count = row.samples as usize + 2 + small;
        let mut marks = self.events(issuing.device, count + 1)?;
        let done = marks.pop().ok_or_else(no_events)?;
        let ready = *self.events(partner.device, count + 2)?.last().ok_or_else(no_events)?;
        Ok(Flow {
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

    /// Closes the gates of the issuing devices, and lets every stream of theirs wait.
    ///
    /// Where streams cannot be held, one direction by itself is measured all the same: its first
    /// copy takes longer than enqueueing the others, and is not counted. Two directions could not be
    /// set against each other.
    fn shut(&self, flows: &[Flow]) -> Result<(), HardwareError> {
        for gated in flows {
            let opened = match self.close_gate(gated.issuer_index) {
                Err(error) if error.kind == ErrorKind::Unsupported && flows.len() == 1 => return Ok(()),
                opened => opened?,
            };
            for flow in flows {
                if flow.issuer_index == gated.issuer_index {
                    self.driver.wait(flow.issuing, opened)?;
                }
                if flow.partner_index == gated.issuer_index {
                    self.driver.wait(flow.partner, opened)?;
                }
            }
        }
        Ok(())
    }

    /// Enqueues the copies that end at these marks, each with its mark; mark 0 ends none.
    fn enqueue_copies(
        &self,
        flow: &Flow,
        engine: Engine,
        marks: RangeInclusive<usize>,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        for index in marks {
            match engine {
                _ if index == 0 => {}
                Engine::Copy => self.driver.copy(flow.issuing, flow.to, flow.from, bytes)?,
                Engine::Kernel => self.driver.kernel_copy(flow.issuing, flow.to, flow.from, bytes)?,
            }
            self.driver.record(flow.marks[index], flow.issuing)?;
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

    /// Time between marks, without the first interval.
    fn intervals(&self, marks: &[Event]) -> Result<Vec<f64>, HardwareError> {
        let interval = |ends: &[Event]| match self.driver.elapsed_ns(ends[0], ends[1])? {
            // The driver said that it had enqueued it.
            ns if ns <= 0.0 => Err(HardwareError::new(ErrorKind::Other, "a copy took no time: it was not made")),
            ns => Ok(ns),
        };
        marks.windows(2).skip(1).map(interval).collect()
    }
}

/// Nanoseconds per copy of one direction while the other was busy too, from when the copies of both
/// began and ended.
///
/// Where the directions run at the same time, the copies that lie within the time of both count as
/// they are: one direction may start a copy later than the other. Where they do not, they take
/// turns, as placements on default streams do: then every copy takes as long as its own turn and
/// the other's.
fn while_both(one: &[f64], other: &[f64]) -> Vec<f64> {
    let copies = |times: &[f64]| -> Vec<f64> { times.windows(2).map(|ends| ends[1] - ends[0]).collect() };
    let all = copies(one);
    let ends = |times: &[f64]| Some((*times.first()?, *times.last()?));
    let (Some((start, end)), Some((other_start, other_end))) = (ends(one), ends(other)) else { return all };
    // Two devices' clocks agree to some microseconds, and neither direction starts exactly when the
    // other does.
    let slack = SLACK_SHARE * super::statistics::median(&all).unwrap_or(0.0);
    let (from, to) = (start.max(other_start) - slack, end.min(other_end) + slack);
    let within: Vec<f64> =
        one.windows(2).filter(|ends| ends[0] >= from && ends[1] <= to).map(|ends| ends[1] - ends[0]).collect();
    if 2 * within.len() >= all.len() {
        return within;
    }
    let own = end - start;
    let together =
        if to < from { own + (other_end - other_start) } else { end.max(other_end) - start.min(other_start) };
    all.iter().map(|ns| ns * together / own).collect()
}

fn no_events() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "no events")
}

#[cfg(test)]
mod tests {
    use super::while_both;

    #[test]
    fn directions_at_the_same_time_count_as_they_are() {
        assert_eq!(while_both(&[0.0, 10.0, 20.0, 30.0], &[0.5, 10.5, 20.5, 30.5]), [10.0; 3]);
    }

    #[test]
    fn a_direction_that_starts_a_copy_later_is_not_slower() {
        assert_eq!(while_both(&[0.0, 10.0, 20.0, 30.0], &[10.0, 20.0, 30.0, 40.0]), [10.0; 2]);
        assert_eq!(while_both(&[10.0, 20.0, 30.0, 40.0], &[0.0, 10.0, 20.0, 30.0]), [10.0; 2]);
    }

    #[test]
    fn directions_that_take_turns_have_half_each() {
        assert_eq!(while_both(&[0.0, 10.0, 20.0, 30.0], &[50.0, 60.0, 70.0, 80.0]), [20.0; 3]);
        assert_eq!(while_both(&[50.0, 60.0, 70.0, 80.0], &[0.0, 10.0, 20.0, 30.0]), [20.0; 3]);
    }
}
