//! Possible causes of slow or strange copies, as far as the facts show, each with the test that distinguishes it from
//! the others.

use std::collections::BTreeSet;

use super::cluster::{Common, Group};
use super::evidence::Evidence;
use super::{links, words};
use model::finding::{Setting, Suspect};
use model::node::NodeId;
use model::placement::{Pair, Path};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, PciFunction, PciKind};
use model::topology::{Link, LinkKind};
use model::units::PciAddress;
use topology::pcie;

pub(crate) fn suspect(cause: impl Into<String>, test: impl Into<String>) -> Suspect {
    Suspect {
        cause: cause.into(),
        test: test.into(),
        setting: None,
    }
}

pub(crate) fn gpus_of<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> BTreeSet<u32> {
    pairs
        .into_iter()
        .flat_map(|pair| [pair.source, pair.destination])
        .collect()
}

/// Returns the GPUs of these pairs on which other processes hold memory.
pub(crate) fn busy(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<u32> {
    let gpus = gpus_of(pairs);
    let has_other_work = |gpu: &&Gpu| {
        gpus.contains(&gpu.index)
            && gpu
                .processes
                .known()
                .is_some_and(|processes| !processes.is_empty())
    };
    evidence
        .snapshot
        .gpus
        .iter()
        .filter(has_other_work)
        .map(|gpu| gpu.index)
        .collect()
}

/// Returns the bridges above these GPUs that send peer requests up to the root.
pub(crate) fn redirecting_ports(evidence: &Evidence<'_>, gpus: &BTreeSet<u32>) -> Vec<PciAddress> {
    let mut ports = BTreeSet::new();
    for gpu in gpus {
        let above = links::functions_above(evidence, *gpu).into_iter();
        ports.extend(
            above
                .filter(|port| port.acs_redirect.get() == Some(true))
                .map(|port| port.address),
        );
    }
    ports.into_iter().collect()
}

/// Returns true if ACS of a bridge above these GPUs is not known: only root may read it.
pub(crate) fn acs_is_unread(evidence: &Evidence<'_>, gpus: &BTreeSet<u32>) -> bool {
    let is_bridge = |function: &&&PciFunction| {
        matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream)
    };
    let unread = |gpu: &u32| {
        let above = links::functions_above(evidence, *gpu);
        let is_unread = |bridge: &&PciFunction| matches!(&bridge.acs_redirect, Reading::Unknown(why) if *why != Unknown::Unsupported);
        above.iter().filter(is_bridge).any(is_unread)
    };
    gpus.iter().any(unread)
}

/// Returns the command that clears ACS of these bridges until the next boot.
pub(crate) fn clear_acs(ports: &[PciAddress]) -> String {
    let clear = |port: &str| format!("setpci -s {port} ECAP_ACS+0x6.w=0000");
    match ports {
        [port] => format!("as root: {}", clear(&port.to_string())),
        _ => {
            let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
            format!(
                "as root: for p in {}; do {}; done",
                ports.join(" "),
                clear("$p")
            )
        }
    }
}

/// Returns true if the IOMMU translates addresses of these GPUs. Their own groups decide; if those are not known, the
/// whole machine does.
pub(crate) fn iommu_translates(evidence: &Evidence<'_>, gpus: &BTreeSet<u32>) -> Option<bool> {
    let kind = |gpu: &u32| {
        let function = evidence
            .snapshot
            .function(evidence.snapshot.address_of(*gpu)?)?;
        function
            .iommu_type
            .known()
            .map(|kind| kind.starts_with("DMA"))
    };
    let own: Vec<bool> = gpus.iter().filter_map(kind).collect();
    if own.is_empty() {
        evidence.snapshot.host.iommu_translating.get()
    } else {
        Some(own.contains(&true))
    }
}

