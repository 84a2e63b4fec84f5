//! # What it means
//!
//! CUDA shows fewer GPUs than NVML, so some that were asked for were not tested.
//!
//! # How it is detected
//!
//! NVML's GPUs are looked up among CUDA's by UUID and PCI address, never by number. It is information
//! where CUDA_VISIBLE_DEVICES is set, which is somebody's intention, and a warning otherwise. Those
//! that CUDA shows are tested and are named by NVML's numbers, whatever their order in CUDA.
//!
//! # Why it matters
//!
//! The GPUs that are hidden may be the broken ones. By itself this makes the exit code 3, as other
//! gaps do; it never counts as a fault of the machine.
//!
//! # What to do
//!
//! Unset CUDA_VISIBLE_DEVICES (an entry that names no GPU hides all after it), or ask for the visible
//! GPUs with `--gpus`. In a container, start it with all GPUs. Without a mask: look for a GPU that
//! fell off the bus (dmesg, NVRM and Xid) and for MIG mode.
//!
//! # Sources
//!
//! CUDA Programming Guide, environment variables (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER).

use serde_json::json;

use crate::diagnose::coverage::{coverage, hidden};
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity, Subject};

/// This rule's code, which the verdict knows.
pub const CODE: &str = "devices-hidden";

/// See the module's documentation.
pub struct DevicesHidden;

impl Rule for DevicesHidden {
    fn code(&self) -> &'static str {
        CODE
    }

    fn severity(&self) -> Severity {
        Severity::Info
    }

    fn source(&self) -> &'static str {
        include_str!("devices_hidden.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(measurements) = evidence.measurements else { return Vec::new() };
        let coverage = coverage(measurements);
        // Nothing at all is `nothing-measured`'s.
        if coverage.tested == 0 {
            return Vec::new();
        }
        let gone: Vec<(u32, &str)> = hidden(measurements).collect();
        let Some((_, why)) = gone.first() else { return Vec::new() };
        let masked = gone.iter().all(|(_, why)| why.contains("CUDA_VISIBLE_DEVICES is"));
        let gpus: Vec<u32> = gone.iter().map(|(index, _)| *index).collect();
        let mut shown: Vec<_> = measurements
            .driver
            .devices
            .iter()
            .filter_map(|device| Some((device.ordinal?, format!("GPU {}", device.index))))
            .collect();
        shown.sort();
        let shown: Vec<_> = shown.into_iter().map(|(_, name)| name).collect();
        let mut found = finding(
            self,
            Subject::Machine,
            format!(
                "{} and {} pairs were not tested: {why}. CUDA's devices in their order are {}",
                words::gpus(&gpus),
                if gpus.len() == 1 { "its" } else { "their" },
                shown.join(", ")
            ),
            [
                ("hidden_gpus", json!(gpus)),
                ("cuda_order", json!(shown)),
                ("tested", json!(coverage.tested)),
                ("untested", json!(coverage.hidden)),
            ],
            if masked {
                "To test all, unset CUDA_VISIBLE_DEVICES; to be done with the visible ones, name them with --gpus"
            } else {
                "Look for NVRM and Xid messages (dmesg), for MIG mode (nvidia-smi), and in a container for the GPUs that \
                 it was given"
            },
        );
        if !masked {
            found.severity = Severity::Warning;
        }
        vec![found]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::{findings, measured, only, touches};
    use crate::diagnose::{exit_code, verdict};
    use crate::model::measurement::CudaDevice;
    use crate::model::report::Conclusion;
    use crate::model::testing::h200_vm;

    #[test]
    fn a_mask_is_one_finding_and_a_gap() {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        measurements.peer.retain(|cell| !touches(cell, 3));
        let device = |(ordinal, index): (Option<u32>, u32)| CudaDevice {
            index,
            ordinal,
            failure: ordinal
                .is_none()
                .then(|| "CUDA does not show this GPU, CUDA_VISIBLE_DEVICES is '2,0,1': unset it".to_owned()),
            budget_bytes: None,
        };
        measurements.driver.devices =
            [(Some(1), 0), (Some(2), 1), (Some(0), 2), (None, 3)].into_iter().map(device).collect();
        let found = findings(&machine, Some(&measurements));
        let finding = only(&found, CODE, Severity::Info);
        assert!(finding.message.contains("order are GPU 2, GPU 0, GPU 1"), "{}", finding.message);
        assert_eq!((&finding.evidence["tested"], &finding.evidence["untested"]), (&json!(6), &json!(6)));
        for fail_on in [Severity::Error, Severity::Info] {
            let verdict = verdict(&found, Some(&measurements), fail_on);
            assert_eq!((verdict.verdict, verdict.exit_code), (Conclusion::Inconclusive, exit_code::INCOMPLETE));
        }
        let nothing = crate::model::measurement::Measurements { peer: Vec::new(), ..measurements.clone() };
        assert!(findings(&machine, Some(&nothing)).iter().all(|finding| finding.code != CODE));
        measurements.driver.devices[3].failure = Some("CUDA does not show this GPU although NVML does".into());
        only(&findings(&machine, Some(&measurements)), CODE, Severity::Warning);
    }
}
