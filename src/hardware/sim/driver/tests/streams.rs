//! Waiting between streams, events and gates.

use super::*;
use model::placement::{KernelStream, Placement, Side, StreamKind};

/// Runs the experiment of docs/dev/facts.md, "Stream placement and overlap", in one placement. Returns the per cent of
/// the kernel that overlapped.
fn overlap(placement: Placement, compute_on: Side, kernel: KernelStream) -> f64 {
    let driver = open("h200x2");
    enable(&driver, 0, 1);
    let [source, destination] = [0, 1].map(|gpu| driver.allocate(Device(gpu), GIB).unwrap());
    let current = |gpu, kind| driver.create_stream(Device(gpu), kind).unwrap();
    let (from, to) = (current(0, placement.source), current(1, placement.destination));
    let (gpu, own) = match compute_on {
        Side::Source => (0, from),
        Side::Destination => (1, to),
    };
    let compute = match kernel {
        KernelStream::Default => Stream::default_of(Device(gpu)),
        KernelStream::Same => own,
        KernelStream::Other => current(gpu, StreamKind::Side),
    };
    let event = |stream: Stream| driver.create_event(stream.device, true).unwrap();
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
    // Measured on H200 and H100: docs/dev/facts.md, "Stream placement and overlap".
    use StreamKind::{Default, Side as NonBlocking};
    let of_default = |placement: Placement, compute_on| match compute_on {
        Side::Source => placement.source == NonBlocking,
        Side::Destination => placement.source != Default && placement.destination == NonBlocking,
    };
    for placement in Placement::every().filter(|placement| !placement.is_blocking()) {
        for (compute_on, kernel) in
            Side::ALL.into_iter().flat_map(|side| KernelStream::ALL.map(|kernel| (side, kernel)))
        {
            let overlaps = match kernel {
                KernelStream::Default => of_default(placement, compute_on),
                KernelStream::Same => false,
                KernelStream::Other => true,
            };
            let percent = overlap(placement, compute_on, kernel);
            assert!(
                (percent - if overlaps { 100.0 } else { 0.0 }).abs() < 1.0,
                "{placement}, kernel on {compute_on}, {kernel}: {percent:.1}%"
            );
        }
    }
}

#[test]
fn streams_that_are_no_default_stream_do_not_wait_for_each_other() {
    use StreamKind::{PerThread, Side as NonBlocking, SideBlocking};
    for held in [PerThread, SideBlocking, NonBlocking] {
        for free in [PerThread, SideBlocking, NonBlocking] {
            let driver = open("h200x2");
            let [one, other] =
                [held, free].map(|kind| driver.create_stream(Device(0), kind).unwrap());
            // There is one default stream of a thread, however often it is asked for.
            let waits = held == PerThread && free == PerThread;
            assert_eq!(!ends_beside(&driver, one, other), waits, "{held} and {free}");
        }
    }
}

#[test]
fn a_new_stream_waits_for_what_the_default_stream_has_to_do() {
    let kinds = [StreamKind::PerThread, StreamKind::SideBlocking, StreamKind::Side];
    for (kind, waits) in kinds.into_iter().zip([true, true, false]) {
        let driver = open("h200x2");
        driver.hold(Stream::default_of(Device(0))).unwrap();
        let late = driver.create_stream(Device(0), kind).unwrap();
        let before = driver.now();
        driver.spin(late, Duration::from_micros(10)).unwrap();
        driver.synchronize(late).unwrap();
        assert_eq!(driver.now() - before > Duration::from_millis(1), waits, "{kind}");
    }
}

/// Returns true if a short kernel on one stream ends while a gate holds work on the other, enqueued before it.
fn ends_beside(driver: &SimDriver, held: Stream, free: Stream) -> bool {
    driver.hold(held).unwrap();
    let before = driver.now();
    driver.spin(free, Duration::from_micros(10)).unwrap();
    driver.synchronize(free).unwrap();
    driver.release();
    driver.synchronize(held).unwrap();
    driver.now() - before < Duration::from_millis(1)
}

#[test]
fn the_default_stream_and_blocking_streams_of_a_device_wait_for_each_other() {
    let kinds = [StreamKind::PerThread, StreamKind::SideBlocking, StreamKind::Side];
    for (kind, waits) in kinds.into_iter().zip([true, true, false]) {
        for default_first in [true, false] {
            let driver = open("h200x2");
            let [default, own] = [StreamKind::Default, kind]
                .map(|kind| driver.create_stream(Device(0), kind).unwrap());
            let (first, second) = if default_first { (default, own) } else { (own, default) };
            assert_eq!(!ends_beside(&driver, first, second), waits, "{kind}, {default_first}");
            let elsewhere = Stream::default_of(Device(1));
            assert!(ends_beside(&driver, own, elsewhere), "{kind}: another device");
        }
    }
}

#[test]
fn a_driver_may_run_the_default_stream_of_a_thread_on_the_legacy_one() {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.per_thread_is_default = true;
    let driver = open_spec(spec);
    let [thread, default] = [StreamKind::PerThread, StreamKind::Default]
        .map(|kind| driver.create_stream(Device(0), kind).unwrap());
    assert!(!ends_beside(&driver, default, thread));
    assert!(ends_beside(
        &driver,
        thread,
        driver.create_stream(Device(0), StreamKind::Side).unwrap()
    ));
    assert_eq!(thread.id, default.id);
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
                    driver.create_stream(device, StreamKind::Side).unwrap()
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
    let [start, end] = [0, 1].map(|_| driver.create_event(near_by, true).unwrap());
    let elsewhere = driver.create_event(other, true).unwrap();
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
    let stream = driver.create_stream(Device(0), StreamKind::Side).unwrap();
    driver.hold(stream).unwrap();
    driver.spin(stream, Duration::from_millis(1)).unwrap();
    assert!(!driver.expired());
    driver.synchronize(stream).unwrap();
    assert!(driver.now() > Duration::from_secs(5));
    assert!(driver.expired());
    assert!(!driver.expired());
}
