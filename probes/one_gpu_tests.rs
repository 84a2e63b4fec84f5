use std::time::Duration;

use super::*;
use crate::{Action, Task};
use model::asynchrony::{Call, HostCall};
use model::contention::KernelNeed;
use model::flow::{Endpoint, Flow, HostMemory, Setup};
use model::host::HostDirection;
use model::measurement::Measurements;
use model::pipeline::Bound;
use model::placement::{Engine, HostMode, Pair, Side};
use model::topology::Topology;
use model::units::{Bytes, MIB};
use sim::spec::MachineSpec;
use sim::{self, builtin};

fn within(gpu: u32) -> Flow {
    Flow { from: Endpoint::Gpu(gpu), to: Endpoint::Gpu(gpu) }
}

fn host(memory: HostMemory) -> Vec<Flow> {
    let up = Flow { from: Endpoint::Host { node: None, memory }, to: Endpoint::Gpu(0) };
    vec![up, up.reversed()]
}

fn round_of(id: u32, flows: Vec<Flow>, task: Task) -> Round {
    Round {
        id,
        slot: id,
        flows,
        task,
        deadline: Duration::from_secs(5),
        timeline: false,
        name: String::new(),
    }
}

/// Returns the measurements of these rounds on the first two GPUs of a machine.
fn measured(spec: MachineSpec, rounds: Vec<(Vec<Flow>, u64, Action)>) -> Measurements {
    let round = |(id, (flows, mib, action)): (u32, (Vec<Flow>, u64, Action))| {
        let task = Task { setup: Setup::REFERENCE.with_bytes(Bytes(mib * MIB)), action };
        round_of(id, flows, task)
    };
    let rounds: Vec<_> = (0..).zip(rounds).map(round).collect();
    let outcomes = rounds.iter().zip(outcomes(spec, &rounds));
    let outcomes = outcomes.map(|(round, outcome)| (round.id, outcome)).collect();
    assemble(&rounds, &outcomes, &Topology::default())
}

/// Returns the outcome of each round on the first two GPUs of a machine.
fn outcomes(spec: MachineSpec, rounds: &[Round]) -> Vec<Outcome> {
    let driver = sim::driver(spec).unwrap();
    let select = |index: u32| Selection::of(driver.as_ref(), index);
    let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1024 * MIB));
    rounds.iter().map(|round| bench.run_one(round)).collect()
}

fn h200() -> MachineSpec {
    builtin::get("h200x2").unwrap()
}

#[test]
fn a_pipeline_in_several_streams_is_nearly_as_fast_as_its_stages_allow() {
    let action =
        |streams| Action::Pipeline(crate::pipeline::Pipeline { samples: 3, batches: 8, streams });
    let rounds = [2, 3, 8].map(|streams| (host(HostMemory::Pinned), 8, action(streams)));
    let tables = measured(h200(), rounds.to_vec());
    assert_eq!((tables.pipeline.len(), tables.local.len()), (3, 0));
    for cell in &tables.pipeline {
        assert_eq!(
            (cell.ending.status, cell.samples, cell.bound),
            (Status::Measured, 3, Some(Bound::Copy)),
            "{cell:?}"
        );
        let (reached, possible) = (cell.speed_up.unwrap(), cell.possible_speed_up.unwrap());
        // Copies both ways take a little longer than alone.
        assert!((0.85..1.03).contains(&(reached / possible)), "{cell:?}");
        // The copy in takes the time of 8 MiB at 55.3 GB/s, and its kernel takes less.
        assert!((150.0..175.0).contains(&cell.copy_in_us.unwrap()), "{cell:?}");
        assert!(cell.kernel_us.unwrap() < cell.copy_in_us.unwrap(), "{cell:?}");
    }
    let speed_ups: Vec<_> = tables.pipeline.iter().map(|cell| cell.speed_up.unwrap()).collect();
    assert!(speed_ups[0] < speed_ups[1] && speed_ups[1] > 1.9, "{speed_ups:?}");
}

