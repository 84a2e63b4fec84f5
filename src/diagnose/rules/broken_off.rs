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
    ends.filter_map(Endpoint::gpu)
        .collect::<BTreeSet<u32>>()
        .into_iter()
        .collect()
}

/// Returns the first steps: read the log, run the same again, and run one flow at a time.
pub(super) fn next_step(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> String {
    let flows: Vec<Flow> = all
        .iter()
        .flat_map(|broken| broken.flows.iter().copied())
        .collect();
    let counters = load_steps::counters_of(evidence, &flows);
    let serial = match all.iter().any(|broken| broken.in_company()) {
        true => ", several times, and with --serial to compare",
        false => ", several times",
    };
    let parts = match evidence.virtual_machine() {
        true => "show whoever runs the host the time and the GPUs",
        false => {
            "reseat the GPUs and what joins them, check their power cables and power supply, and swap one of them to see \
             whether it moves"
        }
    };
    format!(
        "Look for Xid messages of the time of this run (dmesg | grep -i xid) and at the error counters of the links \
         ({counters}). Check again{serial}: a machine that is sound never does this. If it comes again, {parts}"
    )
}

/// Returns the possible causes.
pub(super) fn suspects(evidence: &Evidence<'_>, all: &[&BrokenOff]) -> Vec<Suspect> {
    let driver = suspect(
        "the driver, or a library that is loaded into the worker",
        "look for the process in dmesg (segfault), and check again with another version of the driver",
    );
    if evidence.virtual_machine() {
        return vec![
            suspect(
                "the host",
                "ask whoever runs the host for Xid messages of that time",
            ),
            driver,
        ];
    }
    let contact = suspect(
        "a GPU, bridge, riser or cable with a bad contact",
        "reseat it and check again; with --gpus, subsets of the GPUs show which ones it takes",
    );
    let power = suspect(
        "a power supply or power cables that do not bear the load of several GPUs",
        "check again with a lower power limit (nvidia-smi -pl), and look into the log of the management controller",
    );
    match all.iter().any(|broken| broken.in_company()) {
        true => vec![contact, power, driver],
        false => vec![driver, contact],
    }
}
