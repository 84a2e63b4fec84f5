//! The best GPUs for a job, by measured figures.
//!
//! Sets of GPUs are compared by their slowest pair, then by the predicted all-reduce over their best ring, then by the
//! number of their NUMA nodes, then by how often they meet on PCIe links, then by their indices. Rates within
//! [`NOISE`] of the best one count as equal.

mod partition;
mod sets;

use model::finding::{Finding, Severity, Subject};
use model::measurement::DriverFacts;
use model::placement::Pair;
use serde::Serialize;

use self::sets::Sets;
use super::outlook::{Outlook, between};
pub use super::place::Binding;
use super::place::{binding, nodes, shared_uplinks};
use super::ring::{Between, Shape};

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// GPUs of a job.
    pub gpus: usize,
    /// True for as many jobs as fit.
    pub all: bool,
    /// GPUs with a finding of at least this severity are left out.
    pub leave_out: Severity,
}

/// The best GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pick {
    /// The jobs, one unless all were wanted.
    pub jobs: Vec<Job>,
    /// GPUs that no job may use.
    pub left_out: Vec<LeftOut>,
    /// GPUs that could be used and are in no job.
    pub unused: Vec<u32>,
    /// The worst choice of as many GPUs. Null if there is only one choice.
    pub worst: Option<Choice>,
    /// False if not all choices were compared, and a better one may exist.
    pub exact: bool,
}

/// GPUs with what they reach together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// In the order of ranks: that of the best ring.
    pub gpus: Vec<u32>,
    /// The slowest pair. Null for one GPU.
    pub slowest_pair: Option<Pair>,
    /// Its rate alone, as measured. Null for one GPU.
    pub slowest_pair_gbps: Option<f64>,
    /// Predicted bus bandwidth of an all-reduce over this ring. Null for one GPU.
    pub all_reduce_bus_gbps: Option<f64>,
    /// The lowest rate of these GPUs with the memory near them. Null if not measured.
    pub host_gbps: Option<f64>,
}

/// GPUs of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    #[serde(flatten)]
    pub choice: Choice,
    /// The same bus bandwidth while the other jobs have one at once. Null for a single job.
    pub all_reduce_beside_others_gbps: Option<f64>,
    /// Number of NUMA nodes.
    pub numa_nodes: usize,
    /// How often these GPUs meet on PCIe links above their own.
    pub shared_uplinks: usize,
    /// What the process of each rank should be bound to.
    pub ranks: Vec<Binding>,
}

/// A GPU that no job may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub gpu: u32,
    pub why: String,
}

/// Picks the best GPUs.
///
/// # Errors
///
/// A sentence: fewer GPUs can be used than are wanted.
pub fn pick(outlook: &Outlook<'_>, wanted: Wanted) -> Result<Pick, String> {
    let left_out = left_out(outlook, wanted);
    let all = outlook.gpus();
    let is_usable = |gpu: &u32| left_out.iter().all(|one| one.gpu != *gpu);
    let usable: Vec<u32> = all.iter().copied().filter(is_usable).collect();
    if usable.len() < wanted.gpus {
        let why = left_out
            .first()
            .map_or(String::new(), |one| format!("; GPU {} is left out: {}", one.gpu, one.why));
        return Err(format!(
            "{} wanted and {} of {} can be used{why}",
            number(wanted.gpus),
            usable.len(),
            number(all.len())
        ));
    }
    let between = Between::of(outlook, &all);
    let mut sets = Sets::of(outlook, &between, wanted.gpus);
    let chosen = if wanted.all { sets.partition(&usable) } else { vec![sets.best(&usable)] };
    let mut jobs: Vec<Job> = chosen.iter().map(|gpus| job(outlook, &sets, gpus)).collect();
    if jobs.len() > 1 {
        beside_others(outlook, &mut jobs);
    }
    let measured: Vec<u32> = all.iter().copied().filter(|gpu| sets.is_measured(*gpu)).collect();
    let worst = sets.worst(&measured).map(|gpus| choice(outlook, &sets, &gpus));
    let is_in_a_job = |gpu: &u32| jobs.iter().any(|job| job.choice.gpus.contains(gpu));
    Ok(Pick {
        unused: usable.into_iter().filter(|gpu| !is_in_a_job(gpu)).collect(),
        jobs,
        left_out,
        worst,
        exact: sets.exact,
    })
}

