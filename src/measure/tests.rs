use std::time::Duration;

use super::*;
use crate::hardware::{Driver, ErrorKind, Machine, sim};
use crate::model::flow::{Flow, Setup};
use crate::model::placement::{Direction, Engine, Pair, Path, Placement, Side, StreamKind};
use crate::model::units::{Bytes, MIB};
use crate::plan::{Action, Round, Task};

const PAIR: Pair = Pair { source: 0, destination: 1 };

/// Runs tasks on the first two GPUs of a simulated machine.
fn run(machine: &str, tasks: &[Task]) -> Vec<Outcome> {
    run_on(Machine::parse(machine).unwrap().driver().unwrap(), tasks)
}

fn run_on(driver: Box<dyn Driver>, tasks: &[Task]) -> Vec<Outcome> {
    let select = |index| {
        let info = &driver.devices()[index as usize];
        Selection { index, uuid: info.uuid.clone(), pci: info.pci, ..Selection::default() }
    };
    let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1024 * MIB));
    assert_eq!(bench.facts().devices.iter().filter_map(|device| device.failure.clone()).collect::<Vec<_>>(), [""; 0]);
    let round = |task: &Task| {
        let mut flows = vec![Flow::from(PAIR)];
        flows.extend(task.is_both_ways().then(|| flows[0].reversed()));
        Round { id: 0, flows, task: *task, deadline: Duration::from_secs(5) }
    };
    tasks.iter().map(|task| bench.run(&round(task))).collect()
}

fn row(placement: Placement, direction: Direction, path: Path) -> Task {
    let setup = Setup { placement, direction, path, bytes: Bytes(300 * MIB), ..Setup::REFERENCE };
    Task { setup, action: Action::Bandwidth { samples: 3 } }
}

/// Median rate of a row, GB/s, with the fixed cost still in it.
fn rate(outcome: &Outcome) -> f64 {
    let copy_ns = figures::rates(outcome, 0).unwrap_or_else(|_| panic!("{outcome:?}")).copy_ns;
    assert_eq!(copy_ns.len(), 3);
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
    let on_default =
        Placement { source: StreamKind::Default, destination: StreamKind::Default, ..Placement::REFERENCE };
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
fn every_cell_of_the_overlap_table_is_as_measured_with_pytorch() {
    for bytes in [64, 1024] {
        let cells: Vec<_> = Placement::all()
            .flat_map(|placement| [Side::Source, Side::Destination].map(|compute_on| (placement, compute_on)))
            .collect();
        let tasks: Vec<_> = cells
            .iter()
            .map(|&(placement, compute_on)| Task {
                setup: Setup::REFERENCE.with_placement(placement).with_bytes(Bytes(bytes * MIB)),
                action: Action::Overlap { compute_on, samples: 2 },
            })
            .collect();
        for (&(placement, compute_on), outcome) in cells.iter().zip(run("h200x2", &tasks)) {
            let Outcome::Overlap { samples } = outcome else { panic!("{placement}: {outcome:?}") };
            assert_eq!(samples.len(), 2);
            for sample in samples {
                let percent = 100.0 * sample.copy.together_ns(sample.kernel) / sample.kernel.length_ns();
                let expected = if placement.should_overlap(compute_on) { 95.0..=100.0 } else { 0.0..=3.0 };
                assert!(expected.contains(&percent), "{bytes} MiB, {placement}, kernel on {compute_on}: {percent}");
            }
        }
    }
}

#[test]
fn the_host_waits_in_blocking_placements_only() {
    let host = |outcome: &Outcome| match outcome {
        Outcome::Overlap { samples } => samples[0].host_ns,
        outcome => panic!("{outcome:?}"),
    };
    let task = |placement| Task {
        setup: Setup::REFERENCE.with_placement(placement).with_bytes(Bytes(256 * MIB)),
        action: Action::Overlap { compute_on: Side::Source, samples: 1 },
    };
    let blocking = Placement { host: crate::model::placement::HostMode::Blocking, ..Placement::REFERENCE };
    let outcomes = run("h200x2", &[task(Placement::REFERENCE), task(blocking)]);
    assert!(host(&outcomes[0]) < 50e3 && host(&outcomes[1]) > 500e3, "{outcomes:?}");
}

#[test]
fn verification_tells_what_became_of_the_bytes() {
    let verify = |engine, path| Task {
        setup: Setup::REFERENCE.with_engine(engine).with_path(path).with_bytes(Bytes(64 * MIB)),
        action: Action::Verify,
    };
    let tasks =
        [verify(Engine::Copy, Path::Direct), verify(Engine::Kernel, Path::Direct), verify(Engine::Copy, Path::Staged)];
    let verdicts = |machine| -> Vec<Verified> {
        run(machine, &tasks)
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Verified { verified, .. } => verified,
                outcome => panic!("{outcome:?}"),
            })
            .collect()
    };
    assert_eq!(verdicts("h200x2"), [Verified::Ok; 3]);
    assert_eq!(verdicts("writes-dropped"), [Verified::Dropped, Verified::Dropped, Verified::Ok]);
    assert_eq!(verdicts("no-kernels"), [Verified::Inconclusive; 3]);
}

#[test]
fn a_gpu_that_cuda_does_not_show_costs_itself_only() {
    let driver = Machine::parse("h200x2").unwrap().driver().unwrap();
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
        Task { setup: Setup::REFERENCE.with_bytes(Bytes(16)), action: Action::Latency { samples: 1 } },
    ];
    let outcomes = run_on(sim::driver(spec).unwrap(), &tasks);
    assert!((390.0..400.0).contains(&rate(&outcomes[0])), "{outcomes:?}");
    for outcome in &outcomes[1..] {
        assert!(matches!(outcome, Outcome::Failed { error } if error.kind == ErrorKind::Unsupported), "{outcome:?}");
    }
}

#[test]
fn a_verification_that_crashed_is_a_failed_path_even_where_nothing_of_its_kind_is_timed() {
    let flows = vec![Flow::from(PAIR)];
    let setup = Setup::REFERENCE.with_engine(Engine::Kernel);
    let pull = Task { setup: setup.with_issuer(Side::Destination), action: Action::Verify };
    let push = Task { setup, action: Action::Verify };
    let timed = Task { setup, action: Action::Bandwidth { samples: 3 } };
    let tasks = [push, pull, timed];
    let rounds: Vec<_> = (0..)
        .zip(tasks)
        .map(|(id, task)| Round { id, flows: flows.clone(), task, deadline: Duration::from_secs(5) })
        .collect();
    let lost = |status, reason: &str| Outcome::Lost { status, reason: reason.into() };
    let outcomes = [
        (0, Outcome::Verified { verified: Verified::Ok, detail: None }),
        (1, lost(Status::Failed, "ended by signal 9")),
        (2, lost(Status::Skipped, "not run")),
    ];
    let tables = assemble(&rounds, &outcomes.into(), &Topology::default());
    let [cell] = tables.peer.as_slice() else { panic!("{tables:?}") };
    assert_eq!((cell.status, cell.reason.as_deref()), (Status::Failed, Some("ended by signal 9")));
}