#[test]
fn pageable_memory_takes_the_gain_of_several_streams_away() {
    let action = Action::Pipeline(crate::pipeline::Pipeline { samples: 2, batches: 8, streams: 3 });
    let rounds = [HostMemory::Pinned, HostMemory::Pageable].map(|memory| (host(memory), 8, action));
    let tables = measured(h200(), rounds.to_vec());
    let [pinned, pageable] = tables.pipeline.as_slice() else { panic!("{tables:?}") };
    assert!(
        pageable.several_streams_us.unwrap() > 3.0 * pinned.several_streams_us.unwrap(),
        "{tables:#?}"
    );
    assert!(pageable.speed_up.unwrap() < 1.3, "{pageable:?}");
    assert_eq!(pageable.bound, Some(Bound::Host), "{pageable:?}");
}

#[test]
fn the_steps_of_a_run_follow_each_other_in_their_stream() {
    let task = Task {
        setup: Setup::REFERENCE.with_bytes(Bytes(8 * MIB)),
        action: Action::Pipeline(crate::pipeline::Pipeline { samples: 1, batches: 5, streams: 3 }),
    };
    let round = round_of(0, host(HostMemory::Pinned), task);
    let outcome = outcomes(h200(), &[round]).remove(0);
    let Outcome::Pipeline { times } = outcome else { panic!("{outcome:?}") };
    assert_eq!(times.steps.len(), 2 * 5 * 3);
    for streams in [1, 3] {
        for stream in 0..streams {
            let of_stream =
                |step: &&pipeline::run::StageTime| (step.streams, step.stream) == (streams, stream);
            let steps: Vec<_> = times.steps.iter().filter(of_stream).collect();
            assert!(
                steps.windows(2).all(|two| two[0].span.end_ns <= two[1].span.start_ns + 1.0),
                "{steps:#?}"
            );
        }
    }
}

#[test]
fn copies_each_way_run_at_the_same_time_and_those_of_one_direction_take_turns() {
    let engines = Action::Engines(crate::pipeline::Engines { samples: 2 });
    let tables = measured(h200(), vec![(host(HostMemory::Pinned), 16, engines)]);
    let [cell] = tables.engines.as_slice() else { panic!("{tables:?}") };
    assert_eq!((cell.reported, cell.observed), (Some(3), Some(2)), "{cell:?}");
    assert!(
        cell.opposite_percent.unwrap() > 80.0 && cell.kernel_to_device_percent.unwrap() > 90.0,
        "{cell:?}"
    );
    assert!(
        cell.both_to_device_percent.unwrap() < 10.0 && cell.both_to_host_percent.unwrap() < 10.0,
        "{cell:?}"
    );

    let mut spec = h200();
    spec.gpus[0].one_host_engine = true;
    let tables = measured(spec, vec![(host(HostMemory::Pinned), 16, engines)]);
    assert_eq!(
        (tables.engines[0].reported, tables.engines[0].observed),
        (Some(3), Some(1)),
        "{tables:?}"
    );

    let mut spec = h200();
    spec.gpus[0].host_engines = 2.try_into().unwrap();
    let tables = measured(spec, vec![(host(HostMemory::Pinned), 16, engines)]);
    assert_eq!(
        (tables.engines[0].reported, tables.engines[0].observed),
        (Some(5), Some(4)),
        "{tables:?}"
    );
}

fn call(tables: &Measurements, wanted: impl Fn(&HostCall) -> bool) -> HostCall {
    tables.calls.iter().find(|cell| wanted(cell)).cloned().unwrap_or_else(|| panic!("{tables:#?}"))
}

