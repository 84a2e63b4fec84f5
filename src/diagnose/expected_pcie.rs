//! Rates that copies over PCIe through processors reach, by the processors' vendor and generation.

use super::models::{Expected, row};
use model::snapshot::Snapshot;

/// Copies over PCIe through the root complex of one processor that is neither Intel's nor AMD's, or not known. Intel's
/// splits them into packets of 64 bytes, so the margin is wide.
pub(super) const PCIE_ROOT: Expected = row(
    // as pcie; NCCL plans a sixth less through Intel processors (published)
    "pcie-root",
    84.0,
    25.0,
    Some([63.0, 90.0]),
);
/// The same through Intel's, and between its host bridges.
const PCIE_ROOT_INTEL: Expected = of_processor(
    // NCCL plans 10 of 15.75 GB/s; Xeon 6430 and 6530: 20 of 31.5 (published: open-gpu-kernel-modules 26)
    "pcie-root-intel",
    PCIE_ROOT,
    66.0,
    12.0,
    [63.0, 84.0],
);
/// The same through AMD's.
const PCIE_ROOT_AMD: Expected = of_processor(
    // PCIe 4: 25 of 31.5 GB/s, PCIe 5 in one socket: 53 to 56.6 of 63 (published)
    "pcie-root-amd",
    PCIE_ROOT,
    84.0,
    15.0,
    [79.0, 90.0],
);
/// Copies over PCIe between host bridges or processors, and copies whose crossings cannot be seen.
pub(super) const PCIE_FAR: Expected = row(
    // PCIe 5 x16 across sockets: 39 to 51 of 63 GB/s (published)
    "pcie-far",
    70.0,
    21.0,
    Some([62.0, 81.0]),
);
/// The same between host bridges of one Intel processor.
const PCIE_NODE_INTEL: Expected = of_processor(
    // as pcie-root-intel; the margin is chosen
    "pcie-node-intel",
    PCIE_FAR,
    66.0,
    20.0,
    [63.0, 84.0],
);
/// The same between host bridges of one AMD processor.
const PCIE_NODE_AMD: Expected = of_processor(
    // PCIe 5 in one socket: 53 to 56.6 of 63 GB/s (published)
    "pcie-node-amd",
    PCIE_FAR,
    84.0,
    15.0,
    [79.0, 90.0],
);
/// The same across sockets of Intel generations whose links between processors pass little peer traffic.
const PCIE_FAR_INTEL: Expected = of_processor(
    // Sapphire Rapids, and Xeons before Skylake: NCCL plans 22 of 63 and 6 of 15.75 GB/s (published)
    "pcie-far-intel",
    PCIE_FAR,
    70.0,
    54.0,
    [35.0, 81.0],
);
/// The same across sockets of AMD.
const PCIE_FAR_AMD: Expected = of_processor(
    // NCCL plans 16 of 31.5 GB/s; 39 to 51 of 63, 22 of 31.5 (published)
    "pcie-far-amd",
    PCIE_FAR,
    70.0,
    31.0,
    [51.0, 81.0],
);

/// Returns the row of one vendor's processors, which replaces a class.
const fn of_processor(
    key: &'static str,
    general: Expected,
    percent: f64,
    margin_percent: f64,
    reached: [f64; 2],
) -> Expected {
    Expected { general: general.key, ..row(key, percent, margin_percent, Some(reached)) }
}

/// A vendor of processors, as far as peer copies through them differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Intel,
    Amd,
}

/// Returns the name of the machine's processors, in small letters: Emerald Rapids shows its own in capitals.
fn cpu(snapshot: &Snapshot) -> Option<String> {
    snapshot.host.cpu.known().map(|name| name.to_lowercase())
}

/// Returns the vendor of the machine's processors, if their name shows it.
fn vendor(snapshot: &Snapshot) -> Option<Vendor> {
    let name = cpu(snapshot)?;
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["intel", "xeon"]) => Some(Vendor::Intel),
        () if has(&["amd", "epyc", "ryzen"]) => Some(Vendor::Amd),
        () => None,
    }
}

/// Returns true for generations of Xeon whose links between processors pass little peer traffic: those before Skylake
/// (E5, E7), and Sapphire Rapids (the second digit of Platinum, Gold, Silver and Bronze is 4, or Max).
fn is_narrow_between_sockets(name: &str) -> bool {
    const FAMILIES: [&str; 5] = ["platinum", "gold", "silver", "bronze", "max"];
    let mut words = name.split_whitespace();
    let number = words.find(|word| FAMILIES.contains(word)).and_then(|_| words.next());
    let is_fourth = |number: &str| number.len() >= 4 && number.chars().nth(1) == Some('4');
    name.contains("e5-")
        || name.contains("e7-")
        || name.contains("sapphire")
        || number.is_some_and(is_fourth)
}

