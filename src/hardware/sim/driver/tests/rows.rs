//! The cost of a row of copies beside its bytes.

use super::*;
use crate::spec::{Engines, LateGate, Micros, Rate};

/// Returns the total nanoseconds of a gated row of copies from GPU 0 to 1, with an event between the copies or only
/// around them.
fn row(driver: &SimDriver, issuer: u32, bytes: u64, count: u32, events_between: bool) -> f64 {
    let [source, destination] = [0, 1].map(|gpu| driver.allocate(Device(gpu), bytes).unwrap());
    let device = Device(issuer);
    let stream = driver.create_stream(device, StreamKind::Side).unwrap();
    let [start, between, end] = [0; 3].map(|_| driver.create_event(device, true).unwrap());
    driver.hold(stream).unwrap();
    driver.record(start, stream).unwrap();
    for copy in 0..count {
        if copy > 0 && events_between {
            driver.record(between, stream).unwrap();
        }
        driver.copy(Engine::Copy, stream, destination, source, bytes).unwrap();
    }
    driver.record(end, stream).unwrap();
    driver.release();
    driver.synchronize(stream).unwrap();
    driver.free(source).unwrap();
    driver.free(destination).unwrap();
    driver.elapsed_ns(start, end).unwrap()
}

#[test]
fn rows_on_h200_take_what_was_measured_with_events_between_and_without() {
    let driver = open("h200x2");
    enable(&driver, 0, 1);
    enable(&driver, 1, 0);
    #[allow(clippy::cast_precision_loss)]
    let rate = |issuer, mib: u64, count, events| {
        (mib * MIB) as f64 * f64::from(count) / row(&driver, issuer, mib * MIB, count, events)
    };
    // docs/dev/facts.md, "Events between copies": plain, and with events between; GB/s of large copies.
    for (issuer, mib, count, plain, events, percent) in [
        (0, 512, 8, 396.42, 395.63, 0.03),
        (0, 301, 8, 395.6, 394.3, 0.05),
        (1, 512, 8, 393.9, 393.0, 0.1),
    ] {
        near(rate(issuer, mib, count, false), plain, percent);
        near(rate(issuer, mib, count, true), events, percent);
    }
    let short = rate(0, 512, 3, false);
    assert!((395.6..=396.1).contains(&short), "{short}");
    near(rate(1, 512, 3, false), 393.3, 0.05);
    // Microseconds of copies of 1 MiB after the start of the row.
    for (issuer, plain, events) in [(0, 4.9, 7.8), (1, 14.5, 20.5)] {
        let each = |events| {
            (row(&driver, issuer, MIB, 120, events) - row(&driver, issuer, MIB, 20, events)) / 1e5
        };
        near(each(false), plain, 1.5);
        near(each(true), events, 1.5);
    }
}

#[test]
fn kernels_pay_nothing_for_events_and_a_staged_row_neither() {
    let driver = open("h200x2");
    near(row(&driver, 0, MIB, 20, true), row(&driver, 0, MIB, 20, false), 1e-6);
}

#[test]
fn copies_to_the_host_and_from_it_have_engines_of_their_own() {
    let mut spec = builtin::get("h200x8").unwrap();
    spec.gpus.iter_mut().for_each(|gpu| gpu.copy_engines = Engines(1));
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    let alone = run(&driver, &[leg(0, 1)], 512 * MIB, 1)[0];
    let staged = run(&driver, &[leg(0, 2)], 512 * MIB, 1)[0];
    // A staged copy delays neither a direct one of the same GPU nor one the other way.
    let both = run(&driver, &[leg(0, 1), leg(0, 2), leg(3, 0)], 512 * MIB, 1);
    near(both[0], alone, 0.1);
    assert!(both[1] < 1.9 * staged && both[2] < 1.9 * staged, "{both:?} {staged}");
    // Two staged copies of one GPU run one after the other, as two direct ones do with one engine.
    let two = run(&driver, &[leg(0, 2), leg(0, 3)], 512 * MIB, 1);
    near(two[1], 2.0 * staged, 2.0);
    enable(&driver, 0, 2);
    let two = run(&driver, &[leg(0, 1), leg(0, 2)], 512 * MIB, 1);
    near(two[1], 2.0 * alone, 2.0);
}

