//! The healthy level of each figure, taken from its siblings within the range of healthy machines, and the tolerance
//! that their scatter allows.

use std::collections::BTreeMap;

use model::host::HostDirection;
use model::placement::Engine;
use model::topology::LinkClass;
use topology::shares::{FairShare, Together, in_turn, max_min};

use super::item::{Floors, Group, Healthy, Item, Mode, Observation};
use super::resource::Class;
use super::scatter;

/// Highest share of the theoretical rate that a healthy level may have: no known machine reaches more.
const MOST: f64 = 0.95;

/// Share of the theoretical rate that is taken for a flow of a load of a class without other figures. Chosen.
const UNMEASURED: f64 = 0.80;

/// Largest tolerance that scatter may bring. Chosen: a figure that lost more is low whatever the others do.
const MOST_SCATTER: f64 = 0.30;

/// The same if all figures of the run scatter.
const MOST_SCATTER_OF_RUN: f64 = 0.45;

/// Part by which copies between NUMA nodes of one machine differ if it has more than two. An A40 machine with four nodes
/// per socket: 20 GB/s between sockets, 25 within one (nccl-tests issue 74).
const UNEVEN: f64 = 0.25;

/// The same of copies within a GPU: those of one machine differ by up to 8% (6 x RTX PRO 6000, published), times two.
const LOCAL: f64 = 0.15;

/// Loss of a figure that counts as one bit, as a natural logarithm: 3%. Less where siblings agree.
const LOG_PER_BIT: f64 = 0.03;

/// Part of the spread of its rows by which a figure may be low. Chosen.
const OF_SPREAD: f64 = 0.8;

/// Spread of rows from which the median of a figure accuses nothing, per cent. Chosen.
const UNSTEADY_PERCENT: f64 = 30.0;

/// The level of a group: share of the theoretical rate, or GB/s if no theoretical rate is known.
#[derive(Debug, Clone, Copy)]
struct Eta {
    healthy: f64,
    level: f64,
}

/// Sets the healthy rate of every figure. Returns how far below it any figure of the run may lie because all of them scatter,
/// per cent.
pub(crate) fn calibrate(observations: &mut [Observation], floors: &dyn Floors) -> f64 {
    let etas = levels(observations);
    let of_run = of_run(observations, floors);
    set_alone(observations, &etas, of_run / 100.0);
    for observation in observations.iter_mut() {
        let Observation { items, load: Some(load) } = observation else {
            continue;
        };
        for item in items.iter_mut() {
            let eta = eta_of_flow(&etas, &item.group);
            let level = eta.map_or(1.0, |eta| eta.level);
            let share = eta.map_or(UNMEASURED, |eta| eta.healthy);
            item.healthy.alone = item.theory.map_or(share, |theory| theory * share);
            item.healthy.level = level;
        }
        let alone: Vec<f64> = items.iter().map(|item| item.healthy.alone).collect();
        let shares = shares(items, load, &alone, &[]);
        for (item, share) in items.iter_mut().zip(shares) {
            item.healthy.rate = share;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to 10"
            )]
            let tenths = (10.0 * share / item.healthy.alone).round().clamp(0.0, 10.0) as u8;
            item.group.tenths = tenths;
        }
    }
    set_reached(observations, of_run / 100.0);
    of_run
}

/// Returns the scatter of the run, from the figures that differ little between healthy siblings.
fn of_run(observations: &[Observation], floors: &dyn Floors) -> f64 {
    let is_even = |item: &&Item| {
        let mode = matches!(
            item.mode,
            Mode::Copy
                | Mode::Read
                | Mode::KernelWrite
                | Mode::KernelRead
                | Mode::BothWays
                | Mode::Staged
                | Mode::Host
                | Mode::HostBothWays
                | Mode::Local
        );
        mode && !item.group.uneven && !item.group.lost && item.spread_percent <= UNSTEADY_PERCENT
    };
    let even = singles(observations).filter(is_even);
    let mut groups: BTreeMap<Group, Vec<(f64, bool)>> = BTreeMap::new();
    for item in even {
        let is_by_design =
            item.key.flow.with_host().is_some_and(|gpu| floors.is_below_hidden_uplink(gpu));
        let is_low = item.group.known
            && !is_by_design
            && item.floor.is_some_and(|floor| relative(item) < floor);
        groups.entry(item.group).or_default().push((relative(item), is_low));
    }
    // Of two, one that no healthy machine has is no scatter.
    let is_mixed = |of: &[(f64, bool)]| matches!(of, [one, other] if one.1 != other.1);
    let groups = groups.into_values().filter(|of| !is_mixed(of));
    let groups: Vec<Vec<f64>> =
        groups.map(|of| of.into_iter().map(|one| one.0).collect()).collect();
    scatter::of_run(groups.iter().map(Vec::as_slice))
}

