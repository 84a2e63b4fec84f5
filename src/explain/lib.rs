//! All figures of a run → the fewest changes of the machine that account for them, what else would, and what the
//! figures leave open. `docs/dev/explanation.md` describes the model, and which findings come from it.

mod calibrate;
mod candidates;
mod distinguish;
mod fit;
mod hypothesis;
mod item;
mod looks;
mod observation;
mod predict;
mod problem;
mod resource;
pub mod scatter;
mod search;
mod state;

pub use self::distinguish::Test;
pub use self::hypothesis::Effect;
pub use self::item::Floors;
pub use self::looks::Look;
pub use self::resource::{Class, Part, Way};

use std::collections::{BTreeMap, BTreeSet};

use model::cell::FigureKey;
use model::measurement::Measurements;
use model::snapshot::Snapshot;
use model::topology::Topology;

use self::distinguish::distinguish;
use self::hypothesis::Hypothesis;
use self::item::Mode;
use self::problem::Problem;
use self::search::{Search, Set};
use self::state::State;

/// Predictions of single figures after which the search gives up. Counted instead of timed, so that a report is
/// explained alike on every machine. Faults of 8 GPUs take some 100,000.
pub const BUDGET: u64 = 3_000_000;

/// Difference of gains within which another change is a suspect too, bits; or this part of the gain, if that is more.
const SUSPECT_BITS: f64 = 4.0;
const SUSPECT_PART: f64 = 0.08;
/// Most suspects of a cause.
const MOST_SUSPECTS: usize = 5;
/// Part of its misfit that a figure may keep if a change explains it. Chosen.
const EXPLAINED: f64 = 0.5;
/// Part of what one flow gets alone that a shared hop still carries if its limit is by design. Chosen.
const BY_DESIGN: f64 = 0.92;

/// Part of their rate that staged copies keep whose legs share a hop that is sound.
const OF_BOTH_LEGS: f64 = 0.48;

/// The cheapest explanation of a run's figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Explanation {
    /// The changes, each with what it explains.
    pub causes: Vec<Cause>,
    /// The figures that are lower or higher than all changes together predict.
    pub unexplained: Vec<Figure>,
    /// Copies that were not measured and would tell apart what the figures leave open.
    pub looks: Vec<Look>,
    /// True if the search ended because its budget was spent: a better explanation may exist.
    pub gave_up: bool,
    /// How far below its healthy rate any figure may lie because all figures of this machine scatter, per cent.
    pub scatter_percent: f64,
    /// Number of figures that were looked at.
    pub figures: usize,
    /// Number of predictions of single figures.
    pub predictions: u64,
}

impl Explanation {
    /// Returns the changes that are faults, each with its number.
    pub fn faults(&self) -> impl Iterator<Item = (usize, &Cause)> {
        self.causes.iter().enumerate().filter(|(_, cause)| !cause.by_design)
    }
}

/// A change of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The part that changed. Several: the GPUs that share a hop which no file shows.
    pub parts: Vec<Part>,
    /// The direction; `None` for both.
    pub way: Option<Way>,
    pub effect: Effect,
    /// Bits of misfit that it takes off, less its cost.
    pub gain_bits: f64,
    /// The figures that it explains. One that several causes explain, each by itself, counts for the first.
    pub explains: Vec<Figure>,
    /// Other changes that explain them nearly as well.
    pub suspects: Vec<Suspect>,
    /// True if it is the limit of a shared part that still carries what its fastest flow carries alone.
    pub by_design: bool,
}

impl Cause {
    /// Returns the GPUs below a hop that no file shows, if the limit of such a hop is the change.
    pub fn hidden_below(&self) -> Option<Vec<u32>> {
        let gpus = self.parts.iter().map(|part| match part {
            Part::Exit(gpu) => Some(*gpu),
            _ => None,
        });
        let gpus: Vec<u32> = gpus.collect::<Option<_>>()?;
        (gpus.len() > 1 && matches!(self.effect, Effect::Capacity(_))).then_some(gpus)
    }
}

/// A figure of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The key of its measurement.
    pub key: FigureKey,
    /// Rate on this machine if nothing is wrong, GB/s.
    pub healthy_gbps: f64,
    /// Largest loss that its class and the scatter of its siblings allow, per cent of the healthy rate.
    pub tolerance_percent: f64,
    /// How badly the figure fits what is known without the change, or at all if none explains it.
    pub misfit_bits: f64,
    /// True if it is lower than it should be.
    pub is_low: bool,
}

impl Figure {
    fn of(problem: &Problem<'_>, (at, misfit_bits): (problem::At, f64)) -> Option<Self> {
        let item = problem.item(at)?;
        Some(Self {
            key: item.key.clone(),
            healthy_gbps: item.healthy.rate,
            tolerance_percent: 100.0 * item.healthy.tolerance,
            misfit_bits,
            is_low: item.is_low(),
        })
    }
}

/// Another change that would explain the same figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// As in [`Cause::parts`].
    pub parts: Vec<Part>,
    /// As in [`Cause::gain_bits`]: equal if the figures cannot tell the two apart at all.
    pub gain_bits: f64,
    /// What would tell the two apart.
    pub test: Test,
}

