//! # What it means
//!
//! A PCIe link had errors while copies ran over it. It resends, which is slow, and may train down or drop the GPU.
//!
//! # What to do
//!
//! Reseat the GPU and its riser or cable, clean the contacts, and check again. Usual causes are risers and cables that
//! are long or made for a lower generation: to test, set a lower one for this slot in BIOS. Three GPUs or more in one
//! finding: check what they share first.
//!
//! # How it is detected
//!
//! Counters of every GPU (NVML) and above it (AER, sysfs) are read before and after the copies. Uncorrected errors are
//! an error. Corrected errors and replays count if number and rate both reach a pair of parameters: a warning
//! (harmless), information (noted), or an error if they alone explain slow copies over the link, with every partner or
//! several at once (slowing).
//!
//! # Sources
//!
//! PCIe Base Specification: bit error ratio of at most 10^-12 a lane; DCGM, `DCGM_LIMIT_MAX_PCIREPLAY_RATE`.

use super::load_reached;
use super::pcie_upstream_bottleneck;
use super::prelude::*;
use super::shared;
use crate::changes;
use crate::external;
use model::snapshot::PcieErrors;

rule! {
    "pcie-errors-rose", Warning, All(judge);
    /// corrected errors or replays from which it is a warning; chosen
    HARMLESS: harmless_count = 100.0;
    /// and in each second: forty times what PCIe allows a Gen5 x16 link, one in 2 s
    HARMLESS_RATE: harmless_per_second_count = 20.0;
    /// from which it is information; chosen
    NOTED: noted_count = 20.0;
    /// and in each second: ten times what PCIe allows
    NOTED_RATE: noted_per_second_count = 5.0;
    /// from which slow copies are attributed to them; chosen
    SLOWING: slowing_count = 8.0;
    /// and in each second: DCGM's limit of 8 replays in a minute
    SLOWING_RATE: slowing_per_second_count = 8.0 / 60.0;
}

/// The counts of one link.
struct Counted {
    replays: u64,
    /// NVML's counts before and after.
    nvml: Option<[PcieErrors; 2]>,
    /// AER errors added at each end.
    aer: Vec<PcieErrors>,
}

impl Counted {
    fn on(evidence: &Evidence<'_>, link: &Connection) -> Self {
        let load = link.gpu.and_then(|gpu| links::watched(evidence, gpu));
        let ends = [link.below, link.port];
        let aer = evidence.aer_added().iter().filter(|aer| ends.contains(&Some(aer.address)));
        Self {
            replays: load.and_then(|load| load.replays_added).unwrap_or(0),
            nvml: load.and_then(|load| Some([load.pcie_errors_before?, load.pcie_errors_after?])),
            aer: aer.map(|aer| aer.added).collect(),
        }
    }

    /// Returns the higher of the two counts: NVML and AER may count the same error.
    fn of(&self, figure: fn(&PcieErrors) -> u64) -> u64 {
        let added =
            |[before, after]: &[PcieErrors; 2]| figure(after).saturating_sub(figure(before));
        let nvml = self.nvml.as_ref().map_or(0, added);
        nvml.max(self.aer.iter().map(figure).fold(0, u64::saturating_add))
    }
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.measurements.is_none() {
        return Vec::new();
    }
    shared::on_pcie_links(evidence, finding, of_several)
}

/// Returns one finding on links that all had errors of the same kind.
fn of_several(evidence: &Evidence<'_>, first: Finding, words: &str, gpus: &[u32]) -> Finding {
    let message = format!("The PCIe links of {} all had {words}", shared::names(evidence, gpus));
    let elsewhere = [Step::BoardSlot, Step::SlowerSlot];
    let mut suspects = vec![
        suspect_if(Cause::RisersAlike, elsewhere.clone(), Sign::FaultEnds),
        suspect(Cause::BiosTraining, [Step::UpdateBios, Step::CheckAgain]),
    ];
    let congestion = |suspect: &&Suspect| Cause::Congestion.is(suspect);
    suspects.extend(first.suspects.iter().find(congestion).cloned());
    let plan = Plan::now([Step::WhatIsShared(SharedParts::Risers)])
        .then(elsewhere)
        .then([Step::CheckAgain]);
    Finding { message, ..first }.steps(plan).suspecting(suspects)
}

/// The speed of the copies over a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Copies {
    NotMeasured,
    /// As fast as expected alone, but not several at once.
    LowTogether,
    /// Slow, which another part explains.
    SlowElsewhere,
    AsExpected,
    Slow,
}

