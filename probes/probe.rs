//! What every probe has, and what the lists of this crate need of it.

/// What the file of a probe begins with.
pub(crate) mod prelude {
    pub(crate) use super::{Assembly, AtOnce, Needs, Probe, copies_of};
    pub(crate) use crate::bench::Bench;
    pub(crate) use crate::{Outcome, Round};
    pub(crate) use hardware::HardwareError;
    pub(crate) use model::flow::{Flow, Setup};
    pub(crate) use serde::{Deserialize, Serialize};
}

use std::time::Duration;

use crate::bench::Bench;
use crate::peers::verify::Verifications;
use crate::{Outcome, Round};
use hardware::{ErrorKind, HardwareError};
use model::flow::{Flow, Setup};
use model::measurement::Measurements;
use model::placement::Pair;
use model::topology::Topology;

/// The outcomes of rounds that ran at the same time, one for each. None if they run one after the other.
pub(crate) type AtOnce = Option<Result<Vec<Outcome>, HardwareError>>;

/// A probe: its parameters are those of one round. The parent plans rounds and makes cells of their outcomes; a worker runs
/// them.
pub(crate) trait Probe {
    /// Describes a round in this setup, for progress messages and reasons.
    fn words(&self, setup: Setup) -> String;

    /// Returns what a round with these flows needs.
    fn needs(&self, setup: Setup, flows: &[Flow]) -> Needs;

    /// Runs a round by itself.
    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        let none = || HardwareError::new(ErrorKind::Other, "the round has no outcome");
        let outcomes = self.run_at_once(bench, &[round]).unwrap_or_else(|| Err(none()))?;
        outcomes.into_iter().next().ok_or_else(none)
    }

    /// Runs rounds of one task that share nothing at the same time.
    fn run_at_once(&self, _: &Bench<'_>, _: &[&Round]) -> AtOnce {
        None
    }

    /// Adds the cells of a round to the tables.
    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>);
}

/// What a round needs, by which it is planned and run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Copies that pass the link, of all its flows if they share it.
    pub(crate) copies: u32,
    /// True if it runs kernels.
    pub(crate) kernels: bool,
    /// True if a timeline shows it.
    pub(crate) is_in_timeline: bool,
    /// The time that it may take, if it takes two processes.
    pub(crate) two_processes: Option<Duration>,
    /// The time that it may take, if that does not follow from its bytes.
    pub(crate) longest: Option<Duration>,
}

/// The tables of a run, and the data that their cells need.
pub(crate) struct Assembly<'t> {
    pub(crate) tables: Measurements,
    /// The verifications so far.
    pub(crate) verified: Verifications,
    pub(crate) topology: &'t Topology,
}

/// Returns the copies of rows that each begin with a copy that is not timed.
pub(crate) const fn copies_of(rows: u32, copies: u32) -> u32 {
    rows.saturating_mul(copies.saturating_add(1))
}

/// Returns the pairs of these rounds, at least one of each.
pub(crate) fn pairs_of(bench: &Bench<'_>, rounds: &[&Round]) -> Result<Vec<Pair>, HardwareError> {
    let pairs: Result<Vec<_>, _> = rounds.iter().map(|round| bench.pairs(round)).collect();
    pairs.map(|pairs| pairs.concat())
}

/// Returns the outcome of each round, of which every flow has one result.
pub(crate) fn by_round<T>(
    rounds: &[&Round],
    results: Vec<T>,
    outcome: impl Fn(Vec<T>) -> Outcome,
) -> Vec<Outcome> {
    let mut results = results.into_iter();
    let mut of = |round: &&Round| outcome(results.by_ref().take(round.flows.len()).collect());
    rounds.iter().map(&mut of).collect()
}
