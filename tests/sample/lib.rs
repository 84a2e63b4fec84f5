//! Reports for tests: facts of simulated machines, judged by the rules.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::time::Duration;

use diagnose::{self, Evidence, Settings};
use model::counted::{Counted, LinkShare};
use model::finding::Severity;
use model::flow::{Flow, HostMemory, Setup};
use model::host::{HostCopy, HostDirection};
use model::load::{LoadPattern, Pattern};
use model::measurement::{
    CudaDevice, Latency, LinkUnderLoad, LocalCopy, Measurements, Overlap, PeerBandwidth, Status,
    Verified,
};
use model::placement::{Direction, Engine, HostMode, KernelStream, Pair, Path, Placement, Side};
use model::reading::{Reading, Unknown};
use model::report::{Conclusion, Report, SCHEMA, Timing, Tool, Verdict};
use model::request::{LeftOutGpu, Request, Silenced};
use model::snapshot::{Gpu, Host, SlowFact, Snapshot};
use model::testing::{host_copy, pinning};
use model::topology::Topology;
use model::units::{Bytes, GIB, GbPerSecond, MIB};
use run::discover::discover;
use sim::spec::MachineSpec;
use sim::{self, builtin, load};

/// Judges what was measured and returns the report.
fn judged(snapshot: Snapshot, topology: Topology, mut measurements: Measurements) -> Report {
    let settings = Settings::default();
    measurements.profile = "standard".into();
    let mut report = Report {
        schema: SCHEMA.into(),
        tool: Tool { name: "peerscope".into(), version: "0.0.0".into() },
        started_at: "2026-11-20T03:12:45Z".into(),
        machine: Report::LIVE.into(),
        request: Request::default(),
        read_from: None,
        watched: None,
        snapshot,
        topology,
        measurements: Some(measurements),
        findings: Vec::new(),
        changes: None,
        advice: Vec::new(),
        verdict: Verdict::default(),
        timing: Timing { discover: 0.093, driver_start: 3.71, total: 5.24, ..Timing::default() },
    };
    diagnose::complete(&mut report, &settings);
    report.findings = diagnose::judge(&Evidence::of(&report, &settings));
    let measurements = report.measurements.as_ref();
    report.verdict = diagnose::verdict(&report.findings, measurements, Severity::Error);
    report.advice = measurements.map(diagnose::advise).unwrap_or_default();
    report.timing.measure = 1.42;
    report
}

/// Returns the facts of a simulated machine with synthetic measurements: every pair performs like a healthy one. Real
/// runs would take minutes.
fn measured(spec: MachineSpec) -> (Snapshot, Topology, Measurements) {
    let snapshot = discover(sim::telemetry(spec), SlowFact::ALL, Duration::from_secs(600));
    let topology = topology::build(&snapshot);
    let mut measurements = Measurements::default();
    let count = u32::try_from(snapshot.gpus.len()).unwrap();
    measurements.pinning.push(pinning());
    for gpu in &snapshot.gpus {
        let (index, budget_bytes) = (gpu.index, Some(Bytes(8 * GIB)));
        measurements.driver.devices.push(CudaDevice {
            index,
            ordinal: Some(index),
            budget_bytes,
            ..CudaDevice::default()
        });
        let generation = gpu.pcie_generation_max.get().map(|generation| [generation.number(); 2]);
        let width = gpu.pcie_width.get().map(|width| [width.number(); 2]);
        measurements.local.push(LocalCopy {
            achieved_gbps: Some(GbPerSecond(2094.0 - f64::from(index % 5))),
            samples: 3,
            spread_percent: Some(0.1),
            ..LocalCopy::blank(index, Bytes(256 * MIB))
        });
        host_copies(&mut measurements, index, count);
        measurements.links.push(LinkUnderLoad {
            index,
            readings: 210,
            generation,
            width,
            ..LinkUnderLoad::default()
        });
    }
    let gpus: Vec<_> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    for pair in Pair::ordered(&gpus) {
        if let Some(theoretical) = topology.route(pair).and_then(|route| route.theoretical_gbps) {
            measure(&mut measurements, pair, theoretical.0);
        }
    }
    rates_of_host_copies(&snapshot, &topology, &mut measurements.host);
    (snapshot, topology, measurements)
}

