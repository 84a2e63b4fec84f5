//! The gaps of a report: everything that could not be used, read or measured, with the reasons.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::count;
use model::flow::Flow;
use model::measurement::{Cell, Measurements, Probe, Status};
use model::report::Report;

/// Most reasons for missing measurements that are shown.
const SHOWN_REASONS: usize = 6;

/// Most flows that are shown with a reason.
const SHOWN_FLOWS: usize = 8;

/// Returns true if a finding gives this reason: a page gives it once.
pub(super) fn is_said(report: &Report, why: &str) -> bool {
    let mut findings = report.findings.iter();
    findings.any(|finding| finding.message.contains(why))
}

/// Lists the gaps, each as a topic and a sentence: why CUDA or single GPUs could not be used, what else went wrong,
/// what was left out on purpose, and measurements without a figure by reason.
pub(super) fn list(report: &Report, all: bool) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let none = Measurements::default();
    let measurements = report.measurements.as_ref().unwrap_or(&none);
    let driver = &measurements.driver;
    lines.extend(
        driver
            .failure
            .iter()
            .filter(|why| !is_said(report, why))
            .map(|why| ("CUDA".into(), format!("could not be used: {why}"))),
    );
    lines.extend(
        driver
            .kernels_failure
            .iter()
            .map(|why| ("kernels".into(), format!("could not be loaded: {why}"))),
    );
    for device in &driver.devices {
        let of_device =
            |what: &str, why: &String| (format!("GPU {}", device.index), format!("{what}: {why}"));
        lines.extend(device.failure.iter().map(|why| of_device("not tested", why)));
        lines.extend(
            device
                .kernels_failure
                .iter()
                .map(|why| of_device("its kernels could not be loaded", why)),
        );
    }
    lines.extend(
        report
            .snapshot
            .problems
            .iter()
            .filter(|problem| !is_said(report, problem))
            .map(|problem| ("facts".into(), problem.clone())),
    );
    lines.extend(measurements.problems.iter().map(|problem| ("run".into(), problem.clone())));
    let remarks = report.read_from.iter().flat_map(|read| &read.remarks);
    lines.extend(remarks.map(|remark| ("input".into(), remark.clone())));
    let planned = measurements.left_out.iter().chain(&measurements.thinned_out);
    lines.extend(planned.map(|what| ("plan".into(), what.clone())));
    let looks = measurements.second_looks.iter();
    lines.extend(looks.map(|look| ("second look".into(), look.words())));
    let missing = missing(measurements);
    let shown = if all { missing.len() } else { SHOWN_REASONS };
    lines.extend(missing.iter().take(shown).cloned());
    if missing.len() > shown {
        let rest = count(missing.len() - shown, "more reason");
        lines.push(("...".into(), format!("{rest}, all in the JSON report")));
    }
    lines
}

/// Returns measurements without a figure by status and reason, with the flows they concern.
fn missing(measurements: &Measurements) -> Vec<(String, String)> {
    let mut groups: BTreeMap<(u8, &str), (usize, BTreeSet<Flow>)> = BTreeMap::new();
    let mut all: BTreeSet<Flow> = BTreeSet::new();
    // The table of sharing names the ways that the platform does not offer.
    let is_named = |cell: &Cell<'_>| cell.probe == Probe::Share && cell.not_supported;
    for cell in measurements.cells().filter(|cell| !is_named(cell)) {
        all.insert(cell.flow);
        let rank = match cell.status {
            Status::Measured => continue,
            Status::Hung => 0,
            Status::Failed => 1,
            Status::Skipped => 2,
        };
        let (number, flows) =
            groups.entry((rank, cell.reason.unwrap_or("no reason given"))).or_default();
        *number += 1;
        flows.insert(cell.flow);
    }
    let word = ["hung", "failed", "skipped"];
    let line = |((rank, reason), (number, flows)): ((u8, &str), (usize, BTreeSet<Flow>))| {
        let flows = if flows.len() == all.len() && all.len() > 2 {
            "all pairs".to_owned()
        } else {
            named(&flows)
        };
        (format!("{number} {}", word[usize::from(rank)]), format!("{reason} ({flows})"))
    };
    groups.into_iter().map(line).collect()
}

/// Returns `GPU 2→5, 5→2`, and the number of other flows.
fn named(flows: &BTreeSet<Flow>) -> String {
    let name = |flow: &Flow| match flow.pair() {
        Some(pair) => format!("{}→{}", pair.source, pair.destination),
        None => flow.to_string(),
    };
    let mut shown: Vec<_> = flows.iter().take(SHOWN_FLOWS).map(name).collect();
    if flows.len() > SHOWN_FLOWS {
        shown.push(format!("{} more", flows.len() - SHOWN_FLOWS));
    }
    let gpus = if flows.iter().all(|flow| flow.pair().is_some()) { "GPU " } else { "" };
    format!("{gpus}{}", shown.join(", "))
}
