mod compared;
mod conditions;
mod faults;
mod host;
mod rows;
mod streams;
mod talk;

use super::*;
use crate::builtin;
use crate::spec::{
    CopyFault, LinkFault, Noise, PairFault, Pairs, PeerException, PeerRule, Percent, Rate,
    UplinkSpec,
};
use model::placement::{Engine, Path, Side, StreamKind};
use model::snapshot::{P2pStatus, PciKind, PcieErrors};
use model::testing::pcie_link;
use model::units::{GIB, MIB};

/// Opens a machine with all its contexts.
fn open(name: &str) -> SimDriver {
    open_spec(builtin::get(name).unwrap())
}

fn open_spec(spec: MachineSpec) -> SimDriver {
    let driver = SimDriver::new(spec).unwrap();
    let devices: Vec<_> = driver.devices().iter().map(|info| info.device).collect();
    assert!(driver.open(&devices).iter().all(Result::is_ok));
    driver
}

fn enable(driver: &SimDriver, a: u32, b: u32) {
    driver.set_peer_access(Device(a), Device(b), true).unwrap();
    driver.set_peer_access(Device(b), Device(a), true).unwrap();
}

/// One direction of a measurement: the ends of the copies and their issuer.
#[derive(Clone, Copy)]
struct Leg {
    source: u32,
    destination: u32,
    issuer: u32,
    kernel: bool,
}

const fn leg(source: u32, destination: u32) -> Leg {
    Leg { source, destination, issuer: source, kernel: false }
}

/// Runs gated copies on all legs at once. Returns the nanoseconds that each leg took.
fn run(driver: &SimDriver, legs: &[Leg], bytes: u64, count: u32) -> Vec<f64> {
    let mut events = Vec::new();
    let mut buffers = Vec::new();
    for leg in legs {
        let source = driver.allocate(Device(leg.source), bytes).unwrap();
        let destination = driver.allocate(Device(leg.destination), bytes).unwrap();
        let device = Device(leg.issuer);
        let stream = driver.create_stream(device, StreamKind::Side).unwrap();
        let (start, end) = (
            driver.create_event(device, true).unwrap(),
            driver.create_event(device, true).unwrap(),
        );
        driver.hold(stream).unwrap();
        driver.record(start, stream).unwrap();
        for _ in 0..count {
            let engine = if leg.kernel { Engine::Kernel } else { Engine::Copy };
            driver.copy(engine, stream, destination, source, bytes).unwrap();
        }
        driver.record(end, stream).unwrap();
        events.push((stream, start, end));
        buffers.extend([source, destination]);
    }
    driver.release();
    for (stream, ..) in &events {
        driver.synchronize(*stream).unwrap();
    }
    assert!(!driver.expired());
    buffers.into_iter().for_each(|buffer| driver.free(buffer).unwrap());
    events.into_iter().map(|(_, start, end)| driver.elapsed_ns(start, end).unwrap()).collect()
}

#[allow(clippy::cast_precision_loss)]
fn gbps(driver: &SimDriver, legs: &[Leg], bytes: u64, count: u32) -> Vec<f64> {
    run(driver, legs, bytes, count).iter().map(|ns| bytes as f64 * f64::from(count) / ns).collect()
}

#[track_caller]
fn near(figure: f64, recorded: f64, percent: f64) {
    assert!(
        (figure / recorded - 1.0).abs() <= percent / 100.0,
        "{figure:.2} is not within {percent}% of {recorded}"
    );
}

