//! # What it means
//!
//! A running kernel saw wrong memory of another GPU, although copies arrive. It saw a flag before the data stored ahead
//! of it, a line of 128 bytes without some of its data, or atomics got lost. Collectives compute with wrong data.
//!
//! # What to do
//!
//! If only lines of 128 bytes are torn, keep NCCL from using them (`NCCL_PROTO=^LL128`). Otherwise programs must not use
//! peer access between these GPUs (`NCCL_P2P_DISABLE=1`); do not trust what they computed. Over PCIe, look for settings
//! that reorder or redirect requests, and for old firmware of switches and BIOS. Over NVLink, look for Xid 74 and link
//! errors, then swap the GPU.
//!
//! # How it is detected
//!
//! Two kernels exchange data as NCCL does; one wrong line is enough. Other loads may show more.
//!
//! - *Order*: lines of 16 bytes with two flags (LL), and blocks of 8 KiB with a fence and a flag behind them (Simple).
//! - *Lines*: 128 bytes with a flag of 8 (LL128), loaded once more after all flags were seen. An error over NVLink,
//!   which alone promises whole lines, a warning below one PCIe switch, information farther away.
//! - *Atomics*: where the driver promises native ones in both directions, both GPUs add to the same words, and increment
//!   by compare and swap. The sums must be exact.
//!
//! # Sources
//!
//! CUDA Programming Guide, memory consistency model; CUDA driver API, cuDeviceGetP2PAttribute. NCCL,
//! src/device/prims_ll.h, prims_simple.h, prims_ll128.h, src/graph/tuning.cc. On H200 no line was torn in 20 000 rounds,
//! and sums were exact (measured).

use super::prelude::*;
use super::talks;
use crate::cluster::Group;
use model::live::LiveTalk;

pub(crate) const RULE: Rule = Rule::new("live-memory-broken", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let between = talks::between(evidence);
    let some = |count: Option<u32>| count.is_some_and(|count| count > 0);
    let groups = |is_bad: &dyn Fn(&LiveTalk) -> bool| talks::groups(evidence, &between, is_bad);
    let order = groups(&|talk| some(talk.torn_ll) || some(talk.out_of_order)).into_iter();
    let order = order.map(|(group, bad)| {
        let message = format!(
            "Flags that running kernels store {} arrive before the data that was stored ahead of them, although copies arrive",
            group.place(evidence.snapshot)
        );
        finding(evidence, &group, message)
            .fact("most_torn_ll", talks::most(&bad, |talk| talk.torn_ll))
            .fact("most_out_of_order", talks::most(&bad, |talk| talk.out_of_order))
    });
    // Pairs of one kind each: what is an error between some is none between others.
    let severities = [Severity::Error, Severity::Warning, Severity::Info];
    let lines = severities.into_iter().flat_map(|severity| {
        let is_bad =
            |talk: &LiveTalk| some(talk.torn_ll128) && severity_of(evidence, talk.pair) == severity;
        let groups = groups(&is_bad).into_iter();
        groups.map(move |(group, bad)| of_lines(evidence, &group, &bad, severity))
    });
    let atomics = groups(&|talk| some(talk.atomics_lost)).into_iter();
    let atomics = atomics.map(|(group, bad)| {
        let message = format!(
            "Atomics of running kernels {} are lost, which the driver promises as native",
            group.place(evidence.snapshot)
        );
        let most = talks::most(&bad, |talk| talk.atomics_lost);
        finding(evidence, &group, message).fact("most_atomics_lost", most)
    });
    order.chain(lines).chain(atomics).collect()
}

fn finding(evidence: &Evidence<'_>, group: &Group, message: String) -> Finding {
    let plan = talks::plan(evidence, group)
        .and(When::Afterwards, [Step::ComputeAgain(Results::OverPairs)]);
    RULE.finding(group.subject(), message, plan)
        .pairs(&group.pairs)
        .suspecting(talks::suspects(evidence, group))
}

