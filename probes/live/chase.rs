//! Times loads of a GPU, each of which has the address of the next: from the memory of another GPU, its own, and the host's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::figures::{no_samples, without_figures};
use hardware::{Buffer, Chase, Device, ErrorKind, HardwareError, Location, Stream};
use model::flow::{Endpoint, Flow};
use model::live::PointerChase;
use model::placement::{Path, StreamKind};
use model::units::MIB;

/// Bytes of the pointers, as in nvbandwidth's test of latency: within the cache of the GPU whose memory is read, and beyond
/// what one line holds.
const BYTES: u64 = 2 * MIB;
/// Place of the pointers in the receive buffer, behind the mailboxes of a talk.
const AT: u64 = 2 * MIB;
/// Distance between two pointers: more than a line.
const STRIDE: u32 = 256;
/// Time after which a chase ends by itself.
const LIMIT: Duration = Duration::from_millis(250);

/// Loads of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// Nanoseconds of one load.
    pub ns: f64,
    /// Loads that were timed.
    pub made: u32,
}

impl Bench<'_> {
    /// Times the loads of these rounds: of different GPUs at once, of one GPU one after the other.
    pub(crate) fn chase(
        &self,
        rounds: &[&Round],
        loads: u32,
    ) -> Result<Vec<Outcome>, HardwareError> {
        for round in rounds {
            for pair in round.flows.iter().filter_map(|flow| flow.pair()) {
                self.set_path(pair, Path::Direct)?;
            }
        }
        let mut found: Vec<Vec<Loads>> = rounds.iter().map(|_| Vec::new()).collect();
        let between =
            rounds.iter().all(|round| round.flows.iter().all(|flow| flow.pair().is_some()));
        if between {
            let started: Vec<Vec<Stream>> = rounds
                .iter()
                .map(|round| round.flows.iter().map(|flow| self.start(*flow, loads)).collect())
                .collect::<Result<_, HardwareError>>()?;
            for (found, streams) in found.iter_mut().zip(started) {
                for stream in streams {
                    found.push(self.loads(stream)?);
                }
            }
        } else {
            for (found, round) in found.iter_mut().zip(rounds) {
                for flow in &round.flows {
                    found.push(self.start(*flow, loads).and_then(|stream| self.loads(stream))?);
                }
            }
        }
        Ok(found.into_iter().map(|loads| Outcome::Chase { loads }).collect())
    }

    /// Launches the loads of a flow, and returns their stream.
    fn start(&self, flow: Flow, loads: u32) -> Result<Stream, HardwareError> {
        let gpu = flow.to.gpu().ok_or_else(|| {
            HardwareError::new(ErrorKind::Other, "the host makes no loads that are timed")
        })?;
        let device = self.open_gpu(gpu)?.device;
        let stream = self.stream(gpu, StreamKind::Side)?;
        #[allow(clippy::cast_possible_truncation, reason = "some thousand")]
        let chase = Chase {
            stream,
            memory: self.pointers(flow.from, device)?,
            count: (BYTES / u64::from(STRIDE)) as u32,
            stride: STRIDE,
            hops: loads,
            limit: LIMIT,
        };
        self.driver.chase(&chase)?;
        Ok(stream)
    }

    fn pointers(&self, of: Endpoint, device: Device) -> Result<Buffer, HardwareError> {
        match of {
            Endpoint::Gpu(gpu) => self.driver.part(self.open_gpu(gpu)?.receive, AT, BYTES),
            Endpoint::Host { node, memory } => {
                let buffer =
                    self.lend(device, Location::Host { memory, node }, BYTES, false, &[])?;
                // It no longer holds a pattern.
                self.holds(buffer, None);
                Ok(buffer)
            }
        }
    }

    /// Waits for the loads of a stream.
    #[allow(clippy::cast_precision_loss, reason = "a quarter of a second")]
    fn loads(&self, stream: Stream) -> Result<Loads, HardwareError> {
        self.driver.synchronize(stream)?;
        let hops = self.driver.chased(stream.device)?;
        if hops.made == 0 || hops.ns == 0 {
            let why = "the kernel that loads has left no result: it was not run";
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        Ok(Loads {
            ns: hops.ns as f64 / hops.made as f64,
            made: u32::try_from(hops.made).unwrap_or(u32::MAX),
        })
    }
}

/// Returns the cells of a round, one for each flow.
pub(crate) fn cells(round: &Round, outcome: &Outcome) -> Vec<PointerChase> {
    let flows = round.flows.iter().enumerate();
    flows.filter_map(|(at, flow)| cell(*flow, at, outcome)).collect()
}

fn cell(flow: Flow, at: usize, outcome: &Outcome) -> Option<PointerChase> {
    let mut cell = PointerChase::of(flow)?;
    match outcome {
        Outcome::Chase { loads } => match loads.get(at) {
            Some(loads) => {
                cell.load_us = Some(loads.ns / 1e3);
                cell.samples = loads.made;
            }
            None => cell.ending = no_samples(),
        },
        _ => cell.ending = without_figures(outcome),
    }
    Some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::flow::HostMemory;
    use model::live::Chased;
    use model::status::Status;

    #[test]
    fn each_flow_has_the_latency_of_its_memory() {
        let outcome = Outcome::Chase {
            loads: vec![Loads { ns: 142.0, made: 1000 }, Loads { ns: 1160.0, made: 1000 }],
        };
        let own = cell(Flow::inside(3), 0, &outcome).unwrap();
        assert_eq!((own.memory, own.of_gpu, own.load_us), (Chased::Own, Some(3), Some(0.142)));
        let host = Flow::from_host(Some(1), HostMemory::Pinned, 3);
        let host = cell(host, 1, &outcome).unwrap();
        assert_eq!((host.memory, host.numa_node, host.of_gpu), (Chased::Host, Some(1), None));
        assert_eq!(host.load_us, Some(1.16));
        let third = cell(Flow::inside(3), 2, &outcome).unwrap();
        assert_eq!(third.ending.status, Status::Failed);
        let other = cell(Flow::inside(3), 0, &Outcome::Noted).unwrap();
        assert!(other.load_us.is_none() && other.ending.reason.is_some());
    }
}
