//! # What it means
//!
//! A PCIe link of a GPU has fewer lanes or a lower generation than possible. All that passes it is slower.
//!
//! # What to do
//!
//! - Fewer lanes, and switched on within the last two hours: switch off and on once more.
//! - GPU outside (Thunderbolt): restart the dock, then exchange cable and dock.
//! - All GPUs alike: BIOS version and settings before any riser.
//! - Otherwise: power off, reseat GPU and riser or cable, clean the contacts, look for a bent pin, then swap the GPU. A
//!   fault that moves is the GPU's; one that stays is of slot, riser, processor socket, or the BIOS setting that splits
//!   the slot (bifurcation).
//! - Lower generation: BIOS setting for the speed of the slot; riser or cable made for it.
//!
//! # How it is detected
//!
//! Every link between a GPU and its root is compared with what both its ends support. The highest generation seen while
//! copies ran counts, since links at rest lower it; a faster copy refutes a reading. If nothing was copied, fewer lanes
//! are a warning, a lower generation of a switch port information. A narrow end is `pcie-narrow-by-design`, lanes lost
//! meanwhile `pcie-link-changed`.
//!
//! # Sources
//!
//! PCIe Base Specification, link training.

use super::prelude::*;
use super::shared;
use crate::external::{self, External};
use model::pcie::Narrow;
use topology::belief::Known;

rule! {
    "pcie-narrow", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    shared::on_pcie_links(evidence, finding, of_several)
}

/// Returns one finding on links that are all narrow in the same way.
fn of_several(evidence: &Evidence<'_>, first: Finding, words: &str, gpus: &[u32]) -> Finding {
    let lanes = gpus.iter().filter_map(|gpu| links::belief_of(evidence, *gpu)?.shape.width).max();
    let one_lane = lanes.is_some_and(|lanes| lanes.number() == 1);
    let rate = first.scope.rate;
    let mut suspects = vec![
        suspect(Cause::SlotSettings, [Step::Bifurcation]),
        suspect(Cause::RisersAlike, [Step::BoardSlot, Step::CheckAgain]),
    ];
    // Risers of all ports do not age alike. Extenders are alike by design.
    if !one_lane && gpus.len() == evidence.snapshot.gpus.len() && gpus.len() > 2 {
        suspects.insert(0, suspect(Cause::BiosTraining, [Step::UpdateBios, Step::CheckAgain]));
    }
    if one_lane {
        suspects.insert(0, suspect(Cause::Extenders, [Step::Extenders]));
    }
    let message = format!("{}: PCIe links all run at {words}", shared::names(evidence, gpus));
    Finding { message, ..first }
        .steps(Plan::now([Step::WhatIsShared(SharedParts::Slots), Step::CheckAgain]))
        .fact("rate", rate)
        .suspecting(suspects)
}

/// Links with equal states get one finding: the link as it is and as it could be; true if this was read under load, at rest,
/// at both ends.
type State = (Shape, Shape, bool, bool, bool);

