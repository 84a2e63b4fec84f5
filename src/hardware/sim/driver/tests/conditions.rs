//! Faults that depend on the issuer, on other traffic, on chance and on time.

use super::*;
use crate::spec::{Collapse, Drift, Loss, Millis, Percent, Rate, Ratio, Shared, Times, WakeSpec};

/// Opens an H200 server with a fault of copies from the first GPU to the second.
fn with(change: impl FnOnce(PairFault) -> PairFault, fault: CopyFault) -> SimDriver {
    let mut spec = builtin::get("h200x8").unwrap();
    spec.faults.pairs.push(change(PairFault::new(Pairs::Ordered(0, 1), fault)));
    let driver = open_spec(spec);
    (0..4).for_each(|a| (0..a).for_each(|b| enable(&driver, a, b)));
    driver
}

const READ: Leg = Leg { issuer: 1, ..leg(0, 1) };

/// Runs copies on all legs at once, and verifies each on its destination. Returns the wrong words of each.
fn wrong(driver: &SimDriver, legs: &[Leg]) -> Vec<u64> {
    let bytes = 64 * MIB;
    let buffers: Vec<_> = legs
        .iter()
        .map(|leg| {
            let [from, to] = [leg.source, leg.destination]
                .map(|gpu| driver.allocate(Device(gpu), bytes).unwrap());
            driver.fill(from, bytes, 7).unwrap();
            driver.poison(to, bytes, 7).unwrap();
            [from, to]
        })
        .collect();
    let enqueue = |(leg, [from, to]): (&Leg, &[Buffer; 2])| {
        let stream = driver.create_stream(Device(leg.issuer), StreamKind::Side).unwrap();
        driver.hold(stream).unwrap();
        let engine = if leg.kernel { Engine::Kernel } else { Engine::Copy };
        driver.copy(engine, stream, *to, *from, bytes).unwrap();
        stream
    };
    let streams: Vec<_> = legs.iter().zip(&buffers).map(enqueue).collect();
    driver.release();
    streams.into_iter().for_each(|stream| driver.synchronize(stream).unwrap());
    let check = |[from, to]: [Buffer; 2]| {
        let check = driver.check(&[(to, 7.into())], bytes).unwrap()[0];
        driver.free(from).unwrap();
        driver.free(to).unwrap();
        check.wrong
    };
    buffers.into_iter().map(check).collect()
}

const CORRUPT: CopyFault = CopyFault::Corrupt { words: 5 };

#[test]
fn writes_and_reads_go_wrong_by_themselves() {
    let kernel = |leg: Leg| Leg { kernel: true, ..leg };
    for (issuer, hit, spared) in
        [(Side::Source, leg(0, 1), READ), (Side::Destination, READ, leg(0, 1))]
    {
        let only = |fault| PairFault { issuer: Some(issuer), ..fault };
        let driver = with(only, CORRUPT);
        let all = [hit, spared, kernel(hit), kernel(spared)].map(|leg| wrong(&driver, &[leg])[0]);
        assert_eq!(all, [5, 0, 5, 0]);
        let driver =
            with(|fault| PairFault { engine: Some(Engine::Kernel), ..only(fault) }, CORRUPT);
        let all = [hit, spared, kernel(hit), kernel(spared)].map(|leg| wrong(&driver, &[leg])[0]);
        assert_eq!(all, [0, 0, 5, 0]);
        let slow = with(only, CopyFault::Slow { share: Ratio(0.5) });
        near(gbps(&slow, &[hit], 512 * MIB, 8)[0], 198.5, 1.0);
        near(gbps(&slow, &[spared], 512 * MIB, 8)[0], 395.0, 1.0);
    }
}

#[test]
fn what_arrives_wrong_under_load_arrives_well_alone() {
    let driver = with(|fault| PairFault { under_load: true, ..fault }, CORRUPT);
    assert_eq!(wrong(&driver, &[leg(0, 1)]), [0]);
    assert_eq!(wrong(&driver, &[leg(0, 1), leg(2, 3)]), [0, 0]);
    assert_eq!(wrong(&driver, &[leg(0, 1), leg(1, 2)]), [5, 0]);
    assert_eq!(wrong(&driver, &[leg(0, 1), leg(3, 1)]), [5, 0]);
    let slow = with(
        |fault| PairFault { under_load: true, ..fault },
        CopyFault::Slow { share: Ratio(0.25) },
    );
    near(gbps(&slow, &[leg(0, 1)], 512 * MIB, 8)[0], 396.3, 1.0);
    // The other copy ends first. Then this one runs alone: 1/4 of the rate while the other runs, which takes as long.
    near(gbps(&slow, &[leg(0, 1), leg(1, 2)], 512 * MIB, 8)[0], 396.3 / 1.75, 2.0);
}