/// Returns the rate of each flow if all run at once, GB/s: max-min fair shares of what the links carry, of what each
/// flow reaches alone, of copy engines, and of further limits.
pub(crate) fn shares(
    items: &[Item],
    load: &[Together],
    alone: &[f64],
    limits: &[Together],
) -> Vec<f64> {
    let copied_by = |item: &Item| {
        item.group.load.filter(|(pattern, _)| pattern.engine() == Engine::Copy)?;
        item.ends.map(|(source, _)| source)
    };
    let in_turn = in_turn(items.iter().map(copied_by), alone);
    let limits: Vec<&Together> = load.iter().chain(limits).chain(&in_turn).collect();
    let shares = max_min(alone, &limits);
    let rate =
        |(share, alone): (Option<FairShare<usize>>, &f64)| share.map_or(*alone, |one| one.gbps);
    shares.into_iter().zip(alone).map(rate).collect()
}

fn levels(observations: &[Observation]) -> BTreeMap<Group, Eta> {
    let mut floors: BTreeMap<Group, f64> = BTreeMap::new();
    for item in singles(observations) {
        if let Some(floor) = item.floor.filter(|_| item.group.known) {
            let least = floors.entry(item.group).or_insert(floor);
            *least = least.min(floor);
        }
    }
    let figures = singles(observations).map(|item| (item.group, relative(item)));
    let level = |(group, figures): (Group, Vec<f64>)| {
        let usual = usual(figures)?;
        let healthy = floors.get(&group).map_or(usual, |floor| match group.known {
            true => usual.clamp(floor.min(MOST), MOST),
            false => usual.max(*floor),
        });
        let level = (usual / healthy).min(1.0);
        Some((group, Eta { healthy, level }))
    };
    let groups = scatter::grouped(figures);
    groups.into_iter().filter_map(level).collect()
}

fn singles(observations: &[Observation]) -> impl Iterator<Item = &Item> {
    let alone = observations.iter().filter(|one| one.load.is_none());
    alone.flat_map(|one| &one.items)
}

fn relative(item: &Item) -> f64 {
    item.achieved / theory(item)
}

/// Returns the theoretical rate if figures are compared as shares of it, else 1.
fn theory(item: &Item) -> f64 {
    item.theory.filter(|_| item.group.known).unwrap_or(1.0)
}

/// Returns what the better ones of alike figures reach: the best of two, the second best of few, else the tenth part
/// from above. A single figure cannot show that it is low.
fn usual(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(|one, other| other.total_cmp(one));
    let at = match figures.len() {
        0..=2 => 0,
        3..=12 => 1,
        more => more / 10,
    };
    figures.get(at).copied()
}

/// The agreement of the figures of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    number: usize,
    /// Part by which a figure may be low because figures scatter.
    scatter: f64,
    /// Part of what healthy machines differ by that this machine's better half does, from [`LEAST_PART`] to 1.
    unlike: f64,
}

/// Part by which the best figure exceeds the median at which siblings count as no more alike than those of any healthy
/// machine. Chosen: few siblings may agree by chance, so they have to agree more closely.
const UNLIKE: f64 = 0.03;
const UNLIKE_OF_FEW: f64 = 0.01;
/// Part of the distance of the best of few siblings from their median by which the others may be low. Chosen.
const OF_BETTER_HALF: f64 = 2.0;
/// Number of siblings from which their scatter is known (`scatter.rs`).
const FEW: usize = 6;
/// Least part of the tolerance that is left where siblings agree completely. Chosen: something always differs.
const LEAST_PART: f64 = 0.5;

impl Alike {
    fn of(figures: Vec<f64>) -> Self {
        let mut scatter = scatter::allowance(figures.iter().copied()) / 100.0;
        let number = figures.len();
        let mut sorted = figures;
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(number / 2).copied().unwrap_or(0.0);
        let distance = sorted.last().map_or(1.0, |best| (best - median) / best);
        if (3..FEW).contains(&number) {
            scatter = OF_BETTER_HALF * distance;
        }
        let unlike = match number {
            0..3 => 1.0,
            3..FEW => distance / UNLIKE_OF_FEW,
            _ => distance / UNLIKE,
        };
        Self { number, scatter, unlike: unlike.clamp(LEAST_PART, 1.0) }
    }
}

