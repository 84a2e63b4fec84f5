use super::many::in_full;
use super::peers::{DIRECT_COPY_MS, SMALLEST_COPY_MIB, copy_bytes};
use super::profile::Name;
use super::*;
use crate::model::measurement::{CudaDevice, CudaPeerAccess, PeerAccess};
use crate::model::topology::{LinkClass, PairRoute};
use crate::model::units::{GbPerSecond, MIB};

const GPUS: [u32; 3] = [0, 1, 2];

/// Three GPUs at 450 GB/s, with 1020 MiB each; 0 and 2 do not reach each other.
fn driver() -> DriverFacts {
    let device = |index| CudaDevice {
        index,
        ordinal: Some(index),
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let access = |pair: Pair| {
        let possible = (pair.source, pair.destination) != (0, 2) && (pair.source, pair.destination) != (2, 0);
        CudaPeerAccess { pair, possible: Some(possible), failure: None, failure_code: None, hindered: false }
    };
    DriverFacts {
        devices: GPUS.map(device).to_vec(),
        peer_access: Pair::ordered(&GPUS).into_iter().map(access).collect(),
        ..DriverFacts::default()
    }
}

fn topology() -> Topology {
    let route = |pair| PairRoute {
        pair,
        class: LinkClass::NvLink(18),
        hops: Vec::new(),
        theoretical_gbps: Some(GbPerSecond(450.0)),
        theoretical_source: String::new(),
        bottleneck: None,
        staged_theoretical_gbps: Some(GbPerSecond(63.0)),
        peer_access: PeerAccess::default(),
    };
    Topology { pairs: Pair::ordered(&GPUS).into_iter().map(route).collect(), ..Topology::default() }
}

fn plan(name: Name, driver: &DriverFacts, groups: &[Group]) -> Vec<Round> {
    rounds(&Request {
        gpus: &GPUS,
        driver,
        topology: &topology(),
        profile: &Profile::load(name).unwrap(),
        groups: &groups.iter().copied().collect(),
        overlap_bytes: None,
        deadline: None,
    })
}

fn of(rounds: &[Round], source: u32, destination: u32) -> Vec<Task> {
    let flow = Flow::from(Pair { source, destination });
    rounds.iter().filter(|round| round.includes(&[flow])).map(|round| round.task).collect()
}

fn is_bandwidth(task: &Task, path: Path) -> bool {
    matches!(task.action, Action::Bandwidth { .. }) && task.setup.path == path
}

fn is_reference_set(task: &Task, path: Path) -> bool {
    is_bandwidth(task, path)
        && task.setup.of_any_size().with_placement(Placement::REFERENCE) == Setup::REFERENCE.with_path(path)
}

fn is_verification(task: &Task, setup: Setup) -> bool {
    task.action == Action::Verify && task.setup.of_any_size() == setup
}

#[test]
fn every_profile_measures_the_eight_placements_of_every_pair() {
    for name in [Name::Quick, Name::Standard, Name::Full] {
        let rounds = plan(name, &driver(), &Group::ALL);
        for pair in Pair::ordered(&GPUS) {
            let direct = pair.source.abs_diff(pair.destination) == 1;
            let path = if direct { Path::Direct } else { Path::Staged };
            let tasks = of(&rounds, pair.source, pair.destination);
            let placements: Vec<_> = tasks.iter().filter(|task| is_reference_set(task, path)).collect();
            assert_eq!(placements.len(), 8, "{} {pair}", name.as_str());
            let bandwidth_first = tasks.iter().position(|task| is_reference_set(task, path)).unwrap();
            assert_eq!(tasks[bandwidth_first - 1].action, Action::Verify, "{pair}: verified before it is timed");
        }
        assert!(rounds.iter().zip(0..).all(|(round, id)| round.id == id), "ids are places in the list");
    }
}

#[test]
fn full_is_the_whole_product_and_verifies_pushing_and_pulling_kernels() {
    let tasks = of(&plan(Name::Full, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| is_bandwidth(task, Path::Direct)).count();
    assert_eq!(direct, 8 * 2 * 2 * 2);
    for issuer in [Side::Source, Side::Destination] {
        let setup = Setup::REFERENCE.with_engine(Engine::Kernel).with_issuer(issuer);
        assert!(tasks.iter().any(|task| is_verification(task, setup)), "{issuer}");
    }
}

#[test]
fn standard_measures_each_axis_by_itself() {
    let tasks = of(&plan(Name::Standard, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| is_bandwidth(task, Path::Direct)).count();
    assert_eq!(direct, 8 + 3, "issued by destination, kernel, both ways");
    let staged = tasks.iter().filter(|task| is_bandwidth(task, Path::Staged)).count();
    assert_eq!(staged, 1);
    let first_direct = tasks.iter().position(|task| is_bandwidth(task, Path::Direct));
    let last_staged = tasks.iter().rposition(|task| is_bandwidth(task, Path::Staged));
    assert!(last_staged < first_direct, "peer access is switched once per pair");
}

#[test]
fn groups_choose_probes() {
    let overlap = plan(Name::Standard, &driver(), &[Group::Overlap]);
    assert!(overlap.iter().all(|round| matches!(round.task.action, Action::Overlap { .. })));
    assert_eq!(of(&overlap, 0, 1).len(), 16);
    assert!(of(&overlap, 0, 2).is_empty(), "no direct path, no overlap to speak of");
    let latency = plan(Name::Standard, &driver(), &[Group::Latency]);
    assert!(latency.iter().all(|round| matches!(round.task.action, Action::Latency { .. })));
    assert_eq!(of(&latency, 0, 1).len(), 2);
}

#[test]
fn without_kernels_copy_engines_are_still_measured_and_the_rest_has_its_reason() {
    let driver = DriverFacts { kernels_failure: Some("refused".into()), ..driver() };
    let rounds = plan(Name::Full, &driver, &Group::ALL);
    for round in &rounds {
        let needs_kernels =
            matches!(round.task.action, Action::Overlap { .. }) || round.task.setup.engine == Engine::Kernel;
        assert_eq!(obstacle(round, &driver).is_some(), needs_kernels, "{:?}", round.task);
    }
    assert!(rounds.iter().any(|round| is_reference_set(&round.task, Path::Direct)));
}

#[test]
fn access_granted_one_way_only_is_used_one_way_only() {
    let mut driver = driver();
    let refused = driver.peer_access.iter_mut().find(|access| access.pair == Pair { source: 1, destination: 0 });
    refused.unwrap().possible = Some(false);
    let (there, onward) = (Pair { source: 0, destination: 1 }.into(), Pair { source: 2, destination: 1 }.into());
    let rounds = plan(Name::Full, &driver, &[Group::Peers]);
    for round in rounds.iter().filter(|round| round.includes(&[there]) || round.includes(&[onward])) {
        let Setup { path, issuer, direction, .. } = round.task.setup;
        let reads = issuer == Side::Destination || direction == Direction::BothWays;
        let needs_reverse = round.includes(&[there]) && path == Path::Direct && reads;
        assert_eq!(obstacle(round, &driver).is_some(), needs_reverse, "{round:?}");
        let flows = if direction == Direction::BothWays && !needs_reverse { 2 } else { 1 };
        assert_eq!(round.flows.len(), flows, "{round:?}");
    }
}

#[test]
fn both_ways_is_measured_once_for_two_directions() {
    let rounds = plan(Name::Full, &driver(), &[Group::Peers]);
    let both_ways: Vec<_> = rounds.iter().filter(|round| round.task.is_both_ways()).collect();
    // Placements, engines and issuers of the two unordered pairs that have access.
    assert_eq!(both_ways.len(), 2 * 8 * 2 * 2);
    assert!(both_ways.iter().all(|round| round.flows[1] == round.flows[0].reversed()));
}

#[test]
fn a_direction_is_tried_by_itself_before_it_is_joined_with_the_other() {
    let rounds = plan(Name::Standard, &driver(), &Group::ALL);
    let first_joined = rounds.iter().position(|round| round.task.is_both_ways()).unwrap();
    assert!(rounds[first_joined..].iter().all(|round| round.task.is_both_ways()));
}

#[test]
fn a_gpu_that_cannot_be_used_costs_its_pairs_only() {
    let mut driver = driver();
    driver.devices[1].failure = Some("exclusive".into());
    driver.devices[1].budget_bytes = None;
    let rounds = plan(Name::Quick, &driver, &Group::ALL);
    assert!(!rounds.is_empty() && rounds.iter().all(|round| !round.uses(Place::Gpu(1))));
}

#[test]
fn copies_fit_the_smaller_budget_and_the_rate() {
    let size = |rounds: &[Round]| {
        let tasks = of(rounds, 0, 1);
        tasks.iter().find(|task| is_reference_set(task, Path::Direct)).map(|task| task.setup.bytes.0 / MIB)
    };
    assert_eq!(size(&plan(Name::Quick, &driver(), &Group::ALL)), Some(301), "0.7 ms at 450 GB/s");
    let mut small = driver();
    small.devices[1].budget_bytes = Some(Bytes(64 * MIB));
    assert_eq!(size(&plan(Name::Quick, &small, &Group::ALL)), Some(32));
    assert_eq!(copy_bytes(4.0, DIRECT_COPY_MS, 510 * MIB) / MIB, SMALLEST_COPY_MIB);
}

#[test]
fn a_deadline_grows_with_the_bytes_or_is_as_asked() {
    let task = |bytes| Task { setup: Setup::REFERENCE.with_bytes(Bytes(bytes)), action: Action::Verify };
    assert_eq!(deadline(&task(0)), DEADLINE_BASE);
    assert_eq!(deadline(&task(200_000_000)), DEADLINE_BASE + Duration::from_secs(1));
}

#[test]
fn with_many_gpus_every_pair_is_measured_once_and_some_in_full() {
    let gpus: Vec<u32> = (0..20).collect();
    let device = |&index: &u32| CudaDevice {
        index,
        ordinal: Some(index),
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let pairs = Pair::ordered(&gpus);
    // GPU 3 and GPU 9 do not reach each other.
    let denied = |pair: &Pair| [(3, 9), (9, 3)].contains(&(pair.source, pair.destination));
    let access = |pair: &Pair| CudaPeerAccess {
        pair: *pair,
        possible: Some(!denied(pair)),
        failure: None,
        failure_code: None,
        hindered: false,
    };
    let driver = DriverFacts {
        devices: gpus.iter().map(device).collect(),
        peer_access: pairs.iter().map(access).collect(),
        ..DriverFacts::default()
    };
    let groups: BTreeSet<_> = Group::ALL.into();
    let profile = Profile::load(Name::Standard).unwrap();
    let request = Request {
        gpus: &gpus,
        driver: &driver,
        topology: &Topology::default(),
        profile: &profile,
        groups: &groups,
        overlap_bytes: None,
        deadline: None,
    };
    let rounds = rounds(&request);
    let in_full = in_full(&gpus).unwrap();
    assert_eq!(in_full.len(), 40);
    for gpu in &gpus {
        assert_eq!(in_full.iter().filter(|pair| pair.source == *gpu).count(), 2, "{gpu}");
        assert_eq!(in_full.iter().filter(|pair| pair.destination == *gpu).count(), 2, "{gpu}");
    }
    for pair in &pairs {
        let tasks = of(&rounds, pair.source, pair.destination);
        let wanted = if denied(pair) { Path::Staged } else { Path::Direct };
        assert!(tasks.iter().any(|task| is_reference_set(task, wanted)), "{pair}");
        if in_full.contains(pair) {
            assert!(tasks.iter().any(|task| matches!(task.action, Action::Overlap { .. })), "{pair}");
        } else {
            // What runs both ways with a pair that is measured in full is measured of this one too.
            assert_eq!(tasks.iter().filter(|task| !task.is_both_ways()).count(), 2, "{pair}");
            assert!(is_verification(&tasks[0], Setup::REFERENCE.with_path(wanted)), "{pair}");
        }
    }
    let told = left_out(&gpus, &groups).unwrap();
    assert!(told.starts_with("20 GPUs are 380 pairs: all are verified") && told.contains("40 of them"), "{told}");
    assert!(!left_out(&gpus, &[Group::Overlap].into()).unwrap().contains("verified"));
    assert_eq!(left_out(&gpus[..16], &groups), None);
}
