//! Expectations from a machine that is known to be good.

use std::collections::BTreeSet;

use model::flow::Endpoint;
use model::report::Report;
use model::snapshot::Gpu;
use topology::belief::Beliefs;

use super::{Bounds, Expectations, Machine, names, of_every_pair};
use crate::figures;
use crate::kind::{self, DecidedBy};
use crate::words;

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

/// Returns one bound for all figures of a kind, between GPUs of a class; for each figure its own if some have none, or
/// if the worst would not meet a bound of the best.
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
    let looks = measurements.second_looks.iter().flat_map(|look| &look.flows);
    let looked_at: BTreeSet<u32> =
        looks.flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
    let alike = words::grouped(table.into_iter().map(|(identity, figure)| {
        let shared = names(&identity, topology).into_iter().rev().nth(1);
        let kind = identity.1.clone();
        ((kind, shared.unwrap_or_default()), (identity, figure.map(|figure| figure.value)))
    }));
    let mut bounds = Bounds::new();
    for ((kind, shared), figures) in alike {
        let bound = |value: f64| bound(kind.decided_by, value, margin_percent);
        let values = figures.iter().filter_map(|(_, value)| *value);
        let best = words::largest(values, |value| if kind.is_time() { -value } else { *value });
        let is_missed_by =
            |value: f64| best.is_some_and(|best| kind.percent_worse(bound(best), value) > 0.0);
        // A second look measures some GPUs, and says nothing of the others.
        let is_of_some = kind.is_of_host()
            && figures.len() < report.snapshot.gpus.len()
            && figures
                .iter()
                .flat_map(|((ends, _), _)| ends.gpus())
                .all(|gpu| looked_at.contains(&gpu));
        let apart = is_of_some || figures.iter().any(|(_, value)| value.is_none_or(is_missed_by));
        for (identity, value) in figures {
            let Some(bound) = value.map(bound).filter(|bound| *bound > 0.0) else {
                continue;
            };
            let own = names(&identity, topology).pop().filter(|_| apart);
            let of_probe = bounds.entry(kind.probe.to_string()).or_default();
            let known = of_probe.entry(own.unwrap_or_else(|| shared.clone())).or_insert(bound);
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