impl Copies {
    fn words(self, over: &str) -> String {
        match self {
            Self::NotMeasured => format!("no copy over {over} was measured"),
            Self::LowTogether => {
                format!("several copies at once over {over} reached less than expected")
            }
            Self::SlowElsewhere => {
                format!("another part of the machine explains the slow copies over {over}")
            }
            Self::AsExpected => format!("copies over {over} were as fast as expected"),
            Self::Slow => format!("copies over {over} were slower than expected"),
        }
    }
}

/// Links with equal states get one finding. True if an error was not corrected.
type State = (bool, Copies);

/// Returns the finding on a link, its state, and this as words.
fn finding(
    evidence: &Evidence<'_>,
    link: &Connection,
    gpus: &[u32],
) -> Option<(Finding, State, String)> {
    let counted = Counted::on(evidence, link);
    let corrected = counted.of(|errors| errors.correctable);
    let (non_fatal, fatal) =
        (counted.of(|errors| errors.non_fatal), counted.of(|errors| errors.fatal));
    let over = links::over(evidence, link, gpus);
    // Copies that another part slows do not show that this link repeats them.
    let elsewhere = changes::explained_elsewhere(evidence, gpus);
    let mut slow = links::slow(evidence, &over);
    let number = slow.len();
    slow.retain(|cell| {
        !elsewhere.contains(&cell.key()) && !pcie_upstream_bottleneck::explains(evidence, cell)
    });
    let others_slow = slow.len() < number;
    let low = load_reached::is_low_over_pcie(evidence, link, &elsewhere);
    let most = corrected.max(counted.replays);
    let reaches = |count: &Parameter, a_second: &Parameter| {
        let is_enough = most as f64 >= count.of(evidence);
        is_enough && evidence.a_second(most) >= a_second.of(evidence)
    };
    let many = reaches(&HARMLESS, &HARMLESS_RATE);
    let noted =
        slow.is_empty() && !others_slow && low != Some(true) && reaches(&NOTED, &NOTED_RATE);
    let some = reaches(&SLOWING, &SLOWING_RATE);
    let uncorrected = non_fatal > 0 || fatal > 0;
    // A link that repeats what it sends slows every copy over it. If only one of several pairs is slow, the cause is
    // another.
    let twos = |cells: &[&PeerBandwidth]| {
        cells.iter().map(|cell| cell.pair.unordered()).collect::<BTreeSet<_>>()
    };
    let slows_all = !slow.is_empty() && twos(&over) == twos(&slow);
    let counts = uncorrected || many || (some && (slows_all || low == Some(true)));
    if !counts && !noted {
        return None;
    }
    let (subject, name) = place(evidence, link, gpus);
    let parts = [
        (fatal, "fatal error"),
        (non_fatal, "uncorrected error"),
        (corrected, "corrected error"),
        (counted.replays, "replay"),
    ];
    let copies = match (over.is_empty(), slow.is_empty(), low) {
        (true, _, None) => Copies::NotMeasured,
        (_, true, Some(true)) => Copies::LowTogether,
        (_, true, _) if others_slow => Copies::SlowElsewhere,
        (_, true, _) => Copies::AsExpected,
        (_, false, _) => Copies::Slow,
    };
    let count = |number: u64| (number > 0).then_some(number);
    let mut found = RULE
        .finding(
            subject,
            format!(
                "{name} had {} while copies ran; {}",
                words::counted(&parts),
                copies.words("it")
            ),
            Plan::now([
                Step::AerLog,
                Step::Reseat(Part::GpuAndRiser(one_of(gpus))),
                Step::SlotContacts,
                Step::CheckAgain,
            ])
            .if_it_stays([Step::Swap(Part::GpuAndRiser(one_of(gpus)))]),
        )
        .fact("replays_added", count(counted.replays))
        .fact("corrected_added", count(corrected))
        .fact("non_fatal_added", count(non_fatal))
        .fact("fatal_added", count(fatal))
        .about_gpus(gpus);
    found = links::with_slowed(found, &slow);
    found.scope.own_links = link.gpu.is_some();
    if uncorrected {
        found.severity = Severity::Error;
    } else if !counts {
        found.severity = Severity::Info;
    }
    found.suspects = vec![
        suspect_if(Cause::Contacts, [Step::SlowerSlot, Step::ReplaceMatching], Sign::FaultEnds),
        suspect_if(Cause::GpuItself, [Step::SwapTest(Part::of(gpus))], Sign::FaultMoves),
    ];
    if !uncorrected && slow.is_empty() && low != Some(true) {
        let congestion = suspect_if(Cause::Congestion, [Step::CheckIdle], Sign::CountersRest);
        found.suspects.push(congestion);
    }
    found.suspects.extend(external::suspect_cable(evidence, gpus));
    let kind = if uncorrected { "uncorrected errors" } else { "corrected errors or replays" };
    let words = format!("{kind} {}; {}", evidence.meanwhile(), copies.words("them"));
    Some((found, (uncorrected, copies), words))
}

