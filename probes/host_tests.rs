use std::collections::BTreeSet;

use super::*;

use crate::plan::Profile;
use crate::plan::profile::Name;
use crate::{Action, Group, Round, Task};
use model::flow::HostMemory::{self, Pageable, Pinned, Registered};
use model::flow::{Endpoint, Flow, Setup};
use model::host::{Allocation, HostCopy, HostDirection};
use model::measurement::{Measurements, Verified};
use model::placement::Engine;
use model::snapshot::{Gpu, SlowFact, Snapshot};
use model::units::{Bytes, MIB};
use sim::spec::{CopyFault, HostFault, HostWay as Way, InitFault, MachineSpec};
use sim::{self, builtin};

/// Returns all GPUs of a machine, and how the driver is asked for them.
pub(crate) fn all_gpus(snapshot: &Snapshot) -> (Vec<u32>, Vec<Selection>) {
    let select = |gpu: &Gpu| Selection {
        index: gpu.index,
        pci: gpu.pci.get(),
        uuid: gpu.uuid.known().cloned(),
        ..Selection::default()
    };
    let gpus = snapshot.gpus.iter();
    (gpus.clone().map(|gpu| gpu.index).collect(), gpus.map(select).collect())
}

/// Returns the measurements of a profile's host probes on a machine.
fn measured(spec: MachineSpec, name: Name) -> Measurements {
    let snapshot = run::discover::discover(sim::telemetry(spec.clone()), SlowFact::ALL, FOR_SLOW);
    let driver = sim::driver(spec).unwrap();
    let (gpus, selections) = all_gpus(&snapshot);
    let bench = Bench::open(driver.as_ref(), &selections, Bytes(256 * MIB));
    let topology = topology::with_cuda(topology::build(&snapshot), bench.facts());
    let rounds = crate::plan::rounds(&crate::Request {
        gpus: &gpus,
        driver: bench.facts(),
        topology: &topology,
        profile: &Profile::load(name).unwrap(),
        groups: &BTreeSet::from([Group::Host]),
        deadline: None,
        serial: false,
    });
    let outcomes = rounds.iter().map(|round| (round.id, bench.run_one(round))).collect();
    assemble(&rounds, &outcomes, &topology)
}

const FOR_SLOW: std::time::Duration = std::time::Duration::from_secs(60);

fn machine(name: &str) -> MachineSpec {
    builtin::get(name).unwrap()
}

/// Returns the rate of reused memory by copy engine, of one GPU or of all.
fn rate(
    found: &Measurements,
    gpu: u32,
    memory: HostMemory,
    direction: HostDirection,
    at_once: u32,
) -> f64 {
    let is = |copy: &&HostCopy| {
        (copy.gpu, copy.memory, copy.direction, copy.at_once) == (gpu, memory, direction, at_once)
            && (copy.allocation, copy.engine) == (Allocation::Reused, Engine::Copy)
    };
    let copy = found
        .host
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("{gpu} {memory} {direction} {at_once}"));
    assert_eq!((copy.ending.status, copy.verified), (Status::Measured, Verified::Ok), "{copy:?}");
    copy.achieved_gbps.unwrap().0
}

#[track_caller]
fn near(figure: f64, expected: f64, percent: f64) {
    assert!((figure / expected - 1.0).abs() <= percent / 100.0, "{figure:.2} is not {expected}");
}

#[test]
fn standard_measures_what_the_machine_was_recorded_with() {
    use HostDirection::{BothWays, ToDevice, ToHost};
    let found = measured(machine("h200x8"), Name::Standard);
    for gpu in [0, 7] {
        near(rate(&found, gpu, Pinned, ToDevice, 1), 55.3, 1.0);
        near(rate(&found, gpu, Pinned, ToHost, 1), 55.3, 1.0);
        near(rate(&found, gpu, Pinned, BothWays, 1), 51.2, 1.0);
        near(rate(&found, gpu, Pageable, ToDevice, 1), 8.5, 1.0);
        near(rate(&found, gpu, Pageable, ToHost, 1), 13.5, 1.0);
    }
    let sum = |direction| (0..8).map(|gpu| rate(&found, gpu, Pinned, direction, 8)).sum::<f64>();
    near(sum(ToDevice), 149.0, 2.0);
    near(sum(ToHost), 87.0, 2.0);
    // Memory is page-locked anew once for the one node.
    let anew: Vec<_> =
        found.host.iter().filter(|copy| copy.allocation == Allocation::Anew).collect();
    assert_eq!(
        anew.iter().map(|copy| (copy.gpu, copy.memory)).collect::<Vec<_>>(),
        [(0, Pinned), (0, Registered)]
    );
    assert!(
        anew.iter()
            .all(|copy| copy.verified == Verified::Ok && copy.ending.status == Status::Measured),
        "{anew:?}"
    );
    // Page-locking takes 575 + 120 ms for a GiB, and the copy is added.
    near(anew[0].achieved_gbps.unwrap().0, 1.0 / (1.0 / 55.3 + 0.695 / 1.0737), 2.0);
    let [pinning] = found.pinning.as_slice() else { panic!("{:?}", found.pinning) };
    near(pinning.allocate_ms_per_gib.unwrap(), 575.0, 1.0);
    near(pinning.register_ms_per_gib.unwrap(), 280.0, 1.0);
    assert_eq!(pinning.allocating_takes_bytes, Some(pinning.bytes));
    assert_eq!(pinning.copying_takes_bytes, Some(Bytes(2 * pinning.bytes.0)));
    assert_eq!(found.host.len(), 8 * 5 + 2 + 1 + 2 * 8);
}

