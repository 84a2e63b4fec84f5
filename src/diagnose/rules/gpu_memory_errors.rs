//! # What it means
//!
//! A GPU's memory had uncorrectable errors, or rows wait to be replaced. Such an error ends the program that meets
//! it.
//!
//! # What to do
//!
//! Pending: end all programs and reset the GPU (`nvidia-smi --gpu-reset`) or reboot. Failed, or errors that come back
//! after a reset: run `dcgmi diag -r 3` and replace the GPU.
//!
//! # How it is detected
//!
//! NVML's uncorrected errors since the last reboot are read before, while and after the copies, and row remapping.
//! Uncorrected errors and a failed remapping are an error; one that waits for a reset is a warning.
//!
//! # Sources
//!
//! NVIDIA GPU Memory Error Management (row remapping; Xid 48, 63, 64, 94, 95); NVML, `nvmlDeviceGetRemappedRows`,
//! `nvmlDeviceGetTotalEccErrors`.

use super::prelude::*;

rule! {
    "gpu-memory-errors", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = evidence.snapshot.gpus.iter();
    gpus.filter_map(|gpu| finding(evidence, gpu)).collect()
}

fn finding(evidence: &Evidence<'_>, gpu: &Gpu) -> Option<Finding> {
    let uncorrected = gpu.ecc_uncorrected.get().unwrap_or(0);
    let meanwhile = links::watched(evidence, gpu.index).and_then(|link| link.ecc_uncorrected_added);
    let rows = gpu.remapped_rows.get();
    let pending = rows.is_some_and(|rows| rows.pending);
    let failed = rows.is_some_and(|rows| rows.failed);
    let errors = |number: u64, when: &str| {
        let errors = words::count(number, "uncorrected memory error");
        (number > 0).then(|| format!("{errors} {when}"))
    };
    let parts: Vec<_> = [
        errors(uncorrected, "since the last reboot"),
        errors(meanwhile.unwrap_or(0), evidence.meanwhile()),
        failed.then(|| "a row of memory could not be remapped".to_owned()),
        pending.then(|| "a row of memory waits for a reset to be remapped".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        return None;
    }
    let index = gpu.index;
    let own = || all(&[index]);
    let plan = if failed {
        Plan::until_repair([Step::OutOfService(own())]).then([Step::Replace(Part::of(&[index]))])
    } else if pending {
        let reset = Step::ResetGpu(own());
        Plan::now([reset, Step::CheckAgain]).if_it_stays([Step::Reboot])
    } else {
        let xids = Step::XidOf("48, 63, 64, 94 and 95");
        Plan::now([xids, Step::Reboot, Step::RunDcgm])
            .if_it_stays([Step::Replace(Part::of(&[index]))])
    };
    let message = format!("{}: {}", evidence.name(index), parts.join("; "));
    let remapped = rows.map(|rows| u64::from(rows.corrected) + u64::from(rows.uncorrected));
    let only_pending = uncorrected == 0 && meanwhile.unwrap_or(0) == 0 && !failed;
    let found = RULE
        .finding(Subject::Gpu { index }, message, plan)
        .fact("uncorrected_errors", gpu.ecc_uncorrected.get())
        .fact("uncorrected_errors_meanwhile", meanwhile)
        .fact("rows_remapped", remapped)
        .fact("serial", gpu.serial.known());
    Some(found.at_if(only_pending, Severity::Warning))
}

#[cfg(test)]
mod tests {
    use crate::testing::prelude::*;
    use model::snapshot::RemappedRows;

    #[test]
    fn rows_that_were_remapped_are_nothing() {
        let mut machine = h200_vm(4);
        machine.gpus[3].ecc_uncorrected = Reading::Known(0);
        machine.gpus[3].remapped_rows = Reading::Known(RemappedRows {
            corrected: 2,
            uncorrected: 1,
            pending: false,
            failed: false,
        });
        assert_eq!(findings(&machine, None), []);
    }
}
