//! PCIe links and paths in words, root first, as a technician follows them.

use model::pcie::Connection;
use model::report::Report;
use model::snapshot::Gpu;
use model::topology::NodeKind;
use model::units::{Lanes, PcieLink};

/// The mark of a link that trained to less than both of its ends can do.
const NARROW: &str = " ✗ narrow";

/// Describes a link: `Gen5 x16`, `Gen4 x4 of x16 ✗ narrow`, `Gen3 of Gen4 x16 ✗ narrow`, `Gen1 (idle? can do Gen5)
/// x16`. Idle devices lower their generation, so a low one is a hint and not a fault. `Gen4 x16 (shows Gen1 x16)` if
/// copies refute what it shows. Returns `None` if the link is not known.
pub(super) fn link_text(link: &Connection) -> Option<String> {
    let narrow = if link.narrow.is_empty() { "" } else { NARROW };
    if !link.refuted.is_empty() {
        return Some(format!("{} (shows {}){narrow}", link.now, link.at_rest));
    }
    let PcieLink { generation, width } = link.at_rest.link()?;
    let generation = match link.possible.generation.filter(|&possible| generation < possible) {
        Some(possible) if link.lower_generation() => format!("Gen{generation} of Gen{possible}"),
        Some(possible) => format!("Gen{generation} (idle? can do Gen{possible})"),
        None => format!("Gen{generation}"),
    };
    let of = link.possible.width.filter(|_| link.fewer_lanes());
    Some(format!("{generation} {}{narrow}", width_text(width, of)))
}

/// Describes a link under load: `Gen5 x16`, `Gen4 x4 of x16 ✗ narrow`.
pub(super) fn lanes_text(link: PcieLink, width_possible: Option<Lanes>) -> String {
    let of = width_possible.filter(|&possible| link.width < possible);
    let narrow = if of.is_some() { NARROW } else { "" };
    format!("Gen{} {}{narrow}", link.generation, width_text(link.width, of))
}

fn width_text(width: Lanes, of: Option<Lanes>) -> String {
    let of = of.map(|of| format!(" of x{of}")).unwrap_or_default();
    format!("x{width}{of}")
}

/// One GPU's path from the root.
pub(super) struct PathText {
    /// `pci0000:40 → 0000:40:01.1 root port → [Gen4 x4 of x16 ✗ narrow] → 0000:43:00.0`.
    pub text: String,
    /// True if a link trained to less than both of its ends can do.
    pub narrow: bool,
}

/// Describes the path from the host bridge to this GPU.
pub(super) fn path_text(report: &Report, gpu: &Gpu) -> PathText {
    let path = report.topology.gpu_path(gpu.index);
    let mut parts: Vec<String> = Vec::new();
    let mut narrow = false;
    let mut slot_above = None;
    for node in path.iter().filter_map(|id| report.topology.node(*id)) {
        let link = report.topology.link_above(node.id).and_then(|link| link.pcie.as_ref());
        if let Some(link) = link {
            narrow |= !link.narrow.is_empty();
            let text = link_text(link).unwrap_or_else(|| "link unknown".to_owned());
            parts.push(format!("[{text}]"));
        }
        let role = match node.kind {
            NodeKind::Gpu => "",
            NodeKind::HostBridge => " host bridge",
            NodeKind::RootPort => " root port",
            // A link above a downstream port would be the inside of the switch.
            NodeKind::SwitchPort if link.is_some() => " switch",
            NodeKind::SwitchPort => " switch port",
            NodeKind::Bridge => " bridge",
            _ => " GPU",
        };
        // A port and the device below it are in one slot.
        let slot = node.slot.as_ref().filter(|slot| Some(*slot) != slot_above);
        slot_above = node.slot.as_ref();
        let slot = slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
        parts.push(match node.pci {
            None => node.id.to_string(),
            Some(pci) => format!("{pci}{role}{slot}"),
        });
    }
    if path.is_empty() {
        let why = || gpu.pci.unknown().map(ToString::to_string).unwrap_or_default();
        parts.push(match gpu.pci.known() {
            Some(address) if report.read_from.is_some() => address.to_string(),
            Some(address) => format!("{address}, not in the PCI tree that was read"),
            None => format!("PCI address unknown ({})", why()),
        });
    }
    PathText { text: parts.join(" → "), narrow }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::testing::{function_mut, generation, lanes, pcie_link, two_sockets};

    fn text(gpu: usize) -> PathText {
        let report = sample::pcie_box();
        path_text(&report, &report.snapshot.gpus[gpu])
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
        assert_eq!(
            idle.text,
            "pci0000:00 → 0000:00:01.1 root port → [Gen1 (idle? can do Gen4) x16] → 0000:02:00.0"
        );
    }

    #[test]
    fn a_path_through_a_switch_shows_both_links() {
        assert_eq!(
            text(6).text,
            "pci0000:c0 → 0000:c0:01.0 root port → [Gen4 x16] → 0000:c1:00.0 switch → \
             0000:c2:00.0 switch port → [Gen4 x16] → 0000:c3:00.0"
        );
    }

    #[test]
    fn a_link_above_a_bridge_that_trained_slower_is_narrow_and_not_idle() {
        let mut machine = two_sockets();
        function_mut(&mut machine, "0000:01:00.0").generation = generation(3);
        let topology = topology::build(&machine);
        let texts: Vec<_> = topology.pcie_links().filter_map(link_text).collect();
        assert!(texts.contains(&"Gen3 of Gen4 x16 ✗ narrow".to_owned()), "{texts:?}");
        assert_eq!(lanes_text(pcie_link(4, 4), lanes(16).get()), "Gen4 x4 of x16 ✗ narrow");
    }
}
