//! Dispatches probes on one GPU, and adds their cells to the tables.

use super::bench::Bench;
use super::{Outcome, asynchrony, calls, engines, pipeline};
use hardware::HardwareError;
use model::measurement::Measurements;
use plan::{Action, Round};

impl Bench<'_> {
    /// Runs a round on one GPU; returns none if it is of another kind.
    pub(super) fn on_one_gpu(&self, round: &Round) -> Option<Result<Outcome, HardwareError>> {
        let result = match round.task.action {
            Action::Pipeline { .. } => self.pipeline(round),
            Action::Engines { samples } => self.engines(round, samples),
            Action::Calls { samples } => self.calls(round, samples),
            Action::LaunchLoop { samples, turns } => self.launch_loop(round, samples, turns),
            Action::Hazard { samples } => self.hazard(round, samples),
            _ => return None,
        };
        let given_back = self.give_back();
        Some(result.and_then(|outcome| given_back.map(|()| outcome)))
    }
}

/// Adds the cells of such a round.
pub(super) fn cells(tables: &mut Measurements, round: &Round, outcome: &Outcome) {
    tables.pipeline.extend(pipeline::cell(round, outcome));
    tables.engines.extend(engines::cell(round, outcome));
    tables.calls.extend(calls::cells(round, outcome));
    tables
        .launch_loop
        .extend(asynchrony::loop_cell(round, outcome));
    tables
        .hazard
        .extend(asynchrony::hazard_cell(round, outcome));
}
