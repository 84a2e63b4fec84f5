//! Pipelines of copies and kernels, and the copies of a GPU that run at the same time.

pub(crate) mod engines;
pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;

/// Times batches that are copied in, processed and copied out, in one stream and in several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    pub samples: u32,
    /// Number of batches.
    pub batches: u32,
    /// Number of streams in the runs with several streams.
    pub streams: u32,
}

/// Finds the copies and kernels of a GPU that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Engines {
    pub samples: u32,
}

impl Probe for Pipeline {
    fn words(&self, _: Setup) -> String {
        format!("pipeline of {} batches in {} streams", self.batches, self.streams)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        // In and out, including the marked and the single batches beside the timed ones.
        let copies = (self.samples + 2).saturating_mul(4).saturating_mul(self.batches);
        Needs { copies, kernels: true, is_in_timeline: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.pipeline(round, *self)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.pipeline.extend(run::cell(round, *self, outcome));
    }
}

impl Probe for Engines {
    fn words(&self, _: Setup) -> String {
        "copies at the same time".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = (self.samples + 1).saturating_mul(10);
        Needs { copies, kernels: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.engines(round, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.engines.extend(engines::cell(round, outcome));
    }
}
