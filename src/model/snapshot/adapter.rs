//! Network adapters.

use serde::{Deserialize, Serialize};

use crate::reading::facts;
use crate::units::PciAddress;

facts! {
    /// A network adapter.
    pub struct Adapter {
        /// The kernel's name of the adapter, such as `mlx5_0` or `eth0`.
        name: String,
        /// RDMA or Ethernet.
        kind: AdapterKind,
        /// PCI address.
        pci: PciAddress,
        => readings {
            /// Its ports; an Ethernet adapter has one.
            ports: Vec<AdapterPort>,
            /// Version of its firmware (`fw_ver`). RDMA only.
            firmware: String,
            /// The maker's identifier of the board (`board_id`), such as `MT_0000000838`. RDMA only.
            board: String,
            /// NUMA node.
            numa_node: u32,
        }
    }
}

/// The kind of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AdapterKind {
    /// An RDMA device (InfiniBand or RoCE).
    Rdma,
    /// A network interface without RDMA.
    Ethernet,
}

facts! {
    /// A port of a network adapter.
    pub struct AdapterPort {
        /// Number of the port, from 1.
        port: u32,
        => readings {
            /// The kernel's word in lower case: `active`, `down`, `init`, `armed` for RDMA; `up`, `down` for
            /// Ethernet.
            state: String,
            /// `InfiniBand` or `Ethernet`.
            link_layer: String,
            /// Rate of the port, megabits per second.
            rate_mbit: u32,
            /// The kernel's word for the signal below it, such as `LinkUp`, `Polling`, `Disabled`. RDMA only.
            physical_state: String,
            /// Times that the link went down, and retraining had failed (`link_downed`). RDMA only, as all counters of a
            /// port, which count since the adapter was started.
            link_downed: u64,
            /// Times that the link was retrained (`link_error_recovery`).
            link_recovered: u64,
            /// Errors of single symbols (`symbol_error`).
            symbol_errors: u64,
            /// Packets that arrived with an error (`port_rcv_errors`).
            receive_errors: u64,
        }
    }
}

impl AdapterPort {
    /// Returns true if it carries data: RDMA is `active`, Ethernet `up`. Unknown if its state is.
    pub fn is_up(&self) -> Option<bool> {
        self.state.known().map(|state| ["active", "up"].contains(&state.as_str()))
    }

    /// Returns its error counters that are not 0, with words for one of each.
    pub fn errors(&self) -> Vec<(u64, &'static str)> {
        let all = [
            (&self.link_downed, "link failure"),
            (&self.link_recovered, "retraining"),
            (&self.symbol_errors, "symbol error"),
            (&self.receive_errors, "receive error"),
        ];
        let known = all.into_iter().filter_map(|(count, thing)| Some((count.get()?, thing)));
        known.filter(|(count, _)| *count > 0).collect()
    }
}
