//! GPUs on PCIe behind switches, each switch below a host bridge of its own, as on the usual
//! two-socket EPYC servers for GPUs: L40S on Gen4 unless told otherwise.

use crate::hardware::sim::spec::{
    AdapterSpec, Faults, FunctionSpec, GpuSpec, GpuState, HostSpec, MachineSpec, Noise, NumaNodeSpec, PeerSpec, Speeds,
};
use crate::model::snapshot::{AdapterKind, PciKind, PcieErrors};
use crate::model::units::{Bytes, GIB, Generation, Lanes, MIB, PciAddress, PcieLink};

use super::GRANTED;

/// How many of what.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Sockets.
    pub sockets: u8,
    /// Switches of each socket, each below a host bridge of its own.
    pub switches: u8,
    /// GPUs of each switch.
    pub gpus: u8,
    /// An RDMA adapter at the first switch of each socket.
    pub adapters: bool,
    /// The GPU at an address.
    pub gpu: fn(PciAddress) -> GpuSpec,
    /// Every link.
    pub link: PcieLink,
}

impl Shape {
    /// L40S on PCIe Gen4, without adapters.
    pub const fn l40s(sockets: u8, switches: u8, gpus: u8) -> Self {
        Self { sockets, switches, gpus, adapters: false, gpu: l40s, link: GEN4_X16 }
    }
}

/// The link of most slots.
pub const GEN4_X16: PcieLink = PcieLink { generation: Generation::GEN4, width: Lanes::X16 };

/// PCI bridge; 3D controller; InfiniBand controller.
const BRIDGE: u32 = 0x0006_0400;
const CONTROLLER_3D: u32 = 0x0003_0200;
const INFINIBAND: u32 = 0x0002_0700;

/// A healthy machine of this shape.
pub fn machine(shape: Shape) -> MachineSpec {
    let mut tree = Tree::default();
    for socket in 0..shape.sockets {
        for switch in 0..shape.switches {
            tree.switch(&shape, socket, switch);
        }
    }
    let cpus = |socket: u8| format!("{}-{}", u32::from(socket) * 32, u32::from(socket) * 32 + 31);
    let node = |socket| NumaNodeSpec { cpus: cpus(socket), memory: Bytes(256 * GIB) };
    MachineSpec {
        summary: String::new(),
        host: HostSpec {
            driver_version: "580.95.05".into(),
            cuda_version: "13.0".into(),
            kernel_version: "6.8.0".into(),
            cpu: "AMD EPYC 7543 32-Core Processor".into(),
            virtual_machine: false,
            iommu_translating: false,
        },
        numa_nodes: (0..shape.sockets).map(node).collect(),
        pci: tree.pci,
        gpus: tree.gpus,
        adapters: tree.adapters,
        uplinks: Vec::new(),
        visible_devices: None,
        noise: Noise::default(),
        peers: PeerSpec { rule: GRANTED, exceptions: Vec::new(), limit: Some(8) },
        speeds: Speeds::default(),
        faults: Faults::default(),
    }
}

/// The PCI tree as it grows.
#[derive(Default)]
struct Tree {
    pci: Vec<FunctionSpec>,
    gpus: Vec<GpuSpec>,
    adapters: Vec<AdapterSpec>,
}

impl Tree {
    /// Adds a host bridge with a root port, a switch, and what hangs on it. The bridge's buses
    /// start at a multiple of 0x20, in the order of the switches.
    fn switch(&mut self, shape: &Shape, socket: u8, switch: u8) {
        let (gpus, adapter) = (shape.gpus, shape.adapters && switch == 0);
        let bus = (socket * shape.switches + switch) * 0x20;
        let at = |bus, device| PciAddress { domain: 0, bus, device, function: 0 };
        let (root, upstream) = (at(bus, 1), at(bus + 1, 0));
        let bridge = format!("pci0000:{bus:02x}");
        let port = |address, parent, kind, id| FunctionSpec {
            address,
            parent,
            host_bridge: bridge.clone(),
            kind,
            id,
            class: BRIDGE,
            numa_node: Some(u32::from(socket)),
            max: Some(shape.link),
            trained: None,
            idle: None,
            errors: PcieErrors::default(),
            slot: None,
            acs_redirect: false,
        };
        self.pci.push(port(root, None, PciKind::RootPort, (0x1022, 0x1483)));
        self.pci.push(port(upstream, Some(root), PciKind::SwitchUpstream, (0x1000, 0xc010)));
        for below in 0..gpus + u8::from(adapter) {
            let (downstream, address) = (at(bus + 2, below), at(bus + 3 + below, 0));
            self.pci.push(port(downstream, Some(upstream), PciKind::SwitchDownstream, (0x1000, 0xc010)));
            let mut endpoint = port(address, Some(downstream), PciKind::Endpoint, (0x10de, 0x26b9));
            if below < gpus {
                endpoint.class = CONTROLLER_3D;
                endpoint.slot = Some(format!("{}", self.gpus.len() + 1));
                self.gpus.push((shape.gpu)(address));
            } else {
                (endpoint.id, endpoint.class) = ((0x15b3, 0x101b), INFINIBAND);
                let name = format!("mlx5_{}", self.adapters.len());
                self.adapters.push(AdapterSpec { name, kind: AdapterKind::Rdma, pci: address });
            }
            self.pci.push(endpoint);
        }
    }
}

/// An L40S.
pub fn l40s(pci: PciAddress) -> GpuSpec {
    GpuSpec {
        name: "NVIDIA L40S".into(),
        architecture: "Ada".into(),
        pci,
        memory: Bytes(46_068 * MIB),
        memory_free: Bytes(45_487 * MIB),
        bar1: Bytes(64 * GIB),
        local_gbps: 700.0,
        copy_engines: 2,
        nvlinks: Vec::new(),
        clocks_mhz: (2520, 9001),
        fabric: None,
        state: GpuState::default(),
    }
}
