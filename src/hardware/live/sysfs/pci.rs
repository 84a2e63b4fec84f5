//! The PCI paths from GPUs and adapters up to their root ports.

use std::collections::BTreeMap;
use std::fs;

use super::Sysfs;
use super::config::{Config, PortType};
use super::read::{hex, names, odd, text};
use model::node::NodeId;
use model::pcie::{BRIDGE, DISPLAYS, NVIDIA, SWITCH};
use model::reading::Unknown;
use model::snapshot::{Adapter, PciFunction, PciKind};
use model::units::{Generation, Lanes, PciAddress};

/// Device id of the first NVSwitches; later ones have higher ids. Chipsets of NVIDIA's for processors of before 2010
/// have functions of the class too, with lower ids. Source: the PCI ID Repository.
pub(super) const FIRST_NVSWITCH: u16 = 0x1ac0;

/// Functions that NVIDIA made.
#[derive(Default)]
pub(super) struct Nvidia {
    pub(super) gpus: Vec<PciAddress>,
    pub(super) switches: Vec<PciAddress>,
}

/// The position of a function: its host bridge, and the functions from the root down to itself.
struct TreePosition {
    host_bridge: String,
    path: Vec<PciAddress>,
}

impl Sysfs {
    /// Returns these GPUs and adapters with everything above them, sorted by address.
    pub(super) fn functions(
        &self,
        gpus: &[PciAddress],
        adapters: &[Adapter],
        problems: &mut Vec<String>,
    ) -> Vec<PciFunction> {
        let mut leaves = gpus.to_vec();
        leaves.extend(adapters.iter().map(|adapter| adapter.pci));
        let slots = self.slots();
        let mut functions: BTreeMap<PciAddress, PciFunction> = BTreeMap::new();
        for leaf in leaves {
            let place = match self.place(leaf) {
                Ok(place) => place,
                Err(unknown) => {
                    problems.push(format!("{leaf} cannot be placed in the PCI tree ({unknown})"));
                    continue;
                }
            };
            let kinds = self.kinds(&place.path);
            let mut parent = None;
            for (&address, kind) in place.path.iter().zip(kinds) {
                let function = functions.entry(address).or_insert_with(|| {
                    let slot = slots.get(&PciAddress { function: 0, ..address }).cloned();
                    // Use the firmware's own label if the kernel has no slot.
                    let slot = slot.or_else(|| text(&self.device(address).join("label")).ok());
                    self.function(address, parent, place.host_bridge.clone(), kind, slot)
                });
                // Another path below the same bridge may reveal the kind that the first did not.
                if function.kind == PciKind::Bridge {
                    function.kind = kind;
                }
                parent = Some(address);
            }
        }
        functions.into_values().collect()
    }

    /// Returns every function of NVIDIA's whose class is that of a GPU or an NVSwitch. Virtual functions are left out:
    /// they are parts of a GPU.
    pub(super) fn nvidia(&self, problems: &mut Vec<String>) -> Nvidia {
        let dir = self.sys.join("bus/pci/devices");
        let names = names(&dir).unwrap_or_else(|unknown| {
            problems.push(format!("the PCI functions cannot be listed ({unknown})"));
            Vec::new()
        });
        let mut found = Nvidia::default();
        for name in &names {
            let function = dir.join(name);
            let Some(class) = hex(&function.join("class")).ok().map(|class| class >> 8) else {
                continue;
            };
            let wanted = DISPLAYS.contains(&class) || class == SWITCH;
            if !wanted
                || hex(&function.join("vendor")) != Ok(NVIDIA.into())
                || function.join("physfn").exists()
            {
                continue;
            }
            let Ok(address) = name.parse() else { continue };
            if class == SWITCH { found.switches.push(address) } else { found.gpus.push(address) }
        }
        found
    }

