use super::*;
use crate::DEADLINE_BASE;
use crate::Group;
use crate::Task;
use crate::peers::plan::{DIRECT_COPY_MS, SMALLEST_COPY_MIB, copy_bytes};
use crate::plan::profile::Name;
use model::choice::Choice;
use model::flow::Place;
use model::flow::Setup;
use model::measurement::{CudaDevice, CudaPeerAccess, PeerAccess};
use model::node::NodeId;
use model::placement::Placement;
use model::placement::{Direction, Engine};
use model::topology::Topology;
use model::topology::{Hop, LinkClass, PairRoute};
use model::units::{Bytes, GbPerSecond, MIB};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const GPUS: [u32; 3] = [0, 1, 2];

/// Returns a driver with three GPUs, at 450 GB/s and with 1020 MiB each. GPUs 0 and 2 do not reach each other.
pub(crate) fn driver() -> DriverFacts {
    let device = |index| CudaDevice {
        index,
        ordinal: Some(index),
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let access = |pair: Pair| {
        let possible =
            (pair.source, pair.destination) != (0, 2) && (pair.source, pair.destination) != (2, 0);
        CudaPeerAccess {
            pair,
            possible: Some(possible),
            failure: None,
            failure_code: None,
            hindered: false,
        }
    };
    DriverFacts {
        devices: GPUS.map(device).to_vec(),
        peer_access: Pair::ordered(&GPUS).into_iter().map(access).collect(),
        ..DriverFacts::default()
    }
}

fn route(pair: Pair) -> PairRoute {
    PairRoute {
        pair,
        class: LinkClass::NvLink(18),
        hops: Vec::new(),
        theoretical_gbps: Some(GbPerSecond(450.0)),
        theoretical_source: String::new(),
        bottleneck: None,
        staged_theoretical_gbps: Some(GbPerSecond(63.0)),
        peer_access: PeerAccess::default(),
    }
}

pub(crate) fn topology() -> Topology {
    Topology { pairs: Pair::ordered(&GPUS).into_iter().map(route).collect(), ..Topology::default() }
}

fn plan(name: Name, driver: &DriverFacts, groups: &[Group]) -> Vec<Round> {
    rounds(&Request {
        gpus: &GPUS,
        driver,
        topology: &topology(),
        profile: &Profile::load(name).unwrap(),
        groups: &groups.iter().copied().collect(),
        deadline: None,
        serial: false,
    })
}

fn of(rounds: &[Round], source: u32, destination: u32) -> Vec<Task> {
    let flow = Flow::from(Pair { source, destination });
    rounds.iter().filter(|round| round.includes(&[flow])).map(|round| round.task).collect()
}

fn is_bandwidth(task: &Task, path: Path) -> bool {
    matches!(task.action, Action::Bandwidth(_)) && task.setup.path == path
}

fn is_reference_set(task: &Task, path: Path) -> bool {
    is_bandwidth(task, path)
        && task.setup.of_any_size().with_placement(Placement::REFERENCE)
            == Setup::REFERENCE.with_path(path)
}

fn is_verification(task: &Task, setup: Setup) -> bool {
    task.action == Action::Verify(crate::peers::Verify {}) && task.setup.of_any_size() == setup
}

#[test]
fn the_readme_lists_every_group() {
    let readme = include_str!("../../README.md");
    let row = readme.lines().find(|line| line.starts_with("| `--only GROUPS`")).unwrap();
    for group in Group::ALL {
        let name = group.name();
        assert!(row.contains(&format!("`{name}`")), "{name}: {row}");
    }
}

#[test]
fn every_profile_measures_the_placements_of_every_pair() {
    for name in [Name::Quick, Name::Standard, Name::Full] {
        let rounds = plan(name, &driver(), Group::ALL);
        for pair in Pair::ordered(&GPUS) {
            let direct = pair.source.abs_diff(pair.destination) == 1;
            let path = if direct { Path::Direct } else { Path::Staged };
            let tasks = of(&rounds, pair.source, pair.destination);
            let placements: Vec<_> =
                tasks.iter().filter(|task| is_reference_set(task, path)).collect();
            let is_next = direct && pair.destination > pair.source;
            let wanted = if name == Name::Full && is_next { 32 } else { 8 };
            assert_eq!(placements.len(), wanted, "{} {pair}", name.name());
            let bandwidth_first =
                tasks.iter().position(|task| is_reference_set(task, path)).unwrap();
            assert_eq!(
                tasks[bandwidth_first - 1].action,
                Action::Verify(crate::peers::Verify {}),
                "{pair}: verified before it is timed"
            );
        }
        assert!(
            rounds.iter().zip(0..).all(|(round, id)| round.id == id),
            "ids are places in the list"
        );
    }
}

#[test]
fn every_kind_of_stream_is_measured_on_the_direct_pairs_of_a_ring() {
    let of_pair = |driver: &DriverFacts, pair: Pair| {
        let tasks = of(&plan(Name::Full, driver, &[Group::Overlap]), pair.source, pair.destination);
        tasks.iter().filter(|task| matches!(task.action, Action::Overlap(_))).count()
    };
    let counts = |driver: &DriverFacts| {
        Pair::ordered(&GPUS).into_iter().map(|pair| of_pair(driver, pair)).collect::<Vec<_>>()
    };
    // 0 → 1, 0 → 2, 1 → 0, 1 → 2, 2 → 0, 2 → 1: a placement is one run for both host modes and both GPUs.
    assert_eq!(counts(&driver()), [3 * 16, 0, 4, 3 * 16, 0, 4]);
    // Only 2 → 1 is direct, which is not of the ring.
    let mut one = driver();
    let is_it = |pair: Pair| (pair.source, pair.destination) == (2, 1);
    one.peer_access.iter_mut().for_each(|access| access.possible = Some(is_it(access.pair)));
    assert_eq!(counts(&one), [0, 0, 0, 0, 0, 3 * 16]);
}

#[test]
fn full_is_the_whole_product_and_verifies_pushing_and_pulling_kernels() {
    let tasks = of(&plan(Name::Full, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| is_bandwidth(task, Path::Direct)).count();
    assert_eq!(direct, 8 * 2 * 2 * 2 + 24, "and plain copies on every kind of stream");
    for issuer in [Side::Source, Side::Destination] {
        let setup = Setup::REFERENCE.with_engine(Engine::Kernel).with_issuer(issuer);
        assert!(tasks.iter().any(|task| is_verification(task, setup)), "{issuer}");
    }
}

#[test]
fn standard_measures_each_axis_by_itself() {
    let tasks = of(&plan(Name::Standard, &driver(), &[Group::Peers]), 0, 1);
    let direct = tasks.iter().filter(|task| is_bandwidth(task, Path::Direct)).count();
    assert_eq!(
        direct,
        8 + 5,
        "issued by destination, kernels that write and that read, both ways by each"
    );
    let staged = tasks.iter().filter(|task| is_bandwidth(task, Path::Staged)).count();
    assert_eq!(staged, 1);
    let first_direct = tasks.iter().position(|task| is_bandwidth(task, Path::Direct));
    let last_staged = tasks.iter().rposition(|task| is_bandwidth(task, Path::Staged));
    assert!(last_staged < first_direct, "peer access is switched once per pair");
}

#[test]
fn whatever_is_timed_is_verified_before_in_its_own_right() {
    for name in [Name::Quick, Name::Standard, Name::Full] {
        let rounds = plan(name, &driver(), Group::ALL);
        for (at, round) in rounds.iter().enumerate().filter(|(_, round)| is_bandwidth_of_any(round))
        {
            let setup = round.task.setup.of_any_size().with_placement(Placement::REFERENCE);
            let vouches = |before: &Round| {
                is_verification(&before.task, setup) && before.includes(&round.flows)
            };
            assert!(rounds[..at].iter().any(vouches), "{}: {round:?}", name.name());
        }
        for round in rounds
            .iter()
            .filter(|round| round.task.action == Action::Verify(crate::peers::Verify {}))
        {
            let timed = |other: &Round| {
                is_bandwidth_of_any(other)
                    && other.includes(&round.flows)
                    && other.task.setup.of_any_size() == round.task.setup.of_any_size()
            };
            assert!(rounds.iter().any(timed), "{}: nothing is timed for {round:?}", name.name());
        }
    }
}

fn is_bandwidth_of_any(round: &Round) -> bool {
    matches!(round.task.action, Action::Bandwidth(_))
}

#[test]
fn groups_choose_probes() {
    let overlap = plan(Name::Standard, &driver(), &[Group::Overlap]);
    assert!(overlap.iter().all(|round| matches!(round.task.action, Action::Overlap(_))));
    assert_eq!(of(&overlap, 0, 1).len(), 4, "a run has both kernels and the blocking twin");
    assert!(of(&overlap, 0, 2).is_empty(), "no direct path, no overlap to speak of");
    let latency = plan(Name::Standard, &driver(), &[Group::Latency]);
    assert!(latency.iter().all(|round| matches!(round.task.action, Action::Latency(_))));
    assert_eq!(of(&latency, 0, 1).len(), 2);
}

#[test]
fn every_two_gpus_that_reach_each_other_talk_once() {
    let rounds = plan(Name::Standard, &driver(), &[Group::Live]);
    let pairs = |is: fn(&Action) -> bool| -> Vec<(u32, u32)> {
        let of_action = rounds.iter().filter(|round| is(&round.task.action));
        let both = of_action.filter_map(|round| match round.flows.as_slice() {
            [flow, back] if *back == flow.reversed() => flow.pair().map(Pair::unordered),
            _ => None,
        });
        both.collect()
    };
    for action in [(|action| matches!(action, Action::Live(_))) as fn(&Action) -> bool, |action| {
        matches!(action, Action::Chase(_))
    }] {
        let mut found = pairs(action);
        found.sort_unstable();
        assert_eq!(found, [(0, 1), (1, 2)], "0 and 2 have no access");
    }
    let own = rounds.iter().filter(|round| {
        matches!(round.task.action, Action::Chase(_)) && round.flows[0].within().is_some()
    });
    let host = rounds.iter().filter(|round| {
        matches!(round.task.action, Action::Chase(_)) && round.flows[0].with_host().is_some()
    });
    assert_eq!([own.count(), host.count()], [3, 3], "each GPU");
    assert!(rounds.iter().all(|round| !matches!(
        round.task.action,
        Action::Live(crate::live::Live { trial: Some(_), .. })
    )));
    assert_eq!(plan(Name::Quick, &driver(), &[Group::Live]), []);
}

#[test]
fn without_kernels_copy_engines_are_still_measured_and_the_rest_has_its_reason() {
    let driver = DriverFacts { kernels_failure: Some("refused".into()), ..driver() };
    let rounds = plan(Name::Full, &driver, Group::ALL);
    for round in rounds.iter().filter(|round| !one_gpu_tests::is_on_one_gpu(&round.task)) {
        let needs_kernels = matches!(
            round.task.action,
            Action::Overlap(_) | Action::Contention(_) | Action::Share(_)
        ) || round.task.setup.engine == Engine::Kernel;
        assert_eq!(obstacle(round, &driver).is_some(), needs_kernels, "{:?}", round.task);
    }
    assert!(rounds.iter().any(|round| is_reference_set(&round.task, Path::Direct)));
}

#[test]
fn access_granted_one_way_only_is_used_one_way_only() {
    let mut driver = driver();
    let refused = driver
        .peer_access
        .iter_mut()
        .find(|access| access.pair == Pair { source: 1, destination: 0 });
    refused.unwrap().possible = Some(false);
    let (there, onward) =
        (Pair { source: 0, destination: 1 }.into(), Pair { source: 2, destination: 1 }.into());
    let rounds = plan(Name::Full, &driver, &[Group::Peers]);
    for round in rounds.iter().filter(|round| round.includes(&[there]) || round.includes(&[onward]))
    {
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
    let timed = |round: &&Round| round.task.is_both_ways() && is_bandwidth_of_any(round);
    let both_ways: Vec<_> = rounds.iter().filter(timed).collect();
    // Placements, engines and issuers of the two unordered pairs that have access.
    assert_eq!(both_ways.len(), 2 * 8 * 2 * 2);
    assert!(both_ways.iter().all(|round| round.flows[1] == round.flows[0].reversed()));
}

#[test]
fn a_direction_is_tried_by_itself_before_it_is_joined_with_the_other() {
    let mut rounds = plan(Name::Standard, &driver(), Group::ALL);
    // The others concern no pair, or several pairs that were measured alone before.
    let is_load = |round: &Round| matches!(round.task.action, Action::Load(_));
    assert!(rounds.iter().skip_while(|round| !is_load(round)).all(is_load), "at the very end");
    rounds.retain(|round| round.flows.iter().all(|flow| flow.pair().is_some()) && !is_load(round));
    let first_joined = rounds.iter().position(|round| round.task.is_both_ways()).unwrap();
    assert!(rounds[first_joined..].iter().all(|round| round.task.is_both_ways()));
}

#[test]
fn a_gpu_that_cannot_be_used_costs_its_pairs_only() {
    let mut driver = driver();
    driver.devices[1].failure = Some("exclusive".into());
    driver.devices[1].budget_bytes = None;
    let rounds = plan(Name::Quick, &driver, Group::ALL);
    assert!(!rounds.is_empty() && rounds.iter().all(|round| !round.uses(Place::Gpu(1))));
}

#[test]
fn copies_fit_the_smaller_budget_and_the_rate() {
    let size = |rounds: &[Round]| {
        let tasks = of(rounds, 0, 1);
        tasks
            .iter()
            .find(|task| is_reference_set(task, Path::Direct))
            .map(|task| task.setup.bytes.0 / MIB)
    };
    assert_eq!(
        size(&plan(Name::Quick, &driver(), Group::ALL)),
        Some(510),
        "the whole buffer, less than 1.2 ms at 450 GB/s"
    );
    let mut small = driver();
    small.devices[1].budget_bytes = Some(Bytes(64 * MIB));
    assert_eq!(size(&plan(Name::Quick, &small, Group::ALL)), Some(32));
    assert_eq!(copy_bytes(4.0, DIRECT_COPY_MS, 510 * MIB) / MIB, SMALLEST_COPY_MIB);
}

#[test]
fn what_others_measure_too_has_the_longest_rows() {
    let copies = |direct: bool| -> BTreeSet<u32> {
        let rounds = plan(Name::Standard, &driver(), Group::ALL);
        let timed = rounds
            .iter()
            .map(|round| round.task)
            .filter(|task| task.setup.placement == Placement::REFERENCE);
        let of_kind = timed.filter(|task| task.setup.is_plain() == direct);
        of_kind
            .filter_map(|task| {
                if let Action::Bandwidth(crate::peers::Bandwidth { copies, .. }) = task.action {
                    Some(copies)
                } else {
                    None
                }
            })
            .collect()
    };
    let peers = Profile::load(Name::Standard).unwrap().peers;
    assert_eq!(copies(true), BTreeSet::from([peers.copies]));
    assert_eq!(copies(false), BTreeSet::from([peers.other_copies.unwrap()]));
    assert!(peers.other_copies < Some(peers.copies));
}

#[test]
fn a_deadline_grows_with_the_bytes_or_is_as_asked() {
    let task = |bytes| Task {
        setup: Setup::REFERENCE.with_bytes(Bytes(bytes)),
        action: Action::Verify(crate::peers::Verify {}),
    };
    let known = topology();
    assert_eq!(task(0).deadline(&[], &known), DEADLINE_BASE);
    let second_more = DEADLINE_BASE + Duration::from_secs(1);
    assert_eq!(task(200_000_000).deadline(&[], &known), second_more);
    let over_nvlink = [Flow::from(Pair { source: 0, destination: 1 })];
    assert_eq!(task(1_350_000_000).deadline(&over_nvlink, &known), second_more, "450 GB/s");
    let load = Task {
        action: Action::Load(crate::load::Load {
            pattern: model::load::Pattern::Ring,
            rows: 1,
            copies: 1,
            counted: false,
            compared_ms: 0,
        }),
        ..task(50_000_000)
    };
    let flows = Pair::ordered(&[0, 1]).into_iter().map(Flow::from).collect::<Vec<_>>();
    assert_eq!(
        load.deadline(&flows, &Topology::default()),
        DEADLINE_BASE + Duration::from_secs(2),
        "two flows share a link, each with two rows of two copies"
    );
}

mod at_once;
mod many;

#[test]
fn verification_of_a_slow_link_is_bounded_in_time() {
    let mib = |gbps: Option<f64>| -> Vec<u64> {
        let mut topology = topology();
        for route in &mut topology.pairs {
            route.theoretical_gbps = gbps.map(GbPerSecond);
        }
        let rounds = rounds(&Request {
            gpus: &GPUS,
            driver: &driver(),
            topology: &topology,
            profile: &Profile::load(Name::Standard).unwrap(),
            groups: &Group::ALL.iter().copied().collect(),
            deadline: None,
            serial: false,
        });
        let tasks = of(&rounds, 0, 1);
        let verified = tasks.iter().filter(|task| is_verification(task, Setup::REFERENCE));
        verified.map(|task| task.setup.bytes.0 / MIB).collect()
    };
    // Gen1 x1: 64 MiB take 0.26 s.
    assert_eq!(mib(Some(0.25)), [64]);
    // 200 MB in 50 ms.
    assert_eq!(mib(Some(4.0)), [191]);
    assert_eq!(mib(Some(450.0)), [510], "the whole buffer");
    assert_eq!(mib(None), [510], "nothing says that it is slow");
}

#[test]
fn addresses_of_a_gpu_are_tried_by_the_next_one_of_each_class_of_link() {
    let tried = |topology: &Topology, limited: bool| {
        let mut profile = Profile::load(Name::Full).unwrap();
        profile.addresses.iter_mut().for_each(|of| of.limited = limited);
        let request = Request {
            gpus: &GPUS,
            driver: &driver(),
            topology,
            profile: &profile,
            groups: &[Group::Addresses].into(),
            deadline: None,
            serial: false,
        };
        let rounds = rounds(&request);
        assert_eq!(addresses_left_out(&request, &rounds).is_some(), limited);
        rounds.iter().map(|round| round.flows[0].to_string()).collect::<Vec<_>>()
    };
    // GPUs 0 and 2 do not reach each other.
    let one_class = ["GPU 1 → GPU 0", "GPU 2 → GPU 1", "GPU 1 → GPU 2"];
    assert_eq!(tried(&topology(), false), one_class);
    assert_eq!(tried(&topology(), true), [""; 0]);
    let mut two = topology();
    let near = |route: &&mut PairRoute| route.pair.unordered() == (0, 1);
    two.pairs.iter_mut().filter(near).for_each(|route| route.class = LinkClass::Pix);
    let two_classes = ["GPU 1 → GPU 0", "GPU 2 → GPU 1", "GPU 0 → GPU 1", "GPU 1 → GPU 2"];
    assert_eq!(tried(&two, false), two_classes);
}
