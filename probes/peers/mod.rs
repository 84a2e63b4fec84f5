//! Copies between GPUs: their rates on every path and in every setup, and whether their bytes arrive.

pub(crate) mod cells;
pub(crate) mod plan;
mod run;
mod slices;
mod together;
pub(crate) mod verify;

use crate::figures;
use crate::probe::prelude::*;
use crate::probe::{by_round, pairs_of};
use model::placement::{Direction, Engine, Path, Side};

/// Copies a pattern and checks it on the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {}

/// Times plain rows of copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Rows that must agree with each other. If they do not, more rows are measured.
    pub rows: u32,
    /// Copies in each row.
    pub copies: u32,
}

/// Returns the words of a setup that differ from the reference.
fn words(setup: Setup) -> String {
    let parts = [
        (setup.issuer == Side::Destination, ", issued by destination"),
        (setup.engine == Engine::Kernel, ", kernel"),
        (setup.direction == Direction::BothWays, ", both ways"),
        (setup.path == Path::Staged, ", staged"),
    ];
    parts.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect()
}

impl Probe for Verify {
    fn words(&self, setup: Setup) -> String {
        let Setup { path, engine, .. } = setup;
        // The path and the engine are named in any case.
        let rest = words(Setup { engine: Engine::Copy, path: Path::Direct, ..setup });
        format!("verification of the {path} path ({engine}{rest})")
    }

    fn needs(&self, setup: Setup, _: &[Flow]) -> Needs {
        Needs { copies: 1, kernels: setup.engine == Engine::Kernel, ..Needs::default() }
    }

    fn run_at_once(&self, bench: &Bench<'_>, rounds: &[&Round]) -> AtOnce {
        let setup = rounds.first()?.task.setup;
        let checks = pairs_of(bench, rounds).and_then(|pairs| bench.verify(&pairs, setup));
        Some(checks.map(|checks| by_round(rounds, checks, |flows| Outcome::Verified { flows })))
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let between = round.flows.iter().filter(|flow| flow.pair().is_some());
        for (at, &flow) in between.enumerate() {
            into.verified.take(flow, at, round.task.setup, outcome);
        }
    }
}

impl Probe for Bandwidth {
    fn words(&self, setup: Setup) -> String {
        format!("{}{}", setup.placement, words(setup))
    }

    fn needs(&self, setup: Setup, _: &[Flow]) -> Needs {
        let kernels = setup.engine == Engine::Kernel;
        Needs { copies: copies_of(self.rows, self.copies), kernels, ..Needs::default() }
    }

    fn run_at_once(&self, bench: &Bench<'_>, rounds: &[&Round]) -> AtOnce {
        let setup = rounds.first()?.task.setup;
        let timed = pairs_of(bench, rounds).and_then(|pairs| match rounds {
            [_] => bench.bandwidth(&pairs, setup, self.rows, self.copies),
            _ => bench.bandwidth_at_once(&pairs, setup, self.rows, self.copies),
        });
        Some(timed.map(|timed| by_round(rounds, timed, |rows| Outcome::Rows { rows })))
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        let setup = round.task.setup;
        for (at, pair) in round.pairs().enumerate() {
            let rates = figures::rates(outcome, at);
            let cell = cells::cell(pair, setup, rates, &into.verified, into.topology);
            into.tables.peer.push(cell);
            into.tables.at_once.extend(together::compared(pair, setup, outcome));
        }
    }
}

#[cfg(test)]
mod verify_tests;
