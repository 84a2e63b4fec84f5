//! The figures of a machine before and after a change.

use std::collections::{BTreeMap, BTreeSet};

use model::placement::Pair;
use model::report::Report;
use model::rounding::{four_places, rate};
use model::units::GbPerSecond;
use serde::Serialize;

use super::super::order::best_ring;
use super::super::outlook::Outlook;

/// Change above which a figure is listed. Chosen: repeated runs differ by less (docs/dev/method.md).
const SHOWN_FROM: f64 = 0.02;

/// A figure before and after, GB/s. Null if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    pub before_gbps: Option<f64>,
    pub after_gbps: Option<f64>,
}

impl Figure {
    fn of(before: Option<f64>, after: Option<f64>) -> Self {
        Self { before_gbps: before.map(four_places), after_gbps: after.map(four_places) }
    }

    /// Returns true if it changes by more than noise.
    pub fn changes(&self) -> bool {
        match (self.before_gbps, self.after_gbps) {
            (Some(before), Some(after)) => (after / before - 1.0).abs() > SHOWN_FROM,
            (before, after) => before.is_some() != after.is_some(),
        }
    }

    /// Returns true if it rises by more than noise.
    fn rises(&self) -> bool {
        let known = self.before_gbps.zip(self.after_gbps);
        known.is_some_and(|(before, after)| after > before * (1.0 + SHOWN_FROM))
    }
}

/// What a figure is of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moved<What> {
    #[serde(flatten)]
    pub of: What,
    #[serde(flatten)]
    pub figure: Figure,
}

/// A GPU in its copies with the memory near it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WithHost {
    pub gpu: u32,
    /// Towards the GPU.
    pub to_device: bool,
}

/// A load pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    pub pattern: String,
}

/// Every figure that a change touches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effects {
    /// Copies of a pair alone, by the way that CUDA takes, if they change.
    pub pairs: Vec<Moved<Pair>>,
    /// Copies of a GPU with the host alone, if they change.
    pub host: Vec<Moved<WithHost>>,
    /// Sums of load patterns, if they change. Those that the report has no figure of after the change are left out.
    pub load: Vec<Moved<Named>>,
    /// Number of GPUs before and after.
    pub gpus: [usize; 2],
    /// The slowest pair.
    pub slowest_pair: Figure,
    /// Predicted bus bandwidth of an all-reduce over all GPUs by their best ring.
    pub all_reduce: Figure,
    /// Predicted rates of the flows of all patterns, in their order.
    #[serde(skip)]
    flows: BTreeMap<String, Vec<f64>>,
}

