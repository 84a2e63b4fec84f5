//! Values that follow from the rest of a description if it omits them.

use std::collections::HashMap;

use super::defaults::{
    CROSS_SOCKET, NVLINK, PCIE, STAGED, all, host_memory, local_gbps, local_gbps_of,
};
use super::{FunctionSpec, HostSpeeds, MachineSpec, NumaNodeSpec, NvLinkTarget, Speeds};
use model::pcie::{DEEPEST, NVIDIA};
use model::snapshot::{AdapterKind, PciKind};
use model::units::PciAddress;

/// Most peers that CUDA enables at the same time for one GPU without NVSwitches.
const PEER_LIMIT: u32 = 8;

impl Default for Speeds {
    fn default() -> Self {
        Self {
            nvlink: NVLINK,
            pcie: PCIE,
            cross_socket: CROSS_SOCKET,
            staged: STAGED,
            nvlink_shared: 399.6 / 450.0,
            pcie_shared: 0.86,
            interconnect_gbps: 60.0,
            host_memory_gbps: 80.0,
            copy_call_us: 4.0,
            call_us: 1.5,
            // 1.8 ms of a 512 MiB call.
            staged_call_us_per_mib: 1800.0 / 512.0,
            host: HostSpeeds::default(),
        }
    }
}

impl MachineSpec {
    /// Fills in omitted values that follow from the rest.
    pub(crate) fn complete(&mut self) {
        if self.numa_nodes.is_empty() {
            self.numa_nodes.push(NumaNodeSpec {
                cpus: "0-31".into(),
                memory: host_memory(),
                read_gbps: None,
                write_gbps: None,
            });
        }
        for gpu in &mut self.gpus {
            if gpu.memory_free == all() {
                gpu.memory_free = gpu.memory;
            }
            if gpu.local_gbps.to_bits() == local_gbps().to_bits() {
                gpu.local_gbps = local_gbps_of(&gpu.name);
            }
        }
        let switched = self
            .gpus
            .iter()
            .flat_map(|gpu| &gpu.nvlinks)
            .any(|links| links.remote == NvLinkTarget::Switch);
        if self.peers.limit.is_none() && !switched {
            self.peers.limit = Some(PEER_LIMIT);
        }
        self.complete_functions();
    }

    fn complete_functions(&mut self) {
        // Index of the functions by address, so that large trees are searched once.
        let places: HashMap<PciAddress, usize> = self
            .pci
            .iter()
            .enumerate()
            .map(|(place, function)| (function.address, place))
            .collect();
        let inherited: Vec<_> = self
            .pci
            .iter()
            .map(|function| {
                let above =
                    |function: &&FunctionSpec| self.pci.get(*places.get(&function.parent?)?);
                let path: Vec<_> =
                    std::iter::successors(Some(function), above).take(DEEPEST).collect();
                let bridge = path.iter().find(|function| !function.host_bridge.is_empty());
                let top = path.last().map_or(function.address, |top| top.address);
                let bridge = bridge.map_or_else(
                    || format!("pci{:04x}:{:02x}", top.domain, top.bus),
                    |function| function.host_bridge.clone(),
                );
                (bridge, path.iter().find_map(|function| function.numa_node))
            })
            .collect();
        let gpus: Vec<_> = self.gpus.iter().map(|gpu| gpu.pci).collect();
        for (function, (bridge, numa_node)) in self.pci.iter_mut().zip(inherited) {
            (function.host_bridge, function.numa_node) = (bridge, numa_node);
            let adapter = self.adapters.iter().find(|adapter| adapter.pci == function.address);
            // The ids and classes of the built-in PCIe machines.
            let (id, class) = match (function.kind, adapter.map(|adapter| adapter.kind)) {
                (PciKind::RootPort, _) => ((0x1022, 0x1483), 0x06_0400),
                (PciKind::SwitchUpstream | PciKind::SwitchDownstream | PciKind::Bridge, _) => {
                    ((0x1000, 0xc010), 0x06_0400)
                }
                (PciKind::Endpoint, Some(AdapterKind::Rdma)) => ((0x15b3, 0x101b), 0x02_0700),
                (PciKind::Endpoint, Some(AdapterKind::Ethernet)) => ((0x8086, 0x1533), 0x02_0000),
                (PciKind::Endpoint, None) if gpus.contains(&function.address) => {
                    ((NVIDIA, 0x26b9), 0x03_0200)
                }
                (PciKind::Endpoint, None) => continue,
            };
            if function.id == (0, 0) {
                function.id = id;
            }
            if function.class == 0 {
                function.class = class;
            }
        }
    }
}