#[test]
fn calls_hold_the_host_as_their_memory_and_mode_have_it() {
    let calls = Action::Calls(crate::asynchrony::Calls { samples: 3 });
    let tables = measured(
        h200(),
        vec![
            (vec![within(0)], 8, calls),
            (host(HostMemory::Pinned), 8, calls),
            (host(HostMemory::Pageable), 8, calls),
        ],
    );
    // The cells are one within the GPU, launch, three waits busy and idle; two directions; each copy in both modes.
    assert_eq!(tables.calls.len(), 2 + 7 + 4 + 4);
    let held = |memory, direction, host| {
        let copy = call(&tables, |cell| {
            (cell.call, cell.memory, cell.direction, cell.host)
                == (Call::Copy, Some(memory), Some(direction), host)
        });
        (copy.host_blocked_us.unwrap(), copy.work_us.unwrap())
    };
    for direction in [HostDirection::ToDevice, HostDirection::ToHost] {
        let (free, work) = held(HostMemory::Pinned, direction, HostMode::NonBlocking);
        assert!(free < 10.0 && work > 140.0, "{direction}: {free}, {work}");
        let (blocked, work) = held(HostMemory::Pinned, direction, HostMode::Blocking);
        assert!(blocked >= work * 0.98, "{direction}: {blocked}, {work}");
        let (pageable, work) = held(HostMemory::Pageable, direction, HostMode::NonBlocking);
        assert!(pageable >= work * 0.9 && pageable > 500.0, "{direction}: {pageable}, {work}");
    }
    let launch = call(&tables, |cell| cell.call == Call::Launch);
    assert!(
        launch.host_blocked_us.unwrap() < 10.0 && launch.work_us.unwrap() >= 199.0,
        "{launch:?}"
    );
    for wait in [Call::SynchronizeStream, Call::SynchronizeEvent, Call::SynchronizeDevice] {
        let busy = call(&tables, |cell| cell.call == wait && cell.busy);
        assert!((180.0..220.0).contains(&busy.host_blocked_us.unwrap()), "{busy:?}");
        let idle = call(&tables, |cell| cell.call == wait && !cell.busy);
        assert!(idle.host_blocked_us.unwrap() < 10.0 && idle.work_us == Some(0.0), "{idle:?}");
    }
}

#[test]
fn a_wait_for_another_gpu_lets_launches_run_ahead() {
    let turns = Action::LaunchLoop(crate::asynchrony::LaunchLoop { samples: 2, turns: 200 });
    let rounds = [0, 1].map(|waited_for| (vec![within(0), within(waited_for)], 0, turns));
    let tables = measured(h200(), rounds.to_vec());
    let [same, other] = tables.launch_loop.as_slice() else { panic!("{tables:?}") };
    assert_eq!((same.synchronized, other.synchronized), (0, 1));
    let (same, other) = (same.turn_us.unwrap(), other.turn_us.unwrap());
    assert!(same > 10.0 && other >= 10.0 && same > other + 0.5, "{same} {other}");
}

#[test]
fn what_is_read_before_its_copy_has_ended_is_old() {
    let hazard = Action::Hazard(crate::asynchrony::Hazard { samples: 2 });
    let rounds = [HostMemory::Pinned, HostMemory::Pageable]
        .map(|memory| (host(memory)[1..].to_vec(), 64, hazard));
    let tables = measured(h200(), rounds.to_vec());
    let [pinned, pageable] = tables.hazard.as_slice() else { panic!("{tables:?}") };
    assert!(pinned.stale_percent.unwrap() > 50.0, "{pinned:?}");
    assert_eq!(pinned.stale_after_wait_percent, Some(0.0), "{pinned:?}");
    assert_eq!(
        (pageable.stale_percent, pageable.stale_after_wait_percent),
        (Some(0.0), Some(0.0)),
        "{pageable:?}"
    );
}

#[test]
fn without_streams_that_can_be_held_a_pipeline_is_timed_all_the_same() {
    let mut spec = h200();
    spec.faults.no_hold = true;
    let pipeline =
        Action::Pipeline(crate::pipeline::Pipeline { samples: 2, batches: 8, streams: 3 });
    let engines = Action::Engines(crate::pipeline::Engines { samples: 1 });
    let rounds =
        vec![(host(HostMemory::Pinned), 8, pipeline), (host(HostMemory::Pinned), 8, engines)];
    let tables = measured(spec, rounds);
    assert!(tables.pipeline[0].speed_up.unwrap() > 1.5, "{tables:?}");
    let ending = &tables.engines[0].ending;
    assert_eq!(
        (ending.status, ending.reason.as_deref()),
        (Status::Skipped, Some("streams cannot be held"))
    );
}

