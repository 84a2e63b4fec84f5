//! Possible causes of slow or strange copies, as far as the facts show, each with the test that distinguishes it from
//! the others.

use std::collections::BTreeSet;

use super::cluster::{Common, Group};
use super::evidence::Evidence;
use super::links;
use super::steps::{
    AcsOf, Ask, At, Cause, Part, Sign, Step, Work, all, gpu, one_of, suspect, suspect_if,
};
use super::words;
use model::finding::Suspect;
use model::node::NodeId;
use model::placement::{Pair, Path};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, PciFunction, PciKind};
use model::units::PciAddress;
use topology::pcie;

pub(crate) fn gpus_of<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> BTreeSet<u32> {
    pairs.into_iter().flat_map(|pair| [pair.source, pair.destination]).collect()
}

/// Returns the GPUs of these pairs on which other processes hold memory.
pub(crate) fn busy(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<u32> {
    busy_among(evidence, &words::unique(gpus_of(pairs)))
}

/// Returns those of these GPUs on which other processes hold memory.
pub(crate) fn busy_among(evidence: &Evidence<'_>, gpus: &[u32]) -> Vec<u32> {
    let has_other_work = |gpu: &&Gpu| {
        let processes = gpu.processes.known();
        gpus.contains(&gpu.index) && processes.is_some_and(|all| !all.is_empty())
    };
    let busy = evidence.snapshot.gpus.iter().filter(has_other_work);
    busy.map(|gpu| gpu.index).collect()
}

/// Returns the bridges above these GPUs that send peer requests up to the root.
pub(crate) fn redirecting_ports(evidence: &Evidence<'_>, gpus: &BTreeSet<u32>) -> Vec<PciAddress> {
    let mut ports = BTreeSet::new();
    for gpu in gpus {
        let above = links::functions_above(evidence, *gpu).into_iter();
        ports.extend(
            above.filter(|port| port.acs_redirect.get() == Some(true)).map(|port| port.address),
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

/// Returns true if the IOMMU translates addresses of these GPUs. Their own groups decide; if those are not known, the
/// whole machine does.
pub(crate) fn iommu_translates(evidence: &Evidence<'_>, gpus: &BTreeSet<u32>) -> Option<bool> {
    let kind = |gpu: &u32| {
        let function = evidence.snapshot.function(evidence.snapshot.address_of(*gpu)?)?;
        function.iommu_type.known().map(|kind| kind.starts_with("DMA"))
    };
    let own: Vec<bool> = gpus.iter().filter_map(kind).collect();
    if own.is_empty() {
        evidence.snapshot.host.iommu_translating.get()
    } else {
        Some(own.contains(&true))
    }
}

/// Returns the step that ends translation for these GPUs, if it may be on; a guest has a question for its host instead.
pub(crate) fn pass_through(evidence: &Evidence<'_>, gpus: &[u32], question: Ask) -> Option<Step> {
    match iommu_translates(evidence, &gpus.iter().copied().collect()) {
        _ if evidence.virtual_machine() => Some(Step::AskHost(question)),
        Some(false) => None,
        _ => Some(Step::PassThrough),
    }
}

/// Returns the settings of the machine that affect copies between GPUs on PCIe: those that the facts show, and in a
/// virtual machine those of its host, which they cannot show.
pub(crate) fn of_pcie_settings(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    if iommu_translates(evidence, &gpus_of(pairs)) == Some(true) {
        suspects.push(suspect(Cause::Iommu, [Step::PassThrough, Step::CheckAgain]));
    }
    let ports = redirecting_ports(evidence, &gpus_of(pairs));
    if !ports.is_empty() {
        let test = [Step::ClearAcs(AcsOf(ports.clone())), Step::CheckAgain];
        suspects.push(suspect(Cause::Acs(At(ports)), test));
    }
    if suspects.is_empty() && evidence.virtual_machine() {
        suspects.push(suspect(Cause::HostSettings, [Step::AskHost(Ask::IommuAndAcs)]));
    }
    suspects
}

/// Returns true if the suspect is a setting that the facts show.
pub(crate) fn is_setting(suspect: &Suspect) -> bool {
    [Cause::Iommu, Cause::Acs(At(Vec::new()))].iter().any(|setting| setting.is(suspect))
}

/// Returns other programs on these GPUs as a suspect.
pub(crate) fn other_work(busy: &[u32]) -> Suspect {
    let test = [Step::Stop(Work::OnGpus), Step::CheckAgain];
    suspect(Cause::OtherWork(all(busy)), test)
}

/// Returns slot, riser and cable of one of these GPUs as a suspect.
pub(crate) fn own_way(gpus: &[u32]) -> Suspect {
    let test = [Step::SwapTest(Part::of(gpus))];
    suspect_if(Cause::OwnWay, test, Sign::FaultStays)
}

/// Returns possible causes of slow copies in this group. If its pairs share a link and other pairs are sound, that link
/// explains it, and no slot of a single GPU does.
pub(crate) fn of_slow_group(evidence: &Evidence<'_>, group: &Group) -> Vec<Suspect> {
    let mut suspects = of_slow_copies(evidence, &group.pairs);
    let shared = match group.common {
        Common::Link([NodeId::Pci(_), _]) => suspect(Cause::SharedLink, [Step::PcieErrors]),
        Common::Link(_) => suspect(Cause::ProcessorLinks, [Step::ProcessorLinks, Step::CheckAgain]),
        _ => return suspects,
    };
    let is_elsewhere =
        |suspect: &Suspect| ![Cause::OwnWay, Cause::HiddenUplink].iter().any(|of| of.is(suspect));
    suspects.retain(is_elsewhere);
    suspects.push(shared);
    suspects
}

/// Returns possible causes of slow copies of these pairs.
pub(crate) fn of_slow_copies(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    let busy = busy(evidence, pairs);
    if !busy.is_empty() {
        suspects.push(other_work(&busy));
    }
    let gpus = gpus_of(pairs);
    for link in evidence.links() {
        let reasons =
            link.throttle_reasons.iter().filter(|reason| THROTTLING.contains(&reason.as_str()));
        let reasons: Vec<_> = reasons.cloned().collect();
        if gpus.contains(&link.index) && !reasons.is_empty() {
            suspects.push(suspect(
                Cause::Clocks(gpu(link.index), reasons.join(", ")),
                [Step::Clocks, Step::PowerCables(gpu(link.index)), Step::Cooling],
            ));
        }
    }
    if evidence.any_over_pcie(pairs) {
        suspects.extend(of_pcie_settings(evidence, pairs));
        suspects.push(own_way(&gpus.iter().copied().collect::<Vec<_>>()));
        if !evidence.virtual_machine() {
            let gpus: Vec<u32> = gpus.into_iter().collect();
            suspects.push(suspect(
                Cause::HiddenUplink,
                [
                    Step::SharedSlots(all(&gpus)),
                    Step::ProcessorSlot(one_of(&gpus)),
                    Step::CheckAgain,
                ],
            ));
        }
    } else if pairs.iter().any(|pair| evidence.over_nvlink(*pair)) {
        suspects.extend(of_nvlink_fallback(evidence, pairs));
        suspects.push(suspect(Cause::NvLinkRepeats, [Step::LinkErrors]));
    }
    suspects
}

/// Suspects a link that holds up single copies while it trains again, or repeats what it sends.
pub(crate) fn of_retraining(evidence: &Evidence<'_>, pairs: &[Pair]) -> Suspect {
    if pairs.iter().any(|pair| evidence.over_nvlink(*pair)) {
        return suspect(Cause::NvLinkRepeats, [Step::LinkErrors]);
    }
    suspect(Cause::PcieRetrains, [Step::PcieErrors])
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
    pairs
        .iter()
        .all(|pair| fits(pair) == Some(true))
        .then(|| suspect_if(Cause::NvLinkFallback, [Step::LinkTrafficAround], Sign::CountersRest))
}

/// Returns possible causes of slow copies of these pairs through host memory.
pub(crate) fn of_staged_copies(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
    let busy = busy(evidence, pairs);
    let other_work = (!busy.is_empty()).then(|| other_work(&busy));
    let memory = if evidence.virtual_machine() {
        suspect(Cause::GuestMemory, [Step::AskHost(Ask::NumaNodes)])
    } else {
        suspect(Cause::FewChannels, [Step::CheckEachNode])
    };
    other_work.into_iter().chain([memory]).collect()
}

/// The reasons, by the report's names, that hold clocks back under load. An idle GPU, and clocks that someone set, do
/// not count.
const THROTTLING: [&str; 5] =
    ["hw-slowdown", "hw-thermal", "sw-thermal", "hw-power-brake", "sw-power-cap"];
