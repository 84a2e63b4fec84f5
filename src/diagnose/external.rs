//! GPUs outside the chassis: their link goes through a cable and a dock, and not through a slot or riser.

use super::evidence::Evidence;
use super::steps::{Cause, Part, Step, suspect};
use model::finding::Suspect;
use model::snapshot::{PciFunction, PciKind};
use topology::pcie;

/// The way in which a GPU outside is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum External {
    /// Thunderbolt or USB4: a bridge of its controllers is above the GPU.
    Thunderbolt,
    /// Possibly outside: a port of four lanes or fewer, as sockets for OCuLink and M.2 have.
    FewLanes,
}

/// Intel's bridges and root ports of Thunderbolt and USB4 (pci.ids): Alpine Ridge, Titan Ridge, the ports of Ice Lake
/// to Meteor Lake, Maple Ridge, Goshen Ridge and Barlow Ridge.
const INTEL: &[u16] = &[
    0x1576, 0x1578, 0x15c0, 0x15d3, 0x15da, 0x15e7, 0x15ea, 0x15ef, 0x8a1d, 0x8a1f, 0x8a21, 0x8a23,
    0x9a23, 0x9a25, 0x9a27, 0x9a29, 0x9a2b, 0x9a2d, 0x9a2f, 0x9a31, 0x461f, 0x462f, 0x463f, 0x466e,
    0xa71f, 0xa72f, 0xa73f, 0xa76e, 0x7ec4, 0x7ec5, 0x7ec6, 0x7ec7, 0x1136, 0x1133, 0x0b26, 0x5780,
    0x5781, 0x5784, 0x5786, 0x57a4, 0x156d, 0x156b, 0x1567,
];
/// The same by ASMedia: ASM4242 and ASM2464PD.
const ASMEDIA: &[u16] = &[0x2421, 0x2425, 0x2461];

const INTELS_VENDOR: u16 = 0x8086;
const ASMEDIAS_VENDOR: u16 = 0x1b21;

fn is_thunderbolt(function: &PciFunction) -> bool {
    let Some(device) = function.device_id.get() else {
        return false;
    };
    match function.vendor.get() {
        Some(INTELS_VENDOR) => INTEL.contains(&device),
        Some(ASMEDIAS_VENDOR) => ASMEDIA.contains(&device),
        _ => false,
    }
}

/// Returns how this GPU is attached from outside, if it is.
pub(crate) fn of(evidence: &Evidence<'_>, gpu: u32) -> Option<External> {
    const FEW: u8 = 4;
    if evidence.virtual_machine() {
        return None;
    }
    let chain = pcie::chain(evidence.snapshot, evidence.snapshot.address_of(gpu)?);
    let above = chain.get(1..).unwrap_or_default();
    if above.iter().any(|function| is_thunderbolt(function)) {
        return Some(External::Thunderbolt);
    }
    let [port] = above else { return None };
    let few = port.kind == PciKind::RootPort
        && port.width_max.get().is_some_and(|lanes| lanes.number() <= FEW);
    few.then_some(External::FewLanes)
}

/// Returns the cable or the dock as a suspect if one of these GPUs is known to be outside.
pub(crate) fn suspect_cable(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<Suspect> {
    let is_outside = gpus.iter().any(|gpu| of(evidence, *gpu) == Some(External::Thunderbolt));
    is_outside.then(|| {
        let test = [Part::Cable, Part::Dock].map(Step::Exchange);
        suspect(Cause::CableOrDock, test)
    })
}