    /// Reads the place from the target of the symlink in `bus/pci/devices`, for example
    /// `…/devices/pci0000:00/0000:00:01.0/0000:01:00.0`.
    fn place(&self, leaf: PciAddress) -> Result<TreePosition, Unknown> {
        let path = fs::canonicalize(self.device(leaf))
            .map_err(|error| Unknown::Failed(format!("its symlink: {error}")))?;
        let mut place = TreePosition {
            host_bridge: format!("pci{:04x}:{:02x}", leaf.domain, leaf.bus),
            path: Vec::with_capacity(4),
        };
        for name in path.iter().filter_map(|name| name.to_str()) {
            match name.parse() {
                // A host bridge may itself be below a function (Intel VMD): the lowest counts.
                Ok(NodeId::HostBridge(..)) => {
                    name.clone_into(&mut place.host_bridge);
                    place.path.clear();
                }
                Ok(NodeId::Pci(address)) => place.path.push(address),
                _ => {}
            }
        }
        if place.path.last() != Some(&leaf) {
            place.path = vec![leaf];
        }
        Ok(place)
    }

    /// Returns the kind of each function of a path, from the root down. Uses the configuration space if it may be read,
    /// otherwise the place in the path.
    fn kinds(&self, path: &[PciAddress]) -> Vec<PciKind> {
        let is_bridge = |address: &PciAddress| {
            hex(&self.device(*address).join("class")).is_ok_and(|class| class >> 8 == BRIDGE)
        };
        let bridges: Vec<_> = path.iter().map(is_bridge).collect();
        let mut kinds: Vec<PciKind> = Vec::with_capacity(path.len());
        for (depth, &address) in path.iter().enumerate() {
            let dir = self.device(address);
            let kind = if !bridges[depth] {
                PciKind::Endpoint
            } else if let Ok(port) =
                Config::open(&dir.join("config")).and_then(|config| config.port_type())
            {
                match port {
                    PortType::RootPort => PciKind::RootPort,
                    PortType::Upstream => PciKind::SwitchUpstream,
                    PortType::Downstream => PciKind::SwitchDownstream,
                    PortType::Other => PciKind::Bridge,
                }
            } else if !dir.join("current_link_speed").exists() {
                // The kernel has link files for Express functions only, so this is a conventional bridge.
                PciKind::Bridge
            } else {
                let above = depth.checked_sub(1).map(|depth| kinds[depth]);
                let bridge_below = bridges.get(depth + 1).copied().unwrap_or(false);
                match above {
                    None => PciKind::RootPort,
                    Some(PciKind::SwitchUpstream) => PciKind::SwitchDownstream,
                    // Below the upstream port of a switch there are only its downstream ports.
                    Some(PciKind::RootPort | PciKind::SwitchDownstream) if bridge_below => {
                        PciKind::SwitchUpstream
                    }
                    _ => PciKind::Bridge,
                }
            };
            kinds.push(kind);
        }
        kinds
    }

    /// Returns slot names by the address of the device in the slot, function 0.
    fn slots(&self) -> BTreeMap<PciAddress, String> {
        let dir = self.sys.join("bus/pci/slots");
        let address =
            |name: &str| format!("{}.0", text(&dir.join(name).join("address")).ok()?).parse().ok();
        names(&dir)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| Some((address(&name)?, name)))
            .collect()
    }
}

/// Returns the PCIe generation of the kernel's speed text: `16.0 GT/s PCIe`, `8 GT/s`.
pub(super) fn generation(text: &str) -> Result<Generation, Unknown> {
    let (rate, unit) = text.split_once(' ').unwrap_or((text, ""));
    let generations = [("2.5", 1_u8), ("5", 2), ("8", 3), ("16", 4), ("32", 5), ("64", 6)];
    let rate = rate.trim_end_matches(".0");
    let generation =
        generations.iter().find(|(known, _)| unit.starts_with("GT/s") && *known == rate);
    generation.and_then(|&(_, generation)| generation.try_into().ok()).ok_or_else(|| odd(text))
}

