//! # What it means
//!
//! Nothing was measured, so nothing is known about the health of this machine. The exit code is 3.
//!
//! # What to do
//!
//! The message repeats the driver's error.
//!
//! - CUDA error 802 (system not yet initialised) on a machine with NVSwitch: the fabric manager is not running
//!   (`systemctl status nvidia-fabricmanager`).
//! - CUDA error 34: a toolkit's stub library was loaded instead of the driver's.
//! - No device: look at `nvidia-smi`, CUDA_VISIBLE_DEVICES, and the container's access to GPUs.
//!
//! # How it is detected
//!
//! No requested measurement has a result, a watched machine was idle, there is no GPU to look at, another peerscope was
//! checking the machine, or a saved report has none of the rows that its verdict counts.
//!
//! # Sources
//!
//! CUDA driver API, `CUresult`; DCGM issue 198, a check that passed with all NVLinks down.

use super::not_tested;
use super::prelude::*;
use crate::coverage::{self, coverage};
use model::cuda::CUDA_SYSTEM_NOT_READY;
use model::measurement::Hindrance;

rule! {
    "nothing-measured", Warning, One(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    // `pasted-unclear` names what the output of other tools lacks.
    if evidence.read_from.is_some() {
        return None;
    }
    let problems = || words::distinct(&evidence.snapshot.problems);
    let mut why = why_nothing(evidence)?;
    if evidence.snapshot.gpus.is_empty() && !problems().is_empty() && !problems().contains(&why) {
        why = format!("{why} ({})", problems());
    }
    let coverage = coverage(evidence.measured());
    Some(
        RULE.on_machine(format!("Nothing was measured: {why}"), plan(evidence))
            .fact("gpus", evidence.snapshot.gpus.len())
            .fact("untested", (coverage.untested > 0).then_some(coverage.untested))
            .about_pairs(not_tested::untested_pairs(evidence.measured())),
    )
}

/// Returns why nothing was measured; `None` if something was, or nothing was to be.
fn why_nothing(evidence: &Evidence<'_>) -> Option<String> {
    let gpus = evidence.snapshot.gpus.len();
    if let Some(watched) = evidence.watched.filter(|watched| gpus > 0 && !watched.is_any_busy()) {
        let seen = watched.gpus.iter().any(|gpu| gpu.readings > 1);
        return Some(match seen {
            true => "no GPU computed or moved data while it was watched".into(),
            false => "no reading of the counters came".into(),
        });
    }
    let Some(measurements) = evidence.measurements else {
        return (gpus == 0).then(|| "no GPU was found".into());
    };
    let coverage = coverage(measurements);
    if coverage.tested_ways + coverage.set_aside > 0 {
        return None;
    }
    let failed = coverage::cells(measurements).filter_map(|cell| cell.reason);
    let unusable = coverage::unusable(measurements).map(|(gpu, why)| format!("GPU {gpu}: {why}"));
    let absent = words::further(
        "the report lacks the rows of ",
        measurements.absent as usize,
        "measurement",
    );
    let impossible = measurements.each().filter(|one| one.ending().not_supported);
    let impossible = words::distinct(impossible.filter_map(|one| one.ending().reason.clone()));
    let reasons = [
        absent,
        measurements.driver.failure.clone().unwrap_or_default(),
        measurements.driver.kernels_failure.clone().unwrap_or_default(),
        words::distinct(unusable),
        words::distinct(failed),
        words::distinct(&measurements.problems),
        words::distinct(&measurements.thinned_out),
        impossible,
    ];
    Some(reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_else(|| match gpus {
        0 => "no GPU was found".into(),
        1 => "there is only one GPU, and its copies with the host were left out".into(),
        _ if measurements.interrupted => {
            "the run was interrupted before the first measurement".into()
        }
        _ => "no measurement was asked for".into(),
    }))
}

fn plan(evidence: &Evidence<'_>) -> Plan {
    let gpus = evidence.snapshot.gpus.len();
    let driver = &evidence.measured().driver;
    if evidence.watched.is_some() && gpus > 0 {
        return Plan::now([Step::WatchJob]);
    }
    if evidence.measured().absent > 0 {
        return Plan::now([Step::WholeReport]);
    }
    let devices = || driver.devices.iter();
    let codes: Vec<_> = match driver.failure {
        Some(_) => vec![driver.failure_code],
        None => devices().map(|device| device.failure_code).collect(),
    };
    match driver.hindrance {
        Some(Hindrance::AnotherCheck) => return Plan::now([Step::CheckInTurn]),
        Some(Hindrance::ProcessLimit) => return Plan::now([Step::Limits, Step::CheckAgain]),
        None => {}
    }
    if devices().any(|device| device.hindered) {
        return Plan::now([Step::Limits, Step::CheckAgain]);
    }
    let is_fine = devices().count() > 0 && devices().all(|device| device.failure.is_none());
    let thinned_out = &evidence.measured().thinned_out;
    let is_impossible = evidence.measured().each().any(|one| one.ending().not_supported);
    let gone = evidence.snapshot.host.kernel_module_version.known().is_none();
    if codes.contains(&Some(CUDA_SYSTEM_NOT_READY)) {
        let manager = match evidence.virtual_machine() && evidence.snapshot.nvswitches.is_empty() {
            true => Step::AskHost(Ask::Fabric),
            false => Step::RestartFabricManager,
        };
        Plan::now([manager, Step::CheckAgain])
    } else if gpus == 1 && devices().all(|device| device.failure.is_none()) {
        Plan::now([Step::Nothing(Fine::Always), Step::CheckWithHost])
    } else if gpus > 0 && is_fine && (!thinned_out.is_empty() || is_impossible) {
        Plan::now([Step::CheckWithHost])
    } else if gpus == 0 && gone {
        let load = [Step::LoadDriver, Step::StartLog];
        Plan::now(load).then([Step::Container, Step::CheckAgain])
    } else {
        Plan::now([Step::Driver, Step::Container, Step::CheckAgain])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn a_driver_that_is_not_loaded_is_to_be_loaded() {
        let mut machine = empty();
        machine.problems.push("NVML: driver not loaded".into());
        let found = findings(&machine, Some(&Measurements::default()));
        let may = ["lspci", "driver-log", "run-as-root", "container"];
        assert_advice(&RULE, &found, &["bind-driver"], &may);
    }
}