fn place(evidence: &Evidence<'_>, link: &Connection, gpus: &[u32]) -> (Subject, String) {
    match (link.gpu, link.below) {
        (Some(index), _) => {
            (Subject::Gpu { index }, format!("The PCIe link of {}", evidence.name(index)))
        }
        (None, Some(address)) => (
            Subject::PcieLink { address },
            format!(
                "The PCIe link above the bridge {address}, on the way to {},",
                words::gpus(gpus)
            ),
        ),
        (None, None) => {
            (Subject::Machine, format!("A PCIe link on the way to {}", words::gpus(gpus)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::measurement::AerAdded;

    fn counted(replays: u64, correctable: u64, fatal: u64) -> Measurements {
        let before = PcieErrors { correctable: 7, non_fatal: 1, fatal: 1 };
        let load = LinkUnderLoad {
            index: 3,
            readings: 30,
            replays_added: Some(replays),
            pcie_errors_before: Some(before),
            pcie_errors_after: Some(PcieErrors {
                correctable: 7 + correctable,
                non_fatal: 1,
                fatal: 1 + fatal,
            }),
            ..LinkUnderLoad::default()
        };
        Measurements { links: vec![load], ..measured(&two_sockets(), 0.84) }
    }

    #[test]
    fn a_few_errors_count_only_where_copies_were_slow() {
        let machine = two_sockets();
        let mut measurements = counted(15, 3, 0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        set(&mut measurements, 9.0, |cell| touches(cell, 3));
        let found = findings(&machine, Some(&measurements));
        // It has the severity of the slow copies that are attributed to it.
        let finding = only(&found, "pcie-errors-rose", Severity::Error);
        assert_eq!(finding.subject, Subject::Gpu { index: 3 });
        assert!(
            finding.message.contains("3 corrected errors, 15 replays while copies ran"),
            "{}",
            finding.message
        );
        let found = findings(&machine, Some(&counted(4_000, 0, 0)));
        let finding = only(&found, "pcie-errors-rose", Severity::Warning);
        assert!(finding.suspects.iter().any(|suspect| suspect.id == "other-work"), "{finding:#?}");
    }

    #[test]
    fn a_single_corrected_error_slows_nothing() {
        let machine = two_sockets();
        let mut measurements = counted(1, 1, 0);
        set(&mut measurements, 9.0, |cell| touches(cell, 3));
        let found = findings(&machine, Some(&measurements));
        only(&found, "peer-bandwidth-low", Severity::Error);
        // Nor do a few within hours.
        let found = within(&machine, &counted(15, 3, 0), 3600.0);
        assert_eq!(found, []);
    }

    #[test]
    fn errors_are_judged_by_the_second() {
        let machine = two_sockets();
        let code = "pcie-errors-rose";
        let found = |replays, seconds| within(&machine, &counted(replays, 0, 0), seconds);
        only(&found(60, 2.0), code, Severity::Info);
        assert_eq!(found(60, 60.0), []);
        only(&found(1_000, 2.0), code, Severity::Warning);
        only(&found(1_000, 60.0), code, Severity::Info);
    }

    #[test]
    fn a_few_errors_accuse_no_link_of_which_one_pair_is_slow() {
        // GPU 3 counted a few errors; slow are all copies that GPU 0 sends and receives.
        let mut measurements = counted(40, 3, 0);
        set(&mut measurements, 9.0, |cell| touches(cell, 0));
        let found = only(
            &findings(&two_sockets(), Some(&measurements)),
            "peer-bandwidth-low",
            Severity::Error,
        );
        assert_eq!(found.subject, Subject::Gpu { index: 0 });
    }

    #[test]
    fn an_error_that_was_not_corrected_is_an_error_and_aer_has_a_place() {
        let machine = two_sockets();
        let found =
            only(&findings(&machine, Some(&counted(0, 0, 1))), "pcie-errors-rose", Severity::Error);
        assert!(found.message.contains("had 1 fatal error while"), "{}", found.message);

        let mut measurements = measured(&machine, 0.84);
        let added = PcieErrors { non_fatal: 2, ..PcieErrors::default() };
        measurements.aer_added = vec![AerAdded { address: pci("0000:81:00.0"), added }];
        let found =
            only(&findings(&machine, Some(&measurements)), "pcie-errors-rose", Severity::Error);
        assert_eq!(found.subject, Subject::PcieLink { address: pci("0000:81:00.0") });
        assert!(found.message.contains("2 uncorrected errors"), "{}", found.message);
    }
}
