//! Shared by the rules on rounds that broke off: the rounds that nothing else explains, their wording, their facts and
//! their suspects.

use super::load_steps;
use super::prelude::*;
use model::broken_off::{Again, Break, How};
use model::flow::Place;

/// Most flows that a message names (chosen). More flows occur only with more than 32 GPUs; the evidence has the rest.
const NAMED: usize = 16;

/// Returns rounds that broke off although each of their flows works alone.
pub(super) fn unexplained(measurements: &Measurements) -> Vec<&BrokenOff> {
    let of_pattern = |broken: &BrokenOff| {
        let flows: BTreeSet<Flow> = broken.flows.iter().copied().collect();
        let is_same = |load: &LoadPattern| {
            load.flows.iter().map(LoadFlow::flow).collect::<BTreeSet<_>>() == flows
        };
        let mut load = measurements.load.iter();
        load.any(|load| load.ending.status.broke_off() && is_same(load))
    };
    let open = |broken: &&BrokenOff| {
        // Another rule reports the pattern itself.
        !fails_alone(measurements, &broken.flows)
            && !was_lost(measurements, &broken.flows)
            && !of_pattern(broken)
    };
    measurements.broken_off.iter().filter(open).collect()
}

/// Returns true if one of these flows was not run alone because copies with one of its GPUs hang or fail.
fn was_lost(measurements: &Measurements, flows: &[Flow]) -> bool {
    let places = |flow: Flow| flow.ends().map(Endpoint::place);
    let alone = || measurements.cells().filter(|cell| cell.probe != Probe::Load);
    let bad = alone().filter(|cell| cell.status.broke_off());
    let bad_gpus: BTreeSet<Place> = bad.flat_map(|cell| places(cell.flow)).collect();
    alone().any(|cell| {
        let ends = places(cell.flow);
        cell.status == Status::Skipped
            && ends.iter().any(|end| bad_gpus.contains(end))
            && flows.iter().any(|flow| places(*flow) == ends)
    })
}

/// Returns the flows as words.
pub(super) fn flows(broken: &BrokenOff) -> String {
    words::first(&broken.flows, NAMED)
}

/// Returns the result of running the flows together again, after a semicolon.
pub(super) fn again(broken: &BrokenOff) -> String {
    match &broken.again {
        Again::Worked if broken.in_company() => "; together once more they worked".to_owned(),
        Again::Worked => "; the second try worked".to_owned(),
        Again::BrokeOff(again) => format!("; once more: {}", again.reason),
        Again::NotRun { why } => format!("; not run again as it was, since {why}"),
    }
}

/// Returns what happened, for the beginning of a sentence: `hung`, `failed`, `hung or crashed the worker`.
pub(super) fn what<'a>(events: impl IntoIterator<Item = &'a Break>) -> String {
    let kinds: BTreeSet<How> = events.into_iter().map(|event| event.how).collect();
    let word = |how: &How| match how {
        How::Hung => "hung",
        How::Crashed => "crashed the worker",
        How::Failed => "failed",
    };
    kinds.iter().map(word).collect::<Vec<_>>().join(" or ")
}

/// Adds the rounds to the facts of a finding: all flows, how they broke off, and the numbers.
pub(super) fn with_facts(finding: Finding, all: &[&BrokenOff]) -> Finding {
    let events = || all.iter().flat_map(|broken| broken.events());
    let mut pairs: Vec<Pair> = Vec::new();
    let flows = all.iter().flat_map(|broken| &broken.flows);
    for pair in flows.filter_map(|flow| flow.pair()) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let hows: BTreeSet<How> = events().map(|event| event.how).collect();
    let hows: Vec<&str> = hows.iter().map(|how| how.word()).collect();
    finding
        .fact("pairs", (!pairs.is_empty()).then_some(pairs))
        .fact("events", events().count())
        .fact("how", hows.join(", "))
}

/// Returns the GPUs of these flows.
pub(super) fn gpus(all: &[&BrokenOff]) -> Vec<u32> {
    let flows = all.iter().flat_map(|broken| &broken.flows);
    words::unique(flows.flat_map(|flow| flow.gpus()))
}

/// Returns the steps: read the log, run the same again, and then look at the parts.
pub(super) fn plan(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> Plan {
    let flows: Vec<Flow> = all.iter().flat_map(|broken| broken.flows.iter().copied()).collect();
    let gpus = gpus(all);
    let parts = match evidence.virtual_machine() {
        true => vec![Step::AskHost(Ask::Xids)],
        false => vec![
            Step::Reseat(Part::GpusAndJoints(steps::all(&gpus))),
            Step::PowerCables(one_of(&gpus)),
            Step::PowerSupply,
            Step::Swap(Part::Gpu(OneOf(gpus))),
        ],
    };
    let errors = load_steps::errors_of(evidence, &flows);
    Plan::now([Step::Xid, errors, Step::CheckOften]).if_it_stays(parts)
}

/// Returns the possible causes.
pub(super) fn suspects(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> Vec<Suspect> {
    let driver = suspect(Cause::Driver, [Step::CrashLog, Step::OtherDriver]);
    if evidence.virtual_machine() {
        return vec![suspect(Cause::Host, [Step::AskHost(Ask::Xids)]), driver];
    }
    let joints = Part::GpusAndJoints(steps::all(&gpus(all)));
    let test = [Step::Reseat(joints), Step::CheckAgain, Step::CheckSubsets];
    let contact = suspect(Cause::Contacts, test);
    let test = [Step::LowerPower, Step::CheckAgain, Step::Bmc];
    let power = suspect(Cause::Power, test);
    match all.iter().any(|broken| broken.in_company()) {
        true => vec![contact, power, driver],
        false => vec![driver, contact],
    }
}

/// Returns pairs if all flows are pairs of GPUs, else the flows by name.
pub(super) fn named_or_pairs(flows: &[Flow]) -> Option<Fact> {
    let pairs: Option<Vec<Pair>> = flows.iter().map(|flow| flow.pair()).collect();
    let names = || Fact::Texts(flows.iter().map(ToString::to_string).collect());
    (!flows.is_empty()).then(|| pairs.map_or_else(names, Fact::Pairs))
}

/// Returns true if copies of a flow of this pattern also fail, hang or lose bytes alone.
pub(crate) fn pattern_fails_alone(measurements: &Measurements, pattern: &LoadPattern) -> bool {
    let flows: Vec<Flow> = pattern.flows.iter().map(|flow| flow.flow()).collect();
    fails_alone(measurements, &flows)
}

/// Returns true if copies of one of these flows fail, hang or lose bytes alone.
pub(crate) fn fails_alone(measurements: &Measurements, flows: &[Flow]) -> bool {
    let mut alone = measurements.cells().filter(|cell| {
        cell.probe != Probe::Load && (cell.verified.is_wrong() || cell.status.broke_off())
    });
    let places = |flow: Flow| flow.ends().map(Endpoint::place);
    alone.any(|cell| flows.iter().any(|flow| places(*flow) == places(cell.flow)))
}
