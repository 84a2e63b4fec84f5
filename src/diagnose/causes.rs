//! One root cause, one finding: effects that a cause explains are laid to it and not told again.
//!
//! An effect is laid to causes only where they explain every one of its pairs, and its figures where
//! they are known: a second fault beside a known one stays a finding of its own.

use std::collections::BTreeSet;

use serde_json::json;

use super::coverage::{self, coverage};
use super::rule::Evidence;
use super::suspects::{self, over_pcie};
use crate::model::finding::{Finding, Subject};
use crate::model::placement::{Pair, Path};
use crate::model::units::GbPerSecond;

/// How a cause explains pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A PCIe link: pairs whose copies pass it, at rates that it allows.
    PcieLink,
    /// NVLinks of a GPU: pairs that use them.
    NvLinks,
    /// A whole GPU: its pairs, where several of them suffer.
    Gpu,
    /// The very pairs that the cause names.
    Pairs,
    /// A setting of the whole machine: slow copies over PCIe where all of them are slow.
    Everything,
    /// Whatever part of the fabric the cause names: pairs with those GPUs, and a driver that does not
    /// start.
    Fabric,
    /// A GPU that cannot be used: what was not tested because of it.
    Lost,
    /// Pairs that ended badly, or may not copy: what was not tested because of that, and the setting of
    /// the machine that is among the suspects.
    Broken,
}

/// Rules whose findings explain those of others: their code, how far they reach, and what they
/// explain. Codes that no rule has are no harm: reports of other versions are judged too.
const CAUSES: &[(&str, Reach, &[&str])] = &[
    ("gpu-unreachable", Reach::Lost, &["not-tested", "nothing-measured"]),
    (
        "fabric-not-ready",
        Reach::Fabric,
        &[
            "nothing-measured",
            "not-tested",
            "peer-access-missing",
            "peer-access-one-way",
            "nvlink-inactive",
            "peer-bandwidth-low",
            "peer-bandwidth-outlier",
        ],
    ),
    (
        "pcie-narrow",
        Reach::PcieLink,
        &["peer-bandwidth-low", "peer-bandwidth-outlier", "staged-slow", "pcie-errors-rose"],
    ),
    (
        "pcie-link-changed",
        Reach::PcieLink,
        &[
            "peer-bandwidth-low",
            "peer-bandwidth-outlier",
            "peer-bandwidth-asymmetric",
            "staged-slow",
            "unstable-measurement",
            "pcie-errors-rose",
        ],
    ),
    (
        "pcie-errors-rose",
        Reach::PcieLink,
        &[
            "peer-bandwidth-low",
            "peer-bandwidth-outlier",
            "peer-bandwidth-asymmetric",
            "staged-slow",
            "unstable-measurement",
        ],
    ),
    // A link that repeats what it sends explains any rate; one that is down is in the theory already.
    (
        "nvlink-errors-rose",
        Reach::NvLinks,
        &["peer-bandwidth-low", "peer-bandwidth-outlier", "peer-bandwidth-asymmetric", "unstable-measurement"],
    ),
    ("nvlink-inactive", Reach::NvLinks, &["peer-bandwidth-outlier", "unstable-measurement"]),
    ("nvlink-fewer-than-siblings", Reach::NvLinks, &["peer-bandwidth-outlier", "unstable-measurement"]),
    (
        "gpu-throttled",
        Reach::Gpu,
        &[
            "peer-bandwidth-low",
            "peer-bandwidth-outlier",
            "peer-bandwidth-asymmetric",
            "peer-copy-uneven",
            "unstable-measurement",
            "staged-slow",
        ],
    ),
    (
        "acs-redirect",
        Reach::Pairs,
        &["peer-bandwidth-low", "peer-bandwidth-outlier", "peer-bandwidth-asymmetric", "unstable-measurement"],
    ),
    // The staged copies show what the links up to the host carry, so an uplink is not what limits these.
    (
        "direct-slower-than-staged",
        Reach::Pairs,
        &[
            "peer-bandwidth-low",
            "peer-bandwidth-outlier",
            "pcie-upstream-bottleneck",
            "iommu-translating",
            "acs-redirect",
        ],
    ),
    (
        "pcie-upstream-bottleneck",
        Reach::Pairs,
        &["peer-bandwidth-low", "peer-bandwidth-outlier", "peer-bandwidth-asymmetric", "staged-slow"],
    ),
    ("iommu-translating", Reach::Everything, &["peer-bandwidth-low", "peer-bandwidth-outlier", "unstable-measurement"]),
    ("peer-copy-hung", Reach::Broken, &["not-tested", "nothing-measured", "iommu-translating", "acs-redirect"]),
    ("peer-copy-failed", Reach::Broken, &["not-tested", "nothing-measured", "iommu-translating", "acs-redirect"]),
    ("peer-data-wrong", Reach::Broken, &["not-tested", "iommu-translating", "acs-redirect"]),
    ("peer-access-broken", Reach::Broken, &["not-tested", "iommu-translating", "acs-redirect"]),
    ("peer-access-one-way", Reach::Broken, &["not-tested"]),
    ("peer-access-missing", Reach::Broken, &["not-tested"]),
    // What slows direct copies over PCIe slows the staged ones of the same pairs on the same links. Other
    // programs on their GPUs are a suspect and no second fault.
    ("peer-bandwidth-low", Reach::Pairs, &["staged-slow", "gpu-busy"]),
    ("peer-bandwidth-outlier", Reach::Pairs, &["gpu-busy"]),
    ("staged-slow", Reach::Pairs, &["gpu-busy"]),
];