fn set_alone(observations: &mut [Observation], etas: &BTreeMap<Group, Eta>, of_run: f64) {
    let figures = singles(observations).map(|item| (item.group, relative(item)));
    let groups: BTreeMap<Group, Alike> = scatter::grouped(figures)
        .into_iter()
        .map(|(group, figures)| (group, Alike::of(figures)))
        .collect();
    // The memory of the host limits staged copies more than their links: narrow ones have a larger share of their link.
    let mut staged: BTreeMap<Group, f64> = BTreeMap::new();
    for item in singles(observations).filter(|item| item.mode == Mode::Staged) {
        let best = staged.entry(item.group).or_default();
        *best = best.max(item.achieved);
    }
    let over_pcie = etas.iter().filter(|(group, _)| {
        group.known && matches!(group.mode, Mode::Host | Mode::Copy) && group.class != Class::NvLink
    });
    let most_share = over_pcie.map(|(_, eta)| eta.healthy).fold(0.0, f64::max);
    let alone = observations.iter_mut().filter(|one| one.load.is_none());
    for item in alone.flat_map(|one| &mut one.items) {
        let Some(eta) = etas.get(&item.group) else {
            continue;
        };
        let alike = groups.get(&item.group).copied().unwrap_or_default();
        let is_host = item.group.class == Class::Host;
        let plain = Group {
            mode: if is_host { Mode::Host } else { Mode::Copy },
            direction: item.group.direction.map(|_| HostDirection::ToHost),
            known: item.theory.is_some(),
            ..item.group
        };
        let theory = theory(item);
        let least = item.floor.map_or(0.0, |floor| floor * theory);
        let best = staged.get(&item.group).map_or(f64::INFINITY, |best| best.max(least));
        let rate = (eta.healthy * theory).min(best);
        let carries = match item.mode {
            Mode::Staged => eta.healthy.max(0.55) * theory,
            _ if !item.group.known => rate,
            _ => etas.get(&plain).map_or(rate, |plain| rate.max(plain.healthy * theory)),
        };
        item.healthy = Healthy {
            rate,
            tolerance: tolerance(item, alike).max(of_run.min(MOST_SCATTER_OF_RUN)),
            excused: of_run.min(MOST_SCATTER_OF_RUN),
            log_per_bit: LOG_PER_BIT * alike.unlike,
            level: eta.level,
            efficiency: match (item.group.class, etas.get(&plain)) {
                (Class::Pcie(_), Some(plain)) => (plain.healthy / most_share).min(1.0),
                _ => 1.0,
            },
            carries,
            alone: rate,
            reached: 1.0,
        };
    }
}

/// Returns the part of the healthy rate by which a figure may be low. Chosen after what healthy machines differ by:
/// copies over NVLink least, copies through processors and host memory most (docs/dev/facts.md). Less where siblings
/// agree.
fn tolerance(item: &Item, alike: Alike) -> f64 {
    let kind: f64 = match item.group.class {
        _ if item.group.uneven => UNEVEN,
        Class::Local => LOCAL,
        Class::Staged => 0.14,
        Class::NvLink => 0.045,
        Class::Pcie(LinkClass::Pix | LinkClass::Pxb) | Class::Host => 0.06,
        Class::Pcie(_) => 0.10,
    };
    let of_siblings = match alike.number {
        // A single figure is its own level; only the range of healthy machines judges it.
        0 | 1 => 0.02,
        2 => kind.max(0.12),
        _ => kind * alike.unlike,
    };
    of_siblings.max(alike.scatter.min(MOST_SCATTER)) + of_spread(item)
}

fn of_spread(item: &Item) -> f64 {
    if item.spread_percent > UNSTEADY_PERCENT {
        0.5
    } else {
        OF_SPREAD * item.spread_percent / 100.0
    }
}

/// Returns the level of the class that a flow of a load belongs to.
fn eta_of_flow(etas: &BTreeMap<Group, Eta>, group: &Group) -> Option<Eta> {
    let mode = match group.class {
        Class::Host => Mode::Host,
        Class::Staged => Mode::Staged,
        Class::Local => Mode::Local,
        Class::NvLink | Class::Pcie(_) => Mode::Copy,
    };
    let alone = Group { mode, load: None, ..*group };
    let near = Group { far: false, ..alone };
    etas.get(&alone).or_else(|| etas.get(&near)).copied()
}

/// Compares flows of loads with those alike: the part of their share that they reach, within bounds.
fn set_reached(observations: &mut [Observation], of_run: f64) {
    let in_loads = |observations: &mut [Observation], act: &mut dyn FnMut(&mut Item)| {
        let loads = observations.iter_mut().filter(|one| one.load.is_some());
        loads.flat_map(|one| &mut one.items).for_each(act);
    };
    let mut figures = Vec::new();
    in_loads(observations, &mut |item| {
        figures.push((item.group, item.achieved / item.healthy.rate));
    });
    let groups: BTreeMap<Group, (f64, f64)> = scatter::grouped(figures)
        .into_iter()
        .filter_map(|(group, figures)| {
            let scatter = scatter::allowance(figures.iter().copied()) / 100.0;
            Some((group, (usual(figures)?, scatter)))
        })
        .collect();
    in_loads(observations, &mut |item| {
        let (usual, scatter) = groups.get(&item.group).copied().unwrap_or((1.0, 0.0));
        // The memory of the host and processors carry what no link shows.
        let least = match (item.mode, item.group.class) {
            (Mode::HostAtOnce, _) => 0.40,
            (_, Class::NvLink) => 0.70,
            (_, Class::Pcie(LinkClass::Pix | LinkClass::Pxb)) => 0.70,
            _ => 0.45,
        };
        item.healthy.reached = usual.clamp(least, 1.1);
        let least = if item.group.uneven { UNEVEN } else { 0.13 };
        let of_siblings = scatter.clamp(least, MOST_SCATTER) + of_spread(item);
        item.healthy.tolerance = of_siblings.max(of_run.min(MOST_SCATTER_OF_RUN));
        item.healthy.carries = item.healthy.alone;
        item.healthy.log_per_bit = LOG_PER_BIT;
    });
}
