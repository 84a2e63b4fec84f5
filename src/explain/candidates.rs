//! The changes worth a try: typed changes of the parts that unexplained figures pass, their numbers still open.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::node::NodeId;
use model::placement::Pair;

use super::hypothesis::{Effect, Hypothesis};
use super::item::{Mode, Modes};
use super::problem::{At, Problem};
use super::resource::{Class, Part, Resource, Way};

/// Most parts that are looked at, those of the worst figures first. A budget: 8 GPUs have fewer.
const MOST_PARTS: usize = 60;

/// Least part of the worst sum of misfits from which a GPU counts among those that share a hidden hop. Chosen.
const AMONG: f64 = 0.4;

/// Figures of copies and reads, alone or not, without those of kernels.
const BY_ENGINE: Modes = Modes::of(&[Mode::Copy, Mode::Read, Mode::BothWays, Mode::Load]);

/// Figures that one kind of fault slows and others do not, and the bits that naming it takes.
const OF_PEERS: [(Modes, f64); 6] = [
    (Modes::of(&[Mode::Read, Mode::KernelRead]), 2.5),
    (Modes::of(&[Mode::KernelWrite, Mode::KernelRead]), 2.5),
    (Modes::of(&[Mode::BothWays]), 2.5),
    (Modes::of(&[Mode::Load]), 3.0),
    (Modes::of(&[Mode::BothWays, Mode::Load]), 2.5),
    (BY_ENGINE, 2.5),
];

/// Bits that it takes to name one direction of a part.
const ONE_WAY: f64 = 1.0;

/// An effect without its number, the figures that it changes, if it needs several flows, and its bits.
type Change = (Effect, Modes, bool, f64);

const CAPACITY: Effect = Effect::Capacity(0.0);
const FACTOR: Effect = Effect::Factor(0.0);

/// Returns the candidates for these unexplained figures, each with its misfit in bits. Numbers are zero.
pub(crate) fn candidates(
    problem: &Problem<'_>,
    unexplained: &BTreeMap<At, f64>,
    changes: &[Hypothesis],
) -> Vec<Hypothesis> {
    let mut candidates = of_parts(problem, &worst(problem, unexplained));
    candidates.extend(hidden(problem, unexplained));
    candidates.extend(both_legs(problem, unexplained));
    candidates.retain(|one| !changes.iter().any(|change| change.excludes(one)));
    candidates
}

/// Returns the resources that unexplained figures pass, each with the sum of their misfits in bits.
fn worst(problem: &Problem<'_>, unexplained: &BTreeMap<At, f64>) -> BTreeMap<Resource, f64> {
    let mut sums = vec![None; problem.resources.len()];
    for (at, bits) in unexplained {
        for number in problem.item(*at).into_iter().flat_map(|item| &item.passes) {
            if let Some(sum) = sums.get_mut(*number) {
                *sum = Some(sum.unwrap_or(0.0) + bits);
            }
        }
    }
    let sums = sums.into_iter().enumerate();
    sums.filter_map(|(number, sum)| Some((problem.resources.get(number)?, sum?))).collect()
}

fn of_parts(problem: &Problem<'_>, worst: &BTreeMap<Resource, f64>) -> Vec<Hypothesis> {
    let mut parts: BTreeMap<Part, f64> = BTreeMap::new();
    for (resource, bits) in worst {
        if resource.way != Way::Both {
            *parts.entry(resource.part).or_default() += bits;
        }
    }
    let mut parts: Vec<(Part, f64)> = parts.into_iter().collect();
    parts.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let eligible = |part: &Part| !matches!(part, Part::Exit(_)) && !problem.is_stood_for(*part);
    let mut candidates = Vec::new();
    for part in parts.into_iter().map(|(part, _)| part).filter(eligible).take(MOST_PARTS) {
        let ways = problem.ways(part);
        let bits = problem.costs.part(part);
        let itself: Rc<[Part]> = Rc::new([part]);
        let mut add = |way: Option<Way>, on: Rc<[Vec<usize>]>, extra: f64| {
            for (effect, modes, under_load, more) in changes_of(part) {
                let more = more
                    + match effect {
                        Effect::Level => problem.level_bits(part),
                        _ => 0.0,
                    };
                candidates.push(Hypothesis {
                    parts: itself.clone(),
                    way,
                    on: on.clone(),
                    effect,
                    modes,
                    under_load,
                    bits: bits + extra + more,
                });
            }
        };
        if let [_, _] = ways.as_slice() {
            for (way, number) in &ways {
                add(Some(*way), Rc::new([vec![*number]]), ONE_WAY);
            }
        }
        add(None, ways.iter().map(|(_, number)| vec![*number]).collect(), 0.0);
        if let Some(number) = problem.resources.known(part, Way::Both)
            && worst.contains_key(&Resource::new(part, Way::Both))
        {
            candidates.push(Hypothesis {
                parts: itself.clone(),
                way: Some(Way::Both),
                on: Rc::new([vec![number]]),
                effect: FACTOR,
                modes: Modes::of(&[Mode::BothWays, Mode::HostBothWays, Mode::Staged]),
                under_load: false,
                bits: bits.max(problem.costs.both_ways()),
            });
        }
    }
    candidates
}

