//! Values that no run can have written. They are figures that are not quantities, shares that cannot be, repeated
//! measurements, and measurements of GPUs that the report does not contain. A report with one of them is refused when
//! it is read, because nothing can be concluded from it about a machine. A run that arrives at such a figure sets it
//! aside. Rates that only the links rule out are judged by a rule instead, because the list of links may be wrong
//! too.

use std::collections::HashSet;

use super::flow::{Endpoint, Flow, Setup};
use super::host::{HostCopy, Pinning};
use super::load::LoadPattern;
use super::measurement::{
    Impossible, Latency, LocalCopy, Measurements, Overlap, PeerBandwidth, Probe, Status,
};
use super::one_gpu::{Ending, OneGpu};
use super::placement::{Pair, Side};
use super::report::Report;
use super::units::GbPerSecond;

/// No rate within a machine is higher, GB/s: about a hundred times the rate of all GPU memory in a rack.
const MOST_GBPS: f64 = 1e6;

/// The highest believable percentage of what a link carries or healthy machines reach. A link read at rest, where it
/// shows its lowest rate, has produced 1300.
const MOST_PERCENT: f64 = 10_000.0;

/// Tolerance for rounding of a share that cannot be above 100 per cent.
const ROUNDED: f64 = 0.1;

/// Returns the first impossible value in a report, with the cell that contains it.
pub fn in_report(report: &Report) -> Option<String> {
    let of_route = report.topology.pairs.iter().find_map(|route| {
        let rates = [
            ("theoretical_gbps", route.theoretical_gbps),
            ("staged_theoretical_gbps", route.staged_theoretical_gbps),
        ];
        rates.into_iter().find_map(|(key, rate)| {
            Some(format!("topology, {}: {}", route.pair, no_rate(key, rate)?))
        })
    });
    of_route
        .or_else(|| in_measurements(report.measurements.as_ref()?))
        .or_else(|| of_strangers(report))
}

/// Returns the first row of a GPU that the facts do not contain, or of a pair without a route. A run measures the
/// GPUs of its facts and finds the routes of all their pairs.
fn of_strangers(report: &Report) -> Option<String> {
    let gpus: HashSet<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let stranger = |flow: Flow| {
        flow.ends()
            .into_iter()
            .filter_map(Endpoint::gpu)
            .find(|gpu| !gpus.contains(gpu))
    };
    let no_gpu = |what: String, gpu: u32| format!("{what}: snapshot.gpus has no GPU {gpu}");
    let routes = &report.topology.pairs;
    let route = routes
        .iter()
        .find_map(|route| Some((route.pair, stranger(route.pair.into())?)));
    if let Some((pair, gpu)) = route {
        return Some(no_gpu(format!("topology, {pair}"), gpu));
    }
    let cells = || report.measurements.iter().flat_map(Measurements::cells);
    let cell = cells().find_map(|cell| Some((cell, stranger(cell.flow)?)));
    if let Some((cell, gpu)) = cell {
        return Some(no_gpu(format!("{}, {}", cell.probe, cell.flow), gpu));
    }
    let routes: HashSet<Pair> = routes.iter().map(|route| route.pair).collect();
    let pair = cells()
        .filter_map(|cell| cell.flow.pair())
        .find(|pair| !routes.contains(pair))?;
    Some(format!(
        "{pair} is measured, and topology.pairs has no route for it"
    ))
}

