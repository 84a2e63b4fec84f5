//! The verdict and its exit code: the only place that implements the contract of docs/exit-codes.md.

use super::coverage::coverage;
use super::rules;
use model::choices;
use model::finding::{Finding, RuleId, Severity};
use model::measurement::Measurements;
use model::report::{Conclusion, Report, Verdict};

/// Exit codes of the default contract.
pub(crate) mod exit_code {
    /// Everything that was asked for was tested, and nothing is at fault.
    pub(crate) const HEALTHY: u8 = 0;
    /// A finding at or above the severity of `--fail-on`.
    pub(crate) const FAULT: u8 = 1;
    /// Wrong use of the command line, or a fault of peerscope itself.
    pub(crate) const USAGE: u8 = 2;
    /// Nothing was measured, or less than was asked for.
    pub(crate) const INCOMPLETE: u8 = 3;
    /// Interrupted, with the partial report written.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Return codes of a Nagios plugin: <https://nagios-plugins.org/doc/guidelines.html>, section
/// "Plugin Return Codes".
mod nagios {
    pub(super) const OK: u8 = 0;
    pub(super) const WARNING: u8 = 1;
    pub(super) const CRITICAL: u8 = 2;
    pub(super) const UNKNOWN: u8 = 3;
}

/// The ways in which a run can end, before a contract maps them to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Everything that was asked for was tested, and there is no warning.
    Healthy,
    /// The same, and there are warnings below `--fail-on`.
    Warned,
    /// A finding at or above `--fail-on`.
    Fault,
    /// Nothing was measured, or less than was asked for, and no fault was seen.
    Incomplete,
    /// Interrupted, whatever was found by then.
    Interrupted,
    /// Wrong use of the command line, or a fault of peerscope itself.
    Usage,
}

impl Ending {
    /// Returns how the run of this report ended. A report never records wrong usage.
    pub fn of(report: &Report) -> Self {
        let interrupted =
            report.measurements.as_ref().is_some_and(|measurements| measurements.interrupted);
        Self::conclude(report.verdict.verdict, interrupted, &report.findings)
    }

    fn conclude(verdict: Conclusion, interrupted: bool, findings: &[Finding]) -> Self {
        match verdict {
            _ if interrupted => Self::Interrupted,
            Conclusion::Faulty => Self::Fault,
            Conclusion::Inconclusive => Self::Incomplete,
            Conclusion::Healthy
                if findings.iter().any(|finding| finding.severity >= Severity::Warning) =>
            {
                Self::Warned
            }
            Conclusion::Healthy => Self::Healthy,
        }
    }
}

choices! {
    /// The reader of the exit code.
    Contract {
        /// Plain scripts, Slurm, Kubernetes: 0 healthy, 1 fault, 2 wrong usage, 3 could not test, 130
        /// interrupted.
        Default = "default",
        /// Nagios and compatible tools: 0 ok, 1 warning, 2 critical, 3 unknown.
        Nagios = "nagios",
    }
}

impl Contract {
    /// Returns the exit code of an ending. Nothing else in the program maps to exit codes.
    pub const fn code(self, ending: Ending) -> u8 {
        match (self, ending) {
            (Self::Default, Ending::Healthy | Ending::Warned) => exit_code::HEALTHY,
            (Self::Default, Ending::Fault) => exit_code::FAULT,
            (Self::Default, Ending::Usage) => exit_code::USAGE,
            (Self::Default, Ending::Incomplete) => exit_code::INCOMPLETE,
            (Self::Default, Ending::Interrupted) => exit_code::INTERRUPTED,
            (Self::Nagios, Ending::Healthy) => nagios::OK,
            (Self::Nagios, Ending::Warned) => nagios::WARNING,
            (Self::Nagios, Ending::Fault) => nagios::CRITICAL,
            (Self::Nagios, Ending::Incomplete | Ending::Interrupted | Ending::Usage) => {
                nagios::UNKNOWN
            }
        }
    }
}

/// The terms by which a report is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The lowest severity of a finding that counts as a fault.
    pub fail_on: Severity,
    /// The reader of the exit code.
    pub contract: Contract,
}

impl From<Severity> for Terms {
    /// Uses the default contract.
    fn from(fail_on: Severity) -> Self {
        Self { fail_on, contract: Contract::Default }
    }
}

/// Returns true if findings of this rule report that something was not tested, see [`Rule::gap`](super::Rule).
pub fn is_gap(rule: &RuleId) -> bool {
    rules::find(rule).is_some_and(|rule| rule.gap)
}

