//! `check` for people: the verdict, what is wrong and what to do, then the figures behind it.

use super::figures::{Spread, count, gpus, rate, short};
use super::matrices::Matrices;
use super::page::{Page, Paint};
use super::{Style, findings, layout, machine, tables, topo};
use crate::model::finding::Severity;
use crate::model::measurement::{Measurements, Status};
use crate::model::placement::Pair;
use crate::model::report::{Conclusion, Report};

/// The whole report for people.
pub fn render(report: &Report, style: &Style) -> String {
    let mut page = Page::new(style.verbose);
    write(&mut page, report);
    layout::text(&page, style)
}

/// The same, not laid out yet.
pub(super) fn write(page: &mut Page, report: &Report) {
    findings::simulated(page, report);
    findings::interrupted(page, report);
    verdict(page, report);
    findings::write(page, report);
    findings::trouble(page, report);
    machine::write(page, report);
    let gpus = gpus(report);
    if gpus.len() > 1 {
        page.heading("Topology, as nvidia-smi topo -m has it");
        topo::class_matrix(page, report, &gpus);
        topo::theoretical(page, report, &gpus);
    }
    if let Some(measurements) = &report.measurements {
        figures(page, report, measurements, &gpus);
    }
    timing(page, report);
}

/// What was measured; nothing where all of it was skipped, which stands at the top with the reason.
fn figures(page: &mut Page, report: &Report, measurements: &Measurements, gpus: &[u32]) {
    let peer = measurements.peer.iter().map(|peer| peer.status);
    let overlap = measurements.overlap.iter().map(|overlap| overlap.status);
    let latency = measurements.latency.iter().map(|latency| latency.status);
    if peer.chain(overlap).chain(latency).all(|status| status == Status::Skipped) {
        return;
    }
    let matrices = Matrices::new(report, measurements, gpus);
    if !measurements.peer.is_empty() && gpus.len() > 1 {
        matrices.reference(page);
    }
    tables::placements(page, measurements);
    tables::latency(page, measurements);
    tables::others(page, measurements);
    if page.verbose() {
        tables::links(page, measurements);
        if gpus.len() > 1 {
            matrices.all(page);
        }
    }
}

/// The conclusion and what it rests on, in one line; then, in one more, what the pairs reach.
fn verdict(page: &mut Page, report: &Report) {
    let verdict = &report.verdict;
    let (word, paint) = match verdict.verdict {
        Conclusion::Healthy => ("healthy", Paint::Good),
        Conclusion::Faulty => ("FAULTY", Paint::Error),
        Conclusion::Inconclusive => ("inconclusive", Paint::Warning),
    };
    let mut parts = Vec::new();
    for (severity, name) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        let number = report.findings.iter().filter(|finding| finding.severity == severity).count();
        if number > 0 {
            parts.push(count(number, name));
        }
    }
    if parts.is_empty() {
        parts.extend(match (verdict.verdict, verdict.tested) {
            (Conclusion::Healthy, 1..) => Some("nothing is at fault".to_owned()),
            (Conclusion::Inconclusive, 1..) => Some("no fault was seen, but not everything was tested".to_owned()),
            _ => None,
        });
    }
    let tested = match (verdict.tested, verdict.untested) {
        (0, 0) => "nothing was measured".to_owned(),
        (0, missing) => format!("nothing was measured, {} missing", count(missing as usize, "measurement")),
        (tested, 0) => format!("all {tested} measurements made"),
        (tested, missing) => format!("{tested} measurements made, {missing} missing"),
    };
    let said = if parts.is_empty() { tested } else { format!("{}; {tested}", parts.join(", ")) };
    page.verdict(word, paint, &said);
    let summary = report.measurements.as_ref().and_then(|measurements| summary(report, measurements));
    if let Some(summary) = summary {
        page.line(Paint::Plain, &summary);
    }
}

/// `56 of 56 pairs copy directly at 395 to 396 GB/s, 88% of theoretical, 102% of expected`
fn summary(report: &Report, measurements: &Measurements) -> Option<String> {
    let (rates, percents) = tables::reference(measurements)?;
    let pairs = Pair::ordered(&gpus(report)).len();
    let range = |spread: Spread, text: fn(f64) -> String| {
        let (min, max) = (text(spread.min), text(spread.max));
        if min == max { max } else { format!("{min} to {max}") }
    };
    let mut text = format!("{} of {pairs} pairs copy directly at {} GB/s", rates.count, range(rates, rate));
    for (percent, of) in percents.into_iter().zip(["theoretical", "expected"]) {
        if let Some(percent) = percent {
            text += &format!(", {}% of {of}", range(percent, |value| format!("{value:.0}")));
        }
    }
    Some(text)
}

/// Where the time went, and what wrote the report.
fn timing(page: &mut Page, report: &Report) {
    let timing = &report.timing;
    page.blank();
    let text = format!(
        "{} s: discovery {}, driver start {} (the driver alone {}), measuring {}, diagnosis {}",
        short(timing.total),
        short(timing.discover),
        short(timing.driver_start),
        short(timing.driver_floor),
        short(timing.measure),
        short(timing.diagnose),
    );
    page.item(0, 8, "Time", Paint::Strong, &text);
    let profile = report.measurements.as_ref().map(|measurements| format!(", profile {}", measurements.profile));
    let tool = &report.tool;
    let text = format!("{} {}{}, started {}", tool.name, tool.version, profile.unwrap_or_default(), report.started_at);
    page.item(0, 8, "Run", Paint::Strong, &text);
}
