//! A box of PCIe cards with faults, and one with names that attack.

use super::*;

/// Eight PCIe cards: GPU 3 in a x4 slot, GPUs 2 and 5 without peer access, 4 → 6 hangs and 6 → 4
/// drops what it is sent; GPU 1 idles at Gen1; GPUs 6 and 7 share a switch.
pub(crate) fn pcie_box() -> Report {
    use PciKind::{Endpoint, RootPort, SwitchDownstream, SwitchUpstream};
    let full = (4, 16);
    // GPU, root port, host bridge, NUMA node.
    let slots = [
        ("0000:01:00.0", "0000:00:01.0", "pci0000:00", 0),
        ("0000:02:00.0", "0000:00:01.1", "pci0000:00", 0),
        ("0000:43:00.0", "0000:40:01.1", "pci0000:40", 0),
        ("0000:44:00.0", "0000:40:03.1", "pci0000:40", 0),
        ("0000:81:00.0", "0000:80:01.1", "pci0000:80", 1),
        ("0000:82:00.0", "0000:80:03.1", "pci0000:80", 1),
        ("0000:c3:00.0", "0000:c2:00.0", "pci0000:c0", 1),
        ("0000:c4:00.0", "0000:c2:01.0", "pci0000:c0", 1),
    ];
    let mut host = host();
    host.virtual_machine = Reading::Known(false);
    let mut snapshot = Snapshot {
        host,
        gpus: Vec::new(),
        pairs: Vec::new(),
        pci: vec![
            function("0000:c0:01.0", None, "pci0000:c0", RootPort, full, full),
            function("0000:c1:00.0", Some("0000:c0:01.0"), "pci0000:c0", SwitchUpstream, full, full),
        ],
        numa_nodes: vec![
            NumaNode { node: 0, cpus: "0-31,64-95".into(), memory_bytes: Bytes(252 * GIB) },
            NumaNode { node: 1, cpus: "32-63,96-127".into(), memory_bytes: Bytes(252 * GIB) },
        ],
        adapters: vec![
            Adapter { name: "mlx5_0".into(), kind: AdapterKind::Rdma, pci: pci("0000:c5:00.0") },
            Adapter { name: "ens1np0".into(), kind: AdapterKind::Ethernet, pci: pci("0000:c5:00.0") },
        ],
        problems: Vec::new(),
        nvml_failure_code: None,
    };
    for (index, (address, port, bridge, numa)) in (0..).zip(slots) {
        let now = match index {
            1 => (1, 16),
            3 => (4, 4),
            _ => full,
        };
        let mut gpu = gpu(index, "NVIDIA A40", 46_068 * MIB, pci(address), now, full);
        gpu.numa_node = Reading::Known(numa);
        snapshot.gpus.push(gpu);
        let (parent, kind) = if index >= 6 { (Some("0000:c1:00.0"), SwitchDownstream) } else { (None, RootPort) };
        let mut port_function = function(port, parent, bridge, kind, now, full);
        if index == 3 {
            port_function.slot = known("7");
        }
        snapshot.pci.push(port_function);
        let mut endpoint = function(address, Some(port), bridge, Endpoint, now, full);
        endpoint.numa_node = Reading::Known(numa);
        snapshot.pci.push(endpoint);
    }
    snapshot.pci.push(function("0000:c2:02.0", Some("0000:c1:00.0"), "pci0000:c0", SwitchDownstream, full, full));
    let mut adapter = function("0000:c5:00.0", Some("0000:c2:02.0"), "pci0000:c0", Endpoint, full, full);
    adapter.numa_node = Reading::Known(1);
    snapshot.pci.push(adapter);

    let mut topology = Topology { pairs: Vec::new(), ..crate::topology::build(&snapshot) };
    let mut measurements = Measurements::default();
    for pair in Pair::ordered(&[0, 1, 2, 3, 4, 5, 6, 7]) {
        let (low, high) = (pair.source.min(pair.destination), pair.source.max(pair.destination));
        let class = match (low, high) {
            (6, 7) => LinkClass::Pix,
            (low, high) if low / 2 == high / 2 => LinkClass::Phb,
            (low, high) if low / 4 == high / 4 => LinkClass::Node,
            _ => LinkClass::Sys,
        };
        let narrow = low == 3 || high == 3;
        let theory = if narrow { 7.88 } else { 31.5 };
        let mut of_pair = route(pair, class, Some(theory), "PCIe after encoding");
        of_pair.bottleneck = narrow.then(|| "GPU 3's slot 0000:44:00.0 (Gen4 x4)".to_owned());
        topology.pairs.push(of_pair);
        let share = if class == LinkClass::Sys { 0.69 } else { 0.84 };
        let first = measurements.peer.len();
        let direct = theory * share;
        measure_pair(&mut measurements, pair, (direct, theory), if narrow { 6.3 } else { 17.6 });
        let of_pair = &mut measurements.peer[first..];
        let fail = |peer: &mut PeerBandwidth, status, reason: &str| {
            peer.status = status;
            peer.reason = Some(reason.into());
            peer.achieved_gbps = None;
            peer.percent = None;
        };
        for peer in of_pair.iter_mut().filter(|peer| peer.setup.path == Path::Direct) {
            match (pair.source, pair.destination) {
                (2, 5) | (5, 2) => fail(peer, Status::Skipped, "no peer access between these GPUs"),
                (4, 6) => fail(peer, Status::Hung, "no end within 10 s; the worker was replaced"),
                (6, 4) => {
                    peer.verified = Verified::Dropped;
                    peer.verification_detail = Some("all bytes still hold the poison".into());
                    fail(peer, Status::Failed, "bytes did not arrive");
                }
                (0, 7) => peer.verified = Verified::Inconclusive,
                _ => {}
            }
        }
    }
    let mut report = report(snapshot, topology, measurements);
    report.machine = "demo".into();
    report.verdict.verdict = Conclusion::Faulty;
    report.verdict.exit_code = 1;
    report.findings = vec![
        finding(
            "idle-link",
            Severity::Info,
            Subject::Gpu { index: 1 },
            "the PCIe link idles at Gen1",
            json!({"generation": 1, "generation_possible": 4}),
            "Nothing: it rises under load.",
        ),
        finding(
            "pcie-narrow",
            Severity::Error,
            Subject::Gpu { index: 3 },
            "the PCIe link runs on 4 of the 16 lanes that both ends have",
            json!({"lanes": 4, "lanes_possible": 16, "theoretical_gbps": 7.88, "possible_gbps": 31.5}),
            "Power off, reseat the card, look for dirt on its contacts; then try the card in another slot to tell card from slot.",
        ),
        finding(
            "copy-hung",
            Severity::Error,
            Subject::Pair(Pair { source: 4, destination: 6 }),
            "a direct copy never ended",
            json!({"deadline_s": 10}),
            "Look for Xid messages in the kernel log; disable ACS redirect on the switch at 0000:c1:00.0.",
        ),
        finding(
            "bytes-dropped",
            Severity::Error,
            Subject::Pair(Pair { source: 6, destination: 4 }),
            "bytes did not arrive although the copy ended without an error",
            json!({"wrong_percent": 100.0}),
            "Turn the IOMMU off or to passthrough (iommu=pt).",
        ),
        finding(
            "no-peer-access",
            Severity::Warning,
            Subject::Pair(Pair { source: 2, destination: 5 }),
            "neither may reach the other's memory: copies go through host memory",
            json!({"nvml": "CNS", "cuda": false, "staged_gbps": 17.6}),
            "Nothing, if the platform is known not to support it.",
        ),
    ];
    report
}

