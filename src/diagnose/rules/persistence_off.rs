//! # What it means
//!
//! Persistence mode is off: the driver releases idle GPUs and initialises them again. Every first program waits,
//! settings such as clocks and power limits are lost, and error counters start again from 0.
//!
//! # What to do
//!
//! Enable the daemon: `systemctl enable --now nvidia-persistenced`. Until the next boot `nvidia-smi -pm 1` does it.
//!
//! # How it is detected
//!
//! NVML reports it for every GPU; one finding. It is information, and a warning if the driver's start took
//! `long_start_s` or more in this run.
//!
//! # Sources
//!
//! NVIDIA driver documentation, driver persistence.

use super::prelude::*;

rule! {
    "persistence-off", Info, One(judge);
    /// seconds of the driver's start from which it is a warning; chosen: three times the 3.3 of 8 x H200 with
    /// persistence on (measured)
    LONG_START: long_start_s = 10.0;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let off = evidence.snapshot.gpus_with(|gpu| gpu.persistence.get() == Some(false));
    let start = evidence.measured().driver.start_seconds;
    let long = start.filter(|start| *start >= LONG_START.of(evidence));
    let effect = match long {
        Some(start) => format!("; the driver took {start:.1} s to start"),
        None => "; the first program after a pause waits for the driver to start".to_owned(),
    };
    let gpus = evidence.named(&off);
    let message = format!("Persistence mode is off on {gpus}{effect}");
    let found = RULE
        .on_machine(message, [Step::Persistence])
        .gpus(&off)
        .fact("driver_start", start.map(Fact::seconds))
        .at_if(long.is_some(), Severity::Warning);
    (!off.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn it_is_one_line_and_a_warning_where_it_cost_time() {
        let mut machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        machine.gpus.iter_mut().for_each(|gpu| gpu.persistence = Reading::Known(true));
        measurements.driver.start_seconds = Some(30.0);
        assert_eq!(
            findings(&machine, Some(&measurements)),
            [],
            "a slow start with persistence on is not this"
        );
        machine.gpus.iter_mut().for_each(|gpu| gpu.persistence = Reading::Known(false));
        let slow = findings(&machine, Some(&measurements));
        only(&slow, "persistence-off", Severity::Warning);
        assert_advice(&RULE, &slow, &["persistence"], &[]);
        measurements.driver.start_seconds = Some(2.0);
        only(&findings(&machine, Some(&measurements)), "persistence-off", Severity::Info);
    }
}
