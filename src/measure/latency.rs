//! Measures the time of one small copy in a row of them, as p2pBandwidthLatencyTest does.

use super::bench::{Bench, Origin};
use super::figures::{count, rates};
use super::statistics::{median, spread_percent};
use super::{Outcome, Row};
use hardware::HardwareError;
use model::flow::Setup;
use model::measurement::Latency;
use model::placement::{Pair, Path, Side};
use plan::{LATENCY_COPIES, stream_of};

impl Bench<'_> {
    pub(super) fn latency(
        &self,
        pair: Pair,
        setup: Setup,
        samples: u32,
    ) -> Result<Outcome, HardwareError> {
        self.set_path(pair, setup.path)?;
        let (source, destination) = (
            self.open_gpu(pair.source)?,
            self.open_gpu(pair.destination)?,
        );
        let stream = self.current_stream(pair, setup.placement, Side::Source)?;
        let events = self.events(source.device, 2)?;
        let (mut rows, mut host_ns) = (Vec::new(), Vec::new());
        // The first row warms up and is not counted.
        for _ in 0..=samples {
            let (began, mut enqueue_ns) = (self.driver.now(), 0.0);
            self.gated(|| {
                if setup.path == Path::Direct {
                    let opened = self.close_gate(pair.source)?;
                    self.driver.wait(stream, opened)?;
                }
                self.driver.record(events[0], stream)?;
                let copy = || {
                    self.driver
                        .copy(stream, destination.receive, source.send, setup.bytes.0)
                };
                enqueue_ns = self.timed(|| (0..LATENCY_COPIES).try_for_each(|_| copy()))?;
                self.driver.record(events[1], stream)
            })?;
            host_ns.push(enqueue_ns / f64::from(LATENCY_COPIES));
            self.driver.synchronize(stream)?;
            self.gates_held()?;
            let origin = match setup.path {
                Path::Direct => self.opening(source.opened),
                Path::Staged => Origin {
                    event: events[0],
                    at: began,
                },
            };
            rows.extend(self.spans(origin, &events)?);
        }
        rows.remove(0);
        host_ns.remove(0);
        let stream = stream_of(setup.placement, Side::Source);
        let row = Row {
            gpu: pair.source,
            stream,
            copies: LATENCY_COPIES,
            rows,
            host_ns,
            at_once: 1,
            ..Row::default()
        };
        Ok(Outcome::Rows { rows: vec![row] })
    }
}

/// Returns the cell of a round.
pub(super) fn cell(pair: Pair, setup: Setup, outcome: &Outcome) -> Latency {
    let mut cell = Latency::blank(pair, setup.path, setup.bytes);
    match rates(outcome, 0) {
        Ok(rates) => {
            cell.latency_us = median(&rates.copy_ns).map(|ns| ns / 1e3);
            cell.samples = count(&rates.copy_ns);
            cell.spread_percent = spread_percent(&rates.copy_ns);
        }
        Err(why) => cell.ending = why,
    }
    cell
}
