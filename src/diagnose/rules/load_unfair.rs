//! # What it means
//!
//! Copies that run at the same time through one link do not share it evenly: one of them has far less than its part.
//!
//! # How it is detected
//!
//! In a pattern whose sum is as it should be (`measurements.load`), and of which no other finding names a hop, a flow
//! that shares a hop with others has less than `least_part_percent` of its max-min fair share and of an even part, while
//! others of that hop have more than their share. `fairness` in the report is Jain's index over all flows of the
//! pattern.
//!
//! # Why it matters
//!
//! A collective operation is as fast as its slowest flow, whatever the others reach.
//!
//! # What to do
//!
//! Check again. Ports of PCIe switches take turns by port, so a GPU that shares a port with several others has less: it
//! is how such a board is built. Where nothing of the kind explains it, look at the error counters of the slow flow's
//! links and at the arbitration settings of the switch.
//!
//! # Sources
//!
//! R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984. 8 x H200: flows into one GPU have
//! equal parts (measured).

use super::load::{self, Judged};
use super::load_steps;
use super::prelude::*;
use crate::model::order::Order;
use crate::model::topology::LinkKind;
use crate::topology::shares::Passage;

const LEAST: Parameter = Parameter {
    name: "least_part_percent",
    default: 50.0,
    about: "what a flow must have of its fair share; chosen: below what taking turns by port gives where one port has \
            three GPUs and the other one",
};

/// The rule.
pub const RULE: Rule = Rule::new("load-unfair", Severity::Warning, page!("load_unfair.rs"), judge).with(&[LEAST]);

/// A flow that has too little of a hop.
struct Starved<'a> {
    judged: Judged<'a>,
    hop: Passage,
    flow: usize,
    part: f64,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let least = RULE.parameter(evidence, &LEAST) / 100.0;
    let known = load::named(evidence);
    let all = load::judged(evidence).into_iter().filter(|judged| !load::passes(judged, &known));
    let mut starved: Vec<Starved<'_>> = all.filter_map(|judged| starved(judged, least)).collect();
    starved.order_by(|one, other| one.part.total_cmp(&other.part));
    let Some(worst) = starved.first() else { return Vec::new() };
    let Some((_, link)) = worst.judged.predicted.load.step(worst.hop) else { return Vec::new() };
    let Some(flow) = worst.judged.pattern.flows.get(worst.flow) else { return Vec::new() };
    let share = GbPerSecond(worst.judged.explained.get(worst.flow).copied().unwrap_or_default());
    let achieved = flow.achieved_gbps.unwrap_or(GbPerSecond(0.0));
    let message = format!(
        "{} has {achieved} GB/s of {}, {:.0}% of its fair share ({share} GB/s), while others have more than theirs: {}",
        flow.flow(),
        load::place(evidence, link),
        100.0 * worst.part,
        worst.judged.pattern.name(),
    );
    let next_step = match link.kind {
        LinkKind::NvLink => format!(
            "Check again. If it stays, look at the error counters of the NVLinks of both GPUs ({}), and swap the GPU with \
             another to see whether it moves",
            load_steps::counters(link)
        ),
        _ => format!(
            "Check again. A GPU that shares a port of a PCIe switch with others has less by design; where nothing of the \
             kind explains it, look at the error counters of this GPU's links ({}) and at the switch's arbitration",
            load_steps::counters(link)
        ),
    };
    let fairness = worst.judged.pattern.fairness.map(Fact::figure);
    vec![
        RULE.finding(load::subject(evidence, link), message, next_step)
            .pairs(&flow.flow().pair().into_iter().collect::<Vec<_>>())
            .fact("pattern", worst.judged.pattern.name())
            .fact("patterns", starved.len())
            .fact("achieved", achieved)
            .fact("fair_share", share)
            .fact("of_fair_share", Fact::percent(100.0 * worst.part))
            .fact("fairness", fairness),
    ]
}

/// The flow of a pattern that has least, where that is too little and no low sum explains it.
fn starved(judged: Judged<'_>, least: f64) -> Option<Starved<'_>> {
    let all = judged.all();
    if Judged::sum(&judged.achieved, &all) < judged.floor(&all) {
        return None;
    }
    let part =
        |flow: &usize| Some(judged.achieved.get(*flow)? / judged.explained.get(*flow).filter(|rate| **rate > 0.0)?);
    let parts: Vec<(usize, f64)> = all.iter().filter_map(|flow| Some((*flow, part(flow)?))).collect();
    let (flow, has) = parts.into_iter().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    // Where a hop of the others carries more than one flow has shown, an even part is all that it lacks.
    let is_uneven = |flows: &Vec<usize>| {
        let count = u32::try_from(flows.len()).map_or(f64::INFINITY, f64::from);
        let even = Judged::sum(&judged.achieved, flows) / count;
        judged.achieved.get(flow).is_some_and(|achieved| *achieved < even * least)
    };
    let takes = |flows: &Vec<usize>| is_uneven(flows) && flows.iter().filter_map(part).any(|part| part > 1.0);
    let shared = judged.predicted.load.passed().into_iter();
    let hop = shared.filter(|(_, flows)| flows.len() > 1 && flows.contains(&flow) && takes(flows)).map(|(hop, _)| hop);
    let hop =
        hop.min_by_key(|hop| judged.predicted.load.step(*hop).is_none_or(|(hop, _)| hop.capacity_gbps.is_none()))?;
    (has < least).then_some(Starved { judged, hop, flow, part: has })
}
