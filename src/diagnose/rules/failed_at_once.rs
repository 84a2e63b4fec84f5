//! Part of `copy-failed`: copies that fail while several run at once.

use super::broken_off::{self, pattern_fails_alone};
use super::load;
use super::prelude::*;
use model::broken_off::How;

/// Returns patterns that failed although each of their flows works alone.
fn failed(measurements: &Measurements) -> Vec<&LoadPattern> {
    let is_bad = |pattern: &&LoadPattern| {
        pattern.ending.status.broke_off() && !pattern_fails_alone(measurements, pattern)
    };
    measurements.load.iter().filter(is_bad).collect()
}

/// Returns rounds that broke off with several flows.
fn in_company(measurements: &Measurements) -> Vec<&BrokenOff> {
    let mut broken = broken_off::unexplained(measurements);
    broken.retain(|broken| broken.in_company());
    broken
}

/// Returns true if more than one event with several flows went wrong, which this rule reports.
pub(super) fn is_repeated(measurements: &Measurements) -> bool {
    let broken = in_company(measurements);
    let events = broken.iter().flat_map(|broken| broken.events()).count();
    events > 1 || !failed(measurements).is_empty()
}

/// Returns the finding on copies that fail while several run at once.
pub(super) fn finding(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    if !is_repeated(measurements) {
        return None;
    }
    let (bad, broken) = (failed(measurements), in_company(measurements));
    let of_patterns = bad.iter().map(|pattern| match pattern.ending.status {
        Status::Hung => How::Hung,
        _ => How::Failed,
    });
    let events = || broken.iter().flat_map(|of| of.events());
    let kinds: BTreeSet<How> = of_patterns.chain(events().map(|of| of.how)).collect();
    let word = |how: &How| match how {
        How::Hung => "hang",
        How::Crashed => "crash the process that runs them",
        How::Failed => "fail",
    };
    let what: Vec<&str> = kinds.iter().rev().map(word).collect();
    let what = what.join(" or ");
    let groups = by_reason(&bad);
    let of_groups =
        groups.iter().map(|(reason, patterns)| format!("{}: {reason}", names(patterns)));
    let all: Vec<String> = of_groups.chain(events().map(|of| of.reason.clone())).collect();
    let flows = words::distinct(broken.iter().map(|of| broken_off::flows(of)));
    let flows = words::after("; ", Some(flows));
    let message = format!("Copies {what} while several run at once{flows}; {}", all.join("; "));
    let first = bad.iter().min_by_key(|pattern| pattern.flows.len());
    let of_first = first.iter().flat_map(|first| &first.flows).flat_map(|flow| flow.flow().gpus());
    let gpus = words::unique(broken_off::gpus(&broken).into_iter().chain(of_first));
    let reset = Step::ResetGpu(steps::all(&gpus));
    let plan = match broken.is_empty() {
        true => Plan::now([Step::Xid, Step::FabricManager, Step::CheckAgain]).if_it_stays([
            reset,
            Step::PowerCycle,
            Step::CheckSubsets,
        ]),
        false => broken_off::plan(evidence, &broken),
    };
    let found = rule
        .on_machine(message, plan)
        .gpus(&gpus)
        .about_pairs(lost_pairs(measurements, &bad))
        .fact("pattern", first.map(|first| first.name()));
    if broken.is_empty() {
        return Some(found);
    }
    Some(broken_off::with_facts(found, &broken).suspecting(broken_off::suspects(evidence, &broken)))
}

/// Returns the pairs of patterns that failed, and of skipped patterns that contain all flows of a failed one.
fn lost_pairs(measurements: &Measurements, bad: &[&LoadPattern]) -> Vec<Pair> {
    let flows = |pattern: &LoadPattern| {
        pattern.flows.iter().map(|flow| flow.flow()).collect::<BTreeSet<_>>()
    };
    let is_lost = |pattern: &&LoadPattern| {
        pattern.ending.status != Status::Measured
            && bad.iter().any(|failed| flows(failed).is_subset(&flows(pattern)))
    };
    let lost = measurements.load.iter().filter(is_lost).flat_map(|pattern| &pattern.flows);
    words::unique(lost.filter_map(|flow| flow.flow().pair()))
}

/// Groups the patterns by reason, the smallest first: it locates the fault best.
fn by_reason<'a>(bad: &[&'a LoadPattern]) -> Vec<(&'a str, Vec<&'a LoadPattern>)> {
    let mut sorted = bad.to_vec();
    sorted.sort_by_key(|pattern| pattern.flows.len());
    let mut groups: Vec<(&str, Vec<&LoadPattern>)> = Vec::new();
    for pattern in sorted {
        let reason = pattern.ending.reason.as_deref().unwrap_or("no reason given");
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, patterns)) => patterns.push(pattern),
            None => groups.push((reason, vec![pattern])),
        }
    }
    groups
}

/// Returns words such as `all to one, GPU 0 (GPU 1 → GPU 0, GPU 2 → GPU 0) and 2 other patterns`.
fn names(patterns: &[&LoadPattern]) -> String {
    let Some(first) = patterns.first() else {
        return String::new();
    };
    let named = format!("{} ({})", first.name(), load::flows(&first.flows));
    named + &words::further(" and ", patterns.len() - 1, "other pattern")
}
