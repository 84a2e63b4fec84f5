//! The findings for which copies after the plan were measured.

use super::evidence::Evidence;
use model::finding::{Finding, Severity};
use model::flow::Endpoint;
use model::measurement::SecondLook;

/// Adds to each finding on figures what was measured to tell its explanations apart.
pub(super) fn name(evidence: &Evidence<'_>, findings: &mut [Finding]) {
    let looks = &evidence.measured().second_looks;
    if looks.is_empty() {
        return;
    }
    for finding in findings.iter_mut().filter(|one| is_on_figures(one)) {
        let gpus = finding.scope.all_gpus();
        let is_of = |look: &&SecondLook| {
            let ends = look.flows.iter().flat_map(|flow| flow.ends());
            let mut of_look = ends.filter_map(Endpoint::gpu);
            gpus.is_empty() || of_look.any(|gpu| gpus.contains(&gpu))
        };
        let words: Vec<String> = looks.iter().filter(is_of).map(|look| look.words()).collect();
        if !words.is_empty() {
            *finding =
                finding.clone().fact("measured_to_tell_apart", model::fact::Fact::Texts(words));
        }
    }
}

/// Returns true if a change of the machine that figures show is behind a finding.
fn is_on_figures(finding: &Finding) -> bool {
    let is_of_node = finding.code == crate::rules::numa_label_wrong::RULE.id;
    finding.severity > Severity::Info && (is_of_node || !finding.scope.causes.is_empty())
}
