//! # What it means
//!
//! A running kernel saw another GPU's flag before the data stored ahead of it. Collectives compute with the old data
//! and report nothing, although copies arrive.
//!
//! # What to do
//!
//! Until it is repaired, programs must not use peer access between these GPUs (`NCCL_P2P_DISABLE=1`); do not trust
//! what they computed. Over PCIe, look for settings that reorder or redirect requests, and for old firmware of
//! switches and BIOS. Over NVLink, look for Xid 74 and link errors, then swap the GPU.
//!
//! # How it is detected
//!
//! Two kernels exchange lines of 16 bytes, each one store with 8 bytes of data and two flags (NCCL calls this LL),
//! and blocks of 8 KiB with a fence and a flag behind them (Simple). The receiver compares all data as soon as it
//! sees the flag; one wrong line is enough. Order that is broken once in a million rounds, or under other loads, is
//! seen only by chance.
//!
//! # Sources
//!
//! CUDA Programming Guide, memory consistency model: a store of 16 bytes that is aligned is one access, and a fence
//! of the whole system orders stores. NCCL's protocols LL and Simple rely on both (src/device/prims_ll.h,
//! prims_simple.h).

use super::prelude::*;
use super::talks;
use model::live::LiveTalk;

pub(crate) const RULE: Rule = Rule::new("live-order-broken", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let is_bad = |talk: &LiveTalk| {
        talk.torn_ll.is_some_and(|lines| lines > 0)
            || talk.out_of_order.is_some_and(|lines| lines > 0)
    };
    let between = talks::between(evidence);
    let groups = talks::groups(evidence, &between, is_bad).into_iter();
    groups.map(|(group, bad)| finding(evidence, &group, &bad)).collect()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, bad: &[&LiveTalk]) -> Finding {
    let torn = talks::most(bad, |talk| talk.torn_ll);
    let fenced = talks::most(bad, |talk| talk.out_of_order);
    let message = format!(
        "Flags that running kernels store {} arrive before the data that was stored ahead of them, although copies arrive",
        group.place(evidence.snapshot)
    );
    let plan = talks::plan(evidence, group)
        .and(When::Afterwards, [Step::ComputeAgain(Results::OverPairs)]);
    RULE.finding(group.subject(), message, plan)
        .fact("most_torn_ll", torn)
        .fact("most_out_of_order", fenced)
        .pairs(&group.pairs)
        .suspecting(talks::suspects(evidence, group))
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
}
