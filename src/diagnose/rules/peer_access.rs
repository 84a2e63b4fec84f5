//! Shared by the rules on peer access: which GPU reaches which, according to CUDA or NVML, and which pairs are
//! comparable.

use super::host;
use super::nvlink_missing::may_have_bridge;
use super::prelude::*;
use std::collections::HashMap;

use model::cuda::CUDA_TOO_MANY_PEERS;
use model::measurement::PeerAccess;
use topology::{nvlink, passes_nvswitch};

/// Returns true if the source reaches the destination's memory: CUDA's answer if CUDA was asked, otherwise NVML's. An
/// error of CUDA counts as no access.
pub(super) fn access(evidence: &Evidence<'_>, route: &PairRoute) -> Option<bool> {
    if errored(evidence, route.pair) {
        return Some(false);
    }
    let said = &route.peer_access;
    said.cuda.or_else(|| {
        let words = [said.nvml_read, said.nvml_write]
            .map(|word| word.filter(|word| *word != P2pStatus::Unknown));
        let refused = words.iter().flatten().any(|word| *word != P2pStatus::Ok);
        words.iter().any(Option::is_some).then_some(!refused)
    })
}

/// Returns true if CUDA was asked about this pair and returned an error. A GPU that could not be opened was not asked,
/// nor was a pair that a limit of the process hindered, or the connections of other programs: other rules report those.
pub(super) fn errored(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let said = evidence.measured().driver.said_of(pair);
    said.is_some_and(|said| {
        let is_taken = said.failure_code == Some(CUDA_TOO_MANY_PEERS);
        said.failure.is_some() && !said.hindered && !is_taken
    })
}

/// Returns NVML's answer and its meaning.
pub(super) fn nvml_word(said: &PeerAccess) -> String {
    let word = |word: Option<P2pStatus>| {
        word.map_or("nothing".to_owned(), |word| format!("{word} ({})", word.meaning()))
    };
    if said.nvml_read == said.nvml_write {
        word(said.nvml_read)
    } else {
        format!("{} for reading, {} for writing", word(said.nvml_read), word(said.nvml_write))
    }
}

/// Returns CUDA's answer; `None` if it was not asked.
pub(super) fn cuda_word(said: &PeerAccess) -> Option<String> {
    Some(match (said.cuda, &said.cuda_failure) {
        (Some(true), Some(why)) => format!("yes, and then {why}"),
        (Some(true), None) => "yes".into(),
        (Some(false), _) => "no".into(),
        (None, Some(why)) => format!("gave an error ({why})"),
        (None, None) => return None,
    })
}

/// Returns the rates of staged copies, in the reference placement or else in the first that was measured.
pub(super) fn staged_rates(evidence: &Evidence<'_>) -> HashMap<Pair, GbPerSecond> {
    let cells = evidence.peer();
    let staged = cells
        .iter()
        .filter(|cell| cell.setup.path == Path::Staged && cell.ending.status == Status::Measured);
    let mut rates = HashMap::new();
    for cell in staged {
        if let Some(rate) = cell.achieved_gbps {
            rates.entry(cell.pair).or_insert(rate);
        }
    }
    let reference = evidence.reference(Path::Staged);
    rates
        .extend(reference.into_iter().filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?))));
    rates
}

/// Returns true if MIG mode is on at one end.
pub(super) fn in_mig(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let mig = |index| evidence.snapshot.gpu(index).is_some_and(|gpu| gpu.mig.get() == Some(true));
    mig(pair.source) || mig(pair.destination)
}

/// Returns the distance of a class; NVLinks are near, whatever their number.
fn distance(class: LinkClass) -> u8 {
    match class {
        LinkClass::NvLink(_) => 0,
        LinkClass::Pix => 1,
        LinkClass::Pxb => 2,
        LinkClass::Phb => 3,
        LinkClass::Node => 4,
        LinkClass::Sys => 5,
        LinkClass::Unknown => 6,
    }
}

