use crate::Action;
use std::time::Duration;

use super::*;
use crate::plan::profile::{Name, Profile};
use model::choice::Choice;
use model::load::Pattern;
use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
use model::placement::{Engine, Pair};
use model::snapshot::SlowFact;
use sim::{self, builtin};

/// Returns the load rounds of a profile on a machine. All its GPUs reach each other if `direct`, otherwise none do.
fn planned(machine: &str, name: Name, direct: bool, serial: bool) -> Vec<Round> {
    let all = requested(machine, name, direct, serial, crate::plan::rounds);
    let ids: Vec<u32> = all.iter().map(|round| round.id).collect();
    assert!(ids.windows(2).all(|ids| ids[0] + 1 == ids[1]), "numbered through");
    all.into_iter().filter(|round| matches!(round.task.action, Action::Load(_))).collect()
}

/// Returns the rounds of such a request.
fn requested(
    machine: &str,
    name: Name,
    direct: bool,
    serial: bool,
    plan: impl Fn(&Request<'_>) -> Vec<Round>,
) -> Vec<Round> {
    let telemetry = sim::telemetry(builtin::get(machine).unwrap());
    let snapshot = run::discover::discover(telemetry, SlowFact::ALL, Duration::from_secs(60));
    let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let device = |index: &u32| CudaDevice {
        index: *index,
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let access = |pair| CudaPeerAccess {
        pair,
        possible: Some(direct),
        failure: None,
        failure_code: None,
        hindered: false,
    };
    let driver = DriverFacts {
        devices: gpus.iter().map(device).collect(),
        peer_access: Pair::ordered(&gpus).into_iter().map(access).collect(),
        host_budget_bytes: Some(Bytes(4096 * MIB)),
        ..DriverFacts::default()
    };
    let request = Request {
        gpus: &gpus,
        driver: &driver,
        topology: &topology::build(&snapshot),
        profile: &Profile::load(name).unwrap(),
        groups: &Group::ALL.iter().copied().collect(),
        deadline: None,
        serial,
    };
    plan(&request)
}

/// Returns the rounds of a soak of this length.
fn soaked(machine: &str, direct: bool, length: Duration) -> Vec<Round> {
    requested(machine, Name::Quick, direct, false, |request| crate::plan::soak(request, length))
}

fn time(rounds: &[Round]) -> Duration {
    let millis = rounds.iter().map(|round| match round.task.action {
        Action::Soak(crate::soak::Soak { millis, .. }) => millis,
        _ => panic!("{round:?}"),
    });
    Duration::from_millis(millis.map(u64::from).sum())
}

#[test]
fn a_soak_loads_every_link_in_each_direction_within_a_minute_and_heats_every_gpu() {
    let rounds = soaked("h200x8", true, Duration::from_secs(7200));
    let flows: BTreeSet<Flow> = rounds.iter().flat_map(|round| round.flows.clone()).collect();
    let pairs = flows.iter().filter(|flow| flow.pair().is_some()).count();
    assert_eq!(pairs, 56, "every ordered pair");
    assert_eq!(flows.iter().filter(|flow| flow.with_host().is_some()).count(), 16);
    assert_eq!(flows.iter().filter(|flow| flow.within().is_some()).count(), 8);
    for round in &rounds {
        let Action::Soak(crate::soak::Soak { pattern, .. }) = round.task.action else {
            panic!("{round:?}")
        };
        let engine = pattern.map_or(Engine::Kernel, Pattern::engine);
        assert_eq!(round.task.setup.engine, engine, "{pattern:?}");
    }
    let minute = time(&rounds);
    assert!((50..=60).contains(&minute.as_secs()), "{minute:?}");
    let longer = |round: &Round| round.deadline > Duration::from_secs(20);
    assert!(rounds.iter().all(longer), "a round is slower before it hangs");
}

#[test]
fn a_short_soak_still_repeats_its_rounds() {
    let rounds = soaked("h200x2", true, Duration::from_secs(30));
    assert!(time(&rounds) * 4 <= Duration::from_secs(30), "{rounds:?}");
    // Without peer access the host's copies and the kernels remain.
    let apart = soaked("two-sockets", false, Duration::from_secs(600));
    assert!(!apart.is_empty());
    let flows = apart.iter().flat_map(|round| &round.flows);
    assert!(flows.clone().all(|flow| flow.pair().is_none()), "{apart:?}");
}

#[test]
fn a_soak_of_one_gpu_loads_its_link_in_both_directions() {
    let rounds = soaked("single", true, Duration::from_secs(600));
    let flows: Vec<String> =
        rounds.iter().flat_map(|round| &round.flows).map(ToString::to_string).collect();
    assert_eq!(flows.len(), 3, "{flows:?}");
    let with_host = rounds.iter().flat_map(|round| &round.flows);
    assert_eq!(with_host.filter(|flow| flow.with_host().is_some()).count(), 2);
}

fn pattern(round: &Round) -> Pattern {
    let Action::Load(crate::load::Load { pattern, .. }) = round.task.action else {
        panic!("{round:?}")
    };
    pattern
}

/// Returns the number of rounds of each pattern.
fn counts(rounds: &[Round]) -> BTreeMap<Pattern, usize> {
    let mut counts = BTreeMap::new();
    rounds.iter().for_each(|round| *counts.entry(pattern(round)).or_default() += 1);
    counts
}

#[test]
fn standard_has_permutations_and_all_into_each_gpu_of_an_nvswitch_machine() {
    use Pattern::{AllToOne, Ring, RingByKernels, Shift};
    let rounds = planned("h200x8", Name::Standard, true, false);
    let expected = [(Ring, 1), (RingByKernels, 1), (Shift, 6), (AllToOne, 8)];
    assert_eq!(counts(&rounds), BTreeMap::from(expected));
    let sizes = |of: Pattern| {
        let round = rounds.iter().find(|round| pattern(round) == of).unwrap();
        (round.flows.len(), round.task.setup.bytes.0 / MIB)
    };
    // 0.5 ms at 450 GB/s. Flows that share an end get a part of it.
    assert_eq!((sizes(Ring), sizes(AllToOne)), ((8, 215), (7, 31)));
    let counted: Vec<_> = rounds.iter().filter(|round| round.is_counted()).map(pattern).collect();
    assert_eq!(counted, [Ring], "every GPU sends and receives once");
    let names: BTreeSet<_> =
        rounds.iter().map(|round| (pattern(round), round.name.clone())).collect();
    assert_eq!(names.len(), rounds.len(), "each has a name of its own");
}

#[test]
fn full_has_every_pattern_and_no_flows_twice() {
    let rounds = planned("h200x8", Name::Full, true, false);
    let counts = counts(&rounds);
    for (pattern, expected) in
        [(Pattern::OneToAll, 8), (Pattern::HostToAll, 1), (Pattern::AllToHost, 1)]
    {
        assert_eq!(counts.get(&pattern).copied().unwrap_or(0), expected, "{pattern}");
    }
    for round in &rounds {
        assert_eq!(round.task.setup.engine, pattern(round).engine());
    }
    let sets: BTreeSet<(Engine, BTreeSet<Flow>)> = rounds
        .iter()
        .map(|round| {
            let flows = round.flows.iter().copied().collect();
            (round.task.setup.engine, flows)
        })
        .collect();
    assert_eq!(sets.len(), rounds.len());
}

#[test]
fn engines_copy_where_kernels_cannot_or_their_rate_is_not_known() {
    use Pattern::{Ring, RingByKernels};
    let patterns = |rounds: Vec<Round>| rounds.iter().map(pattern).collect::<BTreeSet<_>>();
    let without = |request: &Request<'_>| {
        let driver =
            DriverFacts { kernels_failure: Some("no compiler".into()), ..request.driver.clone() };
        crate::plan::rounds(&Request { driver: &driver, ..*request })
    };
    let mut all = requested("h200x8", Name::Full, true, false, without);
    all.retain(|round| matches!(round.task.action, Action::Load(_)));
    for (planned, why) in [
        (patterns(all), "kernels that were not loaded"),
        (patterns(planned("two-sockets", Name::Full, true, false)), "over PCIe"),
    ] {
        assert!(planned.contains(&Ring) && !planned.contains(&RingByKernels), "{why}");
    }
}

#[test]
fn every_hop_that_is_shared_has_two_flows() {
    let of = |direct| -> Vec<(String, Vec<String>)> {
        let rounds = planned("two-sockets", Name::Standard, direct, false);
        let hops = rounds.iter().filter(|round| pattern(round) == Pattern::ThroughOneHop);
        hops.map(|round| {
            (round.name.clone(), round.flows.iter().map(ToString::to_string).collect())
        })
        .collect()
    };
    let direct = of(true);
    assert!(
        !direct.is_empty()
            && direct
                .iter()
                .all(|(name, flows)| name.starts_with("link from ") && flows.len() == 2)
    );
    let (between, with_host): (Vec<_>, Vec<_>) =
        direct.iter().partition(|(_, flows)| flows.iter().all(|flow| !flow.contains("host")));
    assert!(!between.is_empty(), "{direct:#?}");
    // Without peer access, flows to and from the host pass the same hops.
    let staged = of(false);
    assert!(
        staged.iter().all(|(_, flows)| flows.iter().all(|flow| flow.contains("host"))),
        "{staged:#?}"
    );
    assert!(staged.len() > with_host.len(), "{staged:#?}");
}

#[test]
fn few_or_many_gpus_and_one_pair_at_a_time() {
    assert_eq!(planned("single", Name::Full, true, false), []);
    assert_eq!(planned("h200x8", Name::Full, true, true), [], "--serial");
    assert_eq!(planned("h200x8", Name::Quick, true, false), []);
    assert_eq!(
        counts(&planned("h200x2", Name::Standard, true, false)),
        BTreeMap::from([(Pattern::Ring, 1), (Pattern::RingByKernels, 1)])
    );
}

#[test]
fn flows_without_access_are_left_out() {
    let rounds = planned("h200x8", Name::Full, false, false);
    assert!(rounds.iter().flat_map(|round| &round.flows).all(|flow| flow.with_host().is_some()));
    assert!(counts(&rounds).contains_key(&Pattern::HostToAll));
}

#[test]
fn counted_copies_between_gpus_fit_a_counter_of_32_bits_where_they_went_over_pcie() {
    for (machine, name) in [("h200x8", Name::Standard), ("h200x8", Name::Full)] {
        let rounds = planned(machine, name, true, false);
        let ring = rounds.iter().find(|round| pattern(round) == Pattern::Ring).unwrap();
        let Action::Load(crate::load::Load { rows, copies, counted, .. }) = ring.task.action else {
            panic!("{ring:?}")
        };
        assert!(counted);
        let sent = u64::from(TRIAL_COPIES + rows * copies) * ring.task.setup.bytes.0;
        // A quarter more for packets, and the 1 MiB before each row.
        assert!(sent / 4 * 5 < 1 << 32, "{machine}: {sent} in {rows} rows of {copies}");
        // As many rows as the other patterns, and copies that are long compared with the cost of each beside its
        // bytes.
        let other = rounds.iter().find(|round| pattern(round) == Pattern::Shift).unwrap();
        let Action::Load(crate::load::Load { rows: of_other, .. }) = other.task.action else {
            panic!("{other:?}")
        };
        assert_eq!((rows, copies >= 4), (of_other, true), "{machine}");
        assert!(
            2 * ring.task.setup.bytes.0 > other.task.setup.bytes.0,
            "{machine}: {}",
            ring.task.setup.bytes
        );
    }
}
