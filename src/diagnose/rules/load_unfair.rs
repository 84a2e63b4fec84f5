//! # What it means
//!
//! Copies through one link at the same time do not share it evenly. A collective operation is as fast as its slowest
//! flow.
//!
//! # What to do
//!
//! Check again. Ports of PCIe switches take turns by port, so a GPU that shares a port with several others gets less:
//! such a board is built that way. If nothing of the kind explains it, look at the error counters of the slow flow's
//! links and at the arbitration settings of the switch.
//!
//! # How it is detected
//!
//! The sum of a pattern is as it should be (`measurements.load`), and no other finding explains it. A flow that
//! shares a hop has less than `least_part_percent` of its max-min fair share and of an even part, while others there
//! have more than theirs. The finding names the hop that such patterns have in common, or the flow. `fairness` in the
//! report is Jain's index.
//!
//! # Sources
//!
//! R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984. 8 x H200: flows into one GPU have
//! equal parts (measured).

use std::cmp::Reverse;

use super::load::{self, Known};
use super::load_collapses;
use super::load_judged::{self, Judged};
use super::prelude::*;
use model::flow::Flow;
use model::topology::{Link, LinkKind};
use topology::shares::Passage;

const LEAST: Parameter = Parameter {
    name: "least_part_percent",
    default: 50.0,
    about: "what a flow must have of its fair share; chosen: below what taking turns by port gives where one port has \
            three GPUs and the other one",
};

/// Share of its fair rate from which a flow counts as having it.
const SHARE: f64 = 0.9;

pub(crate) const RULE: Rule = Rule::of_one("load-unfair", Severity::Warning, judge).with(&[LEAST]);

/// A flow of a pattern that shares a hop with others, and the part of its fair share that it reached.
struct Shared {
    hop: Passage,
    flow: Flow,
    part: f64,
}

/// A flow that gets too little through one of these hops.
struct Starved<'a> {
    judged: Judged<'a>,
    hops: Vec<Passage>,
    flow: usize,
    part: f64,
}

impl Starved<'_> {
    /// Returns the hops, in either direction, that most patterns with such a flow have in common, less those in which
    /// one of the flow's GPUs had its share of it. Only those whose rate is known, if there are any.
    fn likeliest(&self, starved: &[Self], shared: &[Shared]) -> Vec<Passage> {
        let flow = self.judged.flow(self.flow);
        let ends = flow.map_or(Vec::new(), |flow| flow.ends().to_vec());
        let load = &self.judged.predicted.load;
        let has_no_rate = |hop| load.step(hop).is_none_or(|(link, _)| link.capacity_gbps.is_none());
        let rank = |hop: &Passage| {
            let has = |other: &Passage| load::ends(*other) == load::ends(*hop);
            let unevenly = starved.iter().filter(|starved| starved.hops.iter().any(has)).count();
            let had_its_share = |shared: &&Shared| {
                shared.part >= SHARE
                    && has(&shared.hop)
                    && shared.flow.ends().iter().any(|end| ends.contains(end))
            };
            let evenly = shared.iter().filter(had_its_share).count();
            Reverse(unevenly.saturating_sub(evenly))
        };
        let best = self.hops.iter().map(rank).min();
        let hops = self.hops.iter().copied();
        let mut hops: Vec<Passage> = hops.filter(|hop| Some(rank(hop)) == best).collect();
        if !hops.iter().all(|hop| has_no_rate(*hop)) {
            hops.retain(|hop| !has_no_rate(*hop));
        }
        hops
    }
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let least = RULE.parameter(evidence, &LEAST) / 100.0;
    let known = Known::of(evidence, &load_collapses::lows(evidence));
    let mut all = load_judged::judged(evidence);
    all.retain(|judged| !known.passes(judged));
    let shared: Vec<Shared> = all.iter().flat_map(shared).collect();
    let starved = all.into_iter().filter_map(|judged| starved(judged, least));
    let mut found: Vec<Starved<'_>> = starved.collect();
    found.retain(|starved| !known.explains(&starved.judged, starved.flow));
    found.sort_by(|one, other| one.part.total_cmp(&other.part));
    let worst = found.first()?;
    let hops = worst.likeliest(&found, &shared);
    let steps = hops.iter().filter_map(|hop| worst.judged.predicted.load.step(*hop));
    let links: Vec<&Link> = steps.map(|(_, link)| *link).collect();
    let link = links.first().copied()?;
    let flow = worst.judged.flow(worst.flow)?;
    let rate = |rates: &[f64]| GbPerSecond(rates.get(worst.flow).copied().unwrap_or_default());
    let share = rate(&worst.judged.explained);
    let achieved = rate(&worst.judged.achieved);
    let others = words::further(" or of ", links.len() - 1, "other hop");
    let message = format!(
        "{} has {achieved} GB/s of {}{others}, {:.0}% of its fair share ({share} GB/s), while others have more than theirs: {}",
        flow,
        load::place(evidence, link),
        100.0 * worst.part,
        worst.judged.pattern.name(),
    );
    let plan = Plan::now([Step::CheckAgain]).if_it_stays(match link.kind {
        LinkKind::NvLink => {
            let gpus = OneOf(flow.gpus().collect());
            [Step::LinkErrors, Step::Swap(Part::Gpu(gpus))]
        }
        _ => [Step::Arbitration, Step::PcieErrors],
    });
    let fairness = worst.judged.pattern.fairness.map(Fact::figure);
    // Which of several hops starves the flow, the figures do not tell.
    let subject = match (links.as_slice(), flow.pair()) {
        ([_, _, ..], Some(pair)) => Subject::Pair(pair),
        _ => load::subject(evidence, link),
    };
    Some(
        RULE.finding(subject, message, plan)
            .pairs(&flow.pair().into_iter().collect::<Vec<_>>())
            .fact("pattern", worst.judged.pattern.name())
            .fact("patterns", found.len())
            .fact("achieved", achieved)
            .fact("fair_share", share)
            .fact("of_fair_share", Fact::percent(100.0 * worst.part))
            .fact("fairness", fairness),
    )
}

