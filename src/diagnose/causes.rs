//! One root cause, one finding: effects that a cause explains are laid to it and not told again.

use std::collections::BTreeSet;

use serde_json::json;

use super::rule::Evidence;
use crate::model::finding::{Finding, Subject};
use crate::model::placement::Pair;
use crate::topology::pcie;

/// Rules whose findings explain others on the same GPUs or links.
const CAUSES: &[&str] = &["pcie-narrow", "nvlink-inactive"];

/// Rules whose findings are explained by those.
const EFFECTS: &[&str] = &["peer-bandwidth-low", "peer-copy-uneven"];

/// Lays effects to their causes: an effect all of whose pairs have a GPU (or pass a link) that a
/// cause was found on becomes evidence of that cause.
pub fn fold(findings: Vec<Finding>, evidence: &Evidence<'_>) -> Vec<Finding> {
    let (mut causes, others): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| CAUSES.contains(&finding.code.as_str()));
    let gpus: Vec<BTreeSet<u32>> = causes.iter().map(|cause| gpus_of(cause, evidence)).collect();
    let mut left = Vec::new();
    for finding in others {
        let pairs = pairs_of(&finding);
        let explains = |gpus: &BTreeSet<u32>| {
            !pairs.is_empty()
                && pairs.iter().all(|pair| gpus.contains(&pair.source) || gpus.contains(&pair.destination))
        };
        let cause = gpus.iter().position(explains).filter(|_| EFFECTS.contains(&finding.code.as_str()));
        match cause.and_then(|cause| causes.get_mut(cause)) {
            Some(cause) => {
                let effects = cause.evidence.entry("effects".into()).or_insert_with(|| json!([]));
                if let Some(effects) = effects.as_array_mut() {
                    effects.push(json!(format!("{}: {}", finding.code, finding.message)));
                }
            }
            None => left.push(finding),
        }
    }
    causes.extend(left);
    causes
}

/// The GPUs whose copies a cause touches.
fn gpus_of(cause: &Finding, evidence: &Evidence<'_>) -> BTreeSet<u32> {
    match &cause.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => [*index].into(),
        Subject::PcieLink { address } => {
            let links = pcie::links(evidence.snapshot);
            let shared = links.into_iter().find(|(link, _)| link.below == Some(*address));
            shared.map(|(_, gpus)| gpus.into_iter().collect()).unwrap_or_default()
        }
        Subject::Machine | Subject::Pair(_) => BTreeSet::new(),
    }
}

/// The pairs that a finding is about: its subject, or those in its evidence.
fn pairs_of(finding: &Finding) -> Vec<Pair> {
    if let Subject::Pair(pair) = &finding.subject {
        return vec![*pair];
    }
    let list = finding.evidence.get("pairs").and_then(|pairs| pairs.as_array());
    list.into_iter().flatten().filter_map(|pair| pair.as_str()?.parse().ok()).collect()
}