/// Concludes from the findings of the rules and from how much was tested.
///
/// A fault that was found outranks missing tests. An interrupted run exits as interrupted whatever it had found by
/// then, and its verdict is still `faulty` if it had found a fault. A run that was cut off is never healthy. Without
/// measurements (`topo`) the facts alone are judged.
pub fn verdict(
    findings: &[Finding],
    measurements: Option<&Measurements>,
    terms: impl Into<Terms>,
) -> Verdict {
    let Terms { fail_on, contract } = terms.into();
    let is_gap = |finding: &Finding| is_gap(&finding.code);
    let fault = findings.iter().any(|finding| finding.severity >= fail_on && !is_gap(finding));
    let coverage = measurements.map(coverage).unwrap_or_default();
    let interrupted = measurements.is_some_and(|measurements| measurements.interrupted);
    let cut_off = measurements.is_some_and(|measurements| measurements.cut_off);
    let incomplete = findings.iter().any(is_gap)
        || coverage.untested > 0
        || interrupted
        || cut_off
        || (measurements.is_some() && coverage.tested_ways == 0);

    let verdict = match (fault, incomplete) {
        (true, _) => Conclusion::Faulty,
        (false, true) => Conclusion::Inconclusive,
        (false, false) => Conclusion::Healthy,
    };
    Verdict {
        verdict,
        exit_code: contract.code(Ending::conclude(verdict, interrupted, findings)),
        tested: coverage.tested,
        untested: coverage.untested,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::measured;
    use super::*;
    use model::finding::Subject;
    use model::measurement::Status;
    use model::testing::h200_vm;

    const SEVERITIES: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Error];

    fn finding(code: &'static str, severity: Severity) -> Finding {
        Finding::new(RuleId::new(code), severity, Subject::Machine, "something", Vec::new())
    }

    #[test]
    fn every_ending_has_its_code_in_every_contract() {
        for (ending, default, nagios) in [
            (Ending::Healthy, 0, 0),
            (Ending::Warned, 0, 1),
            (Ending::Fault, 1, 2),
            (Ending::Incomplete, 3, 3),
            (Ending::Interrupted, 130, 3),
            (Ending::Usage, 2, 3),
        ] {
            assert_eq!(Contract::Default.code(ending), default, "{ending:?}");
            assert_eq!(Contract::Nagios.code(ending), nagios, "{ending:?}");
        }
    }

    /// The extent of the measurements: everything, all but one cell, or nothing was to be measured.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Tested {
        All,
        Less,
        FactsAlone,
    }

    /// Returns the contract as written in docs/exit-codes.md, independently of [`verdict`].
    fn expected(
        worst: Option<Severity>,
        gap: bool,
        tested: Tested,
        fail_on: Severity,
        interrupted: bool,
    ) -> (Conclusion, u8, u8) {
        let fault = worst >= Some(fail_on);
        let conclusion = if fault {
            Conclusion::Faulty
        } else if gap || interrupted || tested == Tested::Less {
            Conclusion::Inconclusive
        } else {
            Conclusion::Healthy
        };
        let (default, nagios) = if interrupted {
            (130, 3)
        } else if conclusion == Conclusion::Faulty {
            (1, 2)
        } else if conclusion == Conclusion::Inconclusive {
            (3, 3)
        } else if worst == Some(Severity::Warning) || worst == Some(Severity::Error) {
            (0, 1)
        } else {
            (0, 0)
        };
        (conclusion, default, nagios)
    }

    #[test]
    fn every_combination_has_its_verdict_and_its_codes() {
        let machine = h200_vm(3);
        let mut seen = std::collections::BTreeSet::new();
        for tested in [Tested::All, Tested::Less, Tested::FactsAlone] {
            for interrupted in [false, true] {
                let mut measurements = measured(&machine, 0.88);
                measurements.interrupted = interrupted;
                if tested == Tested::Less {
                    measurements.peer[0].ending.status = Status::Skipped;
                    measurements.peer[0].achieved_gbps = None;
                }
                let measurements = match tested {
                    // Without measurements there is no run that could be interrupted.
                    Tested::FactsAlone if interrupted => continue,
                    Tested::FactsAlone => None,
                    _ => Some(&measurements),
                };
                for worst in
                    [None, Some(Severity::Info), Some(Severity::Warning), Some(Severity::Error)]
                {
                    for gap in [None, Some("not-tested"), Some("nothing-measured")] {
                        for fail_on in SEVERITIES {
                            // A gap is no fault, whatever its severity.
                            for gap_severity in SEVERITIES {
                                let findings: Vec<_> = gap
                                    .map(|code| finding(code, gap_severity))
                                    .into_iter()
                                    .chain(worst.map(|severity| finding("pcie-narrow", severity)))
                                    .collect();
                                let (conclusion, default, nagios) =
                                    expected(worst, gap.is_some(), tested, fail_on, interrupted);
                                for (contract, code) in
                                    [(Contract::Default, default), (Contract::Nagios, nagios)]
                                {
                                    let found = verdict(
                                        &findings,
                                        measurements,
                                        Terms { fail_on, contract },
                                    );
                                    let case = (
                                        tested,
                                        interrupted,
                                        worst,
                                        gap,
                                        gap_severity,
                                        fail_on,
                                        contract,
                                    );
                                    assert_eq!(
                                        (found.verdict, found.exit_code),
                                        (conclusion, code),
                                        "{case:?}"
                                    );
                                    seen.insert((contract == Contract::Nagios, code));
                                }
                            }
                        }
                    }
                }
            }
        }
        let all = [
            (false, 0),
            (false, 1),
            (false, 3),
            (false, 130),
            (true, 0),
            (true, 1),
            (true, 2),
            (true, 3),
        ];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "a code that no case reaches");
    }
}
