//! Compares the last minutes of a soak with a prediction from the check before it.

use super::load_judged;
use super::over_time::{AT_ENDS, Ends, Fallen, Since, competes, free_rates};
use super::prelude::*;
use model::load::{LoadFlow, LoadPattern};
use model::soak::{Soak, SoakPath, mean};
use model::units::Bytes;

/// Returns the paths whose last minutes are below what their copies alone, in the check before the hours, and the links that
/// they share explain. A rate that fell before the first minutes that are compared, or in all paths, is seen here alone.
pub(super) fn below<'a>(evidence: &Evidence<'_>, soak: &'a Soak) -> Vec<Fallen<'a>> {
    let mut patterns: Vec<(Vec<&SoakPath>, LoadPattern)> = Vec::new();
    for (number, path) in soak.numbered() {
        let Some(pattern) = path.pattern else {
            continue;
        };
        let rates = free_rates(soak, number, path);
        let last = &rates[rates.len().saturating_sub(AT_ENDS)..];
        let flow = LoadFlow {
            achieved_gbps: mean(last.iter().copied()).map(GbPerSecond),
            ..LoadFlow::of(path.flow())
        };
        let is_same = |known: &&mut (Vec<&SoakPath>, LoadPattern)| {
            known.1.pattern == pattern && known.1.of == path.of
        };
        match patterns.iter_mut().find(is_same) {
            Some((paths, known)) => {
                paths.push(path);
                known.flows.push(flow);
            }
            None => {
                let blank = LoadPattern::blank(pattern, path.of.clone(), vec![flow], LONG);
                patterns.push((vec![path], blank));
            }
        }
    }
    let (paths, mut patterns): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
    for pattern in &mut patterns {
        let rates = pattern.flows.iter().map(|flow| flow.achieved_gbps);
        let sum: Option<f64> = rates.map(|rate| Some(rate?.0)).sum();
        pattern.achieved_gbps = sum.map(GbPerSecond);
    }
    let mut found = Vec::new();
    for judged in load_judged::judged_of(evidence, &patterns) {
        let own = patterns
            .iter()
            .position(|one| std::ptr::eq(one, judged.pattern));
        let Some(paths) = own.and_then(|own| paths.get(own)) else {
            continue;
        };
        if judged.takes_turns() {
            continue;
        }
        // A flow that shares a hop is judged together with the others there.
        let is_own = |at: &usize| {
            let alone = judged.predicted.alone.get(*at).copied().flatten();
            alone.is_some_and(|alone| judged.explained[*at] >= OWN * alone)
                && paths.get(*at).is_some_and(|path| !competes(soak, path))
        };
        let (own, shared): (Vec<usize>, Vec<usize>) = judged.all().into_iter().partition(is_own);
        let low = own.into_iter().filter(|at| judged.is_low(&[*at]));
        let shared = shared
            .clone()
            .into_iter()
            .filter(|_| judged.is_low(&shared));
        for at in low.chain(shared).collect::<Vec<_>>() {
            let rate = Ends {
                first: judged.explained[at],
                last: judged.achieved[at],
            };
            let since = Since::Check;
            // Copies with the host are left out: their rate depends on its memory, which no interface reports.
            let low = rate.lost_percent() > 0.0;
            if let Some(&path) = paths.get(at)
                && low
                && path.flow().pair().is_some()
            {
                found.push(Fallen { path, rate, since });
            }
        }
    }
    found
}

/// Share of its rate alone from which on a flow counts as limited by no other. Chosen.
const OWN: f64 = 0.95;
/// Bytes of a copy that its fixed cost does not matter for: those of a soak last half a millisecond at least.
const LONG: Bytes = Bytes(1 << 40);
