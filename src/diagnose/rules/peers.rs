//! Shared by the rules on copies between GPUs: the slow figures by the change of the machine that explains them, so that
//! one change is one finding.

use std::cmp::Ordering;

use super::bandwidth;
use super::prelude::*;
use super::unread_traffic;
use crate::changes::gpus_of;
use explain::{Figure, Part as Changed};

/// The figures that one rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figures {
    /// Direct copies one way, by which pairs are judged.
    Direct,
    /// The same through the host's memory.
    Staged,
    /// Copies while the other direction is busy.
    BothWays,
}

/// Largest tolerance of a figure whose siblings agree, per cent. Over NVLink it is half of 4.5 then
/// (docs/dev/explanation.md), and a little more for the spread of rows. Over PCIe no tolerance is so small, because
/// settings of single ports change routes.
const AGREEING_PERCENT: f64 = 2.5;

/// A copy that is slower than it should be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow<'a> {
    pub cell: &'a PeerBandwidth,
    pub achieved: GbPerSecond,
    /// The rate that copies alike reach on this machine.
    pub healthy: GbPerSecond,
    /// True if copies alike agree so closely that a small loss counts.
    pub siblings_agree: bool,
    /// True if they agree, and several figures of the pair are low. These may be too few to pay for a change of the machine.
    is_repeated: bool,
}

impl<'a> Slow<'a> {
    fn of(cell: &'a PeerBandwidth, healthy_gbps: f64) -> Option<Self> {
        Some(Self {
            cell,
            achieved: cell.achieved_gbps?,
            healthy: GbPerSecond(healthy_gbps),
            siblings_agree: false,
            is_repeated: false,
        })
    }

    fn explained(cell: &'a PeerBandwidth, figure: &Figure) -> Option<Self> {
        Some(Self {
            siblings_agree: figure.tolerance_percent <= AGREEING_PERCENT,
            ..Self::of(cell, figure.healthy_gbps)?
        })
    }

    /// Returns how far the rate lies below the healthy one, per cent.
    pub(super) fn below_percent(&self) -> f64 {
        100.0 - self.achieved.percent_of(self.healthy)
    }
}

/// Slow copies that one change of the machine explains.
pub(super) struct Explained<'a> {
    pub group: Group,
    /// The copies, the worst first; at least one.
    pub slow: Vec<Slow<'a>>,
    /// The changes, by their numbers; none for copies below the floor that no change explains.
    causes: BTreeSet<usize>,
}

impl<'a> Explained<'a> {
    /// Returns the copy that lies farthest below what it should reach.
    pub(super) fn worst(&self) -> Option<&Slow<'a>> {
        self.slow.first()
    }

    /// Returns the finding with the pairs of the copies and the change that explains them.
    pub(super) fn finding(
        &self,
        (rule, evidence): (&Rule, &Evidence<'_>),
        message: String,
        plan: Plan,
    ) -> Finding {
        let mut found = rule.on_group(&self.group, message, plan);
        found.scope.causes.clone_from(&self.causes);
        let lowest = self.worst().map(|worst| worst.achieved);
        unread_traffic::with_reason(found, evidence, &self.group.pairs)
            .fact("lowest_achieved", lowest)
    }
}