fn severity_of(evidence: &Evidence<'_>, pair: Pair) -> Severity {
    match evidence.topology.route(pair).map(|route| route.class) {
        Some(LinkClass::NvLink(_)) => Severity::Error,
        Some(class) if class.keeps_lines() => Severity::Warning,
        _ => Severity::Info,
    }
}

/// Returns the finding on torn lines, which weigh as much as the path promises.
fn of_lines(
    evidence: &Evidence<'_>,
    group: &Group,
    torn: &[&LiveTalk],
    severity: Severity,
) -> Finding {
    let most = talks::most(torn, |talk| talk.torn_ll128).unwrap_or_default();
    let message = format!(
        "Lines of 128 bytes that running kernels store {} are torn: their flag arrives before their data",
        group.place(evidence.snapshot)
    );
    let plan = Plan::now([Step::NoLl128]);
    let plan = match severity {
        Severity::Error => {
            let swap = Step::Swap(Part::Gpu(OneOf(group.gpus())));
            plan.if_it_stays([Step::XidOf("74"), Step::LinkErrors, swap])
        }
        Severity::Warning => plan.if_it_stays([Step::UpdateBiosAndDriver]),
        Severity::Info => plan,
    };
    RULE.finding(group.subject(), message, plan)
        .fact("most_torn_ll128", most)
        .pairs(&group.pairs)
        .at(severity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_talks;

    #[test]
    fn one_line_behind_its_flag_is_an_error_and_none_is_fine() {
        for fenced in [true, false] {
            let machine = two_sockets();
            let mut measurements = with_talks(&machine);
            assert!(only_live(&findings(&machine, Some(&measurements))).is_empty());
            let talk = measurements.live.iter_mut().find(|talk| talk.pair == pair(0, 1)).unwrap();
            if fenced {
                talk.out_of_order = Some(1);
            } else {
                talk.torn_ll = Some(1);
            }
            talk.verified = Verified::Corrupt;
            let all = findings(&machine, Some(&measurements));
            let found: Vec<_> = all.iter().filter(|found| found.code == RULE.id).collect();
            assert_eq!(found.len(), 1, "{all:#?}");
            assert_eq!(found[0].subject, Subject::Pair(pair(0, 1)));
        }
    }

    fn only_live(all: &[Finding]) -> Vec<&Finding> {
        all.iter().filter(|found| found.code.starts_with("live-")).collect()
    }

    #[test]
    fn a_torn_line_weighs_as_much_as_its_path_promises() {
        let of = |machine: &Snapshot, torn: Pair| {
            let mut measurements = with_talks(machine);
            let talk = measurements.live.iter_mut().find(|talk| talk.pair == torn).unwrap();
            talk.torn_ll128 = Some(2);
            let all = findings(machine, Some(&measurements));
            let found: Vec<Severity> = all
                .iter()
                .filter(|found| found.code == RULE.id)
                .map(|found| found.severity)
                .collect();
            found
        };
        assert_eq!(of(&h200_vm(2), pair(0, 1)), [Severity::Error]);
        assert_eq!(of(&two_sockets(), pair(0, 1)), [Severity::Warning]);
        assert_eq!(of(&two_sockets(), pair(0, 3)), [Severity::Info]);
        let machine = h200_vm(2);
        assert_eq!(findings(&machine, Some(&with_talks(&machine))), []);
    }

    #[test]
    fn one_lost_addition_is_an_error_and_no_promise_is_none() {
        let machine = h200_vm(2);
        let mut measurements = with_talks(&machine);
        for talk in &mut measurements.live {
            (talk.native_atomics, talk.atomics_lost, talk.atomics_us) = (Some(false), None, None);
        }
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let mut measurements = with_talks(&machine);
        measurements.live[1].atomics_lost = Some(1);
        measurements.live[1].verified = Verified::Corrupt;
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-memory-broken", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(measurements.live[1].pair));
        assert_eq!(fact(&found, "most_atomics_lost"), 1.0);
    }
}
