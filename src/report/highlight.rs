//! The GPUs and pairs that findings are about, so that matrices can mark them in colour. The findings themselves are
//! above, in words.

use std::collections::{HashMap, HashSet};

use super::matrix::Cell;
use super::page::Paint;
use model::fact::Fact;
use model::finding::{Finding, Severity, Subject};
use model::placement::Pair;

/// The worst severity of the findings about each GPU and pair.
#[derive(Debug, Default)]
pub(super) struct Highlights {
    gpus: HashMap<u32, Paint>,
    pairs: HashMap<Pair, Paint>,
    /// Pairs that a warning or an error is about, or whose copies it slows.
    affected: HashSet<Pair>,
}

impl Highlights {
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut highlights = Self::default();
        for finding in findings {
            let paint = paint(finding.severity);
            if finding.severity > Severity::Info {
                let facts = finding.evidence.into_iter();
                let slowed = facts.filter_map(|(_, fact)| match fact {
                    Fact::Pairs(pairs) => Some(pairs),
                    _ => None,
                });
                highlights.affected.extend(slowed.flatten());
                highlights.affected.extend(&finding.scope.pairs);
            }
            match finding.subject {
                Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => {}
                Subject::Gpu { index } | Subject::Link { index, .. } => {
                    let worst = highlights.gpus.entry(index).or_default();
                    *worst = paint.max(*worst);
                }
                Subject::Pair(pair) => {
                    let worst = highlights.pairs.entry(pair).or_default();
                    *worst = paint.max(*worst);
                }
            }
        }
        highlights
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

/// Returns the pairs that a finding is about.
pub(super) fn pairs(finding: &Finding) -> Vec<Pair> {
    let subject = match finding.subject {
        Subject::Pair(pair) => Some(pair),
        _ => None,
    };
    let others = finding.scope.pairs.iter().copied().filter(|pair| Some(*pair) != subject);
    subject.into_iter().chain(others).collect()
}

/// Returns the GPUs that a finding is about, not counting those of its pairs.
pub(super) fn gpus(finding: &Finding) -> Vec<u32> {
    match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
        _ if finding.scope.pairs.is_empty() => finding.scope.gpus.clone(),
        _ => Vec::new(),
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
