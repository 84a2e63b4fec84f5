//! Time that calls block the host, loops of launches, and data that is read too early.

pub(crate) mod calls;
pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;

/// Times how long calls block the host: copies to and from host memory if the round has such flows, otherwise the other calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Samples of each call.
    pub samples: u32,
}

/// Times a loop of launches on the first flow's GPU, with a wait for the second's in each turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LaunchLoop {
    pub samples: u32,
    /// Number of turns.
    pub turns: u32,
}

/// Reads the data of a copy to the host before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hazard {
    pub samples: u32,
}

impl Probe for Calls {
    fn words(&self, _: Setup) -> String {
        "host time of calls".into()
    }

    fn needs(&self, _: Setup, flows: &[Flow]) -> Needs {
        // Copies with the host need no kernels; waits need a kernel to wait for.
        let kernels = flows.iter().any(|flow| flow.within().is_some());
        let copies = (self.samples + 1).saturating_mul(4);
        Needs { copies, kernels, is_in_timeline: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.calls(round, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.calls.extend(calls::cells(round, outcome));
    }
}

impl Probe for LaunchLoop {
    fn words(&self, _: Setup) -> String {
        format!("loop of {} launches", self.turns)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs { kernels: true, is_in_timeline: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.launch_loop(round, self.samples, self.turns)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.launch_loop.extend(run::loop_cell(round, self.turns, outcome));
    }
}

impl Probe for Hazard {
    fn words(&self, _: Setup) -> String {
        "data that is read too early".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = (self.samples + 1).saturating_mul(2);
        Needs { copies, kernels: true, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.hazard(round, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.hazard.extend(run::hazard_cell(round, outcome));
    }
}
