//! The gaps of a report: everything that could not be used, read or measured, with the reasons.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{arrow, count};
use model::flow::Flow;
use model::measurement::{Cell, Measurements, Probe, Status};
use model::report::Report;

/// Most reasons for missing measurements that are shown.
const SHOWN_REASONS: usize = 6;

/// Most flows that are shown with a reason.
const SHOWN_FLOWS: usize = 8;

/// Returns true if a finding gives this reason: a page gives it once.
pub(super) fn is_said(report: &Report, why: &str) -> bool {
    report.findings.iter().any(|finding| finding.message.contains(why))
}

/// Lists the gaps, each as a topic and a sentence: why CUDA or single GPUs could not be used, what else went wrong,
/// what was left out on purpose, and measurements without a figure by reason.
pub(super) fn list(report: &Report, all: bool) -> Vec<(String, String)> {
    let none = Measurements::default();
    let measurements = report.measurements.as_ref().unwrap_or(&none);
    let driver = &measurements.driver;
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |topic: &str, what: &str, reasons: &mut dyn Iterator<Item = &String>| {
        lines.extend(reasons.map(|why| (topic.to_owned(), format!("{what}{why}"))));
    };
    let is_new = |why: &&String| !is_said(report, why);
    add("CUDA", "could not be used: ", &mut driver.failure.iter().filter(is_new));
    add("kernels", "could not be loaded: ", &mut driver.kernels_failure.iter());
    for device in &driver.devices {
        let gpu = format!("GPU {}", device.index);
        add(&gpu, "not tested: ", &mut device.failure.iter());
        add(&gpu, "its kernels could not be loaded: ", &mut device.kernels_failure.iter());
    }
    add("facts", "", &mut report.snapshot.problems.iter().filter(is_new));
    add("run", "", &mut measurements.problems.iter());
    add("input", "", &mut report.read_from.iter().flat_map(|read| &read.remarks));
    add("plan", "", &mut measurements.left_out.iter().chain(&measurements.thinned_out));
    // They were taken: nothing is missing.
    let looks = measurements.second_looks.iter().filter(|_| all);
    lines.extend(looks.map(|look| ("second look".into(), look.words())));
    let mut missing = missing(measurements);
    let shown = if all { missing.len() } else { SHOWN_REASONS.min(missing.len()) };
    let rest = missing.split_off(shown).len();
    lines.extend(missing);
    if rest > 0 {
        let text = format!("{}, all in the JSON report", count(rest, "more reason"));
        lines.push(("...".into(), text));
    }
    lines
}

/// Returns measurements without a figure by status and reason, with the flows they concern.
fn missing(measurements: &Measurements) -> Vec<(String, String)> {
    let mut groups: BTreeMap<(u8, &str, &str), Vec<Flow>> = BTreeMap::new();
    // The table of sharing names the ways that the platform does not offer.
    let is_named = |cell: &Cell<'_>| cell.probe == Probe::Share && cell.not_supported;
    let cells = || measurements.cells().filter(|cell| !is_named(cell));
    for cell in cells() {
        // Worst first.
        let (rank, word) = match cell.status {
            Status::Measured => continue,
            Status::Hung => (0, "hung"),
            Status::Failed => (1, "failed"),
            Status::Skipped => (2, "skipped"),
        };
        let reason = cell.reason.unwrap_or("no reason given");
        groups.entry((rank, word, reason)).or_default().push(cell.flow);
    }
    let all = cells().map(|cell| cell.flow).collect::<BTreeSet<_>>().len();
    let line = |((_, word, reason), flows): ((u8, &str, &str), Vec<Flow>)| {
        let number = flows.len();
        let flows: BTreeSet<Flow> = flows.into_iter().collect();
        let which = match flows.len() {
            some if some == all && all > 2 => "all pairs".to_owned(),
            _ => named(&flows),
        };
        (format!("{number} {word}"), format!("{reason} ({which})"))
    };
    groups.into_iter().map(line).collect()
}

/// Returns `GPU 2→5, 5→2`, and the number of other flows.
fn named(flows: &BTreeSet<Flow>) -> String {
    let name = |flow: &Flow| flow.pair().map_or_else(|| flow.to_string(), arrow);
    let mut shown: Vec<_> = flows.iter().take(SHOWN_FLOWS).map(name).collect();
    if flows.len() > SHOWN_FLOWS {
        shown.push(format!("{} more", flows.len() - SHOWN_FLOWS));
    }
    let gpus = if flows.iter().all(|flow| flow.pair().is_some()) { "GPU " } else { "" };
    format!("{gpus}{}", shown.join(", "))
}
