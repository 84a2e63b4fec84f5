//! # What it means
//!
//! Flags of running kernels take far longer between some GPUs than between equals. Small all-reduces wait for them at
//! every layer: one slow pair holds up all GPUs.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again. Look for link errors that are repeated away, clocks that are held back,
//! and a path that is longer than it looks: a redirect by ACS, or a slot of the other processor.
//!
//! # How it is detected
//!
//! The time of a flag pushed there and back (`push_us`) is more than `above_median_percent` above the median of its
//! class of link, which has at least `least_pairs_count` pairs. If all pairs are slow alike, it sees nothing: compare
//! with an earlier report or other machines.
//!
//! # Sources
//!
//! 2.80 us between 2 x H200 over NVLink, two runs alike within 0.3% (measured).

use super::prelude::*;
use super::remedy;
use super::talks;

rule! {
    "live-latency-high", Warning, All(judge);
    /// how much longer than the median of its class a flag may take; chosen
    ABOVE: above_median_percent = 100.0;
    /// pairs, each direction counted, that a class needs; chosen: three connections
    LEAST_PAIRS: least_pairs_count = 6.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let between = talks::between(evidence);
    let sound = between.into_iter().filter(|talk| talk.is_sound());
    let classes = words::grouped(
        sound.filter_map(|talk| Some((evidence.topology.route(talk.pair)?.class, talk))),
    );
    let factor = 1.0 + ABOVE.of(evidence) / 100.0;
    let least = LEAST_PAIRS.of(evidence);
    let mut found = Vec::new();
    for talks in classes.values() {
        let few = (talks.len() as f64) < least;
        let times = talks.iter().filter_map(|talk| talk.push_us);
        let Some(median) = scatter::middle(times).filter(|_| !few) else {
            continue;
        };
        let is_slow = |talk: &LiveTalk| talk.push_us.is_some_and(|us| us > factor * median);
        for (group, slow) in talks::groups(evidence, talks, is_slow) {
            found.push(finding(evidence, &group, &slow, median));
        }
    }
    found
}

fn finding(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    slow: &[&LiveTalk],
    median: f64,
) -> Finding {
    let highest = slow.iter().filter_map(|talk| talk.push_us).fold(0.0, f64::max);
    let message = format!(
        "Kernel-to-kernel round trips {} take {} us, {} times those of like pairs",
        evidence.place(group),
        short(highest),
        short(highest / median),
    );
    let errors = remedy::counters(evidence, &group.pairs);
    let plan = Plan::check_without(Work::OnGpus).if_it_stays([errors, Step::Clocks, Step::Xid]);
    RULE.on_group(group, message, plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_talks;

    fn slow(measurements: &mut Measurements, one: u32, other: u32, us: f64) {
        for talk in &mut measurements.live {
            if talk.pair.unordered() == (one, other) {
                talk.push_us = Some(us);
            }
        }
    }

    #[test]
    fn a_pair_is_compared_with_pairs_of_its_class_if_there_are_enough() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        slow(&mut measurements, 1, 2, 5.5);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        slow(&mut measurements, 1, 2, 6.0);
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-latency-high", Severity::Warning);
        assert_eq!(found.subject, Subject::Pair(pair(1, 2)));
        assert!(found.message.contains("6.00 us"), "{}", found.message);
        let machine = h200_vm(2);
        let mut measurements = with_talks(&machine);
        slow(&mut measurements, 0, 1, 50.0);
        assert_eq!(findings(&machine, Some(&measurements)), [], "no other pair");
    }

    #[test]
    fn slow_flags_of_a_pair_with_slow_copies_are_no_second_fault() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        slow(&mut measurements, 1, 2, 6.0);
        set(&mut measurements, 20.0, |cell| is(cell, 1, 2) || is(cell, 2, 1));
        let codes: Vec<_> = findings(&machine, Some(&measurements))
            .into_iter()
            .filter(|found| found.severity > Severity::Info)
            .map(|found| found.code)
            .collect();
        assert!(codes.iter().any(|code| code.starts_with("peer-bandwidth")), "{codes:?}");
        assert!(codes.iter().all(|code| **code != *"live-latency-high"), "{codes:?}");
        // Another pair's slow copies explain nothing.
        slow(&mut measurements, 1, 2, 2.8);
        slow(&mut measurements, 0, 3, 6.0);
        let all = findings(&machine, Some(&measurements));
        assert!(all.iter().any(|found| found.code == "live-latency-high"), "{all:#?}");
    }
}