#[test]
fn h200_figures_agree_with_the_recorded_ones() {
    let driver = open("h200x8");
    let staged = [leg(0, 1)];
    near(gbps(&driver, &staged, 512 * MIB, 4)[0], 37.0, 2.0);
    near(run(&driver, &staged, 4, 100)[0] / 100.0, 16e3, 2.0);
    for both in gbps(&driver, &[leg(0, 1), leg(1, 0)], 512 * MIB, 4) {
        near(both, 26.0, 2.0);
    }
    (0..8).for_each(|a| (0..a).for_each(|b| enable(&driver, a, b)));
    for (mib, count, recorded) in [
        (512, 8, 396.3),
        (512, 1, 394.0),
        (64, 8, 388.0),
        (64, 1, 371.0),
        (16, 1, 311.0),
        (1, 1, 88.0),
    ] {
        near(gbps(&driver, &[leg(0, 1)], mib * MIB, count)[0], recorded, 0.5);
    }
    let issued_by_destination = Leg { issuer: 1, ..leg(0, 1) };
    for (mib, recorded) in [(512, 392.0), (64, 363.0), (1, 48.0)] {
        near(gbps(&driver, &[issued_by_destination], mib * MIB, 1)[0], recorded, 2.0);
    }
    let (push, pull) =
        (Leg { kernel: true, ..leg(0, 1) }, Leg { kernel: true, ..issued_by_destination });
    near(gbps(&driver, &[push], 512 * MIB, 8)[0], 365.0, 1.0);
    near(gbps(&driver, &[pull], 512 * MIB, 8)[0], 370.0, 1.0);
    near(run(&driver, &[leg(0, 1)], 4, 100)[0] / 100.0, 2.8e3, 2.0);
    for both in gbps(&driver, &[leg(0, 1), leg(1, 0)], 512 * MIB, 8) {
        near(both, 392.0, 1.0);
    }
    let disjoint = [leg(0, 1), leg(2, 3), leg(4, 5), leg(6, 7)];
    gbps(&driver, &disjoint, 512 * MIB, 8).into_iter().for_each(|rate| near(rate, 395.0, 1.0));
    let ring: Vec<_> = (0..8).map(|gpu| leg(gpu, (gpu + 1) % 8)).collect();
    gbps(&driver, &ring, 512 * MIB, 8).into_iter().for_each(|rate| near(rate, 390.0, 1.0));
    let to_one: Vec<_> = (1..8).map(|gpu| leg(gpu, 0)).collect();
    near(gbps(&driver, &to_one, 512 * MIB, 4).iter().sum(), 399.0, 1.0);
    // All pairs one after the other: 395.4 to 396.4 for each.
    for pair in [leg(0, 7), leg(3, 4), leg(6, 2)] {
        near(gbps(&driver, &[pair], 512 * MIB, 4)[0], 395.9, 0.5);
    }
}

#[test]
fn more_copies_leave_at_once_than_there_are_engines_and_the_rate_is_the_same_in_all() {
    let driver = open("h200x8");
    (1..8).for_each(|gpu| enable(&driver, 0, gpu));
    let from_one: Vec<_> = (1..8).map(|gpu| leg(0, gpu)).collect();
    let slowest = run(&driver, &from_one, 512 * MIB, 1).into_iter().fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss)]
    near(7.0 * (512 * MIB) as f64 / slowest, 399.0, 2.0);
}

