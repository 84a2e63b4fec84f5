//! # What it means
//!
//! A GPU's PCIe link is narrow because slot or board allow no more. Its rates only look wrong beside others.
//!
//! # What to do
//!
//! A narrow slot: move the GPU to a wider one; the board's manual says which share lanes with others or with M.2
//! sockets. A narrow GPU: nothing.
//!
//! # How it is detected
//!
//! GPU and port above support different rates, and the link runs at the lower one. Not reported: a GPU of a lower
//! generation than its slot; a link below a narrower one (`pcie-upstream-bottleneck`); virtual machines. It is a
//! warning if others of the model sit in slots that carry more, or the only GPU has half its lanes or fewer.
//!
//! # Sources
//!
//! PCIe Base Specification (link capabilities).

use super::pcie_upstream_bottleneck;
use super::prelude::*;
use model::units::PcieLink;
use topology::capacity;

/// The end that is narrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NarrowEnd {
    Slot,
    Gpu,
}

/// The shape of a link if both ends were as good as the better one.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    narrow: NarrowEnd,
    is: PcieLink,
    could: PcieLink,
}

rule! {
    "pcie-narrow-by-design", Info, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.virtual_machine() {
        return Vec::new();
    }
    let links: Vec<_> = evidence.topology.pcie_links().collect();
    let mut alike: BTreeMap<(NarrowEnd, String, String), (Ceiling, Vec<u32>)> = BTreeMap::new();
    for link in &links {
        let Some(gpu) = link.gpu else { continue };
        let above = links.iter().filter(|other| other.gpu.is_none() && other.gpus.contains(&gpu));
        let narrower_above = above
            .filter_map(|other| pcie::rate(other.now))
            .any(|above| Some(above) < pcie::rate(link.now));
        if let Some(ceiling) = ceiling(link).filter(|_| !narrower_above) {
            let key = (ceiling.narrow, ceiling.is.to_string(), ceiling.could.to_string());
            alike.entry(key).or_insert_with(|| (ceiling, Vec::new())).1.push(gpu);
        }
    }
    alike
        .values()
        .map(|(ceiling, gpus)| {
            with_effect(finding(evidence, *ceiling, gpus), evidence, *ceiling, gpus)
        })
        .collect()
}

/// Returns the limit of a GPU's link, if there is one and the link runs at it.
fn ceiling(link: &Connection) -> Option<Ceiling> {
    if link.fewer_lanes() {
        return None;
    }
    let (own, slot) = (link.device_possible.link()?, link.port_possible.link()?);
    let is = own.least(slot);
    if is != own {
        // A better slot would not use lanes that the GPU lacks.
        return Some(Ceiling { narrow: NarrowEnd::Slot, is, could: own });
    }
    // A port with more lanes than any board uses (x32) proves nothing about the board.
    let width = slot.width.min(Lanes::X16);
    (own.width < width).then_some(Ceiling {
        narrow: NarrowEnd::Gpu,
        is,
        could: PcieLink { width, ..is },
    })
}

fn finding(evidence: &Evidence<'_>, ceiling: Ceiling, gpus: &[u32]) -> Finding {
    let [is, could] = [ceiling.is, ceiling.could].map(|link| capacity::pcie(link).gbps);
    let names = evidence.named(gpus);
    let (what, plan) = match ceiling.narrow {
        NarrowEnd::Slot => (
            format!(
                "slot limits PCIe to {}, {is:.1} of {could:.1} GB/s each way; no fault, the GPU can do {}",
                ceiling.is, ceiling.could,
            ),
            Plan::now([Step::WiderSlot(all(gpus))]).otherwise([Step::Nothing(Fine::Always)]),
        ),
        NarrowEnd::Gpu => (
            format!(
                "made with {} lanes, {is:.1} GB/s each way, in a slot of {}; no fault",
                ceiling.is.width, ceiling.could.width,
            ),
            Plan::now([Step::Nothing(Fine::Always)]),
        ),
    };
    RULE.finding(Subject::of_gpus(gpus), format!("{names}: {what}"), plan)
        .gpus(gpus)
        .fact("limit", ceiling.is.to_string())
        .fact("rate", one_place(is))
        .fact("rate_of_the_wider_end", one_place(could))
}

/// Raises the finding to a warning if a slot keeps its GPU below what others of its model reach, and adds the effect in
/// numbers. A narrow board is the same in every slot.
fn with_effect(found: Finding, evidence: &Evidence<'_>, ceiling: Ceiling, gpus: &[u32]) -> Finding {
    if ceiling.narrow == NarrowEnd::Gpu {
        return found;
    }
    let wider = wider_siblings(evidence, ceiling, gpus);
    let is_half =
        u16::from(ceiling.is.width.number()) * 2 <= u16::from(ceiling.could.width.number());
    let only_one = evidence.snapshot.gpus.len() == 1 && is_half;
    if wider.is_empty() && !only_one {
        return found;
    }
    let mut found = found
        .at(Severity::Warning)
        .fact("gpus_in_wider_slots", (!wider.is_empty()).then(|| Fact::Gpus(wider.clone())));
    if !wider.is_empty() {
        found.message.push_str(&format!(
            "; others of its model sit in wider slots: {}",
            words::gpus(&wider)
        ));
    }
    found
}

