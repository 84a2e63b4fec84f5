//! Overlap of a copy with a kernel.

pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;
use model::placement::KernelStream;

/// Times a copy against a kernel on each of the two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    pub samples: u32,
    /// The stream of the kernels.
    pub kernel: KernelStream,
}

impl Probe for Overlap {
    fn words(&self, setup: Setup) -> String {
        format!("overlap {}/{}", setup.placement.source, setup.placement.destination)
    }

    fn needs(&self, setup: Setup, _: &[Flow]) -> Needs {
        let copies = self.samples + 1;
        let is_in_timeline =
            self.kernel == KernelStream::Default && setup.placement.is_of_experiment();
        Needs { copies, kernels: true, is_in_timeline, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.overlap(bench.pairs(round)?[0], round.task.setup, *self)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let setup = round.task.setup;
        let cells = round.pairs().flat_map(|pair| run::cells(pair, setup, self.kernel, outcome));
        into.tables.overlap.extend(cells);
    }
}
