//! # What it means
//!
//! A copy failed or crashed its process, or never ended while others ran. Programs that do the same fail or hang.
//!
//! # What to do
//!
//! Look for Xid messages in the kernel's log (`dmesg | grep -i xid`) and look them up in NVIDIA's list. An error of
//! memory (ECC, a row remapping that is pending) needs a reset of the GPU, or its replacement. Check the GPUs alone
//! (`--gpus`) to see if the failure repeats; then reset them or power-cycle the machine.
//!
//! If only several copies at once fail, look at the fabric manager's log too, check subsets of the GPUs, and compare
//! with `--serial`. Then reseat GPUs, bridges, risers and cables, and check power cables and supplies: bad contacts and
//! weak supplies show under load first.
//!
//! # How it is detected
//!
//! - A measurement of a pair or within a GPU failed. One that hung is `peer-copy-hung`.
//! - A measurement with the host, or of page-locking, failed or hung. Refused page-locking is `pinning-refused`.
//! - A pattern of several flows (`measurements.load`) failed or hung, or rounds of pairs copied at once broke off at
//!   least twice (`measurements.broken_off`) and worked one by one. Once is `copy-failed-once`.
//! - A round of hours under load (`measurements.soak`) failed or hung, or two crashed. What something outside ended does
//!   not count.
//!
//! # Sources
//!
//! CUDA driver API, `CUresult`; NVIDIA's Xid errors page; collectives that hang although pairs pass (nccl issues 557 and
//! 606).

use super::broken_off::pattern_fails_alone;
use super::prelude::*;
use super::{broken_off, load, over_time, peer_copy};
use model::broken_off::{BrokenOff, How};
use model::cell::Measurement;
use model::host::{HostCopy, Pinning};
use model::load::LoadPattern;
use model::measurement::{Cell, Probe, Scope};
use model::soak::{EventKind, SoakEvent};

pub(crate) const RULE: Rule = Rule::new("copy-failed", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let of_pairs = peer_copy::findings(&RULE, evidence, Status::Failed, "fail", &|group| {
        let gpus = group.gpus();
        Plan::now([Step::Xid, Step::CheckAlone(all(&gpus))])
            .if_it_stays([Step::PowerCycle, Step::Swap(Part::Gpu(OneOf(gpus)))])
    });
    let alone = of_pairs.into_iter().chain(with_host(evidence));
    alone.chain(at_once(evidence)).chain(in_hours(evidence)).collect()
}

/// Returns the findings on copies with the host, and on page-locking for them.
fn with_host(evidence: &Evidence<'_>) -> Vec<Finding> {
    // `data-wrong` reports wrong bytes, however the timing ended.
    let is_bad = |copy: &&HostCopy| copy.ending.status.broke_off() && !copy.verified.is_wrong();
    let copies = evidence.host().iter().filter(is_bad).map(|copy| {
        let way = copy.way().to_string();
        (copy.gpu, Bad::of(copy.cell(), way))
    });
    let measurements = evidence.measured();
    // Calls and kernels within a GPU have their own rule, and which of several flows at once failed is not known.
    let is_other = |cell: &Cell<'_>| {
        let of_flows = cell.probe.scope() == Scope::Flows;
        cell.probe != Probe::Host && !of_flows && cell.status.broke_off()
    };
    let others = measurements.each().map(Measurement::cell);
    let others = others.filter(is_other).filter_map(|cell| {
        let way = cell.probe.to_string();
        Some((cell.flow.with_host()?, Bad::of(cell, way)))
    });
    let by_gpu = words::grouped(copies.chain(others)).into_iter();
    let found = by_gpu.map(|(gpu, bad)| of_gpu(evidence, gpu, &bad));
    found.chain(of_page_locking(&measurements.pinning)).collect()
}

/// A measurement that failed or hung.
struct Bad<'a> {
    status: Status,
    reason: Option<&'a str>,
    way: String,
}

impl<'a> Bad<'a> {
    fn of(cell: Cell<'a>, way: String) -> Self {
        let (status, reason) = (cell.status, cell.reason);
        Self { status, reason, way }
    }
}

/// Returns a finding for page-locking that failed and was not just refused.
fn of_page_locking(pinning: &[Pinning]) -> Option<Finding> {
    let bad = pinning.iter().filter(|cell| cell.ending.status.broke_off() && !cell.refused);
    let bad: Vec<_> = bad.collect();
    let reasons = words::distinct(bad.iter().filter_map(|cell| cell.ending.reason.as_deref()));
    let does = if bad.iter().any(|cell| cell.ending.status == Status::Hung) {
        "never ends"
    } else {
        "fails"
    };
    let message = format!("Page-locking memory of the host {does}: {reasons}");
    let plan = Plan::now([Step::DriverLog, Step::CheckAgain]).if_it_stays([Step::Reboot]);
    let found = RULE.finding(Subject::Machine, message, plan);
    let found = found.fact("measurements", bad.len());
    (!bad.is_empty()).then(|| found.fact("reasons", reasons))
}

