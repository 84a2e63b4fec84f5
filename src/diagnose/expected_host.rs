//! Rates that healthy machines reach between the memory of the host and a GPU. Only copies of page-locked memory by
//! copy engine have a figure that holds for more than one machine. Those of pageable memory depend on the processor,
//! and those of several GPUs at once on the memory of the host.

use std::collections::BTreeMap;

use super::expected::{
    BOTH_WAYS_PCIE, BOTH_WAYS_REACHED_PCIE, C2C, Expectation, HOST, Machine, Part, Share,
    as_written, percent,
};
use model::flow::HostMemory;
use model::host::{Allocation, HostCopy, HostDirection};
use model::placement::Engine;
use model::snapshot::Snapshot;

/// Rate of the link from which on a range both ways is known, GB/s: PCIe 5 x16, 63 GB/s.
const MEASURED_BOTH_WAYS_GBPS: f64 = 60.0;

/// Returns the rate that this copy is expected to reach; `None` if its theoretical rate is not known, or if nothing is
/// expected of its kind. Nothing is expected of encrypted copies unless the user says what.
pub fn of(
    copy: &HostCopy,
    snapshot: &Snapshot,
    shares: &BTreeMap<String, Share>,
) -> Option<Expectation> {
    let page_locked = matches!(copy.memory, HostMemory::Pinned | HostMemory::Registered);
    let by_link =
        page_locked && copy.engine == Engine::Copy && copy.allocation == Allocation::Reused;
    if !by_link || copy.at_once > 1 {
        return None;
    }
    let theoretical = as_written(copy.theoretical_gbps.filter(|rate| rate.0 > 0.0)?);
    let gpu = snapshot.gpu(copy.gpu);
    let beside = gpu.is_some_and(|gpu| topology::host::c2c_rate(gpu).is_some());
    let mut part = Part::of(if beside { C2C } else { HOST }, shares);
    if !part.is_set && snapshot.host.encrypts_copies() {
        return None;
    }
    let both = copy.direction == HostDirection::BothWays;
    if both && beside {
        // GH200 and GB300 alone with its processor reach half each way, GB200 three quarters: nothing is expected.
        return part.is_set.then(|| part.of_rate(theoretical));
    }
    if both {
        // Seen on PCIe 5 x16: A100 read half as much one way as the other there.
        part.reached =
            part.reached.filter(|_| part.is_set || theoretical.0 >= MEASURED_BOTH_WAYS_GBPS);
        let Share { percent, margin_percent } = BOTH_WAYS_PCIE;
        part.take(percent, margin_percent, BOTH_WAYS_REACHED_PCIE);
    }
    Some(part.of_rate(theoretical))
}

