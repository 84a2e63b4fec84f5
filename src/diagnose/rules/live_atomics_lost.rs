//! # What it means
//!
//! Native atomics between two GPUs are promised, and some got lost. Programs that count, lock or reduce on a peer's
//! memory compute wrong results or hang.
//!
//! # What to do
//!
//! Until it is repaired, programs must not use peer access between these GPUs (`NCCL_P2P_DISABLE=1`), and what they
//! computed is not to be trusted. Look for Xid 74 and link errors, then swap the GPU.
//!
//! # How it is detected
//!
//! Where the driver reports native atomics for a pair in both directions, a kernel on each GPU adds to a word of its
//! own memory and to one of the other's, 64 times in each of 32 threads, and increments another word in each by
//! compare and swap. The sums must be exact. Not tried: other kinds or widths, those of the processor, and any beside
//! copies, where some were lacking on sound GPUs for an unknown reason.
//!
//! # Sources
//!
//! CUDA driver API, cuDeviceGetP2PAttribute, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED. Sums were exact on 2 x
//! H200 (measured).

use super::prelude::*;
use super::talks;
use model::live::LiveTalk;

pub(crate) const RULE: Rule = Rule::new("live-atomics-lost", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let is_bad = |talk: &LiveTalk| talk.atomics_lost.is_some_and(|lost| lost > 0);
    let between = talks::between(evidence);
    let groups = talks::groups(evidence, &between, is_bad).into_iter();
    groups.map(|(group, bad)| finding(evidence, &group, &bad)).collect()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, bad: &[&LiveTalk]) -> Finding {
    let message = format!(
        "Atomics of running kernels {} are lost, which the driver promises as native",
        group.place(evidence.snapshot)
    );
    let plan = talks::plan(evidence, group)
        .and(When::Afterwards, [Step::ComputeAgain(Results::OverPairs)]);
    let most = talks::most(bad, |talk| talk.atomics_lost);
    RULE.finding(group.subject(), message, plan)
        .fact("most_atomics_lost", most)
        .pairs(&group.pairs)
        .suspecting(talks::suspects(evidence, group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_talks;

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
        let found = only(&all, "live-atomics-lost", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(measurements.live[1].pair));
        assert_eq!(fact(&found, "most_atomics_lost"), 1.0);
    }
}
