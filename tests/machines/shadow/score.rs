//! Compares what the explanation accuses with the findings of the rules, by place.

use std::collections::BTreeSet;

use explain::{Explanation, Part};
use model::fact::Fact;
use model::finding::{Finding, Severity, Subject};
use model::node::NodeId;
use model::report::Report;

use super::explained::gpus_of;

/// Codes of findings on figures that the explanation is to account for. Codes on facts and on wrong bytes are not its
/// business.
const FIGURES: [&str; 10] = [
    "host-bandwidth-low",
    "host-bandwidth-below-siblings",
    "shared-hop-low",
    "load-below-expected",
    "peer-bandwidth-low",
    "peer-bandwidth-outlier",
    "peer-bandwidth-asymmetric",
    "both-ways-low",
    "staged-slow",
    "direct-slower-than-staged",
];

/// What the explanation makes of one report.
#[derive(Debug, Default)]
pub(crate) struct Score {
    /// Places that it accuses and no finding does.
    pub innocent: Vec<String>,
    /// Findings on figures whose place it does not accuse.
    pub missed: Vec<String>,
}

impl Score {
    pub(crate) fn of(report: &Report, explanation: &Explanation) -> Self {
        let mut score = Self::default();
        let raised: Vec<&Finding> = report
            .findings
            .iter()
            .filter(|finding| finding.severity >= Severity::Warning)
            .collect();
        let accused: Vec<Vec<Vec<Part>>> = explanation
            .causes
            .iter()
            .filter(|cause| !cause.by_design)
            .map(|cause| {
                let suspects = cause.suspects.iter().map(|suspect| suspect.parts.clone());
                std::iter::once(cause.parts.clone()).chain(suspects).collect()
            })
            .collect();
        let fits = |places: &Vec<Vec<Part>>, finding: &Finding| {
            places.iter().any(|parts| {
                is_at(parts, &finding.subject, report) || lists(finding, parts, report)
            })
        };
        for places in &accused {
            if !raised.iter().any(|finding| fits(places, finding)) {
                score.innocent.push(words(&places[0]));
            }
        }
        for finding in raised.iter().filter(|finding| FIGURES.contains(&&*finding.code)) {
            if !accused.iter().any(|places| fits(places, finding)) {
                let name = format!("{}@{}", finding.code, finding.subject);
                score.missed.push(name);
            }
        }
        score
    }
}

/// Returns the parts in words.
pub(crate) fn words(parts: &[Part]) -> String {
    let words: Vec<String> = parts.iter().map(ToString::to_string).collect();
    words.join(" + ")
}

/// Returns true if the parts of a cause are at the place of a finding: the same part, one of the same GPU, or for a
/// finding on the machine anything that several GPUs share.
fn is_at(parts: &[Part], subject: &Subject, report: &Report) -> bool {
    let gpus: BTreeSet<u32> = parts.iter().flat_map(|part| gpus_of(*part, report)).collect();
    let few = report.snapshot.gpus.len() <= 2;
    match subject {
        Subject::Machine => few || parts.len() > 1 || parts.iter().any(|part| is_shared(*part)),
        Subject::Gpu { index } | Subject::Link { index, .. } => {
            gpus.contains(index) && (few || gpus.len() <= 2 || parts.len() > 1)
        }
        Subject::Pair(pair) => {
            let ends = BTreeSet::from([pair.source, pair.destination]);
            gpus == ends || (few && !gpus.is_empty())
        }
        Subject::PcieLink { address } | Subject::PciFunction { address } => {
            let below = report
                .topology
                .links
                .iter()
                .filter_map(|link| link.pcie.as_ref())
                .find(|link| link.below == Some(*address));
            let below: BTreeSet<u32> =
                below.into_iter().flat_map(|link| link.gpus.clone()).collect();
            parts.contains(&Part::Link(NodeId::Pci(*address))) || gpus == below
        }
    }
}

/// Returns true if the finding lists exactly the GPUs of these parts.
fn lists(finding: &Finding, parts: &[Part], report: &Report) -> bool {
    let gpus = parts.iter().flat_map(|part| gpus_of(*part, report));
    let gpus: BTreeSet<u32> = gpus.collect();
    let mut facts = finding.evidence.into_iter();
    facts.any(|(name, fact)| match fact {
        Fact::Gpus(listed) if name == "gpus" => gpus == listed.iter().copied().collect(),
        _ => false,
    })
}

/// Returns true for what GPUs have in common.
fn is_shared(part: Part) -> bool {
    match part {
        Part::Class(_) | Part::Machine | Part::Memory(_) | Part::Interconnect(..) => true,
        Part::Link(node) => !node.is_gpu(),
        _ => false,
    }
}
