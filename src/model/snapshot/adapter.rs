//! Network adapters.

use serde::{Deserialize, Serialize};

use crate::reading::facts;
use crate::units::PciAddress;

/// A network adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Adapter {
    /// The kernel's name of the adapter, such as `mlx5_0` or `eth0`.
    pub name: String,
    /// RDMA or Ethernet.
    pub kind: AdapterKind,
    /// PCI address.
    pub pci: PciAddress,
    /// Its ports; an Ethernet adapter has one.
    #[serde(default)]
    pub ports: Vec<AdapterPort>,
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
        }
    }
}
