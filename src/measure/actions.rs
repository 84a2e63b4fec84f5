//! The list of actions: how a round of each runs on a driver, and how its outcome becomes cells.

use std::time::Duration;

use super::bench::Bench;
use super::verify::Verifications;
use super::{
    Outcome, asynchrony, calls, chase, engines, figures, host_cells, latency, live, load, local,
    overlap, peer, pinning, pipeline, share, together,
};
use hardware::{ErrorKind, HardwareError};
use model::measurement::Measurements;
use model::placement::Pair;
use model::topology::Topology;
use plan::{Action, Round};

/// The tables of a run, and the data that their cells need.
pub(super) struct Assembly<'t> {
    pub(super) tables: Measurements,
    /// The verifications so far.
    pub(super) verified: Verifications,
    pub(super) topology: &'t Topology,
}

type One<'r> = Box<dyn FnOnce(&Bench<'_>) -> Result<Outcome, HardwareError> + 'r>;
type Several<'r> =
    Box<dyn FnOnce(&Bench<'_>, &[&Round]) -> Result<Vec<Outcome>, HardwareError> + 'r>;
type Cells<'r> = Box<dyn FnOnce(&Outcome, &mut Assembly<'_>) + 'r>;

/// The two parts of an action. The worker calls the first, the parent the second.
pub(super) struct Parts<'r> {
    pub(super) run: Run<'r>,
    pub(super) cells: Cells<'r>,
}

