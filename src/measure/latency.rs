//! Time of one small copy in a row of them, as p2pBandwidthLatencyTest measures it.

use super::Outcome;
use super::bench::Bench;
use crate::hardware::HardwareError;
use crate::model::placement::{Pair, Path, Placement, Side};
use crate::plan::{LATENCY_BYTES, LATENCY_COPIES};

impl Bench<'_> {
    pub(super) fn latency(&self, pair: Pair, path: Path, samples: u32) -> Result<Outcome, HardwareError> {
        self.set_path(pair, path)?;
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let stream = self.current_stream(pair, Placement::REFERENCE, Side::Source)?;
        let events = self.events(source.device, 2)?;
        let (mut copy_ns, mut host_ns) = (Vec::new(), Vec::new());
        // The first row warms up and is not counted.
        for _ in 0..=samples {
            self.gated(|| {
                if path == Path::Direct {
                    let opened = self.close_gate(pair.source)?;
                    self.driver.wait(stream, opened)?;
                }
                self.driver.record(events[0], stream)?;
                let host = self.timed(|| {
                    (0..LATENCY_COPIES)
                        .try_for_each(|_| self.driver.copy(stream, destination.receive, source.send, LATENCY_BYTES))
                })?;
                host_ns.push(host / f64::from(LATENCY_COPIES));
                self.driver.record(events[1], stream)
            })?;
            self.driver.synchronize(stream)?;
            self.gates_held()?;
            copy_ns.push(self.driver.elapsed_ns(events[0], events[1])? / f64::from(LATENCY_COPIES));
        }
        copy_ns.remove(0);
        host_ns.remove(0);
        Ok(Outcome::Times { copy_ns, small_ns: Vec::new(), host_ns })
    }
}
