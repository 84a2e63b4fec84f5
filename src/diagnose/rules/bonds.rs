//! NVLinks as the matrix of another tool counts them: pairs with fewer than their model has, or than others have.

use super::bridges;
use super::prelude::*;
use crate::models::{self, is_sxm};

/// Most NVLinks of a GPU: 18 on H100, H200, B200 and GB200.
const MOST: u8 = 18;

/// Returns the number of links of this pair in a matrix.
fn links(snapshot: &Snapshot, pair: Pair) -> Option<u8> {
    let of_pair =
        |bond: &&NvLinkBond| bond.source == pair.source && bond.destination == pair.destination;
    let bond = snapshot.bonds.iter().find(of_pair).map(|bond| bond.links);
    bond.or_else(|| snapshot.pair(pair)?.common_ancestor.known().map(|_| 0))
}

/// Returns true if a matrix shows that no NVLink joins these GPUs.
pub(super) fn none(evidence: &Evidence<'_>, gpus: &[&Gpu]) -> bool {
    let indices: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
    evidence.read_from.is_some()
        && gpus.iter().all(|gpu| gpu.nvlinks.known().is_none())
        && Pair::ordered(&indices).iter().all(|pair| links(evidence.snapshot, *pair) == Some(0))
}

/// Returns the number of links that this model has.
fn made(model: &str) -> Option<u8> {
    let switched = || models::switched_links(model).filter(|_| is_sxm(model));
    let of_bridges = bridges::links_of_bridges(model).and_then(|links| u8::try_from(links).ok());
    of_bridges.or_else(switched)
}

/// Returns a sentence for each count that no such GPU can have.
pub(super) fn impossible(snapshot: &Snapshot) -> Vec<String> {
    let beyond = |bond: &NvLinkBond| {
        let name = snapshot.gpu(bond.source)?.name.known().map_or("a GPU", String::as_str);
        let (one, other, links) = (bond.source, bond.destination, bond.links);
        let most = made(name).unwrap_or(MOST);
        (one < other && links > most).then(|| {
            format!("NV{links} of GPU {one} and GPU {other} cannot be: {name} has {most} NVLinks at most")
        })
    };
    snapshot.bonds.iter().filter_map(beyond).collect()
}

/// Returns a finding for each place where the matrix has fewer links than there should be.
pub(super) fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = evidence.snapshot.gpus.iter().filter(|gpu| gpu.mig.get() != Some(true));
    let models = words::grouped(gpus.map(|gpu| (gpu.name.known(), gpu.index)));
    models.iter().flat_map(|(model, gpus)| fewer(rule, evidence, *model, gpus)).collect()
}

