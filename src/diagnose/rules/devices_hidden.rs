//! # What it means
//!
//! CUDA shows fewer GPUs than NVML, so some requested ones were not tested. They may be the broken ones, so the exit
//! code is 3; it never counts as a fault.
//!
//! # What to do
//!
//! Unset CUDA_VISIBLE_DEVICES (an entry that names no GPU hides all after it), or ask for the visible GPUs with
//! `--gpus`. In a container, start it with all GPUs. Without a mask: look for a GPU that fell off the bus (dmesg,
//! NVRM and Xid) and for MIG mode.
//!
//! # How it is detected
//!
//! NVML's GPUs are looked up among CUDA's by UUID and PCI address, never by number. It is information if
//! CUDA_VISIBLE_DEVICES is set, a warning otherwise. The visible GPUs are tested and have NVML's numbers.
//!
//! # Sources
//!
//! CUDA Programming Guide, environment variables (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER).

use super::prelude::*;
use crate::coverage::{coverage, hidden};
use model::measurement::Hidden;

pub(crate) const RULE: Rule = Rule::of_one("devices-hidden", Severity::Info, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let coverage = coverage(measurements);
    // `nothing-measured` reports a run without any figure.
    if coverage.tested == 0 {
        return None;
    }
    let gone: Vec<_> = hidden(measurements).collect();
    let (.., why) = gone.first()?;
    let masked = gone.iter().all(|(_, how, _)| *how == Hidden::Masked);
    let gpus: Vec<u32> = gone.iter().map(|(index, ..)| *index).collect();
    let shown = measurements.driver.devices.iter();
    let shown = shown.filter_map(|one| Some((one.ordinal?, format!("GPU {}", one.index))));
    let shown: Vec<_> = words::unique(shown).into_iter().map(|(_, name)| name).collect();
    let message = format!(
        "{} and {} pairs were not tested: {why}. CUDA's device order is {}",
        words::gpus(&gpus),
        if gpus.len() == 1 { "its" } else { "their" },
        shown.join(", ")
    );
    let steps = match masked {
        true => vec![Step::UnsetMask],
        false => vec![Step::DriverLog, Step::MigMode, Step::Container],
    };
    let found = RULE
        .finding(Subject::Machine, message, steps)
        .fact("hidden_gpus", Fact::Gpus(gpus))
        .fact("cuda_order", shown)
        .fact("tested", coverage.tested)
        .fact("untested", coverage.hidden);
    Some(found.at_if(!masked, Severity::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::verdict;
    use crate::verdict::exit_code;
    use model::measurement::CudaDevice;
    use model::report::Conclusion;

    #[test]
    fn a_mask_is_one_finding_and_a_gap() {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        measurements.peer.retain(|cell| !touches(cell, 3));
        let device = |(ordinal, index): (Option<u32>, u32)| CudaDevice {
            index,
            ordinal,
            hidden: ordinal.is_none().then_some(Hidden::Masked),
            failure: ordinal.is_none().then(|| {
                "CUDA does not show this GPU, CUDA_VISIBLE_DEVICES is '2,0,1': unset it".to_owned()
            }),
            ..CudaDevice::default()
        };
        measurements.driver.devices =
            [(Some(1), 0), (Some(2), 1), (Some(0), 2), (None, 3)].into_iter().map(device).collect();
        let found = findings(&machine, Some(&measurements));
        let finding = only(&found, &RULE.id, Severity::Info);
        assert!(finding.message.contains("order is GPU 2, GPU 0, GPU 1"), "{}", finding.message);
        assert_eq!((fact(&finding, "tested"), fact(&finding, "untested")), (6.into(), 6.into()));
        for fail_on in [Severity::Error, Severity::Info] {
            let verdict = verdict(&found, Some(&measurements), fail_on);
            assert_eq!(
                (verdict.verdict, verdict.exit_code),
                (Conclusion::Inconclusive, exit_code::INCOMPLETE)
            );
        }
        let nothing = model::measurement::Measurements { peer: Vec::new(), ..measurements.clone() };
        assert!(findings(&machine, Some(&nothing)).iter().all(|finding| finding.code != RULE.id));
        measurements.driver.devices[3].hidden = Some(Hidden::Unexplained);
        only(&findings(&machine, Some(&measurements)), &RULE.id, Severity::Warning);
    }
}
