//! What no run can have written: figures that are no quantities, shares that cannot be, and the same
//! measurement twice. A report with one of them is refused when it is read, since nothing can be said of a
//! machine by it; a run that comes to such a figure sets it aside. Rates that only the links rule out are judged
//! by a rule instead: which links there are is a fact that may be wrong too.

use std::collections::HashSet;

use super::flow::{Flow, Setup};
use super::measurement::{Impossible, Latency, LocalCopy, Measurements, Overlap, PeerBandwidth, Probe, Status};
use super::placement::{Pair, Side};
use super::report::Report;
use super::units::GbPerSecond;

/// No rate within a machine is higher, GB/s: some hundred times that of all GPU memory in a rack.
const MOST_GBPS: f64 = 1e6;

/// No figure is more than this of what its links carry or healthy machines reach, per cent. A link that was read
/// at rest, as the lowest that there is, has made 1300.
const MOST_PERCENT: f64 = 10_000.0;

/// What rounding may add to a share that cannot be above 100 per cent.
const ROUNDED: f64 = 0.1;

/// The first thing in a report that cannot be, with the cell that has it.
pub fn in_report(report: &Report) -> Option<String> {
    let of_route = report.topology.pairs.iter().find_map(|route| {
        let rates =
            [("theoretical_gbps", route.theoretical_gbps), ("staged_theoretical_gbps", route.staged_theoretical_gbps)];
        rates.into_iter().find_map(|(key, rate)| Some(format!("topology, {}: {}", route.pair, no_rate(key, rate)?)))
    });
    of_route.or_else(|| in_measurements(report.measurements.as_ref()?))
}

fn in_measurements(measurements: &Measurements) -> Option<String> {
    let Measurements { peer, overlap, latency, local, .. } = measurements;
    let figures = peer.iter().map(|cell| (name(Probe::Bandwidth, cell.pair, cell.setup), in_bandwidth(cell)));
    let figures = figures.chain(overlap.iter().map(|cell| (of_overlap(cell), in_overlap(cell))));
    let figures = figures.chain(latency.iter().map(|cell| (of_latency(cell), in_latency(cell))));
    let mut figures = figures.chain(local.iter().map(|cell| (of_local(cell), in_local(cell))));
    let wrong = figures.find_map(|(cell, why)| Some(format!("{cell}: {}", why?)));
    wrong.or_else(|| repeated(measurements)).or_else(|| {
        let pairs = peer.iter().map(|cell| cell.pair).chain(overlap.iter().map(|cell| cell.pair));
        let mut pairs = pairs.chain(latency.iter().map(|cell| cell.pair));
        let own = pairs.find(|pair| pair.source == pair.destination).map(|pair| pair.source)?;
        Some(format!("GPU {own} is measured with itself"))
    })
}

fn name(probe: Probe, pair: Pair, setup: Setup) -> String {
    format!("{probe}, {pair}, {setup}, {}", setup.bytes)
}

fn of_overlap(cell: &Overlap) -> String {
    format!("{}, kernel on {}", name(Probe::Overlap, cell.pair, cell.cell().setup), cell.compute_on)
}

fn of_latency(cell: &Latency) -> String {
    name(Probe::Latency, cell.pair, cell.cell().setup)
}

fn of_local(cell: &LocalCopy) -> String {
    format!("{}, {}, {}", Probe::Local, cell.cell().flow, cell.bytes)
}

/// Takes the figures out that cannot be, with everything that was worked out from them. What was
/// measured there is not known then, and the measurement counts as not made.
pub fn set_aside(measurements: &mut Measurements) {
    let mut found = Vec::new();
    let mut take = |flow: Flow, what: String, why: String| {
        let reason = format!("set aside: {why}");
        found.push(Impossible { flow: flow.to_string(), measurement: what, why });
        (Status::Skipped, Some(reason))
    };
    for cell in &mut measurements.peer {
        if let Some(why) = in_bandwidth(cell) {
            let what = name(Probe::Bandwidth, cell.pair, cell.setup);
            (cell.status, cell.reason) = take(cell.pair.into(), what, why);
            (cell.achieved_gbps, cell.percent, cell.spread_percent) = (None, None, None);
            (cell.fixed_cost_us, cell.host_blocked_us) = (None, None);
        }
    }
    for cell in &mut measurements.overlap {
        if let Some(why) = in_overlap(cell) {
            (cell.status, cell.reason) = take(cell.pair.into(), of_overlap(cell), why);
            (cell.overlap_percent, cell.host_blocked_us) = (None, None);
            (cell.copy_us, cell.kernel_us) = (None, None);
        }
    }
    for cell in &mut measurements.latency {
        if let Some(why) = in_latency(cell) {
            (cell.status, cell.reason) = take(cell.pair.into(), of_latency(cell), why);
            (cell.latency_us, cell.spread_percent) = (None, None);
        }
    }
    for cell in &mut measurements.local {
        if let Some(why) = in_local(cell) {
            (cell.status, cell.reason) = take(cell.cell().flow, of_local(cell), why);
            (cell.achieved_gbps, cell.spread_percent) = (None, None);
        }
    }
    measurements.impossible.extend(found);
}

