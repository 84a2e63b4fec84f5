//! The two legs of a copy between GPUs through the memory of the host, judged by copies between the host and each GPU.

use super::host::{self, Rated};
use super::prelude::*;
use model::host::{HostDirection, HostWay};

/// A leg is slow below this share of what healthy machines reach, or of the best GPU's rate, per cent. Chosen: the
/// floor of the class `host`.
const SOUND_PERCENT: f64 = 73.0;

/// Returns which leg of the copies of these pairs is slow, as an addition to a sentence. Empty if host copies were not
/// measured.
pub(super) fn told(evidence: &Evidence<'_>, pairs: &[Pair]) -> String {
    let ups = host::best(evidence, HostWay::PINNED);
    let downs = host::best(
        evidence,
        HostWay::PINNED.with_direction(HostDirection::ToHost),
    );
    let sources: BTreeSet<u32> = pairs.iter().map(|pair| pair.source).collect();
    let destinations: BTreeSet<u32> = pairs.iter().map(|pair| pair.destination).collect();
    let known = |legs: &BTreeMap<u32, Rated<'_>>, gpus: &BTreeSet<u32>| {
        gpus.iter().all(|gpu| legs.contains_key(gpu))
    };
    if pairs.is_empty() || !known(&downs, &sources) || !known(&ups, &destinations) {
        return String::new();
    }
    let slow: Vec<String> = slow_legs(evidence, &downs, &sources, HostDirection::ToHost)
        .into_iter()
        .chain(slow_legs(
            evidence,
            &ups,
            &destinations,
            HostDirection::ToDevice,
        ))
        .collect();
    if slow.is_empty() {
        return "; each leg by itself is as fast as its slot, so what is slow is the way through the host's memory"
            .into();
    }
    format!("; the slow leg is that {}", slow.join(" and that "))
}

/// Returns the slow legs: below what is expected of their slot, or far below the fastest GPU of the machine.
fn slow_legs(
    evidence: &Evidence<'_>,
    legs: &BTreeMap<u32, Rated<'_>>,
    gpus: &BTreeSet<u32>,
    direction: HostDirection,
) -> Vec<String> {
    let fastest = GbPerSecond(legs.values().map(|rated| rated.rate.0).fold(0.0, f64::max));
    let is_slow = |rated: &&Rated<'_>| {
        let below_slot = rated
            .copy
            .percent
            .is_some_and(|percent| percent < SOUND_PERCENT);
        below_slot || rated.rate.percent_of(fastest) < SOUND_PERCENT
    };
    let slow = gpus.iter().filter_map(|gpu| legs.get(gpu)).filter(is_slow);
    let named = slow.map(|rated| {
        let beside = if rated.rate < fastest {
            format!(", {fastest} GB/s for others")
        } else {
            String::new()
        };
        let leg = host::way_of(evidence, &[rated.copy.gpu], direction);
        format!("{leg} ({} GB/s{beside})", rated.rate)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{cell, with_host};

    /// Returns the findings on staged copies of GPU 2 at `gbps`, if each GPU reaches these `rates` with the host.
    fn of_staged(machine: &Snapshot, gbps: f64, rates: &[f64]) -> Vec<Finding> {
        let mut measurements = with_host(machine, rates);
        let staged = |one: &PeerBandwidth| {
            cell(
                one.pair,
                Path::Staged,
                if touches(one, 2) { gbps } else { 37.0 },
            )
        };
        let staged: Vec<_> = measurements.peer.iter().map(staged).collect();
        measurements.peer.extend(staged);
        findings(machine, Some(&measurements))
    }

    #[test]
    fn a_slow_leg_is_the_cause_and_two_sound_ones_are_said_to_be() {
        let machine = h200_vm(4);
        let found = of_staged(&machine, 14.0, &[55.0; 4]);
        let own = only(&found, "staged-slow", Severity::Warning);
        assert!(
            own.message
                .contains("each leg by itself is as fast as its slot"),
            "{}",
            own.message
        );
        assert!(!advises(&own, "numa-bind"), "{}", own.next_step);
        let found = of_staged(&machine, 14.0, &[55.0, 55.0, 20.0, 55.0]);
        let own = only(&found, "host-bandwidth-low", Severity::Warning);
        let effects = own.evidence.effects();
        assert_eq!(
            (&*effects[0].rule, own.subject),
            ("staged-slow", Subject::Gpu { index: 2 })
        );
        for text in [
            "the slow leg is that",
            "GPU 2",
            "(20.0 GB/s, 55.0 GB/s for others)",
        ] {
            assert!(
                effects[0].message.contains(text),
                "{text}: {}",
                effects[0].message
            );
        }
        let nothing = of_staged(&machine, 14.0, &[]);
        assert!(
            !only(&nothing, "staged-slow", Severity::Warning)
                .message
                .contains("leg")
        );
    }
}
