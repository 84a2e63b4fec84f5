//! The verdict and its exit code: the one place where the contract of docs/exit-codes.md stands.

use super::coverage::coverage;
use super::rules::{BASELINE_NOT_COMPARED, EXPECTATION_UNCHECKED, NOT_TESTED, NOTHING_MEASURED};
use crate::model::finding::{Finding, Severity};
use crate::model::measurement::Measurements;
use crate::model::report::{Conclusion, Verdict};

/// Exit codes of the contract.
pub mod exit_code {
    /// Everything that was asked for was tested, and nothing is at fault.
    pub const HEALTHY: u8 = 0;
    /// A finding at or above the severity of `--fail-on`.
    pub const FAULT: u8 = 1;
    /// Wrong use of the command line, or a fault of peerscope's own.
    pub const USAGE: u8 = 2;
    /// Nothing was measured, or less than what was asked for.
    pub const INCOMPLETE: u8 = 3;
    /// Interrupted, with the partial report written.
    pub const INTERRUPTED: u8 = 130;
}

/// Concludes from what the rules found and how much was tested.
///
/// A fault that was found outranks tests that are missing; an interrupted run exits as interrupted
/// whatever it had found by then, and its verdict still says `faulty` where it had. Without
/// measurements (`topo`) the facts alone are judged.
pub fn verdict(findings: &[Finding], measurements: Option<&Measurements>, fail_on: Severity) -> Verdict {
    // That something was not tested has an exit code of its own and is no fault of the machine,
    // whatever severity it is shown with.
    let is_gap = |finding: &Finding| {
        [NOT_TESTED, NOTHING_MEASURED, EXPECTATION_UNCHECKED, BASELINE_NOT_COMPARED].contains(&finding.code.as_str())
    };
    let fault = findings.iter().any(|finding| finding.severity >= fail_on && !is_gap(finding));
    let coverage = measurements.map(coverage).unwrap_or_default();
    let interrupted = measurements.is_some_and(|measurements| measurements.interrupted);
    let incomplete = findings.iter().any(is_gap)
        || coverage.untested > 0
        || interrupted
        || (measurements.is_some() && coverage.tested == 0);

    let (verdict, code) = match (fault, incomplete) {
        (true, _) => (Conclusion::Faulty, exit_code::FAULT),
        (false, true) => (Conclusion::Inconclusive, exit_code::INCOMPLETE),
        (false, false) => (Conclusion::Healthy, exit_code::HEALTHY),
    };
    Verdict {
        verdict,
        exit_code: if interrupted { exit_code::INTERRUPTED } else { code },
        tested: coverage.tested,
        untested: coverage.untested,
    }
}
