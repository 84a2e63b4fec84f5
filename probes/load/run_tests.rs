use crate::Action;
use model::measurement::Verified;
use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::Task;
use crate::{Selection, assemble};
use model::flow::{HostMemory, Setup};
use model::load::Pattern;
use model::status::Status;
use model::units::MIB;
use sim::spec::{Collapse, CopyFault, MachineSpec, PairFault, Pairs, Shared};
use sim::{self, builtin};

/// A simulated machine that runs rounds of flows, with 1 GiB of each GPU.
struct Machine {
    spec: MachineSpec,
}

impl Machine {
    fn named(name: &str) -> Self {
        Self { spec: builtin::get(name).unwrap() }
    }

    /// Runs flows of this many MiB. Returns what they reach together, and the time of the run on the host's clock.
    fn run(&self, flows: &[Flow], mib: u64) -> (LoadPattern, f64) {
        self.run_as(Pattern::Shift, flows, mib)
    }

    /// Runs flows as this pattern does.
    fn run_as(&self, pattern: Pattern, flows: &[Flow], mib: u64) -> (LoadPattern, f64) {
        let driver = sim::driver(self.spec.clone()).unwrap();
        let gpus: BTreeSet<u32> =
            flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
        let select = |index: u32| Selection::of(driver.as_ref(), index);
        let selections: Vec<_> = gpus.into_iter().map(select).collect();
        let bench = Bench::open(driver.as_ref(), &selections, Bytes(1024 * MIB));
        let action = Action::Load(crate::load::Load {
            pattern,
            rows: 2,
            copies: 4,
            counted: false,
            compared_ms: 0,
        });
        let task = Task {
            setup: Setup::REFERENCE.with_engine(pattern.engine()).with_bytes(Bytes(mib * MIB)),
            action,
        };
        let (deadline, name) = (Duration::from_secs(5), "by 2".to_owned());
        let round =
            Round { id: 0, slot: 0, flows: flows.to_vec(), task, deadline, timeline: false, name };
        let outcome = bench.run_one(&round);
        let took = driver.now().as_secs_f64();
        let outcomes = [(0, outcome)].into_iter().collect();
        let tables = assemble(&[round], &outcomes, &model::topology::Topology::default());
        (tables.load[0].clone(), took)
    }
}

fn between(pairs: &[(u32, u32)]) -> Vec<Flow> {
    pairs.iter().map(|&(source, destination)| Pair { source, destination }.into()).collect()
}

fn from_host(gpu: u32) -> Flow {
    Flow { from: Endpoint::Host { node: None, memory: HostMemory::Pinned }, to: Endpoint::Gpu(gpu) }
}

#[track_caller]
fn near(load: &LoadPattern, total: f64, each: f64, percent: f64) {
    assert_eq!((load.ending.status, load.verified), (Status::Measured, Verified::Ok), "{load:#?}");
    let is = |rate: Option<GbPerSecond>, expected: f64| {
        (rate.unwrap().0 / expected - 1.0).abs() * 100.0 < percent
    };
    assert!(is(load.achieved_gbps, total), "{:?} is not {total}", load.achieved_gbps);
    for flow in &load.flows {
        assert!(is(flow.achieved_gbps, each), "{:?} is not {each}", flow.achieved_gbps);
    }
}

#[test]
fn patterns_reach_what_an_h200_server_was_seen_to_reach() {
    let machine = Machine::named("h200x8");
    // docs/dev/facts.md, "Flows at the same time": 199 and 133 each into one GPU, 399 in all; a GPU that sends and
    // receives has 390.
    near(&machine.run(&between(&[(1, 0), (2, 0)]), 108).0, 399.0, 199.5, 1.5);
    near(&machine.run(&between(&[(1, 0), (2, 0), (3, 0)]), 72).0, 399.0, 133.0, 1.5);
    near(&machine.run(&between(&[(0, 1), (1, 2), (2, 3), (3, 0)]), 215).0, 4.0 * 390.3, 390.3, 2.0);
    near(&machine.run(&between(&[(0, 1), (2, 3)]), 215).0, 2.0 * 394.7, 394.7, 1.5);
    // One engine takes turns: a stream for each flow would show 394 for each.
    near(&machine.run(&between(&[(0, 1), (0, 2), (0, 3)]), 215).0, 394.7, 394.7 / 3.0, 2.0);
}

#[test]
fn the_only_kernel_of_its_gpu_has_all_of_it() {
    let machine = Machine::named("h200x8");
    let (ring, _) = machine.run_as(Pattern::RingByKernels, &between(&[(0, 1), (2, 3)]), 215);
    near(&ring, 2.0 * 365.0, 365.0, 1.5);
}

#[test]
fn flows_of_very_different_rates_run_at_the_same_time() {
    let machine = Machine::named("h200x8");
    let mut flows = between(&[(0, 1), (1, 0)]);
    flows.push(from_host(0));
    let (load, _) = machine.run(&flows, 32);
    assert_eq!(
        (load.ending.status, load.verified, load.samples),
        (Status::Measured, Verified::Ok, 2),
        "{load:#?}"
    );
    let rates: Vec<f64> = load.flows.iter().map(|flow| flow.achieved_gbps.unwrap().0).collect();
    assert!(rates[0] > 360.0 && rates[1] > 360.0 && (50.0..57.0).contains(&rates[2]), "{rates:?}");
    assert!((rates.iter().sum::<f64>() / load.achieved_gbps.unwrap().0 - 1.0).abs() < 0.02);
}

