//! Tests of the ways of flows, the theoretical rates of patterns, and impossible figures.

use super::*;
use crate::build;
use model::flow::HostMemory;
use model::load::Pattern;
use model::reading::Reading;
use model::snapshot::P2pStatus;
use model::testing::{h200_vm, nvlink_bridge, two_sockets, two_sockets_with_narrow_gpu};

fn pattern(pattern: Pattern, flows: &[Flow]) -> LoadPattern {
    LoadPattern::without(pattern, String::new(), flows, Status::Measured, None)
}

fn pairs(pairs: &[(u32, u32)]) -> Vec<Flow> {
    pairs.iter().map(|&(source, destination)| Flow::from(Pair { source, destination })).collect()
}

fn host(node: u32) -> Endpoint {
    Endpoint::Host { node: Some(node), memory: HostMemory::Pinned }
}

/// Returns the theoretical rate of these flows, and the hop that limits them.
fn theory(machine: &Snapshot, flows: &[Flow]) -> (Option<f64>, String) {
    let mut loads = [pattern(Pattern::Shift, flows)];
    fill(machine, &build(machine), &mut loads);
    let once = loads.clone();
    fill(machine, &build(machine), &mut loads);
    assert_eq!(once, loads, "twice");
    let [load] = loads;
    (load.theoretical_gbps.map(|rate| rate.0.round()), load.limited_by.unwrap_or_default())
}

#[test]
fn the_ports_of_one_gpu_are_the_limit_of_all_that_goes_there() {
    let machine = h200_vm(8);
    let (gbps, by) =
        theory(&machine, &pairs(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)]));
    assert_eq!((gbps, by.as_str()), (Some(450.0), "18 x NVLink 4.0 of GPU 0, shared by 7 flows"));
    let (gbps, by) = theory(&machine, &pairs(&[(0, 1), (0, 2), (0, 3)]));
    assert_eq!((gbps, by.as_str()), (Some(450.0), "18 x NVLink 4.0 of GPU 0, shared by 3 flows"));
}

#[test]
fn a_permutation_has_a_port_for_every_flow() {
    let machine = h200_vm(4);
    let (gbps, by) = theory(&machine, &pairs(&[(0, 1), (1, 2), (2, 3), (3, 0)]));
    assert_eq!(gbps, Some(1800.0));
    assert!(by.starts_with("18 x NVLink 4.0 of GPU") && by.contains("hops like it"), "{by}");
}

#[test]
fn an_uplink_is_shared_and_the_slots_below_it_are_not() {
    let machine = two_sockets();
    let (gbps, by) = theory(&machine, &pairs(&[(0, 2), (1, 3)]));
    assert_eq!(gbps, Some(32.0));
    assert!(by.contains("above GPU 0, GPU 1") && by.contains("shared by 2 flows"), "{by}");
    let (gbps, _) = theory(&machine, &pairs(&[(0, 1), (2, 3)]));
    assert_eq!(gbps, Some(63.0), "each below its own switch");
}

#[test]
fn host_flows_pass_the_way_up_and_the_other_socket_where_the_memory_is_there() {
    let machine = two_sockets();
    let topology = build(&machine);
    let ways = Ways::of(&machine, &topology);
    let up = |gpu, node| Flow { from: host(node), to: Endpoint::Gpu(gpu) };
    let kinds = |flow| ways.way(flow).iter().map(|(_, link)| link.kind).collect::<Vec<_>>();
    let crosses = |flow| kinds(flow).contains(&LinkKind::Interconnect);
    assert!(!crosses(up(0, 0)) && crosses(up(0, 1)) && crosses(up(0, 1).reversed()));
    assert_eq!(ways.way(up(0, 0)).first().map(|(hop, _)| hop.from), Some(NodeId::Numa(Some(0))));
    assert_eq!(ways.way(up(0, 7)).len(), ways.way(up(0, 0)).len(), "a node that nobody drew");
    let (gbps, by) = theory(&machine, &[up(0, 0), up(1, 0), up(2, 1), up(3, 1)]);
    assert_eq!(gbps, Some(63.0));
    assert!(
        by.contains("above GPU 0, GPU 1")
            && by.ends_with("shared by 2 flows, and another hop like it"),
        "{by}"
    );
    let (gbps, by) = theory(&two_sockets_with_narrow_gpu(), &[up(2, 1), up(3, 1)]);
    assert_eq!(gbps, Some(32.0), "{by}: GPU 3 has 7.9 of the uplink, GPU 2 the rest");
}