fn fewer(
    rule: &Rule,
    evidence: &Evidence<'_>,
    model: Option<&String>,
    gpus: &[u32],
) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let counted = |pair: Pair| Some((pair, links(snapshot, pair)?));
    let counts: BTreeMap<Pair, u8> = Pair::ordered(gpus).into_iter().filter_map(counted).collect();
    let most = counts.values().copied().max().unwrap_or_default();
    let made = model.and_then(|model| made(model));
    let card = made.is_some() && !model.is_some_and(|model| is_sxm(model));
    // More links to all others together than a GPU has lead to switches, which connect all of them to each.
    let sum: usize = counts.values().copied().map(usize::from).sum();
    let switched = made.map_or(sum > gpus.len() * usize::from(MOST), |made| most > made / 2);
    if most > made.unwrap_or(MOST) || !(card || switched) {
        return Vec::new();
    }
    let should = made.unwrap_or(most);
    let is_short = |links: u8| links < should && (links > 0 || !card);
    let short = counts.iter().filter(|(_, links)| is_short(**links));
    let bad: Vec<Pair> = short.map(|(pair, _)| *pair).collect();
    let normal = match model.filter(|_| made.is_some()) {
        Some(model) if card => format!("bridges of {model} carry {should}"),
        Some(model) => format!("{model} has {should}"),
        None => format!("others have NV{should}"),
    };
    let finding = |group: Group| {
        let of = group.pairs.iter().filter_map(|pair| counts.get(pair));
        let of = words::distinct(of.map(|links| format!("NV{links}").replace("NV0", "none")));
        let message = format!("NVLinks {}: {of} by the matrix, {normal}", evidence.place(&group));
        let fix = if card { Step::Reseat(Part::Bridge) } else { Step::FabricManager };
        let plan = [Step::LinkStates, fix, Step::XidOf("74"), Step::PowerCycle];
        rule.on_group(&group, message, plan)
    };
    // Links listed one by one say the same, with their numbers.
    let listed = |gpu: &u32| snapshot.gpu(*gpu).is_some_and(|gpu| gpu.nvlinks.known().is_some());
    let seen: Vec<Pair> = counts.keys().copied().collect();
    let mut groups = evidence.groups(&bad, &seen);
    groups.retain(|group| !group.gpus().iter().any(listed));
    groups.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use ::model::pasted::Pasted;
    use ::model::snapshot::GpuPair;
    use ::model::topology::Topology;

    /// Returns a machine whose matrix has these links; 0 is PHB.
    fn machine(name: Option<&str>, gpus: u32, links: impl Fn(Pair) -> u8) -> Snapshot {
        let mut machine = empty();
        for index in 0..gpus {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            gpu.name = name.map_or(gpu.name, |name| Reading::Known(name.into()));
            machine.gpus.push(gpu);
        }
        let gpus: Vec<u32> = (0..gpus).collect();
        for pair in Pair::ordered(&gpus) {
            let (source, destination) = (pair.source, pair.destination);
            let mut said = GpuPair::unread(source, destination, &Unknown::Unsupported);
            match links(pair) {
                0 => said.common_ancestor = Reading::Known(CommonAncestor::HostBridge),
                links => machine.bonds.push(NvLinkBond {
                    source,
                    destination,
                    links,
                    version: None,
                    speed_mbps: None,
                    over_switches: false,
                }),
            }
            machine.pairs.push(said);
        }
        machine
    }

    fn messages(machine: &Snapshot) -> Vec<String> {
        let (pasted, topology, settings) =
            (Pasted::default(), Topology::default(), Settings::default());
        let found = crate::rules::nvlink_missing::RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(machine, &topology, None, &settings)
        });
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_matrix_shows_pairs_with_too_few_links() {
        let outside = |pair: Pair| if pair.touches(2) { 0 } else { 18 };
        let found = messages(&machine(None, 8, outside));
        assert_eq!(
            found,
            ["NVLinks between GPU 2 and 7 GPUs: none by the matrix, others have NV18"]
        );
        let found = messages(&machine(Some("NVIDIA A100-SXM4-80GB"), 8, |_| 10));
        assert!(found[0].contains("NV10 by the matrix, NVIDIA A100-SXM4-80GB has 12"), "{found:?}");
        let found = messages(&machine(Some("NVIDIA RTX A6000"), 2, |_| 3));
        assert!(found[0].contains("bridges of NVIDIA RTX A6000 carry 4"), "{found:?}");
        let found = messages(&machine(Some("NVIDIA A800-SXM4-80GB"), 4, |_| 0));
        assert!(found[0].contains("all PHB as in a virtual machine"), "{found:?}");
    }

    #[test]
    fn whole_meshes_bridged_pairs_and_cards_are_sound() {
        let pairs = |pair: Pair| if pair.source / 2 == pair.destination / 2 { 4 } else { 0 };
        for sound in [
            machine(None, 4, |_| 6),
            machine(Some("NVIDIA H100 80GB HBM3"), 4, |_| 6),
            machine(Some("NVIDIA H100 NVL"), 2, |_| 12),
            machine(Some("NVIDIA B200"), 8, |_| 18),
            machine(Some("NVIDIA RTX A6000"), 4, pairs),
            machine(Some("NVIDIA L40S"), 4, |_| 0),
        ] {
            assert_eq!(messages(&sound), [""; 0]);
            assert!(impossible(&sound).is_empty());
        }
        let beyond = machine(Some("NVIDIA A100-SXM4-40GB"), 2, |_| 24);
        assert_eq!(messages(&beyond), [""; 0]);
        assert_eq!(impossible(&beyond).len(), 1);
    }
}