/// Returns the finding on a link, its state, and this as words.
fn finding(
    evidence: &Evidence<'_>,
    link: &Connection,
    gpus: &[u32],
) -> Option<(Finding, State, String)> {
    let belief = links::belief(evidence, link);
    let is = belief.shape;
    let narrow = pcie::narrow(link, is);
    if narrow.is_empty() {
        return None;
    }
    let [few_lanes, slow] =
        [Narrow::FewerLanes, Narrow::LowerGeneration].map(|way| narrow.contains(&way));

    // A port lowers its generation at rest too, and some ports show fewer lanes.
    let at_rest_only = !belief.in_use;
    let (rate_is, rate_could) = (pcie::rate(is), pcie::rate(link.possible));
    let text = |shape: Shape| match (shape.link(), shape.width) {
        (Some(link), _) => link.to_string(),
        (None, Some(lanes)) => format!("x{lanes}"),
        (None, None) => "unknown".into(),
    };
    let cost = match (rate_is, rate_could) {
        (Some(is), Some(could)) if is > 0.0 => {
            format!(", {is:.1} of {could:.1} GB/s each way")
        }
        _ => String::new(),
    };
    let (subject, name, ends) = name(evidence, link, gpus);
    let under_load = slow && belief.known == Known::UnderLoad;
    let state = (is, link.possible, under_load, at_rest_only, link.port.is_some());
    let when = match (under_load, at_rest_only) {
        (true, _) => " under load",
        (_, true) => " while nothing runs",
        _ => "",
    };
    let could = text(link.possible);
    let words = format!("{} of {could}{when}{cost}; {ends} support {could}", text(is));
    let mut found = RULE
        .finding(
            subject,
            format!("{name} runs at {words}"),
            started_again(evidence, few_lanes, plan(evidence, few_lanes, link, gpus)),
        )
        .fact("width", is.width.map(Fact::Lanes))
        .fact("width_possible", link.possible.width.map(Fact::Lanes))
        .fact("rate", rate_is.map(one_place))
        .fact("rate_possible", rate_could.map(one_place))
        .fact("gpus_behind", Fact::Gpus(gpus.to_vec()))
        .about_gpus(gpus);
    (found.scope.rate, found.scope.own_links) = (rate_is.map(one_place), link.gpu.is_some());
    if at_rest_only && few_lanes {
        found.severity = Severity::Warning;
        found.suspects = suspects(link, gpus);
        let later = std::mem::take(&mut found.steps);
        let found = found.steps(Plan::now([Step::CheckUnderLoad]).before(later));
        return Some((found, state, words));
    }
    if at_rest_only {
        found.severity = Severity::Info;
        let found = found.steps(Plan::now([Step::Nothing(Fine::IfFull)]));
        return Some((found, state, words));
    }
    found = with_copies(found, evidence, gpus);
    if few_lanes {
        found.suspects = suspects(link, gpus);
        found.suspects.extend(external::suspect_cable(evidence, gpus));
    }
    if evidence.virtual_machine() && link.port.is_none() {
        found.severity = Severity::Warning;
        let others = std::mem::take(&mut found.steps);
        found = found.steps(Plan::now([Step::AskHost(Ask::LinkOfGpu)]).before(others));
    }
    Some((found, state, words))
}

/// Adds the copies that pass the link. They are as fast as it allows, so no other rule reports them.
fn with_copies(found: Finding, evidence: &Evidence<'_>, gpus: &[u32]) -> Finding {
    let passes = |pair: Pair| gpus.contains(&pair.source) != gpus.contains(&pair.destination);
    let cells = evidence
        .reference_with(Path::Direct, gpus)
        .into_iter()
        .filter(|cell| passes(cell.pair) && evidence.over_pcie(cell.pair));
    let (pairs, rates): (Vec<_>, Vec<_>) =
        cells.filter_map(|cell| Some((cell.pair, cell.achieved_gbps?))).unzip();
    let (lowest, highest) = links::range(rates.into_iter());
    found
        .pairs(&pairs)
        .fact("copies_over_it_lowest", lowest)
        .fact("copies_over_it_highest", highest)
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
            "the GPU and its slot"
        };
        return (Subject::Gpu { index }, format!("{}: PCIe link", evidence.name(index)), ends);
    }
    let address = |address: Option<_>| {
        address
            .map_or("the root".to_owned(), |address: model::units::PciAddress| address.to_string())
    };
    let (port, below) = (address(link.port), address(link.below));
    let name = format!("{}: the PCIe link {port} – {below} above", evidence.named(gpus));
    let subject = match (gpus, link.below) {
        ([index], _) => Subject::Gpu { index: *index },
        (_, Some(address)) => Subject::PcieLink { address },
        _ => Subject::Machine,
    };
    (subject, name, "both ends")
}