#[test]
fn gpus_with_unlike_links_copy_at_once_until_the_slowest_is_done() {
    let mut spec = machine("h200x2");
    let narrow = spec.gpus[1].pci;
    let mut functions = spec.pci.iter_mut();
    let function = functions.find(|function| function.address == narrow);
    let function = function.unwrap();
    function.max = Some(model::testing::pcie_link(5, 4));
    let found = measured(spec, Name::Standard);
    near(rate(&found, 0, Pinned, HostDirection::ToDevice, 2), 55.3, 1.0);
    near(rate(&found, 1, Pinned, HostDirection::ToDevice, 2), 13.8, 1.0);
}

#[test]
fn full_measures_every_node_and_kernels() {
    let mut spec = machine("two-sockets");
    spec.speeds.interconnect_gbps = 9.0.try_into().unwrap();
    let found = measured(spec, Name::Full);
    let of = |gpu, node, engine| {
        let is = |copy: &&HostCopy| {
            (copy.gpu, copy.numa_node, copy.engine, copy.memory)
                == (gpu, Some(node), engine, Pinned)
                && (copy.direction, copy.at_once, copy.allocation)
                    == (HostDirection::ToHost, 1, Allocation::Reused)
        };
        found.host.iter().find(is).unwrap().achieved_gbps.unwrap().0
    };
    near(of(0, 0, Engine::Copy), 27.1, 3.0);
    near(of(0, 1, Engine::Copy), 9.0, 3.0);
    near(of(7, 0, Engine::Copy), 9.0, 3.0);
    near(of(7, 1, Engine::Kernel), 27.1, 3.0);
    assert_eq!(
        found.pinning.iter().map(|pinning| pinning.numa_node).collect::<Vec<_>>(),
        [Some(0), Some(1)]
    );
    assert!(found.cells().all(|cell| cell.status == Status::Measured), "everything has a figure");
}

#[test]
fn one_gpu_is_a_machine_too_and_quick_measures_its_pinned_copies_alone() {
    let found = measured(machine("single"), Name::Standard);
    near(rate(&found, 0, Pinned, HostDirection::ToDevice, 1), 27.1, 3.0);
    assert!(found.host.iter().all(|copy| copy.at_once == 1));
    let quick = measured(machine("single"), Name::Quick);
    near(rate(&quick, 0, Pinned, HostDirection::ToHost, 1), 27.1, 3.0);
    assert_eq!(
        (quick.cells().count(), measured(machine("h200x2"), Name::Quick).host.len()),
        (2, 0)
    );
}

#[test]
fn bytes_that_get_lost_on_the_way_are_seen_in_either_direction() {
    let fault =
        |direction, memory, fault| HostFault { gpu: Some(0), node: None, memory, direction, fault };
    for (direction, way) in
        [(Way::ToDevice, HostDirection::ToDevice), (Way::ToHost, HostDirection::ToHost)]
    {
        for (wrong, verified) in [
            (CopyFault::Dropped, Verified::Dropped),
            (CopyFault::Corrupt { words: 1 }, Verified::Corrupt),
        ] {
            let mut spec = machine("h200x2");
            spec.faults.host = vec![fault(Some(direction), None, wrong)];
            let found = measured(spec, Name::Full);
            for copy in &found.host {
                let hit = copy.gpu == 0
                    && (copy.direction == way || copy.direction == HostDirection::BothWays);
                assert_eq!(
                    copy.verified,
                    if hit { verified } else { Verified::Ok },
                    "{wrong:?} {copy:?}"
                );
            }
        }
    }
}

#[test]
fn no_more_of_the_hosts_memory_is_taken_than_may_be() {
    // 5% of 640 MiB are 32 MiB: 5 MiB for each of 2 GPUs, and 4 more.
    let mut spec = machine("h200x2");
    spec.host.memory_available = Some(Bytes(640 * MIB));
    let found = measured(spec.clone(), Name::Full);
    assert!(found.cells().all(|cell| cell.status == Status::Measured), "everything has a figure");
    assert!(found.host.iter().all(|copy| copy.bytes == Bytes(5 * MIB)));
    // The limit is half of what the group leaves. The simulated machine refuses more than all of it.
    spec.host.group_leaves = Some(Bytes(16 * MIB));
    let found = measured(spec.clone(), Name::Standard);
    assert!(
        found
            .host
            .iter()
            .all(|copy| copy.bytes == Bytes(MIB) && copy.ending.status == Status::Measured)
    );
    assert!(found.pinning[0].limit.as_ref().unwrap().contains("leaves"), "{:?}", found.pinning);
    // This is too little for any probe.
    spec.host.group_leaves = Some(Bytes(MIB));
    let found = measured(spec, Name::Standard);
    for cell in found.cells() {
        assert_eq!(cell.status, Status::Skipped);
        assert!(
            cell.reason.unwrap().contains("of the host's memory are taken"),
            "{:?}",
            cell.reason
        );
    }
}