/// Returns the lanes of the kernel's width text. Broken links and virtual machines report 0, 63 and 255; no link has
/// them.
pub(super) fn width(text: &str) -> Result<Lanes, Unknown> {
    text.parse::<u32>().ok().and_then(|lanes| lanes.try_into().ok()).ok_or_else(|| odd(text))
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::space;
    use super::super::fixture::Fixture;
    use super::*;
    use model::reading::Reading;
    use model::snapshot::{Bar, PciPower, RuntimeStatus};
    use model::units::{Bytes, GIB, MIB};

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    const ROOT_PORT: &str = "pci0000:00/0000:00:01.0";
    const UPSTREAM: &str = "pci0000:00/0000:00:01.0/0000:01:00.0";
    const DOWNSTREAM: &str = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:04.0";
    const GPU: &str = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:04.0/0000:03:00.0";

    /// Creates a GPU below a switch, and one directly at a root port that trained narrow.
    fn two_gpus() -> Fixture {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:00:00.0", 0x8086, 0x06_0000);
        for path in [ROOT_PORT, UPSTREAM, DOWNSTREAM, "pci0000:80/0000:80:03.0"] {
            machine.function(path, 0x8086, 0x06_0400);
            machine.pcie(path, ["16.0 GT/s PCIe", "16.0 GT/s PCIe"], ["16", "16"]);
        }
        machine.function(GPU, 0x10de, 0x03_0200);
        machine.pcie(GPU, ["16.0 GT/s PCIe", "32 GT/s"], ["16", "16"]);
        machine.function("pci0000:80/0000:80:03.0/0000:81:00.0", 0x10de, 0x03_0000);
        machine.pcie("pci0000:80/0000:80:03.0/0000:81:00.0", ["2.5 GT/s", "8 GT/s"], ["4", "16"]);
        // The GPU's audio function is no GPU.
        machine.function("pci0000:80/0000:80:03.0/0000:81:00.1", 0x10de, 0x04_0300);
        machine
    }

    fn read(machine: &Fixture) -> Vec<PciFunction> {
        let tree = machine.sysfs().pci_tree();
        assert!(tree.problems.is_empty(), "{:?}", tree.problems);
        tree.functions
    }

    fn get<'a>(functions: &'a [PciFunction], text: &str) -> &'a PciFunction {
        functions.iter().find(|function| function.address == address(text)).unwrap()
    }

    #[test]
    fn the_path_of_every_gpu_is_whole() {
        insta::assert_json_snapshot!("two-gpus", read(&two_gpus()));
    }

    #[test]
    fn configuration_space_has_port_type_and_access_control() {
        let machine = two_gpus();
        machine.sys(&format!("devices/{ROOT_PORT}/config"), space(4, Some(0x04)));
        machine.sys(&format!("devices/{UPSTREAM}/config"), space(7, None));
        machine.sys(&format!("devices/{DOWNSTREAM}/config"), &space(6, Some(0x1d))[..64]);
        let functions = read(&machine);
        let root_port = get(&functions, "0000:00:01.0");
        assert_eq!((root_port.kind, root_port.acs_redirect.get()), (PciKind::RootPort, Some(true)));
        let bridge = get(&functions, "0000:01:00.0");
        assert_eq!((bridge.kind, &bridge.acs_redirect), (PciKind::Bridge, &Reading::unsupported()));
        let below = get(&functions, "0000:02:04.0");
        assert_eq!(below.acs_redirect, Reading::Unknown(Unknown::Denied("needs root".into())));
        assert_eq!(get(&functions, "0000:03:00.0").acs_redirect, Reading::unsupported());
    }

    #[test]
    fn facts_around_a_function_are_read() {
        let machine = two_gpus();
        machine.sys(&format!("devices/{GPU}/numa_node"), "1\n");
        machine.sys(&format!("devices/{ROOT_PORT}/numa_node"), "-1\n");
        machine.link(&format!("devices/{GPU}/iommu_group"), "kernel/iommu_groups/42");
        machine.sys("kernel/iommu_groups/42/type", "DMA-FQ\n");
        machine.sys("bus/pci/slots/7-1/address", "0000:03:00\n");
        machine.sys("bus/pci/slots/empty/address", "\n");
        machine.sys(
            &format!("devices/{GPU}/aer_dev_correctable"),
            "RxErr 2\nBadTLP 1\nTOTAL_ERR_COR 3\n",
        );
        machine
            .sys(&format!("devices/{GPU}/aer_dev_nonfatal"), "Undefined 0\nTOTAL_ERR_NONFATAL 0\n");
        machine.sys(&format!("devices/{GPU}/aer_dev_fatal"), "nonsense\n\u{0}");
        let functions = read(&machine);
        let read = ["0000:00:01.0", "0000:03:00.0"].map(|text| get(&functions, text));
        insta::assert_json_snapshot!("facts-around", read);
    }

    #[test]
    fn power_packets_windows_and_cables_are_read() {
        let machine = two_gpus();
        machine.sys(&format!("devices/{GPU}/config"), space(0, None));
        machine.sys(&format!("devices/{GPU}/power_state"), "D3cold\n");
        machine.sys(&format!("devices/{GPU}/power/runtime_status"), "suspended\n");
        machine.sys(&format!("devices/{GPU}/removable"), "removable\n");
        machine.sys(&format!("devices/{ROOT_PORT}/removable"), "fixed\n");
        machine.sys(&format!("devices/{ROOT_PORT}/power_state"), "unknown\n");
        machine.sys(&format!("devices/{ROOT_PORT}/power/runtime_status"), "unsupported\n");
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let window = "0x0000000a00000000 0x0000000a0fffffff 0x000000000014220c\n";
        machine.sys(
            &format!("devices/{GPU}/resource"),
            format!("{none}{window}{none}{none}nonsense\n{none}{window}"),
        );
        machine.sys(&format!("devices/{GPU}/resource1_resize"), "000000000000ffc0\n");
        machine.sys(&format!("devices/{DOWNSTREAM}/config"), [0xff; 4096]);
        let functions = read(&machine);
        let gpu = get(&functions, "0000:03:00.0");
        assert_eq!((gpu.answers.get(), gpu.max_payload_bytes.get()), (Some(true), Some(256)));
        assert_eq!(
            (gpu.max_payload_possible_bytes.get(), gpu.max_read_request_bytes.get()),
            (Some(512), Some(4096))
        );
        assert_eq!(gpu.power_state.get(), Some(PciPower::D3Cold));
        assert_eq!(
            (gpu.runtime_status.get(), gpu.removable.get()),
            (Some(RuntimeStatus::Suspended), Some(true))
        );
        // The seventh line is the ROM.
        let bar = Bar { number: 1, bytes: Bytes(256 * MIB), largest_bytes: Some(Bytes(32 * GIB)) };
        assert_eq!(gpu.bars, Reading::Known(vec![bar]));
        let port = get(&functions, "0000:00:01.0");
        assert_eq!((port.power_state.get(), &port.runtime_status), (None, &Reading::unsupported()));
        assert_eq!((port.removable.get(), &port.bars), (Some(false), &Reading::unsupported()));
        let dead = get(&functions, "0000:02:04.0");
        assert_eq!(dead.answers.get(), Some(false));
        assert!(
            matches!(dead.max_payload_bytes.unknown(), Some(Unknown::Failed(why)) if why.contains("all ones"))
        );
        // Without root only the header can be read, and it answers.
        machine.sys(&format!("devices/{GPU}/config"), &space(0, None)[..64]);
        let functions = read(&machine);
        let gpu = get(&functions, "0000:03:00.0");
        assert_eq!(gpu.answers.get(), Some(true));
        assert_eq!(gpu.max_payload_bytes, Reading::Unknown(Unknown::Denied("needs root".into())));
    }

    #[test]
    fn nonsense_about_a_link_is_unknown_and_no_number() {
        for (text, expected) in [
            ("2.5 GT/s", Some(1)),
            ("5.0 GT/s PCIe", Some(2)),
            ("8 GT/s", Some(3)),
            ("16.0 GT/s PCIe", Some(4)),
            ("32 GT/s", Some(5)),
            ("64.0 GT/s PCIe", Some(6)),
            ("Unknown", None),
            ("Unknown speed", None),
            ("", None),
            ("8", None),
            ("7 GT/s", None),
            ("-8 GT/s", None),
        ] {
            assert_eq!(generation(text).ok().map(Generation::number), expected, "{text}");
        }
        for (text, expected) in [
            ("1", Some(1)),
            ("16", Some(16)),
            ("0", None),
            ("63", None),
            ("255", None),
            ("", None),
            ("x16", None),
        ] {
            assert_eq!(width(text).ok().map(Lanes::number), expected, "{text}");
        }
        assert_eq!(width("63"), Err(Unknown::Failed("the kernel says '63'".into())));
    }

    #[test]
    fn a_virtual_machine_is_flat() {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:00:06.0", 0x10de, 0x03_0200);
        machine.pcie("pci0000:00/0000:00:06.0", ["", "Unknown"], ["0", "255"]);
        let functions = read(&machine);
        assert_eq!(functions.len(), 1);
        let gpu = &functions[0];
        assert_eq!(
            (gpu.kind, gpu.parent, gpu.host_bridge.as_str()),
            (PciKind::Endpoint, None, "pci0000:00")
        );
        assert_eq!([gpu.generation.get(), gpu.generation_max.get()], [None; 2]);
        assert_eq!([gpu.width.get(), gpu.width_max.get()], [None; 2]);
    }

    #[test]
    fn bridges_that_are_no_ports_are_bridges() {
        let machine = Fixture::new();
        // A conventional bridge has no link files. An Express-to-PCI bridge has no bridge below.
        machine.function("pci0000:00/0000:00:1e.0", 0x8086, 0x06_0400);
        machine.function("pci0000:00/0000:00:1e.0/0000:05:00.0", 0x10de, 0x03_0000);
        machine.function("pci0000:00/0000:00:01.0", 0x8086, 0x06_0400);
        machine.pcie("pci0000:00/0000:00:01.0", ["8 GT/s", "8 GT/s"], ["4", "4"]);
        machine.function("pci0000:00/0000:00:01.0/0000:01:00.0", 0x8086, 0x06_0400);
        machine.pcie("pci0000:00/0000:00:01.0/0000:01:00.0", ["8 GT/s", "8 GT/s"], ["4", "4"]);
        machine.function("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", 0x10de, 0x03_0000);
        let functions = read(&machine);
        assert_eq!(get(&functions, "0000:00:1e.0").kind, PciKind::Bridge);
        assert_eq!(get(&functions, "0000:00:01.0").kind, PciKind::RootPort);
        assert_eq!(get(&functions, "0000:01:00.0").kind, PciKind::Bridge);
    }

    #[test]
    fn virtual_domains_hang_below_their_own_bridge() {
        let machine = Fixture::new();
        let path = "pci0000:c0/0000:c0:00.5/pci10000:00/10000:00:02.0/10000:01:00.0";
        machine.function("pci0000:c0/0000:c0:00.5/pci10000:00/10000:00:02.0", 0x8086, 0x06_0400);
        machine.function(path, 0x10de, 0x03_0200);
        let functions = read(&machine);
        let all: Vec<_> = functions.iter().map(|function| function.address.to_string()).collect();
        assert_eq!(all, ["10000:00:02.0", "10000:01:00.0"]);
        assert_eq!(functions[1].host_bridge, "pci10000:00");
    }

    #[test]
    fn a_machine_without_pci_says_so() {
        let tree = Fixture::new().sysfs().pci_tree();
        assert!(tree.functions.is_empty());
        assert_eq!(tree.problems, ["the PCI functions cannot be listed (unsupported)"]);
    }
}