#[test]
fn what_arrives_wrong_both_ways_arrives_well_one_way() {
    let driver = with(|fault| PairFault { both_ways: true, ..fault }, CopyFault::Dropped);
    assert_eq!(wrong(&driver, &[leg(0, 1)]), [0]);
    // The links of a GPU to the switches are busy both ways.
    assert_eq!(wrong(&driver, &[leg(0, 1), leg(1, 0)]), [8 * MIB, 0]);
    assert_eq!(wrong(&driver, &[leg(0, 1), leg(2, 1)]), [0, 0]);
}

#[test]
fn staged_copies_arrive_wrong_where_the_description_says_so() {
    let staged = |fault| PairFault { path: Path::Staged, ..fault };
    let driver = with(staged, CORRUPT);
    assert_eq!(wrong(&driver, &[leg(0, 1)]), [0]);
    driver.set_peer_access(Device(0), Device(1), false).unwrap();
    driver.set_peer_access(Device(1), Device(0), false).unwrap();
    assert_eq!((wrong(&driver, &[leg(0, 1)]), wrong(&driver, &[leg(1, 0)])), (vec![5], vec![0]));
}

#[test]
fn one_copy_in_so_many_takes_long_and_the_same_ones_with_the_same_seed() {
    let times = |seed| -> Vec<f64> {
        let mut spec = builtin::get("h200x2").unwrap();
        spec.noise = Noise { percent: Percent(0.0), seed };
        let fault = CopyFault::Outliers { one_in: 10, times: Times(4.0) };
        spec.faults.pairs.push(PairFault::new(Pairs::All, fault));
        let driver = open_spec(spec);
        enable(&driver, 0, 1);
        (0..300).map(|_| run(&driver, &[leg(0, 1)], 64 * MIB, 1)[0]).collect()
    };
    let seen = times(1);
    let usual = seen.iter().copied().fold(f64::INFINITY, f64::min);
    let slow = seen.iter().filter(|ns| **ns > 1.5 * usual);
    assert!(slow.clone().all(|ns| (ns / usual - 4.0).abs() < 1e-3));
    assert!((15..=45).contains(&slow.count()), "some thirty of 300");
    assert_eq!(seen, times(1));
    assert_ne!(seen, times(2));
}

#[test]
fn a_gpu_that_drifts_is_slower_in_the_end_and_others_are_not() {
    let mut spec = builtin::get("h200x8").unwrap();
    spec.faults.drifts.push(Drift { gpu: 1, percent: Loss(20.0), over_ms: Millis(100.0) });
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    enable(&driver, 2, 3);
    let rate = |pair| gbps(&driver, &[pair], 256 * MIB, 4)[0];
    let first = rate(leg(0, 1));
    near(first, 395.5, 1.0);
    let mut last = first;
    while driver.now() < Duration::from_millis(100) {
        let next = rate(leg(1, 0));
        assert!(next < last, "{next} after {last}");
        last = next;
    }
    near(rate(leg(0, 1)), 0.8 * first, 0.5);
    near(rate(leg(2, 3)), first, 0.5);
}

