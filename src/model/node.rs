//! Identity of nodes in the graph: ids that are values here and short texts in a report.

use std::fmt;
use std::str::FromStr;

use super::units::{PciAddress, held_as_text};

/// The id of a node of the graph, unique and stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId {
    /// A PCI function that is no GPU: `0000:3b:00.0`.
    Pci(PciAddress),
    /// A GPU by NVML's index: `gpu0`.
    Gpu(u32),
    /// The memory of a NUMA node, `numa0`; `numa-unknown` for host bridges with an unknown node.
    Numa(Option<u32>),
    /// All NVSwitches together: `nvswitch`.
    NvSwitch,
    /// The root of a part of the PCI tree that is not visible: `pci-unknown`.
    HiddenRoot,
    /// A host bridge as the kernel names it, by domain and bus: `pci0000:00`.
    HostBridge(u32, u8),
}

impl NodeId {
    /// Returns the host bridge that the kernel calls by this name.
    pub fn host_bridge(name: &str) -> Self {
        match name.parse() {
            Ok(id @ Self::HostBridge(..)) => id,
            _ => Self::HiddenRoot,
        }
    }

    /// Returns true if this is a GPU.
    pub const fn is_gpu(self) -> bool {
        matches!(self, Self::Gpu(_))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::Gpu(index) => f.pad(&format!("gpu{index}")),
            Self::Numa(Some(node)) => f.pad(&format!("numa{node}")),
            Self::Numa(None) => f.pad("numa-unknown"),
            Self::NvSwitch => f.pad("nvswitch"),
            Self::HiddenRoot => f.pad("pci-unknown"),
            Self::HostBridge(domain, bus) => f.pad(&format!("pci{domain:04x}:{bus:02x}")),
        }
    }
}

/// Text that is not the id of a node.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "'{0}' is not a node of the topology, such as gpu0, 0000:3b:00.0, pci0000:00, numa0 or nvswitch"
)]
pub struct NotANode(String);

impl FromStr for NodeId {
    type Err = NotANode;

    /// Reads ids exactly as they are written, and nothing else.
    fn from_str(text: &str) -> Result<Self, NotANode> {
        let parse = || {
            Some(match text {
                "numa-unknown" => Self::Numa(None),
                "nvswitch" => Self::NvSwitch,
                "pci-unknown" => Self::HiddenRoot,
                _ => {
                    if let Ok(address) = text.parse() {
                        Self::Pci(address)
                    } else if let Some(index) = text.strip_prefix("gpu") {
                        Self::Gpu(index.parse().ok()?)
                    } else if let Some(node) = text.strip_prefix("numa") {
                        Self::Numa(Some(node.parse().ok()?))
                    } else {
                        let (domain, bus) = text.strip_prefix("pci")?.split_once(':')?;
                        Self::HostBridge(
                            u32::from_str_radix(domain, 16).ok()?,
                            u8::from_str_radix(bus, 16).ok()?,
                        )
                    }
                }
            })
        };
        parse().filter(|id| id.to_string() == text).ok_or_else(|| NotANode(text.to_owned()))
    }
}

held_as_text!(NodeId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written_and_nothing_else_is() {
        let address = "0000:3b:00.0".parse().unwrap();
        for (text, id) in [
            ("gpu10", NodeId::Gpu(10)),
            ("0000:3b:00.0", NodeId::Pci(address)),
            ("pci10000:e0", NodeId::HostBridge(0x10000, 0xe0)),
            ("pci-unknown", NodeId::HiddenRoot),
            ("numa0", NodeId::Numa(Some(0))),
            ("numa-unknown", NodeId::Numa(None)),
            ("nvswitch", NodeId::NvSwitch),
        ] {
            assert_eq!((text.parse::<NodeId>().unwrap(), id.to_string().as_str()), (id, text));
        }
        for text in [
            "",
            "gpu",
            "gpu01",
            "gpu-1",
            "GPU0",
            "3b:00.0",
            "pci",
            "pci0:0",
            "numa",
            "numax",
            "nvswitch0",
        ] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
        assert_eq!(NodeId::host_bridge("gpu0"), NodeId::HiddenRoot);
    }
}
