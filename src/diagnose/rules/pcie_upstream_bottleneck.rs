//! # What it means
//!
//! A link above a GPU's own slot, or the chipset's uplink, limits it. With peer access copies may be even slower than
//! staged ones.
//!
//! # What to do
//!
//! Move the GPU to a slot of the processor (see the board's manual; usually the topmost). Spread GPUs below one narrow
//! link over slots with links of their own.
//!
//! # How it is detected
//!
//! A link above carries less than the GPU's own, and its ends support no more. Chipsets are known by PCI ids: Intel's
//! root ports on bus 0, devices 1b to 1d, and AMD's bridges 1022:43xx (57a3, 57a4 and 57ad of X570). Slow pairs below
//! an Intel chipset, whose uplink (DMI) no file shows, are attributed to it, down to 1.5 GB/s. A warning if copies are
//! slow, or several GPUs share a link too narrow for one.
//!
//! # Sources
//!
//! Intel's DMI 2.0: 4 lanes of 5 GT/s, 2 GB/s (data sheets). Published: PCIe 4 x8 between two GPUs 13.2 GB/s in slots
//! of the processor, 6.5 in a chipset slot, where peer access took a card from 6.4 to 2.0. Ids but 1022:43f4 and 43f5:
//! not verified.

use super::host;
use super::prelude::*;
use crate::expected_host;
use model::topology::Topology;

/// PCI vendor ids.
const INTEL: u16 = 0x8086;
const AMD: u16 = 0x1022;

/// Rate that any uplink carries, GB/s: 2 GB/s raw of DMI 2.0, less the share that copies lose.
const UPLINK_LEAST: f64 = 1.5;

/// GPUs with the same narrow place above them.
struct NarrowPlace<'a> {
    link: Option<&'a Connection>,
    chipset: Option<&'a PciFunction>,
    gpus: Vec<u32>,
}

rule! {
    "pcie-upstream-bottleneck", Info, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let places = places(evidence);
    let findings = places.iter().map(|place| finding(evidence, place));
    findings.collect()
}

fn places<'a>(evidence: &Evidence<'a>) -> Vec<NarrowPlace<'a>> {
    let mut places: Vec<NarrowPlace<'a>> = Vec::new();
    if evidence.virtual_machine() {
        return places;
    }
    for gpu in &evidence.snapshot.gpus {
        let link = narrower_above(evidence.topology, gpu.index);
        // The topmost port: all GPUs below one chipset are one place.
        let chipset = chipset_above(evidence, gpu.index);
        if link.is_none() && chipset.is_none() {
            continue;
        }
        let key = |link: Option<&Connection>, chipset: Option<&PciFunction>| {
            (link.and_then(|link| link.below), chipset.map(|chipset| chipset.address))
        };
        match places.iter_mut().find(|place| key(place.link, place.chipset) == key(link, chipset)) {
            Some(place) => place.gpus.push(gpu.index),
            None => places.push(NarrowPlace { link, chipset, gpus: vec![gpu.index] }),
        }
    }
    places
}

/// Returns those of these slow copies that the narrow place above these GPUs explains: they reach what passes it.
fn explained<'a>(
    evidence: &Evidence<'_>,
    gpus: &[u32],
    slow: &[&'a PeerBandwidth],
) -> Vec<&'a PeerBandwidth> {
    let is_explained = |cell: &&&PeerBandwidth| {
        let rate = cell.achieved_gbps.zip(evidence.expected(cell));
        rate.is_none_or(|(achieved, expected)| {
            let best = best(evidence, cell.setup.path, gpus);
            let share = expected.floor_gbps().0 / expected.gbps.0;
            achieved.0 >= least(best * share, expected.floor_gbps())
        })
    };
    slow.iter().filter(is_explained).copied().collect()
}

/// Returns the lowest rate that is explained: this, or what any uplink carries where healthy copies reach more.
fn least(gbps: f64, healthy: GbPerSecond) -> f64 {
    gbps.max(UPLINK_LEAST.min(healthy.0))
}

/// Returns the rate of the best sound copy between GPUs, one of which is one of these, GB/s; 0 if there is none.
fn best(evidence: &Evidence<'_>, path: Path, gpus: &[u32]) -> f64 {
    let cells = evidence.reference_with(path, gpus).into_iter();
    let over = cells.filter(|cell| cell.is_sound() && evidence.over_pcie(cell.pair));
    let rates = over.filter_map(|cell| Some(cell.achieved_gbps?.0));
    rates.fold(0.0, f64::max)
}

