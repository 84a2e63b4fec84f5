//! # What it means
//!
//! A GPU's PCIe link lost lanes or speed while copies ran over it. It has too many errors, and may go down.
//!
//! # What to do
//!
//! Look for AER messages in dmesg at the time of the run. Power off, reseat the GPU and its riser or cable, and check
//! again. Then swap the GPU: does the fault move?
//!
//! # How it is detected
//!
//! The link is read before, while and after copies run. Changed lanes are an error, unless every direct copy over the
//! link was faster than the fewer lanes allow. A generation that fell after it had risen is an error only if a copy
//! over the link was slow, and no faster than the lower generation carries: links save power in a pause. Low from the
//! start is `pcie-narrow`.
//!
//! # Sources
//!
//! PCIe Base Specification, link training. NVML, `nvmlDeviceGetCurrPcieLinkGeneration`.

use super::prelude::*;
use super::shared::{self, OfLink};
use crate::external;
use model::measurement::LinkState;

rule! {
    "pcie-link-changed", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let all = evidence.links().iter().filter_map(|link| {
        let (found, state, words) = finding(evidence, link)?;
        Some(OfLink { found, gpu: Some(link.index), state, words })
    });
    shared::combined(evidence, all.collect(), |first, words, gpus| {
        let names = shared::names(evidence, gpus);
        let suspects = vec![
            suspect_if(Cause::RisersAlike, [Step::BoardSlot], Sign::FaultEnds),
            suspect(Cause::Power, [Step::CheckOthersIdle]),
        ];
        let plan = Plan::now([
            Step::AerLog,
            Step::WhatIsShared(SharedParts::Risers),
            Step::SlowerSlot,
            Step::CheckAgain,
        ])
        .if_it_stays([Step::Replace(Part::RiserOrCable)]);
        Finding { message: format!("{names}: PCIe links all fell {words}"), ..first }
            .steps(plan)
            .suspecting(suspects)
    })
}

/// Returns the finding on a link, what it was and is, and this as words.
fn finding(evidence: &Evidence<'_>, load: &LinkUnderLoad) -> Option<(Finding, [Shape; 2], String)> {
    let link = evidence.topology.pcie_link_of(load.index)?;
    let over = links::over(evidence, link, &[load.index]);
    let lost_lanes = lost_lanes(load).filter(|(_, to)| !all_faster(link, *to, &over));
    let (from, to) = lost_lanes.or_else(|| lost_speed(evidence, load, &over))?;
    let state = [shape(from), shape(to)];
    let effect = match (pcie::rate(state[0]), pcie::rate(state[1])) {
        (Some(from), Some(to)) => format!(", {to:.1} of {from:.1} GB/s each way"),
        _ => String::new(),
    };
    let words = format!("{} → {} {}{effect}", state[0], state[1], evidence.meanwhile());
    let message = format!("{}: PCIe link fell {words}", evidence.name(load.index));
    let states: Vec<_> = load.states.iter().map(|state| shape(*state).to_string()).collect();
    let mut found = RULE
        .finding(
            Subject::Gpu { index: load.index },
            message,
            Plan::now([
                Step::AerLog,
                Step::Reseat(Part::GpuAndRiser(gpu(load.index))),
                Step::CheckAgain,
            ])
            .if_it_stays([Step::Swap(Part::of(&[load.index]))])
            .and(When::IfItMoves, [Step::Replace(Part::of(&[load.index]))])
            .and(When::IfItStaysThere, [Step::Replace(Part::RiserCableOrBoard)]),
        )
        .fact("states_in_turn", states);
    found = links::with_slowed(found, &links::slow(evidence, &over));
    found.scope.own_links = true;
    let swap = || [Step::SwapTest(Part::of(&[load.index]))];
    let reseat = Step::Reseat(Part::GpuAndRiser(gpu(load.index)));
    found.suspects = vec![
        suspect_if(Cause::Contacts, [reseat], Sign::FaultEnds),
        suspect_if(Cause::GpuItself, swap(), Sign::FaultMoves),
        suspect_if(Cause::OwnWay, swap(), Sign::FaultStays),
    ];
    found.suspects.extend(external::suspect_cable(evidence, &[load.index]));
    Some((found, state, words))
}

fn shape(state: LinkState) -> Shape {
    Shape { generation: state.generation.try_into().ok(), width: state.width.try_into().ok() }
}

/// Returns the widest and the narrowest state of a link, if they differ.
fn lost_lanes(load: &LinkUnderLoad) -> Option<(LinkState, LinkState)> {
    let widest = load.states.iter().max_by_key(|state| state.width)?;
    let narrowest = load.states.iter().min_by_key(|state| state.width)?;
    (narrowest.width < widest.width).then_some((*widest, *narrowest))
}

