//! The GPUs and pairs that findings are about, so that matrices can mark them in colour. The findings themselves are
//! above, in words.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::matrix::Cell;
use super::page::Paint;
use model::fact::Fact;
use model::finding::{Finding, Severity, Subject};
use model::placement::Pair;

/// The worst severity of the findings about each GPU and pair.
pub(super) struct Highlights {
    gpus: HashMap<u32, Paint>,
    pairs: HashMap<Pair, Paint>,
    /// Pairs that a warning or an error is about, or whose copies it slows.
    affected: HashSet<Pair>,
}

impl Highlights {
    pub(super) fn of(findings: &[Finding]) -> Self {
        let bad = findings.iter().filter(|finding| finding.severity > Severity::Info);
        let slowed = bad.clone().flat_map(|finding| &finding.evidence);
        let slowed = slowed.filter_map(|(_, fact)| match fact {
            Fact::Pairs(pairs) => Some(pairs),
            _ => None,
        });
        let affected = bad.map(|finding| &finding.scope.pairs).chain(slowed).flatten();
        Self {
            gpus: worst(findings, gpu),
            pairs: worst(findings, pair),
            affected: affected.copied().collect(),
        }
    }

    pub(super) fn gpu(&self, index: u32) -> Paint {
        self.gpus.get(&index).copied().unwrap_or_default()
    }

    pub(super) fn pair(&self, pair: Pair) -> Paint {
        self.pairs.get(&pair).copied().unwrap_or_default()
    }

    pub(super) fn is_affected(&self, pair: Pair) -> bool {
        self.affected.contains(&pair)
    }

    /// Returns a row or column label as nvidia-smi writes it.
    pub(super) fn label(&self, index: u32) -> Cell {
        Cell::new(format!("GPU{index}"), self.gpu(index))
    }
}

/// Returns the paint of the worst finding about each part.
pub(super) fn worst<'a, K: Eq + Hash, P: IntoIterator<Item = K>>(
    findings: impl IntoIterator<Item = &'a Finding>,
    parts: impl Fn(&'a Finding) -> P,
) -> HashMap<K, Paint> {
    let mut marks = HashMap::new();
    for finding in findings {
        for part in parts(finding) {
            let known: &mut Paint = marks.entry(part).or_default();
            *known = paint(finding.severity).max(*known);
        }
    }
    marks
}

const fn gpu(finding: &Finding) -> Option<u32> {
    match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => Some(index),
        _ => None,
    }
}

const fn pair(finding: &Finding) -> Option<Pair> {
    match finding.subject {
        Subject::Pair(pair) => Some(pair),
        _ => None,
    }
}

/// Returns the pairs that a finding is about.
pub(super) fn pairs(finding: &Finding) -> Vec<Pair> {
    let subject = pair(finding);
    let others = finding.scope.pairs.iter().copied().filter(|pair| Some(*pair) != subject);
    subject.into_iter().chain(others).collect()
}

/// Returns the GPUs that a finding is about, not counting those of its pairs.
pub(super) fn gpus(finding: &Finding) -> Vec<u32> {
    match gpu(finding) {
        Some(index) => vec![index],
        None if finding.scope.pairs.is_empty() => finding.scope.gpus.clone(),
        None => Vec::new(),
    }
}

/// Returns the paint of a severity; information stays plain.
pub(super) const fn paint(severity: Severity) -> Paint {
    match severity {
        Severity::Info => Paint::Plain,
        Severity::Warning => Paint::Warning,
        Severity::Error => Paint::Error,
    }
}
