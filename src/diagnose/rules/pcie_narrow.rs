//! # What it means
//!
//! A PCIe link between a GPU and the processor has fewer lanes, or a lower generation, than both its ends support.
//!
//! # How it is detected
//!
//! Lanes and generation of the link are compared with the most that the port above it and the device below it support
//! together. Every link between a GPU and its root is checked, and each is reported once, however many GPUs share it.
//! An idle GPU lowers its generation and not its lanes. So the generation of a GPU's link is judged only by the highest
//! one that was seen while copies ran over PCIe (copies over NVLink leave the link idle). The lanes are judged so too
//! if they were read then. If a run was too short for that, the generation at rest counts if every copy over the link
//! is as slow as that generation makes it. The evidence lists the pairs whose copies passed the link, with their rates.
//! Their low rates are not reported again. A copy that was faster than a reading allows refutes it, at rest or under
//! load, and nothing is reported from it. Ports of switches lower their generation at rest too: if nothing was copied
//! over such a link, the finding is information. Some ports show fewer lanes at rest, so lanes that were read while
//! nothing passed the link are a warning: `check` copies over the link and settles it. The link of a GPU that shows its
//! highest generation is not at rest, and its lanes count. A link that is narrow because one end supports no more (a x8
//! board, a x4 slot) is no fault (`pcie-narrow-by-design`). One that was wide and lost lanes while copies ran is
//! another fault (`pcie-link-changed`). In a virtual machine that does not show the port, the finding is a warning.
//!
//! # Why it matters
//!
//! Everything that this GPU exchanges with the host, with network adapters, and over PCIe with other GPUs passes this
//! link.
//!
//! # What to do
//!
//! Fewer lanes: power the machine off, reseat the GPU and its riser or cable, clean the contacts, and look for a bent
//! pin in the slot. Then swap it with another GPU: a fault that moves with the GPU is the GPU's. One that stays is the
//! slot's, the riser's, the processor socket's, or that of a BIOS setting that splits the slot (bifurcation). Lower
//! generation: check the BIOS setting for the speed of the slot, and if the riser or cable is made for the generation.
//!
//! # Sources
//!
//! PCI Express Base Specification, link training (both ends settle on the widest and fastest that
//! works); NVML documentation of `nvmlDeviceGetMaxPcieLinkWidth` (of GPU and system together).

use super::prelude::*;
use super::shared::{self, OfLink};
use crate::links::{self, one_place};
use crate::{coverage, external};
use model::units::Generation;
use topology::pcie::{self, Connection, Shape};
use topology::refute::Fastest;

/// Fewest readings under load that prove that a generation never rose. A link takes its time to speed up after the
/// first work. Three readings are one at the start and two after that time.
const READINGS_TO_BELIEVE: u32 = 3;

