//! The pairs and GPUs on which everything is measured: all, or some if there are many.

use std::collections::BTreeSet;

use model::placement::Pair;

/// Number of GPUs above which most pairs are measured in the reference placement only. The number of pairs grows with
/// the square of the GPUs: 72 have 5112. Measuring everything on each of them would take hours. Sixteen is the
/// largest number on one board, or in one machine without switches between machines; chosen.
pub(crate) const MOST_GPUS_IN_FULL: usize = 16;

/// Returns the pairs on which everything is measured. Each GPU sends to the next one and to the one half of all GPUs
/// further, so that every GPU sends and receives twice. Returns `None` if everything is measured on all pairs.
pub(crate) fn in_full(gpus: &[u32]) -> Option<BTreeSet<Pair>> {
    if gpus.len() <= MOST_GPUS_IN_FULL {
        return None;
    }
    let steps = [1, gpus.len() / 2];
    let to = |place: usize, step: usize| gpus.get((place + step) % gpus.len()).copied();
    let sends = |(place, &source)| {
        steps.into_iter().filter_map(move |step| Some((source, to(place, step)?)))
    };
    let pairs = gpus.iter().enumerate().flat_map(sends);
    Some(pairs.map(|(source, destination)| Pair { source, destination }).collect())
}

/// Returns the GPUs on which everything that concerns one GPU is measured: all, or some that are spread out.
pub(crate) fn gpus_in_full(gpus: &[u32]) -> BTreeSet<u32> {
    gpus.iter().copied().step_by(gpus.len().div_ceil(MOST_GPUS_IN_FULL).max(1)).collect()
}
