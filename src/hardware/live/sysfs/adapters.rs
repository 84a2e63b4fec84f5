//! Network adapters with a PCI address.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Sysfs;
use super::read::{hex, names, number, odd, text};
use model::reading::{Reading, Unknown};
use model::snapshot::{Adapter, AdapterKind, AdapterPort};
use model::units::PciAddress;

/// Base class of network controllers.
const NETWORK: u32 = 0x02;

impl Sysfs {
    /// Returns the RDMA and Ethernet adapters, one per PCI function, sorted by address. RDMA wins if a function is
    /// both. Virtual functions are left out if their physical one is present: they share its path.
    pub(super) fn adapters(&self, problems: &mut Vec<String>) -> Vec<Adapter> {
        let mut found: BTreeMap<PciAddress, Adapter> = BTreeMap::new();
        for (class, kind) in
            [("class/infiniband", AdapterKind::Rdma), ("class/net", AdapterKind::Ethernet)]
        {
            let dir = self.sys.join(class);
            match names(&dir) {
                Ok(names) => {
                    for name in names {
                        if let Some(pci) = self.network_function(&dir.join(&name).join("device")) {
                            found
                                .entry(pci)
                                .or_insert_with(|| self.adapter(&dir.join(&name), name, kind, pci));
                        }
                    }
                }
                Err(Unknown::Unsupported) => {}
                Err(unknown) => problems.push(format!("/sys/{class} cannot be listed ({unknown})")),
            }
        }
        found.into_values().collect()
    }

    /// Returns the adapter with this folder.
    fn adapter(&self, dir: &Path, name: String, kind: AdapterKind, pci: PciAddress) -> Adapter {
        let of_rdma = |file: &str| match kind {
            AdapterKind::Rdma => text(&dir.join(file)).into(),
            AdapterKind::Ethernet => Reading::unsupported(),
        };
        Adapter {
            ports: ports(dir, kind).into(),
            firmware: of_rdma("fw_ver"),
            board: of_rdma("board_id"),
            numa_node: self.numa_node(pci),
            name,
            kind,
            pci,
        }
    }

    /// Returns the PCI function of a network device, or the one above it (virtio). Returns `None` for a virtual
    /// function, and for a USB adapter, which is below a USB controller.
    fn network_function(&self, device: &Path) -> Option<PciAddress> {
        let path = fs::canonicalize(device).ok()?;
        let address: PciAddress =
            path.ancestors().find_map(|dir| dir.file_name()?.to_str()?.parse().ok())?;
        let function = self.device(address);
        let itself = path.ends_with(address.to_string());
        if !itself && hex(&function.join("class")).ok()? >> 16 != NETWORK {
            return None;
        }
        (!function.join("physfn").exists()).then_some(address)
    }
}

/// Returns the ports of the adapter with this folder.
fn ports(dir: &Path, kind: AdapterKind) -> Result<Vec<AdapterPort>, Unknown> {
    if kind == AdapterKind::Ethernet {
        return Ok(vec![AdapterPort {
            state: text(&dir.join("operstate")).into(),
            link_layer: Reading::Known("Ethernet".into()),
            rate_mbit: number(&dir.join("speed")).into(),
            ..AdapterPort::unread(1, &Unknown::Unsupported)
        }]);
    }
    let port = |name: &String| {
        let (port, dir) = (name.parse().ok()?, dir.join("ports").join(name));
        let count = |file: &str| number(&dir.join("counters").join(file)).into();
        let state = |file: &str| text(&dir.join(file)).and_then(|state| ib_state(&state));
        Some(AdapterPort {
            port,
            state: state("state").map(|state| state.to_ascii_lowercase()).into(),
            link_layer: text(&dir.join("link_layer")).into(),
            rate_mbit: text(&dir.join("rate")).and_then(|rate| ib_rate(&rate)).into(),
            physical_state: state("phys_state").into(),
            link_downed: count("link_downed"),
            link_recovered: count("link_error_recovery"),
            symbol_errors: count("symbol_error"),
            receive_errors: count("port_rcv_errors"),
        })
    };
    let mut ports: Vec<_> = names(&dir.join("ports"))?.iter().filter_map(port).collect();
    ports.sort_by_key(|port| port.port);
    Ok(ports)
}

/// Parses `4: ACTIVE`, `5: LinkUp`.
fn ib_state(state: &str) -> Result<String, Unknown> {
    let word = state.split_once(": ").map(|(_, word)| word.to_owned());
    word.filter(|word| !word.is_empty()).ok_or_else(|| odd(state))
}

