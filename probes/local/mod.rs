//! Copies within each GPU.

pub(crate) mod plan;
mod run;

use crate::probe::prelude::*;

/// Times rows of copies within a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Local {
    /// Number of rows.
    pub samples: u32,
}

impl Probe for Local {
    fn words(&self, _: Setup) -> String {
        "copies within a GPU".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = copies_of(self.samples, plan::LOCAL_COPIES);
        Needs { copies, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.local(bench.within(round)?, round.task.setup, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let within = round.flows.iter().filter_map(|flow| flow.within());
        into.tables.local.extend(within.map(|gpu| run::cell(gpu, round.task.setup, outcome)));
    }
}
