//! Overlap of a copy with a kernel.

pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;

/// Times a copy against a kernel on each of the two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    pub samples: u32,
}

impl Probe for Overlap {
    fn words(&self, setup: Setup) -> String {
        format!("overlap {}/{}", setup.placement.source, setup.placement.destination)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = self.samples + 1;
        Needs { copies, kernels: true, is_in_timeline: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.overlap(bench.pairs(round)?[0], round.task.setup, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let cells = round.pairs().flat_map(|pair| run::cells(pair, round.task.setup, outcome));
        into.tables.overlap.extend(cells);
    }
}