fn number(gpus: usize) -> String {
    match gpus {
        1 => "1 GPU".to_owned(),
        gpus => format!("{gpus} GPUs"),
    }
}

fn choice(outlook: &Outlook<'_>, sets: &Sets<'_>, gpus: &[u32]) -> Choice {
    let ring = sets.ring(gpus);
    let slowest = sets.slowest(gpus);
    let host = gpus.iter().map(|gpu| outlook.with_host(*gpu));
    let host = host.reduce(|one, other| Some(one?.min(other?))).flatten();
    let rounded = |rate: f64| model::rounding::four_places(rate);
    Choice {
        gpus: ring.as_ref().map_or(gpus.to_vec(), |(order, _)| order.clone()),
        slowest_pair: slowest.map(|(pair, _)| pair),
        slowest_pair_gbps: slowest.map(|(_, rate)| rounded(rate)),
        all_reduce_bus_gbps: ring.map(|(_, rate)| rounded(rate)),
        host_gbps: host.map(rounded),
    }
}

fn job(outlook: &Outlook<'_>, sets: &Sets<'_>, gpus: &[u32]) -> Job {
    let choice = choice(outlook, sets, gpus);
    Job {
        all_reduce_beside_others_gbps: None,
        numa_nodes: nodes(outlook, gpus).len(),
        shared_uplinks: shared_uplinks(outlook.report(), gpus),
        ranks: choice.gpus.iter().map(|gpu| binding(outlook, *gpu)).collect(),
        choice,
    }
}

/// Predicts the all-reduce of each job while all have one.
fn beside_others(outlook: &Outlook<'_>, jobs: &mut [Job]) {
    let ring = |gpus: &[u32]| {
        let next = gpus.iter().skip(1).chain(gpus.first());
        let flows = gpus.iter().zip(next).filter(|(from, to)| from != to);
        flows.map(|(from, to)| between(*from, *to)).collect::<Vec<_>>()
    };
    let rings: Vec<_> = jobs.iter().map(|job| ring(&job.choice.gpus)).collect();
    let Some(rates) = outlook.at_once(&rings.concat()) else {
        return;
    };
    let mut rates = rates.as_slice();
    for (job, ring) in jobs.iter_mut().zip(&rings) {
        let (own, rest) = rates.split_at(ring.len().min(rates.len()));
        rates = rest;
        let slowest = own.iter().copied().reduce(f64::min);
        job.all_reduce_beside_others_gbps = slowest.map(model::rounding::four_places);
    }
}

/// Returns the GPUs that no job may use: those with a finding, and those without figures.
fn left_out(outlook: &Outlook<'_>, wanted: Wanted) -> Vec<LeftOut> {
    let report = outlook.report();
    let all = outlook.gpus();
    let none = DriverFacts::default();
    let driver = report.measurements.as_ref().map_or(&none, |all| &all.driver);
    let why = |gpu: u32| {
        let accuses = |finding: &&Finding| {
            finding.severity >= wanted.leave_out && accused(finding, all.len()).contains(&gpu)
        };
        let finding = report.findings.iter().find(accuses);
        if let Some(finding) = finding {
            return Some(format!("{} [{}]", finding.message, finding.code));
        }
        let device = driver.devices.iter().find(|device| device.index == gpu);
        if let Some(failure) = device.and_then(|device| device.failure.clone()) {
            return Some(failure);
        }
        let has_figure = |other: &u32| {
            let flows = [between(gpu, *other), between(*other, gpu)];
            *other != gpu && flows.iter().all(|flow| outlook.alone(*flow).is_some())
        };
        let is_measured = if wanted.gpus > 1 {
            all.iter().any(has_figure)
        } else {
            outlook.with_host(gpu).is_some() || all.iter().any(has_figure)
        };
        (!is_measured).then(|| "its copies were not measured, or failed".to_owned())
    };
    let out = all.iter().filter_map(|gpu| Some(LeftOut { gpu: *gpu, why: why(*gpu)? }));
    out.collect()
}

/// Returns the GPUs that a finding accuses, of this many. One about a pair, or about all GPUs, accuses none of them:
/// their figures decide.
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

#[cfg(test)]
mod tests;

/// Returns the ring of some GPUs in this order, or `None` for one GPU.
fn rate_of(between: &Between, gpus: &[u32]) -> Option<f64> {
    (gpus.len() > 1).then(|| between.rate(&between.places(gpus), Shape::Ring))
}
