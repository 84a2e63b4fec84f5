//! Part of `data-wrong`: several copies at the same time, each of which arrives intact alone.

use super::prelude::*;
use super::wrong_bytes::Wrong;
use super::{broken_off, load, load_steps, remedy};

/// Returns the findings on several copies at the same time, each of which arrives intact alone.
pub(super) fn findings(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let is_new = |pattern: &&LoadPattern| {
        pattern.verified.is_wrong() && !broken_off::pattern_fails_alone(measurements, pattern)
    };
    let mut wrong: Vec<LoadPattern> = measurements.load.iter().filter(is_new).cloned().collect();
    // A report that does not say which flows: any may be.
    for pattern in &mut wrong {
        if !pattern.flows.iter().any(LoadFlow::is_wrong) {
            pattern.flows.iter_mut().for_each(|flow| flow.verified = Some(pattern.verified));
        }
    }
    let wrong: Vec<&LoadPattern> = wrong.iter().collect();
    let flows = || wrong.iter().flat_map(|pattern| &pattern.flows);
    let pairs = |is_meant: fn(&&LoadFlow) -> bool| -> Vec<Pair> {
        let pairs = flows().filter(is_meant).filter_map(|flow| flow.flow().pair());
        words::unique(pairs)
    };
    let bad = pairs(|flow| flow.is_wrong());
    let seen = pairs(|flow| flow.verified == Some(Verified::Ok));
    let groups = evidence.groups(&bad, &seen);
    let of_groups = groups.iter().filter_map(|group| {
        let is_meant = |flow: Flow| flow.pair().is_some_and(|pair| group.pairs.contains(&pair));
        Some(of_flows((rule, evidence), group.subject(), &wrong, &is_meant)?.pairs(&group.pairs))
    });
    let with_host = |flow: Flow| flow.pair().is_none();
    let gpus = gpus_of(flows().filter(|flow| flow.is_wrong() && with_host(flow.flow())));
    let host = of_flows((rule, evidence), Subject::of_gpus(&gpus), &wrong, &with_host);
    of_groups.chain(host.map(|found| found.gpus(&gpus))).collect()
}

fn gpus_of<'a>(flows: impl Iterator<Item = &'a LoadFlow>) -> Vec<u32> {
    words::unique(flows.flat_map(|flow| flow.flow().gpus()))
}

/// Returns the finding on those flows of these patterns that `is_meant` selects and whose bytes are wrong; `None` if
/// there are none.
fn of_flows(
    (rule, evidence): (&Rule, &Evidence<'_>),
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
    let detail =
        first.flows.iter().find(is_wrong).and_then(|flow| flow.verification_detail.as_deref());
    let flows: Vec<Flow> = words::unique(all.iter().map(|flow| flow.flow()));
    let sound = first.flows.iter().filter(|flow| !flow.is_wrong());
    let beside: Vec<Flow> =
        sound.map(LoadFlow::flow).filter(|flow| !flows.contains(flow)).collect();
    let message = format!(
        "{}: bytes {} while other copies run; {}, {} beside{}",
        load::flow_names(&flows),
        Wrong::of(all.iter().filter_map(|flow| flow.verified)).words(),
        first.name(),
        beside.len(),
        words::after("; ", detail),
    );
    Some(
        rule.finding(subject, message, steps_of(evidence, &flows))
            .fact("beside", broken_off::named_or_pairs(&beside))
            .fact("pattern", first.name()),
    )
}

fn steps_of(evidence: &Evidence<'_>, flows: &[Flow]) -> Plan {
    let pairs = words::unique(flows.iter().filter_map(|flow| flow.pair()));
    let part = match flows {
        [flow] => Part::Gpu(OneOf(flow.gpus().collect())),
        _ => Part::Shared,
    };
    let errors = load_steps::errors_of(evidence, flows);
    Plan::until_repair([Step::MachineOutOfService])
        .then([Step::Xid, errors])
        .then(remedy::settings(evidence, &pairs))
        .then([Step::Swap(part)])
}
