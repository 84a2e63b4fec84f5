//! Scattered blocks on simulated machines.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::host_tests::all_gpus;
use crate::{Bench, assemble};

use model::cell::Measurement;
use model::measurement::{Measurements, Verified};
use model::small::BlockWay;
use model::snapshot::SlowFact;
use model::units::{Bytes, MIB};
use plan::profile::Name;
use plan::{self, Action, Group, Profile};
use sim::spec::MachineSpec;
use sim::{self, builtin};

/// Returns what the profile `full` measures of blocks on a machine, and how long that takes on the simulated clock. Copies with
/// the host, which come before, have page-locked its memory.
fn measured(spec: MachineSpec) -> (Measurements, Duration) {
    let limit = Duration::from_secs(60);
    let snapshot = discover::discover(sim::telemetry(spec.clone()), SlowFact::ALL, limit);
    let driver = sim::driver(spec).unwrap();
    let (gpus, selections) = all_gpus(&snapshot);
    let bench = Bench::open(driver.as_ref(), &selections, Bytes(1024 * MIB));
    let topology = topology::with_cuda(topology::build(&snapshot), bench.facts());
    let rounds = plan::rounds(&plan::Request {
        gpus: &gpus,
        driver: bench.facts(),
        topology: &topology,
        profile: &Profile::load(Name::Full).unwrap(),
        groups: &BTreeSet::from([Group::Host, Group::Small]),
        overlap_bytes: None,
        deadline: None,
        serial: false,
    });
    let mut took = Duration::ZERO;
    let mut outcomes = HashMap::new();
    for round in &rounds {
        let began = driver.now();
        outcomes.insert(round.id, bench.run_one(round));
        if matches!(round.task.action, Action::Small { .. }) {
            took += driver.now() - began;
        }
    }
    (assemble(&rounds, &outcomes, &topology), took)
}

#[test]
fn the_profile_full_spends_less_than_three_tenths_of_a_second_on_blocks() {
    for (name, flows) in
        [("single", 3), ("h200x2", 2 + 2), ("h200x8", 8 + 2), ("two-sockets", 8 + 4)]
    {
        let (found, took) = measured(builtin::get(name).unwrap());
        assert_eq!(found.small.len(), 5 * flows * BlockWay::ALL.len(), "{name}");
        for cell in &found.small {
            assert_eq!(cell.verified, Verified::Ok, "{name}: {cell:?}");
            assert!(cell.samples > 0, "{name}: {cell:?}");
        }
        assert!(took < Duration::from_millis(300), "{name}: {took:?}");
    }
}

#[test]
fn without_kernels_there_are_figures_and_their_bytes_are_not_verified() {
    let (found, _) = measured(builtin::get("no-kernels").unwrap());
    let timed = found.small.iter().filter(|cell| cell.is_sound());
    let verified: Vec<_> = timed.map(|cell| cell.verified).collect();
    assert!(verified.len() > 8, "{verified:?}");
    assert!(verified.iter().all(|one| *one == Verified::Inconclusive), "{verified:?}");
}