/// The models of a pair's GPUs, sorted.
type Models<'a> = [Option<&'a String>; 2];

fn models<'a>(evidence: &Evidence<'a>, pair: Pair) -> Models<'a> {
    let model = |index| evidence.snapshot.gpu(index).and_then(|gpu| gpu.name.known());
    let (one, other) = (model(pair.source), model(pair.destination));
    if one < other { [one, other] } else { [other, one] }
}

/// Returns, for each pair of models, the distance of the farthest pair that has access. A nearer pair proves nothing
/// (many machines allow it below one switch only). The exception is a pair that is near through an NVSwitch, which
/// should connect the others as well.
fn farthest_with_access<'a>(evidence: &Evidence<'a>) -> HashMap<Models<'a>, u8> {
    let mut farthest = HashMap::new();
    for route in &evidence.topology.pairs {
        if access(evidence, route) == Some(true) {
            let far = if passes_nvswitch(route) { u8::MAX } else { distance(route.class) };
            let known = farthest.entry(models(evidence, route.pair)).or_insert(far);
            *known = far.max(*known);
        }
    }
    farthest
}

/// Returns true if for each of these routes a nearer pair of the same models has access.
pub(super) fn nearer_pairs_have_it(evidence: &Evidence<'_>, routes: &[&PairRoute]) -> bool {
    let mut nearest = HashMap::new();
    for route in
        evidence.topology.pairs.iter().filter(|route| access(evidence, route) == Some(true))
    {
        let near = nearest.entry(models(evidence, route.pair)).or_insert(u8::MAX);
        *near = distance(route.class).min(*near);
    }
    let has = |route: &&PairRoute| {
        nearest.get(&models(evidence, route.pair)).is_some_and(|near| *near < distance(route.class))
    };
    routes.iter().all(has)
}

/// Returns true if the GPUs of a pair are of different models, and pairs of one of these models have access, or NVML
/// grants it to them. A pair of one model that lacks access has another reason.
pub(super) fn models_differ(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let [one, other] = models(evidence, pair);
    if one.is_none() || other.is_none() || one == other {
        return false;
    }
    let of_one_model =
        |route: &&PairRoute| [[one; 2], [other; 2]].contains(&models(evidence, route.pair));
    // If CUDA refuses GPUs of one model too, the models are not the reason.
    let is_granted = |said: &PeerAccess| said.cuda.is_none() && is_granted(said);
    let has =
        |route: &PairRoute| access(evidence, route) == Some(true) || is_granted(&route.peer_access);
    let alike: Vec<_> = evidence.topology.pairs.iter().filter(of_one_model).collect();
    alike.is_empty() || alike.into_iter().any(has)
}

/// Returns true if active NVLinks lead from one GPU of a pair to the other, whatever NVML reports about using them.
pub(super) fn connected_by_nvlink(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let ends = evidence.snapshot.gpu(pair.source).zip(evidence.snapshot.gpu(pair.destination));
    ends.is_some_and(|(source, destination)| {
        nvlink::direct(source, destination).is_some()
            && nvlink::direct(destination, source).is_some()
    })
}

/// Returns true if NVML grants access both to read and to write.
fn is_granted(said: &PeerAccess) -> bool {
    [said.nvml_read, said.nvml_write] == [Some(P2pStatus::Ok); 2]
}

/// Returns the first answer of NVML, for reading or writing, that is a refusal.
pub(super) fn refusal(said: &PeerAccess) -> Option<P2pStatus> {
    let words = [said.nvml_read, said.nvml_write];
    words.into_iter().flatten().find(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown))
}