/// Adds every measurement between a GPU and the host. The rates are shares of the theoretical ones until those are
/// known.
fn host_copies(into: &mut Measurements, gpu: u32, gpus: u32) {
    use HostDirection::{BothWays, ToDevice, ToHost};
    use HostMemory::{Pageable, Pinned};
    let copies = [
        (Pinned, ToDevice, 1, 0.878),
        (Pinned, ToHost, 1, 0.876),
        (Pinned, BothWays, 1, 0.813),
        (Pageable, ToDevice, 1, 0.137),
        (Pageable, ToHost, 1, 0.219),
        (Pinned, ToDevice, gpus, 0.296),
        (Pinned, ToHost, gpus, 0.173),
    ];
    for (memory, direction, at_once, share) in copies.into_iter().take(if gpus > 1 { 7 } else { 5 })
    {
        into.host.push(HostCopy { memory, direction, at_once, ..host_copy(gpu, share) });
    }
}

/// Returns eight H200 with measurements of several flows at once, and counters around a ring.
pub fn loaded() -> Report {
    let mut report = healthy(8);
    let Some(measurements) = &mut report.measurements else {
        return report;
    };
    let ring: Vec<Flow> =
        (0..8).map(|source| Pair { source, destination: (source + 1) % 8 }.into()).collect();
    let to_one: Vec<Flow> = (1..8).map(|source| Pair { source, destination: 0 }.into()).collect();
    for (pattern, of, flows, each) in
        [(Pattern::AllToOne, "GPU 0", to_one, 57.0), (Pattern::Ring, "", ring, 390.0)]
    {
        let mut load = LoadPattern::without(pattern, of.into(), &flows, Status::Measured, None);
        load.flows.iter_mut().for_each(|flow| flow.achieved_gbps = Some(GbPerSecond(each)));
        load.achieved_gbps = Some(GbPerSecond(load.flows.iter().map(|_| each).sum()));
        (load.samples, load.spread_percent, load.verified) = (3, Some(0.4), Verified::Ok);
        measurements.load.push(load);
    }
    measurements.counted = (0..8).map(counted).collect();
    diagnose::complete(&mut report, &Settings::default());
    report
}

/// Returns the counters of a GPU around a ring.
fn counted(gpu: u32) -> Counted {
    let mut seen = Counted::unread(gpu, Pattern::Ring, String::new(), None);
    (seen.sent_bytes, seen.received_bytes) = (Bytes(18 * GIB), Bytes(18 * GIB));
    (seen.nvlink_sent_bytes, seen.nvlink_received_bytes) =
        (Some(Bytes(18 * GIB)), Some(Bytes(18 * GIB)));
    let all = Some(Bytes(GIB));
    let link = |link| LinkShare {
        link,
        sent_bytes: all,
        received_bytes: all,
        sent_percent: None,
        received_percent: None,
    };
    seen.links = (0..18).map(link).collect();
    seen.share();
    seen
}

/// Converts shares into rates.
fn rates_of_host_copies(snapshot: &Snapshot, topology: &Topology, copies: &mut [HostCopy]) {
    topology::host::fill(snapshot, topology, copies);
    for copy in copies.iter_mut() {
        let rates = copy.achieved_gbps.zip(copy.theoretical_gbps);
        copy.achieved_gbps = rates.map(|(share, theory)| GbPerSecond(share.0 * theory.0));
    }
    topology::host::fill(snapshot, topology, copies);
}

