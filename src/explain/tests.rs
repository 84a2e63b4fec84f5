//! Tiny machines with one planted cause each. Rates come from tables here, not from the predictor.

use model::flow::Setup;
use model::host::{HostCopy, HostDirection};
use model::measurement::{Measurements, PeerBandwidth, Verified};
use model::node::NodeId;
use model::placement::{Direction, Pair, Path};
use model::snapshot::Snapshot;
use model::status::Ending;
use model::testing::{h200_vm, host_copy, pci, two_sockets, two_sockets_with_narrow_gpu};
use model::topology::LinkClass;
use model::units::{Bytes, GIB, GbPerSecond};

use super::*;

mod kinds;
mod looks;

/// Floors of the classes of links, as shares.
struct Usual;

impl Floors for Usual {
    fn peer(&self, cell: &PeerBandwidth) -> Option<f64> {
        Some(match (cell.setup.path, cell.setup.direction) {
            (Path::Staged, _) => 0.2,
            (_, Direction::BothWays) => 0.5,
            _ => 0.63,
        })
    }

    fn host(&self, _: &HostCopy) -> Option<f64> {
        Some(0.73)
    }
}

fn explained(machine: &Snapshot, measurements: &Measurements) -> Explanation {
    within(machine, measurements, BUDGET)
}

fn within(machine: &Snapshot, measurements: &Measurements, budget: u64) -> Explanation {
    let topology = topology::build(machine);
    explain(machine, &topology, measurements, &Usual, budget)
}

/// Returns the parts of the causes that are no design.
fn accused(explanation: &Explanation) -> Vec<Vec<Part>> {
    let faults = explanation.causes.iter().filter(|cause| !cause.by_design);
    faults.map(|cause| cause.parts.clone()).collect()
}

fn is_suspect(cause: &Cause, part: Part) -> bool {
    let suspects = cause.suspects.iter().map(|suspect| &suspect.parts);
    std::iter::once(&cause.parts).chain(suspects).any(|parts| *parts == [part])
}

/// Returns a copy between GPUs at this rate.
fn peer(pair: Pair, setup: Setup, gbps: f64) -> PeerBandwidth {
    PeerBandwidth {
        pair,
        setup: setup.with_bytes(Bytes(GIB)),
        achieved_gbps: Some(GbPerSecond(gbps)),
        theoretical_gbps: None,
        percent: None,
        expected_gbps: None,
        expected_low_gbps: None,
        expected_high_gbps: None,
        expected_percent: None,
        healthy_gbps: None,
        healthy_percent: None,
        samples: 5,
        spread_percent: Some(0.5),
        slow_rows: None,
        fixed_cost_us: None,
        asymptotic_gbps: None,
        host_blocked_us: None,
        at_once: 1,
        verified: Verified::Ok,
        verification_detail: None,
        ending: Ending::MEASURED,
    }
}

/// Returns the direct copies of all pairs, by source and destination.
fn peers(machine: &Snapshot, setup: Setup, rate: impl Fn(u32, u32) -> f64) -> Vec<PeerBandwidth> {
    let gpus: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.index).collect();
    let cell = |pair: Pair| peer(pair, setup, rate(pair.source, pair.destination));
    Pair::ordered(&gpus).into_iter().map(cell).collect()
}

/// Returns host copies of all GPUs in both directions, alone or all at once, by GPU and direction.
fn hosts(
    machine: &Snapshot,
    at_once: bool,
    rate: impl Fn(u32, HostDirection) -> f64,
) -> Vec<HostCopy> {
    let number = u32::try_from(machine.gpus.len()).unwrap();
    let mut copies = Vec::new();
    for direction in [HostDirection::ToDevice, HostDirection::ToHost] {
        copies.extend((0..number).map(|gpu| HostCopy {
            direction,
            at_once: if at_once { number } else { 1 },
            ..host_copy(gpu, rate(gpu, direction))
        }));
    }
    copies
}

/// Returns the rate of a PCIe 4 x16 card with its host, 82% of 31.5 GB/s, a little different for each.
fn card(gpu: u32) -> f64 {
    25.8 + 0.1 * f64::from(gpu % 3)
}

fn with_host(host: Vec<HostCopy>) -> Measurements {
    Measurements { host, ..Measurements::default() }
}

#[test]
fn a_healthy_machine_has_no_cause() {
    let machine = two_sockets();
    let host = hosts(&machine, false, |gpu, _| card(gpu));
    let peer = peers(
        &machine,
        Setup::REFERENCE,
        |one, other| {
            if one / 2 == other / 2 { 26.4 } else { 22.3 }
        },
    );
    let measurements = Measurements { peer, ..with_host(host) };
    let explanation = explained(&machine, &measurements);
    assert_eq!(explanation.causes, []);
    assert_eq!((explanation.unexplained.len(), explanation.figures), (0, 20));
}

