//! Values that no run can have written. They are figures that are not quantities, shares that cannot be, repeated
//! measurements, and measurements of GPUs that the report does not contain. A report with one of them is refused when
//! it is read, because nothing can be concluded from it about a machine. A run that arrives at such a figure sets it
//! aside. Rates that only the links rule out are judged by a rule instead, because the list of links may be wrong
//! too.

use std::collections::HashSet;

use super::cell::{Figure, Measurement, Quantity};
use super::flow::{Endpoint, Flow};
use super::measurement::{Impossible, Measurements, Status};
use super::placement::Pair;
use super::probe::Scope;
use super::report::Report;

/// Returns the first impossible value in a report, with the cell that contains it.
pub fn in_report(report: &Report) -> Option<String> {
    let of_route = report.topology.pairs.iter().find_map(|route| {
        let rates = [
            ("theoretical_gbps", route.theoretical_gbps),
            ("staged_theoretical_gbps", route.staged_theoretical_gbps),
        ];
        rates.into_iter().find_map(|(key, rate)| {
            let why = Figure::new(key, &rate, Quantity::Rate).impossible()?;
            Some(format!("topology, {}: {why}", route.pair))
        })
    });
    of_route
        .or_else(|| listed_twice(report))
        .or_else(|| in_measurements(report.measurements.as_ref()?))
        .or_else(|| of_strangers(report))
}

/// Returns the first GPU that the facts list twice, or pair with two routes. Identifiers may be alike: people take them out
/// of a report that they hand on.
fn listed_twice(report: &Report) -> Option<String> {
    let mut gpus = HashSet::new();
    let gpu = report.snapshot.gpus.iter().find(|gpu| !gpus.insert(gpu.index));
    if let Some(gpu) = gpu {
        return Some(format!("snapshot.gpus has GPU {} twice", gpu.index));
    }
    let mut pairs = HashSet::new();
    let route = report.topology.pairs.iter().find(|route| !pairs.insert(route.pair))?;
    Some(format!("topology.pairs has {} twice", route.pair))
}

/// Returns the first row of a GPU that the facts do not contain, or of a pair without a route. A run measures the
/// GPUs of its facts and finds the routes of all their pairs.
fn of_strangers(report: &Report) -> Option<String> {
    let gpus: HashSet<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let stranger = |flow: Flow| {
        flow.ends().into_iter().filter_map(Endpoint::gpu).find(|gpu| !gpus.contains(gpu))
    };
    let no_gpu = |what: String, gpu: u32| format!("{what}: snapshot.gpus has no GPU {gpu}");
    let routes = &report.topology.pairs;
    let route = routes.iter().find_map(|route| Some((route.pair, stranger(route.pair.into())?)));
    if let Some((pair, gpu)) = route {
        return Some(no_gpu(format!("topology, {pair}"), gpu));
    }
    let cells = || report.measurements.iter().flat_map(Measurements::cells);
    let cell = cells().find_map(|cell| Some((cell, stranger(cell.flow)?)));
    if let Some((cell, gpu)) = cell {
        return Some(no_gpu(format!("{}, {}", cell.probe, cell.flow), gpu));
    }
    let routes: HashSet<Pair> = routes.iter().map(|route| route.pair).collect();
    let pair = cells().filter_map(|cell| cell.flow.pair()).find(|pair| !routes.contains(pair))?;
    Some(format!("{pair} is measured, and topology.pairs has no route for it"))
}

fn in_measurements(measurements: &Measurements) -> Option<String> {
    let wrong = measurements
        .each()
        .find_map(|one| Some(format!("{}: {}", one.identity(), in_figures(one)?)));
    wrong.or_else(|| repeated(measurements)).or_else(|| with_itself(measurements))
}

fn in_figures(one: &dyn Measurement) -> Option<String> {
    one.figures().iter().find_map(Figure::impossible)
}

/// Returns the first measurement between GPUs that has only one.
fn with_itself(measurements: &Measurements) -> Option<String> {
    let gpu = measurements
        .each()
        .filter(|one| one.probe().scope() == Scope::Pair)
        .find_map(|one| one.flow().within())?;
    Some(format!("GPU {gpu} is measured with itself"))
}

/// Returns the first measurement that occurs twice.
fn repeated(measurements: &Measurements) -> Option<String> {
    let mut seen = HashSet::new();
    let mut identities = measurements.each().map(Measurement::identity);
    let twice = identities.find(|identity| !seen.insert(identity.clone()))?;
    Some(format!("{twice}: is there twice"))
}

/// Removes impossible figures, with everything derived from them. The affected value is then not known, and the
/// measurement counts as not made.
pub fn set_aside(measurements: &mut Measurements) {
    let mut found = Vec::new();
    for one in measurements.each_mut() {
        if let Some(why) = in_figures(one) {
            let reason = format!("set aside: {why}");
            found.push(Impossible {
                flow: one.flow().to_string(),
                measurement: one.identity(),
                why,
            });
            one.forget();
            let ending = one.ending_mut();
            (ending.status, ending.reason) = (Status::Skipped, Some(reason));
        }
    }
    measurements.impossible.extend(found);
}
