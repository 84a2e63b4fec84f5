use crate::Group;
use crate::Task;
use model::choice::Choice;
use model::flow::Place;
use model::topology::Topology;
use std::collections::BTreeSet;

use super::*;
use crate::plan::profile::Name;
use model::flow::HostMemory;
use model::measurement::CudaDevice;
use model::units::{Bytes, MIB};

/// Returns true if a round of this task is on one GPU.
pub(crate) fn is_on_one_gpu(task: &Task) -> bool {
    matches!(
        task.action,
        Action::Pipeline(_)
            | Action::Engines(_)
            | Action::Calls(_)
            | Action::LaunchLoop(_)
            | Action::Hazard(_)
    )
}

fn driver(gpus: u32) -> DriverFacts {
    let device = |index| CudaDevice {
        index,
        ordinal: Some(index),
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    DriverFacts { devices: (0..gpus).map(device).collect(), ..DriverFacts::default() }
}

fn plan(name: Name, driver: &DriverFacts, groups: &[Group]) -> Vec<Round> {
    let gpus: Vec<u32> = driver.devices.iter().map(|device| device.index).collect();
    let rounds = rounds(&Request {
        gpus: &gpus,
        driver,
        topology: &Topology::default(),
        profile: &Profile::load(name).unwrap(),
        groups: &groups.iter().copied().collect(),
        deadline: None,
        serial: false,
    });
    rounds.into_iter().filter(|round| is_on_one_gpu(&round.task)).collect()
}

fn count(rounds: &[Round], is: impl Fn(&Action) -> bool) -> usize {
    rounds.iter().filter(|round| is(&round.task.action)).count()
}

#[test]
fn quick_has_none_and_the_hazard_is_in_full_only() {
    assert_eq!(plan(Name::Quick, &driver(4), Group::ALL), []);
    let hazards = |name| {
        count(&plan(name, &driver(4), Group::ALL), |action| matches!(action, Action::Hazard(_)))
    };
    assert_eq!((hazards(Name::Standard), hazards(Name::Full)), (0, 4 * 2));
}

#[test]
fn each_group_has_its_own_and_every_gpu_its_rounds() {
    let pipeline = plan(Name::Standard, &driver(4), &[Group::Pipeline]);
    let is_pipeline = |action: &Action| matches!(action, Action::Pipeline(_) | Action::Engines(_));
    assert_eq!((pipeline.len(), count(&pipeline, is_pipeline)), (8, 8));
    let calls = plan(Name::Standard, &driver(4), &[Group::Async]);
    // Calls within the GPU, on pinned memory and on pageable memory. A loop that waits for its own GPU, and one that
    // waits for the next.
    assert_eq!(
        (calls.len(), count(&calls, |action| matches!(action, Action::LaunchLoop(_)))),
        (4 * 5, 8)
    );
    for gpu in 0..4 {
        assert_eq!(
            calls
                .iter()
                .filter(|round| round.flows[0].ends().contains(&Endpoint::Gpu(gpu)))
                .count(),
            5
        );
    }
    assert_eq!(plan(Name::Full, &driver(4), &[Group::Peers, Group::Overlap, Group::Latency]), []);
}

#[test]
fn one_gpu_is_a_machine_too_and_waits_for_itself_alone() {
    let rounds = plan(Name::Standard, &driver(1), Group::ALL);
    let loops = count(&rounds, |action| matches!(action, Action::LaunchLoop(_)));
    assert_eq!((rounds.len(), loops), (2 + 4, 1));
    let mut none = driver(2);
    none.devices.iter_mut().for_each(|device| device.failure = Some("not opened".into()));
    assert_eq!(plan(Name::Standard, &none, Group::ALL), []);
}

#[test]
fn no_two_rounds_are_the_same_and_their_copies_fit_the_buffers() {
    let mut small = driver(3);
    small.devices[1].budget_bytes = Some(Bytes(8 * MIB));
    let rounds = plan(Name::Full, &small, Group::ALL);
    let keys: BTreeSet<_> =
        rounds.iter().map(|round| format!("{:?} {:?}", round.flows, round.task)).collect();
    assert_eq!(keys.len(), rounds.len());
    for round in rounds.iter().filter(|round| round.uses(Place::Gpu(1))) {
        assert!(round.task.setup.bytes.0 <= 4 * MIB, "{round:?}");
    }
}

#[test]
fn without_kernels_calls_on_host_memory_are_timed_all_the_same() {
    let driver = DriverFacts { kernels_failure: Some("refused".into()), ..driver(2) };
    for round in plan(Name::Full, &driver, Group::ALL) {
        let copies = match round.task.action {
            Action::Calls(_) => round.flows[0].within().is_none(),
            _ => false,
        };
        assert_eq!(obstacle(&round, &driver).is_none(), copies, "{round:?}");
    }
}

#[test]
fn host_memory_is_that_of_the_gpus_own_node() {
    let topology = topology::build(&model::testing::two_sockets());
    let (driver, profile) = (driver(4), Profile::load(Name::Standard).unwrap());
    let request = Request {
        gpus: &[0, 1, 2, 3],
        driver: &driver,
        topology: &topology,
        profile: &profile,
        groups: &BTreeSet::new(),
        deadline: None,
        serial: false,
    };
    let nodes: Vec<_> =
        (0..4).map(|gpu| one_gpu::host_flows(&request, gpu, HostMemory::Pinned)[0].from).collect();
    let of = |node| Endpoint::Host { node: Some(node), memory: HostMemory::Pinned };
    assert_eq!(nodes, [of(0), of(0), of(1), of(1)]);
}
