//! Network adapters with a PCI address.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Sysfs;
use super::read::{hex, names};
use crate::model::reading::Unknown;
use crate::model::snapshot::{Adapter, AdapterKind};
use crate::model::units::PciAddress;

/// Base class of network controllers.
const NETWORK: u32 = 0x02;

impl Sysfs {
    /// RDMA and Ethernet adapters, one per PCI function, by address. RDMA wins where a function is
    /// both. Virtual functions beside their physical one are left out: they share its path.
    pub(super) fn adapters(&self, problems: &mut Vec<String>) -> Vec<Adapter> {
        let mut found: BTreeMap<PciAddress, Adapter> = BTreeMap::new();
        for (class, kind) in [("class/infiniband", AdapterKind::Rdma), ("class/net", AdapterKind::Ethernet)] {
            let dir = self.sys.join(class);
            match names(&dir) {
                Ok(names) => {
                    for name in names {
                        if let Some(pci) = self.network_function(&dir.join(&name).join("device")) {
                            found.entry(pci).or_insert(Adapter { name, kind, pci });
                        }
                    }
                }
                Err(Unknown::Unsupported) => {}
                Err(unknown) => problems.push(format!("/sys/{class} cannot be listed ({unknown})")),
            }
        }
        found.into_values().collect()
    }

    /// The PCI function of a network device, or the one above it (virtio). A USB adapter below a USB
    /// controller has none.
    fn network_function(&self, device: &Path) -> Option<PciAddress> {
        let path = fs::canonicalize(device).ok()?;
        let address: PciAddress = path.ancestors().find_map(|dir| dir.file_name()?.to_str()?.parse().ok())?;
        let function = self.device(address);
        let itself = path.ends_with(address.to_string());
        if !itself && hex(&function.join("class")).ok()? >> 16 != NETWORK {
            return None;
        }
        (!function.join("physfn").exists()).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn an_adapter_is_listed_once_and_rdma_wins() {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:00:01.0/0000:01:00.0", 0x15b3, 0x02_0000);
        machine.function("pci0000:00/0000:00:02.0/0000:02:00.0", 0x15b3, 0x02_0700);
        machine.function("pci0000:00/0000:00:03.0", 0x1af4, 0x02_0000);
        machine.function("pci0000:00/0000:00:14.0", 0x8086, 0x0c_0330);
        machine.function("pci0000:00/0000:00:01.0/0000:01:00.1", 0x15b3, 0x02_0000);
        machine.link("bus/pci/devices/0000:01:00.1/physfn", "bus/pci/devices/0000:01:00.0");
        for (class, device) in [
            ("infiniband/mlx5_0", "bus/pci/devices/0000:01:00.0"),
            ("infiniband/mlx5_1", "bus/pci/devices/0000:02:00.0"),
            ("net/ens1f0np0", "bus/pci/devices/0000:01:00.0"),
            ("net/ens1f0v0", "bus/pci/devices/0000:01:00.1"),
        ] {
            machine.link(&format!("class/{class}/device"), device);
        }
        machine.sys("devices/pci0000:00/0000:00:03.0/virtio1/features", "");
        machine.link("class/net/eth0/device", "devices/pci0000:00/0000:00:03.0/virtio1");
        machine.sys("devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/x", "");
        machine.link("class/net/usb0/device", "devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0");
        machine.sys("class/net/lo/address", "00:00:00:00:00:00\n");
        machine.sys("class/net/bonding_masters", "\n");

        let tree = machine.sysfs().pci_tree();
        let address = |text: &str| -> PciAddress { text.parse().unwrap() };
        let adapter = |name: &str, kind, pci| Adapter { name: name.into(), kind, pci: address(pci) };
        assert_eq!(
            tree.adapters,
            [
                adapter("eth0", AdapterKind::Ethernet, "0000:00:03.0"),
                adapter("mlx5_0", AdapterKind::Rdma, "0000:01:00.0"),
                adapter("mlx5_1", AdapterKind::Rdma, "0000:02:00.0"),
            ]
        );
        assert!(tree.functions.iter().any(|function| function.address == address("0000:00:01.0")));
    }
}