fn in_measurements(measurements: &Measurements) -> Option<String> {
    let Measurements {
        peer,
        overlap,
        latency,
        local,
        host,
        pinning,
        ..
    } = measurements;
    let figures = peer.iter().map(|cell| {
        (
            name(Probe::Bandwidth, cell.pair, cell.setup),
            in_bandwidth(cell),
        )
    });
    let figures = figures.chain(
        overlap
            .iter()
            .map(|cell| (of_overlap(cell), in_overlap(cell))),
    );
    let figures = figures.chain(
        latency
            .iter()
            .map(|cell| (of_latency(cell), in_latency(cell))),
    );
    let figures = figures.chain(local.iter().map(|cell| (of_local(cell), in_local(cell))));
    let figures = figures.chain(host.iter().map(|cell| (of_host(cell), in_host(cell))));
    let figures = figures.chain(
        pinning
            .iter()
            .map(|cell| (of_pinning(cell), in_pinning(cell))),
    );
    let figures = figures.chain(
        measurements
            .load
            .iter()
            .map(|cell| (of_load(cell), in_load(cell))),
    );
    let mut figures = figures.chain(
        measurements
            .on_one_gpu()
            .map(|cell| (cell.name(), on_one_gpu(cell))),
    );
    let wrong = figures.find_map(|(cell, why)| Some(format!("{cell}: {}", why?)));
    wrong.or_else(|| repeated(measurements)).or_else(|| {
        let pairs = peer
            .iter()
            .map(|cell| cell.pair)
            .chain(overlap.iter().map(|cell| cell.pair));
        let mut pairs = pairs.chain(latency.iter().map(|cell| cell.pair));
        let own = pairs
            .find(|pair| pair.source == pair.destination)
            .map(|pair| pair.source)?;
        Some(format!("GPU {own} is measured with itself"))
    })
}

fn name(probe: Probe, pair: Pair, setup: Setup) -> String {
    format!("{probe}, {pair}, {setup}, {}", setup.bytes)
}

fn of_overlap(cell: &Overlap) -> String {
    format!(
        "{}, kernel on {}",
        name(Probe::Overlap, cell.pair, cell.cell().setup),
        cell.compute_on
    )
}

fn of_latency(cell: &Latency) -> String {
    name(Probe::Latency, cell.pair, cell.cell().setup)
}

fn of_local(cell: &LocalCopy) -> String {
    format!("{}, {}, {}", Probe::Local, cell.cell().flow, cell.bytes)
}

fn of_host(cell: &HostCopy) -> String {
    let at_once = if cell.at_once > 1 {
        format!(", {} GPUs at once", cell.at_once)
    } else {
        String::new()
    };
    format!(
        "{}, {}, {}{at_once}, {}",
        Probe::Host,
        cell.flow(),
        cell.way(),
        cell.bytes
    )
}

fn of_pinning(cell: &Pinning) -> String {
    format!("{}, {}, {}", Probe::Pinning, cell.cell().flow, cell.bytes)
}

fn of_load(cell: &LoadPattern) -> String {
    format!("{}, {}", Probe::Load, cell.name())
}