fn of_gpu(evidence: &Evidence<'_>, gpu: u32, bad: &[Bad<'_>]) -> Finding {
    let hung = bad.iter().any(|bad| bad.status == Status::Hung);
    let reasons = words::distinct(bad.iter().filter_map(|bad| bad.reason));
    let ways = words::distinct(bad.iter().map(|bad| &bad.way));
    let message = format!(
        "Copies between the host and {} {} ({ways}): {}",
        words::gpu(evidence.snapshot, gpu),
        if hung { "never end" } else { "fail" },
        if reasons.is_empty() { "no reason given" } else { &reasons },
    );
    let own = || all(&[gpu]);
    let plan = Plan::now([Step::Xid, Step::CheckAlone(own())]).if_it_stays([
        Step::ResetGpu(own(), Listed(vec![gpu])),
        Step::PowerCycle,
        Step::Swap(Part::Gpu(steps::gpu(gpu))),
    ]);
    RULE.finding(Subject::Gpu { index: gpu }, message, plan)
        .gpus(&[gpu])
        .fact("measurements", bad.len())
        .fact("reasons", reasons)
}

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
pub(crate) fn is_repeated(measurements: &Measurements) -> bool {
    let broken = in_company(measurements);
    let events = broken.iter().flat_map(|broken| broken.events()).count();
    events > 1 || !failed(measurements).is_empty()
}

/// Returns the finding on copies that fail while several run at once.
fn at_once(evidence: &Evidence<'_>) -> Option<Finding> {
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
        How::Hung => "never end",
        How::Crashed => "crash the process that runs them",
        How::Failed => "fail",
    };
    // "Fail" comes first, as in earlier versions.
    let what: Vec<&str> = kinds.iter().rev().map(word).collect();
    let what = what.join(" or ");
    let groups = by_reason(&bad);
    let of_groups = groups.iter();
    let of_groups = of_groups.map(|(reason, patterns)| format!("{}: {reason}", names(patterns)));
    let all: Vec<String> = of_groups.chain(events().map(|of| of.reason.clone())).collect();
    // A summary ends at the colon.
    let flows = words::distinct(broken.iter().map(|of| broken_off::flows(of)));
    let flows = words::in_brackets(Some(flows));
    let message = format!("Copies {what} while several run at once{flows}: {}", all.join("; "));
    let first = bad.iter().min_by_key(|pattern| pattern.flows.len());
    let of_first = first.iter().flat_map(|first| &first.flows);
    let of_first = of_first.flat_map(|flow| flow.flow().gpus());
    let gpus = words::unique(broken_off::gpus(&broken).into_iter().chain(of_first));
    let reasons = groups.iter().map(|(reason, _)| *reason);
    let reasons = words::distinct(reasons.chain(events().map(|of| of.reason.as_str())));
    let reset = Step::ResetGpu(steps::all(&gpus), Listed(gpus.clone()));
    let plan = match broken.is_empty() {
        true => Plan::now([Step::Xid, Step::FabricLog, Step::CheckAgain]).if_it_stays([
            reset,
            Step::PowerCycle,
            Step::CheckSubsets,
        ]),
        false => broken_off::plan(evidence, &broken),
    };
    let found = RULE
        .finding(Subject::Machine, message, plan)
        .gpus(&gpus)
        .about_pairs(lost_pairs(measurements, &bad))
        .fact("pattern", first.map(|first| first.name()))
        .fact("patterns", (!bad.is_empty()).then_some(bad.len()))
        .fact("reasons", reasons);
    if broken.is_empty() {
        return Some(found);
    }
    Some(broken_off::with_facts(found, &broken).suspecting(broken_off::suspects(evidence, &broken)))
}

