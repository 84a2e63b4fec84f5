//! Part of `copy-failed`: copies that failed during hours under load.

use super::over_time;
use super::prelude::*;

/// Returns a finding for each arrangement of flows that failed during hours under load.
pub(super) fn findings(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
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
    let lost = soak.events.iter().filter(is_lost);
    let rounds = words::grouped(lost.filter_map(|event| Some((arrangement(event)?, event))));
    // A pair that the check before saw hang or fail does so in each round that has it.
    let known = |pair: Pair| {
        let lost = |cell: &&PeerBandwidth| {
            cell.pair == pair && matches!(cell.ending.status, Status::Hung | Status::Failed)
        };
        evidence.peer().iter().any(|cell| lost(&cell))
    };
    let finding = |((pattern, of), events): ((_, String), Vec<&SoakEvent>)| {
        let first = events.first()?;
        let own = || soak.paths.iter().filter(|path| path.pattern == pattern && path.of == of);
        if own().filter_map(|path| path.flow().pair()).any(known) {
            return None;
        }
        let gpus = words::unique(own().flat_map(|path| path.flow().gpus()));
        let does = match first.kind {
            EventKind::Hung => "hung",
            EventKind::Crashed => "crashed the process that ran them",
            _ => "failed",
        };
        let again = match events.len() {
            1 => String::new(),
            many => format!(", {many} times"),
        };
        let at = over_time::after(first.at_s);
        let names = evidence.named(&gpus);
        let message =
            format!("Copies of {names} {does} under load, first after {at}{again}; {}", first.what);
        let plan = Plan::now([Step::Xid, Step::LinkErrors, Step::PowerCycle])
            .if_it_stays([Step::Swap(Part::of(&gpus))]);
        let found =
            rule.on_gpus(&gpus, message, plan).fact("first_after", Fact::Seconds(first.at_s));
        Some(found.fact("rounds_lost", events.len()))
    };
    rounds.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::copy_failed;
    use crate::testing::prelude::*;

    fn hours_with(kind: EventKind) -> Soak {
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
        soak
    }

    fn lost(kind: EventKind) -> Vec<Finding> {
        over_time::testing::after(hours_with(kind))
    }

    #[test]
    fn a_round_with_a_pair_that_hung_before_is_no_second_finding() {
        let machine = h200_vm(8);
        let mut measurements = measured(&machine, 0.88);
        measurements.soak = Some(Box::new(hours_with(EventKind::Hung)));
        let under_load = |measurements: &Measurements| {
            let all = crate::testing::prelude::findings(&machine, Some(measurements));
            all.iter().filter(|finding| finding.message.contains("under load")).count()
        };
        assert_eq!(under_load(&measurements), 1);
        for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 2, 3)) {
            (cell.ending.status, cell.achieved_gbps) = (Status::Hung, None);
        }
        assert_eq!(under_load(&measurements), 0);
    }

    #[test]
    fn a_round_that_hangs_after_hours_is_an_error_and_one_that_was_killed_is_none() {
        let all = lost(EventKind::Hung);
        let found = only(&all, "copy-failed", Severity::Error);
        assert!(found.message.contains("hung under load, first after 20 min"), "{}", found.message);
        let (must, may) = (["xid", "power-cycle"], ["link-errors", "swap"]);
        assert_advice(&copy_failed::RULE, &all, &must, &may);
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
        let says = "Copies of all GPUs crashed the process that ran them under load, first after 20 min, 2 times";
        assert!(found.message.starts_with(says), "{}", found.message);
    }
}