/// Adds every measurement of a pair.
fn measure(into: &mut Measurements, pair: Pair, theoretical: f64) {
    let blocks = |placement: Placement| placement.host == HostMode::Blocking;
    let reference = Setup::REFERENCE.with_bytes(Bytes(512 * MIB));
    let mut copies: Vec<_> =
        Placement::all().map(|placement| (reference.with_placement(placement), 0.88)).collect();
    copies.extend([
        (reference.with_issuer(Side::Destination), 0.87),
        (reference.with_engine(Engine::Kernel), 0.81),
        (reference.with_engine(Engine::Kernel).with_issuer(Side::Destination), 0.82),
        (reference.with_direction(Direction::BothWays), 0.865),
        (reference.with_path(Path::Staged), 0.58),
    ]);
    for (setup, share) in copies {
        let theory = if setup.path == Path::Staged { theoretical.min(63.0) } else { theoretical };
        // Vary the share a little for every pair.
        let share = share * (1.0 - f64::from((pair.source * 7 + pair.destination * 3) % 5) * 5e-4);
        into.peer.push(PeerBandwidth {
            achieved_gbps: Some(GbPerSecond(theory * share)),
            theoretical_gbps: Some(GbPerSecond(theory)),
            percent: Some(100.0 * share),
            samples: 8,
            spread_percent: Some(0.4),
            fixed_cost_us: (setup.engine == Engine::Copy).then_some(9.8),
            host_blocked_us: Some(if blocks(setup.placement) { 1360.0 } else { 6.2 }),
            verified: Verified::Ok,
            ..PeerBandwidth::blank(pair, setup)
        });
    }
    for placement in Placement::all() {
        for compute_on in [Side::Source, Side::Destination] {
            let overlaps = placement.should_overlap(compute_on, KernelStream::Default);
            into.overlap.push(Overlap {
                overlap_percent: Some(if overlaps { 99.6 } else { 0.2 }),
                host_blocked_us: Some(if blocks(placement) { 1362.4 } else { 7.1 }),
                copy_us: Some(1360.0),
                kernel_us: Some(990.0),
                samples: 3,
                ..Overlap::blank(
                    pair,
                    placement,
                    compute_on,
                    KernelStream::Default,
                    reference.bytes,
                )
            });
        }
    }
    for (path, latency) in [(Path::Direct, 2.31), (Path::Staged, 14.9)] {
        into.latency.push(Latency {
            latency_us: Some(latency + f64::from(pair.destination) * 0.12),
            samples: 20,
            spread_percent: Some(6.0),
            ..Latency::blank(pair, path, Bytes(16))
        });
    }
}

/// Returns healthy H200s on NVSwitch in a virtual machine.
pub fn healthy(gpus: u8) -> Report {
    let mut spec = builtin::get("h200x8").unwrap();
    let gpu = spec.gpus.swap_remove(0);
    let (functions, others): (Vec<_>, Vec<_>) = spec.pci.into_iter().partition(|function| {
        function.address == gpu.pci || spec.gpus.iter().any(|gpu| gpu.pci == function.address)
    });
    spec.pci = others;
    spec.gpus.clear();
    for index in 0..gpus {
        let (mut gpu, mut function) = (gpu.clone(), functions[0].clone());
        gpu.pci.device = 6 + index;
        function.address = gpu.pci;
        spec.gpus.push(gpu);
        spec.pci.push(function);
    }
    let (snapshot, topology, measurements) = measured(spec);
    judged(snapshot, topology, measurements)
}

/// Returns a report without a started driver, so that every measurement is missing; the run was interrupted.
pub fn nothing_measured() -> Report {
    let mut report = healthy(8);
    let mut measurements = report.measurements.take().unwrap();
    let why = "cuInit failed with 802: system not yet initialized (is the fabric manager running?)";
    measurements.driver.failure = Some(why.into());
    measurements.overlap.clear();
    measurements.latency.clear();
    measurements.local.clear();
    measurements.host.clear();
    measurements.pinning.clear();
    measurements.links.clear();
    measurements.interrupted = true;
    for peer in &mut measurements.peer {
        peer.achieved_gbps = None;
        peer.percent = None;
        peer.ending.status = Status::Skipped;
        peer.verified = Verified::Skipped;
        peer.ending.reason = Some("CUDA could not be used".into());
    }
    judged(report.snapshot, report.topology, measurements)
}

