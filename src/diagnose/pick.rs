//! The best GPUs of a report: those whose slowest measured pair is fastest.

use std::collections::BTreeMap;

use serde::Serialize;

use super::expected_load::Alone;
use super::words::count;
use model::finding::{Finding, Severity, Subject};
use model::flow::Flow;
use model::measurement::Measurements;
use model::placement::{Engine, Pair};
use model::report::{Report, Tool};
use topology::load::Ways;

/// Part of the best rate from which on rates count as equal. Chosen: above what runs differ by.
const EQUAL: f64 = 0.99;

/// The best GPUs, as scripts read them.
#[derive(Debug, Serialize)]
pub struct Pick {
    pub schema: &'static str,
    pub tool: Tool,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Start of the report's run, RFC 3339, UTC.
    pub started_at: String,
    pub gpus: Vec<u32>,
    /// None if that of one is not known.
    pub uuids: Option<Vec<String>>,
    /// The pair with the lowest rate. None for one GPU.
    pub slowest_pair: Option<Pair>,
    /// GB/s.
    pub slowest_pair_gbps: Option<f64>,
    /// GPUs with an error, and those without figures.
    pub left_out: Vec<LeftOut>,
}

/// A GPU that is not picked.
#[derive(Debug, Serialize)]
pub struct LeftOut {
    pub gpu: u32,
    /// The reason, as a sentence.
    pub why: String,
}

/// Why there is no pick.
#[derive(Debug)]
pub enum NoPick {
    /// The report has no figures to pick by.
    NotMeasured,
    /// The machine has fewer GPUs: how many.
    TooMany(String),
    /// Too few GPUs can be used together: the sentence.
    TooFew(String),
}

/// Picks the GPUs, this many, whose slowest pair is fastest, of those without an error.
///
/// # Errors
///
/// Why there is no pick.
pub fn pick(report: &Report, number: usize) -> Result<Pick, NoPick> {
    let gpus: Vec<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let rates = Rates::of(report);
    let has_figures = |all: &Measurements| all.cells().any(|cell| cell.tested());
    let is_measured = report.measurements.as_ref().is_some_and(has_figures);
    if is_measured && number > gpus.len() {
        return Err(NoPick::TooMany(count(gpus.len(), "GPU")));
    }
    if !is_measured || (number > 1 && rates.pairs.is_empty()) {
        return Err(NoPick::NotMeasured);
    }
    let why = |gpu: u32| {
        let mut errors = report.findings.iter().filter(|found| found.severity == Severity::Error);
        if let Some(found) = errors.find(|found| accused(found, gpus.len()).contains(&gpu)) {
            return Some(format!("{} [{}]", found.message, found.code));
        }
        let has_rate = gpus.iter().any(|other| rates.between(gpu, *other).is_some());
        (number > 1 && !has_rate).then(|| "its copies were not measured, or failed".to_owned())
    };
    let left_out: Vec<LeftOut> =
        gpus.iter().filter_map(|gpu| Some(LeftOut { gpu: *gpu, why: why(*gpu)? })).collect();
    let is_usable = |gpu: &u32| left_out.iter().all(|out| out.gpu != *gpu);
    let usable: Vec<u32> = gpus.iter().copied().filter(is_usable).collect();
    let best = match number {
        1 => usable.first().map(|gpu| vec![*gpu]),
        _ => rates.best(&usable, number),
    };
    let best = best.ok_or_else(|| {
        let out = left_out.first();
        let why = out.map(|out| format!("; GPU {} is left out: {}", out.gpu, out.why));
        NoPick::TooFew(format!(
            "{} wanted and {} of {} can be used together{}",
            count(number, "GPU"),
            usable.len(),
            count(gpus.len(), "GPU"),
            why.unwrap_or_default()
        ))
    })?;
    let uuid = |gpu: &u32| report.snapshot.gpu(*gpu)?.uuid.known().cloned();
    let pairs = best.iter().flat_map(|one| best.iter().map(move |other| (*one, *other)));
    let pairs = pairs.filter(|(one, other)| one < other);
    let slowest = pairs.filter_map(|(one, other)| rates.between(one, other));
    let slowest = slowest.min_by(|one, other| one.0.total_cmp(&other.0));
    Ok(Pick {
        schema: "peerscope.pick/1",
        tool: Tool::this(),
        machine: report.machine.clone(),
        started_at: report.started_at.clone(),
        uuids: best.iter().map(uuid).collect(),
        gpus: best,
        slowest_pair: slowest.map(|(_, pair)| pair),
        slowest_pair_gbps: slowest.map(|(rate, _)| model::rounding::four_places(rate)),
        left_out,
    })
}