fn in_bandwidth(cell: &PeerBandwidth) -> Option<String> {
    let rates = [
        ("achieved_gbps", cell.achieved_gbps),
        ("theoretical_gbps", cell.theoretical_gbps),
        ("expected_gbps", cell.expected_gbps),
        ("expected_low_gbps", cell.expected_low_gbps),
        ("expected_high_gbps", cell.expected_high_gbps),
    ];
    let shares = [
        ("percent", cell.percent),
        ("expected_percent", cell.expected_percent),
        ("spread_percent", cell.spread_percent),
        ("fixed_cost_us", cell.fixed_cost_us),
        ("host_blocked_us", cell.host_blocked_us),
    ];
    let wrong = rates.into_iter().find_map(|(key, rate)| no_rate(key, rate));
    let percents = [("percent", cell.percent), ("expected_percent", cell.expected_percent)].into_iter();
    let mut beyond = percents.filter_map(|(key, percent)| Some((key, percent.filter(|it| *it > MOST_PERCENT)?)));
    wrong
        .or_else(|| negative(&shares))
        .or_else(|| beyond.next().map(|(key, percent)| format!("{key} is {percent}, which is no share")))
}

fn in_overlap(cell: &Overlap) -> Option<String> {
    let share = cell.overlap_percent.filter(|share| !(0.0..=100.0 + ROUNDED).contains(share));
    let times = [("host_blocked_us", cell.host_blocked_us), ("copy_us", cell.copy_us), ("kernel_us", cell.kernel_us)];
    share.map(|share| format!("overlap_percent is {share}, which is no share")).or_else(|| negative(&times))
}

fn in_latency(cell: &Latency) -> Option<String> {
    let none = cell.latency_us.filter(|time| *time == 0.0);
    let none = none.map(|time| format!("latency_us is {time}, and every copy takes time"));
    none.or_else(|| negative(&[("latency_us", cell.latency_us), ("spread_percent", cell.spread_percent)]))
}

fn in_local(cell: &LocalCopy) -> Option<String> {
    no_rate("achieved_gbps", cell.achieved_gbps).or_else(|| negative(&[("spread_percent", cell.spread_percent)]))
}

fn no_rate(key: &str, rate: Option<GbPerSecond>) -> Option<String> {
    let GbPerSecond(rate) = rate.filter(|rate| !(0.0..=MOST_GBPS).contains(&rate.0))?;
    Some(format!("{key} is {rate}, which is no rate"))
}

fn negative(figures: &[(&str, Option<f64>)]) -> Option<String> {
    let quantity = |figure: f64| figure.is_finite() && figure >= 0.0;
    let (key, figure) =
        figures.iter().find_map(|(key, figure)| Some((key, figure.filter(|figure| !quantity(*figure))?)))?;
    Some(format!("{key} is {figure}, which is no quantity"))
}

/// The first measurement that stands there twice.
fn repeated(measurements: &Measurements) -> Option<String> {
    let mut seen: HashSet<(Probe, Pair, Setup, Option<Side>)> = HashSet::new();
    let peer = measurements
        .peer
        .iter()
        .map(|cell| (name(Probe::Bandwidth, cell.pair, cell.setup), (Probe::Bandwidth, cell.pair, cell.setup, None)));
    let overlap = measurements
        .overlap
        .iter()
        .map(|cell| (of_overlap(cell), (Probe::Overlap, cell.pair, cell.cell().setup, Some(cell.compute_on))));
    let latency = measurements.latency.iter();
    let latency = latency.map(|cell| (of_latency(cell), (Probe::Latency, cell.pair, cell.cell().setup, None)));
    let local = measurements.local.iter().map(|cell| {
        let within = Pair { source: cell.gpu, destination: cell.gpu };
        (of_local(cell), (Probe::Local, within, cell.cell().setup, None))
    });
    let twice = peer.chain(overlap).chain(latency).chain(local).find(|(_, key)| !seen.insert(*key));
    twice.map(|(cell, _)| format!("{cell}: is there twice"))
}

#[cfg(test)]
#[path = "impossible_tests.rs"]
mod tests;
