//! The page for people, shared by text and HTML: what must be known first, the verdict, what is wrong
//! and what to do, then the figures. Without measurements it is the page of `topo`.

use super::digest::{Caveat, Digest, Figures};
use super::matrices::Matrices;
use super::page::{Page, Paint};
use super::{advice, findings, gaps, host, load, machine, partial, streams, tables, topo};
use crate::model::measurement::{Measurements, Status};
use crate::model::placement::{Pair, Path};
use crate::model::report::{Conclusion, Report};
use crate::model::rounding::{percent, range, rate, short};

/// The whole page.
pub(super) fn page(digest: &Digest<'_>, verbose: bool) -> Page {
    let mut page = Page::new(verbose);
    let report = digest.report;
    for (caveat, sentence) in &digest.caveats {
        // What the plan left out is listed below with the rest of what was not tested.
        match caveat {
            Caveat::Partial => {
                let chosen = partial::chosen(report);
                if !chosen.is_empty() {
                    page.banner(&format!("PARTIAL: {}", chosen.join("; ")));
                }
            }
            _ => page.banner(sentence),
        }
    }
    if report.measurements.is_some() {
        verdict(&mut page, digest);
    }
    findings::write(&mut page, report);
    not_tested(&mut page, report);
    machine::write(&mut page, report);
    let Some(measurements) = &report.measurements else {
        topo::write(&mut page, report);
        return page;
    };
    let gpus = digest.gpus();
    if gpus.len() > 1 {
        page.heading("Topology, as nvidia-smi topo -m has it");
        topo::class_matrix(&mut page, report, &gpus);
        topo::theoretical(&mut page, report, &gpus);
    }
    measured(&mut page, digest, measurements, &gpus);
    advice::write(&mut page, report);
    timing(&mut page, report);
    page
}

/// The measurements. If all were skipped, there is nothing to show: the reason is at the top.
fn measured(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements, gpus: &[u32]) {
    if measurements.cells().all(|cell| cell.status == Status::Skipped) {
        return;
    }
    let matrices = Matrices::new(digest, measurements, gpus);
    if !measurements.peer.is_empty() && gpus.len() > 1 {
        matrices.reference(page);
    }
    tables::write(page, measurements);
    streams::write(page, measurements);
    host::write(page, measurements);
    load::write(page, measurements);
    if page.verbose() && gpus.len() > 1 {
        matrices.all(page);
    }
}

/// The conclusion and its reason in one line; then, in another, the rates of the pairs.
fn verdict(page: &mut Page, digest: &Digest<'_>) {
    let paint = match digest.report.verdict.verdict {
        Conclusion::Healthy => Paint::Good,
        Conclusion::Faulty => Paint::Error,
        Conclusion::Inconclusive => Paint::Warning,
    };
    page.verdict(digest.word(), paint, &digest.headline());
    if let Some(summary) = summary(digest) {
        page.line(Paint::Plain, &summary);
    }
    if let Some(sentence) = digest.look_above() {
        page.line(Paint::Faint, sentence);
    }
}

/// `56 of 56 pairs copy directly at 395 to 396 GB/s, 88% of theoretical; 390 to 397 GB/s expected`
fn summary(digest: &Digest<'_>) -> Option<String> {
    let reached = Figures::of(digest.reference().into_iter().filter(|cell| cell.setup.path == Path::Direct));
    let Some(rates) = reached.rates else { return host::summary(digest.report.measurements.as_ref()?) };
    let pairs = Pair::ordered(&digest.gpus()).len();
    let achieved = range(rates.min, rates.max, rate, " to ");
    let mut text = format!("{} of {pairs} pairs copy directly at {achieved} GB/s", rates.count);
    if let Some(spread) = reached.percents {
        text += &format!(", {}% of theoretical", range(spread.min, spread.max, percent, " to "));
    }
    if let Some([low, high]) = reached.expected {
        text += &format!("; {} GB/s expected", range(low, high, rate, " to "));
    }
    Some(text)
}

/// What could not be used, read or measured, and why.
fn not_tested(page: &mut Page, report: &Report) {
    let lines = gaps::list(report, page.verbose());
    if lines.is_empty() {
        return;
    }
    page.heading("Not tested, or not as planned");
    let hang = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0).min(20) + 4;
    for (label, text) in lines {
        page.item(2, hang, &label, Paint::Plain, &text);
    }
}

/// The time of each stage, and the program that wrote the report.
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