/// Returns the settings of the machine that affect copies between GPUs on PCIe: those that the facts show, and in a
/// virtual machine those of its host, which they cannot show.
pub(crate) fn of_pcie_settings(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    if iommu_translates(evidence, &gpus_of(pairs)) == Some(true) {
        let cause = "the IOMMU translates device addresses";
        let test = "boot once with iommu=pt on the kernel's command line (or the IOMMU off in BIOS) and check again";
        suspects.push(Suspect {
            setting: Some(Setting::Iommu),
            ..suspect(cause, test)
        });
    }
    let ports = redirecting_ports(evidence, &gpus_of(pairs));
    if !ports.is_empty() {
        let cause = format!(
            "ACS redirects peer requests at {}",
            words::addresses(&ports)
        );
        let test = format!("{}; then check again", clear_acs(&ports));
        suspects.push(Suspect {
            setting: Some(Setting::Acs),
            ..suspect(cause, test)
        });
    }
    if suspects.is_empty() && evidence.virtual_machine() {
        suspects.push(suspect(
            "IOMMU and ACS of the host, which cannot be seen from this virtual machine",
            "ask whoever runs the host for ACSCtl of the bridges above the GPUs (lspci -vvv)",
        ));
    }
    suspects
}

/// Slot, riser and cable of one GPU, as a suspect.
const OWN_WAY: &str = "slot, riser or cable";

/// An uplink above slots, as a suspect if the routes show none.
const HIDDEN_UPLINK: &str = "an uplink above the slots that no file shows (the chipset's, or that of a board with several slots)";

/// Returns true if these links that pairs share lie between processors.
pub(crate) fn are_between_processors(evidence: &Evidence<'_>, links: &[(NodeId, NodeId)]) -> bool {
    let is_interconnect = |(from, to): &(NodeId, NodeId)| {
        let ends = |link: &&Link| {
            [(link.upper, link.lower), (link.lower, link.upper)].contains(&(*from, *to))
        };
        evidence
            .topology
            .links
            .iter()
            .find(ends)
            .is_some_and(|link| link.kind == LinkKind::Interconnect)
    };
    links.iter().any(is_interconnect) && !links.iter().any(|link| is_of_a_gpu(evidence, link))
}

fn is_of_a_gpu(evidence: &Evidence<'_>, (from, to): &(NodeId, NodeId)) -> bool {
    let is_gpu = |node: &NodeId| match node {
        NodeId::Gpu(_) => true,
        NodeId::Pci(address) => evidence
            .snapshot
            .gpus
            .iter()
            .any(|gpu| gpu.pci.known() == Some(address)),
        _ => false,
    };
    is_gpu(from) || is_gpu(to)
}

/// Returns possible causes of slow copies in this group. If its pairs share links and other pairs are sound, those
/// links explain it, and no slot of a single GPU does.
pub(crate) fn of_slow_group(evidence: &Evidence<'_>, group: &Group) -> Vec<Suspect> {
    let mut suspects = of_slow_copies(evidence, &group.pairs);
    let Common::Links(links) = &group.common else {
        return suspects;
    };
    let pcie = group.pairs.iter().any(|pair| evidence.over_pcie(*pair));
    if !pcie || links.iter().any(|link| is_of_a_gpu(evidence, link)) {
        return suspects;
    }
    suspects.retain(|suspect| suspect.cause != OWN_WAY && suspect.cause != HIDDEN_UPLINK);
    suspects.push(match are_between_processors(evidence, links) {
        true => suspect(
            "the links between the processors",
            "compare their speed and power saving in BIOS with a machine of the same kind, and check again",
        ),
        false => suspect(
            "the link that these pairs share: its cable, riser or switch board",
            "look at its error counters (lspci -vvv) before and after a check of one pair that passes it (--gpus)",
        ),
    });
    suspects
}

