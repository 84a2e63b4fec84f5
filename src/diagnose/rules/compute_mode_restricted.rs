//! # What it means
//!
//! A GPU's compute mode limits it to one process, or to none. A second program fails to start.
//!
//! # What to do
//!
//! `nvidia-smi -i GPU -c DEFAULT`, unless a scheduler set the mode on purpose, or an MPS daemon is to share the GPUs:
//! MPS needs exclusive mode.
//!
//! # How it is detected
//!
//! NVML's compute mode: prohibited is a warning, exclusive is information. If the mode kept this run out, or keeps
//! every program out (`topo`), it is `not-tested`.
//!
//! # Sources
//!
//! NVML, `nvmlComputeMode_t`; CUDA Programming Guide, compute modes.

use super::not_tested;
use super::prelude::*;
use model::snapshot::ComputeMode;

rule! {
    "compute-mode-restricted", Info, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let driver = &evidence.measured().driver;
    let device = |index: u32| driver.devices.iter().find(|device| device.index == index);
    let closed = not_tested::closed(evidence);
    let untested = |index: u32| {
        let failed = device(index).is_some_and(|device| device.failure.is_some());
        driver.failure.is_some() || failed || closed.contains(&index)
    };
    let in_mode = |modes: &[ComputeMode]| {
        evidence.snapshot.gpus_with(|gpu| {
            let mode = gpu.compute_mode.get();
            mode.is_some_and(|mode| modes.contains(&mode)) && !untested(gpu.index)
        })
    };
    let prohibited = in_mode(&[ComputeMode::Prohibited]);
    let exclusive = in_mode(&[ComputeMode::ExclusiveProcess, ComputeMode::ExclusiveThread]);
    let by_mps = evidence.snapshot.host.mps_daemon.get() == Some(true);
    let of = |gpus: &[u32], severity, what: &str| {
        let mode = Step::DefaultComputeMode(all(gpus));
        let plan = match by_mps && severity == Severity::Info {
            true => Plan::now([Step::Nothing(Fine::MpsWantsIt)]).otherwise([Step::QuitMps, mode]),
            false => Plan::now([Step::Nothing(Fine::IfMeant)]).otherwise([mode]),
        };
        let message = format!("{}: {what}", evidence.named(gpus));
        let found = RULE.finding(Subject::of_gpus(gpus), message, plan);
        (!gpus.is_empty()).then(|| found.gpus(gpus).at(severity))
    };
    let opened = |gpu: &u32| device(*gpu).is_some_and(|device| device.ordinal.is_some());
    let what = match exclusive.iter().any(opened) {
        true => {
            "compute mode exclusive, one process at a time; none but this check could start meanwhile"
        }
        false => "compute mode exclusive, one process at a time",
    };
    let of_exclusive = of(&exclusive, Severity::Info, what);
    let what = "compute mode prohibited, no CUDA program can start";
    let of_prohibited = of(&prohibited, Severity::Warning, what);
    of_prohibited.into_iter().chain(of_exclusive).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::measurement::CudaDevice;

    #[test]
    fn it_is_reported_unless_the_run_failed_because_of_it() {
        let mut machine = h200_vm(3);
        machine.gpus[2].compute_mode = Reading::Known(ComputeMode::Default);
        assert_eq!(findings(&machine, None), []);
        machine.gpus[2].compute_mode = Reading::Known(ComputeMode::ExclusiveProcess);
        let listed = findings(&machine, None);
        only(&listed, "compute-mode-restricted", Severity::Info);
        assert!(
            !listed[0].message.contains("During this check"),
            "nothing was started: {}",
            listed[0].message
        );
        let mut measurements = measured(&machine, 0.88);
        measurements.driver.devices =
            vec![CudaDevice { index: 2, ordinal: Some(2), ..CudaDevice::default() }];
        let checked = findings(&machine, Some(&measurements));
        only(&checked, "compute-mode-restricted", Severity::Info);
        assert!(
            checked[0].message.contains("none but this check could start"),
            "{}",
            checked[0].message
        );
        machine.gpus[2].compute_mode = Reading::Known(ComputeMode::Prohibited);
        let mut measurements = measured(&machine, 0.88);
        let prohibited = findings(&machine, Some(&measurements));
        only(&prohibited, "compute-mode-restricted", Severity::Warning);
        assert_advice(&RULE, &prohibited, &["default-compute-mode"], &["nothing"]);
        let failure = Some("the compute mode is prohibited".into());
        measurements.driver.devices =
            vec![CudaDevice { index: 2, ordinal: Some(2), failure, ..CudaDevice::default() }];
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|finding| finding.code != RULE.id), "{found:#?}");
    }
}