/// Parses `400 Gb/sec (4X NDR)`, `2.5 Gb/sec (1X SDR)`.
fn ib_rate(rate: &str) -> Result<u32, Unknown> {
    let figure = rate.split_once(" Gb/sec").and_then(|(figure, _)| figure.parse::<f64>().ok());
    let figure = figure.filter(|figure| (0.0..1e6).contains(figure)).ok_or_else(|| odd(rate))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked by the range"
    )]
    let megabits = (figure * 1000.0).round() as u32;
    Ok(megabits)
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
        let found: Vec<_> = tree
            .adapters
            .iter()
            .map(|found| (found.name.as_str(), found.kind, found.pci))
            .collect();
        assert_eq!(
            found,
            [
                ("eth0", AdapterKind::Ethernet, address("0000:00:03.0")),
                ("mlx5_0", AdapterKind::Rdma, address("0000:01:00.0")),
                ("mlx5_1", AdapterKind::Rdma, address("0000:02:00.0")),
            ]
        );
        assert!(tree.functions.iter().any(|function| function.address == address("0000:00:01.0")));
    }

    #[test]
    fn ports_have_state_and_rate_and_a_speed_of_minus_one_is_unknown() {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:01:00.0", 0x15b3, 0x02_0700);
        machine.function("pci0000:00/0000:02:00.0", 0x8086, 0x02_0000);
        machine.link("class/infiniband/mlx5_0/device", "bus/pci/devices/0000:01:00.0");
        machine.link("class/net/eth0/device", "bus/pci/devices/0000:02:00.0");
        for (port, state, rate) in
            [(2, "1: DOWN", "2.5 Gb/sec (1X SDR)"), (1, "4: ACTIVE", "400 Gb/sec (4X NDR)")]
        {
            let dir = format!("class/infiniband/mlx5_0/ports/{port}");
            machine.sys(&format!("{dir}/state"), format!("{state}\n"));
            machine.sys(&format!("{dir}/rate"), format!("{rate}\n"));
            machine.sys(&format!("{dir}/link_layer"), "InfiniBand\n");
        }
        machine.sys("class/net/eth0/operstate", "down\n");
        machine.sys("class/net/eth0/speed", "-1\n");
        let adapters = machine.sysfs().pci_tree().adapters;
        let ports = |adapter: usize| adapters[adapter].ports.known().unwrap();
        let shown = |adapter: usize, port: usize| {
            let port = &ports(adapter)[port];
            (port.port, port.state.known().unwrap().as_str(), port.rate_mbit.get())
        };
        assert_eq!(
            [shown(0, 0), shown(0, 1)],
            [(1, "active", Some(400_000)), (2, "down", Some(2500))]
        );
        assert_eq!(shown(1, 0), (1, "down", None));
        assert_eq!(ports(1)[0].link_layer, Reading::Known("Ethernet".into()));
        assert!(
            ib_rate("many Gb/sec").is_err()
                && ib_rate("-1 Gb/sec (x)").is_err()
                && ib_state("ACTIVE").is_err()
        );
    }
    #[test]
    fn an_rdma_adapter_has_firmware_board_node_and_counters() {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:01:00.0", 0x15b3, 0x02_0700);
        machine.sys("devices/pci0000:00/0000:01:00.0/numa_node", "1\n");
        machine.link("class/infiniband/mlx5_0/device", "bus/pci/devices/0000:01:00.0");
        for (file, content) in [
            ("fw_ver", "28.39.1002"),
            ("board_id", "MT_0000000838"),
            ("ports/1/phys_state", "2: Polling"),
            ("ports/1/counters/link_downed", "3"),
            ("ports/1/counters/symbol_error", "0"),
            ("ports/1/counters/port_rcv_errors", "many"),
        ] {
            machine.sys(&format!("class/infiniband/mlx5_0/{file}"), format!("{content}\n"));
        }
        let adapters = machine.sysfs().pci_tree().adapters;
        let [adapter] = adapters.as_slice() else { panic!("{adapters:?}") };
        assert_eq!(adapter.firmware, Reading::Known("28.39.1002".into()));
        assert_eq!(adapter.board, Reading::Known("MT_0000000838".into()));
        assert_eq!(adapter.numa_node, Reading::Known(1));
        let [port] = adapter.ports.known().unwrap().as_slice() else { panic!("{adapters:?}") };
        assert_eq!(port.physical_state, Reading::Known("Polling".into()));
        assert_eq!(port.errors(), [(3, "link failure")]);
        assert!(port.receive_errors.get().is_none() && port.state.known().is_none());
    }

    #[test]
    fn a_machine_with_interfaces_that_are_no_cards_has_no_adapter() {
        // As a lent machine shows it: no RDMA device, and network interfaces without a PCI function.
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:00:06.0", 0x10de, 0x03_0200);
        machine.file("sys/class/infiniband/.keep");
        for name in ["eth0", "ifb0", "ifb1", "lo"] {
            machine.sys(&format!("class/net/{name}/operstate"), "up\n");
            machine.sys(&format!("class/net/{name}/speed"), "-1\n");
        }
        let tree = machine.sysfs().pci_tree();
        assert_eq!((tree.adapters, tree.problems), (Vec::new(), Vec::new()));
    }
}