/// Returns the flow of a pattern with the smallest share, if that is too little and no low sum explains it.
fn starved(judged: Judged<'_>, least: f64) -> Option<Starved<'_>> {
    let all = judged.all();
    if Judged::sum(&judged.achieved, &all) < judged.floor(&all) {
        return None;
    }
    let (flow, has) = least_part(&judged)?;
    // If a hop carries more than single flows have shown, a flow with an even part of it lacks nothing.
    let is_uneven = |flows: &Vec<usize>| {
        let count = u32::try_from(flows.len()).map_or(f64::INFINITY, f64::from);
        let even = Judged::sum(&judged.achieved, flows) / count;
        let achieved = judged.achieved.get(flow);
        achieved.is_some_and(|achieved| *achieved < even * least)
    };
    let has_more = |flow: &usize| part(&judged, *flow).is_some_and(|part| part > 1.0);
    let takes = |flows: &Vec<usize>| is_uneven(flows) && flows.iter().any(has_more);
    let passed = judged.predicted.load.passed().into_iter();
    let taken =
        passed.filter(|(_, flows)| flows.len() > 1 && flows.contains(&flow) && takes(flows));
    let hops: Vec<_> = taken.map(|(hop, _)| hop).collect();
    (has < least && !hops.is_empty()).then_some(Starved { judged, hops, flow, part: has })
}

/// Returns the part of its fair share that a flow reached.
fn part(judged: &Judged<'_>, flow: usize) -> Option<f64> {
    Some(judged.achieved.get(flow)? / judged.explained.get(flow).filter(|rate| **rate > 0.0)?)
}

/// Returns the flow of a pattern with the smallest part of its fair share, and that part.
fn least_part(judged: &Judged<'_>) -> Option<(usize, f64)> {
    let flows = judged.all().into_iter();
    let parts = flows.filter_map(|flow| Some((flow, part(judged, flow)?)));
    words::smallest(parts, |(_, part)| *part)
}

/// Returns the flows of a pattern that share hops.
fn shared(judged: &Judged<'_>) -> Vec<Shared> {
    let passed = judged.predicted.load.passed().into_iter();
    let passed = passed.filter(|(_, flows)| flows.len() > 1);
    let each = passed.flat_map(|(hop, flows)| flows.into_iter().map(move |flow| (hop, flow)));
    each.filter_map(|(hop, flow)| {
        Some(Shared { hop, flow: judged.flow(flow)?, part: part(judged, flow)? })
    })
    .collect()
}