#[test]
fn a_link_that_two_flows_share_collapses() {
    let mut spec = builtin::get("pair-hangs").unwrap();
    spec.faults = crate::spec::Faults::default();
    spec.faults.collapses.push(Collapse { at: Shared::Pci(spec.gpus[2].pci), gbps: Rate(6.0) });
    let driver = open_spec(spec);
    (0..4).for_each(|a| (0..a).for_each(|b| enable(&driver, a, b)));
    near(gbps(&driver, &[leg(0, 2)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
    for shared in gbps(&driver, &[leg(0, 2), leg(1, 2)], 256 * MIB, 4) {
        near(shared, 3.0, 1.0);
    }
    // Up and down are two hops.
    near(gbps(&driver, &[leg(0, 2), leg(2, 0)], 256 * MIB, 4)[0], 0.83 * 0.95 * 31.5, 1.0);
}

#[test]
fn a_link_carries_its_first_milliseconds_slowly_after_a_rest() {
    let mut spec = builtin::get("pair-hangs").unwrap();
    let pci = spec.gpus[2].pci;
    let link = spec.pci.iter_mut().find(|function| function.address == pci).unwrap();
    link.wakes = Some(WakeSpec { after_ms: Millis(5.0), for_ms: Millis(4.0), share: Ratio(0.25) });
    let driver = open_spec(spec);
    enable(&driver, 0, 2);
    // At 6.8 GB/s 27 MB are over in 4 ms; 64 MiB take 2.6 ms in all.
    let rates: Vec<_> = (0..3).map(|_| gbps(&driver, &[leg(0, 2)], 64 * MIB, 1)[0]).collect();
    assert!(rates[0] < 15.0 && rates[1..].iter().all(|rate| *rate > 25.5), "{rates:?}");
    // A kernel elsewhere takes long enough for the link to sleep again.
    driver.spin(Stream::default_of(Device(1)), Duration::from_millis(6)).unwrap();
    driver.synchronize(Stream::default_of(Device(1))).unwrap();
    let again = gbps(&driver, &[leg(0, 2)], 64 * MIB, 1)[0];
    near(again, rates[0], 1.0);
}

#[test]
fn a_port_that_redirects_slows_what_passes_it() {
    let mut spec = builtin::get("demo").unwrap();
    let port = spec.function(spec.gpus[0].pci).unwrap().parent;
    let port = spec.pci.iter_mut().find(|function| Some(function.address) == port).unwrap();
    (port.acs_redirect, port.redirect_share) = (true, Some(Ratio(0.5)));
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    // Both directions of the same link at the same time.
    near(gbps(&driver, &[leg(0, 1)], 256 * MIB, 4)[0], 0.95 * 0.83 * 31.5 / 2.0, 1.0);
    near(gbps(&driver, &[leg(1, 0)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
    // A staged copy is no peer copy.
    near(gbps(&driver, &[leg(0, 2)], 256 * MIB, 4)[0], 0.4 * 31.5, 2.0);
}

#[test]
fn an_error_comes_to_light_in_a_later_call_for_the_same_device() {
    let driver = with(|fault| fault, CopyFault::LateError { code: 719, calls: 4 });
    let [source, destination] = [0, 1].map(|gpu| driver.allocate(Device(gpu), MIB).unwrap());
    let stream = driver.create_stream(Device(0), StreamKind::Side).unwrap();
    driver.copy(Engine::Copy, stream, destination, source, MIB).unwrap();
    driver.synchronize(stream).unwrap();
    // Calls for the other device do not count.
    assert!((0..9).all(|_| driver.allocate(Device(1), MIB).is_ok()));
    assert!((0..3).all(|_| driver.allocate(Device(0), MIB).is_ok()));
    let error = driver.synchronize(stream).unwrap_err();
    assert_eq!((error.kind, error.code), (ErrorKind::Sticky, Some(719)));
    assert_eq!(driver.allocate(Device(0), MIB), Err(error));
    assert!(driver.allocate(Device(1), MIB).is_ok());
}

#[test]
fn what_shows_beside_a_third_gpu_shows_there_alone() {
    let driver = with(
        |fault| PairFault { beside_third: true, ..fault },
        CopyFault::Slow { share: Ratio(0.25) },
    );
    let alone = gbps(&driver, &[leg(0, 1)], 256 * MIB, 4)[0];
    let both = gbps(&driver, &[leg(0, 1), leg(1, 0)], 256 * MIB, 4)[0];
    assert!(both > 0.95 * alone, "{both} of {alone}");
    let beside = gbps(&driver, &[leg(0, 1), leg(1, 2)], 256 * MIB, 4)[0];
    assert!(beside < 0.7 * alone, "{beside} of {alone}");
}

#[test]
fn what_needs_several_flows_at_once_shows_then_alone_and_as_often_as_it_is_told() {
    let mut spec = builtin::get("h200x8").unwrap();
    let late = PairFault::new(Pairs::All, CopyFault::LateError { code: 1, calls: 1 });
    spec.faults.pairs.push(PairFault { flows_at_once: Some(2), times: Some(1), ..late });
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    enable(&driver, 2, 3);
    // Errors of the copies: those that the devices return at the end, and those of a later call.
    let errors = |pairs: &[(u32, u32)]| {
        for &(from, to) in pairs {
            let [source, destination] =
                [from, to].map(|gpu| driver.allocate(Device(gpu), 64 * MIB).unwrap());
            driver
                .copy(Engine::Copy, Stream::default_of(Device(from)), destination, source, 64 * MIB)
                .unwrap();
        }
        let drained = (0..4).filter(|gpu| driver.drain(Device(*gpu)).is_err()).count();
        drained + (0..4).filter(|gpu| driver.allocate(Device(*gpu), MIB).is_err()).count()
    };
    assert_eq!([&[(0, 1)][..], &[(0, 1), (2, 3)], &[(0, 1), (2, 3)]].map(errors), [0, 1, 0]);
}