/// Returns GPUs of the same model whose ways to the processor carry more, at their narrowest link.
fn wider_siblings(evidence: &Evidence<'_>, ceiling: Ceiling, gpus: &[u32]) -> Vec<u32> {
    let model = |gpu: u32| evidence.snapshot.gpu(gpu).and_then(|gpu| gpu.name.known());
    let models: BTreeSet<_> = gpus.iter().filter_map(|gpu| model(*gpu)).collect();
    let is = capacity::pcie(ceiling.is).gbps;
    let carries_more = |gpu: u32| {
        let own = evidence.topology.pcie_link_of(gpu).and_then(|link| pcie::rate(link.possible));
        let links = evidence.topology.pcie_links();
        let above = links
            .filter(|link| link.gpu.is_none() && link.gpus.contains(&gpu))
            .filter_map(|link| pcie::rate(link.possible))
            .reduce(f64::min);
        // The rate of a chipset's uplink is not known.
        let is_below_less = || pcie_upstream_bottleneck::is_above(evidence, gpu);
        own.is_some_and(|own| above.map_or(own, |above| own.min(above)) > is && !is_below_less())
    };
    let all = evidence.snapshot.gpus.iter().map(|gpu| gpu.index);
    let like = all.filter(|gpu| {
        !gpus.contains(gpu) && model(*gpu).is_some_and(|model| models.contains(model))
    });
    like.filter(|gpu| carries_more(*gpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn boards_that_are_made_with_fewer_lanes_are_information() {
        let mut machine = two_sockets();
        for (gpu, address) in [(0, "0000:03:00.0"), (1, "0000:04:00.0")] {
            let function = function_mut(&mut machine, address);
            (function.width, function.width_max) = (lanes(8), lanes(8));
            machine.gpus[gpu].pcie_width = lanes(8);
            machine.gpus[gpu].pcie_width_max = lanes(8);
        }
        let found = only(&findings(&machine, None), "pcie-narrow-by-design", Severity::Info);
        assert!(found.message.contains("GPU 0 and GPU 1: made with 8 lanes"), "{}", found.message);
    }

    /// Returns [`two_sockets`] with GPU 3 in a slot of this many lanes.
    fn with_slot(width: u8) -> Snapshot {
        let mut machine = two_sockets();
        let slot = function_mut(&mut machine, "0000:82:01.0");
        (slot.width_max, slot.width) = (lanes(width), lanes(width));
        function_mut(&mut machine, "0000:84:00.0").width = lanes(width);
        (machine.gpus[3].pcie_width, machine.gpus[3].pcie_width_max) = (lanes(width), lanes(width));
        machine
    }

    #[test]
    fn another_model_may_belong_into_a_narrower_slot() {
        let mut machine = with_slot(4);
        machine.gpus[3].name = Reading::Known("NVIDIA A2".into());
        let measurements = crate::testing::with_host(&machine, &[26.0, 26.1, 26.0, 6.5]);
        let measurements = Measurements { peer: measured(&machine, 0.82).peer, ..measurements };
        let found = findings(&machine, Some(&measurements));
        let own = found.iter().find(|found| found.code == RULE.id).unwrap();
        assert_eq!(own.severity, Severity::Info);
    }

    #[test]
    fn a_wide_slot_below_a_narrow_link_carries_no_more() {
        let mut machine = with_slot(4);
        for address in ["0000:00:01.0", "0000:01:00.0"] {
            let end = function_mut(&mut machine, address);
            (end.width, end.width_max) = (lanes(2), lanes(2));
        }
        let all = findings(&machine, None);
        let found = all.iter().find(|found| found.code == RULE.id).unwrap();
        assert!(found.message.contains("sit in wider slots: GPU 2"), "{}", found.message);
    }

    #[test]
    fn a_slower_gpu_a_narrower_link_above_and_a_virtual_machine_are_not_reported() {
        let mut machine = two_sockets();
        function_mut(&mut machine, "0000:82:01.0").generation_max = generation(5);
        assert_eq!(findings(&machine, None), [], "the GPU is Gen4, as built");

        function_mut(&mut machine, "0000:84:00.0").generation_max = generation(5);
        function_mut(&mut machine, "0000:82:01.0").generation_max = generation(4);
        machine.gpus[3].pcie_generation_max = generation(4);
        only(&findings(&machine, None), "pcie-narrow-by-design", Severity::Info);
        machine.host.virtual_machine = Reading::Known(true);
        assert_eq!(findings(&machine, None), []);
        machine.host.virtual_machine = Reading::Known(false);
        function_mut(&mut machine, "0000:82:01.0").width_max = lanes(63);
        assert_eq!(findings(&machine, None), [], "a width that cannot be is unknown");
    }
}
