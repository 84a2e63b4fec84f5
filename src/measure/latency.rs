//! Time of one small copy in a row of them, as p2pBandwidthLatencyTest measures it.

use super::bench::{Bench, Origin};
use super::figures::{count, rates};
use super::statistics::{median, spread_percent};
use super::{Outcome, Row};
use crate::hardware::HardwareError;
use crate::model::flow::Setup;
use crate::model::measurement::{Latency, Status};
use crate::model::placement::{Pair, Path, Side};
use crate::plan::{LATENCY_COPIES, stream_of};

impl Bench<'_> {
    /// Each span of the row that comes of it is one sample of [`LATENCY_COPIES`].
    pub(super) fn latency(&self, pair: Pair, setup: Setup, samples: u32) -> Result<Outcome, HardwareError> {
        self.set_path(pair, setup.path)?;
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let stream = self.current_stream(pair, setup.placement, Side::Source)?;
        let events = self.events(source.device, 2)?;
        let (mut copies, mut host_ns) = (Vec::new(), Vec::new());
        // The first row warms up and is not counted.
        for _ in 0..=samples {
            let began = self.driver.now();
            self.gated(|| {
                if setup.path == Path::Direct {
                    let opened = self.close_gate(pair.source)?;
                    self.driver.wait(stream, opened)?;
                }
                self.driver.record(events[0], stream)?;
                let copy = || self.driver.copy(stream, destination.receive, source.send, setup.bytes.0);
                let host = self.timed(|| (0..LATENCY_COPIES).try_for_each(|_| copy()))?;
                host_ns.push(host / f64::from(LATENCY_COPIES));
                self.driver.record(events[1], stream)
            })?;
            self.driver.synchronize(stream)?;
            self.gates_held()?;
            let origin = match setup.path {
                Path::Direct => self.opening(source.opened),
                Path::Staged => Origin { event: events[0], at: began },
            };
            copies.extend(self.spans(origin, &events)?);
        }
        host_ns.remove(0);
        let stream = stream_of(setup.placement, Side::Source);
        Ok(Outcome::Rows { rows: vec![Row { gpu: pair.source, stream, copies, small: Vec::new(), host_ns }] })
    }
}

/// The cell of a round.
pub(super) fn cell(pair: Pair, setup: Setup, outcome: &Outcome) -> Latency {
    let mut cell = Latency {
        pair,
        path: setup.path,
        bytes: setup.bytes,
        latency_us: None,
        samples: 0,
        spread_percent: None,
        status: Status::Measured,
        reason: None,
        disturbed: false,
    };
    match rates(outcome, 0) {
        Ok(rates) => {
            let copy_ns: Vec<_> = rates.copy_ns.iter().map(|ns| ns / f64::from(LATENCY_COPIES)).collect();
            cell.latency_us = median(&copy_ns).map(|ns| ns / 1e3);
            cell.samples = count(&copy_ns);
            cell.spread_percent = spread_percent(&copy_ns);
        }
        Err(why) => (cell.status, cell.reason) = why,
    }
    cell
}
