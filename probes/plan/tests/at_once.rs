//! Plans of six GPUs: pairs that are copied at once, and host paths that stand for others.

use super::*;
use crate::Group;
use model::choice::Choice;
use model::topology::Topology;
use model::units::Bytes;

/// Returns six GPUs on one switch plane, or in two groups whose members share a link.
fn six(shared: bool) -> (Vec<u32>, DriverFacts, Topology) {
    let gpus: Vec<u32> = (0..6).collect();
    let device = |&index: &u32| CudaDevice {
        index,
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let access = |pair| CudaPeerAccess {
        pair,
        possible: Some(true),
        failure: None,
        failure_code: None,
        hindered: false,
    };
    let driver = DriverFacts {
        devices: gpus.iter().map(device).collect(),
        peer_access: Pair::ordered(&gpus).into_iter().map(access).collect(),
        ..DriverFacts::default()
    };
    let hop =
        |from: NodeId, to: NodeId| Hop { from, to, label: String::new(), capacity_gbps: None };
    let uplink = |gpu: u32| match shared {
        true => NodeId::Numa(Some(gpu / 3)),
        false => NodeId::Gpu(gpu),
    };
    let hops = |pair: Pair| {
        vec![
            hop(uplink(pair.source), NodeId::NvSwitch),
            hop(NodeId::NvSwitch, uplink(pair.destination)),
        ]
    };
    let route = |pair| PairRoute { hops: hops(pair), ..route(pair) };
    let pairs = Pair::ordered(&gpus).into_iter().map(route).collect();
    (gpus, driver, Topology { pairs, ..Topology::default() })
}

#[test]
fn copies_of_several_pairs_at_once_go_one_way() {
    let (gpus, driver, topology) = six(false);
    let rounds = rounds(&Request {
        gpus: &gpus,
        driver: &driver,
        topology: &topology,
        profile: &Profile::load(Name::Full).unwrap(),
        groups: &Group::ALL.iter().copied().collect(),
        deadline: None,
        serial: false,
    });
    let copies = |round: &&Round| {
        matches!(round.task.action, Action::Verify(crate::peers::Verify {}) | Action::Bandwidth(_))
    };
    let mut slots: BTreeMap<u32, Vec<&Round>> = BTreeMap::new();
    for round in rounds.iter().filter(copies) {
        slots.entry(round.slot).or_default().push(round);
    }
    let several: Vec<_> = slots.values().filter(|slot| slot.len() > 1).collect();
    assert!(several.len() > 10, "{}", several.len());
    assert!(several.iter().copied().flatten().all(|round| round.flows.len() == 1));
    let both_ways = slots.values().flatten().filter(|round| round.flows.len() > 1);
    assert!(both_ways.count() > 10);
}

/// Returns the slots of direct copies of six GPUs, each with its pairs.
fn slots(shared: bool, serial: bool) -> BTreeMap<u32, Vec<Pair>> {
    let (gpus, driver, topology) = six(shared);
    let request = Request {
        gpus: &gpus,
        driver: &driver,
        topology: &topology,
        profile: &Profile::load(Name::Quick).unwrap(),
        groups: &Group::ALL.iter().copied().collect(),
        deadline: None,
        serial,
    };
    let mut slots: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
    let mut last = None;
    for round in rounds(&request) {
        let Some(pair) = round.flows[0].pair() else {
            continue;
        };
        let pairs = slots.entry(round.slot).or_default();
        assert!(
            pairs.is_empty() || last == Some((round.slot, round.task)),
            "rounds of a slot are of one task"
        );
        last = Some((round.slot, round.task));
        pairs.push(pair);
    }
    slots
}

#[test]
fn pairs_that_share_neither_gpu_nor_link_are_copied_at_once() {
    let at_once = slots(false, false);
    // A verification and eight placements for each of 2 x 5 batches.
    assert_eq!(at_once.len(), 9 * 10);
    assert!(at_once.values().all(|pairs| pairs.len() == 3));
    for (pairs, why) in [
        (slots(false, true), "as asked"),
        (slots(true, false), "all pairs of two groups share a link"),
    ] {
        for pairs in pairs.values() {
            let across = |pair: &Pair| pair.source / 3 != pair.destination / 3;
            assert!(
                pairs.len() == 1 || pairs.iter().filter(|pair| across(pair)).count() <= 1,
                "{why}: {pairs:?}"
            );
        }
    }
    assert!(slots(false, true).values().all(|pairs| pairs.len() == 1));
}

#[test]
fn where_nobody_stages_the_host_path_is_measured_for_a_ring_and_each_class() {
    let (gpus, driver, mut topology) = six(false);
    let odd = topology
        .pairs
        .iter_mut()
        .find(|route| route.pair == Pair { source: 4, destination: 1 })
        .unwrap();
    odd.class = LinkClass::NvLink(6);
    let profile = Profile::load(Name::Standard).unwrap();
    let groups = Group::ALL.iter().copied().collect();
    let staged = |topology: &Topology| -> (Vec<Pair>, Option<String>) {
        let request = Request {
            gpus: &gpus,
            driver: &driver,
            topology,
            profile: &profile,
            groups: &groups,
            deadline: None,
            serial: false,
        };
        let of_staged = |round: &Round| is_bandwidth(&round.task, Path::Staged);
        let pairs = rounds(&request)
            .iter()
            .filter(|round| of_staged(round))
            .filter_map(|round| round.flows[0].pair())
            .collect();
        (pairs, thinned_out(&request))
    };
    let (pairs, said) = staged(&topology);
    let wanted = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 1), (4, 5), (5, 0)];
    assert_eq!(pairs, wanted.map(|(source, destination)| Pair { source, destination }));
    assert!(
        said.as_ref().is_some_and(|said| said.contains("for 7 of 30 direct pairs")),
        "{said:?}"
    );
    // If the direct path is not that much faster, the staged rate may be of interest.
    for route in &mut topology.pairs {
        route.staged_theoretical_gbps = Some(GbPerSecond(300.0));
    }
    let (pairs, said) = staged(&topology);
    assert_eq!((pairs.len(), said), (30, None));
}
