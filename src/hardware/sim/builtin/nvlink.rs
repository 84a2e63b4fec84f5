//! GPUs joined by NVLink other than the recorded H200: A100 behind NVSwitch, bridged H100 NVL, and
//! GB200 in one NVLink domain. Shares of the rates that were published stand with their source
//! (docs/measurement.md), everything else is chosen.

use crate::hardware::sim::spec::{
    FabricSpec, FunctionSpec, GpuSpec, GpuState, HostSpec, MachineSpec, NumaNodeSpec, NvLinkErrors, NvLinkSpec,
    NvLinkTarget, PathSpeed, PeerSpec, Speeds,
};
use crate::model::snapshot::{FabricState, PciKind, PcieErrors};
use crate::model::units::{Bytes, GIB, Generation, Lanes, MIB, PciAddress, PcieLink};

use super::pcie::{self, Shape};

const GEN5_X16: PcieLink = PcieLink { generation: Generation::GEN5, width: Lanes::X16 };

/// Links that are alike, up, and of their version's usual rate.
fn links(count: u8, version: &str, remote: NvLinkTarget) -> NvLinkSpec {
    NvLinkSpec {
        count,
        active: true,
        version: version.into(),
        remote,
        link_gbps: None,
        errors: NvLinkErrors::default(),
    }
}

/// The speeds of the recorded H200, with another share of the links' payload rate.
fn speeds(copy: f64) -> Speeds {
    let recorded = Speeds::default();
    let scale = copy / recorded.nvlink.copy;
    let nvlink =
        PathSpeed { copy, push: recorded.nvlink.push * scale, pull: recorded.nvlink.pull * scale, ..recorded.nvlink };
    Speeds { nvlink, nvlink_shared: recorded.nvlink_shared * scale, ..recorded }
}

/// 8 x A100 behind NVSwitch: 12 links each, of whose 300 GB/s 276 were published.
pub fn a100x8() -> MachineSpec {
    let mut spec =
        pcie::machine(Shape { sockets: 2, switches: 2, gpus: 2, adapters: true, gpu: a100, link: pcie::GEN4_X16 });
    spec.summary = "8 x A100 with NVSwitch: 12 NVLinks each".into();
    spec.peers.limit = None;
    spec.speeds = speeds(276.0 / 300.0);
    spec
}

fn a100(pci: PciAddress) -> GpuSpec {
    GpuSpec {
        name: "NVIDIA A100-SXM4-80GB".into(),
        architecture: "Ampere".into(),
        pci,
        memory: Bytes(81_920 * MIB),
        memory_free: Bytes(81_000 * MIB),
        bar1: Bytes(128 * GIB),
        local_gbps: 1600.0,
        copy_engines: 3,
        clocks_mhz: (1410, 1593),
        nvlinks: vec![links(12, "3.0", NvLinkTarget::Switch)],
        // NVML tells of the fabric from Hopper on.
        fabric: Some(FabricSpec {
            state: FabricState::NotSupported,
            status: 0,
            health_mask: None,
            clique_id: 0,
            cluster_uuid: "0".repeat(32),
        }),
        state: GpuState { mig: Some(false), ..GpuState::default() },
    }
}

/// 4 x H100 NVL, two by two below bridges: 12 of the chip's 18 links lead anywhere on these boards,
/// and of their 300 GB/s 257 were published.
pub fn nvlink12() -> MachineSpec {
    let mut spec =
        pcie::machine(Shape { sockets: 2, switches: 1, gpus: 2, adapters: false, gpu: h100_nvl, link: GEN5_X16 });
    spec.summary = "4 x H100 NVL in bridged pairs: 12 of 18 NVLinks by design".into();
    for (gpu, index) in spec.gpus.iter_mut().zip(0u32..) {
        let peer = NvLinkTarget::Gpu(index ^ 1);
        gpu.nvlinks = vec![links(12, "4.0", peer), NvLinkSpec { active: false, ..links(6, "4.0", peer) }];
    }
    spec.speeds = speeds(257.0 / 300.0);
    // PCIe 5: 53 to 56.6 of 63 GB/s were published within a socket, 39 to 51 across.
    spec.speeds.pcie.copy = 0.86;
    spec
}