#[test]
fn a_collapse_shows() {
    let mut machine = Machine::named("h200x8");
    machine
        .spec
        .faults
        .collapses
        .push(Collapse { at: Shared::Nvlinks(0), gbps: 120.0.try_into().unwrap() });
    let (load, _) = machine.run(&between(&[(1, 0), (2, 0)]), 108);
    let total = load.achieved_gbps.unwrap().0;
    assert!((118.0..=121.0).contains(&total), "{total}");
}

#[test]
fn bytes_of_every_flow_are_checked_where_they_arrive() {
    let mut machine = Machine::named("h200x8");
    let fault =
        PairFault { under_load: true, ..PairFault::new(Pairs::Ordered(2, 0), CopyFault::Dropped) };
    machine.spec.faults.pairs.push(fault);
    // Another flow into the same GPU does not hide the fault.
    let (load, _) = machine.run(&between(&[(1, 0), (2, 0), (3, 0)]), 72);
    assert_eq!(load.verified, Verified::Dropped, "{load:#?}");
    assert!(load.verification_detail.as_ref().unwrap().starts_with("GPU 2 → GPU 0: "), "{load:#?}");
    assert_eq!(load.name(), "shift, by 2");
}

#[test]
fn at_once_is_faster_than_one_after_the_other_unless_something_is_shared() {
    let machine = Machine::named("h200x8");
    let time = |pairs: &[(u32, u32)]| machine.run(&between(pairs), 200).1;
    let (one, other, both) = (time(&[(0, 1)]), time(&[(2, 3)]), time(&[(0, 1), (2, 3)]));
    // GPUs fill and check one after the other; the copies run at once.
    assert!(both < 0.85 * (one + other), "{both} of {}", one + other);
    let into_one = time(&[(1, 0), (2, 0)]);
    assert!(into_one > 1.2 * both, "{into_one} and {both}");
}

#[test]
fn without_kernels_or_gates_there_is_no_check_or_no_figure() {
    let mut machine = Machine::named("h200x8");
    machine.spec.faults.kernels = Some("no PTX compiler".into());
    let (load, _) = machine.run(&between(&[(1, 0), (2, 0)]), 64);
    assert_eq!(
        (load.ending.status, load.verified),
        (Status::Measured, Verified::Inconclusive),
        "{load:#?}"
    );
    machine.spec.faults.no_hold = true;
    let (load, _) = machine.run(&between(&[(1, 0), (2, 0)]), 64);
    assert_eq!((load.ending.status, load.achieved_gbps), (Status::Skipped, None), "{load:#?}");
}

#[test]
fn copies_are_as_many_as_last_alike() {
    let ran = |gpu, length: f64| FlowTimes {
        gpu,
        engine: Engine::ToPeers,
        bytes: 1,
        begin: 0.0,
        ends: vec![length],
    };
    assert_eq!(copies_each(&[ran(0, 10.0), ran(1, 20.0), ran(2, 2.0)], 4), [8, 4, 40]);
    assert_eq!(copies_each(&[ran(0, 10.0), ran(1, 800.0)], 4), [240, 3], "both end together");
    assert_eq!(copies_each(&[ran(0, 1.0), ran(1, 1e6)], 4), [MOST_COPIES, 2]);
    // One engine takes turns.
    let turns = |first: f64| FlowTimes { ends: vec![first, first + 3.0], ..ran(0, 0.0) };
    assert_eq!(copies_each(&[turns(1.0), turns(2.0), turns(3.0)], 4), [4; 3]);
    let mut each = [4, 4];
    let early = FlowTimes { ends: vec![1.0, 2.0], ..ran(0, 0.0) };
    let late = FlowTimes { ends: vec![4.0, 8.0], ..ran(1, 0.0) };
    assert!(lengthen(&[early.clone(), late], &mut each) && each == [16, 4]);
    assert!(!lengthen(&[early.clone(), early], &mut each));
}

#[test]
fn a_line_that_the_last_copy_of_a_flow_loses_is_found() {
    // Rows of other lengths: the last copy of some is one of those that lose a line.
    let of = |every: u32| {
        let mut machine = Machine::named("h200x8");
        let fault = PairFault::new(Pairs::Ordered(2, 0), CopyFault::LostLine { every });
        machine.spec.faults.pairs.push(fault);
        let (load, _) = machine.run(&between(&[(1, 0), (2, 0), (3, 0)]), 72);
        load.verified
    };
    let found: Vec<_> = (2..=40).map(of).collect();
    assert!(found.contains(&Verified::Stale), "{found:?}");
    assert!(found.iter().all(|one| matches!(one, Verified::Stale | Verified::Ok)));
    assert_eq!(of(1_000_000), Verified::Ok);
}