/// Writes beside every figure what the healthy machine reaches.
pub(super) fn fill(
    copies: &mut [HostCopy],
    (snapshot, topology): Machine<'_>,
    shares: &BTreeMap<String, Share>,
) {
    let mut healthy = copies.to_vec();
    topology::host::fill(snapshot, topology, &mut healthy);
    for (copy, healthy) in copies.iter_mut().zip(&healthy) {
        let expected = of(healthy, snapshot, shares);
        (copy.expected_low_gbps, copy.expected_high_gbps) =
            expected.and_then(|expected| expected.reached).map(|[low, high]| (low, high)).unzip();
        copy.healthy_gbps = expected.map(|expected| expected.gbps);
        copy.healthy_percent = percent(copy.achieved_gbps, copy.healthy_gbps);
        (copy.expected_gbps, copy.expected_percent) = (copy.healthy_gbps, copy.healthy_percent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::reading::Reading;
    use model::snapshot::{C2cLinks, ConfidentialComputing};
    use model::testing::h200_vm;
    use model::testing::host_copy;
    use model::units::GbPerSecond;

    fn open() -> Snapshot {
        h200_vm(1)
    }

    /// Returns a copy at rate `gbps` over a link of rate `theoretical`.
    fn over(theoretical: f64, gbps: f64) -> HostCopy {
        HostCopy { theoretical_gbps: Some(GbPerSecond(theoretical)), ..host_copy(0, gbps) }
    }

    /// Checks every figure between host and GPU of docs/dev/facts.md, "Rates that healthy machines reach".
    #[test]
    fn every_published_healthy_figure_lies_above_its_floor() {
        for (theoretical, lowest) in [
            (63.0, 55.1),
            (63.0, 55.5),
            (31.5, 25.0),
            (31.5, 27.0),
            (15.75, 12.0),
            (7.88, 6.5),
            (3.94, 3.2),
        ] {
            let expected = of(&over(theoretical, lowest), &open(), &BTreeMap::new()).unwrap();
            assert!(lowest > expected.floor_gbps().0, "{lowest} of {theoretical}: {expected:?}");
            assert!(lowest < expected.gbps.0 * 1.1, "{lowest} of {theoretical}: {expected:?}");
        }
        let both = HostCopy { direction: HostDirection::BothWays, ..over(63.0, 51.0) };
        let expected = of(&both, &open(), &BTreeMap::new()).unwrap();
        assert!(51.0 > expected.floor_gbps().0 && expected.gbps.0 < 51.5, "{expected:?}");
    }

    /// Figures of nvbandwidth and of KTH's paper on Grace Hopper, and rates that are none of a sound link.
    #[test]
    fn copies_over_nvlink_c2c_have_a_floor_of_their_own() {
        let mut machine = open();
        machine.gpus[0].c2c = Reading::Known(true);
        for (links, healthy, slow) in [
            (10, [346.0, 416.0, 297.0, 359.0, 377.0].as_slice(), 60.0),
            (5, [211.0, 193.0].as_slice(), 60.0),
        ] {
            let links =
                C2cLinks { count: links, active: links, link_mbps: Some(44_712), errors: None };
            machine.gpus[0].c2c_links = Reading::Known(links);
            let theory = links.rate().unwrap().0;
            let of = |rate| of(&over(theory, rate), &machine, &BTreeMap::new()).unwrap();
            for rate in healthy {
                assert!(*rate > of(*rate).floor_gbps().0 * 1.2, "{rate}: {:?}", of(*rate));
            }
            assert!(slow < of(slow).floor_gbps().0 * 0.8, "{slow}");
            let both = HostCopy { direction: HostDirection::BothWays, ..over(theory, slow) };
            assert_eq!(super::of(&both, &machine, &BTreeMap::new()), None);
        }
    }

    #[test]
    fn nothing_is_expected_of_what_depends_on_the_host() {
        let nothing = BTreeMap::new();
        let copy = over(63.0, 8.0);
        assert!(of(&copy, &open(), &nothing).is_some());
        for other in [
            HostCopy { memory: HostMemory::Pageable, ..copy.clone() },
            HostCopy { engine: Engine::Kernel, ..copy.clone() },
            HostCopy { allocation: Allocation::Anew, ..copy.clone() },
            HostCopy { at_once: 8, ..copy.clone() },
            HostCopy { theoretical_gbps: None, ..copy },
        ] {
            assert_eq!(of(&other, &open(), &nothing), None, "{other:?}");
        }
    }

    #[test]
    fn a_share_that_was_set_is_taken() {
        let set =
            BTreeMap::from([("host".to_owned(), Share { percent: 50.0, margin_percent: 10.0 })]);
        let expected = of(&over(60.0, 29.0), &open(), &set).unwrap();
        assert_eq!((expected.gbps, expected.floor_gbps()), (GbPerSecond(30.0), GbPerSecond(27.0)));
    }

    #[test]
    fn encrypted_copies_are_measured_against_what_the_user_expects_alone() {
        let mut encrypting = open();
        encrypting.host.confidential_computing = Reading::Known(ConfidentialComputing::On);
        assert_eq!(of(&over(63.0, 5.3), &encrypting, &BTreeMap::new()), None);
        let share = Share { percent: 8.5, margin_percent: 15.0 };
        let set = BTreeMap::from([("host".to_owned(), share)]);
        assert!(of(&over(63.0, 5.3), &encrypting, &set).is_some());
    }
}
