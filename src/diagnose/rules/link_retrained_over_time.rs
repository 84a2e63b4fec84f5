//! # What it means
//!
//! A link of a GPU retrained during hours under load.
//!
//! # What to do
//!
//! Look for Xid 74 (NVLink) and AER messages at that time. Reseat the GPU, and its cable or riser if it has one. Repeat
//! the hours at the same temperature. If the same GPU shows it again, swap it to see whether the fault moves.
//!
//! # How it is detected
//!
//! The state of every PCIe link is read once a second while copies run, and the counters of NVLinks once a minute
//! (`measurements.soak`). A PCIe link that is at rest between rounds may lower its generation, but not its lanes, and
//! rounds follow each other without a pause. The first change and their number are in the evidence. The time to the first
//! one tells a link that flaps at temperature from one that always does.
//!
//! # Sources
//!
//! PCI Express Base Specification, Recovery state; NVML, NVLink recovery counters.

use super::nvlink_ends;
use super::over_time;
use super::prelude::*;
use model::soak::{EventKind, Soak, SoakEvent};

pub(crate) const RULE: Rule = Rule::new("link-retrained-over-time", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let gpus = soak.gpus().into_iter();
    gpus.flat_map(|gpu| [pcie(evidence, soak, gpu), nvlink(evidence, soak, gpu)])
        .flatten()
        .collect()
}

/// Returns the finding on a GPU's PCIe link that changed its state.
fn pcie(evidence: &Evidence<'_>, soak: &Soak, gpu: u32) -> Option<Finding> {
    let is_own =
        |event: &&SoakEvent| event.kind == EventKind::LinkChanged && event.gpu == Some(gpu);
    let changes: Vec<&SoakEvent> = soak.events.iter().filter(is_own).collect();
    let first = changes.first()?;
    let address = evidence.snapshot.gpu(gpu)?.pci.get();
    let subject =
        address.map_or(Subject::Gpu { index: gpu }, |address| Subject::PcieLink { address });
    let minutes = match changes.len() {
        1 => String::new(),
        many => {
            let last = over_time::after(changes[many - 1].at_s);
            format!("; it changed in {many} minutes, last after {last}")
        }
    };
    let first_after = over_time::after(first.at_s);
    let message = format!("{}, first after {first_after} under load{minutes}", first.what);
    let look = [Step::PcieErrorsOf(steps::gpu(gpu)), Step::AerLog];
    let found = finding(soak, gpu, (subject, message), look, first.at_s);
    Some(found.fact("minutes_with_changes", changes.len()))
}

/// Returns the finding on NVLinks of a GPU that recovered.
fn nvlink(evidence: &Evidence<'_>, soak: &Soak, gpu: u32) -> Option<Finding> {
    let mut recovered: BTreeMap<u8, u64> = BTreeMap::new();
    let mut first = None;
    for (until, minute) in soak.of_gpu(gpu) {
        for link in minute.nvlink_errors.iter().flatten() {
            let count = link.recovery.saturating_add(link.failed_recovery);
            if count > 0 {
                first = first.or(Some(until));
                let all: &mut u64 = recovered.entry(link.link).or_default();
                *all = all.saturating_add(count);
            }
        }
    }
    let first = first?;
    let all = recovered.values().copied().fold(0, u64::saturating_add);
    let links: Vec<u8> = recovered.into_keys().collect();
    let (subject, which) = nvlink_ends::place(evidence, gpu, &links);
    let times = words::count(all, "time");
    let first_after = over_time::after(first);
    let message = format!("{which} retrained {times}, first after {first_after} under load");
    let errors = Step::LinkErrorsOf(steps::gpu(gpu), Listed(vec![gpu]));
    let found = finding(soak, gpu, (subject, message), [errors, Step::XidOf("74")], first);
    let found = found.fact("recoveries", all);
    Some(found.fact("links", nvlink_ends::link_numbers(&links)))
}

/// Returns the finding on links of a GPU that changed first at this time.
fn finding(
    soak: &Soak,
    gpu: u32,
    (subject, message): (Subject, String),
    look: [Step; 2],
    first_s: f64,
) -> Finding {
    let part = || Part::Gpu(steps::gpu(gpu));
    let plan = Plan::now(look).if_it_stays([Step::Reseat(part()), Step::Swap(part())]);
    let warm = temperature(soak, gpu, first_s);
    RULE.finding(subject, message, plan)
        .gpus(&[gpu])
        .fact("first_after", Fact::Seconds(first_s))
        .fact("first_temperature_c", warm.map(Fact::figure))
}

/// Returns the temperature of a GPU in the minute that contains this time.
fn temperature(soak: &Soak, gpu: u32, at_s: f64) -> Option<f64> {
    let mut minutes = soak.of_gpu(gpu);
    minutes.find(|(until, _)| *until >= at_s)?.1.temperature_c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::measurement::NvLinkErrorsAdded;

    #[test]
    fn a_link_that_flaps_after_40_minutes_is_named_with_its_time() {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        for minute in [40.0, 50.0] {
            soak.events.push(SoakEvent {
                at_s: 60.0 * minute,
                kind: EventKind::LinkChanged,
                gpu: Some(2),
                path: None,
                function: None,
                xid: None,
                what: "PCIe link of GPU 2: Gen5 x16, now Gen5 x8".into(),
            });
        }
        let all = over_time::testing::after(soak);
        let found = only(&all, "link-retrained-over-time", Severity::Error);
        assert!(found.message.contains("first after 40 min"), "{}", found.message);
        assert!(matches!(found.subject, Subject::PcieLink { .. }));
        assert_advice(&RULE, &all, &["reseat", "swap"], &["pcie-errors", "aer"]);
    }

    #[test]
    fn an_nvlink_that_recovers_is_named() {
        let soak = over_time::testing::hour(
            8,
            |_, _| 395.0,
            |gpu, minute, own| {
                if gpu == 6 && minute > 30.0 && minute % 10.0 == 0.0 {
                    own.nvlink_errors = Some(vec![NvLinkErrorsAdded {
                        link: 4,
                        recovery: 1,
                        ..NvLinkErrorsAdded::default()
                    }]);
                }
            },
        );
        let all = over_time::testing::after(soak);
        let found = only(&all, "link-retrained-over-time", Severity::Error);
        assert_eq!(found.subject, Subject::Link { index: 6, link: 4 });
        assert!(found.message.contains("3 times, first after 40 min"), "{}", found.message);
        assert_advice(&RULE, &all, &["reseat", "swap"], &["link-errors", "xid"]);
    }
}