/// Returns the changes that a part can have.
fn changes_of(part: Part) -> Vec<Change> {
    let mut changes = Vec::new();
    if part.is_physical() {
        changes.push((CAPACITY, Modes::ALL, false, 0.0));
    }
    if matches!(
        part,
        Part::Link(NodeId::HostBridge(..) | NodeId::HiddenRoot) | Part::Interconnect(..)
    ) {
        // Requests between GPUs are forwarded by other units than those to memory.
        changes.push((CAPACITY, Modes::DIRECT, false, 1.0));
    }
    let beside_capacity = if part.is_physical() { 0.5 } else { 0.0 };
    if matches!(part, Part::Class(_) | Part::Machine) {
        changes.push((Effect::Level, Modes::ALL, false, 0.0));
    } else {
        changes.push((FACTOR, Modes::ALL, false, beside_capacity));
    }
    let collapses = matches!(
        part,
        Part::Link(_) | Part::NvPort(_) | Part::NvPair(..) | Part::Interconnect(..) | Part::Gpu(_)
    );
    if collapses {
        changes.push((CAPACITY, Modes::ALL, true, 3.0));
    }
    let of_peers = matches!(
        part,
        Part::Gpu(_) | Part::Pair(..) | Part::NvPort(_) | Part::NvPair(..) | Part::Link(_)
    );
    let of_class = matches!(part, Part::Class(Class::NvLink | Class::Pcie(_)));
    if of_peers || of_class {
        let factors = OF_PEERS.into_iter();
        changes.extend(factors.map(|(modes, bits)| (FACTOR, modes, false, bits)));
    }
    if matches!(part, Part::Link(_)) {
        changes.push((FACTOR, Modes::of(&[Mode::Staged]), false, 3.0));
    }
    let of_host = matches!(
        part,
        Part::Memory(_)
            | Part::Host(_)
            | Part::Link(NodeId::HostBridge(..) | NodeId::HiddenRoot)
            | Part::Class(Class::Host)
    );
    if of_host {
        changes.push((FACTOR, Modes::HOST, false, 1.0));
    }
    if matches!(
        part,
        Part::NvPair(..) | Part::NvPort(_) | Part::Pair(..) | Part::Class(Class::NvLink)
    ) {
        // Its rate is known.
        changes.push((Effect::Detour, Modes::DIRECT, false, -2.0));
    }
    changes
}

/// Returns hops that a guest does not show and that both legs of staged copies pass, up and down again.
fn both_legs(problem: &Problem<'_>, unexplained: &BTreeMap<At, f64>) -> Vec<Hypothesis> {
    if !problem.state.is_virtual {
        return Vec::new();
    }
    let mut groups: Vec<BTreeSet<u32>> = Vec::new();
    for at in unexplained.keys() {
        let staged = problem.item(*at).filter(|item| item.mode == Mode::Staged);
        let Some((source, destination)) = staged.and_then(|item| item.ends) else {
            continue;
        };
        let (with, mut without): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.contains(&source) || group.contains(&destination));
        let mut group: BTreeSet<u32> = with.into_iter().flatten().collect();
        group.extend([source, destination]);
        without.push(group);
        groups = without;
    }
    let candidate = |group: BTreeSet<u32>| {
        let gpus: Vec<u32> = group.into_iter().collect();
        let pairs = Pair::ordered(&gpus).into_iter();
        let numbers = pairs.filter_map(|pair| {
            let (source, destination) = (pair.source, pair.destination);
            let part = Part::StagedPair(source.min(destination), source.max(destination));
            problem.resources.known(part, Way::up_if(source < destination))
        });
        let mut numbers: Vec<usize> = numbers.collect();
        numbers.sort_unstable();
        Hypothesis {
            parts: gpus.iter().map(|gpu| Part::Exit(*gpu)).collect(),
            way: Some(Way::Both),
            on: Rc::new([numbers]),
            effect: FACTOR,
            modes: Modes::of(&[Mode::Staged]),
            under_load: false,
            bits: problem.costs.hidden(gpus.len()),
        }
    };
    groups.into_iter().map(candidate).collect()
}

