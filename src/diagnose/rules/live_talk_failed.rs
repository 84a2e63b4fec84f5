//! # What it means
//!
//! A running kernel did not see a store of another GPU's running kernel. NCCL and the all-reduce of inference servers
//! then hang for ever without an error, although copies arrive.
//!
//! # What to do
//!
//! Until it is repaired, programs must not use peer access between these GPUs (`NCCL_P2P_DISABLE=1`). Over PCIe,
//! suspect an IOMMU that translates addresses, access control (ACS) that redirects peer requests, and old firmware;
//! the finding names the settings that are on. Over NVLink, look for Xid 74 and link errors, then swap the GPU.
//!
//! # How it is detected
//!
//! One small kernel runs on each GPU of a pair (with a single GPU, two on it), with a mailbox in the memory of its
//! own GPU. They exchange flags, lines of 16 and of 128 bytes, fenced data and atomics. Every wait is limited: 50 ms
//! until the other side is seen, 20 ms for everything else, 250 ms in all. The finding names the first thing that was
//! not seen, with its phase and round. A store that is in the mailbox after both have ended was *late*, another was
//! *lost*. Other loads, accesses or timing may behave differently. A kernel that never ran beside the other one is
//! not tested.
//!
//! # Sources
//!
//! NCCL issues 257 and 2079 (hangs where copies work); vLLM issue 51513 (one answer for all users of peer access);
//! CUDA Programming Guide, memory consistency model (release and acquire of the whole system). The limits are chosen:
//! a hundred times what H200 took.

use super::prelude::*;
use super::talks;
use model::live::{LiveTalk, Miss};

pub(crate) const RULE: Rule = Rule::new("live-talk-failed", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let between = talks::between(evidence);
    let groups = talks::groups(evidence, &between, |talk| talk.missed.is_some());
    let of_groups = groups.iter().map(|(group, missed)| finding(evidence, group, missed));
    let all = evidence.measured().live.iter();
    let within = all.filter(|talk| talks::is_within(talk) && talk.verified.is_wrong());
    of_groups.chain(within.map(|talk| of_one_gpu(evidence, talk))).collect()
}

fn count(missed: &[&LiveTalk], wanted: Miss) -> usize {
    let fates = missed.iter().filter_map(|talk| talk.missed);
    fates.filter(|missed| missed.miss == wanted).count()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, missed: &[&LiveTalk]) -> Finding {
    let (late, never) = (count(missed, Miss::Late), count(missed, Miss::Never));
    let fate = match (late, never) {
        (_, 0) => "arrive only when the kernels have ended",
        (0, _) => "are lost",
        _ => "are lost, or arrive only when the kernels have ended",
    };
    let phases = missed.iter().filter_map(|talk| talk.missed);
    let phases = phases.map(|missed| format!("{}, round {}", missed.phase, missed.round));
    let phases = words::distinct(phases);
    let message = format!(
        "Stores of running kernels {} {fate} (first missed: {phases}), although copies arrive",
        group.place(evidence.snapshot)
    );
    RULE.finding(group.subject(), message, talks::plan(evidence, group))
        .fact("stores_late", late)
        .fact("stores_lost", never)
        .pairs(&group.pairs)
        .suspecting(talks::suspects(evidence, group))
}

/// Returns the finding on two kernels of one GPU.
fn of_one_gpu(evidence: &Evidence<'_>, talk: &LiveTalk) -> Finding {
    let gpu = talk.pair.source;
    let what = match talk.missed {
        Some(missed) => format!(
            "do not see each other's stores (first missed: {}, round {})",
            missed.phase, missed.round
        ),
        None => "see wrong data behind right flags".to_owned(),
    };
    let message =
        format!("Two kernels of {} {what} while both run", words::gpu(evidence.snapshot, gpu),);
    let plan = Plan::until_repair([Step::OutOfService(all(&[gpu]))])
        .and(When::Now, [Step::Xid, Step::MemoryRows])
        .and(When::Now, [Step::Swap(Part::Gpu(one_of(&[gpu])))]);
    RULE.finding(Subject::Gpu { index: gpu }, message, plan).gpus(&[gpu])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{assert_says, with_talks};
    use model::live::{Missed, Phase};
    use model::status::Ending;

    fn miss(talk: &mut LiveTalk, miss: Miss) {
        talk.ending = Ending::without(Status::Failed, Some("in vain".into()));
        talk.missed = Some(Missed { phase: Phase::Arrival, round: 1, miss });
        talk.push_us = None;
        talk.verified = Verified::Dropped;
    }

    #[test]
    fn stores_that_no_running_kernel_sees_are_an_error_although_copies_arrive() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let talk = measurements.live.iter_mut().find(|talk| talk.pair == pair(1, 3));
        miss(talk.unwrap(), Miss::Late);
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-talk-failed", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(pair(1, 3)));
        assert_says(
            &found,
            "arrive only when the kernels have ended (first missed: arrival, round 1)",
        );
        assert_eq!(exit(&all, Some(&measurements)), 1);
        assert_advice(&RULE, &all, &["disable-peers", "xid", "link-errors", "ask-host"], &[]);
    }

    #[test]
    fn every_pair_of_one_gpu_is_one_finding() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        for talk in measurements.live.iter_mut().filter(|talk| talk.pair.source == 2) {
            miss(talk, Miss::Never);
        }
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-talk-failed", Severity::Error);
        assert_eq!(found.subject, Subject::Gpu { index: 2 });
        assert!(found.message.contains("are lost"), "{}", found.message);
    }

    #[test]
    fn where_copies_fail_they_have_the_finding() {
        let machine = h200_vm(2);
        let mut measurements = with_talks(&machine);
        measurements.live.iter_mut().for_each(|talk| miss(talk, Miss::Never));
        for cell in &mut measurements.peer {
            (cell.verified, cell.ending.status, cell.achieved_gbps) =
                (Verified::Dropped, Status::Failed, None);
        }
        let all = findings(&machine, Some(&measurements));
        assert!(all.iter().all(|found| found.code != "live-talk-failed"), "{all:#?}");
        assert!(all.iter().any(|found| found.code == "data-wrong"));
    }
}