/// Returns the GPUs that a finding accuses, of this many. One about a pair, or about all GPUs, accuses none of them:
/// their rates decide.
fn accused(finding: &Finding, all: usize) -> Vec<u32> {
    match &finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => vec![*index],
        Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => {
            let gpus = &finding.scope.gpus;
            if gpus.len() < all { gpus.clone() } else { Vec::new() }
        }
        Subject::Pair(_) => Vec::new(),
    }
}

/// The lower rate of the two directions of each pair, GB/s: of what copy engines reach directly, or else staged.
struct Rates {
    pairs: BTreeMap<(u32, u32), (f64, Pair)>,
}

impl Rates {
    fn of(report: &Report) -> Self {
        let gpus: Vec<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let ways = Ways::of(&report.snapshot, &report.topology);
        let alone = report.measurements.as_ref().map(Alone::of);
        let rate = |source, destination| {
            let pair = Pair { source, destination };
            let path = ways.path(pair);
            Some((alone.as_ref()?.rate(Flow::from(pair), path, Engine::Copy)?, pair))
        };
        let both = |(one, other): (u32, u32)| {
            let (there, back) = (rate(one, other)?, rate(other, one)?);
            Some(((one, other), if back.0 < there.0 { back } else { there }))
        };
        let pairs = gpus.iter().flat_map(|one| gpus.iter().map(move |other| (*one, *other)));
        Self { pairs: pairs.filter(|(one, other)| one < other).filter_map(both).collect() }
    }

    fn between(&self, one: u32, other: u32) -> Option<(f64, Pair)> {
        self.pairs.get(&(one.min(other), one.max(other))).copied()
    }

    /// Returns the first GPUs, this many, all pairs of which reach this rate.
    fn all_reach(&self, least: f64, usable: &[u32], number: usize) -> Option<Vec<u32>> {
        let Some((first, rest)) = usable.split_first() else {
            return (number == 0).then(Vec::new);
        };
        if number == 0 || usable.len() < number {
            return (number == 0).then(Vec::new);
        }
        let reaches =
            |other: &&u32| self.between(*first, **other).is_some_and(|(rate, _)| rate >= least);
        let beside: Vec<u32> = rest.iter().filter(reaches).copied().collect();
        let with = self.all_reach(least, &beside, number - 1).map(|mut others| {
            others.insert(0, *first);
            others
        });
        with.or_else(|| self.all_reach(least, rest, number))
    }

    /// Returns the GPUs, this many, whose slowest pair is fastest. Rates that are equal but for noise leave those with
    /// the lowest indices.
    fn best(&self, usable: &[u32], number: usize) -> Option<Vec<u32>> {
        let mut rates: Vec<f64> = self.pairs.values().map(|(rate, _)| *rate).collect();
        rates.sort_by(f64::total_cmp);
        let enough = |least: &f64| self.all_reach(*least, usable, number).is_some();
        let highest = rates.partition_point(enough).checked_sub(1).and_then(|at| rates.get(at));
        self.all_reach(highest? * EQUAL, usable, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pick_is_the_best_of_all_choices() {
        let choices = |all: &[u32], number: usize| {
            let sets = (0_u32..1 << all.len()).filter(|set| set.count_ones() as usize == number);
            let of = |set: u32| all.iter().copied().filter(|gpu| set >> gpu & 1 == 1).collect();
            sets.map(of).collect::<Vec<Vec<u32>>>()
        };
        let mut seed = 7_u64;
        for gpus in 2..=7_u32 {
            let all: Vec<u32> = (0..gpus).collect();
            let mut pairs = BTreeMap::new();
            for (one, other) in all.iter().flat_map(|one| (one + 1..gpus).map(|o| (*one, o))) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pair = Pair { source: one, destination: other };
                if seed >> 60 > 0 {
                    pairs.insert((one, other), ((1_u64 << (seed >> 40 & 7)) as f64, pair));
                }
            }
            let rates = Rates { pairs };
            for number in 2..=all.len() {
                let slowest = |set: &Vec<u32>| {
                    let of = set.iter().flat_map(|a| set.iter().map(move |b| (*a, *b)));
                    let of = of.filter(|(a, b)| a < b);
                    of.map(|(a, b)| Some(rates.between(a, b)?.0))
                        .reduce(|one, other| Some(one?.min(other?)))?
                };
                let best = choices(&all, number).iter().filter_map(slowest).reduce(f64::max);
                let picked = rates.best(&all, number);
                assert_eq!(picked.as_ref().and_then(slowest), best, "{gpus} {number}: {picked:?}");
            }
        }
    }
}
