//! H200 with NVSwitches in a virtual machine, as recorded (docs/measurement.md). Not recorded and
//! so made up: processor, kernel release and memory of the host.

use crate::hardware::sim::spec::{
    AdapterSpec, Faults, FunctionSpec, GpuSpec, GpuState, HostSpec, MachineSpec, Noise, NumaNodeSpec, NvLinkErrors,
    NvLinkSpec, NvLinkTarget, PathSpeed, PeerSpec, Speeds,
};
use crate::model::snapshot::{AdapterKind, PciKind, PcieErrors};
use crate::model::units::{Bytes, GIB, Generation, Lanes, MIB, PciAddress, PcieLink};

use super::GRANTED;

/// Copies through host memory: 37 GB/s of PCIe's 63, 26 each way when both are busy, 16.4 us.
const STAGED: PathSpeed = PathSpeed {
    copy: 37.1 / 63.0,
    push: 0.0,
    pull: 0.0,
    both_ways: 26.0 / 37.0,
    each_us: 16.1,
    first_us: 10.0,
    from_destination_us: 0.0,
};

/// Copies over PCIe, should the NVLinks be down: the published share of Gen5, 53 of 63 GB/s.
const PCIE: PathSpeed = PathSpeed {
    copy: 0.84,
    push: 0.80,
    pull: 0.70,
    both_ways: 0.95,
    each_us: 4.0,
    first_us: 9.0,
    from_destination_us: 5.5,
};

fn speeds() -> Speeds {
    Speeds {
        pcie: PCIE,
        cross_socket: PCIE,
        staged: STAGED,
        pcie_shared: 0.88,
        interconnect_gbps: 100.0,
        // All GPUs at once, device to host.
        host_memory_gbps: 87.0,
        // The NVLinks are the default: it was measured on this machine. One GPU to all others took
        // 399 GB/s in all.
        ..Speeds::default()
    }
}

/// A machine with this many H200.
pub fn machine(gpus: u8) -> MachineSpec {
    let mut pci = vec![function(3, (0x1af4, 0x1041), 0x0002_0000, None)];
    let link = PcieLink { generation: Generation::GEN5, width: Lanes::X16 };
    pci.extend((0..gpus).map(|gpu| function(6 + gpu, (0x10de, 0x2335), 0x0003_0200, Some(link))));
    MachineSpec {
        summary: format!("{gpus} x H200 with NVSwitch in a virtual machine, as recorded"),
        host: HostSpec {
            driver_version: "580.159.04".into(),
            cuda_version: "13.0".into(),
            kernel_version: "6.8.0".into(),
            cpu: "Intel Xeon Processor".into(),
            virtual_machine: true,
            iommu_translating: false,
        },
        numa_nodes: vec![NumaNodeSpec { cpus: "0-127".into(), memory: Bytes(1536 * GIB) }],
        pci,
        gpus: (0..gpus).map(h200).collect(),
        adapters: vec![AdapterSpec { name: "eth0".into(), kind: AdapterKind::Ethernet, pci: address(3) }],
        uplinks: Vec::new(),
        visible_devices: None,
        noise: Noise::default(),
        peers: PeerSpec { rule: GRANTED, exceptions: Vec::new(), limit: None },
        speeds: speeds(),
        // cuInit 2.6 s and eight contexts 0.98 s; with two GPUs 0.4 and 0.23 s.
        faults: Faults::default(),
    }
}

const fn address(device: u8) -> PciAddress {
    PciAddress { domain: 0, bus: 0, device, function: 0 }
}

/// A function of the flat tree that the virtual machine shows.
fn function(device: u8, id: (u16, u16), class: u32, max: Option<PcieLink>) -> FunctionSpec {
    FunctionSpec {
        address: address(device),
        parent: None,
        host_bridge: "pci0000:00".into(),
        kind: PciKind::Endpoint,
        id,
        class,
        numa_node: None,
        max,
        trained: None,
        idle: None,
        errors: PcieErrors::default(),
        slot: None,
        acs_redirect: false,
    }
}

fn h200(gpu: u8) -> GpuSpec {
    let links = NvLinkSpec {
        count: 18,
        active: true,
        version: "4.0".into(),
        remote: NvLinkTarget::Switch,
        link_gbps: None,
        errors: NvLinkErrors::default(),
    };
    GpuSpec {
        name: "NVIDIA H200".into(),
        architecture: "Hopper".into(),
        pci: address(6 + gpu),
        memory: Bytes(143_771 * MIB),
        memory_free: Bytes(143_155 * MIB),
        bar1: Bytes(256 * GIB),
        local_gbps: 4000.0,
        copy_engines: 3,
        nvlinks: vec![links],
        clocks_mhz: (1980, 3201),
        fabric: None,
        state: GpuState { mig: Some(false), ..GpuState::default() },
    }
}
