//! Values that follow from the rest of a description if it omits them.

use std::collections::HashMap;

use super::{FunctionSpec, MachineSpec, NumaNodeSpec, NvLinkTarget};
use model::pcie::{DEEPEST, NVIDIA};
use model::snapshot::{AdapterKind, PciKind};
use model::units::{Bytes, GIB, PciAddress};

/// Most peers that CUDA enables at the same time for one GPU without NVSwitches.
const PEER_LIMIT: u32 = 8;

pub(super) const fn host_memory() -> Bytes {
    Bytes(64 * GIB)
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
