//! PCIe paths as a technician follows them, root first, and the class that two PCI functions are
//! apart, both straight from the snapshot's PCI tree.

use crate::model::snapshot::{Gpu, PciFunction, PciKind, Snapshot};
use crate::model::topology::LinkClass;
use crate::model::units::{PciAddress, PcieLink};

/// A PCIe link beside what both of its ends could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes {
    now: PcieLink,
    /// Highest generation of both ends, where known.
    generation_possible: Option<u8>,
    /// Most lanes of both ends, where known.
    width_possible: Option<u8>,
}

impl Lanes {
    /// None where the link cannot be as it was read: some kernels print a width of 0 or 63.
    pub(super) fn new(now: PcieLink, generation_possible: Option<u8>, width_possible: Option<u8>) -> Option<Self> {
        let generation = |generation: &u8| (1..=7).contains(generation);
        let width = |width: &u8| matches!(width, 1 | 2 | 4 | 8 | 12 | 16 | 32);
        (generation(&now.generation) && width(&now.width)).then(|| Self {
            now,
            generation_possible: generation_possible.filter(generation),
            width_possible: width_possible.filter(width),
        })
    }

    /// A GPU's link as NVML reads it, against what GPU and slot allow together.
    pub(super) fn of_gpu(gpu: &Gpu) -> Option<Self> {
        Self::new(gpu.pcie_link()?, gpu.pcie_generation_max.get(), gpu.pcie_width_max.get())
    }

    /// The link between a port and the function below it. The lower end tells what it is now, and
    /// both ends what it could be.
    pub(super) fn between(upper: &PciFunction, lower: &PciFunction) -> Option<Self> {
        let least = |a: Option<u8>, b: Option<u8>| a.into_iter().chain(b).min();
        Self::new(
            lower.link()?,
            least(upper.generation_max.get(), lower.generation_max.get()),
            least(upper.width_max.get(), lower.width_max.get()),
        )
    }

    /// Fewer lanes than both ends have.
    pub(super) fn is_narrow(self) -> bool {
        self.width_possible.is_some_and(|possible| self.now.width < possible)
    }

    /// `x4 of x16`.
    pub(super) fn width_text(self) -> String {
        match self.width_possible {
            Some(possible) if self.is_narrow() => format!("x{} of x{possible}", self.now.width),
            _ => format!("x{}", self.now.width),
        }
    }
}

impl std::fmt::Display for Lanes {
    /// `Gen5 x16`, `Gen4 x4 of x16 ✗ narrow`, `Gen1 (idle? can do Gen5) x16`: idle devices lower
    /// their generation, so a low one is a hint and not a fault.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gen{}", self.now.generation)?;
        match self.generation_possible {
            Some(possible) if self.now.generation < possible => write!(f, " (idle? can do Gen{possible})")?,
            _ => {}
        }
        write!(f, " {}", self.width_text())?;
        if self.is_narrow() { f.write_str(" ✗ narrow") } else { Ok(()) }
    }
}

/// Whether a function has a link above it, rather than sitting inside a switch or a root complex.
const fn has_link_above(kind: PciKind) -> bool {
    matches!(kind, PciKind::Endpoint | PciKind::SwitchUpstream | PciKind::Bridge)
}

/// The link above a function: to its parent, or straight to the host bridge where the tree is flat.
pub(super) fn link_above(snapshot: &Snapshot, function: &PciFunction) -> Option<Lanes> {
    if !has_link_above(function.kind) {
        return None;
    }
    let from_tree = match function.parent.and_then(|parent| snapshot.function(parent)) {
        Some(upper) => Lanes::between(upper, function),
        None => {
            function.link().and_then(|now| Lanes::new(now, function.generation_max.get(), function.width_max.get()))
        }
    };
    // The kernel may know nothing where NVML does (virtual machines).
    from_tree.or_else(|| {
        let gpu = snapshot.gpus.iter().find(|gpu| gpu.pci.get() == Some(function.address))?;
        Lanes::of_gpu(gpu)
    })
}

/// One GPU's way from the root, and whether a hop of it is narrow.
pub(super) struct PathText {
    /// `pci0000:40 → 0000:40:01.1 root port → [Gen4 x4 of x16 ✗ narrow] → 0000:43:00.0`.
    pub(super) text: String,
    /// Whether a hop has fewer lanes than both of its ends.
    pub(super) narrow: bool,
}

/// The way from the host bridge to this function.
pub(super) fn path_text(snapshot: &Snapshot, address: PciAddress) -> PathText {
    path_parts(snapshot, address, true)
}

/// The same without addresses and slots, in which GPUs that are connected alike are alike.
pub(super) fn path_shape(snapshot: &Snapshot, address: PciAddress) -> PathText {
    path_parts(snapshot, address, false)
}

