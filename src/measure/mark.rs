//! Reads the error counters before the first load pattern. Reading those of 18 NVLinks takes NVML 16 ms for each GPU,
//! so they are read beside the earlier copies.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::errors::{Links, collect_links, read_functions, read_links};
use hardware::Telemetry;
use model::snapshot::{Gpu, NvLink, PciFunction, Snapshot};
use plan::{Action, Round};

/// Number of rounds before the first load pattern at which the reading begins: with 8 GPUs they take longer than the
/// reading.
const AHEAD: u32 = 16;

/// A reader that starts once the load patterns are near.
pub struct Marker {
    telemetry: Arc<dyn Telemetry>,
    gpus: Vec<Gpu>,
    /// The first pattern, and the one with which a reading of every GPU is taken at once.
    first: u32,
    during: Option<u32>,
    state: State,
}

enum State {
    NotYet,
    UnderWay(mpsc::Receiver<Links>, mpsc::Receiver<Vec<PciFunction>>),
    Read(Marked),
}

#[derive(Debug, Default)]
pub struct Marked {
    /// Active NVLinks with their error counters, by GPU.
    pub links: HashMap<u32, Vec<NvLink>>,
    /// PCI functions with their error counters.
    pub functions: Vec<PciFunction>,
}

impl Marker {
    /// Prepares the reading for these rounds; none if they include no load pattern.
    pub fn new(
        telemetry: &Arc<dyn Telemetry>,
        snapshot: &Snapshot,
        rounds: &[Round],
    ) -> Option<Self> {
        let loads = rounds.iter().filter(|round| matches!(round.task.action, Action::Load { .. }));
        let mut loads = loads.map(|round| round.id);
        let first = loads.next()?;
        // Take the second pattern if there is one: the counters of traffic are read around the first.
        let during = Some(loads.next().unwrap_or(first));
        let (telemetry, gpus) = (Arc::clone(telemetry), snapshot.gpus.clone());
        let copies = rounds.first().is_some_and(|round| round.id < first);
        // If nothing is copied before, the counters in the facts are of the same moment.
        let marked = || Marked {
            links: snapshot
                .gpus
                .iter()
                .filter_map(|gpu| Some((gpu.index, gpu.nvlinks.known()?.clone())))
                .collect(),
            functions: snapshot.pci.clone(),
        };
        let left_out = snapshot.gpus.iter().any(Gpu::has_link_errors_left_out);
        let state = match (copies, left_out) {
            (true, _) => State::NotYet,
            (false, true) => {
                State::UnderWay(read_links(&telemetry, &gpus), read_functions(&telemetry))
            }
            (false, false) => State::Read(marked()),
        };
        Some(Self { telemetry, gpus, first, during, state })
    }

    /// Called when a round begins. Returns true if a reading of every GPU must be taken now.
    pub fn begins(&mut self, id: u32) -> bool {
        if matches!(self.state, State::NotYet) && id.saturating_add(AHEAD) >= self.first {
            self.state = State::UnderWay(
                read_links(&self.telemetry, &self.gpus),
                read_functions(&self.telemetry),
            );
        }
        if id >= self.first {
            // If time passes only with the driver's clock, the readings must not depend on the host's clock.
            let patience = self.telemetry.patience(Duration::ZERO);
            if !patience.is_zero() {
                self.settle(patience);
            }
        }
        self.during.take_if(|during| *during == id).is_some()
    }

    fn settle(&mut self, patience: Duration) {
        if let State::UnderWay(links, functions) = &self.state {
            let links = collect_links(links, patience);
            let functions = functions.recv_timeout(patience).unwrap_or_default();
            self.state = State::Read(Marked { links, functions });
        }
    }

    /// Returns the counters; waits for late ones.
    pub fn end(mut self, patience: Duration) -> Marked {
        self.settle(patience);
        match self.state {
            State::Read(marked) => marked,
            State::NotYet | State::UnderWay(..) => Marked::default(),
        }
    }
}