/// Causes that are how a machine is built: what they slow is as slow as it has to be, and no fault.
const BY_DESIGN: &[&str] = &["pcie-upstream-bottleneck"];

/// Lays effects to their causes. A cause is as bad as the worst of what is laid to it, but for those
/// that are how a machine is built.
pub fn fold(mut findings: Vec<Finding>, evidence: &Evidence<'_>) -> Vec<Finding> {
    // Mere effects first, then from the end of the table to its head: a cause which is itself an
    // effect is folded with what was laid to it.
    findings.sort_by_key(|finding| std::cmp::Reverse(rank(finding)));
    let mut at = 0;
    while at < findings.len() {
        let effect = findings.remove(at);
        let causes = causes_of(&effect, &findings, evidence);
        if causes.is_empty() {
            findings.insert(at, effect);
            at += 1;
            continue;
        }
        for cause in causes {
            if let Some(cause) = findings.get_mut(cause) {
                lay(&effect, cause);
            }
        }
    }
    for cause in &mut findings {
        show_cells(cause, evidence);
    }
    findings
}

/// The place of a finding's rule among the causes, the strongest first; after all of them where it
/// is none.
fn rank(finding: &Finding) -> usize {
    CAUSES.iter().position(|(code, ..)| *code == finding.code).unwrap_or(CAUSES.len())
}

/// The findings that explain this one together; none where a pair of it stays unexplained.
fn causes_of(effect: &Finding, findings: &[Finding], evidence: &Evidence<'_>) -> Vec<usize> {
    let reach_of = |cause: &Finding| {
        let entry = CAUSES.iter().find(|(code, ..)| *code == cause.code);
        entry.filter(|(_, _, effects)| effects.contains(&effect.code.as_str())).map(|(_, reach, _)| *reach)
    };
    let mut causes: Vec<_> =
        findings.iter().enumerate().filter_map(|(at, cause)| Some((at, cause, reach_of(cause)?))).collect();
    causes.sort_by_key(|(_, cause, _)| rank(cause));
    let alone: Vec<_> = causes
        .iter()
        .filter(|(_, cause, reach)| explains_whole(*reach, cause, effect, evidence))
        .map(|(at, ..)| *at)
        .take(1)
        .collect();
    if !alone.is_empty() {
        return alone;
    }
    let is_gap = ["not-tested", "nothing-measured"].contains(&effect.code.as_str());
    let pairs = if is_gap { untested_pairs(evidence) } else { pairs_of(effect) };
    let mut needed = BTreeSet::new();
    for pair in &pairs {
        let cause = causes.iter().find(|(_, cause, reach)| explains(*reach, cause, effect, *pair, &pairs, evidence));
        let Some((at, ..)) = cause else { return Vec::new() };
        needed.insert(*at);
    }
    needed.into_iter().collect()
}