/// Returns the slow copies by what explains them.
pub(super) fn explained<'a>(evidence: &Evidence<'a>, figures: Figures) -> Vec<Explained<'a>> {
    let explanation = evidence.explanation();
    let cells = cells(evidence, figures);
    let seen: Vec<Pair> = words::unique(cells.iter().map(|cell| cell.pair));
    let by_key: BTreeMap<FigureKey, &PeerBandwidth> =
        cells.iter().map(|cell| (cell.key(), *cell)).collect();
    let slow = |figures: &[Figure]| {
        let mut slow: Vec<Slow<'a>> = figures
            .iter()
            .filter_map(|figure| Slow::explained(by_key.get(&figure.key)?, figure))
            .collect();
        slow.sort_by(worst_first);
        slow
    };
    let (mut of_pairs, mut found): (Vec<(usize, Slow<'a>)>, Vec<Place<'a>>) = Default::default();
    for (number, cause) in explanation.faults() {
        let slow = slow(&cause.explains);
        let twos: BTreeSet<_> = slow.iter().map(|slow| slow.cell.pair.unordered()).collect();
        match (twos.len(), found.iter_mut().find(|place| place.is_of(evidence, cause))) {
            (0, _) => {}
            (_, Some(known)) => known.add(evidence, (number, cause), slow),
            (1, None) => of_pairs.extend(slow.into_iter().map(|slow| (number, slow))),
            (_, None) => found.push(Place { cause, numbers: BTreeSet::from([number]), slow }),
        }
    }
    let places = found.into_iter();
    let mut found: Vec<_> = places.map(|place| place.explained(evidence, &seen)).collect();
    let mut open = slow(&explanation.unexplained);
    if figures == Figures::Direct {
        let repeated = repeated(evidence, &explanation.unexplained);
        for slow in &mut open {
            slow.is_repeated = slow.siblings_agree && repeated.contains(&slow.cell.pair);
        }
    }
    let mut rest = rest(evidence, figures, (&cells, &seen), (&found, of_pairs, &open));
    found.iter_mut().for_each(|place| place.take_pairs_of_gpu(&seen, &mut rest));
    found.extend(rest);
    found
}

/// Fewest low figures of a pair that count without a change of the machine.
const ENOUGH_OF_PAIR: usize = 3;

/// Returns the pairs of which several of these figures are low.
fn repeated(evidence: &Evidence<'_>, figures: &[Figure]) -> BTreeSet<Pair> {
    let low: BTreeSet<&FigureKey> =
        figures.iter().filter(|figure| figure.is_low).map(|figure| &figure.key).collect();
    let mut number: BTreeMap<Pair, usize> = BTreeMap::new();
    if low.len() >= ENOUGH_OF_PAIR {
        for cell in evidence.peer() {
            if low.contains(&cell.key()) {
                *number.entry(cell.pair).or_default() += 1;
            }
        }
    }
    let enough = number.into_iter().filter(|(_, number)| *number >= ENOUGH_OF_PAIR);
    enough.map(|(pair, _)| pair).collect()
}

/// Changes of what may be one part of the machine, and the slow copies that they explain.
struct Place<'a> {
    cause: &'a explain::Cause,
    numbers: BTreeSet<usize>,
    slow: Vec<Slow<'a>>,
}

impl Explained<'_> {
    /// Takes the other slow pairs of its GPU, if with them all pairs of the GPU are slow and none is slower than those here.
    fn take_pairs_of_gpu(&mut self, seen: &[Pair], rest: &mut Vec<Self>) {
        let (&Common::Gpu(gpu), Some(worst)) = (&self.group.common, self.slow.first()) else {
            return;
        };
        let most = worst.below_percent();
        let is_own = |one: &Self| {
            one.group.pairs.iter().all(|pair| pair.touches(gpu))
                && one.slow.iter().all(|slow| slow.below_percent() <= most)
        };
        let others = rest.iter().filter(|one| is_own(one)).flat_map(|one| &one.group.pairs);
        let pairs: BTreeSet<Pair> = self.group.pairs.iter().chain(others).copied().collect();
        if !seen.iter().filter(|pair| pair.touches(gpu)).all(|pair| pairs.contains(pair)) {
            return;
        }
        for one in rest.extract_if(.., |one| is_own(one)) {
            self.slow.extend(one.slow);
            self.causes.extend(one.causes);
        }
        self.slow.sort_by(worst_first);
        self.group.pairs = pairs.into_iter().collect();
    }
}

impl<'a> Place<'a> {
    /// Returns true if this change may be of the same part: one is a suspect of the other, or both are of the same GPUs.
    fn is_of(&self, evidence: &Evidence<'_>, other: &explain::Cause) -> bool {
        let suspects = |one: &explain::Cause, part: &[Changed]| {
            one.suspects.iter().any(|suspect| suspect.parts == part)
        };
        let gpus = |one: &explain::Cause| {
            let gpus = one.parts.iter().map(|part| gpus_of(evidence, *part));
            gpus.flatten().collect::<BTreeSet<u32>>()
        };
        let own = gpus(self.cause);
        suspects(self.cause, &other.parts)
            || suspects(other, &self.cause.parts)
            || (!own.is_empty() && own == gpus(other))
    }

