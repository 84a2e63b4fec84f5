//! # What it means
//!
//! Counters of errors rose since an earlier reading, or the driver reported an Xid.
//!
//! # What to do
//!
//! Run `peerscope check` on the idle node: does the link named count errors while copies run?
//!
//! # How it is detected
//!
//! `topo --baseline BEFORE.json`, and `compare` of two reports of `topo`. One uncorrected error of memory, PCIe or
//! NVLink is an error, as one failed recovery or lost packet of an NVLink; other NVLink errors are a warning, corrected
//! PCIe errors and replays from `corrected_per_minute_count` on, information below. `xid-reported` judges new Xids.
//!
//! # Sources
//!
//! NVML and the kernel's AER counters, which count since the driver was loaded or the machine started.

use super::prelude::*;
use crate::since::{Count, Counts, Since, Weight};

rule! {
    "counters-rose-since", Warning, All(judge);
    /// corrected PCIe errors and replays a minute: DCGM's limit of replays
    PER_MINUTE: corrected_per_minute_count = 8.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(since) = Since::of(evidence).filter(|since| since.began_again.is_none()) else {
        return Vec::new();
    };
    let per_minute = PER_MINUTE.of(evidence);
    let finding = |(subject, name, counts): (Subject, String, Counts)| {
        let severity = counts.iter().map(|count| match count.weight {
            Weight::Lost => Severity::Error,
            Weight::Signal => Severity::Warning,
            Weight::Corrected if count.added as f64 >= per_minute * since.minutes => {
                Severity::Warning
            }
            Weight::Corrected => Severity::Info,
        });
        let xids = since
            .xids
            .iter()
            .filter(|xid| is_of(evidence, xid, &subject))
            .map(|xid| format!("Xid {}", xid.code));
        let said: Vec<String> = counts.iter().map(Count::words).chain(xids).collect();
        let severity = severity.max().unwrap_or(Severity::Info);
        let look = match subject {
            Subject::Gpu { index } => {
                vec![Step::LinkErrorsOf(steps::gpu(index)), Step::CheckAgain]
            }
            _ => vec![Step::AerLog, Step::CheckAgain],
        };
        let message = format!("{name}: {} since {}", words::first(&said, 3), since.then);
        (!said.is_empty()).then(|| {
            RULE.finding(subject, message, Plan::now(look)).fact("counts", said).at(severity)
        })
    };
    since.places(evidence).into_iter().filter_map(finding).collect()
}

fn is_of(evidence: &Evidence<'_>, xid: &Xid, subject: &Subject) -> bool {
    match subject {
        Subject::Gpu { index } => evidence.snapshot.address_of(*index) == Some(xid.pci),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::recorded;
    use model::reading::Reading;
    use model::snapshot::NvLink;

    fn links(gpu: &mut Gpu) -> &mut Vec<NvLink> {
        match &mut gpu.nvlinks {
            Reading::Known(links) => links,
            Reading::Unknown(why) => panic!("{why}"),
        }
    }

    /// Returns the findings on a change of two H200 between two readings, ten minutes apart.
    fn after(change: impl Fn(&mut Snapshot)) -> Vec<Finding> {
        let mut before = h200_vm(2);
        before.host.up_seconds = Reading::Known(3600);
        let zero = || Reading::Known(0);
        (before.gpus[0].ecc_uncorrected, before.gpus[0].pcie_replays) = (zero(), zero());
        for link in before.gpus.iter_mut().flat_map(links) {
            (link.crc_errors, link.replay_errors) = (Reading::Known(7), Reading::Known(0));
        }
        let mut now = before.clone();
        now.host.up_seconds = Reading::Known(4200);
        change(&mut now);
        let mut old = recorded();
        (old.measurements, old.snapshot) = (None, before);
        let (topology, settings) = (topology::build(&now), crate::settings::Settings::default());
        let evidence = crate::testing::without_request(&now, &topology, None, &settings);
        crate::judge(&Evidence { baseline: Some(&old), ..evidence })
    }

    #[test]
    fn uncorrected_errors_and_many_replays_outrank_a_few() {
        assert_eq!(after(|_| ()), []);
        let all = after(|now| now.gpus[0].ecc_uncorrected = Reading::Known(3));
        assert!(all.iter().any(|one| one.code == RULE.id && one.severity == Severity::Error));
        for (replays, severity) in [(79, Severity::Info), (80, Severity::Warning)] {
            let all = after(|now| now.gpus[0].pcie_replays = Reading::Known(replays));
            only(&all, "counters-rose-since", severity);
        }
    }

    #[test]
    fn counters_that_began_again_say_nothing() {
        for change in
            [(|now| now.host.up_seconds = Reading::Known(60)) as fn(&mut Snapshot), |now| {
                links(&mut now.gpus[1])[4].crc_errors = Reading::Known(2)
            }]
        {
            only(&after(change), "baseline-not-compared", Severity::Warning);
        }
    }
}