/// Returns true if a narrow place above a GPU explains this slow copy over PCIe.
pub(super) fn explains(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> bool {
    places(evidence).iter().any(|place| {
        let is_below = place.gpus.iter().any(|gpu| cell.pair.touches(*gpu));
        is_below && !explained(evidence, &place.gpus, &[cell]).is_empty()
    })
}

/// Returns true if a GPU has a narrow place above it.
pub(super) fn is_above(evidence: &Evidence<'_>, gpu: u32) -> bool {
    places(evidence).iter().any(|place| place.gpus.contains(&gpu))
}

/// Returns true if the narrow place above these GPUs explains how slow their copies with the host are.
pub(crate) fn explains_host(evidence: &Evidence<'_>, gpus: &[u32]) -> bool {
    let rated = || {
        let ways = host::ONE_WAY.map(|direction| HostWay::PINNED.with_direction(direction));
        let all = ways.into_iter().flat_map(|way| host::best(evidence, way));
        all.filter(|(gpu, _)| gpus.contains(gpu)).map(|(_, rated)| rated)
    };
    let alone = rated().map(|rated| rated.rate.0);
    let best = alone.fold(best(evidence, Path::Direct, gpus), f64::max);
    rated().all(|rated| {
        let expected = expected_host::of(rated.copy, evidence.snapshot, &evidence.settings.shares);
        expected.is_none_or(|expected| {
            let share = expected.floor_gbps().0 / expected.gbps.0;
            rated.rate.0 >= least(best * share, expected.floor_gbps())
        })
    })
}

/// Returns the narrowest link above a GPU's own, if it carries less than that, and no more is possible.
fn narrower_above(topology: &Topology, gpu: u32) -> Option<&Connection> {
    let own = pcie::rate(topology.pcie_link_of(gpu)?.now)?;
    let above = topology.pcie_links().filter(|link| link.gpu.is_none() && link.gpus.contains(&gpu));
    let (narrowest, carries) = above
        .filter_map(|link| Some((link, pcie::rate(link.now)?)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (carries < own && narrowest.narrow.is_empty()).then_some(narrowest)
}

/// Returns true if this is a port of a chipset. From memory, not verified, except for 43f4 and 43f5.
/// Returns true if this GPU hangs on the chipset, whose uplink no link file shows.
pub(crate) fn is_behind_chipset(evidence: &Evidence<'_>, gpu: u32) -> bool {
    !evidence.virtual_machine() && chipset_above(evidence, gpu).is_some()
}

/// Returns the chipset's topmost port above a GPU.
fn chipset_above<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a PciFunction> {
    links::functions_above(evidence, gpu).into_iter().find(|function| is_chipset(function))
}

fn is_chipset(function: &PciFunction) -> bool {
    if function.kind == PciKind::Endpoint {
        return false;
    }
    match (function.vendor.get(), function.device_id.get()) {
        (Some(INTEL), _) => {
            function.kind == PciKind::RootPort
                && (function.address.domain, function.address.bus) == (0, 0)
                && (0x1b..=0x1d).contains(&function.address.device)
        }
        (Some(AMD), Some(device)) => matches!(device, 0x4300..=0x43ff | 0x57a3 | 0x57a4 | 0x57ad),
        _ => false,
    }
}

fn finding(evidence: &Evidence<'_>, place: &NarrowPlace<'_>) -> Finding {
    let gpus = place.gpus.as_slice();
    let own = |gpu: &u32| evidence.topology.pcie_link_of(*gpu);
    let rate = |link: Option<&Connection>| pcie::rate(link?.now);
    let (above, below) =
        (rate(place.link), gpus.iter().filter_map(|gpu| rate(own(gpu))).reduce(f64::max));
    let over: Vec<_> =
        gpus.iter().filter_map(own).flat_map(|link| links::over(evidence, link, &[])).collect();
    let slow = explained(evidence, gpus, &links::slow(evidence, &over));

    let names = evidence.named(gpus);
    let mut message = match (
        place.chipset,
        place.link.and_then(|link| link.now.link()),
        above,
        below,
    ) {
        (chipset, Some(shape), Some(above), Some(below)) => {
            let what = if chipset.is_some() {
                "the uplink of the chipset"
            } else {
                "the link to the processor"
            };
            format!(
                "{names}: {what} ({shape}) carries {above:.1} GB/s each way, the GPU's own link {below:.1}"
            )
        }
        _ => format!(
            "{names}: behind the chipset, whose uplink to the processor everything there shares"
        ),
    };
    let shared = gpus.len() > 1 && place.link.is_some();
    if shared {
        message.push_str(&format!("; the {} share it", words::count(gpus.len(), "GPU")));
    }
    let reached = |cell: &&&PeerBandwidth| cell.achieved_gbps.map_or(f64::INFINITY, |rate| rate.0);
    let worst = slow.iter().min_by(|one, other| reached(one).total_cmp(&reached(other)));
    if let Some((reached, expected)) =
        worst.and_then(|worst| worst.achieved_gbps.zip(evidence.expected(worst)))
    {
        message.push_str(&format!(
            "; copies reach down to {reached} of the {} GB/s expected of the visible links",
            expected.gbps
        ));
    }
    let subject = match (gpus, place.link.and_then(|link| link.below), place.chipset) {
        ([index], ..) => Subject::Gpu { index: *index },
        (_, Some(address), _) => Subject::PcieLink { address },
        (_, None, Some(chipset)) => Subject::PcieLink { address: chipset.address },
        _ => Subject::Machine,
    };
    let slot = match place.chipset {
        Some(_) => Step::ProcessorSlot(one_of(gpus)),
        None => Step::ProcessorSlot(one_of(gpus)),
    };
    let plan = Plan::now([slot]).otherwise([Step::Nothing(Fine::Always)]);
    let mut found = RULE
        .finding(subject, message, plan)
        .fact("gpus_behind", Fact::Gpus(gpus.to_vec()))
        .fact("chipset_port", place.chipset.map(|chipset| chipset.address))
        .fact("rate_above", above.map(one_place))
        .fact("rate_of_the_gpu", below.map(one_place))
        .about_gpus(gpus)
        .pairs(&links::pairs(&slow));
    found = links::with_rates(found, &slow);
    if !slow.is_empty() || shared {
        found.severity = Severity::Warning;
    }
    if !slow.is_empty() {
        found.suspects = suspects(place.chipset.is_some(), gpus);
    }
    found
}

fn suspects(chipset: bool, gpus: &[u32]) -> Vec<Suspect> {
    let above = match chipset {
        true => Cause::ChipsetUplink,
        false => Cause::SharedLink,
    };
    let move_it = [Step::ProcessorSlot(one_of(gpus))];
    vec![
        suspect_if(above, move_it, Sign::RateRises),
        suspect(Cause::UplinkWork, [Step::CheckIdle]),
        suspect(Cause::ChipsetForwards, [Step::ComparePaths]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::testing::gpu;

    /// Returns two GPUs, one in a slot of the processor, one in a slot of the chipset, both Gen4 x8.
    fn chipset_slot(device: u8) -> Snapshot {
        let mut machine = empty();
        machine.host.virtual_machine = Reading::Known(false);
        let ports = ["0000:00:01.0".to_owned(), format!("0000:00:{device:02x}.0")];
        for (index, port) in (0..).zip(&ports) {
            let address = format!("0000:0{}:00.0", index + 1);
            let mut root = function(port, None, PciKind::RootPort, (1, 8), (4, 8));
            root.vendor = Reading::Known(INTEL);
            root.device_id = Reading::Known(0x7a30);
            machine.pci.push(root);
            machine.pci.push(function(&address, Some(port), PciKind::Endpoint, (1, 8), (4, 8)));
            let mut card = gpu(index, &address);
            (card.pcie_width, card.pcie_width_max) = (lanes(8), lanes(8));
            machine.gpus.push(card);
        }
        machine
    }

    #[test]
    fn ports_of_the_processor_and_of_guests_are_no_chipset() {
        assert_eq!(findings(&chipset_slot(0x02), None), [], "a port of the processor");
        let mut guest = chipset_slot(0x1c);
        guest.host.virtual_machine = Reading::Known(true);
        assert_eq!(findings(&guest, None), [], "an emulated machine has such ports too");
    }

    #[test]
    fn a_narrow_link_above_is_reported_where_it_is_narrower_than_one_gpu() {
        let mut machine = two_sockets();
        assert_eq!(
            findings(&machine, None),
            [],
            "two GPUs at one uplink of the same width are usual"
        );
        // All of socket 1 is connected through a link that cannot do more.
        for address in ["0000:80:01.0", "0000:81:00.0"] {
            let end = function_mut(&mut machine, address);
            (end.width, end.width_max) = (lanes(8), lanes(8));
        }
        // Only one GPU there.
        machine.gpus.truncate(3);
        let mut measurements = measured(&machine, 0.82);
        measurements.peer.retain(|cell| !touches(cell, 3));
        only(&findings(&machine, Some(&measurements)), "pcie-upstream-bottleneck", Severity::Info);
        // A link that could do more is a fault and reported once, by its own rule.
        function_mut(&mut machine, "0000:80:01.0").width_max = lanes(16);
        function_mut(&mut machine, "0000:81:00.0").width_max = lanes(16);
        only(&findings(&machine, Some(&measurements)), "pcie-narrow", Severity::Error);
    }

    #[test]
    fn chipsets_of_amd_are_known_by_their_bridges() {
        let mut bridge = function("0000:02:00.0", None, PciKind::SwitchUpstream, (4, 4), (4, 4));
        bridge.vendor = Reading::Known(AMD);
        assert!(!is_chipset(&bridge), "no device id");
        for (device, chipset) in [(0x43f4, true), (0x57ad, true), (0x14db, false), (0x1483, false)]
        {
            bridge.device_id = Reading::Known(device);
            assert_eq!(is_chipset(&bridge), chipset, "{device:x}");
        }
    }
}
