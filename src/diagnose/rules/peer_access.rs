//! What the rules on peer access share: which GPU reaches which, according to CUDA or NVML, and
//! which pairs are comparable.

use super::prelude::*;
use std::collections::HashMap;

use crate::model::measurement::PeerAccess;
use crate::topology::{nvlink, passes_nvswitch};

/// Whether the source reaches the destination's memory: CUDA's answer where it was asked, otherwise
/// NVML's. An error of CUDA counts as no access.
pub fn access(evidence: &Evidence<'_>, route: &PairRoute) -> Option<bool> {
    if errored(evidence, route.pair) {
        return Some(false);
    }
    let said = &route.peer_access;
    said.cuda.or_else(|| {
        let words = [said.nvml_read, said.nvml_write].map(|word| word.filter(|word| *word != P2pStatus::Unknown));
        let refused = words.iter().flatten().any(|word| *word != P2pStatus::Ok);
        words.iter().any(Option::is_some).then_some(!refused)
    })
}

/// Whether CUDA was asked about this pair and gave an error. A GPU that could not be opened was not
/// asked, nor was a pair that a limit of the process was in the way of: other rules report that.
pub fn errored(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let said = evidence.measurements.and_then(|measurements| measurements.driver.said_of(pair));
    said.is_some_and(|said| said.failure.is_some() && !said.hindered)
}

/// NVML's answer and what it means.
pub fn nvml_word(said: &PeerAccess) -> String {
    let word =
        |word: Option<P2pStatus>| word.map_or("nothing".to_owned(), |word| format!("{word} ({})", word.meaning()));
    if said.nvml_read == said.nvml_write {
        word(said.nvml_read)
    } else {
        format!("{} for reading, {} for writing", word(said.nvml_read), word(said.nvml_write))
    }
}

/// CUDA's answer.
pub fn cuda_word(said: &PeerAccess) -> String {
    match (said.cuda, &said.cuda_failure) {
        (Some(true), Some(why)) => format!("yes, and then {why}"),
        (Some(true), None) => "yes".into(),
        (Some(false), _) => "no".into(),
        (None, Some(why)) => format!("gave an error ({why})"),
        (None, None) => "was not asked".into(),
    }
}

/// What staged copies reach, in the reference placement or else in the first that was measured.
pub fn staged_rates(evidence: &Evidence<'_>) -> HashMap<Pair, GbPerSecond> {
    let cells = evidence.peer();
    let staged = cells.iter().filter(|cell| cell.setup.path == Path::Staged && cell.status == Status::Measured);
    let mut rates = HashMap::new();
    for cell in staged {
        if let Some(rate) = cell.achieved_gbps {
            rates.entry(cell.pair).or_insert(rate);
        }
    }
    let reference = evidence.reference(Path::Staged);
    rates.extend(reference.into_iter().filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?))));
    rates
}

/// Whether MIG mode is on at one end.
pub fn in_mig(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let mig = |index| evidence.snapshot.gpu(index).is_some_and(|gpu| gpu.mig.get() == Some(true));
    mig(pair.source) || mig(pair.destination)
}

/// Distance of a class; NVLinks are near however many they are.
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

/// The models of a pair's GPUs, in one order.
type Models<'a> = [Option<&'a String>; 2];

fn models<'a>(evidence: &Evidence<'a>, pair: Pair) -> Models<'a> {
    let model = |index| evidence.snapshot.gpu(index).and_then(|gpu| gpu.name.known());
    let (one, other) = (model(pair.source), model(pair.destination));
    if one < other { [one, other] } else { [other, one] }
}

/// How far apart two GPUs of these models are that have access nevertheless: the farthest of them.
/// A nearer pair proves nothing (many machines allow it below one switch only), unless it is near
/// through an NVSwitch, which should connect the others as well.
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

/// Whether for each of these routes a pair of the same models has access that is nearer.
pub fn nearer_pairs_have_it(evidence: &Evidence<'_>, routes: &[&PairRoute]) -> bool {
    let mut nearest = HashMap::new();
    for route in evidence.topology.pairs.iter().filter(|route| access(evidence, route) == Some(true)) {
        let near = nearest.entry(models(evidence, route.pair)).or_insert(u8::MAX);
        *near = distance(route.class).min(*near);
    }
    let has = |route: &&PairRoute| {
        nearest.get(&models(evidence, route.pair)).is_some_and(|near| *near < distance(route.class))
    };
    routes.iter().all(has)
}

