//! # What it means
//!
//! A limit of this process or its container kept facts or answers from peerscope. The driver's errors are no evidence
//! then, and the exit code is 3.
//!
//! # What to do
//!
//! Raise the limit that the message names and check again: `ulimit -Hn 65536` or `/etc/security/limits.conf` (open
//! files), `ulimit -u` (processes), `ulimit -v unlimited` (address space); in a systemd unit `LimitNOFILE=`,
//! `LimitNPROC=`, `LimitAS=`, `TasksMax=`; for a container `--ulimit nofile=65536` and `--pids-limit`.
//!
//! # How it is detected
//!
//! A limit was reached, or far too low (below 1024 open files, or 4 TiB of address space: chosen), while the system
//! refused a file, thread or memory, or the driver returned NVML 999, CUDA 304, or "out of memory".
//!
//! # Sources
//!
//! getrlimit(2); Linux control groups, `pids.max`.

use super::prelude::*;

rule! {
    "process-limit", Warning, One(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let (host, gpus) = (&evidence.snapshot.host, &evidence.snapshot.gpus);
    let of_host =
        [host.kernel_version.unknown(), host.driver_version.unknown()].into_iter().flatten();
    let of_gpus = gpus.iter().flat_map(|gpu| {
        [
            gpu.uuid.unknown(),
            gpu.pcie_width.unknown(),
            gpu.nvlinks.unknown(),
            gpu.power_state.unknown(),
        ]
    });
    let of_pairs = evidence.snapshot.pairs.iter().filter_map(|pair| pair.p2p_read.unknown());
    let limited = |unknown: &'_ Unknown| match unknown {
        Unknown::Limited(why) => Some(why.clone()),
        _ => None,
    };
    let driver = &evidence.measured().driver;
    let unopened = (driver.devices.iter())
        .filter(|device| device.hindered)
        .filter_map(|device| device.failure.clone());
    let unasked = (driver.peer_access.iter())
        .filter(|said| said.hindered)
        .filter_map(|said| said.failure.clone());
    let read = of_host.chain(of_gpus.flatten()).chain(of_pairs);
    let unread: Vec<String> = read.filter_map(limited).chain(unopened).chain(unasked).collect();
    let unwatched = &evidence.measured().limited;
    if unread.is_empty() && unwatched.is_empty() {
        return None;
    }
    let whys = words::distinct(unread.iter().chain(unwatched));
    Some(
        RULE.on_machine(
            format!(
                "{} not read because of a limit of this process; {whys}",
                words::count(unread.len() + unwatched.len(), "fact")
            ),
            [Step::Limits, Step::CheckAgain],
        )
        .fact("unread", unread.len())
        .fact("unwatched", unwatched.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::cuda::CudaDevice;
    use model::snapshot::Gpu;

    const WHY: &str =
        "the limit of open files (ulimit -n) is 24 (NVML: unknown error of the driver (999))";

    #[test]
    fn a_gpu_that_a_limit_kept_from_answering_is_not_accused() {
        for gpu in [0, 1, 3] {
            let mut machine = h200_vm(4);
            machine.gpus[gpu as usize] = Gpu::unread(gpu, &Unknown::Limited(WHY.into()));
            let found = findings(&machine, None);
            only(&found, "process-limit", Severity::Warning);
            assert!(found[0].message.contains("(ulimit -n) is 24"), "{}", found[0].message);
            assert_eq!(exit(&found, None), 3, "facts that are missing are not healthy");
            // Without a limit as its cause, the same error is a fault of the GPU.
            machine.gpus[gpu as usize] =
                Gpu::unread(gpu, &Unknown::Failed("NVML: unknown error (999)".into()));
            assert!(
                findings(&machine, None).iter().any(|finding| *finding.code == *"gpu-unreachable")
            );
        }
    }

    #[test]
    fn peer_access_that_a_limit_kept_from_being_asked_is_a_gap_and_no_fault() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        let said = &mut measurements.driver.peer_access[0];
        (said.failure, said.failure_code) = (Some(WHY.into()), Some(304));
        assert!(
            findings(&machine, Some(&measurements))
                .iter()
                .any(|found| *found.code == *"peer-access-missing")
        );
        measurements.driver.peer_access[0].hindered = true;
        let found = findings(&machine, Some(&measurements));
        only(&found, "process-limit", Severity::Warning);
        assert!(found[0].message.contains("(ulimit -n) is 24"), "{}", found[0].message);
        assert_eq!(exit(&found, Some(&measurements)), 3);
    }

    #[test]
    fn the_only_gpu_that_a_limit_kept_from_opening_needs_a_higher_limit() {
        let machine = h200_vm(1);
        let mut measurements = Measurements::default();
        measurements.driver.devices.push(CudaDevice {
            failure: Some(format!("cuDevicePrimaryCtxRetain: error (304); {WHY}")),
            failure_code: Some(304),
            hindered: true,
            ..CudaDevice::default()
        });
        let found = findings(&machine, Some(&measurements));
        let codes: Vec<_> = found.iter().map(|finding| &*finding.code).collect();
        assert_eq!(codes, ["nothing-measured", "process-limit"]);
        for finding in &found {
            assert!(finding.next_step.starts_with("Raise that limit"), "{finding:?}");
        }
        assert_eq!(exit(&found, Some(&measurements)), 3);
    }

    #[test]
    fn links_that_could_not_be_watched_are_a_gap() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        measurements.limited.push(
            "GPU 1 is not watched: the limit of processes and threads (ulimit -u) is 12".into(),
        );
        let found = findings(&machine, Some(&measurements));
        only(&found, "process-limit", Severity::Warning);
        assert_eq!(exit(&found, Some(&measurements)), 3);
        assert_advice(&RULE, &found, &["limits"], &["container"]);
    }
}
