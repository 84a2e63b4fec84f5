//! The page for people, shared by text and HTML: caveats, the verdict, what is wrong and what to do, then the figures.
//! Without measurements it is the page of `topo`.

use super::digest::{Caveat, Digest};
use super::highlight::Highlights;
use super::matrices::Matrices;
use super::page::{Page, Paint};
use super::pair_figures::Figures;
use super::standing::{after_comma, of_copies};
use super::{
    advice, by_hand, findings, gaps, host, live, load, machine, partial, shared, soak, streams,
    tables, topo,
};
use model::measurement::{Measurements, PeerBandwidth, Status};
use model::placement::{Pair, Path};
use model::report::{Conclusion, Report};
use model::rounding::{percent, range, rate, short};

pub(super) fn page(digest: &Digest<'_>, verbose: bool) -> Page {
    let mut page = Page::new(verbose);
    let report = digest.report;
    top(&mut page, digest, Expected::Said);
    standing(&mut page, digest);
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

/// The place of the expected rates, relative to the rates at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// On the same line.
    Said,
    /// Further down the page.
    Below,
}

/// Writes the caveats, the verdict and the summary of rates.
pub(super) fn top(page: &mut Page, digest: &Digest<'_>, expected: Expected) {
    let report = digest.report;
    for (caveat, sentence) in &digest.caveats {
        // Omissions of the plan are listed below, with everything else that was not tested.
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
    if report.measurements.is_none() && report.verdict.verdict == Conclusion::Healthy {
        // Facts alone say nothing about speed, so no machine is healthy by them.
        let found = digest.found().map(|found| format!("; {found}"));
        let text = format!(
            "No fault among the facts{}; speed was not measured ('peerscope check' does)",
            found.unwrap_or_default()
        );
        return page.line(Paint::Plain, &text);
    }
    verdict_line(page, digest);
    for sentence in summary(digest, expected) {
        page.line(Paint::Plain, &sentence);
    }
}

/// Compares the results with what is expected, if there is no finding.
pub(super) fn standing(page: &mut Page, digest: &Digest<'_>) {
    if let Some(sentence) = digest.standing() {
        page.line(Paint::Faint, &sentence);
    }
}

/// Writes the measurements. If all were skipped, writes nothing: the reason is at the top.
fn measured(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements, gpus: &[u32]) {
    if measurements.cells().all(|cell| cell.status == Status::Skipped) {
        return;
    }
    let matrices = Matrices::new(digest, measurements, gpus);
    if !measurements.peer.is_empty() && gpus.len() > 1 {
        matrices.reference(page);
    }
    tables::write(page, measurements);
    live::write(page, measurements);
    streams::pipelines(page, &measurements.pipeline);
    streams::engines(page, &measurements.engines);
    streams::calls(page, &measurements.calls);
    streams::loops(page, &measurements.launch_loop);
    streams::hazards(page, &measurements.hazard);
    host::write(page, measurements);
    shared::write(page, measurements);
    load::write(page, measurements);
    by_hand::table(page, measurements);
    soak::write(page, measurements);
    if page.verbose() && gpus.len() > 1 {
        matrices.all(page);
    }
}

/// Writes the conclusion and its reason.
pub(super) fn verdict_line(page: &mut Page, digest: &Digest<'_>) {
    let paint = match digest.report.verdict.verdict {
        Conclusion::Healthy => Paint::Good,
        Conclusion::Faulty => Paint::Error,
        Conclusion::Inconclusive => Paint::Warning,
    };
    page.verdict(digest.word(), paint, &digest.headline());
}

/// Returns a sentence for direct pairs, such as `56 of 56 pairs copy directly at 395 to 396 GB/s, 88% of theoretical,
/// as expected`, and one for pairs that copy through host memory. If no GPU copies to another, returns the
/// rates of host copies.
fn summary(digest: &Digest<'_>, expected: Expected) -> Vec<String> {
    let pairs = Pair::ordered(&digest.gpus()).len();
    let direct = digest.reference().into_iter().filter(|cell| cell.setup.path == Path::Direct);
    let staged = digest.figures().filter(|cell| cell.setup.path == Path::Staged);
    let direct = summary_of(digest, &direct.collect::<Vec<_>>(), pairs, "directly", expected);
    // With access, a pair whose direct copies were not measured has a rate through host memory all the same.
    let (open, staged): (Vec<_>, Vec<_>) = staged.partition(|cell| {
        let measured = digest.report.measurements.as_ref();
        let said = measured.and_then(|measured| measured.driver.said_of(cell.pair));
        said.is_some_and(|said| said.possible == Some(true))
    });
    let staged = summary_of(digest, &staged, pairs, "through host memory", expected);
    let open = summary_of(digest, &open, pairs, "through host memory", expected)
        .map(|text| format!("{text}; their direct copies were not measured"));
    let mut all: Vec<String> = direct.into_iter().chain(staged).chain(open).collect();
    let without = pairs.saturating_sub(digest.pairs.len());
    if let Some(last) = all.last_mut().filter(|_| without > 0) {
        *last += &format!("; {without} {} not measured", if without == 1 { "was" } else { "were" });
    }
    match (&digest.report.measurements, all.is_empty()) {
        (Some(measurements), true) => host::summary(measurements).into_iter().collect(),
        _ => all,
    }
}

fn summary_of(
    digest: &Digest<'_>,
    cells: &[&PeerBandwidth],
    pairs: usize,
    how: &str,
    expected: Expected,
) -> Option<String> {
    let figures = Figures::of(cells.iter().copied());
    let rates = figures.rates?;
    let achieved = range(rates.min, rates.max, rate, " to ");
    let mut text = format!("{} of {pairs} pairs copy {how} at {achieved} GB/s", rates.count);
    let standing = of_copies(cells);
    let below = standing.is_some_and(|standing| !standing.is_fine());
    // A share of what a narrow link carries looks as good as any, and the matrix has it.
    let share = figures.percents.filter(|_| expected == Expected::Said || !below);
    if let Some(spread) = share {
        text += &format!(", {}% of theoretical", range(spread.min, spread.max, percent, " to "));
    }
    if expected == Expected::Said || below {
        let found = Highlights::of(&digest.report.findings);
        let doubted = cells.iter().any(|cell| found.doubts(cell.pair));
        text += &after_comma(standing, doubted);
    }
    Some(text)
}

/// Lists everything that could not be used, read or measured, with the reasons.
pub(super) fn not_tested(page: &mut Page, report: &Report) {
    let lines = gaps::list(report, page.verbose());
    gaps(page, lines);
}

/// Like [`not_tested`], without the measurements that the profile thinned out: the figures mention those.
pub(super) fn not_tested_at_all(page: &mut Page, report: &Report) {
    let lines = gaps::list(report, false);
    let thinned = report.measurements.iter().flat_map(|measurements| &measurements.thinned_out);
    let thinned: Vec<&String> = thinned.collect();
    gaps(page, lines.into_iter().filter(|(_, text)| !thinned.contains(&text)).collect());
}

fn gaps(page: &mut Page, lines: Vec<(String, String)>) {
    if lines.is_empty() {
        return;
    }
    page.heading("Not tested, or not as planned");
    let hang = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0).min(20) + 4;
    for (label, text) in lines {
        page.item(2, hang, &label, Paint::Plain, &text);
    }
}

/// Writes the time of each stage, and the program that wrote the report.
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
    let profile = report
        .measurements
        .as_ref()
        .map(|measurements| format!(", profile {}", measurements.profile));
    let tool = &report.tool;
    let text = format!(
        "{} {}{}, started {}",
        tool.name,
        tool.version,
        profile.unwrap_or_default(),
        report.started_at
    );
    page.item(0, 8, "Run", Paint::Strong, &text);
}
