//! Small machines for tests.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use super::host::{HostCopy, HostWay, Pinning};
use super::measurement::{Overlap, Verified};
use super::pipeline::Engines;
use super::placement::{KernelStream, Pair, Placement, Side};
use super::reading::{Reading, Unknown};
use super::snapshot::{
    CommonAncestor, Fabric, FabricState, Gpu, GpuPair, Host, NumaNode, NvLink, NvLinkRemote,
    P2pStatus, PciFunction, PciKind, Snapshot,
};
use super::units::{Bytes, GIB, GbPerSecond, Generation, Lanes, MIB, PciAddress, PcieLink};

/// Reads an address from a test.
pub fn pci(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Returns a PCIe link of a valid generation and width.
pub fn pcie_link(generation: u8, width: u8) -> PcieLink {
    PcieLink { generation: generation.try_into().unwrap(), width: width.try_into().unwrap() }
}

/// Returns a generation as a reading. One that does not exist is unknown.
pub fn generation(number: u8) -> Reading<Generation> {
    Generation::try_from(number).map_err(|why| Unknown::Failed(why.to_string())).into()
}

/// Returns a number of lanes as a reading. One that does not exist is unknown.
pub fn lanes(number: u8) -> Reading<Lanes> {
    Lanes::try_from(number).map_err(|why| Unknown::Failed(why.to_string())).into()
}

/// Returns a machine with nothing in it.
pub fn empty() -> Snapshot {
    Snapshot {
        host: Host::unread(&Unknown::Unsupported),
        gpus: Vec::new(),
        pairs: Vec::new(),
        bonds: Vec::new(),
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        adapters: Vec::new(),
        unlisted_gpus: Vec::new(),
        nvswitches: Vec::new(),
        problems: Vec::new(),
        nvml_failure_code: None,
    }
}

/// Returns a GPU that can be opened, with a Gen4 x16 link that is idle at Gen1, and no NVLink.
pub fn gpu(index: u32, address: &str) -> Gpu {
    Gpu {
        pci: Reading::Known(pci(address)),
        uuid: Reading::Known(format!("GPU-{index}")),
        name: Reading::Known("NVIDIA A40".into()),
        memory_total_bytes: Reading::Known(Bytes(48 * GIB)),
        pcie_generation: generation(1),
        pcie_width: Reading::Known(Lanes::X16),
        pcie_generation_max: generation(4),
        pcie_width_max: Reading::Known(Lanes::X16),
        nvlinks: Reading::Known(Vec::new()),
        power_state: Reading::Known(8),
        ..Gpu::unread(index, &Unknown::Unsupported)
    }
}

/// Returns a PCI function with the link figures `(generation, width)` now and at most.
pub fn function(
    address: &str,
    parent: Option<&str>,
    kind: PciKind,
    now: (u8, u8),
    max: (u8, u8),
) -> PciFunction {
    let unread = PciFunction::unread(
        pci(address),
        parent.map(pci),
        "pci0000:00".into(),
        kind,
        &Unknown::Unsupported,
    );
    PciFunction {
        generation: generation(now.0),
        width: lanes(now.1),
        generation_max: generation(max.0),
        width_max: lanes(max.1),
        ..unread
    }
}

/// Returns NVML's report on every ordered pair: everything works, with this common ancestor.
pub fn all_pairs(gpus: u32, ancestor: Option<CommonAncestor>, nvlink: P2pStatus) -> Vec<GpuPair> {
    let indices: Vec<_> = (0..gpus).collect();
    let word = |pair: super::placement::Pair| GpuPair {
        common_ancestor: ancestor.map_or(Reading::unsupported(), Reading::Known),
        p2p_read: Reading::Known(P2pStatus::Ok),
        p2p_write: Reading::Known(P2pStatus::Ok),
        p2p_nvlink: Reading::Known(nvlink),
        ..GpuPair::unread(pair.source, pair.destination, &Unknown::Unsupported)
    };
    super::placement::Pair::ordered(&indices).into_iter().map(word).collect()
}

/// Returns active NVLinks, all alike.
pub fn nvlinks(
    count: u8,
    version: &str,
    speed: u32,
    remote: NvLinkRemote,
    to: Option<&str>,
) -> Vec<NvLink> {
    (0..count)
        .map(|link| NvLink {
            active: Reading::Known(true),
            version: Reading::Known(version.into()),
            speed_mbps: Reading::Known(speed),
            remote: Reading::Known(remote),
            remote_pci: to.map_or(Reading::failed("hidden"), |to| Reading::Known(pci(to))),
            ..NvLink::unread(link, &Unknown::Unsupported)
        })
        .collect()
}

/// Returns two sockets, each with a Gen4 switch and two A40 below it. Socket 0: GPU 0 and 1, socket 1: GPU 2 and 3.
pub fn two_sockets() -> Snapshot {
    let mut machine = empty();
    machine.host.virtual_machine = Reading::Known(false);
    for socket in 0..2_u32 {
        let (bus, bridge) = (socket * 0x80, format!("pci0000:{:02x}", socket * 0x80));
        let at = |offset: u32, device: u32| format!("0000:{:02x}:{device:02x}.0", bus + offset);
        let mut functions = vec![
            function(&at(0, 1), None, PciKind::RootPort, (4, 16), (5, 16)),
            function(&at(1, 0), Some(&at(0, 1)), PciKind::SwitchUpstream, (4, 16), (4, 16)),
        ];
        for slot in 0..2_u32 {
            let mut port = function(
                &at(2, slot),
                Some(&at(1, 0)),
                PciKind::SwitchDownstream,
                (1, 16),
                (4, 16),
            );
            port.slot = Reading::Known(format!("{}", socket * 2 + slot + 1));
            functions.push(port);
            functions.push(function(
                &at(3 + slot, 0),
                Some(&at(2, slot)),
                PciKind::Endpoint,
                (1, 16),
                (4, 16),
            ));
            machine.gpus.push(gpu(socket * 2 + slot, &at(3 + slot, 0)));
        }
        for function in &mut functions {
            function.host_bridge.clone_from(&bridge);
            function.numa_node = Reading::Known(socket);
        }
        machine.pci.extend(functions);
        machine.numa_nodes.push(NumaNode {
            node: socket,
            cpus: String::new(),
            memory_bytes: Bytes(GIB),
        });
    }
    machine
}

/// Returns the function at this address, mutable.
pub fn function_mut<'a>(machine: &'a mut Snapshot, address: &str) -> &'a mut PciFunction {
    machine.pci.iter_mut().find(|function| function.address == pci(address)).unwrap()
}

