//! NVLink bridges between cards: how many links they carry, and bridges that carry fewer.

use super::nvlink_ends::{self, Links};
use super::prelude::*;

/// Returns a finding for each pair of cards whose bridge has fewer links up than bridges of such cards carry. Also
/// returns the cards outside these pairs.
pub(super) fn half_seated<'a>(
    rule: &Rule,
    evidence: &Evidence<'_>,
    model: &str,
    alike: &[&'a Links<'a>],
) -> (Vec<Finding>, Vec<&'a Links<'a>>) {
    let Some(carries) = links_of_bridges(model) else {
        return (Vec::new(), alike.to_vec());
    };
    let mut found = Vec::new();
    let mut of_pairs = BTreeSet::new();
    for (at, one) in alike.iter().enumerate() {
        let joined = |other: &&&Links<'_>| {
            let active = one.active.len();
            (1..carries).contains(&active)
                && [(*one, **other), (**other, *one)]
                    .iter()
                    .all(|(from, to)| nvlink_ends::left_between(from, to) == Some(active))
                    // Other tools list links without their ends.
                    || evidence.read_from.is_some()
                        && one.inactive == other.inactive
                        && one.remotes().chain(other.remotes()).all(|end| end.is_none())
        };
        if let Some(other) = alike.iter().skip(at + 1).find(joined) {
            of_pairs.extend([one.gpu.index, other.gpu.index]);
            found.push(half_a_bridge(rule, evidence, one, other, carries));
        }
    }
    let others = alike.iter().copied().filter(|links| !of_pairs.contains(&links.gpu.index));
    (found, others.collect())
}

/// Links of each of the three bridges between the same two cards.
const LINKS_OF_ONE: usize = 4;

fn half_a_bridge(
    rule: &Rule,
    evidence: &Evidence<'_>,
    one: &Links<'_>,
    other: &Links<'_>,
    carries: usize,
) -> Finding {
    let active = one.active.len();
    let gpus = [one.gpu.index, other.gpu.index];
    let [here, there] = gpus.map(|gpu| evidence.name(gpu));
    let lost = |links: &Links<'_>| {
        let few = links.inactive.len().min(carries - active);
        nvlink_ends::named(&links.inactive[..few], &format!("GPU {}", links.gpu.index))
    };
    let is_whole_bridge = carries > LINKS_OF_ONE && active.is_multiple_of(LINKS_OF_ONE);
    let three_of_one = is_whole_bridge.then_some(Step::ThreeBridges);
    let plan = Plan::now(three_of_one)
        .then([Step::Reseat(Part::Bridge)])
        .if_it_stays([Part::Bridge, Part::of(&gpus)].map(Step::Swap));
    let message = format!(
        "{active} of {carries} NVLinks of the bridge between {here} and {there} are up; {} and {} are down",
        lost(one),
        lost(other)
    );
    let [source, destination] = gpus;
    let pair = Pair { source, destination };
    rule.finding(Subject::Pair(pair), message, plan).at(Severity::Warning).gpus(&gpus)
}

/// Returns how many links the bridges of a card carry, over all bridges that the card takes, by product name. Returns
/// `None` for parts that take no bridge, or whose number of links is not known.
///
/// Sources: NVIDIA's product pages of NVLink bridges and boards (GeForce RTX 2080 Ti, TITAN RTX and Quadro RTX 6000:
/// two links; GA102 boards and A30: four; A100 PCIe, H100 PCIe and H100 NVL: three bridges, twelve links).
pub(super) fn links_of_bridges(model: &str) -> Option<usize> {
    const KNOWN: [(&str, usize); 17] = [
        ("RTX 2080 Ti", 2),
        ("TITAN RTX", 2),
        ("Quadro RTX 6000", 2),
        ("Quadro RTX 8000", 2),
        ("RTX 3090", 4),
        ("RTX A6000", 4),
        ("RTX A5500", 4),
        ("RTX A5000", 4),
        ("RTX A4500", 4),
        ("NVIDIA A40", 4),
        ("NVIDIA A30", 4),
        ("A100-PCIE", 12),
        ("A100 80GB PCIe", 12),
        ("A800 80GB PCIe", 12),
        ("H100 PCIe", 12),
        ("H800 PCIe", 12),
        ("H100 NVL", 12),
    ];
    let (_, links) = KNOWN.iter().find(|(name, _)| model.contains(name))?;
    Some(*links)
}
