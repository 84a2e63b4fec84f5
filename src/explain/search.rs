//! The search for the cheapest set of changes: greedy with a bound on what each candidate can gain, and dropping. After Flock (Harsh et al., "Flock: Accurate Network Fault Localization at
//! Scale", CoNEXT 2023), which finds the likeliest set of components in that way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::candidates::candidates;
use super::fit::values;
use super::hypothesis::Hypothesis;
use super::item::Mode;
use super::predict::{misfit, misfits, predict};
use super::problem::{At, Problem};
use super::resource::{Number, Part};

/// Most changes of one machine. More are no explanation.
const MOST_CHANGES: usize = 8;
/// Misfit of a figure from which it needs an explanation, bits.
const UNEXPLAINED: f64 = 0.3;
/// Least gain of a cause, bits. Found with healthy reports whose figures were scattered by 3% per pair and GPU: with this, one
/// in 400 has a cause.
const LEAST_GAIN: f64 = 6.0;
/// What a change gains: bits of misfit that it takes off, less its cost.
pub(crate) type Gained = (f64, Hypothesis);

pub(crate) struct Search<'m, 'a> {
    problem: &'m Problem<'a>,
    /// Misfit of each observation without any change.
    empty: Vec<f64>,
    /// Predictions of one figure each that may still be made.
    budget: u64,
    pub predictions: u64,
    pub gave_up: bool,
}

/// A set of changes and the misfit of each observation with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    pub changes: Vec<Hypothesis>,
    misfits: Vec<f64>,
}

impl Set {
    fn bits(&self) -> f64 {
        let costs: f64 = self.changes.iter().map(|change| change.bits).sum();
        costs + self.misfits.iter().sum::<f64>()
    }
}

impl<'m, 'a> Search<'m, 'a> {
    pub(crate) fn new(problem: &'m Problem<'a>, budget: u64) -> Self {
        let mut search =
            Self { problem, empty: Vec::new(), budget, predictions: 0, gave_up: false };
        search.empty =
            (0..problem.observations.len()).map(|at| search.misfit_of(at, &[])).collect();
        search
    }

    /// Finds the cheapest set of changes: adds the one that gains most, as long as one gains enough, and drops what is not worth
    /// its bits any more.
    pub(crate) fn solve(&mut self) -> Set {
        let mut set = self.with(Vec::new());
        while set.changes.len() < MOST_CHANGES {
            let unexplained = self.unexplained(&set);
            let Some((_, change)) = self.best(&set, &unexplained, None) else {
                break;
            };
            set.changes.push(change);
            set = self.with(set.changes);
            set = self.without_worthless(set);
            set = self.exchanged(set);
        }
        set
    }

    /// Exchanges a hop above several GPUs, which was chosen first, for links of their own or that of one of them, if these
    /// explain more now that later changes have taken their part of the figures.
    fn exchanged(&mut self, mut set: Set) -> Set {
        for at in 0..set.changes.len() {
            let hop = set.changes.get(at).filter(|change| change.is_hidden_hop()).cloned();
            let Some(hop) = hop else { continue };
            let (mut other, _) = self.without(&set, at);
            for _ in 0..hop.parts.len() {
                let unexplained = self.unexplained(&other);
                let Some((_, change)) = self.best(&other, &unexplained, Some(&hop.parts)) else {
                    break;
                };
                other.changes.push(change);
                other = self.with(other.changes);
            }
            if other.bits() < set.bits() {
                set = other;
            }
        }
        set
    }

    /// Drops the changes that others have made worth less than their bits.
    fn without_worthless(&mut self, mut set: Set) -> Set {
        let mut at = 0;
        while at < set.changes.len() {
            match self.without(&set, at) {
                (rest, gain) if gain <= 1e-9 => set = rest,
                _ => at += 1,
            }
        }
        set
    }

    /// Returns the figures that a set does not explain, each with its misfit in bits.
    pub(crate) fn unexplained(&mut self, set: &Set) -> BTreeMap<At, f64> {
        self.misfitting(set, UNEXPLAINED)
    }

    /// Returns the figures that misfit by more than this, each with its misfit in bits.
    pub(crate) fn misfitting(&mut self, set: &Set, least: f64) -> BTreeMap<At, f64> {
        let changes: Vec<&Hypothesis> = set.changes.iter().collect();
        let mut unexplained = BTreeMap::new();
        for (at, observation) in self.problem.observations.iter().enumerate() {
            if set.misfits.get(at).is_none_or(|bits| *bits <= 0.0) {
                continue;
            }
            self.count(observation.items.len());
            let intervals = predict(observation, &changes);
            for (place, (item, interval)) in observation.items.iter().zip(intervals).enumerate() {
                let bits = misfit(item, interval);
                if bits > least {
                    unexplained.insert((at, place), bits);
                }
            }
        }
        unexplained
    }

    /// Returns the set with one change less, and what that change gains.
    pub(crate) fn without(&mut self, set: &Set, at: usize) -> (Set, f64) {
        let mut rest = set.changes.clone();
        if at < rest.len() {
            rest.remove(at);
        }
        let rest = self.with(rest);
        let gain = rest.bits() - set.bits();
        (rest, gain)
    }

    /// Returns all candidates that gain at least this much, the best first.
    pub(crate) fn all_above(&mut self, set: &Set, least: f64) -> Vec<Gained> {
        let unexplained = self.unexplained(set);
        let mut found = Vec::new();
        for (candidate, _) in self.bounds(set, &unexplained, least) {
            if self.is_exhausted() {
                break;
            }
            found.extend(self.fit(&candidate, set, least));
        }
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        found
    }