impl Effects {
    pub(super) fn of(before: &Outlook<'_>, after: &Outlook<'_>) -> Self {
        let all: BTreeSet<u32> = before.gpus().into_iter().chain(after.gpus()).collect();
        let all: Vec<u32> = all.into_iter().collect();
        let pair = |pair: Pair| Moved {
            figure: Figure::of(before.alone(pair.into()), after.alone(pair.into())),
            of: pair,
        };
        let host = |gpu: u32| {
            [true, false].map(|to_device| Moved {
                of: WithHost { gpu, to_device },
                figure: Figure::of(
                    before.alone(before.of_host(gpu, to_device)),
                    after.alone(after.of_host(gpu, to_device)),
                ),
            })
        };
        let pairs = Pair::ordered(&all).into_iter().map(pair);
        let host = all.iter().flat_map(|gpu| host(*gpu));
        let (mut load, mut flows) = (Vec::new(), BTreeMap::new());
        let measured = after.report().measurements.iter().flat_map(|all| &all.load);
        for pattern in measured.filter(|pattern| pattern.rate().is_some()) {
            let of: Vec<_> = pattern.flows.iter().map(model::load::LoadFlow::flow).collect();
            let achieved = pattern.flows.iter().map(|flow| Some(flow.achieved_gbps?.0));
            let known = achieved.collect::<Option<Vec<f64>>>();
            let rates = before.at_once(&of).zip(after.at_once(&of)).zip(known);
            let Some(((was, will), known)) = rates else {
                continue;
            };
            // The prediction's own error is in both, so it cancels out.
            let factors = was.iter().zip(&will).map(|(was, will)| will / was);
            let rates: Vec<f64> =
                known.iter().zip(factors).map(|(rate, factor)| rate * factor).collect();
            let sums = [known.iter().sum::<f64>(), rates.iter().sum::<f64>()];
            let total = pattern.achieved_gbps.map(|total| total.0);
            let figure = Figure::of(total, total.map(|total| total * sums[1] / sums[0]));
            load.push(Moved { of: Named { pattern: pattern.name() }, figure });
            flows.insert(pattern.name(), rates);
        }
        let slowest = |outlook: &Outlook<'_>| {
            let pairs = Pair::ordered(&outlook.gpus()).into_iter();
            pairs.filter_map(|pair| outlook.alone(pair.into())).reduce(f64::min)
        };
        Self {
            pairs: pairs.filter(|moved| moved.figure.changes()).collect(),
            host: host.filter(|moved| moved.figure.changes()).collect(),
            load: load.into_iter().filter(|moved| moved.figure.changes()).collect(),
            gpus: [before.gpus().len(), after.gpus().len()],
            slowest_pair: Figure::of(slowest(before), slowest(after)),
            all_reduce: Figure::of(best_ring(before), best_ring(after)),
            flows,
        }
    }

    /// Returns the gain in a line: `GPU 5 with 7 GPUs 5.7 to 26.1 GB/s; all-reduce of 8 GPUs 5.7 to 12.6`. `None` if
    /// nothing gains.
    pub(super) fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        let pairs: Vec<&Moved<Pair>> = self.pairs.iter().filter(|one| one.figure.rises()).collect();
        let middle = |figures: Vec<&Figure>| {
            let of = |value: fn(&Figure) -> Option<f64>| {
                let mut all: Vec<f64> = figures.iter().filter_map(|figure| value(figure)).collect();
                all.sort_by(f64::total_cmp);
                all.get(all.len() / 2).copied()
            };
            let (before, after) = (of(|one| one.before_gbps), of(|one| one.after_gbps));
            before.zip(after).map(|(before, after)| format!("{} to {}", rate(before), rate(after)))
        };
        if let Some(rates) = middle(pairs.iter().map(|one| &one.figure).collect()) {
            parts.push(format!("{} {rates}", who(&pairs)));
        }
        let host: Vec<_> = self.host.iter().filter(|one| one.figure.rises()).collect();
        if let Some(rates) = middle(host.iter().map(|one| &one.figure).collect()) {
            let gpus: BTreeSet<u32> = host.iter().map(|one| one.of.gpu).collect();
            let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
            let who = match gpus.as_slice() {
                // The GPU was named already.
                [gpu]
                    if parts
                        .first()
                        .is_some_and(|first| first.starts_with(&format!("GPU {gpu} "))) =>
                {
                    String::new()
                }
                [gpu] => format!("GPU {gpu} "),
                gpus => format!("{} GPUs ", gpus.len()),
            };
            parts.push(format!("{who}with the host {rates}"));
        }
        let gain = |one: &&Moved<Named>| {
            let figures = one.figure.before_gbps.zip(one.figure.after_gbps);
            figures.map_or(0.0, |(before, after)| after / before)
        };
        let load = self.load.iter().filter(|one| one.figure.rises());
        let load = load.max_by(|one, other| gain(one).total_cmp(&gain(other)));
        if let (true, Some(load)) = (parts.is_empty(), load)
            && let Some(rates) = middle(vec![&load.figure])
        {
            parts.push(format!("{} {rates}", load.of.pattern));
        }
        if self.all_reduce.rises()
            && let Some(rates) = middle(vec![&self.all_reduce])
        {
            parts.push(format!("all-reduce of {} GPUs {rates}", self.gpus[1]));
        }
        (!parts.is_empty()).then(|| format!("{} GB/s", parts.join("; ")))
    }
}

/// Names the pairs: a GPU that all have in common, one pair, or their number.
fn who(pairs: &[&Moved<Pair>]) -> String {
    let first = pairs.first().map(|one| one.of);
    let ends = first.map(|pair| [pair.source, pair.destination]);
    let common: Vec<u32> = (ends.into_iter().flatten())
        .filter(|gpu| pairs.iter().all(|one| one.of.touches(*gpu)))
        .collect();
    match common.as_slice() {
        [gpu] => format!("GPU {gpu} with {} GPUs", partners(pairs)),
        [one, other] => format!("GPU {one} with GPU {other}"),
        _ => format!("{} pairs", pairs.len()),
    }
}

/// Returns how many GPUs the common one has a pair with.
fn partners(pairs: &[&Moved<Pair>]) -> usize {
    let ends = pairs.iter().flat_map(|one| [one.of.source, one.of.destination]);
    ends.collect::<BTreeSet<u32>>().len().saturating_sub(1)
}

/// Writes the predicted figures of load patterns into the report of the changed machine.
pub(super) fn write(report: &mut Report, effects: &Effects) {
    let Some(measurements) = &mut report.measurements else {
        return;
    };
    for pattern in &mut measurements.load {
        let Some(rates) = effects.flows.get(&pattern.name()) else {
            continue;
        };
        let known = pattern.flows.iter().filter_map(|flow| Some(flow.achieved_gbps?.0));
        let before: f64 = known.sum();
        let after: f64 = rates.iter().sum();
        for (flow, rate) in pattern.flows.iter_mut().zip(rates) {
            flow.achieved_gbps = Some(GbPerSecond(*rate));
        }
        let total = pattern.achieved_gbps.filter(|_| before > 0.0);
        pattern.achieved_gbps = total.map(|total| GbPerSecond(total.0 * after / before));
    }
    measurements.all_reduce = diagnose::collectives::of(measurements);
}