#[test]
fn the_narrow_link_of_the_demo_machine_shows_in_its_rate_and_two_over_it_halve() {
    let driver = open("demo");
    (0..8).filter(|gpu| *gpu != 5).for_each(|gpu| enable(&driver, gpu, 5));
    enable(&driver, 0, 1);
    enable(&driver, 0, 4);
    near(gbps(&driver, &[leg(0, 1)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
    near(gbps(&driver, &[leg(0, 4)], 256 * MIB, 4)[0], 0.72 * 31.5, 1.0);
    near(gbps(&driver, &[leg(4, 5)], 256 * MIB, 4)[0], 6.5, 2.0);
    let alone = gbps(&driver, &[leg(4, 5)], 256 * MIB, 4)[0];
    for shared in gbps(&driver, &[leg(4, 5), leg(6, 5)], 256 * MIB, 4) {
        near(shared, alone / 2.0, 5.0);
    }
    for beside in
        gbps(&driver, &[leg(4, 5), leg(0, 1)], 256 * MIB, 1).iter().zip([alone, 0.83 * 31.5])
    {
        near(*beside.0, beside.1, 2.0);
    }
}

#[test]
fn without_peer_access_copies_are_staged_and_hold_the_host() {
    let driver = open("demo");
    assert!(!driver.can_access_peer(Device(1), Device(6)).unwrap());
    assert!(driver.can_access_peer(Device(1), Device(5)).unwrap());
    assert_eq!(
        driver.set_peer_access(Device(1), Device(6), true).unwrap_err().kind,
        ErrorKind::Unsupported
    );
    near(gbps(&driver, &[leg(1, 6)], 256 * MIB, 4)[0], 0.4 * 31.5, 1.0);
    let [source, destination] = [1, 6].map(|gpu| driver.allocate(Device(gpu), 512 * MIB).unwrap());
    let before = driver.now();
    driver
        .copy(Engine::Copy, Stream::default_of(Device(1)), destination, source, 512 * MIB)
        .unwrap();
    let held = driver.now() - before;
    assert!(held > Duration::from_micros(1700) && held < Duration::from_millis(2), "{held:?}");
    enable(&driver, 1, 0);
    let near_by = driver.allocate(Device(0), 512 * MIB).unwrap();
    let before = driver.now();
    driver.copy(Engine::Copy, Stream::default_of(Device(1)), near_by, source, 512 * MIB).unwrap();
    assert!(driver.now() - before < Duration::from_micros(15));
}

#[test]
fn a_kernel_without_peer_access_takes_its_context_down() {
    let driver = open("h200x2");
    let [source, destination] = [0, 1].map(|gpu| driver.allocate(Device(gpu), MIB).unwrap());
    // Access in the other direction does not help a kernel.
    driver.set_peer_access(Device(1), Device(0), true).unwrap();
    let stream = Stream::default_of(Device(0));
    driver.copy(Engine::Kernel, stream, destination, source, MIB).unwrap();
    let error = driver.synchronize(stream).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Sticky);
    assert!(error.message.contains("700"), "{error}");
    assert_eq!(driver.allocate(Device(0), 1), Err(error));
    assert!(driver.allocate(Device(1), 1).is_ok());
}

/// Fills, poisons, copies once, and checks on the destination.
fn verify(driver: &SimDriver, source: u32, destination: u32, bytes: u64) -> PatternCheck {
    let (from, to) = (Device(source), Device(destination));
    let (source, destination) =
        (driver.allocate(from, bytes).unwrap(), driver.allocate(to, bytes).unwrap());
    driver.fill(source, bytes, 7).unwrap();
    driver.poison(destination, bytes, 7).unwrap();
    let stream = driver.create_stream(from, StreamKind::Side).unwrap();
    driver.copy(Engine::Copy, stream, destination, source, bytes).unwrap();
    let check = |bytes| driver.check(&[(destination, 7.into())], bytes).unwrap()[0];
    assert_eq!(check(8).poisoned, 1, "the copy has not been waited for");
    driver.synchronize(stream).unwrap();
    let check = check(bytes);
    driver.free(source).unwrap();
    driver.free(destination).unwrap();
    check
}

#[test]
fn bytes_arrive_or_do_not_as_the_machine_says() {
    let bytes = 512 * MIB;
    let words = bytes / 8;
    let healthy = open("h200x2");
    enable(&healthy, 0, 1);
    assert_eq!(verify(&healthy, 0, 1, bytes), PatternCheck { words, ..PatternCheck::NONE });

    let dropping = open("writes-dropped");
    assert_eq!(verify(&dropping, 0, 1, bytes).wrong, 0, "staged copies arrive");
    enable(&dropping, 0, 1);
    let dropped = PatternCheck {
        words,
        wrong: words,
        poisoned: words,
        first_wrong: Some(0),
        copies: 1,
        ..PatternCheck::NONE
    };
    assert_eq!(verify(&dropping, 0, 1, bytes), dropped);

    let corrupting = open_spec(faulty(CopyFault::Corrupt { words: 5 }, None));
    enable(&corrupting, 0, 1);
    let check = verify(&corrupting, 0, 1, bytes);
    assert_eq!((check.wrong, check.poisoned), (5, 0));
    assert_eq!(verify(&corrupting, 1, 0, bytes).wrong, 0);
}

/// Returns two H200 with a fault of the copies from the first to the second.
fn faulty(fault: CopyFault, engine: Option<Engine>) -> MachineSpec {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.pairs.push(PairFault { engine, ..PairFault::new(Pairs::Ordered(0, 1), fault) });
    spec
}

#[test]
fn noise_lengthens_copies_within_its_bound_and_is_the_same_for_the_same_seed() {
    let with = |percent, seed, fault: Option<CopyFault>| -> Vec<f64> {
        let mut spec = builtin::get("h200x2").unwrap();
        spec.noise = Noise { percent: Percent(percent), seed };
        spec.faults.pairs.extend(fault.map(|fault| PairFault::new(Pairs::All, fault)));
        let driver = open_spec(spec);
        enable(&driver, 0, 1);
        (0..200).map(|_| run(&driver, &[leg(0, 1)], 64 * MIB, 1)[0]).collect()
    };
    let clean = with(0.0, 1, None)[0];
    for noisy in
        [with(8.0, 1, None), with(0.0, 1, Some(CopyFault::Unstable { percent: Percent(8.0) }))]
    {
        let longer: Vec<f64> = noisy.iter().map(|ns| 100.0 * (ns / clean - 1.0)).collect();
        assert!(longer.iter().all(|percent| (-1e-6..=8.0).contains(percent)), "{longer:?}");
        let mean = longer.iter().sum::<f64>() / 200.0;
        assert!((3.2..4.8).contains(&mean), "evenly between 0 and 8: {mean}");
    }
    assert_eq!(with(8.0, 1, None), with(8.0, 1, None));
    assert_ne!(with(8.0, 1, None), with(8.0, 2, None));
}

#[test]
fn a_link_that_trains_down_carries_what_it_came_down_to() {
    let mut spec = builtin::get("pair-hangs").unwrap();
    spec.faults.links.push(LinkFault {
        function: spec.gpus[3].pci,
        trains_down_to: Some(pcie_link(4, 4)),
        replays: 0,
        errors: PcieErrors::default(),
        only_under_load: false,
    });
    let driver = open_spec(spec);
    enable(&driver, 2, 3);
    near(gbps(&driver, &[leg(2, 3)], 256 * MIB, 4)[0], 0.83 * 7.88, 1.0);
}

#[test]
fn a_shared_uplink_limits_what_passes_it_and_what_turns_around_below_does_not() {
    let mut spec = builtin::get("pair-hangs").unwrap();
    spec.pci.iter_mut().for_each(|function| function.acs_redirect = false);
    let roots: Vec<_> = spec
        .pci
        .iter()
        .filter(|function| function.kind == PciKind::RootPort)
        .map(|port| port.address)
        .collect();
    spec.uplinks.push(UplinkSpec { ports: vec![roots[0]], gbps: Rate(7.88) });
    let driver = open_spec(spec.clone());
    (0..4).for_each(|a| (0..a).for_each(|b| enable(&driver, a, b)));
    // The uplink is above GPUs 0 and 1, but not above 2 and 3.
    near(gbps(&driver, &[leg(0, 1)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
    near(gbps(&driver, &[leg(0, 2)], 256 * MIB, 4)[0], 0.83 * 7.88, 1.0);
    for both in gbps(&driver, &[leg(0, 2), leg(1, 3)], 256 * MIB, 4) {
        near(both, 0.86 * 7.88 / 2.0, 1.0);
    }
    driver.set_peer_access(Device(0), Device(2), false).unwrap();
    driver.set_peer_access(Device(2), Device(0), false).unwrap();
    near(gbps(&driver, &[leg(2, 0)], 256 * MIB, 4)[0], 0.4 * 7.88, 2.0);

    spec.uplinks[0].ports.push(roots[1]);
    let driver = open_spec(spec);
    enable(&driver, 0, 2);
    near(gbps(&driver, &[leg(0, 2)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
}

#[test]
fn cuda_shows_the_devices_that_it_is_told_to_in_that_order() {
    let shown = |visible: &[u32]| -> Result<Vec<u32>, HardwareError> {
        let mut spec = builtin::get("gpu-lost").unwrap();
        spec.visible_devices = Some(visible.to_vec());
        let all: Vec<_> = spec.gpus.iter().map(|gpu| Some(gpu.pci)).collect();
        let place = |info: &DeviceInfo| {
            u32::try_from(all.iter().position(|pci| *pci == info.pci).unwrap()).unwrap()
        };
        SimDriver::new(spec).map(|driver| driver.devices().iter().map(place).collect())
    };
    assert_eq!(shown(&[3, 0]), Ok(vec![3, 0]));
    assert_eq!(shown(&[2, 9, 0]), Ok(vec![2]), "an entry that is none hides all after it");
    assert_eq!(shown(&[2, 1, 0]), Ok(vec![2]), "so does one that fell off the bus");
    assert_eq!(shown(&[2, 2, 0]), Ok(vec![2]));
    assert!(shown(&[]).unwrap_err().message.contains("100"));
}

#[test]
fn memory_is_limited_and_does_not_outlive_its_return() {
    let driver = open("single");
    let all = driver.memory(Device(0)).unwrap();
    assert_eq!(driver.allocate(Device(0), all.free + 1).unwrap_err().kind, ErrorKind::OutOfMemory);
    let buffer = driver.allocate(Device(0), GIB).unwrap();
    assert_eq!(driver.memory(Device(0)).unwrap().free, all.free - GIB);
    driver.free(buffer).unwrap();
    assert_eq!(driver.memory(Device(0)).unwrap(), all);
    assert!(driver.free(buffer).is_err());
    assert!(driver.fill(buffer, 8, 1).is_err());
    assert!(driver.copy(Engine::Copy, Stream::default_of(Device(0)), buffer, buffer, 8).is_err());
}

#[test]
fn peer_access_has_its_limits() {
    let driver = open("pcie16");
    for peer in 1..=8 {
        driver.set_peer_access(Device(0), Device(peer), true).unwrap();
        driver.set_peer_access(Device(0), Device(peer), true).unwrap();
    }
    assert!(
        driver.set_peer_access(Device(0), Device(9), true).unwrap_err().message.contains("711")
    );
    driver.set_peer_access(Device(0), Device(1), false).unwrap();
    driver.set_peer_access(Device(0), Device(9), true).unwrap();

    let mut spec = builtin::get("h200x2").unwrap();
    let rule =
        PeerRule { nvml: P2pStatus::Ok, nvml_write: None, cuda: CudaPeerRule::RefusedOnEnabling };
    spec.peers.exceptions.push(PeerException { pairs: Pairs::All, rule });
    let patched = open_spec(spec);
    assert!(patched.can_access_peer(Device(0), Device(1)).unwrap());
    assert!(patched.set_peer_access(Device(0), Device(1), true).is_err());
}

#[test]
fn a_device_needs_its_context_and_a_lost_one_is_not_shown() {
    let driver = SimDriver::new(builtin::get("gpu-lost").unwrap()).unwrap();
    assert_eq!(driver.devices().len(), 3);
    assert_eq!(
        driver.devices()[1].uuid.as_deref(),
        Some("GPU-00000000-0000-0000-0000-000000000002")
    );
    assert!(driver.allocate(Device(0), 1).unwrap_err().message.contains("201"));
    assert_eq!(
        driver.open(&[Device(0), Device(7)]).iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false]
    );
    assert!(driver.allocate(Device(0), 1).is_ok());
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    for (name, code) in [("none", "100"), ("fabric-down", "802")] {
        let error = SimDriver::new(builtin::get(name).unwrap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
        assert!(error.message.contains(code), "{error}");
    }
}

#[test]
fn without_kernels_copy_engines_still_work() {
    let driver = open("no-kernels");
    assert!(driver.kernels_failure(Device(0)).is_some());
    enable(&driver, 0, 1);
    near(gbps(&driver, &[leg(0, 1)], 512 * MIB, 8)[0], 396.3, 1.0);
    assert_eq!(
        driver.spin(Stream::default_of(Device(0)), Duration::ZERO).unwrap_err().kind,
        ErrorKind::Unsupported
    );
}

#[test]
fn copies_that_hang_or_crash_are_declared_for_one_pair() {
    // Running one would hang or crash this process too.
    let fault = |machine: &str, source, destination, engine| {
        let fault = builtin::get(machine).unwrap().copy_fault(
            (source, destination),
            engine,
            Side::Source,
            Path::Direct,
        );
        fault.map(|fault| fault.fault)
    };
    assert_eq!(fault("pair-hangs", 1, 2, Engine::Copy), Some(CopyFault::Hangs));
    assert_eq!(fault("pair-hangs", 2, 1, Engine::Copy), None);
    assert_eq!(fault("crash", 2, 0, Engine::Kernel), Some(CopyFault::Crashes));
    let driver = open("pair-hangs");
    enable(&driver, 1, 2);
    enable(&driver, 1, 3);
    let [source, there] = [1, 2].map(|gpu| driver.allocate(Device(gpu), MIB).unwrap());
    driver
        .copy(
            Engine::Copy,
            driver.create_stream(Device(1), StreamKind::Side).unwrap(),
            there,
            source,
            MIB,
        )
        .unwrap();
    near(gbps(&driver, &[leg(1, 3)], 256 * MIB, 4)[0], 0.83 * 31.5, 1.0);
}
