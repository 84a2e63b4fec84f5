//! Shared by the rules on rounds that broke off: the rounds that nothing else explains, their wording, their facts and
//! their suspects.

use super::load_data_wrong::fails_alone;
use super::load_steps;
use super::prelude::*;
use model::broken_off::{Again, Break, BrokenOff, How};
use model::flow::{Endpoint, Flow, Place};
use model::measurement::Probe;

/// Most flows that a message names (chosen). More flows occur only with more than 32 GPUs; the evidence has the rest.
const NAMED: usize = 16;

/// Returns rounds that broke off although each of their flows works alone.
pub(super) fn unexplained(measurements: &Measurements) -> Vec<&BrokenOff> {
    let of_pattern = |broken: &BrokenOff| {
        let flows: BTreeSet<Flow> = broken.flows.iter().copied().collect();
        let mut bad = measurements
            .load
            .iter()
            .filter(|load| matches!(load.ending.status, Status::Failed | Status::Hung));
        bad.any(|load| {
            load.flows
                .iter()
                .map(|flow| flow.flow())
                .collect::<BTreeSet<_>>()
                == flows
        })
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
    let alone = || {
        measurements
            .cells()
            .filter(|cell| cell.probe != Probe::Load)
    };
    let bad = alone().filter(|cell| matches!(cell.status, Status::Failed | Status::Hung));
    let bad_gpus: BTreeSet<Place> = bad.flat_map(|cell| places(cell.flow)).collect();
    let mut skipped = alone()
        .filter(|cell| cell.status == Status::Skipped)
        .map(|cell| places(cell.flow));
    skipped.any(|ends| {
        ends.iter().any(|end| bad_gpus.contains(end))
            && flows.iter().any(|flow| places(*flow) == ends)
    })
}

/// Returns the flows as words.
pub(super) fn flows(broken: &BrokenOff) -> String {
    let named: Vec<String> = broken
        .flows
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    match broken.flows.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
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
    let pairs_of = |flows: &[Flow]| {
        flows
            .iter()
            .filter_map(|flow| flow.pair())
            .collect::<Vec<Pair>>()
    };
    let mut pairs: Vec<Pair> = Vec::new();
    for pair in all.iter().flat_map(|broken| pairs_of(&broken.flows)) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let at_once = |broken: &&&BrokenOff| -> (String, Fact) {
        let pairs = pairs_of(&broken.flows);
        let flows = match pairs.len() == broken.flows.len() {
            true => Fact::Pairs(pairs),
            false => Fact::Texts(broken.flows.iter().map(ToString::to_string).collect()),
        };
        (format!("round {}", broken.round), flows)
    };
    let table: Facts = all
        .iter()
        .filter(|broken| broken.in_company())
        .map(|broken| at_once(&broken))
        .collect();
    let hows: BTreeSet<How> = events().map(|event| event.how).collect();
    let numbers = |of: fn(&Break) -> Option<u64>| {
        let numbers: BTreeSet<u64> = events().filter_map(of).collect();
        (!numbers.is_empty()).then(|| Fact::Numbers(numbers.into_iter().collect()))
    };
    finding
        .fact("pairs", (!pairs.is_empty()).then_some(pairs))
        .fact("flows_at_once", (!table.is_empty()).then_some(table))
        .fact("events", events().count())
        .fact(
            "how",
            hows.iter()
                .map(|how| how.word())
                .collect::<Vec<_>>()
                .join(", "),
        )
        .fact(
            "signals",
            numbers(|event| u64::try_from(event.signal?).ok()),
        )
        .fact(
            "error_codes",
            numbers(|event| event.error_code.map(u64::from)),
        )
        .fact(
            "exit_codes",
            numbers(|event| u64::try_from(event.exit_code?).ok()),
        )
}

/// Returns the GPUs of these flows.
pub(super) fn gpus(all: &[&BrokenOff]) -> Vec<u32> {
    let ends = all
        .iter()
        .flat_map(|broken| &broken.flows)
        .flat_map(|flow| flow.ends());
    words::unique(ends.filter_map(Endpoint::gpu))
}

/// Returns the steps: read the log, run the same again, and then look at the parts.
pub(super) fn plan(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> Plan {
    let flows: Vec<Flow> = all
        .iter()
        .flat_map(|broken| broken.flows.iter().copied())
        .collect();
    let again = match all.iter().any(|broken| broken.in_company()) {
        true => Step::CheckOftenAndSerial,
        false => Step::CheckOften,
    };
    let gpus = gpus(all);
    let parts = match evidence.virtual_machine() {
        true => vec![Step::AskHost(Ask::Time)],
        false => vec![
            Step::Reseat(Part::GpusAndJoints(steps::all(&gpus))),
            Step::PowerCables(one_of(&gpus)),
            Step::PowerSupply,
            Step::Swap(Part::Gpu(OneOf(gpus))),
        ],
    };
    let log = [
        Step::XidOfRun,
        load_steps::errors_of(evidence, &flows),
        again,
    ];
    Plan::now(log).if_it_stays(parts)
}

/// Returns the possible causes.
pub(super) fn suspects(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> Vec<Suspect> {
    let driver = suspect(Cause::Driver, [Step::CrashLog, Step::OtherDriver]);
    if evidence.virtual_machine() {
        return vec![suspect(Cause::Host, [Step::AskHost(Ask::Xids)]), driver];
    }
    let joints = Part::GpusAndJoints(steps::all(&gpus(all)));
    let contact = suspect(
        Cause::BadContact,
        [Step::Reseat(joints), Step::CheckAgain, Step::CheckSubsets],
    );
    let power = suspect(
        Cause::Power,
        [Step::LowerPower, Step::CheckAgain, Step::Bmc],
    );
    match all.iter().any(|broken| broken.in_company()) {
        true => vec![contact, power, driver],
        false => vec![driver, contact],
    }
}
