//! # What it means
//!
//! Bytes arrive wrong, or never, while several copies run at the same time. Each copy alone arrives intact, and no
//! program gets an error.
//!
//! # What to do
//!
//! Take the machine out of service. Look for Xid messages (dmesg | grep -i xid) and for error counters of the links
//! that these flows pass. Check again with the IOMMU in pass-through (iommu=pt) and ACS off. Swap the GPUs of one
//! such flow, or the parts that several of them share.
//!
//! # How it is detected
//!
//! After a pattern of several flows (`measurements.load`) every destination is checked. The finding is about the
//! flows whose bytes are wrong (`verified`; without it, all flows of the pattern), or what they have in common; those
//! that arrived are `beside` in its evidence. Patterns with a flow that fails alone are left out.
//!
//! # Sources
//!
//! CUDA Programming Guide, 3.4.2.5 (IOMMU and peer access); public cases of corrupted peer copies (pytorch issue
//! 84803).

use super::load;
use super::load_steps;
use super::prelude::*;
use super::remedy;
use model::flow::{Endpoint, Flow};
use model::load::{LoadFlow, LoadPattern};
use model::measurement::Probe;

pub(crate) const RULE: Rule = Rule::new("load-data-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let is_new = |pattern: &&LoadPattern| {
        pattern.verified.is_wrong() && !pattern_fails_alone(measurements, pattern)
    };
    let wrong: Vec<&LoadPattern> = measurements.load.iter().filter(is_new).collect();
    let flows = || wrong.iter().flat_map(|pattern| &pattern.flows);
    if !flows().any(LoadFlow::is_wrong) {
        return of_unknown_flows(evidence, &wrong).into_iter().collect();
    }
    let pairs = |is_meant: fn(&&LoadFlow) -> bool| -> Vec<Pair> {
        let pairs = flows().filter(is_meant).filter_map(|flow| flow.flow().pair());
        words::unique(pairs)
    };
    let bad = pairs(|flow| flow.is_wrong());
    let seen = pairs(|flow| flow.verified == Some(Verified::Ok));
    let groups = evidence.groups(&bad, &seen);
    let of_pairs = groups.iter().filter_map(|group| {
        let is_meant = |flow: Flow| flow.pair().is_some_and(|pair| group.pairs.contains(&pair));
        Some(finding(evidence, group.subject(), &wrong, &is_meant)?.pairs(&group.pairs))
    });
    let with_host = |flow: Flow| flow.pair().is_none();
    let gpus = gpus_of(flows().filter(|flow| flow.is_wrong() && with_host(flow.flow())));
    let of_host = finding(evidence, Subject::of_gpus(&gpus), &wrong, &with_host);
    of_pairs.chain(of_host.map(|found| found.gpus(&gpus))).collect()
}

fn gpus_of<'a>(flows: impl Iterator<Item = &'a LoadFlow>) -> Vec<u32> {
    words::unique(flows.flat_map(|flow| flow.flow().gpus()))
}

/// Returns the finding on those flows of these patterns that `is_meant` selects and whose bytes are wrong; `None` if
/// there are none.
fn finding(
    evidence: &Evidence<'_>,
    subject: Subject,
    wrong: &[&LoadPattern],
    is_meant: &dyn Fn(Flow) -> bool,
) -> Option<Finding> {
    let is_wrong = |flow: &&LoadFlow| flow.is_wrong() && is_meant(flow.flow());
    let shows = |pattern: &&&LoadPattern| pattern.flows.iter().any(|flow| is_wrong(&flow));
    let patterns: Vec<&LoadPattern> = wrong.iter().filter(shows).copied().collect();
    // The smallest pattern locates the fault best.
    let first = patterns.iter().min_by_key(|pattern| pattern.flows.len())?;
    let all: Vec<&LoadFlow> =
        patterns.iter().flat_map(|pattern| &pattern.flows).filter(is_wrong).collect();
    let detail = first.flows.iter().find(is_wrong);
    let detail = detail.and_then(|flow| flow.verification_detail.as_deref());
    let flows: Vec<Flow> = words::unique(all.iter().map(|flow| flow.flow()));
    let sound = first.flows.iter().filter(|flow| !flow.is_wrong());
    let beside = sound.map(LoadFlow::flow).filter(|flow| !flows.contains(flow));
    let beside: Vec<Flow> = beside.collect();
    let message = format!(
        "{}: bytes {} while other copies run ({}, {} beside){}",
        load::flow_names(&flows),
        arrive(all.iter().filter_map(|flow| flow.verified)),
        first.name(),
        beside.len(),
        words::after(": ", detail),
    );
    let found = RULE
        .finding(subject, message, plan(evidence, &flows))
        .fact("beside", named_or_pairs(&beside))
        .fact("pattern", first.name());
    Some(found.fact("patterns", patterns.len()))
}

/// Returns the finding for reports that record wrong bytes by pattern only, as those of earlier versions do.
fn of_unknown_flows(evidence: &Evidence<'_>, wrong: &[&LoadPattern]) -> Option<Finding> {
    let first = wrong.iter().min_by_key(|pattern| pattern.flows.len())?;
    let flows: Vec<Flow> = first.flows.iter().map(LoadFlow::flow).collect();
    let detail = words::after(": ", first.verification_detail.as_deref());
    let message = format!(
        "Bytes {} while several copies run at once ({}: {}){detail}",
        arrive(wrong.iter().map(|pattern| pattern.verified)),
        first.name(),
        load::flow_names(&flows)
    );
    let found = RULE
        .finding(Subject::Machine, message, plan(evidence, &flows))
        .gpus(&gpus_of(first.flows.iter()))
        .pairs(&words::unique(flows.iter().filter_map(|flow| flow.pair())))
        .fact("pattern", first.name());
    Some(found.fact("patterns", wrong.len()))
}

fn arrive(verified: impl Iterator<Item = Verified>) -> &'static str {
    let verified: Vec<Verified> = verified.collect();
    if verified.contains(&Verified::Corrupt) {
        "arrive wrong"
    } else if verified.contains(&Verified::Dropped) {
        "never arrive"
    } else {
        "are lost in some copies"
    }
}

/// Returns pairs if all flows are pairs of GPUs, else the flows by name.
pub(super) fn named_or_pairs(flows: &[Flow]) -> Option<Fact> {
    let pairs: Option<Vec<Pair>> = flows.iter().map(|flow| flow.pair()).collect();
    let names = || Fact::Texts(flows.iter().map(ToString::to_string).collect());
    (!flows.is_empty()).then(|| pairs.map_or_else(names, Fact::Pairs))
}

fn plan(evidence: &Evidence<'_>, flows: &[Flow]) -> Plan {
    let pairs = words::unique(flows.iter().filter_map(|flow| flow.pair()));
    let part = match flows {
        [flow] => Part::Gpu(OneOf(flow.gpus().collect())),
        _ => Part::Shared,
    };
    let errors = load_steps::errors_of(evidence, flows);
    Plan::until_repair([Step::MachineOutOfService])
        .and(When::Now, [Step::Xid, errors])
        .and(When::Now, remedy::settings(evidence, &pairs))
        .and(When::Now, [Step::Swap(part)])
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
