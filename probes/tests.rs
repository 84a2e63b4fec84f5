use std::time::Duration;

use super::*;
use crate::{Action, Round, Task};
use hardware::{Driver, ErrorKind};
use model::flow::{Flow, Setup};
use model::measurement::Verified;
use model::placement::{
    Direction, Engine, HostMode, KernelStream, Pair, Path, Placement, Side, StreamKind,
};
use model::topology::Topology;
use model::units::{Bytes, MIB};
use sim::spec::LateGate;

const PAIR: Pair = Pair { source: 0, destination: 1 };

/// Runs tasks on the first two GPUs of a simulated machine.
fn run(machine: &str, tasks: &[Task]) -> Vec<Outcome> {
    run_on(sim::driver(sim::Simulated::find(machine).unwrap().spec).unwrap(), tasks)
}

fn run_on(driver: Box<dyn Driver>, tasks: &[Task]) -> Vec<Outcome> {
    let select = |index: u32| Selection::of(driver.as_ref(), index);
    let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1024 * MIB));
    assert_eq!(
        bench
            .facts()
            .devices
            .iter()
            .filter_map(|device| device.failure.clone())
            .collect::<Vec<_>>(),
        [""; 0]
    );
    let round = |task: &Task| {
        let mut flows = vec![Flow::from(PAIR)];
        flows.extend(task.is_both_ways().then(|| flows[0].reversed()));
        Round {
            id: 0,
            slot: 0,
            flows,
            task: *task,
            deadline: Duration::from_secs(5),
            timeline: false,
            name: String::new(),
        }
    };
    tasks.iter().map(|task| bench.run_one(&round(task))).collect()
}

fn row(placement: Placement, direction: Direction, path: Path) -> Task {
    let setup = Setup { placement, direction, path, bytes: Bytes(300 * MIB), ..Setup::REFERENCE };
    Task { setup, action: Action::Bandwidth(crate::peers::Bandwidth { rows: 3, copies: 2 }) }
}

/// Returns the median rate of the rows, GB/s.
fn rate(outcome: &Outcome) -> f64 {
    let rates = figures::rates(outcome, 0).unwrap_or_else(|_| panic!("{outcome:?}"));
    assert_eq!(
        rates.check,
        Some(Check::OK).filter(|_| rates.check.is_some()),
        "what was timed arrived"
    );
    let copy_ns = rates.copy_ns;
    assert!(copy_ns.len() >= 3);
    #[allow(clippy::cast_precision_loss)]
    let bytes = (300 * MIB) as f64;
    bytes / statistics::median(&copy_ns).unwrap()
}

#[test]
fn a_row_reaches_what_the_machine_was_recorded_with() {
    let outcomes = run(
        "h200x2",
        &[
            row(Placement::REFERENCE, Direction::OneWay, Path::Direct),
            row(Placement::REFERENCE, Direction::OneWay, Path::Staged),
            row(Placement::REFERENCE, Direction::OneWay, Path::Direct),
        ],
    );
    let rates: Vec<f64> = outcomes.iter().map(rate).collect();
    assert!((390.0..400.0).contains(&rates[0]), "{rates:?}");
    assert!((30.0..40.0).contains(&rates[1]), "{rates:?}");
    assert!((rates[2] - rates[0]).abs() < 0.1, "direct again after staged: {rates:?}");
}

#[test]
fn both_ways_on_default_streams_take_turns_and_on_side_streams_do_not() {
    let on_default = Placement {
        source: StreamKind::Default,
        destination: StreamKind::Default,
        ..Placement::REFERENCE
    };
    let outcomes = run(
        "h200x2",
        &[
            row(Placement::REFERENCE, Direction::BothWays, Path::Direct),
            row(on_default, Direction::BothWays, Path::Direct),
        ],
    );
    let rates: Vec<f64> = outcomes.iter().map(rate).collect();
    assert!(rates[0] > 380.0, "{rates:?}");
    assert!((190.0..200.0).contains(&rates[1]), "half each: {rates:?}");
}

