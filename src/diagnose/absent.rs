//! Finds rows that were asked for and are missing from a saved report: removing rows from a report must not make it
//! healthy.

use std::collections::HashSet;

use super::coverage::coverage;
use super::verdict::exit_code;
use model::measurement::Measurements;
use model::placement::{Pair, Path};
use model::report::{Conclusion, Report};

/// The probe group of copies between GPUs, as `--skip` names it.
const PEERS: &str = "peers";

/// Notes in a saved report how many of the requested measurements have no row. Its verdict counts all that its run
/// planned. If that count is lower, every pair of GPUs that could be used must still have a row. A report that lacks
/// rows is not healthy, whatever its verdict.
pub fn note_absent(report: &mut Report) {
    // Nobody asked other tools for all pairs.
    let Some(measurements) = report.measurements.as_ref().filter(|_| report.read_from.is_none())
    else {
        return;
    };
    let there = coverage(measurements);
    let planned = report.verdict.tested.saturating_add(report.verdict.untested);
    // If a run planned nothing, nothing is absent; it is not healthy anyway.
    let planned_any = planned > 0 || !measurements.peer.is_empty();
    let of_pairs = if planned_any { pairs_without_a_row(report, measurements) } else { 0 };
    let of_pairs = u32::try_from(of_pairs).unwrap_or(u32::MAX);
    let absent = planned.saturating_sub(there.tested.saturating_add(there.untested)).max(of_pairs);
    if absent == 0 {
        return;
    }
    let verdict = &mut report.verdict;
    (verdict.tested, verdict.untested) = (there.tested, there.untested.saturating_add(absent));
    if verdict.verdict == Conclusion::Healthy {
        (verdict.verdict, verdict.exit_code) = (Conclusion::Inconclusive, exit_code::INCOMPLETE);
    }
    if let Some(measurements) = &mut report.measurements {
        measurements.absent = absent;
    }
}

/// Returns how many pairs of usable GPUs have no row of copies on the path that they have.
fn pairs_without_a_row(report: &Report, measurements: &Measurements) -> usize {
    let driver = &measurements.driver;
    let ended = driver.failure.is_none() && !measurements.interrupted && !measurements.cut_off;
    if !ended || report.request.probes_left_out.iter().any(|group| group == PEERS) {
        return 0;
    }
    let is_out_of_use = |gpu: u32| {
        let device = driver.devices.iter().find(|device| device.index == gpu);
        device.is_some_and(|device| device.failure.is_some() || device.budget_bytes.is_none())
    };
    let gpus: Vec<u32> = report
        .snapshot
        .gpus
        .iter()
        .map(|gpu| gpu.index)
        .filter(|gpu| !is_out_of_use(*gpu))
        .collect();
    let any: HashSet<Pair> = measurements.peer.iter().map(|cell| cell.pair).collect();
    let direct: HashSet<Pair> = measurements
        .peer
        .iter()
        .filter(|cell| cell.setup.path == Path::Direct)
        .map(|cell| cell.pair)
        .collect();
    let lacks = |pair: &Pair| !if driver.is_direct(*pair) { &direct } else { &any }.contains(pair);
    Pair::ordered(&gpus).iter().filter(|pair| lacks(pair)).count()
}
