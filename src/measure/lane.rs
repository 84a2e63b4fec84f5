//! One flow with the resources for a row of its copies, and the row itself.
//!
//! A row is plain: an event before its first copy, one after its last, and none between. Every event between two copies
//! costs time (2.9 µs on H200, docs/measurement.md). The gate is shut while the row is enqueued, so that the host's
//! launch speed is never timed. A small copy before the first event takes the start-up of the copy engine.

use super::Span;
use super::bench::{Bench, Origin};
use hardware::{Buffer, ErrorKind, Event, HardwareError, Stream};
use model::flow::Setup;
use model::placement::{Engine, Pair, Path, Placement, Side};
use model::units::MIB;
use plan::is_blocking;

/// Bytes of the copy before a row's first event.
const WARM_BYTES: u64 = MIB;

/// One flow, with all its resources.
pub(super) struct Lane {
    from: Buffer,
    to: Buffer,
    /// The stream of the issuing device that copies.
    issuing: Stream,
    /// The other device's current stream, which framework ordering ties to the copy.
    partner: Stream,
    /// NVML index of the issuing device.
    pub(super) issuer_index: u32,
    partner_index: u32,
    /// Events before the first copy, and after each marked copy.
    marks: Vec<Event>,
    /// Event of the partner's work before the copy.
    ready: Event,
}

/// The parameters of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub engine: Engine,
    pub path: Path,
    pub placement: Placement,
    pub bytes: u64,
    pub copies: u32,
    /// True if an event follows each copy, and not only the last.
    pub marked: bool,
}

impl Shape {
    pub(super) const fn of(setup: Setup, copies: u32) -> Self {
        let Setup {
            engine,
            path,
            placement,
            bytes,
            ..
        } = setup;
        Self {
            engine,
            path,
            placement,
            bytes: bytes.0,
            copies,
            marked: false,
        }
    }

    /// Returns true if an event is recorded after this copy, counted from 1.
    const fn has_mark(&self, copy: u32) -> bool {
        self.marked || copy == self.copies
    }
}

/// The times of one lane's row.
pub(super) struct Timed {
    /// The row, or its single copies if they are marked.
    pub spans: Vec<Span>,
    /// Nanoseconds of host time for one copy with its ordering.
    pub host_ns: f64,
}

/// Host time of one lane, nanoseconds: `around` for calls before and after the copies of a row, `copies` for the
/// copies.
#[derive(Clone, Copy, Default)]
struct HostTime {
    around: f64,
    copies: f64,
}