/// Lists both ends and the parts between them: lanes are lost at any of these, and no register shows where.
fn suspects(link: &Connection, gpus: &[u32]) -> Vec<Suspect> {
    let (cause, swap) = match link.gpu {
        Some(index) => {
            let part = Part::of(&[index]);
            (Cause::Gpu(gpu(index)), Step::SwapTest(part))
        }
        None => (Cause::SwitchBoard, Step::SwapTest(Part::SwitchBoard(all(gpus)))),
    };
    vec![
        suspect_if(cause, [swap.clone()], Sign::FaultMoves),
        suspect_if(Cause::OwnWay, [swap], Sign::FaultStays),
        suspect(Cause::SlotSettings, [Step::Bifurcation]),
    ]
}

/// Puts a cold start before the parts where the machine was just powered on: links train then, and may do so better once
/// more.
fn started_again(evidence: &Evidence<'_>, few_lanes: bool, plan: Plan) -> Plan {
    const JUST_ON_SECONDS: u64 = 2 * 60 * 60;
    let up = evidence.snapshot.host.up_seconds.get();
    let just_on =
        few_lanes && !evidence.virtual_machine() && up.is_some_and(|up| up < JUST_ON_SECONDS);
    match just_on {
        true => Plan::now([Step::PowerCycle, Step::CheckAgain]).before(plan.into()),
        false => plan,
    }
}

fn plan(evidence: &Evidence<'_>, few_lanes: bool, link: &Connection, gpus: &[u32]) -> Plan {
    let outside = |gpu: &u32| external::of(evidence, *gpu) == Some(External::Thunderbolt);
    if gpus.iter().any(outside) {
        return Plan::now([Step::RestartDock, Step::CheckAgain])
            .if_it_stays([Part::Cable, Part::Dock].map(Step::Exchange));
    }
    match (few_lanes, link.gpu) {
        (true, Some(index)) => {
            let part = || Part::of(&[index]);
            Plan::now([
                Step::Reseat(Part::GpuAndRiser(gpu(index))),
                Step::SlotContacts,
                Step::CheckAgain,
            ])
            .if_it_stays([Step::Swap(part())])
            .and(When::IfItMoves, [Step::Replace(part())])
            .and(When::IfItStaysThere, [Step::Bifurcation, Step::Replace(Part::RiserCableOrBoard)])
        }
        (true, None) => Plan::now([
            Step::Reseat(Part::SwitchBoard(all(gpus))),
            Step::Bifurcation,
            Step::CheckAgain,
        ])
        .if_it_stays([Step::Replace(Part::RiserCableOrBoard)]),
        (false, _) => Plan::now([Step::SlotSpeed, Step::ReplaceMatching, Step::CheckAgain])
            .if_it_stays([Step::Reseat(Part::RiserOrCable), Step::Replace(Part::RiserOrCable)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{findings, measured, touches};
    use model::testing::{function_mut, lanes, two_sockets};

    #[test]
    fn a_machine_that_was_just_switched_on_starts_cold_once_more_before_parts() {
        let mut machine = two_sockets();
        let card = machine.gpus[0].pci.get().unwrap().to_string();
        function_mut(&mut machine, &card).width = lanes(4);
        machine.gpus[0].pcie_width = lanes(4);
        for up in [600, 90_000] {
            machine.host.up_seconds = model::reading::Reading::Known(up);
            let found = findings(&machine, None);
            let found = found.iter().find(|found| found.code == RULE.id).unwrap();
            let (cold, reseat) =
                (found.next_step.find("off and on again"), found.next_step.find("reseat"));
            assert_eq!(
                cold.is_some_and(|cold| Some(cold) < reseat),
                up == 600,
                "{}",
                found.next_step
            );
        }
    }

    #[test]
    fn lanes_of_an_uplink_are_not_believed_where_no_copy_passed_it() {
        let mut machine = two_sockets();
        for address in ["0000:80:01.0", "0000:81:00.0"] {
            function_mut(&mut machine, address).width = lanes(4);
        }
        let mut measurements = measured(&machine, 0.84);
        measurements.peer.retain(|cell| touches(cell, 0) && touches(cell, 1));
        let found = findings(&machine, Some(&measurements));
        let found = found.iter().find(|found| found.code == RULE.id).unwrap();
        assert_eq!(found.severity, Severity::Warning);
    }
}