/// Names that try to steer the terminal, everywhere a machine can put one.
pub(crate) fn hostile() -> Report {
    let evil = "e\u{1b}[2Jv\u{9b}31mi\nl\r\u{202e}<b>\"]; x [\u{7}\\";
    let mut report = pcie_box();
    report.machine = evil.into();
    report.started_at = evil.into();
    report.snapshot.host.hostname = known(evil);
    report.snapshot.host.driver_version = Reading::failed(evil);
    report.snapshot.problems.push(evil.into());
    for gpu in &mut report.snapshot.gpus {
        gpu.name = known(evil);
        gpu.uuid = known(evil);
    }
    for function in &mut report.snapshot.pci {
        function.slot = known(evil);
        function.host_bridge = evil.into();
    }
    for adapter in &mut report.snapshot.adapters {
        adapter.name = evil.into();
    }
    for node in &mut report.topology.nodes {
        node.label = evil.into();
        node.slot = Some(evil.into());
    }
    for link in &mut report.topology.links {
        link.label = evil.into();
        if let Some(pcie) = &mut link.pcie {
            pcie.slot = Some(evil.into());
            pcie.notes.push(evil.into());
        }
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
        peer.reason = peer.reason.as_ref().map(|_| evil.into());
    }
    measurements.links.push(LinkUnderLoad {
        index: 0,
        readings: 1,
        generation: None,
        width: None,
        replays_added: None,
        pcie_errors_before: None,
        pcie_errors_after: None,
        nvlink_errors: None,
        throttle_reasons: vec![evil.into()],
        reason: Some(evil.into()),
        ..LinkUnderLoad::default()
    });
    report
}