/// Runs rounds of an action.
pub(super) enum Run<'r> {
    /// One after the other.
    Alone(One<'r>),
    /// Rounds of the same task that share nothing run at the same time, and a round may run by itself.
    AtOnce(Several<'r>),
}

/// Returns the parts of an action whose rounds run one after the other.
fn alone<'r>(
    run: impl FnOnce(&Bench<'_>) -> Result<Outcome, HardwareError> + 'r,
    cells: impl FnOnce(&Outcome, &mut Assembly<'_>) + 'r,
) -> Parts<'r> {
    Parts { run: Run::Alone(Box::new(run)), cells: Box::new(cells) }
}

/// Returns the parts of an action whose rounds run at the same time if they share nothing.
fn at_once<'r>(
    run: impl FnOnce(&Bench<'_>, &[&Round]) -> Result<Vec<Outcome>, HardwareError> + 'r,
    cells: impl FnOnce(&Outcome, &mut Assembly<'_>) + 'r,
) -> Parts<'r> {
    Parts { run: Run::AtOnce(Box::new(run)), cells: Box::new(cells) }
}

/// Returns the parts of a round's action.
pub(super) fn of(round: &Round) -> Parts<'_> {
    let setup = round.task.setup;
    let pairs = move || round.flows.iter().filter_map(|flow| flow.pair());
    match round.task.action {
        // `following` read the clocks before the round began.
        Action::Clocks => alone(|_| Ok(Outcome::Noted), |_, _| {}),
        Action::Verify => at_once(
            move |bench, rounds| {
                let checks = bench.verify(&pairs_of(bench, rounds)?, setup)?;
                Ok(by_round(rounds, checks, |flows| Outcome::Verified { flows }))
            },
            move |outcome, into| {
                let between = round.flows.iter().filter(|flow| flow.pair().is_some());
                for (at, &flow) in between.enumerate() {
                    into.verified.take(flow, at, setup, outcome);
                }
            },
        ),
        Action::Bandwidth { rows, copies } => at_once(
            move |bench, rounds| {
                let pairs = pairs_of(bench, rounds)?;
                let timed = match rounds {
                    [_] => bench.bandwidth(&pairs, setup, rows, copies),
                    _ => bench.bandwidth_at_once(&pairs, setup, rows, copies),
                };
                Ok(by_round(rounds, timed?, |rows| Outcome::Rows { rows }))
            },
            move |outcome, into| {
                for (at, pair) in pairs().enumerate() {
                    let rates = figures::rates(outcome, at);
                    let cell = peer::cell(pair, setup, rates, &into.verified, into.topology);
                    into.tables.peer.push(cell);
                    let compared = together::compared(pair, setup, outcome);
                    into.tables.at_once.extend(compared);
                }
            },
        ),
        Action::Overlap { samples } => alone(
            move |bench| bench.overlap(bench.pairs(round)?[0], setup, samples),
            move |outcome, into| {
                let cells = pairs().flat_map(|pair| overlap::cells(pair, setup, outcome));
                into.tables.overlap.extend(cells);
            },
        ),
        Action::Latency { samples } => alone(
            move |bench| bench.latency(bench.pairs(round)?[0], setup, samples),
            move |outcome, into| {
                let cells = pairs().map(|pair| latency::cell(pair, setup, outcome));
                into.tables.latency.extend(cells);
            },
        ),
        Action::Local { samples } => alone(
            move |bench| bench.local(bench.within(round)?, setup, samples),
            move |outcome, into| {
                let within = round.flows.iter().filter_map(|flow| flow.within());
                let cells = within.map(|gpu| local::cell(gpu, setup, outcome));
                into.tables.local.extend(cells);
            },
        ),
        Action::Live { rounds: turns, trial } => at_once(
            move |bench, rounds| bench.live(rounds, turns, trial),
            move |outcome, into| {
                let cells = live::cells(round, outcome, into.topology);
                into.tables.live.extend(cells);
            },
        ),
        Action::Chase { loads } => at_once(
            move |bench, rounds| bench.chase(rounds, loads),
            move |outcome, into| into.tables.chase.extend(chase::cells(round, outcome)),
        ),
        Action::Host { rows, copies, allocation } => alone(
            move |bench| bench.host(round, rows, copies, allocation),
            move |outcome, into| {
                let cells = host_cells::cells(&round.flows, setup, allocation, outcome);
                into.tables.host.extend(cells);
            },
        ),
        Action::Pinning { samples } => alone(
            move |bench| bench.pinning(round, samples),
            move |outcome, into| {
                let nodes = round.flows.iter().filter_map(|flow| flow.from.node());
                let cells = nodes.map(|node| pinning::cell(node, setup, outcome));
                into.tables.pinning.extend(cells);
            },
        ),
        Action::Load { rows, copies, .. } => alone(
            move |bench| bench.load(round, rows, copies),
            move |outcome, into| into.tables.load.extend(load::pattern(round, outcome)),
        ),
        Action::Share { .. } => alone(two_processes, move |outcome, into| {
            into.tables.sharing.extend(share::cell(round, outcome));
        }),
        // The minutes of a soak come from outcomes as they arrive.
        Action::Soak { millis, bursts, .. } => alone(
            move |bench| bench.soak(round, Duration::from_millis(millis.into()), bursts),
            |_, _| {},
        ),
        Action::Pipeline { .. } => alone(
            move |bench| bench.pipeline(round),
            move |outcome, into| into.tables.pipeline.extend(pipeline::cell(round, outcome)),
        ),
        Action::Engines { samples } => alone(
            move |bench| bench.engines(round, samples),
            move |outcome, into| into.tables.engines.extend(engines::cell(round, outcome)),
        ),
        Action::Calls { samples } => alone(
            move |bench| bench.calls(round, samples),
            move |outcome, into| into.tables.calls.extend(calls::cells(round, outcome)),
        ),
        Action::LaunchLoop { samples, turns } => alone(
            move |bench| bench.launch_loop(round, samples, turns),
            move |outcome, into| {
                let cell = asynchrony::loop_cell(round, outcome);
                into.tables.launch_loop.extend(cell);
            },
        ),
        Action::Hazard { samples } => alone(
            move |bench| bench.hazard(round, samples),
            move |outcome, into| {
                let cell = asynchrony::hazard_cell(round, outcome);
                into.tables.hazard.extend(cell);
            },
        ),
    }
}

/// Refuses a round that takes two processes: the parent runs it in steps (`src/run/worker/share.rs`).
fn two_processes(_: &Bench<'_>) -> Result<Outcome, HardwareError> {
    Err(HardwareError::new(ErrorKind::Other, "one process alone cannot share memory"))
}

/// Returns the pairs of these rounds, at least one of each.
fn pairs_of(bench: &Bench<'_>, rounds: &[&Round]) -> Result<Vec<Pair>, HardwareError> {
    let pairs: Result<Vec<_>, _> = rounds.iter().map(|round| bench.pairs(round)).collect();
    pairs.map(|pairs| pairs.concat())
}

/// Returns the outcome of each round, of which every flow has one result.
fn by_round<T>(
    rounds: &[&Round],
    results: Vec<T>,
    outcome: impl Fn(Vec<T>) -> Outcome,
) -> Vec<Outcome> {
    let mut results = results.into_iter();
    let mut of = |round: &&Round| outcome(results.by_ref().take(round.flows.len()).collect());
    rounds.iter().map(&mut of).collect()
}