/// Whether a cause explains an effect that has no pairs.
fn explains_whole(reach: Reach, cause: &Finding, effect: &Finding, evidence: &Evidence<'_>) -> bool {
    match (reach, effect.code.as_str()) {
        (Reach::Fabric, "nothing-measured" | "not-tested") => {
            let failure = evidence.measurements.and_then(|measurements| measurements.driver.failure.as_deref());
            failure.is_some_and(|failure| failure.contains("802"))
        }
        // Links of a fabric that was never started do not come up.
        (Reach::Fabric, "nvlink-inactive") => {
            let (refused, down) = (gpus_of(cause, evidence), gpus_of(effect, evidence));
            let all_down = |index: &u32| {
                let links = evidence.snapshot.gpu(*index).and_then(|gpu| gpu.nvlinks.known());
                links.is_some_and(|links| links.iter().all(|link| link.active.get() == Some(false)))
            };
            !down.is_empty() && down.is_subset(&refused) && down.iter().all(all_down)
        }
        // Of one link, what it came to tells more than what it counted.
        (Reach::PcieLink, "pcie-errors-rose") => cause.subject == effect.subject,
        (Reach::Lost, "not-tested" | "nothing-measured") => {
            let lost = gpus_of(cause, evidence);
            let touches = |pair: Pair| lost.contains(&pair.source) || lost.contains(&pair.destination);
            untested_only_for(&touches, &lost, evidence)
        }
        (Reach::Broken | Reach::Pairs, "iommu-translating" | "acs-redirect") => names_setting(cause, effect),
        (Reach::Pairs, "gpu-busy") => {
            let slowed = listed_pairs(effect, "slowed_pairs");
            let slow = pairs_of(cause);
            !slowed.is_empty() && slowed.iter().all(|pair| slow.contains(pair))
        }
        (Reach::Everything, _) => {
            let pairs = pairs_of(effect);
            let over = evidence.reference(Path::Direct);
            let mut over = over.keys().filter(|pair| over_pcie(evidence, **pair)).peekable();
            over.peek().is_some() && over.all(|pair| pairs.contains(pair))
        }
        _ => false,
    }
}

/// Whether a setting of the machine is among the suspects of a fault: it is then told there, with the
/// test that would show whether it is the cause.
fn names_setting(fault: &Finding, setting: &Finding) -> bool {
    let suspect = match setting.code.as_str() {
        "iommu-translating" => suspects::IOMMU,
        _ => suspects::ACS,
    };
    fault.suspects.iter().any(|known| known.cause.starts_with(suspect))
}

/// The pairs of what was not tested, where pairs are the whole of it: no GPU is missing, no figure
/// stands unverified, and the run came to its end.
fn untested_pairs(evidence: &Evidence<'_>) -> Vec<Pair> {
    let Some(measurements) = evidence.measurements else { return Vec::new() };
    let summary = coverage(measurements);
    let whole = summary.unverified > 0
        || measurements.cut_off
        || measurements.driver.failure.is_some()
        || coverage::unusable(measurements).next().is_some();
    if whole {
        return Vec::new();
    }
    let pairs: BTreeSet<_> =
        coverage::cells(measurements).filter(|cell| !cell.tested()).filter_map(|cell| cell.flow.pair()).collect();
    pairs.into_iter().collect()
}

/// Whether everything that was not tested is of these pairs, no GPUs but these could not be used, and
/// all figures are verified.
fn untested_only_for(pairs: &dyn Fn(Pair) -> bool, gpus: &BTreeSet<u32>, evidence: &Evidence<'_>) -> bool {
    let Some(measurements) = evidence.measurements else { return false };
    let summary = coverage(measurements);
    summary.untested > 0
        && summary.unverified == 0
        && measurements.driver.failure.is_none()
        && coverage::cells(measurements).filter(|cell| !cell.tested()).all(|cell| cell.flow.pair().is_some_and(pairs))
        && coverage::unusable(measurements).all(|(gpu, _)| gpus.contains(&gpu))
}

/// Whether a cause explains what an effect says of one of its pairs.
fn explains(
    reach: Reach,
    cause: &Finding,
    effect: &Finding,
    pair: Pair,
    pairs: &[Pair],
    evidence: &Evidence<'_>,
) -> bool {
    let gpus = gpus_of(cause, evidence);
    let ends = [pair.source, pair.destination].into_iter().filter(|gpu| gpus.contains(gpu)).count();
    let staged = effect.code == "staged-slow";
    match reach {
        Reach::PcieLink => {
            // Copies between two GPUs below one uplink do not pass it, unless they go by the host.
            let passes = ends == 1 || (ends == 2 && (staged || gpus.len() == 1));
            passes && (staged || over_pcie(evidence, pair)) && rate_fits(cause, pair, staged, evidence)
        }
        Reach::NvLinks => ends > 0 && !staged && !over_pcie(evidence, pair),
        Reach::Gpu => {
            let partners: BTreeSet<_> = pairs
                .iter()
                .filter(|pair| gpus.contains(&pair.source) || gpus.contains(&pair.destination))
                .flat_map(|pair| [pair.source, pair.destination])
                .filter(|gpu| !gpus.contains(gpu))
                .collect();
            // A GPU that slows one of many partners only is not what slows it.
            ends > 0 && (partners.len() > 1 || evidence.topology.pairs.len() <= 2)
        }
        Reach::Pairs => (!staged || over_pcie(evidence, pair)) && pairs_of(cause).contains(&pair),
        Reach::Fabric => ends > 0,
        // After a copy that ended badly its pair is left alone in both directions, and so is a GPU of
        // which several did.
        Reach::Broken => {
            let named = pairs_of(cause);
            let of_gpu = cause.code == "peer-copy-hung" && matches!(cause.subject, Subject::Gpu { .. }) && ends > 0;
            let of_all = cause.code == "peer-copy-hung" && cause.subject == Subject::Machine;
            named.contains(&pair) || named.contains(&pair.reversed()) || of_gpu || of_all
        }
        Reach::Lost | Reach::Everything => false,
    }
}

