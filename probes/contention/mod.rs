//! Copies and kernels that run at the same time.

pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;
use model::contention::KernelNeed;

/// Times a copy and a kernel of the GPU that issues it, each alone and both at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    pub samples: u32,
    pub kernel: KernelNeed,
}

impl Probe for Contention {
    fn words(&self, setup: Setup) -> String {
        format!("{} copies beside a kernel that needs {}", setup.engine, self.kernel)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = self.samples.saturating_add(1).saturating_mul(run::MOST_COPIES);
        Needs { copies, kernels: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.contention(round, *self)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.contention.extend(run::cell(round, self.kernel, outcome));
    }
}