#[test]
fn a_channel_that_the_driver_sets_up_at_the_first_copy_is_set_up_without_a_gate() {
    let tasks = [
        Action::Latency(crate::latency::Latency { samples: 2 }),
        Action::Overlap(crate::overlap::Overlap { samples: 2, kernel: KernelStream::Default }),
    ];
    for action in tasks {
        let mut spec = sim::Simulated::find("h200x2").unwrap().spec;
        spec.faults.lazy_peers = true;
        let task = Task { setup: Setup::REFERENCE.with_bytes(Bytes(8 * MIB)), action };
        let outcomes = run_on(sim::driver(spec).unwrap(), &[task]);
        assert!(
            matches!(outcomes[..], [Outcome::Rows { .. } | Outcome::Overlap { .. }]),
            "{outcomes:?}"
        );
    }
}

/// Returns the overlap of this many MiB in each placement, with a kernel on each of these streams.
fn overlaps(bytes: u64, kernels: &[KernelStream]) -> Vec<model::measurement::Overlap> {
    let streams = Placement::every().filter(|placement| placement.host == HostMode::NonBlocking);
    let setup =
        |placement| Setup::REFERENCE.with_placement(placement).with_bytes(Bytes(bytes * MIB));
    let task = |placement, kernel| Task {
        setup: setup(placement),
        action: Action::Overlap(crate::overlap::Overlap { samples: 2, kernel }),
    };
    let tasks: Vec<_> = streams
        .flat_map(|placement| kernels.iter().map(move |kernel| task(placement, *kernel)))
        .collect();
    let outcomes = run("h200x2", &tasks);
    tasks
        .iter()
        .zip(&outcomes)
        .flat_map(|(task, outcome)| match task.action {
            Action::Overlap(asked) => overlap::run::cells(PAIR, task.setup, asked.kernel, outcome),
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn every_cell_of_the_overlap_table_is_as_cuda_orders_streams() {
    for bytes in [64, 1024] {
        let cells = overlaps(bytes, &KernelStream::ALL);
        assert_eq!(cells.len(), 32 * 2 * 3);
        for cell in cells {
            let expected = cell.expected_overlap_percent.unwrap();
            let percent = cell.overlap_percent.unwrap();
            assert!((percent - expected).abs() <= 5.0, "{cell:?}");
            assert_eq!(cell.samples, 2);
            assert_eq!((cell.should_overlap(), cell.is_against()), (expected > 50.0, Some(false)));
        }
    }
}

#[test]
fn the_host_waits_in_blocking_placements_only() {
    for cell in overlaps(256, &[KernelStream::Default]) {
        let host_us = cell.host_blocked_us.unwrap();
        match cell.placement.host {
            HostMode::NonBlocking => assert!(host_us < 50.0, "{cell:?}"),
            HostMode::Blocking => assert!(host_us > 500.0, "{cell:?}"),
        }
    }
}

#[test]
fn verification_tells_what_became_of_the_bytes() {
    let verify = |engine, path| Task {
        setup: Setup::REFERENCE.with_engine(engine).with_path(path).with_bytes(Bytes(64 * MIB)),
        action: Action::Verify(crate::peers::Verify {}),
    };
    let tasks = [
        verify(Engine::Copy, Path::Direct),
        verify(Engine::Kernel, Path::Direct),
        verify(Engine::Copy, Path::Staged),
    ];
    let verdicts = |machine| -> Vec<Verified> {
        run(machine, &tasks)
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Verified { flows } => flows[0].verified,
                outcome => panic!("{outcome:?}"),
            })
            .collect()
    };
    assert_eq!(verdicts("h200x2"), [Verified::Ok; 3]);
    assert_eq!(verdicts("writes-dropped"), [Verified::Dropped, Verified::Dropped, Verified::Ok]);
    assert_eq!(verdicts("no-kernels"), [Verified::Inconclusive; 3]);
}

#[test]
fn what_was_timed_is_checked_although_nothing_was_verified_before() {
    let task = row(Placement::REFERENCE, Direction::OneWay, Path::Direct);
    let check = |machine, task| figures::rates(&run(machine, &[task])[0], 0).ok().unwrap().check;
    assert_eq!(check("h200x2", task), Some(Check::OK));
    assert_eq!(check("writes-dropped", task).map(|check| check.verified), Some(Verified::Dropped));
    assert_eq!(check("no-kernels", task), None, "there is no kernel that could check");
    let both_ways = row(Placement::REFERENCE, Direction::BothWays, Path::Direct);
    let outcome = &run("h200x2", &[both_ways])[0];
    let Outcome::Rows { rows } = outcome else { panic!("{outcome:?}") };
    assert!(rows.len() == 2 && rows.iter().all(|row| row.check == Some(Check::OK)), "{rows:?}");
}

/// Returns the rates of two pairs of four H200 that are copied at once, and the result of the comparison.
fn two_pairs(spec: sim::spec::MachineSpec, rounds: u32) -> Vec<Vec<Row>> {
    let driver = sim::driver(spec).unwrap();
    let selections: Vec<_> = driver
        .devices()
        .iter()
        .zip(0..)
        .map(|(info, index)| Selection {
            index,
            uuid: info.uuid.clone(),
            pci: info.pci,
            ..Selection::default()
        })
        .collect();
    let bench = Bench::open(driver.as_ref(), &selections, Bytes(1024 * MIB));
    let task = row(Placement::REFERENCE, Direction::OneWay, Path::Direct);
    let round = |id, (source, destination)| {
        let flows = vec![Pair { source, destination }.into()];
        Round {
            id,
            slot: 0,
            flows,
            task,
            deadline: Duration::from_secs(5),
            timeline: false,
            name: String::new(),
        }
    };
    let at_once = [round(0, (0, 1)), round(1, (2, 3))];
    let run = |_| {
        let mut found = Vec::new();
        bench.run(&at_once, &mut |event| match event {
            RunEvent::Together(all) => {
                found.extend(all.into_iter().flat_map(|(_, outcome)| match outcome {
                    Outcome::Rows { rows } => rows,
                    outcome => panic!("{outcome:?}"),
                }))
            }
            RunEvent::Ended(_, outcome) => panic!("{outcome:?}"),
            RunEvent::Apart(_, error) => panic!("{error}"),
            RunEvent::Seen(..) => panic!("nothing is followed"),
        });
        found
    };
    (0..rounds).map(run).collect()
}

#[test]
fn disjoint_pairs_are_copied_at_once_and_compared_with_one_alone_now_and_then() {
    let mut spec = sim::builtin::get("h200x8").unwrap();
    spec.gpus.truncate(4);
    let found = two_pairs(spec, 6);
    assert!(
        found.iter().flatten().all(|row| row.at_once == 2 && row.check == Some(Check::OK)),
        "{found:?}"
    );
    let compared: Vec<_> =
        found.iter().map(|rows| [0, 1].map(|at: usize| !rows[at].alone.is_empty())).collect();
    assert_eq!(compared[0], [true, false]);
    assert_eq!(compared[4], [false, true], "another one");
    assert!([1, 2, 3, 5].iter().all(|at: &usize| compared[*at] == [false; 2]));
    assert!(found.iter().flatten().all(|row| !row.differs_alone()));
}

#[test]
fn a_gpu_that_cuda_does_not_show_costs_itself_only() {
    let driver = sim::driver(sim::Simulated::find("h200x2").unwrap().spec).unwrap();
    let info = &driver.devices()[0];
    let there = Selection { index: 0, uuid: info.uuid.clone(), ..Selection::default() };
    let hidden = Selection { index: 1, uuid: Some("GPU-not-there".into()), ..Selection::default() };
    let bench = Bench::open(driver.as_ref(), &[there, hidden], Bytes(64 * MIB));
    let devices = &bench.facts().devices;
    assert_eq!((devices[0].ordinal, devices[0].failure.as_ref()), (Some(0), None));
    assert_eq!(devices[0].budget_bytes, Some(Bytes(60 * MIB)));
    assert!(devices[1].failure.as_ref().unwrap().contains("CUDA does not show this GPU"));
}

#[test]
fn where_streams_cannot_be_held_copies_are_measured_and_the_rest_is_not_supported() {
    let mut spec = sim::builtin::get("h200x2").unwrap();
    spec.faults.kernels = Some("no PTX compiler".into());
    spec.faults.no_hold = true;
    let tasks = [
        row(Placement::REFERENCE, Direction::OneWay, Path::Direct),
        row(Placement::REFERENCE, Direction::BothWays, Path::Direct),
        Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(16)),
            action: Action::Latency(crate::latency::Latency { samples: 1 }),
        },
    ];
    let outcomes = run_on(sim::driver(spec).unwrap(), &tasks);
    assert!((390.0..400.0).contains(&rate(&outcomes[0])), "{outcomes:?}");
    for outcome in &outcomes[1..] {
        assert!(
            matches!(outcome, Outcome::Failed { error } if error.kind == ErrorKind::Unsupported),
            "{outcome:?}"
        );
    }
}

