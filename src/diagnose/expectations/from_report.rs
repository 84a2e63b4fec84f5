//! Expectations from a machine that is known to be good.

use std::collections::{BTreeMap, BTreeSet};

use model::flow::Endpoint;
use model::report::Report;
use model::snapshot::Gpu;
use topology::belief::Beliefs;

use super::{Bounds, Expectations, Machine, names, of_every_pair};
use crate::figures::{self, Identity};
use crate::kind::{self, DecidedBy};

impl Expectations {
    /// Returns the facts and figures of this report's machine, with bounds `margin_percent` below the lowest figure of
    /// each kind and class, and further where more than a link decides.
    pub fn from_report(report: &Report, margin_percent: f64) -> Self {
        let profile = report.measurements.as_ref().map(|measurements| measurements.profile.clone());
        Self { profile, machine: machine(report), figures: bounds(report, margin_percent) }
    }
}

fn machine(report: &Report) -> Machine {
    let gpus = &report.snapshot.gpus;
    let least = |of: &dyn Fn(&Gpu) -> Option<u32>| {
        gpus.iter().map(of).collect::<Option<Vec<_>>>()?.into_iter().min()
    };
    let measurements = report.measurements.as_ref();
    let beliefs = Beliefs::of(&report.snapshot, &report.topology, measurements, |_| false);
    let belief = |gpu: &Gpu| beliefs.on_gpu(gpu.index);
    let names: BTreeSet<_> = gpus.iter().map(|gpu| gpu.name.known()).collect();
    let access: BTreeSet<_> =
        report.topology.pairs.iter().map(|route| route.peer_access.cuda).collect();
    Machine {
        gpus: u32::try_from(gpus.len()).ok(),
        model: names.first().copied().flatten().filter(|_| names.len() == 1).cloned(),
        // The current generation of a GPU means nothing while it is idle.
        pcie_generation: least(&|gpu| belief(gpu)?.measured_generation().map(u32::from)),
        pcie_width: least(&|gpu| {
            let measured = belief(gpu).and_then(|belief| belief.measured_lanes());
            measured.or(gpu.pcie_width.get()).map(u32::from)
        }),
        nvlinks: least(&|gpu| gpu.active_nvlinks()).filter(|links| *links > 0),
        peer_access: (access == BTreeSet::from([Some(true)])).then_some(true),
    }
}

/// Returns one bound for all figures of a kind, between GPUs of a class; for each figure its own if some have none, or if
/// GPUs differ.
fn bounds(report: &Report, margin_percent: f64) -> Bounds {
    let Some(measurements) = &report.measurements else {
        return Bounds::new();
    };
    let topology = &report.topology;
    // If pairs were left out because there are many GPUs, those that were measured represent their class.
    let mut table = figures::table(measurements);
    if measurements.left_out.is_empty() {
        table = of_every_pair(table, topology);
    }
    let mut alike: BTreeMap<(String, String), Vec<(Identity, Option<f64>)>> = BTreeMap::new();
    for (identity, figure) in table {
        let names = names(&identity, topology);
        let shared = names.into_iter().rev().nth(1).unwrap_or_default();
        let key = (identity.1.probe.to_string(), shared);
        alike.entry(key).or_default().push((identity, figure.map(|figure| figure.value)));
    }
    let slots: BTreeSet<_> = measurements
        .host
        .iter()
        .filter(|copy| copy.at_once == 1)
        .map(|copy| copy.theoretical_gbps.map(|rate| rate.0.to_bits()))
        .collect();
    let models: BTreeSet<_> = report.snapshot.gpus.iter().map(|gpu| gpu.name.known()).collect();
    let looks = measurements.second_looks.iter().flat_map(|look| &look.flows);
    let looked_at: BTreeSet<u32> =
        looks.flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
    let is_looked_at = |(ends, _): &Identity| ends.gpus().iter().all(|gpu| looked_at.contains(gpu));
    let mut bounds = Bounds::new();
    for ((probe, shared), figures) in alike {
        let is_host_rate =
            figures.iter().all(|((_, kind), _)| kind.is_of_host() && !kind.is_time());
        // A second look measures some GPUs, and says nothing of the others.
        let is_of_some = figures.len() < report.snapshot.gpus.len()
            && figures.iter().all(|(identity, _)| is_looked_at(identity));
        let apart = figures.iter().any(|(_, value)| value.is_none())
            || is_host_rate && (slots.len() > 1 || models.len() > 1 || is_of_some);
        for (identity, value) in figures {
            let kind = &identity.1;
            let bound = value.map(|value| bound(kind.decided_by, value, margin_percent));
            let Some(bound) = bound.filter(|bound| *bound > 0.0) else {
                continue;
            };
            let own = || names(&identity, topology).pop();
            let name = own().filter(|_| apart).unwrap_or_else(|| shared.clone());
            let known = bounds.entry(probe.clone()).or_default().entry(name).or_insert(bound);
            if kind.percent_worse(*known, bound) > 0.0 {
                *known = bound;
            }
        }
    }
    bounds
}

/// Returns the floor or limit for a figure of a healthy machine, to one decimal.
fn bound(decided_by: DecidedBy, value: f64, margin_percent: f64) -> f64 {
    let below = |least: f64| (value * (100.0 - margin_percent.max(least)) / 10.0).floor() / 10.0;
    match decided_by {
        // Figures that only a link decides have the margin of pairs.
        DecidedBy::Path | DecidedBy::Link => below(0.0),
        DecidedBy::Memory => below(kind::MEMORY_PERCENT),
        DecidedBy::Processor => below(kind::PROCESSOR_PERCENT),
        DecidedBy::Time => ((value * kind::TIMES).max(value + kind::LEAST_US) * 10.0).ceil() / 10.0,
    }
}