#[test]
fn a_round_that_was_lost_has_its_cells_with_the_reason() {
    let flows = host(HostMemory::Pinned);
    let actions = [
        (
            flows.clone(),
            Action::Pipeline(crate::pipeline::Pipeline { samples: 1, batches: 4, streams: 3 }),
        ),
        (flows.clone(), Action::Engines(crate::pipeline::Engines { samples: 1 })),
        (flows.clone(), Action::Calls(crate::asynchrony::Calls { samples: 1 })),
        (vec![within(0)], Action::Calls(crate::asynchrony::Calls { samples: 1 })),
        (
            vec![within(0), within(1)],
            Action::LaunchLoop(crate::asynchrony::LaunchLoop { samples: 1, turns: 5 }),
        ),
        (flows[1..].to_vec(), Action::Hazard(crate::asynchrony::Hazard { samples: 1 })),
    ];
    let round = |(id, (flows, action)): (u32, (Vec<Flow>, Action))| {
        let task = Task { setup: Setup::REFERENCE.with_bytes(Bytes(MIB)), action };
        round_of(id, flows, task)
    };
    let rounds: Vec<_> = (0..).zip(actions).map(round).collect();
    let lost =
        |round: &Round| (round.id, Outcome::Lost { status: Status::Hung, reason: "late".into() });
    let tables = assemble(&rounds, &rounds.iter().map(lost).collect(), &Topology::default());
    let cells: Vec<_> = tables.cells().collect();
    assert_eq!(cells.len(), 1 + 1 + 4 + 9 + 1 + 1);
    for cell in cells {
        assert_eq!(
            (cell.status, cell.reason, cell.has_figure),
            (Status::Hung, Some("late"), false)
        );
    }
    let names: std::collections::BTreeSet<_> = tables.each().map(|cell| cell.identity()).collect();
    assert_eq!(names.len(), tables.each().count(), "{names:#?}");
}

#[test]
fn a_copy_engine_works_beside_any_kernel_and_a_copy_by_kernel_shares_the_gpu_with_it() {
    let pair = Pair { source: 0, destination: 1 };
    for (flow, issuer, engine, gpu) in [
        (Flow::from(pair), Side::Source, Engine::Copy, 0),
        (pair.into(), Side::Destination, Engine::Copy, 1),
        (host(HostMemory::Pinned)[1], Side::Source, Engine::Copy, 0),
        (pair.into(), Side::Source, Engine::Kernel, 0),
    ] {
        for kernel in KernelNeed::ALL {
            let setup = Setup::REFERENCE.with_bytes(Bytes(64 * MIB));
            let setup = setup.with_issuer(issuer).with_engine(engine);
            let action = crate::contention::Contention { samples: 2, kernel };
            let round = round_of(0, vec![flow], Task::new(setup, action));
            let outcome = outcomes(h200(), std::slice::from_ref(&round)).remove(0);
            let cell = crate::contention::run::cell(&round, kernel, &outcome).unwrap();
            assert_eq!((cell.of_gpu, cell.samples), (gpu, 2), "{cell:?}");
            let keeps = cell.copy_keeps_percent.unwrap();
            let of_kernel = cell.kernel_keeps_percent.unwrap();
            match engine {
                Engine::Copy => assert!(keeps > 97.0 && of_kernel > 97.0, "{cell:?}"),
                // One after the other, the later one takes twice as long.
                Engine::Kernel => assert!(keeps.min(of_kernel) < 60.0, "{cell:?}"),
            }
            // Alone, the kernel is as long as a row of copies, of some ms.
            let us = cell.kernel_alone_us.unwrap();
            assert!((900.0..1400.0).contains(&us), "{cell:?}");
        }
    }
}