    fn count(&mut self, figures: usize) {
        let figures = u64::try_from(figures).unwrap_or(u64::MAX);
        self.predictions = self.predictions.saturating_add(figures);
    }

    fn is_exhausted(&mut self) -> bool {
        self.gave_up |= self.predictions > self.budget;
        self.gave_up
    }

    fn misfit_of(&mut self, at: usize, changes: &[&Hypothesis]) -> f64 {
        let Some(observation) = self.problem.observations.get(at) else {
            return 0.0;
        };
        self.count(observation.items.len());
        misfits(observation, changes)
    }

    pub(crate) fn with(&mut self, changes: Vec<Hypothesis>) -> Set {
        let touched: BTreeSet<usize> =
            changes.iter().flat_map(|change| self.problem.touched(change)).collect();
        let mut misfits = self.empty.clone();
        let all: Vec<&Hypothesis> = changes.iter().collect();
        for at in touched {
            let bits = self.misfit_of(at, &all);
            if let Some(misfit) = misfits.get_mut(at) {
                *misfit = bits;
            }
        }
        Set { changes, misfits }
    }

    /// Returns the candidates that can gain this much with the most that each can gain, the best first.
    fn bounds(
        &self,
        set: &Set,
        unexplained: &BTreeMap<At, f64>,
        least: f64,
    ) -> Vec<(Hypothesis, f64)> {
        let mut bounds: Vec<(Hypothesis, f64)> = Vec::new();
        // Changes of one part come one after another.
        let mut on: Option<Rc<[Vec<Number>]>> = None;
        let mut of_part: Vec<(Mode, f64)> = Vec::new();
        for candidate in candidates(self.problem, unexplained, &set.changes) {
            if on.as_ref() != Some(&candidate.on) {
                let touched = self.problem.touched(&candidate).into_iter();
                let bits = touched.filter_map(|at| Some((at, *set.misfits.get(at)?)));
                let open = bits.filter(|(_, bits)| *bits > 0.0);
                of_part = open
                    .filter_map(|(at, bits)| Some((self.problem.item((at, 0))?.mode, bits)))
                    .collect();
                on = Some(candidate.on.clone());
            }
            let touched = of_part.iter().filter(|(mode, _)| candidate.modes.has(*mode));
            let most = touched.map(|(_, bits)| bits).sum::<f64>() - candidate.bits;
            if most >= least {
                bounds.push((candidate, most));
            }
        }
        bounds.sort_by(|one, other| other.1.total_cmp(&one.1));
        bounds
    }

    /// Returns the observations that a candidate touches. The worst come first: if these do not gain, the rest is not
    /// looked at. Loads cost most and come last.
    fn touched(&self, candidate: &Hypothesis, set: &Set) -> Vec<usize> {
        let bits = |at: usize| set.misfits.get(at).copied().unwrap_or(0.0);
        let is_load = |at: usize| {
            let observation = self.problem.observations.get(at);
            observation.is_some_and(|one| one.load.is_some())
        };
        let mut touched = self.problem.touched(candidate);
        touched.retain(|at| self.problem.is_on(candidate, *at));
        touched.sort_by(|one, other| {
            let key = |at: usize| (is_load(at), bits(at) <= 0.0);
            key(*one).cmp(&key(*other)).then(bits(*other).total_cmp(&bits(*one)))
        });
        touched
    }

    /// Returns the candidate that gains most, but for those of the parts `without`.
    fn best(
        &mut self,
        set: &Set,
        unexplained: &BTreeMap<At, f64>,
        without: Option<&[Part]>,
    ) -> Option<Gained> {
        let mut best: Option<Gained> = None;
        let bounds = self.bounds(set, unexplained, LEAST_GAIN).into_iter();
        for (candidate, bound) in bounds.filter(|(one, _)| Some(&*one.parts) != without) {
            let least = best.as_ref().map_or(LEAST_GAIN, |(gain, _)| *gain);
            if bound <= least || self.is_exhausted() {
                break;
            }
            if let Some(better) = self.fit(&candidate, set, least) {
                best = Some(better);
            }
        }
        best
    }

    /// Finds the number with which a candidate gains most; `None` if it does not gain more than `least`.
    fn fit(&mut self, candidate: &Hypothesis, set: &Set, least: f64) -> Option<Gained> {
        let touched = self.touched(candidate, set);
        let mut best: Option<Gained> = None;
        for effect in values(self.problem, candidate, &touched) {
            let change = Hypothesis { effect, ..candidate.clone() };
            let least = best.as_ref().map_or(least, |(gain, _)| *gain);
            if let Some(gain) = self.gain(&change, &touched, set, least) {
                best = Some((gain, change));
            }
        }
        best
    }

    /// Returns what a change gains, if that is more than `least`.
    fn gain(
        &mut self,
        change: &Hypothesis,
        touched: &[usize],
        set: &Set,
        least: f64,
    ) -> Option<f64> {
        let all: Vec<&Hypothesis> = set.changes.iter().chain([change]).collect();
        let before = |at: &usize| set.misfits.get(*at).copied().unwrap_or(0.0);
        let mut left: f64 = touched.iter().map(before).sum();
        let mut gain = -change.bits;
        for at in touched {
            if gain + left <= least {
                return None;
            }
            left -= before(at);
            gain += before(at) - self.misfit_of(*at, &all);
        }
        (gain > least).then_some(gain)
    }
}
