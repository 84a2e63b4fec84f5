//! Copies of which each is compared.

use super::*;
use hardware::{Comparison, SteadyCopies};

/// Returns what comparing each of some copies counts, enqueued one by one as on a live machine.
fn compared_one_by_one(spoil: impl Fn(&mut MachineSpec), copies: u32) -> PatternCheck {
    let bytes = 16 * MIB;
    let mut spec = builtin::get("h200x2").unwrap();
    // A kernel takes far longer than a copy: one that does not wait for it overwrites what it has not compared.
    spec.gpus.iter_mut().for_each(|gpu| gpu.local_gbps = 50.0.try_into().unwrap());
    spoil(&mut spec);
    let driver = open_spec(spec);
    let [from, to] = [Device(0), Device(1)];
    driver.set_peer_access(from, to, true).unwrap();
    let [source, places] = [(from, bytes), (to, 2 * bytes)]
        .map(|(device, bytes)| driver.allocate(device, bytes).unwrap());
    driver.fill(source, bytes, 7).unwrap();
    let places = [0, bytes].map(|at| driver.part(places, at, bytes).unwrap());
    let [stream, checks] =
        [from, to].map(|device| driver.create_stream(device, StreamKind::Side).unwrap());
    let events = |device| [(); 2].map(|()| driver.create_event(device, false).unwrap());
    for (turn, place) in [1, 2].into_iter().zip(places) {
        driver.compare(checks, place, bytes, 7.into(), (0, turn)).unwrap();
    }
    driver.compared(checks, 0).unwrap();
    let compared = Comparison {
        sent: [7.into(); 2],
        stream: checks,
        tally: 0,
        arrived: events(from),
        poisoned: events(to),
    };
    let flow = SteadyCopies {
        engine: Engine::Copy,
        stream,
        sources: [source; 2],
        places,
        bytes,
        copies,
        compared: Some(compared),
    };
    hardware::copy_one_by_one(&driver, &[flow]).unwrap();
    driver.compared(checks, 0).unwrap()
}

#[test]
fn copies_that_are_compared_one_by_one_wait_for_each_other_and_each_lost_line_counts_once() {
    let sound = compared_one_by_one(|_| (), 9);
    assert_eq!((sound.wrong, sound.copies, sound.first_wrong), (0, 0, None));
    let lost = |spec: &mut MachineSpec| {
        let fault = PairFault::new(Pairs::Ordered(0, 1), CopyFault::LostLine { every: 3 });
        spec.faults.pairs.push(fault);
    };
    let found = compared_one_by_one(lost, 9);
    assert_eq!((found.wrong, found.poisoned, found.copies), (48, 48, 3));
    assert_eq!(found.first_wrong, Some(7 * 128));
}