/// Returns the class of copies through the root complex of one processor.
pub(super) fn through_root(snapshot: &Snapshot) -> Expected {
    match vendor(snapshot) {
        Some(Vendor::Intel) => PCIE_ROOT_INTEL,
        Some(Vendor::Amd) => PCIE_ROOT_AMD,
        None => PCIE_ROOT,
    }
}

/// Returns the class of copies between host bridges or processors.
pub(super) fn far(snapshot: &Snapshot, in_one_socket: bool) -> Expected {
    let is_narrow = || cpu(snapshot).is_some_and(|name| is_narrow_between_sockets(&name));
    match vendor(snapshot) {
        Some(Vendor::Intel) if in_one_socket => PCIE_NODE_INTEL,
        Some(Vendor::Amd) if in_one_socket => PCIE_NODE_AMD,
        Some(Vendor::Amd) => PCIE_FAR_AMD,
        Some(Vendor::Intel) if is_narrow() => PCIE_FAR_INTEL,
        _ => PCIE_FAR,
    }
}

/// Every class, in the order of the manual.
pub(super) const ROWS: [Expected; 8] = [
    PCIE_ROOT,
    PCIE_ROOT_INTEL,
    PCIE_ROOT_AMD,
    PCIE_FAR,
    PCIE_NODE_INTEL,
    PCIE_NODE_AMD,
    PCIE_FAR_INTEL,
    PCIE_FAR_AMD,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::class_of;
    use model::placement::{Pair, Path};
    use model::reading::Reading;
    use model::testing::h200_vm;
    use model::topology::{LinkClass, PairRoute};

    #[test]
    fn every_published_healthy_figure_lies_above_its_floor() {
        for (row, theoretical, lowest) in [
            (PCIE_ROOT_INTEL, 31.5, 20.0),
            (PCIE_ROOT_INTEL, 15.75, 10.0),
            (PCIE_NODE_INTEL, 31.5, 20.0),
            (PCIE_ROOT_AMD, 31.5, 25.0),
            (PCIE_NODE_AMD, 63.0, 53.0),
            (PCIE_FAR_AMD, 31.5, 16.0),
            (PCIE_FAR_INTEL, 63.0, 22.0),
            (PCIE_FAR_INTEL, 15.75, 6.0),
        ] {
            let floor = theoretical * row.share.floor_percent() / 100.0;
            assert!(lowest > floor, "{}: {lowest} of {theoretical}, floor {floor}", row.key);
        }
    }

    #[test]
    fn processors_decide_the_floor_of_copies_through_them() {
        let class = |cpu: &str, link: LinkClass, guest: bool| {
            let mut machine = h200_vm(2);
            machine.host.virtual_machine = Reading::Known(guest);
            machine.host.cpu = Reading::Known(cpu.into());
            let topology = topology::build(&machine);
            let pair = Pair { source: 0, destination: 1 };
            let route = PairRoute { class: link, ..topology.route(pair).unwrap().clone() };
            class_of(&route, Path::Direct, &machine).key
        };
        let (epyc, intel) = ("AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Gold 6430");
        assert_eq!(class(epyc, LinkClass::Node, false), "pcie-node-amd");
        assert_eq!(class(epyc, LinkClass::Phb, false), "pcie-root-amd");
        assert_eq!(class(epyc, LinkClass::Sys, false), "pcie-far-amd");
        assert_eq!(class(intel, LinkClass::Phb, false), "pcie-root-intel");
        let capitals = "INTEL(R) XEON(R) GOLD 6530";
        assert_eq!(class(capitals, LinkClass::Phb, false), "pcie-root-intel");
        for narrow in [
            "Intel(R) Xeon(R) CPU E5-2690 0",
            "Intel(R) Xeon(R) CPU Max 9480",
            "Intel Xeon Processor (SapphireRapids)",
        ] {
            assert_eq!(class(narrow, LinkClass::Sys, false), "pcie-far-intel", "{narrow}");
        }
        assert_eq!(class(intel, LinkClass::Node, false), "pcie-node-intel");
        assert_eq!(class(intel, LinkClass::Sys, false), "pcie-far-intel");
        for wide in ["Intel(R) Xeon(R) Platinum 8280", "INTEL(R) XEON(R) GOLD 6530", "Xeon 6960P"] {
            assert_eq!(class(wide, LinkClass::Sys, false), "pcie-far", "{wide}");
        }
        assert_eq!(
            class("Intel(R) Xeon(R) CPU E5-2690 v4", LinkClass::Sys, false),
            "pcie-far-intel"
        );
        assert_eq!(class("Neoverse-V2", LinkClass::Phb, false), "pcie-root");
        // In a guest the crossings cannot be seen.
        assert_eq!(class(epyc, LinkClass::Phb, true), "pcie-far-amd");
        // A single-socket EPYC at 55% is not healthy, an Intel root at 63.5% is.
        assert!(PCIE_NODE_AMD.share.floor_percent() > 55.0);
        assert!(PCIE_ROOT_INTEL.share.floor_percent() < 63.5);
    }
}