/// Whether the rate of a pair is one that a link of the cause's rate leaves: not above it, and not
/// below what healthy copies reach over such a link. A rate that is not known speaks against nothing.
fn rate_fits(cause: &Finding, pair: Pair, staged: bool, evidence: &Evidence<'_>) -> bool {
    let Some(rate) = cause.evidence.get("rate_gbps").and_then(serde_json::Value::as_f64) else { return true };
    let cells = evidence.reference(if staged { Path::Staged } else { Path::Direct });
    let Some(cell) = cells.get(&pair) else { return true };
    let Some((achieved, expected)) = cell.achieved_gbps.zip(evidence.expected(cell)) else { return true };
    achieved.0 <= rate && achieved.0 >= rate * expected.share.floor_percent() / 100.0
}

/// Makes an effect evidence of its cause.
fn lay(effect: &Finding, cause: &mut Finding) {
    if !BY_DESIGN.contains(&cause.code.as_str()) {
        cause.severity = cause.severity.max(effect.severity);
    }
    let effects = cause.evidence.entry("effects".into()).or_insert_with(|| json!([]));
    if let Some(effects) = effects.as_array_mut() {
        effects.push(json!(format!("{}: {}", effect.code, effect.message)));
        let own = effect.evidence.get("effects").and_then(|own| own.as_array());
        effects.extend(own.into_iter().flatten().cloned());
    }
}

/// Puts the cells that a narrow link slows into its evidence: they are not below what the link
/// allows, and so no other rule tells them.
fn show_cells(cause: &mut Finding, evidence: &Evidence<'_>) {
    if cause.code != "pcie-narrow" {
        return;
    }
    let gpus = gpus_of(cause, evidence);
    let passes = |pair: Pair| gpus.contains(&pair.source) != gpus.contains(&pair.destination);
    let cells = evidence.reference(Path::Direct);
    let cells = cells.values().filter(|cell| passes(cell.pair) && over_pcie(evidence, cell.pair));
    let rates: Vec<_> = cells.filter_map(|cell| Some((cell.pair, cell.achieved_gbps?.0))).collect();
    let highest = rates.iter().map(|(_, rate)| *rate).max_by(f64::total_cmp);
    let lowest = rates.iter().map(|(_, rate)| *rate).min_by(f64::total_cmp);
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return };
    let pairs: Vec<_> = rates.iter().map(|(pair, _)| pair.to_string()).collect();
    cause.evidence.insert("copies_over_it_lowest_gbps".into(), json!(GbPerSecond(lowest)));
    cause.evidence.insert("copies_over_it_highest_gbps".into(), json!(GbPerSecond(highest)));
    cause.evidence.insert("pairs".into(), json!(pairs));
}

/// The GPUs whose copies a cause touches.
fn gpus_of(cause: &Finding, evidence: &Evidence<'_>) -> BTreeSet<u32> {
    let listed = |key: &str| -> Option<BTreeSet<u32>> {
        let list = cause.evidence.get(key)?.as_array()?;
        Some(list.iter().filter_map(|gpu| u32::try_from(gpu.as_u64()?).ok()).collect())
    };
    if let Some(gpus) = listed("gpus_behind").or_else(|| listed("gpus")) {
        return gpus;
    }
    match &cause.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => [*index].into(),
        Subject::PcieLink { address } => {
            let shared = evidence.topology.pcie_links().find(|link| link.below == Some(*address));
            shared.map(|link| link.gpus.iter().copied().collect()).unwrap_or_default()
        }
        Subject::Machine | Subject::Pair(_) => BTreeSet::new(),
    }
}

/// The pairs that a finding's evidence lists.
fn listed_pairs(finding: &Finding, key: &str) -> Vec<Pair> {
    let list = finding.evidence.get(key).and_then(|pairs| pairs.as_array());
    list.into_iter().flatten().filter_map(|pair| pair.as_str()?.parse().ok()).collect()
}

/// The pairs that a finding is about: those in its evidence, or its subject.
fn pairs_of(finding: &Finding) -> Vec<Pair> {
    let pairs = listed_pairs(finding, "pairs");
    match (&finding.subject, pairs.is_empty()) {
        (Subject::Pair(pair), true) => vec![*pair],
        _ => pairs,
    }
}
