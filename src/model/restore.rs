//! Restores what is typed in memory but not written explicitly in a saved report. This happens once, when a report is
//! read, and nowhere else.
//!
//! The scope of a finding is never written, because subject and facts contain it.

use super::cell::Measurement;
use super::fact::Fact;
use super::finding::{Finding, Scope};
use super::report::Report;

/// NVML's return code for kernel module and library of different versions.
pub const NVML_VERSION_MISMATCH: u32 = 18;

/// Restores the scopes in a report that was read, and doubts what a run would have doubted: figures whose bytes were to
/// be checked and were not. Other tools check none.
pub fn restore(report: &mut Report) {
    if let (None, Some(measured)) = (&report.read_from, &mut report.measurements) {
        measured.each_mut().for_each(Measurement::doubt_unchecked);
    }
    for finding in &mut report.findings {
        finding.scope = scope(finding);
    }
}

/// Returns the scope of a finding as far as its subject and facts show it.
fn scope(finding: &Finding) -> Scope {
    let mut scope = Scope::from(&finding.subject);
    for (key, fact) in &finding.evidence {
        match (key.as_str(), fact) {
            ("pairs", Fact::Pairs(pairs)) => scope.pairs.clone_from(pairs),
            ("gpus" | "gpus_behind", Fact::Gpus(gpus)) => scope.gpus.clone_from(gpus),
            _ => {}
        }
    }
    scope
}