pub(crate) const RULE: Rule = Rule::new(
    "pcie-narrow",
    Severity::Error,
    include_str!("pcie_narrow.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let nothing = Measurements::default();
    let fastest = Fastest::of(
        evidence.snapshot,
        evidence.topology,
        evidence.measurements.unwrap_or(&nothing),
    );
    let all = evidence.topology.pcie_links().filter_map(|link| {
        let (found, state) = finding(evidence, &fastest, link, &link.gpus)?;
        Some(OfLink {
            found,
            gpu: link.gpu,
            state,
        })
    });
    shared::combined(evidence, all.collect(), |first, state, gpus| {
        of_several(evidence, first, state, gpus)
    })
}

/// Returns one finding on links that are all narrow in the same way.
fn of_several(evidence: &Evidence<'_>, first: Finding, state: &str, gpus: &[u32]) -> Finding {
    let lanes = gpus
        .iter()
        .filter_map(|gpu| evidence.topology.pcie_link_of(*gpu)?.now.width)
        .max();
    let one_lane = lanes.is_some_and(|lanes| lanes.number() == 1);
    let rate = first.scope.rate;
    let mut suspects = vec![
        suspect(
            "a BIOS setting that splits the slots or caps their generation",
            "compare it with the board's manual",
        ),
        suspect(
            "risers, cables or a backplane of one kind",
            "put one GPU into a slot of the board and check again",
        ),
    ];
    if one_lane {
        let cause = "extenders of one lane (PCIe x1 risers)";
        suspects.insert(
            0,
            suspect(
                cause,
                "look at them; a GPU in a slot of the board has all its lanes",
            ),
        );
    }
    let next_step = format!(
        "Look for what these {} share, before single GPUs: {}. Change it for one of them and check again",
        words::count(gpus.len(), "link"),
        suspects
            .iter()
            .map(|suspect| suspect.cause.as_str())
            .collect::<Vec<_>>()
            .join("; or "),
    );
    let message = format!(
        "The PCIe links of {} all run at {state}",
        shared::names(evidence, gpus)
    );
    Finding {
        message,
        next_step,
        ..first
    }
    .fact("rate", rate)
    .suspecting(suspects)
}

/// Returns the finding on a link, and its state as words.
fn finding(
    evidence: &Evidence<'_>,
    fastest: &Fastest,
    link: &Connection,
    gpus: &[u32],
) -> Option<(Finding, String)> {
    let load = link.gpu.and_then(|gpu| under_load(evidence, gpu));
    // Readings under load outrank those of an idle link.
    let width = load
        .and_then(|load| load.width?[1].try_into().ok())
        .or(link.now.width);
    let over_pcie = load.filter(|load| evidence.used_pcie(load.index));
    let loaded_generation = over_pcie
        .and_then(|load| load.generation?[1].try_into().ok())
        .or_else(|| fitting_generation(evidence, link, gpus));
    let generation = match link.gpu {
        Some(_) => loaded_generation.or(link.possible.generation),
        None => link.now.generation,
    };
    let is = fastest.believable(link, Shape { generation, width });
    let few_lanes = link.width_of_both
        && is
            .width
            .zip(link.possible.width)
            .is_some_and(|(is, could)| is < could);
    let slower = is
        .generation
        .zip(link.possible.generation)
        .is_some_and(|(is, could)| is < could);
    let slow = link.generation_of_both && slower;
    if !few_lanes && !slow {
        return None;
    }

    // A port lowers its generation at rest too, and some ports show fewer lanes. Nothing was copied that could show the
    // link in use.
    let awake = link
        .gpu
        .is_some_and(|gpu| evidence.used_pcie(gpu) || shows_full_generation(link, load));
    let at_rest_only = fastest.over(link).is_none() && !awake;
    let (rate_is, rate_could) = (pcie::rate(is), pcie::rate(link.possible));
    let text = |shape: Shape| match (shape.link(), shape.width) {
        (Some(link), _) => link.to_string(),
        (None, Some(lanes)) => format!("x{lanes}"),
        (None, None) => "unknown".into(),
    };
    let cost = match (rate_is, rate_could) {
        (Some(is), Some(could)) if is > 0.0 => {
            format!(
                ": {is:.1} instead of {could:.1} GB/s each way, {:.1} times slower",
                could / is
            )
        }
        _ => String::new(),
    };
    let (subject, name, ends) = name(evidence, link, gpus);
    let when = match (slow && load.is_some(), at_rest_only) {
        (true, _) => " under load",
        (_, true) => " while nothing runs",
        _ => "",
    };
    let state = format!(
        "{}{when}; {ends} can do {}{cost}",
        text(is),
        text(link.possible)
    );
    let mut found = RULE
        .finding(
            subject,
            format!("{name} runs at {state}"),
            next_step(few_lanes, link, gpus),
        )
        .fact("width", is.width.map(Fact::Lanes))
        .fact("width_possible", link.possible.width.map(Fact::Lanes))
        .fact("generation", is.generation)
        .fact("generation_possible", link.possible.generation)
        .fact("rate", rate_is.map(one_place))
        .fact("rate_possible", rate_could.map(one_place))
        .fact("device_address", link.below)
        .fact("port_address", link.port)
        .fact("slot", link.slot.clone())
        .fact("gpus_behind", Fact::Gpus(gpus.to_vec()))
        .about_gpus(gpus);
    (found.scope.rate, found.scope.own_links) = (rate_is.map(one_place), link.gpu.is_some());
    if at_rest_only && few_lanes {
        found.severity = Severity::Warning;
        found.suspects = suspects(link, gpus);
        found.next_step = format!(
            "Some ports show fewer lanes at rest than they have: run 'peerscope check' (profile standard), which copies \
             over this link, or read it while something is copied (lspci -vv, LnkSta). If it is narrow then too: {}",
            found.next_step
        );
        return Some((found, state));
    }
    if at_rest_only {
        found.severity = Severity::Info;
        found.next_step = "Ports lower their generation at rest to save power: nothing to do if a check that copies \
             over this link reaches its full rate (peerscope check)"
            .into();
        return Some((found, state));
    }
    found = with_copies(found, evidence, gpus);
    if few_lanes {
        found.suspects = suspects(link, gpus);
        found
            .suspects
            .extend(external::suspect_cable(evidence, gpus));
    }
    if evidence.virtual_machine() && link.port.is_none() {
        found.severity = Severity::Warning;
        found.next_step = format!(
            "This virtual machine does not show the slot: ask whoever runs its host to compare LnkCap and LnkSta \
             of the GPU and of the port above it (lspci -vvv). {}",
            found.next_step
        );
    }
    Some((found, state))
}

/// Returns true if the link of a GPU was seen at the highest generation that both ends support. An idle GPU lowers it,
/// so this one is not at rest.
fn shows_full_generation(link: &Connection, load: Option<&LinkUnderLoad>) -> bool {
    let under_load = load.and_then(|load| load.generation?[1].try_into().ok());
    let seen: Option<Generation> = under_load.max(link.at_rest.generation);
    seen.zip(link.possible.generation)
        .is_some_and(|(seen, could)| seen >= could)
}

/// Adds the copies that pass the link. They are as fast as it allows, so no other rule reports them.
fn with_copies(found: Finding, evidence: &Evidence<'_>, gpus: &[u32]) -> Finding {
    let passes = |pair: Pair| gpus.contains(&pair.source) != gpus.contains(&pair.destination);
    let cells = evidence.reference_with(Path::Direct, gpus).into_iter();
    let cells = cells.filter(|cell| passes(cell.pair) && evidence.over_pcie(cell.pair));
    let (pairs, rates): (Vec<_>, Vec<_>) = cells
        .filter_map(|cell| Some((cell.pair, cell.achieved_gbps?)))
        .unzip();
    let (lowest, highest) = links::range(rates.into_iter());
    found
        .pairs(&pairs)
        .fact("copies_over_it_lowest", lowest)
        .fact("copies_over_it_highest", highest)
}

/// Returns the generation at rest if a run was too short to read the link under load and the copies show it instead.
/// Every direct copy over the link must be slow, and as fast as that generation makes it. If there is no direct one,
/// staged copies count. Then others must be as fast as they should be, since the host's memory slows all of them.
fn fitting_generation(
    evidence: &Evidence<'_>,
    link: &Connection,
    gpus: &[u32],
) -> Option<Generation> {
    if under_load(evidence, link.gpu?).is_some() {
        return None;
    }
    // Too few readings to prove that it never rose are enough to see that it did.
    let seen = links::watched(evidence, link.gpu?).and_then(|load| load.generation);
    if seen
        .zip(link.at_rest.generation)
        .is_some_and(|([_, most], rest)| most > u8::from(rest))
    {
        return None;
    }
    let carries = pcie::rate(link.at_rest)?;
    let (direct, staged): (Vec<_>, Vec<_>) = links::over(evidence, link, gpus)
        .into_iter()
        .partition(|cell| cell.setup.path == Path::Direct);
    let others_are_fine = || {
        let all = evidence.reference(Path::Staged).into_values();
        let mut others = all.filter(|cell| !gpus.iter().any(|gpu| cell.pair.touches(*gpu)));
        others.any(|cell| links::is_slow(evidence, cell) == Some(false))
    };
    let cells = if direct.is_empty() && others_are_fine() {
        staged
    } else {
        direct
    };
    let fits = !cells.is_empty()
        && cells.into_iter().all(|cell| {
            let Some((achieved, expected)) = cell.achieved_gbps.zip(evidence.expected(cell)) else {
                return false;
            };
            achieved < expected.floor_gbps()
                && achieved.0 <= carries
                && achieved.0 >= carries * expected.share.floor_percent() / 100.0
        });
    link.at_rest.generation.filter(|_| fits)
}

/// Returns usable readings of this GPU's link: enough of them, from a GPU that had work to do.
fn under_load<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a LinkUnderLoad> {
    let measurements = evidence.measurements?;
    let mut copied = coverage::cells(measurements)
        .filter(|cell| cell.tested() && cell.uses(gpu) && cell.flow.within().is_none());
    let worked = copied.next().is_some();
    measurements
        .links
        .iter()
        .find(|link| worked && link.index == gpu && link.readings >= READINGS_TO_BELIEVE)
}

/// Returns the subject of the finding, its name, and the name of the two ends.
fn name(
    evidence: &Evidence<'_>,
    link: &Connection,
    gpus: &[u32],
) -> (Subject, String, &'static str) {
    if let Some(index) = link.gpu {
        let ends = if link.port.is_some() {
            "the GPU and the port above it"
        } else {
            "GPU and slot together"
        };
        return (
            Subject::Gpu { index },
            format!("The PCIe link of {}", words::gpu(evidence.snapshot, index)),
            ends,
        );
    }
    let address = |address: Option<_>| {
        address.map_or(
            "the root".to_owned(),
            |address: model::units::PciAddress| address.to_string(),
        )
    };
    let name = format!(
        "The PCIe link from {} down to the bridge {}, which {} {},",
        address(link.port),
        address(link.below),
        words::gpus(gpus),
        if gpus.len() == 1 {
            "depends on"
        } else {
            "share"
        },
    );
    let subject = match (gpus, link.below) {
        ([index], _) => Subject::Gpu { index: *index },
        (_, Some(address)) => Subject::PcieLink { address },
        _ => Subject::Machine,
    };
    (subject, name, "both ends")
}

/// Lists both ends and the parts between them: lanes are lost at any of these, and no register shows where.
fn suspects(link: &Connection, gpus: &[u32]) -> Vec<Suspect> {
    let board = match (link.gpu, gpus) {
        (Some(index), _) => suspect(
            "the GPU, its contacts or its lanes",
            format!("swap GPU {index} with another GPU: the narrow link moves with it"),
        ),
        (None, _) => suspect(
            "the switch board or its cable",
            "swap it with one of the same kind: the narrow link moves with it",
        ),
    };
    vec![
        board,
        suspect(
            "the slot, riser or processor socket",
            "after the swap the narrow link stays at the slot",
        ),
        suspect(
            "a BIOS setting that splits the slot (bifurcation)",
            "compare the setting with that of a slot that is wide",
        ),
    ]
}

fn next_step(few_lanes: bool, link: &Connection, gpus: &[u32]) -> String {
    match (few_lanes, link.gpu) {
        (true, Some(index)) => format!(
            "Power off, reseat GPU {index} and its riser or cable, and check the slot's contacts. If it stays: swap it \
             with another GPU. If the fault moves with the GPU, replace the GPU; if it stays with the slot, check the \
             BIOS bifurcation setting of the slot, then replace riser, cable or board"
        ),
        (true, None) => format!(
            "Power off and reseat the switch board, riser or cable above {}; check the BIOS bifurcation setting of its \
             slot; then replace cable, riser or board",
            words::gpus(gpus)
        ),
        (false, _) => "Set the slot's link speed in BIOS to Auto or to its highest generation; check that riser and \
             cable are made for that generation; then reseat, and replace the riser or cable"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{findings, measured, only, touches};
    use model::testing::{
        function_mut, generation, lanes, two_sockets, two_sockets_with_narrow_gpu,
    };

    #[test]
    fn lanes_that_no_copy_has_tested_are_a_warning_and_those_of_a_gpu_that_is_awake_an_error() {
        let mut machine = two_sockets_with_narrow_gpu();
        let found = only(&findings(&machine, None), "pcie-narrow", Severity::Warning);
        for text in ["while nothing runs", "Gen4 x4"] {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
        assert!(found.next_step.contains("peerscope check") && found.next_step.contains("reseat"));
        assert_eq!(found.suspects.len(), 3);
        let measurements = measured(&machine, 0.84);
        only(
            &findings(&machine, Some(&measurements)),
            "pcie-narrow",
            Severity::Error,
        );
        for address in ["0000:84:00.0", "0000:82:01.0"] {
            function_mut(&mut machine, address).generation = generation(4);
        }
        machine.gpus[3].pcie_generation = generation(4);
        only(&findings(&machine, None), "pcie-narrow", Severity::Error);
    }

    #[test]
    fn lanes_of_an_uplink_are_believed_where_copies_passed_it() {
        let mut machine = two_sockets();
        for address in ["0000:80:01.0", "0000:81:00.0"] {
            function_mut(&mut machine, address).width = lanes(4);
        }
        only(&findings(&machine, None), "pcie-narrow", Severity::Warning);
        let mut measurements = measured(&machine, 0.84);
        only(
            &findings(&machine, Some(&measurements)),
            "pcie-narrow",
            Severity::Error,
        );
        measurements
            .peer
            .retain(|cell| touches(cell, 0) && touches(cell, 1));
        let found = findings(&machine, Some(&measurements));
        let found = found.iter().find(|found| found.code == RULE.id).unwrap();
        assert_eq!(found.severity, Severity::Warning);
    }
}
