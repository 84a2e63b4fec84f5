//! # What it means
//!
//! A GPU's PCIe link is as wide and as fast as it can be, and narrower than it could be elsewhere:
//! the slot has fewer lanes or a lower generation than the GPU, or the board has fewer lanes than
//! the slot.
//!
//! # How it is detected
//!
//! What the port above the GPU can do is compared with what the GPU can do. Only the narrower of
//! the two is told, and only where the link runs at that; a link below what both can do is
//! `pcie-narrow`. A GPU of a lower generation than its slot is the usual case and is not told, nor
//! is a link that a narrower one above it makes irrelevant (`pcie-upstream-bottleneck`). Not judged
//! in virtual machines, whose ports are not real.
//!
//! # Why it matters
//!
//! The rates that such a GPU reaches are right and look wrong beside those of others: the limit is
//! the slot's or the board's, and nothing is to be repaired.
//!
//! # What to do
//!
//! A narrow slot: if the board has a wider one, move the GPU there; look in the board's manual for
//! slots that share lanes with others or with M.2 sockets. A narrow GPU: nothing, it is made so.
//!
//! # Sources
//!
//! PCI Express Base Specification (link capabilities: maximum speed and width of each end); NVML
//! documentation of `nvmlDeviceGetGpuMaxPcieLinkGeneration` (of the GPU whatever the slot).

use super::prelude::*;
use std::collections::BTreeMap;

use crate::diagnose::links::one_place;
use crate::model::units::PcieLink;
use crate::topology::capacity;
use crate::topology::pcie::{self, Connection};

/// Which end is the narrower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Narrow {
    Slot,
    Gpu,
}

/// What a link could be if both ends were as good as the better one.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    narrow: Narrow,
    is: PcieLink,
    could: PcieLink,
}

/// The rule.
pub const RULE: Rule = Rule {
    id: RuleId::new("pcie-narrow-by-design"),
    severity: Severity::Info,
    parameters: &[],
    gap: false,
    page: include_str!("pcie_narrow_by_design.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.virtual_machine() {
        return Vec::new();
    }
    let links = pcie::links(evidence.snapshot);
    let mut alike: BTreeMap<(Narrow, String, String), (Ceiling, Vec<u32>)> = BTreeMap::new();
    for (link, _) in &links {
        let Some(gpu) = link.gpu else { continue };
        let rate = |link: &Connection| link.capacity().map(|capacity| capacity.gbps);
        let above = links.iter().filter(|(other, gpus)| other.gpu.is_none() && gpus.contains(&gpu));
        let narrower_above = above.filter_map(|(other, _)| rate(other)).any(|above| Some(above) < rate(link));
        if let Some(ceiling) = ceiling(evidence, link).filter(|_| !narrower_above) {
            let key = (ceiling.narrow, ceiling.is.to_string(), ceiling.could.to_string());
            alike.entry(key).or_insert_with(|| (ceiling, Vec::new())).1.push(gpu);
        }
    }
    alike.values().filter_map(|(ceiling, gpus)| finding(evidence, *ceiling, gpus)).collect()
}

/// What limits a GPU's link, where something does and the link runs at it.
fn ceiling(evidence: &Evidence<'_>, link: &Connection) -> Option<Ceiling> {
    if link.fewer_lanes() {
        return None;
    }
    let device = evidence.snapshot.function(link.below?)?;
    let port = evidence.snapshot.function(link.port?)?;
    let lanes = |lanes: Option<u8>| lanes.and_then(capacity::sound_width);
    let generation = |generation: Option<u8>| generation.and_then(capacity::sound_generation);
    let (own, slot) = (lanes(device.width_max.get())?, lanes(port.width_max.get())?);
    let own_generation = generation(device.generation_max.get())?;
    let slot_generation = generation(port.generation_max.get())?;
    let is = PcieLink { generation: own_generation.min(slot_generation), width: own.min(slot) };
    if slot < own || slot_generation < own_generation {
        // Lanes that the GPU lacks would not be used by a better slot either.
        let could = PcieLink { generation: own_generation, width: own };
        return Some(Ceiling { narrow: Narrow::Slot, is, could });
    }
    // A port with more lanes than any board uses (x32) proves nothing about the board.
    (own < slot.min(16)).then_some(Ceiling { narrow: Narrow::Gpu, is, could: PcieLink { width: slot.min(16), ..is } })
}