/// Returns hops that no file shows, above GPUs whose ways to the root are slow, alone or at once.
fn hidden(problem: &Problem<'_>, unexplained: &BTreeMap<At, f64>) -> Vec<Hypothesis> {
    let alike = [
        Modes::of(&[Mode::Host, Mode::HostBothWays]),
        Modes::of(&[Mode::HostAtOnce]),
        Modes::of(&[Mode::Staged]),
        Modes::ALL,
    ];
    let mut groups: BTreeSet<Vec<u32>> = BTreeSet::new();
    for modes in alike {
        for way in [Way::Up, Way::Down] {
            let slow = slow_exits(problem, unexplained, modes, way);
            if slow.len() < 2 {
                continue;
            }
            let of_node = below_one_node(problem).into_iter();
            groups.extend(
                of_node.filter(|others| others.iter().filter(|gpu| slow.contains(gpu)).count() > 1),
            );
            groups.insert(slow);
        }
    }
    let mut candidates = Vec::new();
    for gpus in groups {
        let exits = |way: Way| {
            let numbers =
                gpus.iter().filter_map(|gpu| problem.resources.known(Part::Exit(*gpu), way));
            let mut numbers: Vec<usize> = numbers.collect();
            numbers.sort_unstable();
            numbers
        };
        let parts: Rc<[Part]> = gpus.iter().map(|gpu| Part::Exit(*gpu)).collect();
        let on: Rc<[Vec<usize>]> = Rc::new([exits(Way::Up), exits(Way::Down)]);
        let bits = problem.costs.hidden(gpus.len());
        let changes = [
            (CAPACITY, Modes::ALL, false, 0.0),
            (CAPACITY, Modes::ALL, true, 1.0),
            (FACTOR, Modes::of(&[Mode::Staged]), false, 1.0),
        ];
        candidates.extend(changes.map(|(effect, modes, under_load, more)| Hypothesis {
            parts: parts.clone(),
            way: None,
            on: on.clone(),
            effect,
            modes,
            under_load,
            bits: bits + more,
        }));
    }
    candidates
}

/// Returns the GPUs whose exits the worst of these figures pass.
fn slow_exits(
    problem: &Problem<'_>,
    unexplained: &BTreeMap<At, f64>,
    modes: Modes,
    way: Way,
) -> Vec<u32> {
    let mut slow: BTreeMap<u32, f64> = BTreeMap::new();
    for (at, bits) in unexplained {
        let item = problem.item(*at).filter(|item| modes.has(item.mode));
        let passed = item.into_iter().flat_map(|item| &item.passes);
        for resource in passed.filter_map(|number| problem.resources.get(*number)) {
            if let (Part::Exit(gpu), true) = (resource.part, resource.way == way) {
                *slow.entry(gpu).or_default() += bits;
            }
        }
    }
    let most = slow.values().copied().fold(0.0, f64::max);
    slow.retain(|_, bits| *bits > AMONG * most);
    slow.into_keys().collect()
}

/// Returns the GPUs below each host bridge, and those of each NUMA node, if there are several.
fn below_one_node(problem: &Problem<'_>) -> Vec<Vec<u32>> {
    let mut groups: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for gpu in &problem.state.gpus {
        let way = problem.state.topology.way_up(NodeId::Gpu(*gpu));
        for node in way {
            if matches!(node, NodeId::HostBridge(..) | NodeId::Numa(_)) {
                groups.entry(node).or_default().push(*gpu);
            }
        }
    }
    let groups: BTreeSet<Vec<u32>> = groups.into_values().filter(|gpus| gpus.len() > 1).collect();
    groups.into_iter().collect()
}
