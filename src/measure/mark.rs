//! Error counters as they stand before the first load pattern. Reading those of 18 NVLinks takes NVML 16 ms for each GPU,
//! so they are read beside the copies that come before.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::errors::{Links, collect_links, read_functions, read_links};
use hardware::Telemetry;
use model::snapshot::{Gpu, NvLink, PciFunction, Snapshot};
use plan::{Action, Round};

/// How many rounds before the first load pattern the reading begins: with 8 GPUs they take longer than the reading.
const AHEAD: u32 = 16;

/// What is read once the load patterns are near.
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
    /// PCI functions with theirs.
    pub functions: Vec<PciFunction>,
}

impl Marker {
    /// For these rounds; none where no load pattern is among them.
    pub fn new(
        telemetry: &Arc<dyn Telemetry>,
        snapshot: &Snapshot,
        rounds: &[Round],
    ) -> Option<Self> {
        let loads = rounds
            .iter()
            .filter(|round| matches!(round.task.action, Action::Load { .. }));
        let mut loads = loads.map(|round| round.id);
        let first = loads.next()?;
        // The second one where there is one: around the first the counters of traffic are read.
        let during = Some(loads.next().unwrap_or(first));
        let (telemetry, gpus) = (Arc::clone(telemetry), snapshot.gpus.clone());
        let copies = rounds.first().is_some_and(|round| round.id < first);
        // What the facts have is of the same moment where nothing is copied before.
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
        Some(Self {
            telemetry,
            gpus,
            first,
            during,
            state,
        })
    }

    /// Hears that a round begins; whether a reading of every GPU is to be taken now.
    pub fn begins(&mut self, id: u32) -> bool {
        if matches!(self.state, State::NotYet) && id.saturating_add(AHEAD) >= self.first {
            self.state = State::UnderWay(
                read_links(&self.telemetry, &self.gpus),
                read_functions(&self.telemetry),
            );
        }
        if id >= self.first {
            // Where time passes with the driver's clock alone, what is read must not depend on the host's.
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

    /// What was read; waits for what is late.
    pub fn end(mut self, patience: Duration) -> Marked {
        self.settle(patience);
        match self.state {
            State::Read(marked) => marked,
            State::NotYet | State::UnderWay(..) => Marked::default(),
        }
    }
}