#[test]
fn one_card_that_is_slow_with_the_host_is_one_cause() {
    let machine = two_sockets();
    let slow = |gpu, _| card(gpu) * if gpu == 2 { 0.5 } else { 1.0 };
    let explanation = explained(&machine, &with_host(hosts(&machine, false, slow)));
    let [cause] = &explanation.causes[..] else { panic!("{explanation:#?}") };
    // Nothing but copies with the host was measured: link and card cannot be told apart.
    assert!(is_suspect(cause, Part::Link(NodeId::Gpu(2))), "{cause:#?}");
    assert_eq!((cause.explains.len(), cause.way), (2, None));
    assert!(explanation.unexplained.is_empty());
}

#[test]
fn copies_between_gpus_tell_a_link_from_its_cards_host_engine() {
    let machine = two_sockets();
    let host = hosts(&machine, false, |gpu, _| if gpu == 2 { 12.0 } else { card(gpu) });
    let rate = |one: u32, other: u32| if one / 2 == other / 2 { 26.4 } else { 22.3 };
    let sound =
        Measurements { peer: peers(&machine, Setup::REFERENCE, rate), ..with_host(host.clone()) };
    assert_eq!(accused(&explained(&machine, &sound)), [[Part::Host(2)]]);
    let narrow = Measurements {
        peer: peers(&machine, Setup::REFERENCE, |one, other| {
            if one == 2 || other == 2 { 12.0 } else { rate(one, other) }
        }),
        ..with_host(host)
    };
    let found = explained(&machine, &narrow);
    assert_eq!(accused(&found), [[Part::Link(NodeId::Gpu(2))]], "{found:#?}");
}

#[test]
fn cards_of_one_socket_share_a_cause_and_the_other_nodes_memory_would_tell_which() {
    let machine = two_sockets();
    let slow = |gpu, _| if gpu < 2 { 11.0 } else { card(gpu) };
    let explanation = explained(&machine, &with_host(hosts(&machine, false, slow)));
    let [cause] = &explanation.causes[..] else { panic!("{explanation:#?}") };
    assert_eq!(cause.explains.len(), 4);
    let memory = Part::Memory(Some(0));
    assert!(is_suspect(cause, memory), "{cause:#?}");
    assert!(is_suspect(cause, Part::Link(NodeId::Pci(pci("0000:01:00.0")))), "{cause:#?}");
}

#[test]
fn a_hop_that_a_guest_hides_is_found_and_is_a_design_if_it_carries_one_card() {
    let machine = h200_vm(4);
    let alone = hosts(&machine, false, |_, _| 55.3);
    let mut measurements = with_host(alone.clone());
    let together = |gpu: u32, _| if gpu < 2 { 27.6 } else { 55.2 };
    measurements.host.extend(hosts(&machine, true, together));
    let explanation = explained(&machine, &measurements);
    let [cause] = &explanation.causes[..] else { panic!("{explanation:#?}") };
    assert_eq!(cause.parts, [Part::Exit(0), Part::Exit(1)]);
    assert!(cause.by_design, "{cause:#?}");

    // It carries less than one card alone.
    let mut measurements =
        with_host(hosts(&machine, false, |gpu, _| if gpu < 2 { 30.0 } else { 55.3 }));
    let together = |gpu: u32, _| if gpu < 2 { 15.0 } else { 55.2 };
    measurements.host.extend(hosts(&machine, true, together));
    let explanation = explained(&machine, &measurements);
    assert_eq!(accused(&explanation), [[Part::Exit(0), Part::Exit(1)]], "{explanation:#?}");
}

#[test]
fn one_direction_of_a_pair_is_one_cause() {
    let machine = h200_vm(4);
    let slow = |one, other| if (one, other) == (3, 1) { 250.0 } else { 395.0 };
    let measurements =
        Measurements { peer: peers(&machine, Setup::REFERENCE, slow), ..Measurements::default() };
    let explanation = explained(&machine, &measurements);
    let [cause] = &explanation.causes[..] else { panic!("{explanation:#?}") };
    assert_eq!((&cause.parts[..], cause.way), (&[Part::Pair(1, 3)][..], Some(Way::Down)));
}

