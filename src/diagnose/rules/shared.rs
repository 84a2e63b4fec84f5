//! One cause, one finding: PCIe links of several GPUs that are all in the same state.

use super::prelude::*;

/// A finding on the PCIe link of a GPU.
pub(super) struct OfLink<S> {
    pub found: Finding,
    /// The GPU, if it is its own link.
    pub gpu: Option<u32>,
    /// Links with equal states are alike.
    pub state: S,
    /// The state, for the message on several links.
    pub words: String,
}

/// Fewest GPUs with links in one state that are taken for one cause. Chosen: two of many need not have one.
const LEAST_ALIKE: usize = 3;

/// Returns the findings on all PCIe links, those on alike links merged by `combine`.
pub(super) fn on_pcie_links<S: Ord + Clone>(
    evidence: &Evidence<'_>,
    finding: impl Fn(&Evidence<'_>, &Connection, &[u32]) -> Option<(Finding, S, String)>,
    combine: impl Fn(&Evidence<'_>, Finding, &str, &[u32]) -> Finding,
) -> Vec<Finding> {
    let all = evidence.topology.pcie_links().filter_map(|link| {
        let (found, state, words) = finding(evidence, link, &link.gpus)?;
        Some(OfLink { found, gpu: link.gpu, state, words })
    });
    combined(evidence, all.collect(), |first, words, gpus| combine(evidence, first, words, gpus))
}

/// Merges findings on links that are alike: those of three GPUs or more, and those of all GPUs. `combine` returns the
/// finding on several from the first of them, the words for its state and their GPUs.
pub(super) fn combined<S: Ord + Clone>(
    evidence: &Evidence<'_>,
    all: Vec<OfLink<S>>,
    combine: impl Fn(Finding, &str, &[u32]) -> Finding,
) -> Vec<Finding> {
    let key = |one: &OfLink<S>| (one.found.severity, one.state.clone());
    let mut alike = words::grouped(all.iter().filter_map(|one| Some((key(one), one.gpu?))));
    let everyone = evidence.snapshot.gpus.len();
    alike.retain(|_, gpus| gpus.len() >= LEAST_ALIKE || (gpus.len() > 1 && gpus.len() == everyone));
    let is_alike = |one: &OfLink<S>| one.gpu.is_some() && alike.contains_key(&key(one));
    let (several, single): (Vec<_>, Vec<_>) = all.into_iter().partition(is_alike);
    let mut kept: Vec<Finding> = single.into_iter().map(|one| one.found).collect();
    let groups = words::grouped(several.into_iter().map(|one| (key(&one), (one.found, one.words))));
    for (key, found) in groups {
        let pairs = words::unique(found.iter().flat_map(|(found, _)| found.scope.pairs.clone()));
        let (Some(gpus), Some((first, words))) = (alike.get(&key), found.into_iter().next()) else {
            continue;
        };
        // The facts of the first finding apply to its link only.
        let first =
            Finding { subject: Subject::of_gpus(gpus), evidence: Facts::default(), ..first };
        let found = combine(first, &words, gpus).fact("links", gpus.len());
        kept.push(
            found.fact("gpus_behind", Fact::Gpus(gpus.clone())).about_gpus(gpus).about_pairs(pairs),
        );
    }
    kept
}

/// Returns words such as `GPUs 0-5 (slots 1, 2, 3, 4, 5, 6)`, without slots if one is not known.
pub(super) fn names(evidence: &Evidence<'_>, gpus: &[u32]) -> String {
    let slot =
        |gpu: &u32| topology::pcie::slot(evidence.snapshot, evidence.snapshot.address_of(*gpu)?);
    let slots: Option<Vec<&str>> = gpus.iter().map(slot).collect();
    match slots {
        Some(slots) => format!("{} (slots {})", words::gpus(gpus), slots.join(", ")),
        None => words::gpus(gpus),
    }
}