#[test]
fn bridges_and_pcie_of_the_same_gpus_do_not_disturb_each_other() {
    let machine = nvlink_bridge();
    let (gbps, _) = theory(&machine, &pairs(&[(0, 1), (1, 2)]));
    assert_eq!(gbps, Some((56.248_f64 + 31.5).round()));
}

#[test]
fn a_pair_without_access_goes_through_the_host() {
    let machine = two_sockets();
    let mut topology = build(&machine);
    let flow = pairs(&[(0, 1)])[0];
    assert_eq!(
        Ways::of(&machine, &topology).way(flow).last().map(|(hop, _)| hop.to),
        Some(NodeId::Gpu(1))
    );
    let direct = Ways::of(&machine, &topology).way(flow).len();
    topology.pairs.iter_mut().for_each(|route| route.peer_access.cuda = Some(false));
    let staged = Ways::of(&machine, &topology).way(flow);
    assert!(staged.len() > direct && staged.iter().any(|(hop, _)| hop.to == NodeId::Numa(Some(0))));
}

#[test]
fn nothing_is_known_without_a_way() {
    assert_eq!(theory(&h200_vm(2), &pairs(&[(0, 1), (0, 9)])).0, None);
    assert_eq!(theory(&h200_vm(2), &[]), (None, String::new()));
}

/// Published tables show 98 GB/s through a link that carries 50.
#[test]
fn a_sum_that_no_shared_hop_carries_is_refused() {
    let machine = two_sockets();
    let topology = build(&machine);
    let measured = |each: f64, flows: &[Flow]| {
        let mut load = pattern(Pattern::ThroughOneHop, flows);
        load.achieved_gbps = Some(GbPerSecond(each * 2.0));
        load.flows.iter_mut().for_each(|flow| flow.achieved_gbps = Some(GbPerSecond(each)));
        let mut measurements = Measurements { load: vec![load], ..Measurements::default() };
        refuse(&machine, &topology, &mut measurements);
        let once = measurements.clone();
        refuse(&machine, &topology, &mut measurements);
        assert_eq!(once, measurements, "twice");
        measurements
    };
    let sound = measured(13.3, &pairs(&[(0, 2), (1, 3)]));
    assert!(sound.impossible.is_empty() && sound.load[0].achieved_gbps.is_some());
    let series = measured(26.5, &pairs(&[(0, 2), (1, 3)]));
    assert_eq!(
        (series.load[0].achieved_gbps, series.load[0].ending.status),
        (None, Status::Skipped)
    );
    assert!(series.impossible[0].why.contains("53.0 GB/s of 2 flows through"), "{series:?}");
    assert!(
        series.load[0]
            .ending
            .reason
            .as_deref()
            .is_some_and(|why| why.contains("did not run at the same time"))
    );
    let apart = measured(26.5, &pairs(&[(0, 1), (2, 3)]));
    assert!(apart.impossible.is_empty(), "they share nothing");
}

#[test]
fn the_way_between_gpus_whose_links_may_lead_to_switches_is_not_known() {
    let mut machine = h200_vm(2);
    machine
        .pairs
        .iter_mut()
        .for_each(|pair| pair.p2p_nvlink = Reading::Known(P2pStatus::NotSupported));
    assert_eq!(theory(&machine, &pairs(&[(0, 1), (1, 0)])).0, None);
}