impl Bench<'_> {
    pub(super) fn lane(
        &self,
        pair: Pair,
        setup: Setup,
        copies: u32,
    ) -> Result<Lane, HardwareError> {
        let (source, destination) = (
            self.open_gpu(pair.source)?,
            self.open_gpu(pair.destination)?,
        );
        let (partner_side, issuer_index, partner_index) = match setup.issuer {
            Side::Source => (Side::Destination, pair.source, pair.destination),
            Side::Destination => (Side::Source, pair.destination, pair.source),
        };
        let issuing = self.current_stream(pair, setup.placement, setup.issuer)?;
        let partner = self.current_stream(pair, setup.placement, partner_side)?;
        // The partner's event follows those that the partner may need itself, if copies go both ways.
        let count = copies as usize + 1;
        let marks = self.events(issuing.device, count)?;
        let ready = *self
            .events(partner.device, count + 1)?
            .last()
            .ok_or_else(no_events)?;
        let (from, to) = (source.send, destination.receive);
        Ok(Lane {
            from,
            to,
            issuing,
            partner,
            issuer_index,
            partner_index,
            marks,
            ready,
        })
    }

    /// Times one row of each lane, all at once.
    pub(super) fn row(&self, lanes: &[Lane], shape: Shape) -> Result<Vec<Timed>, HardwareError> {
        let mut host = vec![HostTime::default(); lanes.len()];
        let mut gated = false;
        let began = self.driver.now();
        self.gated(|| {
            host.fill(HostTime::default());
            // The staged path is not gated: its calls hold the host until staging buffers are free, and behind a closed
            // gate they would never return.
            if shape.path == Path::Direct {
                gated = self.shut(lanes)?;
            }
            // Enqueue in passes, since the framework's ordering ties a copy to the other device's current stream. One
            // flow after the other, the second would wait for the first.
            for (lane, host) in lanes.iter().zip(&mut host) {
                host.around += self.timed(|| {
                    self.driver.record(lane.ready, lane.partner)?;
                    self.driver.wait(lane.issuing, lane.ready)
                })?;
            }
            for (lane, host) in lanes.iter().zip(&mut host) {
                // Without a gate the copy must last until the others are enqueued.
                self.copy_once(
                    lane,
                    shape,
                    if gated {
                        WARM_BYTES.min(shape.bytes)
                    } else {
                        shape.bytes
                    },
                )?;
                host.copies += self.timed(|| self.enqueue(lane, shape))?;
            }
            Ok(())
        })?;
        // All waits count from the same moment: each flow waits for its own copies.
        let mut waited = 0.0;
        for (lane, host) in lanes.iter().zip(&mut host) {
            waited += self.timed(|| self.driver.synchronize_event(lane.end(shape)))?;
            host.copies += if is_blocking(shape.placement) {
                waited
            } else {
                0.0
            };
        }
        // Enqueue these waits only after the copies have ended. On H200 a waiting stream of the source alone makes each
        // copy that the destination issues 3.4 µs longer (docs/measurement.md). Figures of other tools do not contain
        // that.
        for (lane, host) in lanes.iter().zip(&mut host) {
            host.around += self.timed(|| self.driver.wait(lane.partner, lane.end(shape)))?;
        }
        for lane in lanes {
            self.driver.synchronize(lane.issuing)?;
            self.driver.synchronize(lane.partner)?;
        }
        self.gates_held()?;
        let times = |(lane, host): (&Lane, HostTime)| {
            let origin = match gated {
                true => self.opening(self.open_gpu(lane.issuer_index)?.opened),
                false => Origin {
                    event: lane.marks[0],
                    at: began,
                },
            };
            let marked = (0..=shape.copies).filter(|copy| *copy == 0 || shape.has_mark(*copy));
            let marks: Vec<_> = marked.map(|copy| lane.marks[copy as usize]).collect();
            let host_ns = host.around + host.copies / f64::from(shape.copies);
            Ok(Timed {
                spans: self.spans(origin, &marks)?,
                host_ns,
            })
        };
        lanes.iter().zip(host).map(times).collect()
    }

    /// Closes the gates of the issuing devices, and lets all their streams wait. Returns false if streams cannot be
    /// held.
    ///
    /// One flow by itself is measured even then: the copy before its row takes longer than enqueueing the others.
    /// Several flows could not be compared.
    fn shut(&self, lanes: &[Lane]) -> Result<bool, HardwareError> {
        for gated in lanes {
            let opened = match self.close_gate(gated.issuer_index) {
                Err(error) if error.kind == ErrorKind::Unsupported && lanes.len() == 1 => {
                    return Ok(false);
                }
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

    /// Enqueues the copies of a row, with their marks.
    fn enqueue(&self, lane: &Lane, shape: Shape) -> Result<(), HardwareError> {
        self.driver.record(lane.marks[0], lane.issuing)?;
        for copy in 1..=shape.copies {
            self.copy_once(lane, shape, shape.bytes)?;
            if shape.has_mark(copy) {
                self.driver
                    .record(lane.marks[copy as usize], lane.issuing)?;
            }
        }
        Ok(())
    }

    fn copy_once(&self, lane: &Lane, shape: Shape, bytes: u64) -> Result<(), HardwareError> {
        self.driver
            .copy(shape.engine, lane.issuing, lane.to, lane.from, bytes)
    }

    /// Returns the host nanoseconds of a closure.
    #[allow(
        clippy::cast_precision_loss,
        reason = "host times need no more than 53 bits"
    )]
    pub(super) fn timed(
        &self,
        run: impl FnOnce() -> Result<(), HardwareError>,
    ) -> Result<f64, HardwareError> {
        let began = self.driver.now();
        run()?;
        Ok(self.driver.now().saturating_sub(began).as_nanos() as f64)
    }
}

impl Lane {
    /// Returns the event after the last copy of a row.
    fn end(&self, shape: Shape) -> Event {
        self.marks[shape.copies as usize]
    }
}

fn no_events() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "no events")
}