/// Returns the pairs of patterns that failed, and of skipped patterns that contain all flows of a failed one.
fn lost_pairs(measurements: &Measurements, bad: &[&LoadPattern]) -> Vec<Pair> {
    let flows = |pattern: &LoadPattern| {
        let flows = pattern.flows.iter().map(|flow| flow.flow());
        flows.collect::<BTreeSet<_>>()
    };
    let is_lost = |pattern: &&LoadPattern| {
        pattern.ending.status != Status::Measured
            && bad.iter().any(|failed| flows(failed).is_subset(&flows(pattern)))
    };
    let lost = measurements.load.iter().filter(is_lost);
    let lost = lost.flat_map(|pattern| &pattern.flows);
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

/// Returns words such as `two into one, GPU 0 (GPU 1 → GPU 0, GPU 2 → GPU 0) and 2 other patterns`.
fn names(patterns: &[&LoadPattern]) -> String {
    let Some(first) = patterns.first() else {
        return String::new();
    };
    let named = format!("{} ({})", first.name(), load::flows(&first.flows));
    named + &words::further(" and ", patterns.len() - 1, "other pattern")
}

/// Returns a finding for each arrangement of flows that failed during hours under load.
fn in_hours(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    // One crash proves no fault: `not-tested` reports it.
    let crashes = |event: &&SoakEvent| event.kind == EventKind::Crashed;
    let repeats = soak.events.iter().filter(crashes).count() > 1;
    let is_lost = |event: &&SoakEvent| {
        matches!(event.kind, EventKind::Hung | EventKind::Failed) || (repeats && crashes(event))
    };
    // The flows of a round are those of its arrangement.
    let arrangement = |event: &SoakEvent| {
        let path = soak.paths.get(event.path? as usize)?;
        Some((path.pattern, path.of.clone()))
    };
    let mut rounds: Vec<(_, Vec<&SoakEvent>)> = Vec::new();
    for event in soak.events.iter().filter(is_lost) {
        let Some(key) = arrangement(event) else {
            continue;
        };
        match rounds.iter_mut().find(|(known, _)| *known == key) {
            Some((_, events)) => events.push(event),
            None => rounds.push((key, vec![event])),
        }
    }
    let finding = |((pattern, of), events): &((_, String), Vec<&SoakEvent>)| {
        let first = events.first()?;
        let own = soak.paths.iter();
        let own = own.filter(|path| path.pattern == *pattern && path.of == *of);
        let gpus = words::unique(own.flat_map(|path| path.flow().gpus()));
        let does = match first.kind {
            EventKind::Hung => "did not end",
            EventKind::Crashed => "crashed the process that ran them",
            _ => "failed",
        };
        let again = match events.len() {
            1 => String::new(),
            many => format!(", {many} times"),
        };
        let at = over_time::after(first.at_s);
        let message = format!("Copies {does} after {at} under load{again}: {}", first.what);
        let plan = Plan::now([Step::Xid, Step::LinkErrors, Step::PowerCycle])
            .if_it_stays([Step::Swap(Part::Gpu(one_of(&gpus)))]);
        let found = RULE
            .finding(Subject::of_gpus(&gpus), message, plan)
            .gpus(&gpus)
            .fact("first_after", Fact::Seconds(first.at_s));
        Some(found.fact("rounds_lost", events.len()))
    };
    rounds.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::flow::{Flow, HostMemory};
    use model::live::PointerChase;
    use model::status::Ending;
    use model::testing::pinning;

    #[test]
    fn page_locking_that_fails_is_an_error_of_the_machine_and_one_that_is_refused_is_not() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        measurements.pinning = vec![pinning()];
        let cell = &mut measurements.pinning[0];
        (cell.ending.status, cell.ending.reason) =
            (Status::Failed, Some("cuMemHostAlloc: launch failed (719)".into()));
        (cell.allocate_ms_per_gib, cell.register_ms_per_gib) = (None, None);
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert!(
            own.subject == Subject::Machine && own.message.contains("(719)"),
            "{}",
            own.message
        );
        measurements.pinning[0].refused = true;
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }

    #[test]
    fn loads_from_the_host_that_fail_are_an_error_of_their_gpu() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        let from_host = Flow::from_host(None, HostMemory::Pinned, 1);
        let mut loads = PointerChase::of(from_host).unwrap();
        loads.ending = Ending::without(Status::Failed, Some("an illegal address (700)".into()));
        measurements.chase.push(loads);
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 1 });
        assert!(own.message.contains("pointer chase"), "{}", own.message);
    }

    #[test]
    fn a_copy_that_fails_is_an_error_of_its_gpu() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        let cell = &mut measurements.host[0];
        (cell.ending.status, cell.achieved_gbps) = (Status::Failed, None);
        cell.ending.reason = Some("cuMemcpyDtoHAsync: an illegal address (700)".into());
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 0 });
        assert!(
            own.message.contains("fail (pinned, to host): cuMemcpyDtoHAsync"),
            "{}",
            own.message
        );
    }

    fn lost(kind: EventKind) -> Vec<Finding> {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        soak.events.push(SoakEvent {
            at_s: 1200.0,
            kind,
            gpu: None,
            path: Some(0),
            function: None,
            xid: None,
            what: "GPU 0 → GPU 1 and 7 more: soak, ring did not end within 45 s".into(),
        });
        over_time::testing::after(soak)
    }

    #[test]
    fn a_round_that_hangs_after_hours_is_an_error_and_one_that_was_killed_is_none() {
        let all = lost(EventKind::Hung);
        let found = only(&all, "copy-failed", Severity::Error);
        assert!(found.message.contains("did not end after 20 min"), "{}", found.message);
        let (must, may) = (["xid", "power-cycle"], ["link-errors", "swap"]);
        assert_advice(&RULE, &all, &must, &may);
        assert_eq!(lost(EventKind::NotRun), []);
    }

    #[test]
    fn one_crash_is_a_gap_and_two_are_an_error() {
        let one = lost(EventKind::Crashed);
        only(&one, "not-tested", Severity::Warning);
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        let crash = |at_s| SoakEvent {
            at_s,
            kind: EventKind::Crashed,
            gpu: None,
            path: Some(0),
            function: None,
            xid: None,
            what: "soak, ring: the worker was ended by SIGABRT".into(),
        };
        soak.events.extend([crash(1200.0), crash(2400.0)]);
        let two = over_time::testing::after(soak);
        let found = only(&two, "copy-failed", Severity::Error);
        let says = "Copies crashed the process that ran them after 20 min under load, 2 times";
        assert!(found.message.starts_with(says), "{}", found.message);
    }
}
