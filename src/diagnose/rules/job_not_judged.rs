//! # What it means
//!
//! Counters around a job began again meanwhile, so nothing is attributed to it.
//!
//! # What to do
//!
//! If nobody restarted the machine or the driver, look for the reason: `journalctl --list-boots`, the log of the
//! management controller, Xid messages of the last boot (`journalctl -b -1 -k | grep -i xid`). Otherwise check it.
//!
//! # How it is detected
//!
//! `peerscope bracket` keeps the kernel's identifier of the start of the system, the version of the driver, and the counters
//! of every GPU. The system was started again if the identifier differs, or without one if it has run for less time than
//! before. The driver was loaded again, or the GPUs were reset, if its version differs or if a counter of every GPU is lower
//! than before. If that is so for some GPUs only, these are left out and the others are judged.
//!
//! # Sources
//!
//! proc(5), `/proc/sys/kernel/random/boot_id`; NVML, whose NVLink counters begin at 0 when the driver is loaded.

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::of_one("job-not-judged", Severity::Warning, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let bracket = evidence.bracket?;
    if bracket.not_comparable.is_empty() {
        return None;
    }
    let message = format!(
        "The time of {} was not judged: {}",
        bracket.name(),
        bracket.not_comparable.join("; ")
    );
    Some(RULE.finding(Subject::Machine, message, Plan::now([Step::DriverLog, Step::CheckAgain])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bracket::tests::{found, report};
    use crate::testing::prelude::*;

    #[test]
    fn counters_that_began_again_are_said_and_not_judged() {
        let before = h200_vm(4);
        let mut after = before.clone();
        after.gpus.remove(2);
        let mut job = report(&before, &after);
        let why = "the system was started again";
        job.bracket.as_mut().unwrap().not_comparable = vec![why.into()];
        let found = found(&job);
        let finding = only(&found, "job-not-judged", Severity::Warning);
        let wanted = format!("The time of job 4711 was not judged: {why}");
        assert_eq!(finding.message, wanted);
        assert!(crate::is_gap(&finding.code));
        assert_advice(&RULE, &found, &["xid", "check-again"], &[]);
    }
}