/// Returns [`two_sockets`] with GPU 3's link trained to four lanes of sixteen. Both ends and NVML report it.
pub fn two_sockets_with_narrow_gpu() -> Snapshot {
    let mut machine = two_sockets();
    for address in ["0000:84:00.0", "0000:82:01.0"] {
        function_mut(&mut machine, address).width = lanes(4);
    }
    machine.gpus[3].pcie_width = lanes(4);
    machine
}

/// Returns a virtual machine with H200 behind NVSwitch (docs/dev/facts.md, "An H200 server in a virtual machine"). Its
/// PCI tree is flat, and its links lead to a switch whose address is hidden.
pub fn h200_vm(gpus: u32) -> Snapshot {
    let mut machine = empty();
    machine.host.virtual_machine = Reading::Known(true);
    for index in 0..gpus {
        let address = format!("0000:00:{:02x}.0", index + 6);
        machine.pci.push(function(&address, None, PciKind::Endpoint, (5, 16), (5, 16)));
        machine.gpus.push(Gpu {
            name: Reading::Known("NVIDIA H200".into()),
            pcie_generation: generation(5),
            pcie_generation_max: generation(5),
            power_state: Reading::Known(0),
            nvlinks: Reading::Known(nvlinks(18, "4.0", 26562, NvLinkRemote::Switch, None)),
            fabric: Reading::Known(Fabric {
                state: FabricState::Completed,
                status: 0,
                health_mask: Some(0),
                clique_id: 0,
                cluster_uuid: "00000000000000000000000000000000".into(),
            }),
            ..gpu(index, &address)
        });
    }
    machine.pairs = all_pairs(gpus, Some(CommonAncestor::HostBridge), P2pStatus::Ok);
    machine
}

/// Returns [`two_sockets`] with GPU 0 and 1 joined by an NVLink bridge of four links.
pub fn nvlink_bridge() -> Snapshot {
    let mut machine = two_sockets();
    for (gpu, other) in [(0, "0000:04:00.0"), (1, "0000:03:00.0")] {
        machine.gpus[gpu].nvlinks =
            Reading::Known(nvlinks(4, "3.1", 14062, NvLinkRemote::Gpu, Some(other)));
    }
    machine
}

/// Returns a copy from reused pinned memory to this GPU by copy engine. Nothing of it is judged yet.
pub fn host_copy(gpu: u32, gbps: f64) -> HostCopy {
    let HostWay { memory, direction, engine, allocation } = HostWay::PINNED;
    let bytes = Bytes(64 * MIB);
    HostCopy {
        achieved_gbps: Some(GbPerSecond(gbps)),
        samples: 3,
        spread_percent: Some(0.5),
        host_blocked_us: Some(4.0),
        verified: Verified::Ok,
        ..HostCopy::blank(gpu, None, memory, direction, engine, allocation, 1, bytes)
    }
}

/// Returns copy engines of a GPU with these reported and observed numbers.
pub fn engines(gpu: u32, reported: u32, observed: u32) -> Engines {
    let share = |overlaps: bool| Some(if overlaps { 96.0 } else { 2.0 });
    Engines {
        reported: Some(reported),
        observed: Some(observed),
        opposite_percent: share(observed > 1),
        both_to_device_percent: Some(0.0),
        both_to_host_percent: Some(0.0),
        kernel_to_device_percent: share(observed > 0),
        kernel_to_host_percent: share(observed > 0),
        samples: 2,
        ..Engines::blank(gpu, None, Bytes(16 * MIB))
    }
}

/// Returns the cost of page-locking memory, as on H200.
pub fn pinning() -> Pinning {
    Pinning {
        allocate_ms_per_gib: Some(575.0),
        free_ms_per_gib: Some(60.0),
        register_ms_per_gib: Some(180.0),
        unregister_ms_per_gib: Some(50.0),
        allocating_takes_bytes: Some(Bytes(64 * MIB)),
        copying_takes_bytes: Some(Bytes(128 * MIB)),
        samples: 3,
        ..Pinning::blank(None, Bytes(64 * MIB))
    }
}

/// Returns the overlap, in per cent, of a copy from GPU 0 to GPU 1 in this placement with a kernel.
pub fn overlap(placement: Placement, share: f64) -> Overlap {
    let pair = Pair { source: 0, destination: 1 };
    Overlap {
        overlap_percent: Some(share),
        samples: 3,
        ..Overlap::blank(pair, placement, Side::Source, KernelStream::Default, Bytes(GIB))
    }
}
