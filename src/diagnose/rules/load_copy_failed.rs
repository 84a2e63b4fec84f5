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
use crate::model::flow::Endpoint;
use crate::model::load::LoadPattern;

/// The rule.
pub const RULE: Rule = Rule::new("load-copy-failed", Severity::Error, include_str!("load_copy_failed.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(measurements) = evidence.measurements else { return Vec::new() };
    let is_bad = |pattern: &&LoadPattern| {
        matches!(pattern.status, Status::Failed | Status::Hung) && !fails_alone(measurements, pattern)
    };
    let bad: Vec<&LoadPattern> = measurements.load.iter().filter(is_bad).collect();
    let Some(first) = bad.iter().min_by_key(|pattern| pattern.flows.len()) else { return Vec::new() };
    let what = if bad.iter().any(|pattern| pattern.status == Status::Hung) { "never end" } else { "fail" };
    let reasons = words::distinct(bad.iter().filter_map(|pattern| pattern.reason.as_deref()));
    let message = format!(
        "Copies {what} while several run at once ({}: {}): {}",
        first.name(),
        load::flows(&first.flows),
        if reasons.is_empty() { "no reason given" } else { &reasons },
    );
    let next_step = "Look for Xid messages (dmesg | grep -i xid) and the fabric manager's log, and check again. If it \
        repeats: reset the GPUs or power-cycle the machine, and check subsets of them (--gpus) to see which ones it needs";
    let gpus = first.flows.iter().flat_map(|flow| flow.flow().ends()).filter_map(Endpoint::gpu);
    let gpus: Vec<u32> = gpus.collect::<BTreeSet<u32>>().into_iter().collect();
    vec![
        RULE.finding(Subject::Machine, message, next_step)
            .gpus(&gpus)
            .fact("pattern", first.name())
            .fact("patterns", bad.len())
            .fact("reasons", reasons),
    ]
}
