//! H200s on NVSwitch.

use super::*;

/// H200s on NVSwitch in a virtual machine, all as they should be.
pub(crate) fn healthy(gpus: u32) -> Report {
    let address = |index: u32| pci(&format!("0000:00:{:02x}.0", index + 5));
    let mut snapshot = Snapshot {
        host: host(),
        gpus: Vec::new(),
        pairs: Vec::new(),
        pci: Vec::new(),
        numa_nodes: vec![NumaNode { node: 0, cpus: "0-127".into(), memory_bytes: Bytes(1511 * GIB) }],
        adapters: vec![Adapter { name: "eth0".into(), kind: AdapterKind::Ethernet, pci: pci("0000:00:03.0") }],
        problems: Vec::new(),
        nvml_failure_code: None,
    };
    for index in 0..gpus {
        let mut gpu = gpu(index, "NVIDIA H200", 143_771 * MIB, address(index), (5, 16), (5, 16));
        let links = (0..18).map(|link| {
            let mut nvlink = NvLink::unread(link, &Unknown::Unsupported);
            nvlink.active = Reading::Known(true);
            nvlink.version = known("4.0");
            nvlink.remote = Reading::Known(NvLinkRemote::Switch);
            nvlink
        });
        gpu.nvlinks = Reading::Known(links.collect());
        snapshot.gpus.push(gpu);
        let address = address(index).to_string();
        snapshot.pci.push(function(&address, None, "pci0000:00", PciKind::Endpoint, (5, 16), (5, 16)));
    }
    snapshot.pci.push(function("0000:00:03.0", None, "pci0000:00", PciKind::Endpoint, (4, 8), (4, 8)));
    let mut topology = Topology { pairs: Vec::new(), ..crate::topology::build(&snapshot) };
    let mut measurements = Measurements::default();
    for pair in Pair::ordered(&(0..gpus).collect::<Vec<_>>()) {
        topology.pairs.push(route(pair, LinkClass::NvLink(18), Some(450.0), "18 x NVLink 4.0 at 25 GB/s payload"));
        measure_pair(&mut measurements, pair, (395.6, 450.0), 36.4);
    }
    for index in 0..gpus {
        measurements.links.push(LinkUnderLoad {
            index,
            readings: 210,
            generation: Some([5, 5]),
            width: Some([16, 16]),
            replays_added: Some(0),
            pcie_errors_before: None,
            pcie_errors_after: None,
            nvlink_errors: None,
            throttle_reasons: Vec::new(),
            reason: None,
            ..LinkUnderLoad::default()
        });
    }
    let mut report = report(snapshot, topology, measurements);
    if gpus < 2 {
        report.verdict.verdict = Conclusion::Inconclusive;
        report.verdict.exit_code = 3;
    }
    report
}

/// The driver could not be opened, so that every measurement is missing.
pub(crate) fn nothing_measured() -> Report {
    let mut report = healthy(8);
    let measurements = report.measurements.as_mut().unwrap();
    let why = "cuInit failed with 802: system not yet initialized (is the fabric manager running?)";
    measurements.driver.failure = Some(why.into());
    measurements.overlap.clear();
    measurements.latency.clear();
    measurements.links.clear();
    measurements.interrupted = true;
    for peer in &mut measurements.peer {
        peer.achieved_gbps = None;
        peer.percent = None;
        peer.status = Status::Skipped;
        peer.verified = Verified::Skipped;
        peer.reason = Some("CUDA could not be used".into());
    }
    let untested = u32::try_from(measurements.peer.len()).unwrap();
    report.verdict = Verdict { verdict: Conclusion::Inconclusive, exit_code: 3, tested: 0, untested };
    report
}