#[test]
fn memory_that_is_kept_gives_way_to_what_needs_its_room() {
    // 5% of 640 MiB are 32 MiB.
    let mut spec = machine("h200x2");
    spec.host.memory_available = Some(Bytes(640 * MIB));
    let snapshot = run::discover::discover(sim::telemetry(spec.clone()), SlowFact::ALL, FOR_SLOW);
    let driver = sim::driver(spec).unwrap();
    let bench = Bench::open(driver.as_ref(), &all_gpus(&snapshot).1, Bytes(256 * MIB));
    let on_node = |memory| Endpoint::Host { node: Some(0), memory };
    let round = |action, mib: u64, from, to| Round {
        id: 0,
        slot: 0,
        flows: vec![Flow { from, to }],
        task: Task { setup: Setup::REFERENCE.with_bytes(Bytes(mib * MIB)), action },
        deadline: FOR_SLOW,
        timeline: false,
        name: String::new(),
    };
    for memory in [Pageable, Pinned] {
        let copies =
            Action::Host(crate::host::Host { rows: 1, copies: 1, allocation: Allocation::Reused });
        let kept = bench.run_one(&round(copies, 12, on_node(memory), Endpoint::Gpu(0)));
        assert!(matches!(kept, Outcome::Rows { .. }), "{kept:?}");
    }
    // 24 MiB are kept, and page-locking needs 28.
    let host = on_node(Pinned);
    let outcome =
        bench.run_one(&round(Action::Pinning(crate::host::Pinning { samples: 1 }), 14, host, host));
    let Outcome::Pinned { pinned } = outcome else { panic!("{outcome:?}") };
    assert_eq!((pinned.refused, pinned.allocate_ns.len()), (None, 1));
}

#[test]
fn memory_that_cannot_be_page_locked_costs_its_figures_only() {
    let mut spec = machine("h200x2");
    spec.faults.pinning = Some(InitFault { code: 2, meaning: "out of memory".into() });
    spec.host.lock_limit = Some(Bytes(64 << 10));
    let found = measured(spec, Name::Standard);
    for copy in &found.host {
        let measured = copy.memory == Pageable;
        assert_eq!(
            copy.ending.status,
            if measured { Status::Measured } else { Status::Skipped },
            "{copy:?}"
        );
        assert_eq!(copy.ending.reason.is_some(), !measured);
    }
    let pinning = &found.pinning[0];
    assert_eq!(
        (pinning.ending.status, pinning.limit_bytes),
        (Status::Skipped, Some(Bytes(64 << 10)))
    );
    assert!(pinning.ending.reason.as_ref().unwrap().contains("cuMemHostAlloc"), "{pinning:?}");
}

#[test]
fn without_kernels_there_are_figures_and_no_verification() {
    let found = measured(machine("no-kernels"), Name::Standard);
    let copies: Vec<_> =
        found.host.iter().filter(|copy| copy.ending.status == Status::Measured).collect();
    assert!(copies.len() > 8 && copies.iter().all(|copy| copy.verified == Verified::Inconclusive));
}

#[test]
fn bytes_that_are_copied_into_pinned_memory_first_arrive_more_slowly_than_from_pageable_memory() {
    let found = measured(machine("h200x2"), Name::Full);
    let rate = |allocation| {
        let mut of = found.host.iter().filter(|copy| copy.allocation == allocation);
        let copy = of.find(|copy| copy.gpu == 0 && copy.direction == HostDirection::ToDevice);
        let copy = copy.unwrap_or_else(|| panic!("{allocation}"));
        assert_eq!((copy.verified, copy.samples), (Verified::Ok, 3), "{copy:?}");
        copy.achieved_gbps.unwrap().0
    };
    // The processor copies at 8 GB/s, the engine at 55.2: one after the other, or the engine beside the second half.
    near(rate(Allocation::Filled), 1.0 / (1.0 / 8.0 + 1.0 / 55.2), 2.0);
    near(rate(Allocation::FilledInHalves), 1.0 / (1.0 / 8.0 + 0.5 / 55.2), 2.0);
    assert!(rate(Allocation::AnewFilled) < rate(Allocation::Anew));
    near(rate(Allocation::IntoNew), 55.2, 3.0);
    let standard = measured(machine("h200x2"), Name::Standard);
    let filled = |copy: &&HostCopy| copy.allocation == Allocation::Filled;
    assert_eq!(standard.host.iter().filter(filled).count(), 1, "of one GPU of the node");
}
