//! Compares the last minutes of a soak with a prediction from the check before it.

use super::load_judged;
use super::over_time::{self, AT_ENDS, Ends, Fallen, Since, free_rates};
use super::prelude::*;
use model::soak::mean;

/// Returns the paths whose rate fell by more than this since the first minutes, or is below that of the check before
/// the hours, each with the larger loss.
pub(super) fn low<'a>(evidence: &Evidence<'_>, soak: &'a Soak, percent: f64) -> Vec<Fallen<'a>> {
    let mut low = over_time::fallen(soak, percent);
    for below in below(evidence, soak) {
        match low.iter_mut().find(|fallen| std::ptr::eq(fallen.path, below.path)) {
            Some(known) if known.rate.lost_percent() < below.rate.lost_percent() => *known = below,
            Some(_) => {}
            None => low.push(below),
        }
    }
    low
}

/// Returns the paths whose last minutes are below what their copies alone, in the check before the hours, and the links
/// that they share explain. A rate that fell before the first minutes that are compared, or in all paths, is seen here
/// alone.
fn below<'a>(evidence: &Evidence<'_>, soak: &'a Soak) -> Vec<Fallen<'a>> {
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
        let own = patterns.iter().position(|one| std::ptr::eq(one, judged.pattern));
        let Some(paths) = own.and_then(|own| paths.get(own)) else {
            continue;
        };
        for at in judged.all() {
            if !judged.is_low_for(at) {
                continue;
            }
            let rate = Ends { first: judged.explained[at], last: judged.achieved[at] };
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

/// Bytes of a copy that its fixed cost does not matter for: those of a soak last half a millisecond at least.
const LONG: Bytes = Bytes(1 << 40);