#[test]
fn a_gpu_that_is_slow_with_all_others_is_one_cause() {
    let machine = h200_vm(4);
    let slow = |one, other| if one == 2 || other == 2 { 200.0 } else { 395.0 };
    let both = Setup::REFERENCE.with_direction(Direction::BothWays);
    let mut peer = peers(&machine, Setup::REFERENCE, slow);
    peer.extend(peers(&machine, both, |one, other| slow(one, other) * 0.98));
    let measurements = Measurements { peer, ..Measurements::default() };
    let explanation = explained(&machine, &measurements);
    let [cause] = &explanation.causes[..] else { panic!("{explanation:#?}") };
    assert!(is_suspect(cause, Part::NvPort(2)), "{cause:#?}");
    assert!(is_suspect(cause, Part::Gpu(2)), "{cause:#?}");
    assert_eq!((cause.explains.len(), cause.way), (12, None));
}

#[test]
fn a_loss_that_only_shows_both_ways_is_named_so() {
    let machine = h200_vm(4);
    let both = Setup::REFERENCE.with_direction(Direction::BothWays);
    let slow = |one, other| {
        if one + other == 5 && one * other == 6 { 240.0 } else { 390.0 }
    };
    let mut peer = peers(&machine, Setup::REFERENCE, |_, _| 395.0);
    peer.extend(peers(&machine, both, slow));
    let measurements = Measurements { peer, ..Measurements::default() };
    assert_eq!(accused(&explained(&machine, &measurements)), [[Part::Pair(2, 3)]]);
}

#[test]
fn all_alike_and_all_slow_is_one_cause_of_the_machine() {
    let machine = two_sockets();
    let host = hosts(&machine, false, |gpu, _| card(gpu) * 0.4);
    let peer = peers(&machine, Setup::REFERENCE, |one, other| {
        0.4 * if one / 2 == other / 2 { 26.4 } else { 22.3 }
    });
    let only_peers = Measurements {
        peer: peer.clone(),
        ..with_host(hosts(&machine, false, |gpu, _| card(gpu)))
    };
    let all = Measurements { peer, ..with_host(host.clone()) };
    let of_all = explained(&machine, &all);
    assert_eq!(accused(&of_all), [[Part::Machine]], "{of_all:#?}");
    let of_host = explained(&machine, &with_host(host));
    assert_eq!(accused(&of_host), [[Part::Class(Class::Host)]]);
    // Two classes of pairs: each is a cause, or what they have in common is.
    let of_peers = accused(&explained(&machine, &only_peers));
    let classes = [LinkClass::Pix, LinkClass::Pxb, LinkClass::Sys].map(Class::Pcie);
    let is_class = |parts: &Vec<Part>| {
        parts == &[Part::Machine] || classes.iter().any(|class| parts == &[Part::Class(*class)])
    };
    assert!(of_peers.len() <= 2 && of_peers.iter().all(is_class), "{of_peers:?}");
}

#[test]
fn a_link_that_trained_narrow_explains_its_figures_without_any_cause() {
    let machine = two_sockets_with_narrow_gpu();
    let rate = |gpu, _| if gpu == 3 { 6.5 } else { card(gpu) };
    let explanation = explained(&machine, &with_host(hosts(&machine, false, rate)));
    assert_eq!(explanation.causes, [], "{explanation:#?}");
    assert!(explanation.unexplained.is_empty());
}

#[test]
fn what_scatters_alike_is_no_cause() {
    // Quantiles of a distribution with a deviation of 4%, in an order that has no structure.
    let machine = h200_vm(8);
    let rate = |one: u32, other: u32| {
        let place = (one * 37 + other * 23 + one * other * 11) % 56;
        let share = (f64::from(place) + 0.5) / 56.0;
        385.0 * (0.04 * (share / (1.0 - share)).ln() / 1.7).exp()
    };
    let measurements =
        Measurements { peer: peers(&machine, Setup::REFERENCE, rate), ..Measurements::default() };
    assert_eq!(accused(&explained(&machine, &measurements)), [[]; 0]);
}

#[test]
fn without_a_budget_nothing_is_explained_and_that_is_reported() {
    let machine = two_sockets();
    let slow = |gpu, _| card(gpu) * if gpu == 2 { 0.5 } else { 1.0 };
    let measurements = with_host(hosts(&machine, false, slow));
    let explanation = within(&machine, &measurements, 0);
    assert!(explanation.gave_up && explanation.causes.is_empty());
    assert_eq!(explanation.unexplained.len(), 2, "{explanation:#?}");
}

#[test]
fn the_same_report_is_explained_alike_in_any_order() {
    let machine = two_sockets();
    let slow = |gpu, _| if gpu < 2 { 11.0 } else { card(gpu) };
    let mut measurements = with_host(hosts(&machine, false, slow));
    let explanation = explained(&machine, &measurements);
    measurements.host.reverse();
    assert_eq!(explained(&machine, &measurements), explanation);
}