fn h100_nvl(pci: PciAddress) -> GpuSpec {
    GpuSpec {
        name: "NVIDIA H100 NVL".into(),
        architecture: "Hopper".into(),
        pci,
        memory: Bytes(95_830 * MIB),
        memory_free: Bytes(95_300 * MIB),
        bar1: Bytes(128 * GIB),
        local_gbps: 3000.0,
        copy_engines: 3,
        clocks_mhz: (1785, 2619),
        nvlinks: Vec::new(),
        fabric: None,
        state: GpuState { mig: Some(false), ..GpuState::default() },
    }
}

/// GPUs of an NVL72 rack, and how many share one processor.
const RACK: u32 = 72;
const PER_PROCESSOR: u32 = 2;

/// 72 x GB200 in one NVLink domain. A rack runs 18 systems of four GPUs each; seen as one machine,
/// as no operating system shows it, it tells what the reports of this tool come to. No figure of it
/// was measured: the share of the links' rate is that of H200.
pub fn nvl72() -> MachineSpec {
    let at = |gpu: u32, bus| PciAddress { domain: 8 + gpu, bus, device: 0, function: 0 };
    let function = |address: PciAddress, parent, kind, id, class, numa_node| FunctionSpec {
        address,
        parent,
        host_bridge: format!("pci{:04x}:00", address.domain),
        kind,
        id,
        class,
        numa_node: Some(numa_node),
        max: Some(GEN5_X16),
        trained: None,
        idle: None,
        errors: PcieErrors::default(),
        slot: None,
        acs_redirect: false,
    };
    let pci = (0..RACK).flat_map(|gpu| {
        let (port, node) = (at(gpu, 0), gpu / PER_PROCESSOR);
        [
            function(port, None, PciKind::RootPort, (0x10de, 0x22b1), 0x06_0400, node),
            function(at(gpu, 1), Some(port), PciKind::Endpoint, (0x10de, 0x2941), 0x03_0200, node),
        ]
    });
    let cpus = |node: u32| format!("{}-{}", node * 72, node * 72 + 71);
    let node = |node| NumaNodeSpec { cpus: cpus(node), memory: Bytes(480 * GIB) };
    MachineSpec {
        summary: "72 x GB200 in one NVLink domain, seen as one machine".into(),
        host: HostSpec { cpu: "NVIDIA Grace".into(), ..HostSpec::default() },
        numa_nodes: (0..RACK / PER_PROCESSOR).map(node).collect(),
        pci: pci.collect(),
        gpus: (0..RACK).map(|gpu| gb200(at(gpu, 1))).collect(),
        adapters: Vec::new(),
        uplinks: Vec::new(),
        peers: PeerSpec::default(),
        visible_devices: None,
        speeds: Speeds::default(),
        noise: Default::default(),
        faults: Default::default(),
    }
}

fn gb200(pci: PciAddress) -> GpuSpec {
    GpuSpec {
        name: "NVIDIA GB200".into(),
        architecture: "Blackwell".into(),
        pci,
        memory: Bytes(189_471 * MIB),
        memory_free: Bytes(188_900 * MIB),
        bar1: Bytes(256 * GIB),
        local_gbps: 6000.0,
        copy_engines: 4,
        clocks_mhz: (2062, 3996),
        nvlinks: vec![links(18, "5.0", NvLinkTarget::Switch)],
        fabric: Some(FabricSpec {
            state: FabricState::Completed,
            status: 0,
            health_mask: Some(0),
            clique_id: 1,
            cluster_uuid: "7".repeat(32),
        }),
        state: GpuState { mig: Some(false), ..GpuState::default() },
    }
}