/// Explains the figures of a run. `floors` are the least rates of healthy machines.
pub fn explain(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: &Measurements,
    floors: &dyn Floors,
    budget: u64,
) -> Explanation {
    let state = State::of(snapshot, topology, measurements);
    let problem = Problem::of(state, measurements, floors);
    let mut search = Search::new(&problem, budget);
    let set = search.solve();
    let mut causes: Vec<Cause> =
        (0..set.changes.len()).filter_map(|at| cause(&problem, &mut search, &set, at)).collect();
    share_out(&problem, &mut search, &set, &mut causes);
    let unexplained = search.unexplained(&set);
    let looks = looks::looks(&problem, &causes);
    let items = |one: &item::Observation| one.items.len();
    Explanation {
        causes,
        unexplained: (unexplained.into_iter())
            .filter_map(|one| Figure::of(&problem, one))
            .collect(),
        looks,
        scatter_percent: problem.scatter_percent,
        gave_up: search.gave_up,
        figures: problem.observations.iter().map(items).sum(),
        predictions: search.predictions,
    }
}

fn cause(
    problem: &Problem<'_>,
    search: &mut Search<'_, '_>,
    set: &Set,
    at: usize,
) -> Option<Cause> {
    let change = set.changes.get(at)?;
    let (rest, gain) = search.without(set, at);
    // Many flows of a load show together what each shows only a little.
    let (before, after) = (search.misfitting(&rest, 0.0), search.misfitting(set, 0.0));
    let is_better = |(at, bits): &(&problem::At, &f64)| {
        after.get(at).is_none_or(|left| *left < EXPLAINED * **bits)
    };
    let explains = before.iter().filter(is_better);
    let explains = explains.filter_map(|(at, bits)| Figure::of(problem, (*at, *bits)));
    Some(Cause {
        parts: change.parts.to_vec(),
        way: change.way,
        effect: change.effect,
        gain_bits: gain,
        explains: explains.collect(),
        suspects: suspects(problem, search, &rest, change, gain),
        by_design: is_by_design(problem, change),
    })
}

/// Gives each figure that several changes explain, each by itself, to the first of them.
fn share_out(problem: &Problem<'_>, search: &mut Search<'_, '_>, set: &Set, causes: &mut [Cause]) {
    if set.changes.len() < 2 {
        return;
    }
    let none = search.with(Vec::new());
    let (before, after) = (search.misfitting(&none, 0.0), search.misfitting(set, 0.0));
    let left =
        |of: &BTreeMap<problem::At, f64>, at: &problem::At| of.get(at).copied().unwrap_or(0.0);
    let explained = (before.iter()).filter(|(at, bits)| left(&after, at) < EXPLAINED * **bits);
    let known = causes.iter().flat_map(|cause| &cause.explains);
    let known: BTreeSet<FigureKey> = known.map(|figure| figure.key.clone()).collect();
    let mut open: BTreeMap<problem::At, Figure> = explained
        .filter_map(|(at, bits)| Some((*at, Figure::of(problem, (*at, *bits))?)))
        .filter(|(_, figure)| !known.contains(&figure.key))
        .collect();
    for (change, cause) in set.changes.iter().zip(causes) {
        if open.is_empty() {
            break;
        }
        let alone = search.with(vec![change.clone()]);
        let alone = search.misfitting(&alone, 0.0);
        let fits = |at: &problem::At| left(&alone, at) < EXPLAINED * left(&before, at);
        let own: Vec<problem::At> = open.keys().filter(|at| fits(at)).copied().collect();
        cause.explains.extend(own.iter().filter_map(|at| open.remove(at)));
    }
}

/// Returns the changes that explain nearly as much in the place of this one, and the parts in series with it.
fn suspects(
    problem: &Problem<'_>,
    search: &mut Search<'_, '_>,
    rest: &Set,
    change: &Hypothesis,
    gain: f64,
) -> Vec<Suspect> {
    let in_series = change.parts.iter().flat_map(|part| problem.in_series_with(*part));
    let mut suspects: Vec<Suspect> = in_series
        .map(|part| Suspect { parts: vec![part], gain_bits: gain, test: Test::Exchange })
        .collect();
    let least = gain - SUSPECT_BITS.max(SUSPECT_PART * gain);
    let mut added = 0;
    for (gain_bits, other) in search.all_above(rest, least) {
        let is_known = other.parts == change.parts
            || suspects.iter().any(|known| *known.parts == *other.parts);
        if added < MOST_SUSPECTS && !is_known {
            let test = distinguish(problem, change, &other);
            suspects.push(Suspect { parts: other.parts.to_vec(), gain_bits, test });
            added += 1;
        }
    }
    suspects
}

/// Returns true for a limit of processors, or of a hop that no file shows, which still carries what its fastest flow
/// carries alone: links that several GPUs share are normal.
fn is_by_design(problem: &Problem<'_>, change: &Hypothesis) -> bool {
    let Effect::Capacity(gbps) = change.effect else {
        // Both legs of staged copies share a hop: each has half of it or more.
        let is_of_legs = change.way == Some(Way::Both) && change.parts.len() > 1;
        return is_of_legs
            && matches!(change.effect, Effect::Factor(factor) if factor >= OF_BOTH_LEGS);
    };
    let is_shared = |part: &Part| part.is_of_processor() || matches!(part, Part::Exit(_));
    if !change.parts.iter().all(is_shared) {
        return false;
    }
    let items = problem.observations.iter().filter(|one| one.load.is_none());
    let fastest = items
        .flat_map(|one| &one.items)
        .filter(|item| matches!(item.mode, Mode::Host | Mode::Copy))
        .filter(|item| change.passed_by(item) > 0)
        .map(|item| item.healthy.rate)
        .reduce(f64::max);
    fastest.is_some_and(|fastest| gbps >= BY_DESIGN * fastest)
}

#[cfg(test)]
mod tests;
