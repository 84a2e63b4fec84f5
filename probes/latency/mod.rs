//! The time of small copies.

pub(crate) mod plan;
mod run;

use crate::probe::prelude::*;

/// Times a row of small copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub samples: u32,
}

impl Probe for Latency {
    fn words(&self, setup: Setup) -> String {
        format!("latency, {}", setup.path)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs::default()
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.latency(bench.pairs(round)?[0], round.task.setup, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let cells = round.pairs().map(|pair| run::cell(pair, round.task.setup, outcome));
        into.tables.latency.extend(cells);
    }
}
