//! # What it means
//!
//! Bytes arrive wrong, or never, while several copies run at the same time. Each of them alone arrives.
//!
//! # How it is detected
//!
//! After a pattern of several flows (`measurements.load`) every destination is checked. Patterns with a flow whose copies
//! fail alone are left out: those copies have findings of their own.
//!
//! # Why it matters
//!
//! Everything computed from these bytes is wrong, and nothing reports it.
//!
//! # What to do
//!
//! Take the machine out of service. Look for Xid messages (dmesg | grep -i xid) and for error counters of the links that
//! these flows share, check again with the IOMMU in pass-through (iommu=pt) and ACS off, and swap what they share.
//!
//! # Sources
//!
//! CUDA Programming Guide, 3.4.2.5 (IOMMU and peer access); public cases of corrupted peer copies (pytorch issue 84803).

use super::load;
use super::load_steps;
use super::prelude::*;
use super::remedy;
use model::flow::Endpoint;
use model::load::LoadPattern;

pub const RULE: Rule = Rule::new(
    "load-data-wrong",
    Severity::Error,
    include_str!("load_data_wrong.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(measurements) = evidence.measurements else {
        return Vec::new();
    };
    let is_new =
        |pattern: &&LoadPattern| pattern.verified.is_wrong() && !fails_alone(measurements, pattern);
    let wrong: Vec<&LoadPattern> = measurements.load.iter().filter(is_new).collect();
    // The smallest pattern says most of where it is.
    let Some(first) = wrong.iter().min_by_key(|pattern| pattern.flows.len()) else {
        return Vec::new();
    };
    let what = if wrong
        .iter()
        .any(|pattern| pattern.verified == Verified::Corrupt)
    {
        "arrive wrong"
    } else {
        "never arrive"
    };
    let detail = first
        .verification_detail
        .as_deref()
        .map(|detail| format!(": {detail}"))
        .unwrap_or_default();
    let message = format!(
        "Bytes {what} while several copies run at once ({}: {}){detail}",
        first.name(),
        load::flows(&first.flows)
    );
    let pairs = words::unique(
        first
            .flows
            .iter()
            .filter_map(|flow| flow.flow().pair())
            .collect(),
    );
    let settings: String = remedy::settings(evidence, &pairs)
        .iter()
        .map(|step| format!("; {step}"))
        .collect();
    let next_step = format!(
        "Take the machine out of service: results computed on it may be wrong. Look for Xid messages (dmesg | grep -i xid) \
         and for error counters of the links that these copies share ({}){settings}; then swap what they share",
        load_steps::counters_of(evidence, first)
    );
    let gpus = first
        .flows
        .iter()
        .flat_map(|flow| flow.flow().ends())
        .filter_map(Endpoint::gpu);
    let gpus: Vec<u32> = gpus.collect::<BTreeSet<u32>>().into_iter().collect();
    vec![
        RULE.finding(Subject::Machine, message, next_step)
            .gpus(&gpus)
            .pairs(&pairs)
            .fact("pattern", first.name())
            .fact("patterns", wrong.len()),
    ]
}

/// Whether copies of a flow of this pattern fail, hang or lose bytes by themselves too.
pub fn fails_alone(measurements: &Measurements, pattern: &LoadPattern) -> bool {
    let peer = measurements.peer.iter().map(PeerBandwidth::cell);
    let mut alone = peer
        .chain(measurements.host.iter().map(model::host::HostCopy::cell))
        .filter(|cell| {
            cell.verified.is_wrong() || matches!(cell.status, Status::Failed | Status::Hung)
        });
    let places = |flow: model::flow::Flow| flow.ends().map(Endpoint::place);
    alone.any(|cell| {
        pattern
            .flows
            .iter()
            .any(|flow| places(flow.flow()) == places(cell.flow))
    })
}
