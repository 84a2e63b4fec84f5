//! # What it means
//!
//! Copies hung, failed or crashed their process once, and worked when repeated. One event proves no fault, so the exit
//! code is 3; but sound machines never do this.
//!
//! # What to do
//!
//! Look for Xid messages of that time (`dmesg | grep -i xid`) and at the error counters of the links. Check again
//! several times, also with `--serial`: a failure only without it needs several flows at once. If it comes again,
//! reseat GPUs, bridges, risers and cables, and check power cables and supplies. In a virtual machine, tell whoever
//! runs the host.
//!
//! # How it is detected
//!
//! A round of pairs that share nothing broke off (`measurements.broken_off`): it passed its deadline, crashed the
//! worker by itself (a signal such as SIGSEGV or an exit code, not SIGKILL or SIGTERM), or ended with an error of the
//! driver that no limit and no full memory explains. Repeated one by one, its flows worked. Repeated failures are
//! `copy-failed` or `peer-copy-hung`.
//!
//! # Sources
//!
//! NVIDIA's Xid errors page. That sound machines show none of this is chosen: no run on this project's hardware did.

use super::broken_off::{again, flows, gpus, plan, suspects, unexplained, what, with_facts};
use super::failed_at_once;
use super::prelude::*;

rule! {
    "copy-failed-once", Warning, All(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let repeated = failed_at_once::is_repeated(measurements);
    let once =
        unexplained(measurements).into_iter().filter(|broken| !(broken.in_company() && repeated));
    once.map(|broken| finding(evidence, broken)).collect()
}

fn finding(evidence: &Evidence<'_>, broken: &BrokenOff) -> Finding {
    let all = [broken];
    let (what, which, reason) = (what(broken.events()), flows(broken), &broken.first.reason);
    let again = again(broken);
    let message = match broken.in_company() {
        true => format!(
            "Copies {what} once while {} flows ran at once; {which}; {reason}; each alone worked{again}",
            broken.flows.len()
        ),
        false => format!("Copies {what} once, {which}; {reason}{again}"),
    };
    let subject = match broken.flows[..] {
        [flow] => words::of_flow(flow),
        _ => Subject::Machine,
    };
    with_facts(RULE.finding(subject, message, plan(evidence, &all)), &all)
        .gpus(&gpus(&all))
        .suspecting(suspects(evidence, &all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::broken_off::{Again, Break, How};
    use model::flow::Flow;

    fn broken(round: u32, pairs: &[(u32, u32)], how: How, again: Again) -> BrokenOff {
        let flows = pairs
            .iter()
            .map(|&(source, destination)| Flow::from(Pair { source, destination }))
            .collect();
        let first = Break {
            signal: (how == How::Crashed).then_some(6),
            ..Break::of(how, "no answer after 5 s".into())
        };
        BrokenOff { round, measurement: "bandwidth".into(), flows, first, again }
    }

    fn not_run() -> Again {
        Again::NotRun { why: "the run ended before that".into() }
    }

    fn with(all: Vec<BrokenOff>) -> (Vec<Finding>, u8) {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        measurements.broken_off = all;
        let found = findings(&machine, Some(&measurements));
        let code = exit(&found, Some(&measurements));
        (found, code)
    }

    #[test]
    fn once_is_a_warning_and_no_verdict() {
        for how in [How::Hung, How::Crashed, How::Failed] {
            for again in [Again::Worked, not_run()] {
                let (found, code) = with(vec![broken(7, &[(0, 1), (2, 3)], how, again)]);
                let own = only(&found, "copy-failed-once", Severity::Warning);
                assert_eq!((code, &own.subject), (3, &Subject::Machine));
                let flows =
                    "; GPU 0 → GPU 1, GPU 2 → GPU 3; no answer after 5 s; each alone worked; ";
                assert!(own.message.contains(flows), "{}", own.message);
            }
        }
    }

    #[test]
    fn again_in_company_is_an_error_whether_in_the_same_round_or_another() {
        let again = Again::BrokeOff(Break::of(How::Failed, "gone (719)".into()));
        let same = vec![broken(7, &[(0, 1), (2, 3)], How::Hung, again)];
        let other = vec![
            broken(7, &[(0, 1), (2, 3)], How::Hung, not_run()),
            broken(9, &[(0, 2), (1, 3)], How::Crashed, not_run()),
        ];
        for all in [same, other] {
            let (found, code) = with(all);
            let own = only(&found, "copy-failed", Severity::Error);
            assert_eq!(code, 1);
            assert!(own.message.contains("GPU 0 → GPU 1, GPU 2 → GPU 3"), "{}", own.message);
        }
    }

    #[test]
    fn a_crash_of_one_flow_at_a_time_stays_a_warning_for_each() {
        let (found, code) = with(vec![
            broken(7, &[(0, 1)], How::Crashed, Again::Worked),
            broken(9, &[(2, 3)], How::Crashed, Again::Worked),
        ]);
        assert_eq!((found.len(), code), (2, 3), "{found:#?}");
        assert_eq!(found[0].subject, Subject::Pair(Pair { source: 0, destination: 1 }));
        assert!(found.iter().all(|found| *found.code == *"copy-failed-once"), "{found:#?}");
    }

    #[test]
    fn what_a_flow_does_alone_explains_what_happened_in_its_company() {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        measurements.broken_off = vec![broken(7, &[(0, 1), (2, 3)], How::Hung, not_run())];
        let bad = |cell: &&mut PeerBandwidth| cell.pair == Pair { source: 2, destination: 3 };
        for cell in measurements.peer.iter_mut().filter(bad) {
            (cell.ending.status, cell.ending.reason) =
                (Status::Hung, Some("no answer after 5 s".into()));
        }
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().any(|found| *found.code == *"peer-copy-hung"), "{found:#?}");
        assert!(found.iter().all(|found| *found.code != *"copy-failed-once"), "{found:#?}");
    }
}