#[test]
fn what_always_outlasts_its_company_waits_for_it_and_keeps_nothing() {
    let times = crate::contention::run::ContentionTimes {
        copies: 2,
        copies_alone: vec![1e6],
        copies_beside: Vec::new(),
        kernel_alone: vec![1e6],
        kernel_beside: vec![1.25e6],
    };
    let action = crate::contention::Contention { samples: 1, kernel: KernelNeed::Memory };
    let round = round_of(0, host(HostMemory::Pinned), Task::new(Setup::REFERENCE, action));
    let outcome = Outcome::Contention { times: Box::new(times) };
    let cell = crate::contention::run::cell(&round, KernelNeed::Memory, &outcome).unwrap();
    assert_eq!((cell.copy_keeps_percent, cell.kernel_keeps_percent), (Some(0.0), Some(80.0)));
    assert_eq!((cell.copy_beside_gbps, cell.ending.status), (None, Status::Measured));
}

#[test]
fn a_kernel_of_slow_memory_is_as_long_as_the_copies_too() {
    let action = crate::contention::Contention { samples: 1, kernel: KernelNeed::Memory };
    let up = vec![host(HostMemory::Pinned)[0]];
    let mut slow = h200();
    slow.gpus.iter_mut().for_each(|gpu| gpu.local_gbps = 100.0.try_into().unwrap());
    let tables = measured(slow, vec![(up, 64, action.into())]);
    let [cell] = tables.contention.as_slice() else { panic!("{tables:?}") };
    let copies_us = 1e-3 * 67_108_864.0 / cell.copy_alone_gbps.unwrap().0;
    let us = cell.kernel_alone_us.unwrap();
    assert!((0.9..1.1).contains(&(us / copies_us)), "half a round: {cell:?}");
}

#[test]
fn each_stream_of_a_pipeline_has_memory_of_its_own_if_there_is_enough() {
    let action =
        |streams| Action::Pipeline(crate::pipeline::Pipeline { samples: 1, batches: 8, streams });
    let rounds = [(8, 3), (200, 3), (200, 8)]
        .map(|(mib, streams)| (host(HostMemory::Pinned), mib, action(streams)));
    let tables = measured(h200(), rounds.to_vec());
    let taken: Vec<_> = tables
        .pipeline
        .iter()
        .map(|cell| (cell.one_stream_bytes.unwrap().0, cell.several_streams_bytes.unwrap().0))
        .collect();
    let mib = |one, several| (one * MIB, several * MIB);
    // Buffers of nearly 512 MiB hold two batches of 200.
    assert_eq!(taken, [mib(16, 48), mib(400, 800), mib(400, 800)]);
}

#[test]
fn copies_within_a_gpu_are_checked() {
    use model::status::Verified;
    use sim::spec::{CopyFault, PairFault, Pairs};
    let local = |spec| {
        let local = crate::local::Local { samples: 3 };
        measured(spec, vec![(vec![within(0)], 200, local.into())]).local.remove(0)
    };
    assert_eq!(local(h200()).verified, Verified::Ok);
    let mut spec = h200();
    let faults = &mut spec.faults.pairs;
    // Between GPUs: nothing within one.
    faults.push(PairFault::new(Pairs::All, CopyFault::Dropped));
    faults.push(PairFault::new(Pairs::Within(1), CopyFault::Dropped));
    assert_eq!(local(spec.clone()).verified, Verified::Ok);
    for (fault, verified) in [
        (CopyFault::Dropped, Verified::Dropped),
        (CopyFault::Corrupt { words: 3 }, Verified::Corrupt),
    ] {
        spec.faults.pairs = vec![PairFault::new(Pairs::Within(0), fault)];
        let cell = local(spec.clone());
        assert_eq!(cell.verified, verified);
        assert!(cell.achieved_gbps.is_some() && cell.verification_detail.is_some(), "{cell:?}");
    }
    spec.faults.pairs.clear();
    spec.faults.kernels = Some("refused".into());
    assert_eq!(local(spec).verified, Verified::Inconclusive);
}
