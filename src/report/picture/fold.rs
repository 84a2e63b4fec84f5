//! Folds similar parts into one, if a machine has more than fit side by side.

use super::parts::{Unit, words};
use crate::figures::ranges;
use crate::paint::Paint;
use model::topology::NodeKind;

/// Most GPUs and adapters that are drawn side by side; with more, they are folded.
const MOST: usize = 24;

/// Folds similar parts, deepest in the tree first, until at most [`MOST`] are side by side. Parts with a finding are
/// not folded.
pub(super) fn fold(mut parts: Vec<Unit>) -> Vec<Unit> {
    for depth in (0..=depth(&parts)).rev() {
        if leaves(&parts) <= MOST {
            break;
        }
        parts = fold_at(parts, depth);
    }
    parts
}

fn depth(parts: &[Unit]) -> usize {
    parts.iter().map(|part| 1 + depth(&part.below)).max().unwrap_or(0)
}

fn leaves(parts: &[Unit]) -> usize {
    parts.iter().map(|part| if part.below.is_empty() { 1 } else { leaves(&part.below) }).sum()
}

fn fold_at(parts: Vec<Unit>, depth: usize) -> Vec<Unit> {
    if depth > 0 {
        let within = |part: Unit| Unit { below: fold_at(part.below.clone(), depth - 1), ..part };
        return parts.into_iter().map(within).collect();
    }
    let mut folded: Vec<(String, Unit)> = Vec::new();
    for part in parts {
        let kind = signature(&part);
        match folded.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, alike)) if !is_marked(&part) => absorb(alike, part),
            _ => folded.push((kind, part)),
        }
    }
    folded.into_iter().map(|(_, part)| part).collect()
}

fn is_marked(part: &Unit) -> bool {
    part.mark >= Paint::Warning || part.lost || part.below.iter().any(is_marked)
}

/// Returns a key that is equal for parts that may be folded.
fn signature(part: &Unit) -> String {
    let above = part.above.as_ref().map(|above| (&above.label, &above.of));
    let below: Vec<_> = part.below.iter().map(signature).collect();
    let model = if part.kind == NodeKind::Gpu { part.lines.first() } else { None };
    format!("{:?} {above:?} {model:?} {:?} {} {below:?}", part.kind, part.mark, part.lost)
}

/// Merges the other part into the first, with everything below it.
fn absorb(part: &mut Unit, other: Unit) {
    part.times += other.times;
    part.gpus.extend(other.gpus);
    part.gpus.sort_unstable();
    match part.kind {
        NodeKind::Gpu => {
            part.name = format!("GPU {}", ranges(&part.gpus));
            part.lines.truncate(1);
            part.tip = format!("{}: {} alike", part.name, part.times);
        }
        kind => {
            part.name = format!("{} x {}", part.times, words(kind).1);
            part.lines.clear();
            part.tip.clone_from(&part.name);
        }
    }
    for (mine, its) in part.below.iter_mut().zip(other.below) {
        absorb(mine, its);
    }
}