/// Removes impossible figures, with everything derived from them. The affected value is then not known, and the
/// measurement counts as not made.
pub fn set_aside(measurements: &mut Measurements) {
    let mut found = Vec::new();
    let mut take = |flow: Flow, what: String, why: String| {
        let reason = format!("set aside: {why}");
        found.push(Impossible {
            flow: flow.to_string(),
            measurement: what,
            why,
        });
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
    for cell in &mut measurements.host {
        if let Some(why) = in_host(cell) {
            (cell.status, cell.reason) = take(cell.flow(), of_host(cell), why);
            (cell.achieved_gbps, cell.percent, cell.spread_percent) = (None, None, None);
            (cell.to_device_gbps, cell.to_host_gbps, cell.host_blocked_us) = (None, None, None);
        }
    }
    for cell in &mut measurements.pinning {
        if let Some(why) = in_pinning(cell) {
            (cell.status, cell.reason) = take(cell.cell().flow, of_pinning(cell), why);
            (cell.allocate_ms_per_gib, cell.free_ms_per_gib) = (None, None);
            (cell.register_ms_per_gib, cell.unregister_ms_per_gib) = (None, None);
        }
    }
    for cell in &mut measurements.load {
        if let Some(why) = in_load(cell) {
            let flow = cell.flows.first().map(|flow| flow.flow());
            if let Some(flow) = flow {
                (cell.status, cell.reason) = take(flow, of_load(cell), why);
            }
            cell.forget();
        }
    }
    for cell in measurements.on_one_gpu_mut() {
        if let Some(why) = on_one_gpu(cell) {
            let (status, reason) = take(cell.flow(), cell.name(), why);
            cell.forget();
            *cell.ending_mut() = Ending::without(status, reason);
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
    wrong
        .or_else(|| negative(&shares))
        .or_else(|| no_share(&shares[..2]))
}

fn in_overlap(cell: &Overlap) -> Option<String> {
    let share = cell
        .overlap_percent
        .filter(|share| !(0.0..=100.0 + ROUNDED).contains(share));
    let times = [
        ("host_blocked_us", cell.host_blocked_us),
        ("copy_us", cell.copy_us),
        ("kernel_us", cell.kernel_us),
    ];
    share
        .map(|share| format!("overlap_percent is {share}, which is no share"))
        .or_else(|| negative(&times))
}

fn in_latency(cell: &Latency) -> Option<String> {
    let none = cell.latency_us.filter(|time| *time == 0.0);
    let none = none.map(|time| format!("latency_us is {time}, and every copy takes time"));
    none.or_else(|| {
        negative(&[
            ("latency_us", cell.latency_us),
            ("spread_percent", cell.spread_percent),
        ])
    })
}

fn in_local(cell: &LocalCopy) -> Option<String> {
    no_rate("achieved_gbps", cell.achieved_gbps)
        .or_else(|| negative(&[("spread_percent", cell.spread_percent)]))
}

/// Checks that shares are at most 100 per cent, except spreads, and that times are not negative.
fn on_one_gpu(cell: &dyn OneGpu) -> Option<String> {
    let figures = cell.figures();
    let is_share = |key: &str| key.ends_with("_percent") && key != "spread_percent";
    let beyond = |figure: &f64| *figure > 100.0 + ROUNDED;
    let mut shares = figures.iter().filter(|(key, _)| is_share(key));
    let share = shares.find_map(|(key, figure)| Some((key, figure.filter(beyond)?)));
    negative(&figures)
        .or_else(|| share.map(|(key, share)| format!("{key} is {share}, which is no share")))
}

fn in_host(cell: &HostCopy) -> Option<String> {
    let rates = [
        ("achieved_gbps", cell.achieved_gbps),
        ("to_device_gbps", cell.to_device_gbps),
        ("to_host_gbps", cell.to_host_gbps),
        ("theoretical_gbps", cell.theoretical_gbps),
        ("expected_gbps", cell.expected_gbps),
        ("expected_low_gbps", cell.expected_low_gbps),
        ("expected_high_gbps", cell.expected_high_gbps),
    ];
    let shares = [
        ("percent", cell.percent),
        ("expected_percent", cell.expected_percent),
        ("spread_percent", cell.spread_percent),
        ("host_blocked_us", cell.host_blocked_us),
    ];
    let wrong = rates.into_iter().find_map(|(key, rate)| no_rate(key, rate));
    wrong
        .or_else(|| negative(&shares))
        .or_else(|| no_share(&shares[..2]))
}

/// Checks the rates and the shares, and that no fairness index is above 1.
fn in_load(cell: &LoadPattern) -> Option<String> {
    let rates = [
        ("achieved_gbps", cell.achieved_gbps),
        ("theoretical_gbps", cell.theoretical_gbps),
        ("expected_gbps", cell.expected_gbps),
    ];
    let of_flows = cell.flows.iter().flat_map(|flow| {
        [
            ("flows[].achieved_gbps", flow.achieved_gbps),
            ("flows[].expected_gbps", flow.expected_gbps),
        ]
    });
    let shares = [
        ("percent", cell.percent),
        ("expected_percent", cell.expected_percent),
        ("spread_percent", cell.spread_percent),
        ("fairness", cell.fairness),
    ];
    let wrong = rates
        .into_iter()
        .chain(of_flows)
        .find_map(|(key, rate)| no_rate(key, rate));
    let uneven = cell
        .fairness
        .filter(|index| *index > 1.0 + ROUNDED)
        .map(|index| format!("fairness is {index}, above 1"));
    wrong
        .or_else(|| negative(&shares))
        .or_else(|| no_share(&shares[..2]))
        .or(uneven)
}

fn in_pinning(cell: &Pinning) -> Option<String> {
    negative(&[
        ("allocate_ms_per_gib", cell.allocate_ms_per_gib),
        ("free_ms_per_gib", cell.free_ms_per_gib),
        ("register_ms_per_gib", cell.register_ms_per_gib),
        ("unregister_ms_per_gib", cell.unregister_ms_per_gib),
    ])
}

/// Returns the first of these shares that is too large to be one.
fn no_share(shares: &[(&str, Option<f64>)]) -> Option<String> {
    let beyond = |percent: Option<f64>| percent.filter(|percent| *percent > MOST_PERCENT);
    let (key, percent) = shares
        .iter()
        .find_map(|(key, percent)| Some((key, beyond(*percent)?)))?;
    Some(format!("{key} is {percent}, which is no share"))
}

fn no_rate(key: &str, rate: Option<GbPerSecond>) -> Option<String> {
    let GbPerSecond(rate) = rate.filter(|rate| !(0.0..=MOST_GBPS).contains(&rate.0))?;
    Some(format!("{key} is {rate}, which is no rate"))
}

fn negative(figures: &[(&str, Option<f64>)]) -> Option<String> {
    let quantity = |figure: f64| figure.is_finite() && figure >= 0.0;
    let (key, figure) = figures
        .iter()
        .find_map(|(key, figure)| Some((key, figure.filter(|figure| !quantity(*figure))?)))?;
    Some(format!("{key} is {figure}, which is no quantity"))
}

/// Returns the first measurement that occurs twice.
fn repeated(measurements: &Measurements) -> Option<String> {
    let mut seen: HashSet<(Probe, Pair, Setup, Option<Side>)> = HashSet::new();
    let peer = measurements.peer.iter().map(|cell| {
        (
            name(Probe::Bandwidth, cell.pair, cell.setup),
            (Probe::Bandwidth, cell.pair, cell.setup, None),
        )
    });
    let overlap = measurements.overlap.iter().map(|cell| {
        (
            of_overlap(cell),
            (
                Probe::Overlap,
                cell.pair,
                cell.cell().setup,
                Some(cell.compute_on),
            ),
        )
    });
    let latency = measurements.latency.iter();
    let latency = latency.map(|cell| {
        (
            of_latency(cell),
            (Probe::Latency, cell.pair, cell.cell().setup, None),
        )
    });
    let local = measurements.local.iter().map(|cell| {
        let within = Pair {
            source: cell.gpu,
            destination: cell.gpu,
        };
        (
            of_local(cell),
            (Probe::Local, within, cell.cell().setup, None),
        )
    });
    let twice = peer
        .chain(overlap)
        .chain(latency)
        .chain(local)
        .find(|(_, key)| !seen.insert(*key));
    let mut names = HashSet::new();
    let named_twice = || {
        measurements
            .on_one_gpu()
            .map(OneGpu::name)
            .find(|name| !names.insert(name.clone()))
    };
    let mut patterns = HashSet::new();
    let pattern_twice = || {
        measurements
            .load
            .iter()
            .map(of_load)
            .find(|name| !patterns.insert(name.clone()))
    };
    let twice = twice
        .map(|(cell, _)| cell)
        .or_else(|| repeated_host(measurements))
        .or_else(named_twice);
    let twice = twice.or_else(pattern_twice);
    twice.map(|cell| format!("{cell}: is there twice"))
}

/// Returns the first measurement of the host that occurs twice.
fn repeated_host(measurements: &Measurements) -> Option<String> {
    let mut seen = HashSet::new();
    let twice = measurements.host.iter().find(|cell| {
        let pace = (cell.at_once, cell.bytes);
        !seen.insert((cell.gpu, cell.numa_node, cell.way(), pace))
    });
    let mut nodes = HashSet::new();
    let pinned = measurements
        .pinning
        .iter()
        .find(|cell| !nodes.insert((cell.numa_node, cell.bytes)));
    twice.map(of_host).or_else(|| pinned.map(of_pinning))
}
