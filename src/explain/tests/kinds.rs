//! Kinds of causes beside slow links: kinds of memory, copies within a GPU, rows that differ, time per copy,
//! NVLinks that copies pass by, both legs over one hop.

use model::flow::HostMemory;
use model::host::HostWay;
use model::measurement::{Latency, LocalCopy};
use model::placement::{Engine, Side};
use model::reading::Reading;
use model::testing::nvlink_bridge;

use super::*;

/// Returns the only cause.
fn only(explanation: &Explanation) -> &Cause {
    match &explanation.causes[..] {
        [cause] => cause,
        _ => panic!("{explanation:#?}"),
    }
}

fn of_peers(peer: Vec<PeerBandwidth>) -> Measurements {
    Measurements { peer, ..Measurements::default() }
}

/// Returns the ways to copy one way: by engine and by kernel, issued by either side.
fn ways() -> [Setup; 4] {
    let read = Setup::REFERENCE.with_issuer(Side::Destination);
    [
        Setup::REFERENCE,
        read,
        Setup::REFERENCE.with_engine(Engine::Kernel),
        read.with_engine(Engine::Kernel),
    ]
}

fn locals(machine: &Snapshot, rate: impl Fn(u32) -> f64) -> Vec<LocalCopy> {
    let gpus = machine.gpus.iter().map(|gpu| gpu.index);
    let local = |gpu| LocalCopy {
        achieved_gbps: Some(GbPerSecond(rate(gpu))),
        samples: 3,
        spread_percent: Some(0.2),
        ..LocalCopy::blank(gpu, Bytes(GIB))
    };
    gpus.map(local).collect()
}

#[test]
fn one_kind_of_host_memory_of_one_gpu_is_one_cause() {
    let machine = two_sockets();
    let pageable = (HostMemory::Pageable, Engine::Copy, 8.0);
    let registered = (HostMemory::Registered, Engine::Copy, 25.0);
    let by_kernel = (HostMemory::Pinned, Engine::Kernel, 24.0);
    for (memory, engine, usual) in [pageable, registered, by_kernel] {
        let rate = |gpu, _| usual * if gpu == 1 { 0.3 } else { 1.0 };
        let others = hosts(&machine, false, rate).into_iter();
        let others = others.map(|copy| HostCopy { memory, engine, ..copy });
        let mut host = hosts(&machine, false, |gpu, _| card(gpu));
        host.extend(others);
        let explanation = explained(&machine, &with_host(host));
        let cause = only(&explanation);
        assert_eq!(cause.parts, [Part::Host(1)], "{explanation:#?}");
        assert_eq!(cause.explains.len(), 2);
        assert_ne!(cause.modes, Modes::HOST);
    }
    assert_eq!(HostWay::PINNED.memory, HostMemory::Pinned);
}

#[test]
fn pageable_copies_over_unlike_links_are_as_slow_as_these() {
    let machine = two_sockets_with_narrow_gpu();
    let narrow = |gpu, _| if gpu == 3 { 6.5 } else { card(gpu) };
    let mut host = hosts(&machine, false, narrow);
    let pageable = hosts(&machine, false, |gpu, _| if gpu == 3 { 6.3 } else { 12.0 });
    host.extend(pageable.into_iter().map(|copy| HostCopy { memory: HostMemory::Pageable, ..copy }));
    assert_eq!(explained(&machine, &with_host(host)).causes, []);
}

#[test]
fn a_gpu_that_is_slow_within_itself_is_one_cause_with_or_without_its_pairs() {
    let machine = h200_vm(8);
    let slow = |gpu| if gpu == 5 { 1200.0 } else { 2094.0 };
    let alone = Measurements {
        local: locals(&machine, slow),
        ..of_peers(peers(&machine, Setup::REFERENCE, |_, _| 395.0))
    };
    let explanation = explained(&machine, &alone);
    assert_eq!(only(&explanation).parts, [Part::Local(5)]);
    let rate = |one, other| if one == 5 || other == 5 { 226.0 } else { 395.0 };
    let with_pairs = Measurements {
        local: locals(&machine, slow),
        ..of_peers(peers(&machine, Setup::REFERENCE, rate))
    };
    let explanation = explained(&machine, &with_pairs);
    let cause = only(&explanation);
    assert_eq!(cause.parts, [Part::Gpu(5)], "{explanation:#?}");
    assert_eq!(cause.explains.len(), 15);
}

#[test]
fn rows_that_differ_are_a_cause_if_several_figures_show_it() {
    let machine = h200_vm(4);
    let unsteady = |is_so: &dyn Fn(&PeerBandwidth) -> bool| {
        let all = ways().map(|setup| peers(&machine, setup, |_, _| 390.0));
        let mut peer = all.concat();
        for cell in peer.iter_mut().filter(|cell| is_so(cell)) {
            cell.spread_percent = Some(90.0);
        }
        explained(&machine, &of_peers(peer))
    };
    let is_of = |cell: &PeerBandwidth| cell.pair.source + cell.pair.destination == 5;
    let of_pair = unsteady(&|cell| is_of(cell) && cell.pair.source.min(cell.pair.destination) == 2);
    let cause = only(&of_pair);
    assert_eq!((&cause.parts[..], cause.effect), (&[Part::Pair(2, 3)][..], Effect::Unsteady));
    let one = |cell: &PeerBandwidth| {
        let setup = cell.setup.of_any_size();
        is_of(cell) && cell.pair.source == 2 && setup == Setup::REFERENCE.of_any_size()
    };
    assert_eq!(unsteady(&one).causes, [], "one figure met a rare slow copy");
}

