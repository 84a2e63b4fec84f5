//! # What it means
//!
//! The driver has a GPU that NVML does not list, for an unknown reason. It may not work, or be kept from this
//! process: the exit code is 3.
//!
//! # What to do
//!
//! On the host: `ls -l /dev/nvidia*`; `nvidia-modprobe -c N` makes the file of minor number N. If nvidia-smi then
//! lists the GPU, only the file was missing. Otherwise look for its address in the kernel's log
//! (`dmesg | grep -iE 'nvrm|xid'`). In a container that was given some of the GPUs there is nothing to do.
//!
//! # How it is detected
//!
//! A function as in `gpu-not-listed`, whose device file (/dev/nvidiaN) is missing or could not be read. No sign of a
//! container is seen (`snapshot.host.container`), and the driver's list has the GPU. A GPU that does not start may
//! have no device file either.
//!
//! # Sources
//!
//! NVIDIA driver README, "The /proc interface" and nvidia-modprobe(1); NVIDIA Container Toolkit (device files of the
//! container's GPUs alone).

use super::gpu_not_listed::{Why, why};
use super::prelude::*;
use model::reading::Reading;
use model::snapshot::{DeviceFile, DisplayFunction};

pub(crate) const RULE: Rule =
    Rule::of_one("gpu-perhaps-hidden", Severity::Warning, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let snapshot = evidence.snapshot;
    let is_open = |function: &&DisplayFunction| {
        function.gpu.is_none() && why(snapshot, function) == Why::Open
    };
    let open: Vec<_> = snapshot.unlisted_gpus.iter().filter(is_open).collect();
    (!open.is_empty()).then(|| finding(snapshot, &open))
}

fn finding(snapshot: &Snapshot, open: &[&DisplayFunction]) -> Finding {
    let addresses: Vec<_> = open.iter().map(|function| function.address).collect();
    let minors: Vec<_> = open.iter().filter_map(|function| function.minor.get()).collect();
    let container = match &snapshot.host.container {
        Reading::Known(true) => "this process runs in a container".to_owned(),
        Reading::Known(false) => "nothing shows that this process runs in a container".to_owned(),
        Reading::Unknown(why) => {
            format!("whether this process runs in a container is not known ({why})")
        }
    };
    let (them, file, broken) = match open {
        [_] => ("it", "its device file", "it does not work"),
        _ => ("them", "their device files", "they do not work"),
    };
    let files = words::distinct(open.iter().map(|function| match &function.device_file {
        Reading::Known(DeviceFile::Missing) => "missing".to_owned(),
        Reading::Known(DeviceFile::Usable | DeviceFile::Refused) => "there".to_owned(),
        Reading::Unknown(why) => format!("not known ({why})"),
    }));
    let message = format!(
        "The nvidia driver has {} ({}), and NVML does not list {them}; {file}: {files}; {container}. Either a container \
         or job keeps {them} from this process, or {broken}",
        words::count(addresses.len(), "NVIDIA GPU"),
        words::addresses(&addresses),
    );
    RULE.finding(Subject::Machine, message, plan(&addresses, &minors))
        .fact("addresses", addresses)
        .fact("device_minors", Fact::numbers(minors))
        .fact("device_files", files)
        .fact("in_a_container", snapshot.host.container.get())
        .fact("gpus_listed_count", snapshot.gpus.len())
}

fn plan(addresses: &[PciAddress], minors: &[u32]) -> Plan {
    let file = match minors.first() {
        Some(minor) => Step::DeviceFileOf(*minor),
        None => Step::DeviceFile,
    };
    Plan::now([file, Step::DriverLogOf(At(addresses.to_vec()))])
        .otherwise([Step::Nothing(Fine::IfHidden), Step::CheckOnHost])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{findings, only};
    use model::reading::Unknown;
    use model::snapshot::BoundDriver;
    use model::testing::{pci, two_sockets};

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
        let found = only(&findings(&machine, None), "gpu-perhaps-hidden", Severity::Warning);
        for text in [
            "its device file: missing",
            "nothing shows",
            "container or job keeps it",
            "it does not work",
        ] {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
        assert!(found.next_step.contains("nvidia-modprobe -c 3"), "{}", found.next_step);
        machine.unlisted_gpus[0].device_file = Reading::failed("I/O error");
        machine.host.container = Reading::Known(true);
        let found = only(&findings(&machine, None), "gpu-perhaps-hidden", Severity::Warning);
        assert!(found.message.contains("not known (failed: I/O error)"), "{}", found.message);
        assert!(crate::is_gap(&RULE.id));
    }
}