    /// Adds a change. One of a part that belongs to some GPUs says more than one of all.
    fn add(
        &mut self,
        evidence: &Evidence<'_>,
        (number, cause): (usize, &'a explain::Cause),
        slow: Vec<Slow<'a>>,
    ) {
        let is_of_some = |one: &explain::Cause| {
            let mut parts = one.parts.iter();
            parts.any(|part| !gpus_of(evidence, *part).is_empty())
        };
        if !is_of_some(self.cause) && is_of_some(cause) {
            self.cause = cause;
        }
        self.numbers.insert(number);
        self.slow.extend(slow);
        self.slow.sort_by(worst_first);
    }

    fn explained(self, evidence: &Evidence<'_>, seen: &[Pair]) -> Explained<'a> {
        Explained {
            group: group(evidence, (self.cause, &self.slow), seen),
            slow: self.slow,
            causes: self.numbers,
        }
    }
}

/// Returns the pairs whose direct copies are below their floor, one way or both ways.
pub(super) fn low_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    let both = [Figures::Direct, Figures::BothWays];
    let cells = both.into_iter().flat_map(|of| cells(evidence, of));
    let low = cells.filter(|cell| links::is_slow(evidence, cell) == Some(true));
    low.map(|cell| cell.pair).collect()
}

/// Returns the copies of single pairs that changes explain, and those that no change explains, below their floor or slow in
/// one direction only, by what the pairs have in common.
fn rest<'a>(
    evidence: &Evidence<'a>,
    figures: Figures,
    (cells, seen): (&[&'a PeerBandwidth], &[Pair]),
    (found, of_pairs, open): (&[Explained<'a>], Vec<(usize, Slow<'a>)>, &[Slow<'a>]),
) -> Vec<Explained<'a>> {
    let known = found.iter().flat_map(|one| one.group.pairs.iter().copied());
    let known: BTreeSet<Pair> =
        (known.chain(of_pairs.iter().map(|(_, slow)| slow.cell.pair))).collect();
    // The finding on copies one way covers a pair that is slow one way too, issued by the source or as these.
    let is_covered = |cell: &PeerBandwidth| {
        let own = cell.setup.with_direction(Direction::OneWay);
        let alike = evidence.peer().iter().find(|one| (one.pair, one.setup) == (cell.pair, own));
        let one_way = evidence.reference_of(Path::Direct, cell.pair).into_iter().chain(alike);
        let is_slow = |one: &PeerBandwidth| links::is_slow(evidence, one) == Some(true);
        figures == Figures::BothWays && one_way.into_iter().any(is_slow)
    };
    let low = |cell: &&'a PeerBandwidth| {
        let expected = evidence.expected(cell)?;
        let is_low = expected.is_missed_by(cell)? && !known.contains(&cell.pair);
        let is_own = is_low && !is_covered(cell);
        Some((None, is_own.then(|| Slow::of(cell, expected.gbps.0))??))
    };
    let of_pairs = of_pairs.into_iter().map(|(number, slow)| (Some(number), slow));
    let mut all: Vec<(Option<usize>, Slow<'a>)> =
        cells.iter().filter_map(low).chain(of_pairs).collect();
    if figures == Figures::Direct {
        // One direction of a pair that loses a part does not pay for a change, and nothing else reports it.
        let listed: BTreeSet<Pair> = all.iter().map(|(_, slow)| slow.cell.pair).collect();
        let is_open = |slow: &&Slow<'a>| {
            let pair = slow.cell.pair;
            let back = open.iter().any(|other| other.cell.pair == pair.reversed());
            (!back || slow.is_repeated) && !known.contains(&pair) && !listed.contains(&pair)
        };
        all.extend(open.iter().filter(is_open).map(|slow| (None, *slow)));
    }
    let of_group = |(group, own): (Group, Vec<(Option<usize>, Slow<'a>)>)| {
        let (numbers, mut slow): (Vec<_>, Vec<_>) = own.into_iter().unzip();
        slow.sort_by(worst_first);
        Explained { causes: numbers.into_iter().flatten().collect(), group, slow }
    };
    let places = evidence.places(&all, seen, |(_, slow)| Some(slow.cell.pair));
    places.into_iter().map(of_group).collect()
}

fn worst_first(one: &Slow<'_>, other: &Slow<'_>) -> Ordering {
    let left = |slow: &Slow<'_>| slow.achieved.percent_of(slow.healthy);
    left(one).total_cmp(&left(other))
}

/// Returns the sound figures of this kind, in their order.
fn cells<'a>(evidence: &Evidence<'a>, figures: Figures) -> Vec<&'a PeerBandwidth> {
    let path = match figures {
        Figures::Direct => Path::Direct,
        Figures::Staged => Path::Staged,
        Figures::BothWays => {
            let both = |cell: &&PeerBandwidth| {
                cell.setup.direction == Direction::BothWays
                    && cell.setup.placement == Placement::REFERENCE
                    && bandwidth::is_sound(evidence, cell)
            };
            return evidence.peer().iter().filter(both).collect();
        }
    };
    bandwidth::sound(evidence, path).into_values().collect()
}

/// Returns the pairs of slow copies with the part that changed.
fn group(
    evidence: &Evidence<'_>,
    (cause, slow): (&explain::Cause, &[Slow<'_>]),
    seen: &[Pair],
) -> Group {
    let bad: BTreeSet<Pair> = slow.iter().map(|slow| slow.cell.pair).collect();
    let pairs: Vec<Pair> = seen.iter().copied().filter(|pair| bad.contains(pair)).collect();
    let of_part = match cause.parts.as_slice() {
        [part] => common(evidence, *part),
        _ => None,
    };
    let by_pairs = || match evidence.groups(&pairs, seen).as_slice() {
        [group] => Some(group.common.clone()),
        _ => None,
    };
    let common = of_part.or_else(by_pairs).unwrap_or(Common::Everything);
    let seen_back = |pair: &Pair| {
        let back = pair.reversed();
        seen.contains(&back) && !bad.contains(&back)
    };
    Group { common, seen_back: pairs.iter().any(seen_back), pairs }
}

/// Returns a part that has a name of its own; `None` for what several GPUs share.
fn common(evidence: &Evidence<'_>, part: Changed) -> Option<Common> {
    match (part, gpus_of(evidence, part).as_slice()) {
        (_, [gpu]) => Some(Common::Gpu(*gpu)),
        (Changed::Link(lower @ NodeId::Pci(_)), _) => {
            let upper = evidence.topology.link_above(lower)?.upper;
            Some(Common::Link([upper, lower]))
        }
        (Changed::Interconnect(one, other), _) => Some(Common::Link([one, other])),
        _ => None,
    }
}

impl<'a> Explained<'a> {
    /// Returns the copies that no program may explain whose traffic could not be read; `None` if there are none.
    pub(super) fn read(mut self, evidence: &Evidence<'_>) -> Option<Self> {
        let is_read = |pair: Pair| !unread_traffic::may_explain(evidence, pair);
        self.slow.retain(|slow| is_read(slow.cell.pair));
        self.group.pairs.retain(|pair| is_read(*pair));
        (!self.slow.is_empty()).then_some(self)
    }

    /// Returns true if a change of the machine explains the copies.
    pub(super) fn has_cause(&self) -> bool {
        !self.causes.is_empty()
    }

    /// Returns true if several figures of a pair show that it is slow, beside copies that agree.
    pub(super) fn is_repeated(&self) -> bool {
        self.slow.iter().any(|slow| slow.is_repeated)
    }

    /// Returns true if a copy is below what every healthy machine reaches.
    pub(super) fn is_low(&self, evidence: &Evidence<'_>) -> bool {
        let is_low = |slow: &Slow<'_>| links::is_slow(evidence, slow.cell) == Some(true);
        self.slow.iter().any(is_low)
    }

    /// Returns the copy that is slowest beside its other direction, and the rate of that, if all are slow in one direction
    /// only.
    pub(super) fn one_way(&self, evidence: &Evidence<'_>) -> Option<Slow<'a>> {
        let pairs = self.group.pair_set();
        let beside_other = |slow: &Slow<'a>| {
            let back = slow.cell.pair.reversed();
            let other = evidence.reference_of(Path::Direct, back)?.achieved_gbps?;
            (!pairs.contains(&back)).then(|| Slow::of(slow.cell, other.0))?
        };
        let all: Option<Vec<Slow<'a>>> = self.slow.iter().map(beside_other).collect();
        all?.into_iter().min_by(worst_first)
    }
}