#[test]
fn nvlinks_that_copies_pass_by_are_named_so() {
    let machine = h200_vm(4);
    let slow = |one: u32, other: u32| {
        if one.min(other) == 0 && one.max(other) == 1 { 50.0 } else { 395.0 }
    };
    let peer = ways().map(|setup| peers(&machine, setup, slow)).concat();
    let explanation = explained(&machine, &of_peers(peer));
    let cause = only(&explanation);
    assert_eq!((&cause.parts[..], cause.effect), (&[Part::Pair(0, 1)][..], Effect::Detour));
    assert_eq!(cause.explains.len(), 8);
    // Slower than NVLink, and faster than the slots.
    let slow = |one: u32, other: u32| {
        if one.min(other) == 0 && one.max(other) == 1 { 150.0 } else { 395.0 }
    };
    let peer = ways().map(|setup| peers(&machine, setup, slow)).concat();
    assert_ne!(only(&explained(&machine, &of_peers(peer))).effect, Effect::Detour);
}

#[test]
fn time_per_copy_explains_small_copies_and_large_ones() {
    let machine = h200_vm(4);
    let us = 2000.0;
    let bytes = 1e9 * 1.073_741_824;
    let rate = |_, _| bytes / (bytes / 395.0 + us * 1e3);
    let latency = Pair::ordered(&[0, 1, 2, 3]).into_iter().map(|pair| Latency {
        latency_us: Some(us + 2.5),
        samples: 3,
        spread_percent: Some(1.0),
        ..Latency::blank(pair, Path::Direct, Bytes(16))
    });
    let measurements = Measurements {
        latency: latency.collect(),
        ..of_peers(peers(&machine, Setup::REFERENCE, rate))
    };
    let explanation = explained(&machine, &measurements);
    let cause = only(&explanation);
    let Effect::Delay(found) = cause.effect else { panic!("{explanation:#?}") };
    assert!((found - us).abs() < 100.0, "{found}");
    assert!(is_suspect(cause, Part::Class(Class::NvLink)), "{cause:#?}");
}

#[test]
fn staged_copies_both_of_whose_legs_pass_a_hidden_hop_are_a_design() {
    let machine = h200_vm(4);
    let staged = Setup::REFERENCE.with_path(Path::Staged);
    let with = |share: f64| {
        let rate = |one: u32, other: u32| {
            if one / 2 == other / 2 { 30.0 * share } else { 30.0 }
        };
        let mut measurements = with_host(hosts(&machine, false, |_, _| 55.3));
        measurements.peer = peers(&machine, staged, rate);
        explained(&machine, &measurements)
    };
    let by_design = with(0.6);
    assert!(!by_design.causes.is_empty(), "{by_design:#?}");
    assert_eq!(accused(&by_design), [[]; 0], "{by_design:#?}");
    // Less than a half: the hop cannot be the reason.
    assert_eq!(accused(&with(0.3)).len(), 2);
}

#[test]
fn the_slower_of_two_slow_parts_decides_for_the_flow_through_both() {
    // Reads alone are slow: no limit of a link would do that.
    let machine = h200_vm(8);
    let slow = |one: u32, other: u32| {
        let of = |gpu: u32| match gpu {
            2 => 0.6,
            5 => 0.4,
            _ => 1.0,
        };
        395.0 * f64::min(of(one), of(other))
    };
    let all = ways().map(|setup| match setup.issuer {
        Side::Source => peers(&machine, setup, |_, _| 395.0),
        Side::Destination => peers(&machine, setup, slow),
    });
    let peer = all.concat();
    let explanation = explained(&machine, &of_peers(peer));
    assert_eq!(explanation.causes.len(), 2, "{explanation:#?}");
    assert!(explanation.unexplained.is_empty(), "{explanation:#?}");
}

#[test]
fn a_hop_gives_copies_through_processors_less_than_host_copies_get_of_it() {
    // A hop above the cards of the first socket carries 10 GB/s of what cards have alone.
    let machine = two_sockets();
    let mut measurements =
        with_host(hosts(&machine, false, |gpu, _| if gpu < 2 { 10.0 } else { card(gpu) }));
    let of_peers = |one: u32, other: u32| match (one / 2 == other / 2, one < 2 || other < 2) {
        (true, _) => 26.4,
        (false, _) => 8.6,
    };
    measurements.peer = peers(&machine, Setup::REFERENCE, of_peers);
    let explanation = explained(&machine, &measurements);
    assert_eq!(explanation.causes.len(), 1, "{explanation:#?}");
    assert!(explanation.unexplained.is_empty(), "{explanation:#?}");
}

#[test]
fn copies_of_pairs_whose_nvlinks_are_down_are_not_judged_by_what_pcie_reaches_elsewhere() {
    // Two of four cards had a bridge. What the way between their slots gives is all that is left.
    let mut machine = nvlink_bridge();
    let slow = |one: u32, other: u32| match (one.max(other) < 2, one / 2 == other / 2) {
        (true, _) => 9.0,
        (_, true) => 26.4,
        _ => 22.3,
    };
    let accused_of = |machine: &Snapshot| {
        let peer = peers(machine, Setup::REFERENCE, slow);
        accused(&explained(machine, &of_peers(peer)))
    };
    for gpu in &mut machine.gpus {
        gpu.nvlinks = Reading::Known(Vec::new());
    }
    assert_eq!(accused_of(&machine), [[Part::Pair(0, 1)]], "no bridge");
    let mut machine = nvlink_bridge();
    for gpu in &mut machine.gpus {
        if let Reading::Known(links) = &mut gpu.nvlinks {
            links.iter_mut().for_each(|link| link.active = Reading::Known(false));
        }
    }
    assert_eq!(accused_of(&machine), [[]; 0]);
}
