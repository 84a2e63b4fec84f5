//! GPUs for which the traffic of other programs could not be read: seeing no traffic there proves nothing.

use super::prelude::*;
use model::background::Background;

/// Adds the reason why the traffic of others over the GPUs of these pairs is not known, if it is not.
pub(super) fn with_reason(found: Finding, evidence: &Evidence<'_>, pairs: &[Pair]) -> Finding {
    let whys = words::distinct(of(evidence, pairs).filter_map(|seen| seen.reason.clone()));
    let fact =
        (!whys.is_empty()).then(|| format!("traffic of other programs could not be read: {whys}"));
    found.fact("other_programs", fact)
}

/// Returns true if there is any GPU of that kind.
pub(super) fn is_possible(evidence: &Evidence<'_>) -> bool {
    let seen = &evidence.measured().background;
    seen.iter().any(|seen| seen.reason.is_some() && seen.is_shared(evidence.snapshot))
}

/// Returns true if a program is known on one of the pair's GPUs whose traffic could not be read: it may be what makes
/// copies slow.
pub(super) fn may_explain(evidence: &Evidence<'_>, pair: Pair) -> bool {
    !shared(evidence, &[pair]).is_empty()
}

/// Returns the GPUs of these pairs whose traffic could not be read and on which a program is known.
pub(super) fn shared(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<u32> {
    words::unique(
        of(evidence, pairs).filter(|seen| seen.is_shared(evidence.snapshot)).map(|seen| seen.gpu),
    )
}

/// Returns the observations of those of their GPUs for which not everything could be read.
fn of<'a>(evidence: &Evidence<'a>, pairs: &[Pair]) -> impl Iterator<Item = &'a Background> {
    let seen = &evidence.measured().background;
    seen.iter()
        .filter(|seen| seen.reason.is_some() && pairs.iter().any(|pair| pair.touches(seen.gpu)))
}