fn finding(evidence: &Evidence<'_>, ceiling: Ceiling, gpus: &[u32]) -> Option<Finding> {
    let rate = |link| capacity::pcie(link).map(|capacity| capacity.gbps);
    let (is, could) = (rate(ceiling.is)?, rate(ceiling.could)?);
    let (one, names) = match gpus {
        [index] => (true, words::gpu(evidence.snapshot, *index)),
        many => (false, words::gpus(many)),
    };
    let (what, next_step) = match ceiling.narrow {
        Narrow::Slot => (
            format!(
                "{} more ({}) than {} ({}), which {} the limit: {is:.1} instead of {could:.1} GB/s each way. No \
                 fault",
                if one { "can do" } else { "can each do" },
                ceiling.could,
                if one { "its slot" } else { "their slots" },
                ceiling.is,
                if one { "is" } else { "are" },
            ),
            "If the board has a wider or newer slot, move the GPU there; otherwise nothing to do",
        ),
        Narrow::Gpu => (
            format!(
                "{} made with {} lanes, in a slot of {}: {is:.1} GB/s each way is all that {} can do. No fault",
                if one { "is" } else { "are" },
                ceiling.is.width,
                ceiling.could.width,
                if one { "it" } else { "each" },
            ),
            "Nothing to do; a wider slot changes nothing",
        ),
    };
    let subject = Subject::of_gpus(gpus);
    Some(
        RULE.finding(subject, format!("{names} {what}"), next_step)
            .gpus(gpus)
            .fact("limit", ceiling.is.to_string())
            .fact("rate", one_place(is))
            .fact("rate_of_the_wider_end", one_place(could)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::{findings, measured, only};
    use crate::model::reading::Reading;
    use crate::model::testing::{function_mut, two_sockets};

    #[test]
    fn a_narrow_slot_and_a_narrow_board_are_told_apart() {
        let mut machine = two_sockets();
        let slot = function_mut(&mut machine, "0000:82:01.0");
        slot.width_max = Reading::Known(4);
        slot.width = Reading::Known(4);
        function_mut(&mut machine, "0000:84:00.0").width = Reading::Known(4);
        machine.gpus[3].pcie_width = Reading::Known(4);
        machine.gpus[3].pcie_width_max = Reading::Known(4);
        let measurements = measured(&machine, 0.82);
        let found = only(&findings(&machine, Some(&measurements)), "pcie-narrow-by-design", Severity::Info);
        for text in ["GPU 3 (0000:84:00.0, slot 4)", "Gen4 x16", "Gen4 x4", "7.9 instead of 31.5"] {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }

        let mut machine = two_sockets();
        for (gpu, address) in [(0, "0000:03:00.0"), (1, "0000:04:00.0")] {
            let function = function_mut(&mut machine, address);
            (function.width, function.width_max) = (Reading::Known(8), Reading::Known(8));
            machine.gpus[gpu].pcie_width = Reading::Known(8);
            machine.gpus[gpu].pcie_width_max = Reading::Known(8);
        }
        let found = only(&findings(&machine, None), "pcie-narrow-by-design", Severity::Info);
        assert!(found.message.contains("GPU 0 and GPU 1 are made with 8 lanes"), "{}", found.message);
    }

    #[test]
    fn a_slower_gpu_a_narrower_link_above_and_a_virtual_machine_are_not_told() {
        let mut machine = two_sockets();
        function_mut(&mut machine, "0000:82:01.0").generation_max = Reading::Known(5);
        assert_eq!(findings(&machine, None), [], "the GPU is Gen4, as made");

        function_mut(&mut machine, "0000:84:00.0").generation_max = Reading::Known(5);
        function_mut(&mut machine, "0000:82:01.0").generation_max = Reading::Known(4);
        machine.gpus[3].pcie_generation_max = Reading::Known(4);
        only(&findings(&machine, None), "pcie-narrow-by-design", Severity::Info);
        machine.host.virtual_machine = Reading::Known(true);
        assert_eq!(findings(&machine, None), []);
        machine.host.virtual_machine = Reading::Known(false);
        function_mut(&mut machine, "0000:82:01.0").width_max = Reading::Known(63);
        assert_eq!(findings(&machine, None), [], "a width that cannot be is unknown");
    }
}
