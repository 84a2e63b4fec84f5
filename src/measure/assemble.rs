//! Tables of figures from the outcomes of rounds.

use std::collections::HashMap;

use super::verify::Verifications;
use super::{
    Outcome, asynchrony, calls, chase, engines, figures, host_cells, latency, live, load, local,
    mapped, overlap, peer, pinning, pipeline, share, small, together,
};
use model::measurement::{Measurements, Status};
use model::topology::Topology;
use plan::{Action, Round};

/// Builds the tables of all rounds, with theory and verification beside each figure. A round without outcome was not
/// reached.
pub fn assemble(
    rounds: &[Round],
    outcomes: &HashMap<u32, Outcome>,
    topology: &Topology,
) -> Measurements {
    let mut tables = Measurements::default();
    let mut verified = Verifications::default();
    let not_reached = Outcome::Lost {
        status: Status::Skipped,
        reason: "not reached".into(),
    };
    for round in rounds {
        let (setup, outcome) = (
            round.task.setup,
            outcomes.get(&round.id).unwrap_or(&not_reached),
        );
        let pairs = || round.flows.iter().filter_map(|flow| flow.pair());
        match round.task.action {
            Action::Clocks => {}
            Action::Verify => {
                let between = round.flows.iter().filter(|flow| flow.pair().is_some());
                for (at, &flow) in between.enumerate() {
                    verified.take(flow, at, setup, outcome);
                }
            }
            Action::Bandwidth { .. } => {
                for (at, pair) in pairs().enumerate() {
                    let rates = figures::rates(outcome, at);
                    tables
                        .peer
                        .push(peer::cell(pair, setup, rates, &verified, topology));
                    tables
                        .at_once
                        .extend(together::compared(pair, setup, outcome));
                }
            }
            Action::Overlap { .. } => tables
                .overlap
                .extend(pairs().flat_map(|pair| overlap::cells(pair, setup, outcome))),
            Action::Latency { .. } => tables
                .latency
                .extend(pairs().map(|pair| latency::cell(pair, setup, outcome))),
            Action::Local { .. } => {
                let within = round.flows.iter().filter_map(|flow| flow.within());
                tables
                    .local
                    .extend(within.map(|gpu| local::cell(gpu, setup, outcome)));
            }
            Action::Live { .. } | Action::ShareTalk { .. } => {
                tables.live.extend(live::cells(round, outcome));
            }
            Action::LiveGroup { .. } => {
                tables.live_group.extend(live::group_cells(round, outcome));
            }
            Action::Chase { .. } => tables.chase.extend(chase::cells(round, outcome)),
            Action::Host { allocation, .. } => {
                tables
                    .host
                    .extend(host_cells::cells(&round.flows, setup, allocation, outcome));
            }
            Action::Small { .. } => tables.small.extend(small::cells(round, setup, outcome)),
            Action::Pinning { .. } => {
                let nodes = round.flows.iter().filter_map(|flow| flow.from.node());
                tables
                    .pinning
                    .extend(nodes.map(|node| pinning::cell(node, setup, outcome)));
            }
            Action::Load { .. } => tables.load.extend(load::pattern(round, outcome)),
            Action::Mapped { .. } => tables.mapped.extend(mapped::cell(round, outcome)),
            Action::Share { .. } => tables.sharing.extend(share::cell(round, outcome)),
            // The minutes of a soak come from outcomes as they arrive.
            Action::Soak { .. } => {}
            Action::Pipeline { .. } => tables.pipeline.extend(pipeline::cell(round, outcome)),
            Action::Engines { .. } => tables.engines.extend(engines::cell(round, outcome)),
            Action::Calls { .. } => tables.calls.extend(calls::cells(round, outcome)),
            Action::LaunchLoop { .. } => tables
                .launch_loop
                .extend(asynchrony::loop_cell(round, outcome)),
            Action::Hazard { .. } => tables
                .hazard
                .extend(asynchrony::hazard_cell(round, outcome)),
        }
    }
    tables
}