/// Returns possible causes of slow copies of these pairs.
pub(crate) fn of_slow_copies(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    let busy = busy(evidence, pairs);
    if !busy.is_empty() {
        suspects.push(suspect(
            format!(
                "other work: processes hold memory on {}",
                words::gpus(&busy)
            ),
            "stop them (nvidia-smi lists them) and check again",
        ));
    }
    let gpus = gpus_of(pairs);
    for link in evidence.links() {
        let reasons = link
            .throttle_reasons
            .iter()
            .filter(|reason| THROTTLING.contains(&reason.as_str()));
        let reasons: Vec<_> = reasons.cloned().collect();
        if gpus.contains(&link.index) && !reasons.is_empty() {
            suspects.push(suspect(
                format!("the clocks of GPU {} are held back ({})", link.index, reasons.join(", ")),
                "watch nvidia-smi -q -d PERFORMANCE while the check runs; look at power cables and cooling",
            ));
        }
    }
    if pairs.iter().any(|pair| evidence.over_pcie(*pair)) {
        suspects.extend(of_pcie_settings(evidence, pairs));
        suspects.push(suspect(
            OWN_WAY,
            "swap the GPU with another: a fault that stays with the slot is the slot's or the riser's",
        ));
        if !evidence.virtual_machine() {
            suspects.push(suspect(
                HIDDEN_UPLINK,
                "find in the board's manual what the slots share; move a GPU to a slot of the processor and check again",
            ));
        }
    } else if pairs.iter().any(|pair| evidence.over_nvlink(*pair)) {
        suspects.extend(of_nvlink_fallback(evidence, pairs));
        suspects.push(suspect(
            "an NVLink that repeats what it sends",
            "compare nvidia-smi nvlink -e before and after a check of these GPUs (--gpus)",
        ));
    }
    suspects
}

/// Suspects a link that holds up single copies while it trains again, or repeats what it sends.
pub(crate) fn of_retraining(evidence: &Evidence<'_>, pairs: &[Pair]) -> Suspect {
    if pairs.iter().any(|pair| evidence.over_nvlink(*pair)) {
        return suspect(
            "an NVLink that retrains or repeats what it sends",
            "compare nvidia-smi nvlink -e (replay, recovery) before and after a check of these GPUs (--gpus)",
        );
    }
    suspect(
        "a PCIe link that retrains or repeats what it sends",
        "read LnkSta and the AER counters of the ports above these GPUs (lspci -vvv) while a check of them runs (--gpus)",
    )
}

/// Suspects that bytes of pairs with NVLinks went over PCIe, if their rate is one that the PCIe links of both GPUs
/// carry.
fn of_nvlink_fallback(evidence: &Evidence<'_>, pairs: &[Pair]) -> Option<Suspect> {
    let carries = |gpu: u32| pcie::rate(evidence.topology.pcie_link_of(gpu)?.possible);
    let fits = |pair: &Pair| {
        let achieved = evidence.reference_of(Path::Direct, *pair)?.achieved_gbps?;
        let carried = carries(pair.source)?.min(carries(pair.destination)?);
        Some(achieved.0 <= carried && achieved.0 >= carried / 4.0)
    };
    let cause = "these bytes went over PCIe: their rate is one that the PCIe links carry";
    let test = "compare nvidia-smi nvlink -gt d before and after a check of these GPUs (--gpus): the counters stay still";
    pairs
        .iter()
        .all(|pair| fits(pair) == Some(true))
        .then(|| suspect(cause, test))
}

/// Returns possible causes of slow copies of these pairs through host memory.
pub(crate) fn of_staged_copies(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let busy = busy(evidence, pairs);
    let other_work =
        (!busy.is_empty()).then(|| suspect("other work on these GPUs", "stop it and check again"));
    let memory = if evidence.virtual_machine() {
        suspect(
            "the host spreads the virtual machine's memory over NUMA nodes, or shares it",
            "ask whoever runs the host whether processors and memory are pinned to the nodes of the GPUs",
        )
    } else {
        suspect(
            "memory of another NUMA node, or too few memory channels",
            "run the check under numactl --cpunodebind=N --membind=N for each node and compare",
        )
    };
    other_work.into_iter().chain([memory]).collect()
}

/// The reasons, by the report's names, that hold clocks back under load. An idle GPU, and clocks that someone set, do
/// not count.
const THROTTLING: [&str; 5] = [
    "hw-slowdown",
    "hw-thermal",
    "sw-thermal",
    "hw-power-brake",
    "sw-power-cap",
];
