//! # What it means
//!
//! Copies fail, or never end, while several of them run at the same time. Each of them alone works.
//!
//! # How it is detected
//!
//! A pattern of several flows (`measurements.load`) ended with an error of the driver, or not before its deadline.
//! Patterns with a flow whose copies fail alone are left out: those copies have findings of their own.
//!
//! # Why it matters
//!
//! Collective operations copy this way: a job hangs or crashes where single copies pass every test.
//!
//! # What to do
//!
//! Look for Xid messages (dmesg | grep -i xid) and the fabric manager's log, and check again. If it repeats: reset the
//! GPUs or power-cycle the machine, and check subsets of them (`--gpus`) to see which ones it needs.
//!
//! # Sources
//!
//! Public cases of collectives that hang where pairs pass (nccl issues 557 and 606).

use super::load;
use super::load_data_wrong::fails_alone;
use super::prelude::*;
use model::flow::Endpoint;
use model::load::LoadPattern;

pub const RULE: Rule = Rule::new(
    "load-copy-failed",
    Severity::Error,
    include_str!("load_copy_failed.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(measurements) = evidence.measurements else {
        return Vec::new();
    };
    let is_bad = |pattern: &&LoadPattern| {
        matches!(pattern.status, Status::Failed | Status::Hung)
            && !fails_alone(measurements, pattern)
    };
    let bad: Vec<&LoadPattern> = measurements.load.iter().filter(is_bad).collect();
    let Some(first) = bad.iter().min_by_key(|pattern| pattern.flows.len()) else {
        return Vec::new();
    };
    let hung = bad
        .iter()
        .filter(|pattern| pattern.status == Status::Hung)
        .count();
    let what = match hung {
        0 => "fail",
        all if all == bad.len() => "never end",
        _ => "fail or never end",
    };
    let groups = by_reason(&bad);
    let all: Vec<String> = groups
        .iter()
        .map(|(reason, patterns)| format!("{}: {reason}", names(patterns)))
        .collect();
    let message = format!(
        "Copies {what} while several run at once: {}",
        all.join("; ")
    );
    let reasons = words::distinct(groups.iter().map(|(reason, _)| *reason));
    let next_step = "Look for Xid messages (dmesg | grep -i xid) and the fabric manager's log, and check again. If it \
        repeats: reset the GPUs or power-cycle the machine, and check subsets of them (--gpus) to see which ones it needs";
    let gpus = first
        .flows
        .iter()
        .flat_map(|flow| flow.flow().ends())
        .filter_map(Endpoint::gpu);
    let gpus: Vec<u32> = gpus.collect::<BTreeSet<u32>>().into_iter().collect();
    vec![
        RULE.finding(Subject::Machine, message, next_step)
            .gpus(&gpus)
            .about_pairs(lost_pairs(measurements, &bad))
            .fact("pattern", first.name())
            .fact("patterns", bad.len())
            .fact("reasons", reasons),
    ]
}

/// The pairs of patterns that failed, and of those that were left out since they copy all of that and more.
fn lost_pairs(measurements: &Measurements, bad: &[&LoadPattern]) -> Vec<Pair> {
    let flows = |pattern: &LoadPattern| {
        pattern
            .flows
            .iter()
            .map(|flow| flow.flow())
            .collect::<BTreeSet<_>>()
    };
    let copies_all = |pattern: &LoadPattern| {
        bad.iter()
            .any(|failed| flows(failed).is_subset(&flows(pattern)))
    };
    let lost = measurements
        .load
        .iter()
        .filter(|pattern| pattern.status != Status::Measured && copies_all(pattern));
    words::unique(
        lost.flat_map(|pattern| &pattern.flows)
            .filter_map(|flow| flow.flow().pair())
            .collect(),
    )
}

/// The patterns of each reason, the smallest first: it says most of where it is.
fn by_reason<'a>(bad: &[&'a LoadPattern]) -> Vec<(&'a str, Vec<&'a LoadPattern>)> {
    let mut sorted = bad.to_vec();
    sorted.sort_by_key(|pattern| pattern.flows.len());
    let mut groups: Vec<(&str, Vec<&LoadPattern>)> = Vec::new();
    for pattern in sorted {
        let reason = pattern.reason.as_deref().unwrap_or("no reason given");
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, patterns)) => patterns.push(pattern),
            None => groups.push((reason, vec![pattern])),
        }
    }
    groups
}

/// `two into one, GPU 0 (GPU 1 → GPU 0, GPU 2 → GPU 0) and 2 other patterns`.
fn names(patterns: &[&LoadPattern]) -> String {
    let Some(first) = patterns.first() else {
        return String::new();
    };
    let named = format!("{} ({})", first.name(), load::flows(&first.flows));
    match patterns.len() {
        1 => named,
        more => format!("{named} and {}", words::count(more - 1, "other pattern")),
    }
}
