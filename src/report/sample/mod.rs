//! Reports made up for the tests of this room.

mod nvswitch;
mod pcie;

use serde_json::json;

use crate::model::finding::{Finding, Severity, Subject};
use crate::model::flow::Setup;
use crate::model::measurement::{
    CudaDevice, DriverFacts, Latency, LinkUnderLoad, Measurements, Overlap, PeerAccess, PeerBandwidth, Status, Verified,
};
use crate::model::placement::{Direction, Engine, HostMode, Pair, Path, Placement, Side};
use crate::model::reading::{Reading, Unknown};
use crate::model::report::{Conclusion, Report, SCHEMA, Timing, Tool, Verdict};
use crate::model::snapshot::{
    Adapter, AdapterKind, Gpu, Host, NumaNode, NvLink, NvLinkRemote, PciFunction, PciKind, Snapshot,
};
use crate::model::testing::{generation, lanes};
use crate::model::topology::{LinkClass, PairRoute, Topology};
use crate::model::units::{Bytes, GIB, GbPerSecond, MIB, PciAddress};

pub(crate) use nvswitch::{healthy, nothing_measured};
pub(crate) use pcie::{hostile, pcie_box};

fn pci(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn known(text: &str) -> Reading<String> {
    Reading::Known(text.into())
}

fn host() -> Host {
    Host {
        driver_version: known("580.159.03"),
        kernel_module_version: Reading::unsupported(),
        nvml_version: known("13.580.159.03"),
        cuda_version: known("13.0"),
        kernel_version: known("6.8.0-60-generic"),
        hostname: known("gpu-node-17"),
        cpu: known("Intel(R) Xeon(R) Platinum 8570"),
        virtual_machine: Reading::Known(true),
        iommu_translating: Reading::Known(false),
    }
}

fn gpu(index: u32, name: &str, memory: u64, address: PciAddress, link: (u8, u8), max: (u8, u8)) -> Gpu {
    let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
    gpu.name = known(name);
    gpu.memory_total_bytes = Reading::Known(Bytes(memory));
    gpu.pci = Reading::Known(address);
    gpu.uuid = known(&format!("GPU-00000000-0000-0000-0000-{index:012}"));
    (gpu.pcie_generation, gpu.pcie_width) = (generation(link.0), lanes(link.1));
    (gpu.pcie_generation_max, gpu.pcie_width_max) = (generation(max.0), lanes(max.1));
    gpu.nvlinks = Reading::Known(Vec::new());
    gpu
}

fn function(
    address: &str,
    parent: Option<&str>,
    bridge: &str,
    kind: PciKind,
    now: (u8, u8),
    max: (u8, u8),
) -> PciFunction {
    let mut function = PciFunction::unread(pci(address), parent.map(pci), bridge.into(), kind, &Unknown::Unsupported);
    (function.generation, function.width) = (generation(now.0), lanes(now.1));
    (function.generation_max, function.width_max) = (generation(max.0), lanes(max.1));
    function
}

fn route(pair: Pair, class: LinkClass, theoretical: Option<f64>, source: &str) -> PairRoute {
    PairRoute {
        pair,
        class,
        hops: Vec::new(),
        theoretical_gbps: theoretical.map(GbPerSecond),
        theoretical_source: source.into(),
        bottleneck: None,
        staged_theoretical_gbps: Some(GbPerSecond(63.0)),
        peer_access: PeerAccess::default(),
    }
}

/// A measured figure, a little different for every pair.
fn measured(pair: Pair, setup: (Placement, Side, Engine, Direction, Path), rate: f64, theory: f64) -> PeerBandwidth {
    let (placement, issuer, engine, direction, path) = setup;
    let achieved = rate * (1.0 + f64::from((pair.source * 7 + pair.destination * 3) % 5) * 5e-4);
    PeerBandwidth {
        pair,
        setup: Setup { placement, issuer, engine, direction, path, bytes: Bytes(512 * MIB) },
        achieved_gbps: Some(GbPerSecond(achieved)),
        theoretical_gbps: Some(GbPerSecond(theory)),
        percent: Some(100.0 * achieved / theory),
        expected_gbps: None,
        expected_percent: None,
        samples: 8,
        spread_percent: Some(0.4),
        fixed_cost_us: (engine == Engine::Copy).then_some(9.8),
        host_blocked_us: Some(if placement.host == HostMode::Blocking { 1360.0 } else { 6.2 }),
        verified: Verified::Ok,
        verification_detail: None,
        status: Status::Measured,
        reason: None,
    }
}

/// Everything that is measured of a pair which does `direct` of `theory`, and `staged`.
fn measure_pair(into: &mut Measurements, pair: Pair, (direct, theory): (f64, f64), staged: f64) {
    use {Direction::*, Engine::*, Path::*, Side::*};
    for placement in Placement::all() {
        into.peer.push(measured(pair, (placement, Source, Copy, OneWay, Direct), direct, theory));
        for compute_on in [Source, Destination] {
            let overlap = if placement.should_overlap(compute_on) { 99.6 } else { 0.2 };
            into.overlap.push(Overlap {
                pair,
                placement,
                compute_on,
                bytes: Bytes(512 * MIB),
                overlap_percent: Some(overlap),
                host_blocked_us: Some(if placement.host == HostMode::Blocking { 1362.4 } else { 7.1 }),
                copy_us: Some(1360.0),
                kernel_us: Some(990.0),
                samples: 3,
                status: Status::Measured,
                reason: None,
            });
        }
    }
    for (setup, rate, theory) in [
        ((Placement::REFERENCE, Destination, Copy, OneWay, Direct), direct * 0.99, theory),
        ((Placement::REFERENCE, Source, Kernel, OneWay, Direct), direct * 0.92, theory),
        ((Placement::REFERENCE, Destination, Kernel, OneWay, Direct), direct * 0.93, theory),
        ((Placement::REFERENCE, Source, Copy, BothWays, Direct), direct * 0.985, theory),
        ((Placement::REFERENCE, Source, Copy, OneWay, Staged), staged, 63.0),
    ] {
        into.peer.push(measured(pair, setup, rate, theory));
    }
    for (path, latency) in [(Direct, 2.31), (Staged, 14.9)] {
        into.latency.push(Latency {
            pair,
            path,
            bytes: Bytes(16),
            latency_us: Some(latency + f64::from(pair.destination) * 0.12),
            samples: 20,
            spread_percent: Some(6.0),
            status: Status::Measured,
            reason: None,
        });
    }
}

fn report(snapshot: Snapshot, topology: Topology, mut measurements: Measurements) -> Report {
    measurements.profile = "standard".into();
    let devices = snapshot.gpus.iter().map(|gpu| CudaDevice {
        index: gpu.index,
        ordinal: Some(gpu.index),
        budget_bytes: Some(Bytes(8 * GIB)),
        ..CudaDevice::default()
    });
    measurements.driver = DriverFacts { devices: devices.collect(), ..DriverFacts::default() };
    let statuses = measurements.peer.iter().map(|peer| peer.status);
    let statuses = statuses.chain(measurements.overlap.iter().map(|overlap| overlap.status));
    let statuses: Vec<_> = statuses.chain(measurements.latency.iter().map(|latency| latency.status)).collect();
    let tested = statuses.iter().filter(|status| **status == Status::Measured).count();
    let untested = u32::try_from(statuses.len() - tested).unwrap();
    let tested = u32::try_from(tested).unwrap();
    Report {
        schema: SCHEMA.into(),
        tool: Tool { name: "peerscope".into(), version: "0.0.0".into() },
        started_at: "2026-11-20T03:12:45Z".into(),
        machine: "live".into(),
        snapshot,
        topology,
        measurements: Some(measurements),
        findings: Vec::new(),
        verdict: Verdict { verdict: Conclusion::Healthy, exit_code: 0, tested, untested },
        timing: Timing {
            discover: 0.093,
            driver_start: 3.71,
            measure: 1.42,
            diagnose: 0.0004,
            total: 5.24,
            driver_floor: 3.58,
        },
    }
}

pub(super) fn finding(
    code: &str,
    severity: Severity,
    subject: Subject,
    message: &str,
    evidence: serde_json::Value,
    next_step: &str,
) -> Finding {
    let evidence = serde_json::from_value(evidence).unwrap();
    Finding { evidence, ..Finding::new(code.to_owned().into(), severity, subject, message, next_step) }
}

/// GPUs of which nothing is known, on a host of which nothing is known, and nothing measured.
pub(crate) fn unknown(gpus: u32) -> Report {
    let why = Unknown::Denied("only root may read this".into());
    let snapshot = Snapshot {
        host: Host::unread(&why),
        gpus: (0..gpus).map(|index| Gpu::unread(index, &why)).collect(),
        pairs: Vec::new(),
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        adapters: Vec::new(),
        problems: vec!["/sys/bus/pci could not be read: permission denied".into()],
        nvml_failure_code: None,
    };
    let mut report = report(snapshot, Topology::default(), Measurements::default());
    report.verdict.verdict = Conclusion::Inconclusive;
    report.verdict.exit_code = 3;
    report
}
