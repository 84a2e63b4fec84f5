//! # What it means
//!
//! CUDA shows fewer GPUs than NVML, or NVML fewer than the driver has. They may be the broken ones, so the exit code is
//! 3; it never counts as a fault.
//!
//! # What to do
//!
//! CUDA: unset CUDA_VISIBLE_DEVICES (an entry that names no GPU hides all after it), or ask for the visible GPUs with
//! `--gpus`. Start a container with all GPUs. Without a mask: look for a GPU that fell off the bus (dmesg, NVRM and
//! Xid) and for MIG mode.
//!
//! NVML: `ls -l /dev/nvidia*` on the host; `nvidia-modprobe -c N` makes the file of minor number N. If nvidia-smi then
//! lists the GPU, only the file was missing; else look for its address in the kernel's log. In a container with some of
//! the GPUs there is nothing to do.
//!
//! # How it is detected
//!
//! NVML's GPUs are looked up among CUDA's by UUID and PCI address: information if CUDA_VISIBLE_DEVICES is set, else a
//! warning. Or the driver has a GPU whose device file (/dev/nvidiaN) is missing or could not be read, without a sign of
//! a container.
//!
//! # Sources
//!
//! CUDA Programming Guide, environment variables; NVIDIA driver README, "The /proc interface".

use super::gpu_not_listed::{Why, why};
use super::prelude::*;
use crate::coverage::{coverage, hidden};
use model::measurement::Hidden;

rule! {
    "devices-hidden", Info, All(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    [from_cuda(evidence), from_nvml(evidence)].into_iter().flatten().collect()
}

/// Returns a finding on GPUs that NVML lists and CUDA does not show.
fn from_cuda(evidence: &Evidence<'_>) -> Option<Finding> {
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
    let shown = measurements
        .driver
        .devices
        .iter()
        .filter_map(|one| Some((one.ordinal?, format!("GPU {}", one.index))));
    let shown: Vec<_> = words::unique(shown).into_iter().map(|(_, name)| name).collect();
    let message = format!(
        "{} not tested; {why}; CUDA's device order is {}",
        evidence.named(&gpus),
        shown.join(", ")
    );
    let steps = match masked {
        true => vec![Step::UnsetMask],
        false => vec![Step::DriverLog, Step::MigMode, Step::Container],
    };
    let found = RULE
        .on_machine(message, steps)
        .fact("hidden_gpus", Fact::Gpus(gpus))
        .fact("cuda_order", shown);
    Some(found.at_if(!masked, Severity::Warning))
}

/// Returns a finding on GPUs that the driver has and NVML does not list, if nothing shows why.
fn from_nvml(evidence: &Evidence<'_>) -> Option<Finding> {
    let snapshot = evidence.snapshot;
    let is_open = |function: &&DisplayFunction| {
        function.gpu.is_none() && why(snapshot, function) == Why::Open
    };
    let open: Vec<_> = snapshot.unlisted_gpus.iter().filter(is_open).collect();
    (!open.is_empty()).then(|| perhaps(snapshot, &open))
}

fn perhaps(snapshot: &Snapshot, open: &[&DisplayFunction]) -> Finding {
    let addresses: Vec<_> = open.iter().map(|function| function.address).collect();
    let container = match &snapshot.host.container {
        Reading::Known(true) => "this process runs in a container".to_owned(),
        Reading::Known(false) => "nothing shows that this process runs in a container".to_owned(),
        Reading::Unknown(why) => {
            format!("whether this process runs in a container is not known ({why})")
        }
    };
    let files = words::distinct(open.iter().map(|function| match &function.device_file {
        Reading::Known(DeviceFile::Missing) => "missing".to_owned(),
        Reading::Known(DeviceFile::Usable | DeviceFile::Refused) => "there".to_owned(),
        Reading::Unknown(why) => format!("not known ({why})"),
    }));
    let message = format!(
        "NVML does not list {} of the nvidia driver; {}; device files: {files}; {container}; either a container or job \
         hides them, or they do not work",
        words::count(addresses.len(), "GPU"),
        words::addresses(&addresses),
    );
    RULE.on_machine(message, plan(&addresses)).fact("addresses", addresses).at(Severity::Warning)
}

fn plan(addresses: &[PciAddress]) -> Plan {
    Plan::now([Step::DeviceFile, Step::DriverLogOf(At(addresses.to_vec()))])
        .otherwise([Step::Nothing(Fine::IfHidden), Step::CheckOnHost])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::verdict;
    use crate::verdict::exit_code;
    use model::measurement::CudaDevice;
    use model::reading::Unknown;
    use model::report::Conclusion;
    use model::snapshot::BoundDriver;
    use model::testing::two_sockets;

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

    #[test]
    fn a_gpu_that_nothing_shows_as_hidden_is_a_gap_with_both_possibilities() {
        let mut machine = two_sockets();
        machine.gpus.truncate(3);
        machine.pairs.retain(|pair| pair.source < 3 && pair.destination < 3);
        machine.host.container = Reading::Known(false);
        let unlisted = DisplayFunction {
            driver: Reading::Known(BoundDriver::Nvidia),
            in_driver_list: Reading::Known(true),
            minor: Reading::Known(3),
            device_file: Reading::Known(DeviceFile::Missing),
            ..DisplayFunction::unread(pci("0000:84:00.0"), None, &Unknown::Unsupported)
        };
        machine.unlisted_gpus = vec![unlisted];
        let found = only(&findings(&machine, None), "devices-hidden", Severity::Warning);
        for text in
            ["device files: missing", "nothing shows", "container or job hides", "do not work"]
        {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
        assert!(found.next_step.contains("nvidia-modprobe -c"), "{}", found.next_step);
        machine.unlisted_gpus[0].device_file = Reading::failed("I/O error");
        machine.host.container = Reading::Known(true);
        let found = only(&findings(&machine, None), "devices-hidden", Severity::Warning);
        assert!(found.message.contains("not known (failed: I/O error)"), "{}", found.message);
        assert!(crate::is_gap(&RULE.id));
    }
}
