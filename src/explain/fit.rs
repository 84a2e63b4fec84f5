//! The numbers that a change may have: what the figures that it touches show.

use super::hypothesis::{Effect, Hypothesis, meet};
use super::item::{Item, Mode, Observation};
use super::problem::Problem;

/// Part of the healthy rate above which a figure shows no loss by a factor.
const NO_LOSS: f64 = 0.96;
/// Part of the predicted rate below which a flow of a load shows a limit. Chosen.
const LIMITED: f64 = 0.90;
/// Difference of two values that makes none for any figure.
const ALIKE: f64 = 0.005;
/// A figure both ways and a staged one lie a little below the limit that both their legs share.
const OF_SHARED: f64 = 1.02;

/// Returns the effects that are worth a try, numbers filled in: the median and the quartiles of what figures show.
pub(crate) fn values(
    problem: &Problem<'_>,
    candidate: &Hypothesis,
    touched: &[usize],
) -> Vec<Effect> {
    if matches!(candidate.effect, Effect::Level | Effect::Detour) {
        return vec![candidate.effect];
    }
    let mut shown: Vec<f64> = Vec::new();
    for observation in touched.iter().filter_map(|at| problem.observations.get(*at)) {
        match (&observation.load, candidate.effect) {
            (Some(_), Effect::Capacity(_)) => shown.extend(sums(candidate, observation)),
            (Some(_), _) => {
                let on = |item: &&Item| candidate.is_on(item) && candidate.passed_by(item) > 0;
                let items = observation.items.iter().filter(on);
                shown.extend(
                    items.map(|item| item.achieved / (item.healthy.rate * item.healthy.reached)),
                );
            }
            (None, _) if candidate.under_load => {}
            (None, _) => {
                let items = observation.items.iter();
                shown.extend(items.filter_map(|item| of_one(candidate, item)));
            }
        }
    }
    let is_factor = matches!(candidate.effect, Effect::Factor(_));
    shown.retain(|value| *value > 0.0 && (!is_factor || *value < NO_LOSS));
    shown.sort_by(f64::total_cmp);
    let picked = [2, 1, 3].map(|quarter| shown.get(shown.len() * quarter / 4).copied());
    let mut picked: Vec<f64> = picked.into_iter().flatten().collect();
    picked.dedup_by(|one, other| (*one / *other - 1.0).abs() < ALIKE);
    let effect = |value| match candidate.effect {
        Effect::Capacity(_) => Effect::Capacity(value),
        _ => Effect::Factor(value),
    };
    picked.into_iter().map(effect).collect()
}

/// Returns the sum of the flows through each set of a candidate, if one of them is limited.
fn sums(candidate: &Hypothesis, observation: &Observation) -> Vec<f64> {
    let sum = |set: &Vec<usize>| {
        let passing = |item: &&Item| candidate.is_on(item) && meet(set, &item.passes);
        let flows: Vec<&Item> = observation.items.iter().filter(passing).collect();
        let is_limited = flows
            .iter()
            .any(|item| item.achieved < item.healthy.rate * item.healthy.reached * LIMITED);
        is_limited.then(|| flows.iter().map(|item| item.achieved).sum())
    };
    candidate.on.iter().filter_map(sum).collect()
}

fn of_one(candidate: &Hypothesis, item: &Item) -> Option<f64> {
    if !candidate.is_on(item) || candidate.passed_by(item) == 0 {
        return None;
    }
    if !matches!(candidate.effect, Effect::Capacity(_)) {
        return Some(item.achieved / item.healthy.rate);
    }
    let of_limit = match item.mode {
        Mode::Copy | Mode::Host => 1.0,
        Mode::BothWays | Mode::Staged => OF_SHARED,
        _ => return None,
    };
    item.is_low().then_some(item.achieved * of_limit)
}