/// Returns true if every direct copy over a link was faster than the lanes of this reading allow.
fn all_faster(link: &Connection, state: LinkState, over: &[&PeerBandwidth]) -> bool {
    let allows = pcie::rate(Shape { generation: link.possible.generation, ..shape(state) });
    // The limit of staged copies is mostly the host's memory.
    let mut direct = over.iter().filter(|cell| cell.setup.path == Path::Direct).peekable();
    direct.peek().is_some()
        && direct.all(|cell| {
            cell.achieved_gbps.zip(allows).is_some_and(|(rate, allows)| rate.0 > allows)
        })
}

/// Returns the states between which a link fell, if a copy was as slow as the lower one makes it.
fn lost_speed(
    evidence: &Evidence<'_>,
    load: &LinkUnderLoad,
    over: &[&PeerBandwidth],
) -> Option<(LinkState, LinkState)> {
    let highest = load.states.iter().max_by_key(|state| state.generation)?;
    let at = load.states.iter().position(|state| state.generation == highest.generation)?;
    let slow: Vec<f64> = links::slow(evidence, over)
        .iter()
        .filter_map(|cell| cell.achieved_gbps.map(|rate| rate.0))
        .collect();
    let explains = |state: &&LinkState| {
        pcie::rate(shape(**state)).is_some_and(|carries| slow.iter().any(|rate| *rate <= carries))
    };
    let fell = load.states.iter().skip(at).filter(|state| state.generation < highest.generation);
    fell.filter(explains).max_by_key(|state| state.generation).map(|state| (*highest, *state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    fn load(index: u32, states: &[(u8, u8)]) -> LinkUnderLoad {
        let range = |figure: fn(&(u8, u8)) -> u8| {
            Some([
                states.iter().map(figure).min().unwrap(),
                states.iter().map(figure).max().unwrap(),
            ])
        };
        LinkUnderLoad {
            index,
            readings: 40,
            generation: range(|state| state.0),
            width: range(|state| state.1),
            states: (0..)
                .zip(states)
                .map(|(reading, &(generation, width))| LinkState { reading, generation, width })
                .collect(),
            ..LinkUnderLoad::default()
        }
    }

    fn run(
        machine: &Snapshot,
        states: &[(u8, u8)],
        gpu_3_gbps: Option<f64>,
    ) -> (Measurements, Vec<Finding>) {
        let mut measurements = measured(machine, 0.84);
        measurements.links = vec![load(3, states)];
        if let Some(rate) = gpu_3_gbps {
            set(&mut measurements, rate, |cell| touches(cell, 3));
        }
        let found = findings(machine, Some(&measurements));
        (measurements, found)
    }

    #[test]
    fn power_saving_is_no_change() {
        let machine = two_sockets();
        for states in [
            &[(1, 16), (4, 16)][..],
            &[(1, 16), (4, 16), (1, 16)],
            &[(4, 16), (1, 16), (4, 16), (2, 16)],
        ] {
            let (_, found) = run(&machine, states, None);
            assert_eq!(found, [], "{states:?}");
        }
        // Over NVLink the link is idle, and slow pairs prove nothing about it.
        let (_, found) = run(&h200_vm(4), &[(5, 16), (1, 16)], Some(200.0));
        assert_eq!(
            found.iter().map(|finding| &*finding.code).collect::<Vec<_>>(),
            ["peer-bandwidth-low"]
        );
    }

    #[test]
    fn speed_that_goes_is_an_error_where_copies_show_it_and_they_are_no_finding_of_their_own() {
        let (_, found) = run(&two_sockets(), &[(1, 16), (4, 16), (3, 16)], Some(12.5));
        let finding = only(&found, "pcie-link-changed", Severity::Error);
        assert!(finding.message.contains("Gen4 x16 → Gen3 x16"), "{}", finding.message);
        assert!(!finding.evidence.effects().is_empty(), "{finding:#?}");
        // The errors that the link counted belong to the same fault; by themselves they explain slow copies as well.
        let machine = two_sockets();
        let (mut measurements, _) = run(&machine, &[(4, 16), (3, 16)], Some(12.5));
        measurements.links[0].replays_added = Some(900);
        let both =
            only(&findings(&machine, Some(&measurements)), "pcie-link-changed", Severity::Error);
        assert_eq!(both.evidence.effects().len(), 2, "{both:#?}");
        measurements.links[0].states.truncate(1);
        only(&findings(&machine, Some(&measurements)), "pcie-errors-rose", Severity::Error);
        // A pause in a run whose copies are slow for another reason.
        let (_, found) = run(&two_sockets(), &[(1, 16), (4, 16), (1, 16)], Some(12.5));
        only(&found, "peer-bandwidth-low", Severity::Error);
    }
}