fn path_parts(snapshot: &Snapshot, address: PciAddress, named: bool) -> PathText {
    let mut path = snapshot.path_up(address);
    path.reverse();
    let bridge = path.first().map(|top| if named { top.host_bridge.clone() } else { "host bridge".to_owned() });
    let mut parts: Vec<String> = bridge.into_iter().collect();
    let mut narrow = false;
    for function in &path {
        match link_above(snapshot, function) {
            Some(lanes) => {
                narrow |= lanes.is_narrow();
                parts.push(format!("[{lanes}]"));
            }
            None if has_link_above(function.kind) => parts.push("[link unknown]".into()),
            None => {}
        }
        let role = role(function.kind);
        if !named {
            parts.push(if role.is_empty() { "GPU".into() } else { role.trim_start().to_owned() });
            continue;
        }
        let slot = function.slot.known().map(|slot| format!(" (slot {slot})")).unwrap_or_default();
        parts.push(format!("{}{role}{slot}", function.address));
    }
    if path.is_empty() {
        parts.push(format!("{address}, not in the PCI tree that was read"));
    }
    PathText { text: parts.join(" → "), narrow }
}

const fn role(kind: PciKind) -> &'static str {
    match kind {
        PciKind::RootPort => " root port",
        PciKind::SwitchUpstream => " switch",
        PciKind::SwitchDownstream => " switch port",
        PciKind::Bridge => " bridge",
        PciKind::Endpoint => "",
    }
}

/// The label of the physical slot nearest to this function, where the firmware names one.
pub(super) fn slot(snapshot: &Snapshot, address: PciAddress) -> Option<&str> {
    snapshot.path_up(address).into_iter().find_map(|function| function.slot.known()).map(String::as_str)
}

/// How far two PCI functions are apart, in nvidia-smi's words.
pub(super) fn class(snapshot: &Snapshot, a: PciAddress, b: PciAddress) -> LinkClass {
    let (ups_a, ups_b) = (snapshot.path_up(a), snapshot.path_up(b));
    let shared = ups_a.iter().enumerate().find_map(|(steps_a, function)| {
        let steps_b = ups_b.iter().position(|other| other.address == function.address)?;
        Some((steps_a.max(steps_b), function.kind))
    });
    match shared {
        // On one bus, or below two ports of one switch.
        Some((steps, kind)) if steps <= 1 || steps == 2 && kind != PciKind::RootPort => LinkClass::Pix,
        Some(_) => LinkClass::Pxb,
        None => {
            let (Some(top_a), Some(top_b)) = (ups_a.last(), ups_b.last()) else { return LinkClass::Unknown };
            if top_a.host_bridge == top_b.host_bridge {
                return LinkClass::Phb;
            }
            let node = |ups: &[&PciFunction]| ups.iter().find_map(|function| function.numa_node.get());
            match (node(&ups_a), node(&ups_b)) {
                (Some(node_a), Some(node_b)) if node_a == node_b => LinkClass::Node,
                (Some(_), Some(_)) => LinkClass::Sys,
                _ if snapshot.numa_nodes.len() == 1 => LinkClass::Node,
                _ => LinkClass::Unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn text(gpu: u32) -> PathText {
        let report = sample::pcie_box();
        let address = report.snapshot.gpu(gpu).unwrap().pci.get().unwrap();
        path_text(&report.snapshot, address)
    }

    #[test]
    fn paths_run_root_first_and_mark_the_narrow_hop() {
        let narrow = text(3);
        assert!(narrow.narrow);
        assert_eq!(
            narrow.text,
            "pci0000:40 → 0000:40:03.1 root port (slot 7) → [Gen4 x4 of x16 ✗ narrow] → 0000:44:00.0"
        );
        let idle = text(1);
        assert!(!idle.narrow);
        assert_eq!(idle.text, "pci0000:00 → 0000:00:01.1 root port → [Gen1 (idle? can do Gen4) x16] → 0000:02:00.0");
    }

    #[test]
    fn a_path_through_a_switch_shows_both_links() {
        let report = sample::pcie_box();
        let path = path_text(&report.snapshot, report.snapshot.gpu(6).unwrap().pci.get().unwrap());
        assert_eq!(
            path.text,
            "pci0000:c0 → 0000:c0:01.0 root port → [Gen4 x16] → 0000:c1:00.0 switch → \
             0000:c2:00.0 switch port → [Gen4 x16] → 0000:c3:00.0"
        );
    }

    #[test]
    fn figures_that_cannot_be_make_no_narrow_link() {
        let link = |width| PcieLink { generation: 4, width };
        assert_eq!(Lanes::new(link(0), Some(4), Some(16)), None);
        assert_eq!(Lanes::new(link(63), Some(4), Some(16)), None);
        assert!(!Lanes::new(link(16), Some(4), Some(63)).unwrap().is_narrow());
        assert!(Lanes::new(link(8), None, Some(16)).unwrap().is_narrow());
    }

    #[test]
    fn classes_follow_the_tree() {
        let report = sample::pcie_box();
        let snapshot = &report.snapshot;
        let pci = |gpu| snapshot.gpu(gpu).unwrap().pci.get().unwrap();
        assert_eq!(class(snapshot, pci(6), pci(7)), LinkClass::Pix);
        assert_eq!(class(snapshot, pci(0), pci(1)), LinkClass::Phb);
        assert_eq!(class(snapshot, pci(0), pci(2)), LinkClass::Node);
        assert_eq!(class(snapshot, pci(0), pci(6)), LinkClass::Sys);
        assert_eq!(class(snapshot, pci(0), "0000:ee:00.0".parse().unwrap()), LinkClass::Unknown);
    }
}