#[test]
fn staged_copies_share_the_rates_of_the_memory_that_they_pass() {
    let mut spec = builtin::get("h200x8").unwrap();
    let node = &mut spec.numa_nodes[0];
    (node.write_gbps, node.read_gbps) = (Some(Rate(20.0)), None);
    let written = open_spec(spec.clone());
    near(gbps(&written, &[leg(0, 1)], 512 * MIB, 4)[0], 20.0, 1.0);
    for shared in gbps(&written, &[leg(0, 1), leg(2, 3)], 512 * MIB, 4) {
        near(shared, 10.0, 1.0);
    }
    let node = &mut spec.numa_nodes[0];
    (node.write_gbps, node.read_gbps) = (None, Some(Rate(15.0)));
    near(gbps(&open_spec(spec), &[leg(0, 1)], 512 * MIB, 4)[0], 15.0, 1.0);
}

#[test]
fn a_gate_that_its_device_has_not_begun_is_late() {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.late_gates.push(LateGate { gpu: 1, us: Micros(3000.0), times: Some(1) });
    let driver = open_spec(spec);
    let streams = [0, 1].map(|gpu| driver.create_stream(Device(gpu), StreamKind::Side).unwrap());
    let hold = || streams.into_iter().for_each(|stream| driver.hold(stream).unwrap());
    let limit = Duration::from_millis(2);
    assert_eq!(driver.late(limit), []);
    hold();
    let began = driver.now();
    assert_eq!(driver.late(limit), [Device(1)]);
    assert_eq!(driver.now() - began, limit);
    assert_eq!(driver.late(limit), [], "it begins within the next 2 ms");
    assert!(driver.now() - began < Duration::from_micros(3010), "{:?}", driver.now() - began);
    driver.release();
    streams.into_iter().for_each(|stream| driver.synchronize(stream).unwrap());
    // The gate is late only once, and nobody waits for a device that has reached its gate.
    let began = driver.now();
    hold();
    assert_eq!(driver.late(limit), []);
    assert!(driver.now() - began < Duration::from_micros(50));
    driver.release();
    // This gate is opened before its device has begun it, so the device passes it as soon as it begins.
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.late_gates.push(LateGate { gpu: 0, us: Micros(3000.0), times: None });
    let driver = open_spec(spec);
    let (stream, began) =
        (driver.create_stream(Device(0), StreamKind::Side).unwrap(), driver.now());
    driver.hold(stream).unwrap();
    driver.release();
    driver.synchronize(stream).unwrap();
    let through = driver.now() - began;
    assert!(
        (Duration::from_millis(3)..Duration::from_micros(3050)).contains(&through),
        "{through:?}"
    );
    assert!(!driver.expired());
}

#[test]
fn a_gate_behind_work_is_late_until_that_is_done() {
    let driver = open("h200x2");
    let stream = driver.create_stream(Device(0), StreamKind::Side).unwrap();
    driver.spin(stream, Duration::from_millis(1)).unwrap();
    driver.hold(stream).unwrap();
    assert_eq!(driver.late(Duration::ZERO), [Device(0)]);
    assert_eq!(driver.late(Duration::from_millis(2)), []);
    driver.release();
    driver.synchronize(stream).unwrap();
    assert!(!driver.expired());
}

#[test]
fn gates_of_two_devices_open_with_the_skew_of_the_description() {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.gpus[1].gate_delay_us = Micros(25.0);
    let driver = open_spec(spec);
    let streams = [0, 1].map(|gpu| driver.create_stream(Device(gpu), StreamKind::Side).unwrap());
    streams.into_iter().for_each(|stream| driver.hold(stream).unwrap());
    driver.release();
    let began = driver.now();
    driver.synchronize(streams[0]).unwrap();
    assert!(driver.now() - began < Duration::from_micros(5));
    driver.synchronize(streams[1]).unwrap();
    let opened = driver.now() - began;
    assert!((Duration::from_micros(24)..Duration::from_micros(30)).contains(&opened), "{opened:?}");
    assert!(!driver.expired());
}