/// Returns eight PCIe cards: GPU 3 in a x4 slot, GPUs 2 and 5 without peer access, 4 → 6 hangs and 6 → 4 drops its
/// bytes; GPU 1 idles at Gen1; GPUs 6 and 7 share a switch. The bytes of 0 → 7 could not be verified.
pub fn pcie_box() -> Report {
    let spec = load::parse(include_str!("../data/machines/pcie-box.toml")).unwrap();
    let (snapshot, topology, mut measurements) = measured(spec);
    for cell in measurements.peer.iter_mut().filter(|cell| cell.setup.path == Path::Direct) {
        let (status, verified, reason) = match (cell.pair.source, cell.pair.destination) {
            (2, 5) | (5, 2) => {
                (Status::Skipped, Verified::Skipped, "no peer access between these GPUs")
            }
            (4, 6) => {
                (Status::Hung, Verified::Skipped, "no end within 10 s; the worker was replaced")
            }
            (6, 4) => (Status::Failed, Verified::Dropped, "bytes did not arrive"),
            (0, 7) => {
                cell.verified = Verified::Inconclusive;
                continue;
            }
            _ => continue,
        };
        (cell.ending.status, cell.verified, cell.ending.reason) =
            (status, verified, Some(reason.into()));
        (cell.achieved_gbps, cell.percent) = (None, None);
    }
    let mut report = judged(snapshot, topology, measurements);
    report.machine = "demo".into();
    report
}

/// Returns unknown GPUs on an unknown host, without measurements.
pub fn unknown(gpus: u32) -> Report {
    let why = Unknown::Denied("only root may read this".into());
    let snapshot = Snapshot {
        nvml_failure_code: None,
        host: Host::unread(&why),
        gpus: (0..gpus).map(|index| Gpu::unread(index, &why)).collect(),
        pairs: Vec::new(),
        bonds: Vec::new(),
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        adapters: Vec::new(),
        unlisted_gpus: Vec::new(),
        nvswitches: Vec::new(),
        problems: vec!["/sys/bus/pci could not be read: permission denied".into()],
    };
    let mut report = judged(snapshot, Topology::default(), Measurements::default());
    report.verdict = Verdict { verdict: Conclusion::Inconclusive, exit_code: 3, ..report.verdict };
    report
}

/// Returns a report with names that try to control the terminal, wherever a machine can put one.
pub fn hostile() -> Report {
    let evil = "e\u{1b}[2Jv\u{9b}31mi\nl\r\u{202e}<b>\"]; x [\u{7}\\";
    let mut report = pcie_box();
    report.machine = evil.into();
    report.started_at = evil.into();
    report.request = Request {
        gpus: vec![evil.into(), evil.into()],
        gpus_left_out: 2,
        left_out_gpus: vec![LeftOutGpu { index: Some(8), uuid: Some(evil.into()), pci: None }; 2],
        only: vec![evil.into()],
        skip: vec![evil.into()],
        probes_left_out: vec![evil.into()],
        config: Some(evil.into()),
        silenced: vec![Silenced { code: evil.to_owned().into(), severity: None }],
    };
    report.snapshot.host.hostname = Reading::Known(evil.into());
    report.snapshot.host.driver_version = Reading::failed(evil);
    report.snapshot.problems.push(evil.into());
    for gpu in &mut report.snapshot.gpus {
        gpu.name = Reading::Known(evil.into());
        gpu.uuid = Reading::Known(format!("{evil}{}", gpu.index));
    }
    for function in &mut report.snapshot.pci {
        function.slot = Reading::Known(evil.into());
        function.host_bridge = evil.into();
    }
    for adapter in &mut report.snapshot.adapters {
        adapter.name = evil.into();
    }
    for node in &mut report.topology.nodes {
        node.label = evil.into();
    }
    for link in &mut report.topology.links {
        link.label = evil.into();
    }
    for route in &mut report.topology.pairs {
        route.bottleneck = Some(evil.into());
    }
    for finding in &mut report.findings {
        finding.message = evil.into();
        finding.code = evil.to_owned().into();
        finding.evidence.add(evil, vec![evil.to_owned()]);
    }
    let measurements = report.measurements.as_mut().unwrap();
    measurements.profile = evil.into();
    measurements.problems.push(evil.into());
    for peer in &mut measurements.peer {
        peer.ending.reason = peer.ending.reason.as_ref().map(|_| evil.into());
    }
    measurements.links.push(LinkUnderLoad {
        throttle_reasons: vec![evil.into()],
        reason: Some(evil.into()),
        ..LinkUnderLoad::default()
    });
    report
}
