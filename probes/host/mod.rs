//! Copies between host and GPU, and the cost of page-locking.

mod cells;
pub(crate) mod pinning;
pub(crate) mod plan;
mod run;

use crate::probe::prelude::*;
use model::host::Allocation;
use model::placement::{Direction, Engine};

/// Times rows of copies between host and GPU, and checks their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Number of rows.
    pub rows: u32,
    /// Copies in each row.
    pub copies: u32,
    /// Origin of the host's buffer.
    pub allocation: Allocation,
}

/// Times page-locking and related calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pinning {
    pub samples: u32,
}

impl Probe for Host {
    fn words(&self, setup: Setup) -> String {
        let allocation = match self.allocation {
            Allocation::Reused => String::new(),
            allocation => format!(", {allocation}"),
        };
        let kernel = if setup.engine == Engine::Kernel { ", kernel" } else { "" };
        let both = if setup.direction == Direction::BothWays { ", both ways" } else { "" };
        format!("host copies{allocation}{kernel}{both}")
    }

    fn needs(&self, setup: Setup, _: &[Flow]) -> Needs {
        let kernels = setup.engine == Engine::Kernel;
        Needs { copies: copies_of(self.rows, self.copies), kernels, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.host(round, self.rows, self.copies, self.allocation)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let cells = cells::cells(&round.flows, round.task.setup, self.allocation, outcome);
        into.tables.host.extend(cells);
    }
}

impl Probe for Pinning {
    fn words(&self, _: Setup) -> String {
        "page-locking".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        let copies = self.samples.saturating_mul(4);
        Needs { copies, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.pinning(round, self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let nodes = round.flows.iter().filter_map(|flow| flow.from.node());
        let cells = nodes.map(|node| pinning::cell(node, round.task.setup, outcome));
        into.tables.pinning.extend(cells);
    }
}
