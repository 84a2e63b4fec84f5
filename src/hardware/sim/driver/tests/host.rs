use super::*;
use crate::spec::{HostFault, HostWay, InitFault, Rate, Ratio};
use hardware::HostDriver;
use hardware::pattern::pattern;
use model::flow::HostMemory::{self, Pageable, Pinned, Registered};

/// A copy between host and device.
#[derive(Clone, Copy)]
struct Copy {
    gpu: u32,
    up: bool,
    memory: HostMemory,
    node: Option<u32>,
    kernel: bool,
}

const fn copy(gpu: u32, up: bool) -> Copy {
    Copy { gpu, up, memory: Pinned, node: None, kernel: false }
}

const BYTES: u64 = 32 * MIB;

/// Runs rows of eight copies, all at the same time, behind a gate unless the memory is pageable. Returns GB/s of each.
fn rates(driver: &SimDriver, copies: &[Copy]) -> Vec<f64> {
    let mut rows = Vec::new();
    for copy in copies {
        let device = Device(copy.gpu);
        let on_host = driver.host_allocate(device, copy.memory, copy.node, BYTES).unwrap();
        let on_device = driver.allocate(device, BYTES).unwrap();
        let stream = driver.create_stream(device, StreamKind::Side).unwrap();
        let [start, end] = [(); 2].map(|()| driver.create_event(device, true).unwrap());
        if copy.memory != Pageable {
            driver.hold(stream).unwrap();
        }
        driver.record(start, stream).unwrap();
        for _ in 0..8 {
            let (to, from) = if copy.up { (on_device, on_host) } else { (on_host, on_device) };
            let engine = if copy.kernel { Engine::Kernel } else { Engine::Copy };
            driver.copy(engine, stream, to, from, BYTES).unwrap();
        }
        driver.record(end, stream).unwrap();
        rows.push((stream, start, end, on_host, on_device));
    }
    driver.release();
    rows.iter().for_each(|row| driver.synchronize(row.0).unwrap());
    assert!(!driver.expired());
    let rate = |(_, start, end, on_host, on_device): (_, Event, Event, Buffer, Buffer)| {
        driver.free(on_host).unwrap();
        driver.free(on_device).unwrap();
        8.0 * BYTES as f64 / driver.elapsed_ns(start, end).unwrap()
    };
    rows.into_iter().map(rate).collect()
}

#[test]
fn host_copies_of_h200_agree_with_the_recorded_ones() {
    let driver = open("h200x8");
    for up in [true, false] {
        near(rates(&driver, &[copy(0, up)])[0], 55.3, 1.0);
        near(rates(&driver, &[Copy { memory: Registered, ..copy(3, up) }])[0], 55.3, 1.0);
        near(rates(&driver, &[Copy { kernel: true, ..copy(0, up) }])[0], 54.5, 2.0);
    }
    for rate in rates(&driver, &[copy(0, true), copy(0, false)]) {
        near(rate, 51.2, 1.0);
    }
    near(rates(&driver, &[Copy { memory: Pageable, ..copy(0, true) }])[0], 8.5, 2.0);
    near(rates(&driver, &[Copy { memory: Pageable, ..copy(0, false) }])[0], 13.5, 2.0);
    for (up, all) in [(true, 149.0), (false, 87.0)] {
        let copies: Vec<_> = (0..8).map(|gpu| copy(gpu, up)).collect();
        near(rates(&driver, &copies).iter().sum(), all, 1.0);
    }
}

#[test]
fn two_copies_one_way_take_turns_and_those_of_both_ways_do_not() {
    let driver = open("single");
    let alone = rates(&driver, &[copy(0, true)])[0];
    let both = rates(&driver, &[copy(0, true), copy(0, true)]);
    // The second waits for the first.
    assert!(both.iter().any(|rate| *rate < 0.6 * alone), "{both:?} {alone}");
    rates(&driver, &[copy(0, true), copy(0, false)])
        .into_iter()
        .for_each(|rate| assert!(rate > 0.9 * alone));
}

#[test]
fn memory_of_another_node_crosses_the_interconnect() {
    let mut spec = builtin::get("two-sockets").unwrap();
    spec.speeds.interconnect_gbps = Rate(10.0);
    let driver = open_spec(spec);
    near(rates(&driver, &[copy(0, true)])[0], 27.1, 3.0);
    let far = Copy { node: Some(1), ..copy(0, true) };
    near(rates(&driver, &[far])[0], 10.0, 3.0);
    near(rates(&driver, &[Copy { up: false, ..far }])[0], 10.0, 3.0);
    near(rates(&driver, &[Copy { gpu: 7, ..far }])[0], 27.1, 3.0);
    assert!(
        driver.host_allocate(Device(0), Pinned, Some(2), MIB).is_err(),
        "there is no such node"
    );
}