/// Pairs that lack access, in kinds that are judged separately.
pub(super) struct Missing<'a> {
    /// Pairs for which CUDA returned an error instead of an answer.
    pub errored: Vec<&'a PairRoute>,
    /// Pairs that have access in the other direction.
    pub one_way: Vec<&'a PairRoute>,
    /// Pairs without access although a similar pair has it, or active NVLinks connect the two.
    pub odd: Vec<&'a PairRoute>,
    /// Pairs without access if no similar pair has it.
    pub usual: Vec<&'a PairRoute>,
    /// Every pair whose access is known.
    pub seen: Vec<Pair>,
}

/// Sorts the pairs that lack access.
pub(super) fn missing<'a>(evidence: &Evidence<'a>) -> Missing<'a> {
    let routes = &evidence.topology.pairs;
    let seen = routes
        .iter()
        .filter(|route| access(evidence, route).is_some())
        .map(|route| route.pair)
        .collect();
    let mut missing = Missing {
        errored: Vec::new(),
        one_way: Vec::new(),
        odd: Vec::new(),
        usual: Vec::new(),
        seen,
    };
    let farthest = farthest_with_access(evidence);
    let like_pair_has_it = |route: &PairRoute| {
        // Output of other tools may not show which pairs are alike.
        if evidence.read_from.is_some() && route.class == LinkClass::Unknown {
            return !may_have_bridge(evidence, route.pair.source)
                && farthest.contains_key(&models(evidence, route.pair));
        }
        farthest.get(&models(evidence, route.pair)).is_some_and(|far| *far >= distance(route.class))
    };
    let lacking: Vec<Pair> = routes
        .iter()
        .filter(|route| access(evidence, route) == Some(false))
        .map(|route| route.pair)
        .collect();
    let by_host = evidence.virtual_machine() && cliques(evidence, &lacking);
    for route in routes.iter().filter(|route| access(evidence, route) == Some(false)) {
        let back = evidence.topology.route(route.pair.reversed());
        let kind = if errored(evidence, route.pair) {
            &mut missing.errored
        } else if in_mig(evidence, route.pair) {
            &mut missing.usual
        } else if back.is_some_and(|back| access(evidence, back) == Some(true)) {
            &mut missing.one_way
        } else if connected_by_nvlink(evidence, route.pair) || (like_pair_has_it(route) && !by_host)
        {
            &mut missing.odd
        } else {
            &mut missing.usual
        };
        kind.push(route);
    }
    missing
}

/// Returns a finding on pairs without access: `message`, followed by NVML's answer, CUDA's answer and the rate of the
/// staged copies.
pub(super) fn found(
    rule: &Rule,
    evidence: &Evidence<'_>,
    subject: Subject,
    message: String,
    pairs: &[Pair],
    plan: impl Into<Plan>,
) -> Finding {
    let routes: Vec<&PairRoute> =
        pairs.iter().filter_map(|pair| evidence.topology.route(*pair)).collect();
    let nvml = words::distinct(routes.iter().map(|route| nvml_word(&route.peer_access)));
    let cuda = routes.iter().filter_map(|route| cuda_word(&route.peer_access));
    let cuda = Some(words::distinct(cuda)).filter(|said| !said.is_empty());
    let rates = staged_rates(evidence);
    let (lowest, highest) =
        links::range(routes.iter().filter_map(|route| rates.get(&route.pair)).copied());
    let span = host::span([lowest, highest].into_iter().flatten().map(|rate| rate.0));
    let measured = words::after("; staged copies reach ", span.map(|span| span + " GB/s"));
    let asked = words::after(", CUDA ", cuda.as_ref());
    rule.finding(subject, format!("{message}; NVML says {nvml}{asked}{measured}"), plan)
        .fact("staged_lowest", lowest)
        .fact("staged_highest", highest)
        .pairs(pairs)
}

/// Returns true if NVIDIA's driver refuses peer access over PCIe on this board: GeForce and TITAN since Turing. The
/// architecture decides if it is known, otherwise the name.
pub(super) fn refused_by_policy(gpu: &Gpu) -> bool {
    let name = gpu.name.known().map_or("", String::as_str);
    if !name.contains("GeForce") && !name.contains("TITAN RTX") {
        return false;
    }
    match gpu.architecture.known() {
        Some(architecture) => {
            !["Kepler", "Maxwell", "Pascal", "Volta"].iter().any(|old| architecture.contains(old))
        }
        None => name.contains("RTX") || name.contains("GTX 16"),
    }
}

