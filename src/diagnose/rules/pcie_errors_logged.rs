//! # What it means
//!
//! Since the last boot, PCIe reported errors of a GPU, bridge or network adapter (AER). A fatal one ends every
//! program on the GPU.
//!
//! # What to do
//!
//! Read the messages (`dmesg | grep -iE 'aer|pcie'`), reseat card and riser or cable, check again.
//!
//! # How it is detected
//!
//! The AER counters of sysfs since boot, or AER lines of a pasted kernel log.
//!
//! - Fatal: a warning if the device answers, since its link was reset; an error in a pasted log.
//! - Neither fatal nor corrected: information (start-up and probing cause some); a warning in a pasted log.
//! - Corrected: a warning from both parameters on, information in a pasted log.
//!
//! # Sources
//!
//! Linux, Documentation/PCI/pcieaer-howto.rst; DCGM, `DCGM_LIMIT_MAX_PCIREPLAY_RATE`.

use super::gpu_unreachable;
use super::prelude::*;
use model::snapshot::PciFunction;

rule! {
    "pcie-errors-logged", Warning, All(judge);
    /// corrected errors a minute since boot from which they are a warning: DCGM's limit of replays
    PER_MINUTE: corrected_per_minute_count = 8.0;
    /// fewest corrected errors since boot for a warning; chosen: fewer are no rate
    CORRECTED: corrected_count = 1000.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let way = |id: NodeId| evidence.topology.way_up(id).into_iter();
    let gpus: Vec<(NodeId, &Gpu)> = snapshot
        .gpus
        .iter()
        .flat_map(|gpu| way(NodeId::Gpu(gpu.index)).map(move |node| (node, gpu)))
        .collect();
    let adapters: Vec<(NodeId, &str)> = snapshot
        .adapters
        .iter()
        .flat_map(|adapter| way(NodeId::Pci(adapter.pci)).map(|node| (node, adapter.name.as_str())))
        .collect();
    let of = |function: &PciFunction| {
        let node = NodeId::Pci(function.address);
        let is_own = |gpu: &Gpu| snapshot.address_of(gpu.index) == Some(function.address);
        let below = |(place, gpu): &&(NodeId, &Gpu)| *place == node || is_own(gpu);
        if gpus.iter().filter(below).any(|(_, gpu)| gpu_unreachable::no_answer(gpu).is_some())
            || snapshot
                .unlisted_gpus
                .iter()
                .any(|one| one.address == function.address && one.gpu.is_none())
        {
            return None;
        }
        let own = snapshot.gpus.iter().find(|gpu| is_own(gpu));
        let subject = own.map(|gpu| Subject::Gpu { index: gpu.index });
        let names = match own {
            Some(gpu) => evidence.name(gpu.index),
            None => {
                let gpus: Vec<u32> =
                    words::unique(gpus.iter().filter(below).map(|(_, gpu)| gpu.index));
                let cards =
                    adapters.iter().filter(|(place, _)| *place == node).map(|(_, name)| *name);
                let cards = words::unique(cards);
                match (gpus.as_slice(), cards.as_slice()) {
                    ([], []) if evidence.read_from.is_none() => return None,
                    ([], []) => function.address.to_string(),
                    ([], cards) => format!("{} (above {})", function.address, cards.join(", ")),
                    (gpus, _) => {
                        format!("{} (above {})", function.address, evidence.named(gpus))
                    }
                }
            }
        };
        let subject = subject.unwrap_or(Subject::PciFunction { address: function.address });
        finding(evidence, function, subject, &names)
    };
    snapshot.pci.iter().filter_map(of).collect()
}

/// Returns the finding on a function, if its errors say anything.
fn finding(
    evidence: &Evidence<'_>,
    function: &PciFunction,
    subject: Subject,
    names: &str,
) -> Option<Finding> {
    let pasted = evidence.read_from.is_some();
    let count = |reading: &model::reading::Reading<u64>| reading.get().unwrap_or(0);
    let [fatal, other, corrected] = [
        count(&function.aer_fatal),
        count(&function.aer_nonfatal),
        count(&function.aer_correctable),
    ];
    let minutes = evidence.snapshot.host.up_seconds.get().map(|up| up.max(60) as f64 / 60.0);
    let often = corrected as f64 >= CORRECTED.of(evidence)
        && minutes.is_some_and(|minutes| corrected as f64 / minutes >= PER_MINUTE.of(evidence));
    let severity = match () {
        () if fatal > 0 && pasted => Severity::Error,
        () if fatal > 0 || often || (other > 0 && pasted) => Severity::Warning,
        () if other > 0 || (corrected > 0 && pasted) => Severity::Info,
        () => return None,
    };
    let said = words::counted(&[
        (fatal, "fatal PCIe error"),
        (other, "uncorrected PCIe error"),
        (corrected, "corrected PCIe error"),
    ]);
    let when = if pasted { "in the text" } else { "since the last boot" };
    let message = format!("{names}: {said} {when}");
    let part = match subject {
        Subject::Gpu { index } => Step::Reseat(Part::of(&[index])),
        _ => Step::Reseat(Part::RiserOrCable),
    };
    let plan = match severity {
        Severity::Info => Plan::now([Step::AerLog]),
        _ => Plan::now([Step::AerLog, Step::CheckAgain]).if_it_stays([part]),
    };
    let found = RULE
        .finding(subject, message, plan)
        .fact("fatal_errors", Some(fatal))
        .fact("nonfatal_errors", Some(other))
        .fact("corrected_errors", Some(corrected))
        .at_if(true, severity);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    fn of(fatal: u64, other: u64, corrected: u64, up_seconds: u64) -> Vec<Finding> {
        let mut machine = two_sockets();
        let own = machine.gpus[0].pci.get().unwrap();
        let place = machine.pci.iter_mut().find(|function| function.address == own).unwrap();
        place.aer_fatal = Reading::Known(fatal);
        place.aer_nonfatal = Reading::Known(other);
        place.aer_correctable = Reading::Known(corrected);
        machine.host.up_seconds = Reading::Known(up_seconds);
        findings(&machine, Some(&measured(&machine, 0.84)))
    }

    #[test]
    fn fatal_errors_and_frequent_corrected_ones_are_a_warning_and_a_few_are_not() {
        let found = of(1, 0, 0, 9000);
        assert_advice(&RULE, &found, &["aer", "check-again", "reseat"], &[]);
        let found = only(&found, "pcie-errors-logged", Severity::Warning);
        assert_eq!(found.subject, Subject::Gpu { index: 0 });
        assert!(found.message.contains("1 fatal"), "{}", found.message);
        only(&of(0, 3, 0, 9000), "pcie-errors-logged", Severity::Info);
        only(&of(0, 0, 2000, 9000), "pcie-errors-logged", Severity::Warning);
        assert_eq!(of(0, 0, 2000, 900_000), []);
        assert_eq!(of(0, 0, 900, 60), []);
    }
}