#[test]
fn bytes_go_up_and_come_down() {
    let driver = open("single");
    let device = Device(0);
    let stream = driver.create_stream(device, StreamKind::Side).unwrap();
    let gpu = driver.allocate(device, MIB).unwrap();
    for memory in [Pinned, Pageable, Registered] {
        let host = driver.host_allocate(device, memory, None, MIB).unwrap();
        driver.fill(host, MIB, 5).unwrap();
        driver.poison(gpu, MIB, 5).unwrap();
        driver.copy(Engine::Copy, stream, gpu, host, MIB).unwrap();
        driver.synchronize(stream).unwrap();
        assert_eq!(driver.check(&[(gpu, 5.into())], MIB).unwrap()[0].wrong, 0);
        driver.fill(gpu, MIB, 6).unwrap();
        driver.poison(host, MIB, 6).unwrap();
        driver.copy(Engine::Copy, stream, host, gpu, MIB).unwrap();
        assert_eq!(driver.is_idle(stream).unwrap(), memory == Pageable);
        let at_once = driver.check(&[(host, 6.into())], MIB).unwrap()[0];
        // The call has waited for pageable memory; all other copies are still running.
        assert_eq!(at_once.poisoned, if memory == Pageable { 0 } else { MIB / 8 });
        driver.synchronize(stream).unwrap();
        assert!(driver.is_idle(stream).unwrap());
        assert_eq!(driver.check(&[(host, 6.into())], MIB).unwrap()[0].wrong, 0);
        let (mut few, mut all) = ([0; 20], vec![0; MIB as usize]);
        driver.host_read(host, &mut few).unwrap();
        driver.host_read(host, &mut all).unwrap();
        assert_eq!(few, all[..20]);
        let expected: Vec<_> =
            (0..MIB / 8).flat_map(|index| pattern(6, index).to_le_bytes()).collect();
        assert_eq!(all, expected);
        assert_eq!(driver.host_pattern(host, MIB).unwrap(), Some(6.into()));
        driver.host_write(host, 24, Written::Pattern(7, 0)).unwrap();
        assert_eq!(driver.host_pattern(host, 24).unwrap(), Some(7.into()));
        assert_eq!(driver.host_pattern(host, 25).unwrap(), None);
        driver.host_write(host, 24, Written::Bytes(&[1; 24])).unwrap();
        assert_eq!(driver.check(&[(host, 6.into())], MIB).unwrap()[0].wrong, 3);
        driver.free(host).unwrap();
        assert!(driver.fill(host, MIB, 5).is_err(), "it is gone");
    }
    let pageable = driver.host_allocate(device, Pageable, None, MIB).unwrap();
    assert!(driver.copy(Engine::Kernel, stream, gpu, pageable, MIB).is_err(), "it is not mapped");
    let registered = driver.host_register(device, pageable).unwrap();
    assert!(driver.host_register(device, registered).is_err());
    driver.copy(Engine::Kernel, stream, gpu, registered, MIB).unwrap();
    driver.synchronize(stream).unwrap();
    assert_eq!(driver.host_unregister(registered).unwrap(), pageable);
}

#[test]
fn pinning_costs_time_and_memory_and_may_be_refused() {
    let mut spec = builtin::get("h200x2").unwrap();
    let driver = open_spec(spec.clone());
    let (room, began) = (driver.host_room().unwrap(), driver.now());
    let before = driver.process_memory().unwrap().resident.0;
    let pinned = driver.host_allocate(Device(0), Pinned, None, 2 * GIB).unwrap();
    near((driver.now() - began).as_secs_f64(), 1.15, 1.0);
    assert_eq!(driver.process_memory().unwrap().resident.0 - before, 2 * GIB);
    assert_eq!(room.available.0 - driver.host_room().unwrap().available.0, 2 * GIB);
    driver.free(pinned).unwrap();
    assert_eq!(driver.host_room().unwrap(), room);
    spec.faults.pinning = Some(InitFault { code: 2, meaning: "out of memory".into() });
    spec.host.group_leaves = Some(model::units::Bytes(MIB));
    let driver = open_spec(spec);
    for memory in [Pinned, Registered] {
        let error = driver.host_allocate(Device(0), memory, None, MIB).unwrap_err();
        assert!(
            error.kind == ErrorKind::OutOfMemory && error.message.contains("cuMemHost"),
            "{error}"
        );
    }
    // Memory that could not be registered was freed.
    assert_eq!(driver.host_room().unwrap().most(0), MIB / 2);
    driver.host_allocate(Device(0), Pageable, None, MIB).unwrap();
    assert!(
        driver.host_allocate(Device(0), Pageable, None, 1).is_err(),
        "no more than the group leaves"
    );
}

#[test]
fn a_fault_of_host_copies_holds_for_those_that_it_names() {
    let mut spec = builtin::get("h200x2").unwrap();
    let slow = |gpu, direction| HostFault {
        gpu: Some(gpu),
        node: None,
        memory: None,
        direction,
        fault: CopyFault::Slow { share: Ratio(0.5) },
    };
    spec.faults.host = vec![slow(1, Some(HostWay::ToHost))];
    let driver = open_spec(spec);
    near(rates(&driver, &[copy(1, false)])[0], 27.6, 2.0);
    near(rates(&driver, &[copy(1, true)])[0], 55.3, 2.0);
    near(rates(&driver, &[copy(0, false)])[0], 55.3, 2.0);
}