/// Returns true if the driver grants one of these pairs peer access over PCIe that NVIDIA's own refuses on such boards.
pub(super) fn patched(evidence: &Evidence<'_>, pairs: &[Pair]) -> bool {
    let by_policy = |gpu: u32| evidence.snapshot.gpu(gpu).is_some_and(refused_by_policy);
    pairs.iter().any(|pair| {
        let route = evidence.topology.route(*pair);
        evidence.over_pcie(*pair)
            && (by_policy(pair.source) || by_policy(pair.destination))
            && route.is_some_and(|route| access(evidence, route) == Some(true))
    })
}

/// Returns the driver as a suspect if it grants what NVIDIA's own refuses.
pub(super) fn suspect_patched(evidence: &Evidence<'_>, pairs: &[Pair]) -> Option<Suspect> {
    patched(evidence, pairs).then(|| suspect(Cause::Patched, [Step::OwnDriver]))
}

/// Returns true if a pair of GPUs of this one's generation, all of which the policy refuses, has access over PCIe. The
/// driver is then patched, and the policy is not why other pairs lack access.
pub(super) fn generation_has_it(evidence: &Evidence<'_>, gpu: &Gpu) -> bool {
    let alike = |index: u32| {
        let other = evidence.snapshot.gpu(index).filter(|other| refused_by_policy(other));
        other.is_some_and(|other| match (gpu.architecture.known(), other.architecture.known()) {
            (Some(one), Some(other)) => one == other,
            _ => gpu.name.known() == other.name.known(),
        })
    };
    let pairs =
        evidence.topology.pairs.iter().filter(|route| access(evidence, route) == Some(true));
    pairs.map(|route| route.pair).any(|pair| {
        alike(pair.source)
            && alike(pair.destination)
            && evidence.over_pcie(pair)
            && !connected_by_nvlink(evidence, pair)
    })
}

/// Returns true if these are all pairs between groups of several GPUs each, as a host of virtual machines makes them
/// (cliques). The bus that such a machine shows does not tell which pairs are alike.
fn cliques(evidence: &Evidence<'_>, missing: &[Pair]) -> bool {
    islands(evidence, missing).is_some_and(|islands| islands.iter().all(|island| island.len() > 1))
}

/// Returns the groups of GPUs within which every pair has access, if these pairs are all those between the groups.
/// Returns `None` if access does not fall into such groups.
pub(super) fn islands(evidence: &Evidence<'_>, missing: &[Pair]) -> Option<Vec<Vec<u32>>> {
    let missing: BTreeSet<Pair> = missing.iter().copied().collect();
    let mut islands: Vec<Vec<u32>> = Vec::new();
    let reaches = |one: u32, other: u32| {
        let there = Pair { source: one, destination: other };
        !missing.contains(&there) && !missing.contains(&there.reversed())
    };
    let gpus: BTreeSet<u32> =
        suspects::gpus_of(evidence.topology.pairs.iter().map(|route| &route.pair));
    for gpu in gpus {
        match islands.iter_mut().find(|island| island.iter().all(|other| reaches(gpu, *other))) {
            Some(island) => island.push(gpu),
            None => islands.push(vec![gpu]),
        }
    }
    let island_of = |gpu: u32| islands.iter().position(|island| island.contains(&gpu));
    let between =
        |route: &&PairRoute| island_of(route.pair.source) != island_of(route.pair.destination);
    let all_between: BTreeSet<Pair> =
        evidence.topology.pairs.iter().filter(between).map(|route| route.pair).collect();
    (all_between == missing && islands.len() > 1).then_some(islands)
}
