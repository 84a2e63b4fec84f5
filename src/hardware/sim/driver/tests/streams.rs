//! Waiting between streams, events and gates.

use super::*;
use model::placement::{HostMode, Placement, Side, StreamKind};

/// Runs the experiment of docs/dev/facts.md, "Stream placement and overlap", in one placement. Returns the per cent of
/// the kernel that overlapped.
fn overlap(placement: Placement, compute_on: Side) -> f64 {
    let driver = open("h200x2");
    enable(&driver, 0, 1);
    let [source, destination] = [0, 1].map(|gpu| driver.allocate(Device(gpu), GIB).unwrap());
    let current = |gpu, kind| match kind {
        StreamKind::Default => Stream::default_of(Device(gpu)),
        StreamKind::Side => driver.create_stream(Device(gpu)).unwrap(),
    };
    let (from, to) = (current(0, placement.source), current(1, placement.destination));
    let compute = Stream::default_of(Device(u32::from(compute_on == Side::Destination)));
    let event = |stream: Stream| driver.create_event(stream.device).unwrap();
    let (there, copied) = (event(to), event(from));
    let (copy_start, copy_end, kernel_start, kernel_end) =
        (event(from), event(from), event(compute), event(compute));
    // Both clocks start when the gates open.
    for stream in [from, compute] {
        driver.hold(stream).unwrap();
    }
    driver.record(kernel_start, compute).unwrap();
    driver.record(copy_start, from).unwrap();
    driver.record(there, to).unwrap();
    driver.wait(from, there).unwrap();
    driver.copy(Engine::Copy, from, destination, source, GIB).unwrap();
    driver.record(copy_end, from).unwrap();
    driver.record(copied, from).unwrap();
    driver.wait(to, copied).unwrap();
    driver.spin(compute, Duration::from_micros(1980)).unwrap();
    driver.record(kernel_end, compute).unwrap();
    driver.release();
    driver.synchronize(from).unwrap();
    driver.synchronize(compute).unwrap();
    assert!(!driver.expired());
    let copy_ns = driver.elapsed_ns(copy_start, copy_end).unwrap();
    let kernel_end_ns = driver.elapsed_ns(kernel_start, kernel_end).unwrap();
    near(copy_ns, 2.7e6, 2.0);
    100.0 * (copy_ns.min(kernel_end_ns) - (kernel_end_ns - 1.98e6)).max(0.0) / 1.98e6
}

#[test]
fn the_overlap_table_comes_out_of_the_stream_semantics() {
    let (default, side) = (StreamKind::Default, StreamKind::Side);
    let table = [((default, default), 0.0, 0.0), ((default, side), 0.0, 0.0)]
        .into_iter()
        .chain([((side, default), 0.0, 100.0), ((side, side), 100.0, 100.0)]);
    for ((source, destination), on_receiver, on_sender) in table {
        let placement = Placement { source, destination, host: HostMode::NonBlocking };
        for (compute_on, expected) in [(Side::Destination, on_receiver), (Side::Source, on_sender)]
        {
            let percent = overlap(placement, compute_on);
            assert!(
                (percent - expected).abs() < 1.0,
                "{placement}, kernel on {compute_on}: {percent:.1}%"
            );
            assert_eq!(placement.should_overlap(compute_on), expected > 50.0);
        }
    }
}

#[test]
fn default_streams_of_both_devices_wait_for_a_copy_that_either_of_them_issues() {
    for issuer in [0, 1] {
        for (side_stream, waits) in [(false, true), (true, false)] {
            for kernel_on in [0, 1] {
                let driver = open("h200x2");
                enable(&driver, 0, 1);
                let [source, destination] =
                    [0, 1].map(|gpu| driver.allocate(Device(gpu), GIB).unwrap());
                driver
                    .copy(
                        Engine::Copy,
                        Stream::default_of(Device(issuer)),
                        destination,
                        source,
                        GIB,
                    )
                    .unwrap();
                let device = Device(kernel_on);
                let stream = if side_stream {
                    driver.create_stream(device).unwrap()
                } else {
                    Stream::default_of(device)
                };
                driver.spin(stream, Duration::from_micros(100)).unwrap();
                driver.synchronize(stream).unwrap();
                let waited = driver.now() > Duration::from_millis(2);
                assert_eq!(
                    waited, waits,
                    "issued on {issuer}, kernel on {kernel_on}, side stream {side_stream}"
                );
            }
        }
    }
}

#[test]
fn events_are_exact_about_what_they_can_tell() {
    let driver = open("h200x2");
    let (near_by, other) = (Device(0), Device(1));
    let [start, end] = [0, 1].map(|_| driver.create_event(near_by).unwrap());
    let elsewhere = driver.create_event(other).unwrap();
    let stream = Stream::default_of(near_by);
    assert!(driver.elapsed_ns(start, end).unwrap_err().message.contains("400"));
    assert!(driver.record(elsewhere, stream).is_err());
    driver.wait(stream, elsewhere).unwrap();
    driver.record(start, stream).unwrap();
    driver.spin(stream, Duration::from_millis(1)).unwrap();
    driver.record(end, stream).unwrap();
    assert!(driver.elapsed_ns(start, end).unwrap_err().message.contains("600"));
    driver.synchronize(stream).unwrap();
    near(driver.elapsed_ns(start, end).unwrap(), 1e6, 0.5);
}

#[test]
fn a_stream_that_is_never_released_opens_by_itself_and_says_so_once() {
    let driver = open("single");
    let stream = driver.create_stream(Device(0)).unwrap();
    driver.hold(stream).unwrap();
    driver.spin(stream, Duration::from_millis(1)).unwrap();
    assert!(!driver.expired());
    driver.synchronize(stream).unwrap();
    assert!(driver.now() > Duration::from_secs(5));
    assert!(driver.expired());
    assert!(!driver.expired());
}