/// Returns the outcomes of two rows both ways, a small copy and an overlap. GPU 1 reaches its gate 5 ms late this many
/// times.
fn beside_a_late_gate(times: Option<u32>) -> Vec<Outcome> {
    let mut spec = sim::builtin::get("h200x2").unwrap();
    spec.faults.late_gates.push(LateGate { gpu: 1, us: 5000.0.try_into().unwrap(), times });
    let tasks = [
        row(Placement::REFERENCE, Direction::BothWays, Path::Direct),
        Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(300 * MIB)),
            action: Action::Overlap(crate::overlap::Overlap {
                samples: 1,
                kernel: KernelStream::Default,
            }),
        },
        Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(16)),
            action: Action::Latency(crate::latency::Latency { samples: 1 }),
        },
    ];
    run_on(sim::driver(spec).unwrap(), &tasks)
}

#[test]
fn a_row_whose_gate_was_late_is_run_again() {
    let healthy = beside_a_late_gate(Some(0));
    let both_ways = rate(&healthy[0]);
    for times in [1, 2] {
        let outcomes = beside_a_late_gate(Some(times));
        assert!(
            (rate(&outcomes[0]) / both_ways - 1.0).abs() < 1e-3,
            "{} {both_ways}",
            rate(&outcomes[0])
        );
        let Outcome::Rows { rows } = &outcomes[0] else { panic!("{outcomes:?}") };
        assert!(figures::at_the_same_time(&rows[0], &rows[1]), "{rows:?}");
        assert_eq!(rows[0].host_ns.len(), rows[0].rows.len());
    }
}

