use super::profile::Name;
use super::*;
use crate::model::measurement::{CudaDevice, CudaPeerAccess, PeerAccess};
use crate::model::topology::{LinkClass, PairRoute};
use crate::model::units::GbPerSecond;

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
        CudaPeerAccess { pair, possible: Some(possible), failure: None, failure_code: None }
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
    let pair = Pair { source, destination };
    rounds.iter().filter(|round| round.pair == pair).map(|round| round.task.clone()).collect()
}

fn is_reference_set(task: &Task, wanted: Path) -> bool {
    matches!(task, Task::Bandwidth { issuer: Side::Source, engine: Engine::Copy, direction: Direction::OneWay, path, .. }
        if *path == wanted)
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
            assert!(matches!(tasks[bandwidth_first - 1], Task::Verify { .. }), "{pair}: verified before it is timed");
        }
        assert!(rounds.iter().zip(0..).all(|(round, id)| round.id == id), "ids are places in the list");
    }
}

#[test]
fn full_is_the_whole_product_and_verifies_pushing_and_pulling_kernels() {
    let tasks = of(&plan(Name::Full, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| matches!(task, Task::Bandwidth { path: Path::Direct, .. })).count();
    assert_eq!(direct, 8 * 2 * 2 * 2);
    for issuer in [Side::Source, Side::Destination] {
        let verified =
            |task: &Task| matches!(task, Task::Verify { engine: Engine::Kernel, issuer: by, .. } if *by == issuer);
        assert!(tasks.iter().any(verified), "{issuer}");
    }
}

#[test]
fn standard_measures_each_axis_by_itself() {
    let tasks = of(&plan(Name::Standard, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| matches!(task, Task::Bandwidth { path: Path::Direct, .. })).count();
    assert_eq!(direct, 8 + 3, "issued by destination, kernel, both ways");
    let staged = tasks.iter().filter(|task| matches!(task, Task::Bandwidth { path: Path::Staged, .. })).count();
    assert_eq!(staged, 1);
    let first_direct = tasks.iter().position(|task| matches!(task, Task::Bandwidth { path: Path::Direct, .. }));
    let last_staged = tasks.iter().rposition(|task| matches!(task, Task::Bandwidth { path: Path::Staged, .. }));
    assert!(last_staged < first_direct, "peer access is switched once per pair");
}

#[test]
fn groups_choose_probes() {
    let overlap = plan(Name::Standard, &driver(), &[Group::Overlap]);
    assert!(overlap.iter().all(|round| matches!(round.task, Task::Overlap { .. })));
    assert_eq!(of(&overlap, 0, 1).len(), 16);
    assert!(of(&overlap, 0, 2).is_empty(), "no direct path, no overlap to speak of");
    let latency = plan(Name::Standard, &driver(), &[Group::Latency]);
    assert!(latency.iter().all(|round| matches!(round.task, Task::Latency { .. })));
    assert_eq!(of(&latency, 0, 1).len(), 2);
}

#[test]
fn without_kernels_copy_engines_are_still_measured_and_the_rest_has_its_reason() {
    let driver = DriverFacts { kernels_failure: Some("refused".into()), ..driver() };
    let rounds = plan(Name::Full, &driver, &Group::ALL);
    for round in &rounds {
        let needs_kernels = matches!(
            round.task,
            Task::Overlap { .. }
                | Task::Bandwidth { engine: Engine::Kernel, .. }
                | Task::Verify { engine: Engine::Kernel, .. }
        );
        assert_eq!(obstacle(round, &driver).is_some(), needs_kernels, "{:?}", round.task);
    }
    assert!(rounds.iter().any(|round| is_reference_set(&round.task, Path::Direct)));
}

#[test]
fn access_granted_one_way_only_is_used_one_way_only() {
    let mut driver = driver();
    let refused = driver.peer_access.iter_mut().find(|access| access.pair == Pair { source: 1, destination: 0 });
    refused.unwrap().possible = Some(false);
    for round in plan(Name::Full, &driver, &[Group::Peers]).iter().filter(|round| round.pair.destination == 1) {
        let needs_reverse = round.pair.source == 0
            && match &round.task {
                Task::Bandwidth { path: Path::Staged, .. } | Task::Verify { path: Path::Staged, .. } => false,
                Task::Bandwidth { issuer, direction, .. } => {
                    *issuer == Side::Destination || *direction == Direction::BothWays
                }
                Task::Verify { issuer, .. } => *issuer == Side::Destination,
                _ => false,
            };
        assert_eq!(obstacle(round, &driver).is_some(), needs_reverse, "{round:?}");
    }
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
    assert!(!rounds.is_empty() && rounds.iter().all(|round| round.pair.source != 1 && round.pair.destination != 1));
}

#[test]
fn copies_fit_the_smaller_budget_and_the_rate() {
    let size = |rounds: &[Round]| {
        of(rounds, 0, 1).iter().find_map(|task| match task {
            Task::Bandwidth { bytes, path: Path::Direct, issuer: Side::Source, .. } => Some(bytes.0 / MIB),
            _ => None,
        })
    };
    assert_eq!(size(&plan(Name::Quick, &driver(), &Group::ALL)), Some(301), "0.7 ms at 450 GB/s");
    let mut small = driver();
    small.devices[1].budget_bytes = Some(Bytes(64 * MIB));
    assert_eq!(size(&plan(Name::Quick, &small, &Group::ALL)), Some(32));
    assert_eq!(copy_bytes(4.0, DIRECT_COPY_MS, 510 * MIB) / MIB, SMALLEST_COPY_MIB);
}

#[test]
fn a_deadline_grows_with_the_bytes_or_is_as_asked() {
    let task =
        |bytes| Task::Verify { engine: Engine::Copy, issuer: Side::Source, path: Path::Direct, bytes: Bytes(bytes) };
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
    let access =
        |pair: &Pair| CudaPeerAccess { pair: *pair, possible: Some(!denied(pair)), failure: None, failure_code: None };
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
            assert!(tasks.iter().any(|task| matches!(task, Task::Overlap { .. })), "{pair}");
        } else {
            assert_eq!(tasks.len(), 2, "{pair}");
            assert!(matches!(tasks[0], Task::Verify { path, .. } if path == wanted), "{pair}");
        }
    }
    let told = left_out(&gpus, &groups).unwrap();
    assert!(told.starts_with("20 GPUs are 380 pairs: all are verified") && told.contains("40 of them"), "{told}");
    assert!(!left_out(&gpus, &[Group::Overlap].into()).unwrap().contains("verified"));
    assert_eq!(left_out(&gpus[..16], &groups), None);
}
