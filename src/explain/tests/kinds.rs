//! Kinds of causes beside slow links: copies within a GPU, NVLinks that copies pass by, both legs over one hop.

use model::measurement::LocalCopy;
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