/// Whether the GPUs of a pair are of different models, and pairs of one of these models have access, or NVML
/// grants it to them: one of those that lacks it has a reason of its own.
pub fn models_differ(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let [one, other] = models(evidence, pair);
    if one.is_none() || other.is_none() || one == other {
        return false;
    }
    let of_one_model = |route: &&PairRoute| [[one; 2], [other; 2]].contains(&models(evidence, route.pair));
    let has = |route: &PairRoute| access(evidence, route) == Some(true) || is_granted(&route.peer_access);
    let alike: Vec<_> = evidence.topology.pairs.iter().filter(of_one_model).collect();
    alike.is_empty() || alike.into_iter().any(has)
}

/// Whether active NVLinks lead from one GPU of a pair to the other, whatever NVML says of using them.
pub fn connected_by_nvlink(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let ends = evidence.snapshot.gpu(pair.source).zip(evidence.snapshot.gpu(pair.destination));
    ends.is_some_and(|(source, destination)| {
        nvlink::direct(source, destination).is_some() && nvlink::direct(destination, source).is_some()
    })
}

/// Whether NVML grants access both to read and to write.
fn is_granted(said: &PeerAccess) -> bool {
    [said.nvml_read, said.nvml_write] == [Some(P2pStatus::Ok); 2]
}

/// The first answer of NVML, for reading or writing, that is a refusal.
pub fn refusal(said: &PeerAccess) -> Option<P2pStatus> {
    let words = [said.nvml_read, said.nvml_write];
    words.into_iter().flatten().find(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown))
}

/// Pairs that lack access, in kinds that are judged apart.
pub struct Missing<'a> {
    /// CUDA gave an error instead of an answer.
    pub errored: Vec<&'a PairRoute>,
    /// A pair has it in the other direction.
    pub one_way: Vec<&'a PairRoute>,
    /// Another pair like it has it, or active NVLinks connect the two.
    pub odd: Vec<&'a PairRoute>,
    /// No pair like it has it.
    pub usual: Vec<&'a PairRoute>,
    /// Every pair whose access is known.
    pub seen: Vec<Pair>,
}

/// Sorts the pairs that lack access.
pub fn missing<'a>(evidence: &Evidence<'a>) -> Missing<'a> {
    let routes = &evidence.topology.pairs;
    let seen = routes.iter().filter(|route| access(evidence, route).is_some()).map(|route| route.pair).collect();
    let mut missing = Missing { errored: Vec::new(), one_way: Vec::new(), odd: Vec::new(), usual: Vec::new(), seen };
    let farthest = farthest_with_access(evidence);
    let like_pair_has_it = |route: &PairRoute| {
        farthest.get(&models(evidence, route.pair)).is_some_and(|far| *far >= distance(route.class))
    };
    for route in routes.iter().filter(|route| access(evidence, route) == Some(false)) {
        let back = evidence.topology.route(route.pair.reversed());
        let kind = if errored(evidence, route.pair) {
            &mut missing.errored
        } else if in_mig(evidence, route.pair) {
            &mut missing.usual
        } else if back.is_some_and(|back| access(evidence, back) == Some(true)) {
            &mut missing.one_way
        } else if connected_by_nvlink(evidence, route.pair) || like_pair_has_it(route) {
            &mut missing.odd
        } else {
            &mut missing.usual
        };
        kind.push(route);
    }
    missing
}

/// A finding on pairs without access: `message`, followed by NVML's answer, CUDA's answer and the
/// rate of the staged copies.
pub fn found(
    rule: &Rule,
    evidence: &Evidence<'_>,
    subject: Subject,
    message: String,
    routes: &[&PairRoute],
    next_step: String,
) -> Finding {
    let nvml = words::distinct(routes.iter().map(|route| nvml_word(&route.peer_access)));
    let cuda = words::distinct(routes.iter().map(|route| cuda_word(&route.peer_access)));
    let rates = staged_rates(evidence);
    let (lowest, highest) = links::range(routes.iter().filter_map(|route| rates.get(&route.pair)).copied());
    let measured = match (lowest, highest) {
        (Some(low), Some(high)) if low.to_string() == high.to_string() => {
            format!("; staged copies reach {low} GB/s")
        }
        (Some(low), Some(high)) => format!("; staged copies reach {low} to {high} GB/s"),
        _ => String::new(),
    };
    let pairs: Vec<_> = routes.iter().map(|route| route.pair).collect();
    rule.finding(subject, format!("{message}. NVML says {nvml}, CUDA {cuda}{measured}"), next_step)
        .fact("nvml_read_write", nvml)
        .fact("cuda", cuda)
        .fact("staged_lowest", lowest)
        .fact("staged_highest", highest)
        .pairs(&pairs)
}