#[test]
fn a_gpu_whose_gates_are_always_late_is_another_program_s_and_no_figure() {
    let outcomes = beside_a_late_gate(None);
    for outcome in &outcomes[..2] {
        let Outcome::Failed { error } = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.kind, ErrorKind::Hindered, "{error}");
        assert!(error.message.starts_with("GPU 1 is used by other programs"), "{error}");
    }
    // The small copy holds only GPU 0.
    assert!(matches!(outcomes[2], Outcome::Rows { .. }), "{outcomes:?}");
}

#[test]
fn a_verification_that_crashed_is_a_failed_path() {
    let flows = vec![Flow::from(PAIR)];
    let setup = Setup::REFERENCE.with_engine(Engine::Kernel);
    let task = |issuer, action| Task { setup: setup.with_issuer(issuer), action };
    let timed = Action::Bandwidth(crate::peers::Bandwidth { rows: 3, copies: 2 });
    let tasks = [Side::Source, Side::Destination]
        .map(|issuer| [task(issuer, Action::Verify(crate::peers::Verify {})), task(issuer, timed)]);
    let rounds: Vec<_> = (0..)
        .zip(tasks.concat())
        .map(|(id, task)| Round {
            id,
            slot: id,
            flows: flows.clone(),
            task,
            deadline: Duration::from_secs(5),
            timeline: false,
            name: String::new(),
        })
        .collect();
    let lost = |status, reason: &str| Outcome::Lost { status, reason: reason.into() };
    let outcomes = [
        (0, Outcome::Verified { flows: vec![Check::OK] }),
        (1, lost(Status::Skipped, "not run")),
        (2, lost(Status::Failed, "ended by signal 9")),
        (3, lost(Status::Skipped, "not run")),
    ];
    let tables = assemble(&rounds, &outcomes.into_iter().collect(), &Topology::default());
    let [push, pull] = tables.peer.as_slice() else { panic!("{tables:?}") };
    assert_eq!(
        (push.ending.status, push.ending.reason.as_deref()),
        (Status::Skipped, Some("not run"))
    );
    assert_eq!(
        (pull.ending.status, pull.ending.reason.as_deref()),
        (Status::Failed, Some("ended by signal 9"))
    );
}
