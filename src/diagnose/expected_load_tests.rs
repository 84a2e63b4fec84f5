//! Tests predictions against figures of healthy machines, and how evenly flows share.

use super::*;
use crate::testing::{measured, set};
use model::flow::HostMemory;
use model::host::HostCopy;
use model::load::Pattern;
use model::measurement::Status;
use model::reading::Reading;
use model::testing::{h200_vm, two_sockets};
use topology::build;

fn pairs(pairs: &[(u32, u32)]) -> Vec<Flow> {
    pairs.iter().map(|&(source, destination)| Flow::from(Pair { source, destination })).collect()
}

/// Returns the prediction of a pattern of these flows.
fn predicted(machine: &Snapshot, flows: &[Flow]) -> LoadPattern {
    predicted_as(Pattern::Shift, machine, flows)
}

/// Returns the same for a pattern that may be copied by kernels.
fn predicted_as(pattern: Pattern, machine: &Snapshot, flows: &[Flow]) -> LoadPattern {
    let mut measurements = Measurements {
        load: vec![LoadPattern::without(pattern, String::new(), flows, Status::Measured, None)],
        ..Measurements::default()
    };
    let (graph, set) = (build(machine), BTreeMap::new());
    fill(&mut measurements, (machine, &graph), (machine, &graph), &set);
    measurements.load.remove(0)
}

/// Checks every figure with 8 GPUs of docs/dev/facts.md, "Flows at the same time". The 3% are chosen.
#[test]
fn figures_of_eight_h200_are_predicted_within_three_per_cent() {
    let machine = h200_vm(8);
    let to_one: Vec<(u32, u32)> = (1..8).map(|gpu| (gpu, 0)).collect();
    let from_one: Vec<(u32, u32)> = (1..8).map(|gpu| (0, gpu)).collect();
    let shift: Vec<(u32, u32)> = (0..8).map(|gpu| (gpu, (gpu + 3) % 8)).collect();
    let apart = [(0, 1), (2, 3), (4, 5), (6, 7)];
    for (flows, reached) in [
        (&to_one[..], 399.0),
        (&from_one[..], 399.0),
        (&shift[..], 8.0 * 390.0),
        (&apart[..], 4.0 * 394.5),
    ] {
        let expected = predicted(&machine, &pairs(flows)).expected_gbps.unwrap().0;
        assert!(
            (expected / reached - 1.0).abs() < 0.03,
            "{flows:?}: {expected}, reached {reached}"
        );
    }
}

/// 4 x H100, three runs of `full` each (2026-11-26): ring 1558 to 1559, by kernels 1454 to 1455, and all to
/// one 397 to 403 GB/s.
#[test]
fn figures_of_four_h100_are_predicted_within_three_per_cent() {
    let mut machine = h200_vm(4);
    for gpu in &mut machine.gpus {
        gpu.name = Reading::Known("NVIDIA H100 80GB HBM3".into());
    }
    let ring = [(0, 1), (1, 2), (2, 3), (3, 0)];
    for (pattern, flows, reached) in [
        (Pattern::Ring, &ring[..], 1558.5),
        (Pattern::RingByKernels, &ring[..], 1454.5),
        (Pattern::AllToOne, &[(1, 0), (2, 0), (3, 0)], 400.0),
    ] {
        let load = predicted_as(pattern, &machine, &pairs(flows));
        let expected = load.expected_gbps.unwrap().0;
        assert!(
            (expected / reached - 1.0).abs() < 0.03,
            "{pattern}: {expected}, reached {reached}"
        );
    }
}

/// 388 GB/s there and back between two of them, 377 while one of them copies with its host (2 x H200, measured).
#[test]
fn memory_of_the_host_is_a_limit_where_it_was_measured() {
    let machine = h200_vm(4);
    let flows: Vec<Flow> = (0..4)
        .map(|gpu| Flow {
            from: Endpoint::Gpu(gpu),
            to: Endpoint::Host { node: Some(0), memory: HostMemory::Pinned },
        })
        .collect();
    let of = |at_once: bool| {
        let mut measurements = crate::testing::with_host(&machine, &[55.0; 4]);
        let to_host =
            measurements.host.iter().filter(|copy| copy.direction == HostDirection::ToHost);
        let together: Vec<_> = to_host
            .map(|copy| HostCopy {
                at_once: 4,
                achieved_gbps: Some(GbPerSecond(22.0)),
                ..copy.clone()
            })
            .collect();
        assert_eq!(together.len(), 4);
        if at_once {
            measurements.host.extend(together);
        }
        let pattern =
            LoadPattern::without(Pattern::AllToHost, String::new(), &flows, Status::Measured, None);
        measurements.load = vec![pattern];
        let (graph, set) = (build(&machine), BTreeMap::new());
        fill(&mut measurements, (&machine, &graph), (&machine, &graph), &set);
        measurements.load[0].expected_gbps.unwrap().0
    };
    assert!(of(false) > 200.0, "{}", of(false));
    assert!((of(true) - 88.0).abs() < 0.1, "{}", of(true));
}

#[test]
fn four_gpus_at_an_uplink_have_a_part_each() {
    let machine = two_sockets();
    let host = Endpoint::Host { node: Some(0), memory: HostMemory::Pinned };
    let up: Vec<Flow> = (0..2).map(|gpu| Flow { from: host, to: Endpoint::Gpu(gpu) }).collect();
    let together = predicted(&machine, &up);
    // 31.5 GB/s at 86%, halved.
    assert!((together.expected_gbps.unwrap().0 - 27.1).abs() < 0.1, "{together:?}");
    assert!(
        together.flows.iter().all(|flow| (flow.expected_gbps.unwrap().0 - 13.55).abs() < 0.1),
        "{together:?}"
    );
}

#[test]
fn what_single_flows_reach_explains_a_sum() {
    let machine = h200_vm(4);
    let topology = build(&machine);
    let mut measurements = measured(&machine, 0.88);
    set(&mut measurements, 120.0, |cell| cell.pair.source == 1);
    let flows = pairs(&[(1, 0), (2, 3)]);
    let pattern =
        LoadPattern::without(Pattern::Shift, String::new(), &flows, Status::Measured, None);
    let (ways, nothing) = (Ways::of(&machine, &topology), BTreeMap::new());
    let predicted =
        Predicted::of(&pattern, (&ways, &topology, &machine), &Alone::of(&measurements), &nothing);
    let sum = |shares: &[Option<shares::FairShare>]| load::sum(shares).unwrap().0;
    assert!((sum(&predicted.healthy(near(&nothing))) - 792.0).abs() < 1.0);
    assert!((sum(&predicted.explained(near(&nothing))) - 516.0).abs() < 1.0);
    assert!(!predicted.are_healthy_alone(&[0, 1]) && predicted.are_healthy_alone(&[1]));
}

#[test]
fn a_hop_whose_rate_nobody_knows_carries_what_one_flow_got() {
    let machine = two_sockets();
    let topology = build(&machine);
    let measurements = measured(&machine, 0.6);
    // Both flows pass the link between the sockets, each below its own switches.
    let flows = pairs(&[(0, 2), (1, 3)]);
    let pattern =
        LoadPattern::without(Pattern::Shift, String::new(), &flows, Status::Measured, None);
    let (ways, nothing) = (Ways::of(&machine, &topology), BTreeMap::new());
    let predicted =
        Predicted::of(&pattern, (&ways, &topology, &machine), &Alone::of(&measurements), &nothing);
    let sum = load::sum(&predicted.explained(near(&nothing))).unwrap().0;
    assert!((sum - 31.5 * 0.6).abs() < 0.1, "{sum}");
}
