//! The one page for people: text, HTML and Markdown render it. Its sections have a level; figures come from what the probes
//! declare.

use super::counters;
use super::digest::{Caveat, Digest};
use super::format::Level;
use super::page::{Page, Paint};
use super::pair_figures::Figures;
use super::{declared, findings, gaps, groups, machine, matrices, partial, soak, topo};
use model::cell::Measurement;
use model::finding::Severity;
use model::flow::HostMemory;
use model::host::{Allocation, HostCopy, HostDirection};
use model::measurement::{Measurements, PeerBandwidth, Status};
use model::placement::{Engine, Pair, Path};
use model::report::{Conclusion, Report};
use model::rounding::{percent, range, rate, short};

/// Column of the texts beside their labels at the head of the page.
const HANG: usize = 9;

/// Share of what a healthy machine reaches above which a figure is one of a healthy machine, per cent. Repeats spread by 5%
/// and more (cuda-samples issue 449).
const AS_HEALTHY_PERCENT: f64 = 95.0;

/// Most gaps, and most notes, of the short page.
const SHOWN: usize = 3;

/// Returns the page: the verdict, what is wrong and what to do, one line of figures, then the sections of the level.
pub(super) fn page(digest: &Digest<'_>, level: Level) -> Page {
    let (mut page, report) = (Page::new(level == Level::Every), digest.report);
    let is_short = level == Level::Short;
    verdict(&mut page, digest);
    match is_short {
        true => findings::in_short(&mut page, report),
        false => findings::write(&mut page, report),
    }
    page.blank();
    head(&mut page, digest, level);
    match &report.measurements {
        None => {
            machine::write(&mut page, report);
            topo::write(&mut page, report);
        }
        Some(_) if is_short => {}
        Some(measurements) => {
            not_tested(&mut page, report);
            machine::write(&mut page, report);
            measured(&mut page, digest, measurements);
            advice(&mut page, report);
        }
    }
    page
}

/// Returns the verdict again and a line for each finding that matters, for the end of a page whose beginning has scrolled
/// away.
pub(super) fn last(digest: &Digest<'_>) -> Page {
    let mut page = Page::new(false);
    findings::lines(&mut page, digest.report);
    match digest.found() {
        Some(found) => page.verdict(digest.word(), paint(digest), &found),
        None => verdict_line(&mut page, digest),
    }
    page
}

/// Writes the caveats and the verdict.
fn verdict(page: &mut Page, digest: &Digest<'_>) {
    let report = digest.report;
    for (caveat, sentence) in &digest.caveats {
        // Omissions of the plan are among what was not tested.
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
    verdict_line(page, digest);
}

fn verdict_line(page: &mut Page, digest: &Digest<'_>) {
    let verdict = digest.report.verdict.verdict;
    if digest.report.measurements.is_none() && verdict == Conclusion::Healthy {
        // Facts alone say nothing about speed, so no machine is healthy by them.
        let found = digest.found().map(|found| format!("; {found}")).unwrap_or_default();
        let text = format!(
            "No fault among the facts{found}; speed was not measured ('peerscope check' does)"
        );
        return page.line(Paint::Plain, &text);
    }
    page.verdict(digest.word(), paint(digest), &digest.headline());
}

const fn paint(digest: &Digest<'_>) -> Paint {
    match digest.report.verdict.verdict {
        Conclusion::Healthy => Paint::Good,
        Conclusion::Faulty => Paint::Error,
        Conclusion::Inconclusive => Paint::Warning,
    }
}

/// Writes the lines at the head: figures, what was not tested, notes, which run this was.
fn head(page: &mut Page, digest: &Digest<'_>, level: Level) {
    let report = digest.report;
    let is_short = level == Level::Short;
    if let Some(measurements) = &report.measurements {
        let figures = summary(digest, measurements);
        if !figures.is_empty() {
            page.item(0, HANG, "Figures", Paint::Strong, &(figures.join("; ") + "."));
        }
    }
    if is_short && digest.is_fine() && lowest(digest) >= AS_HEALTHY_PERCENT {
        let text = "The links of the GPUs are as they should be. If training is slow all the same, look at software: run it \
                    with NCCL_DEBUG=INFO, and check versions and the IPC settings of containers.";
        page.item(0, HANG, "Hint", Paint::Strong, text);
    }
    if is_short && report.verdict.verdict != Conclusion::Faulty {
        let planned = |text: &String| {
            let mut thinned = report.measurements.iter().flat_map(|all| &all.thinned_out);
            thinned.any(|thinned| thinned == text)
        };
        let gaps = gaps::list(report, false).into_iter().filter(|(_, text)| !planned(text));
        some_of(page, "Gaps", gaps.map(|(what, why)| format!("{what}: {why}")).collect());
    }
    if let Some(soak) = report.measurements.as_ref().and_then(|all| all.soak.as_ref()) {
        page.item(0, HANG, "Hours", Paint::Strong, &(soak::summary(soak).join(". ") + "."));
    }
    if is_short && report.verdict.verdict != Conclusion::Inconclusive {
        let notes = report.findings.iter();
        let notes = notes
            .filter(|finding| finding.severity == Severity::Info && !findings::is_usual(finding));
        let note =
            |finding: &model::finding::Finding| format!("{} [{}]", finding.short(), finding.code);
        some_of(page, "Notes", notes.map(note).collect());
    }
    let profile = report.measurements.as_ref();
    let profile = profile.map(|all| format!(", profile {}", all.profile)).unwrap_or_default();
    let (tool, timing) = (&report.tool, &report.timing);
    // The short page fits its line.
    let started = if is_short { String::new() } else { format!(", {}", report.started_at) };
    let mut text =
        format!("{} {}{profile}{started}, {} s", tool.name, tool.version, short(timing.total));
    match level {
        Level::Short if report.measurements.is_none() => text += "; more: --verbose",
        Level::Short => text += "; more: --figures, --verbose",
        Level::Figures => {}
        Level::Every => {
            text += &format!(
                ": discovery {}, driver start {} (the driver alone {}), measuring {}, diagnosis {}",
                short(timing.discover),
                short(timing.driver_start),
                short(timing.driver_floor),
                short(timing.measure),
                short(timing.diagnose),
            );
        }
    }
    page.item(0, HANG, "Run", Paint::Strong, &text);
}

/// Writes the first of these lines, and how many there are more.
fn some_of(page: &mut Page, label: &str, lines: Vec<String>) {
    let shown = if lines.len() <= SHOWN + 1 { lines.len() } else { SHOWN };
    for (number, line) in lines[..shown].iter().enumerate() {
        page.item(0, HANG, if number == 0 { label } else { "" }, Paint::Strong, line);
    }
    if shown < lines.len() {
        let text = format!("{} more, which --figures shows", lines.len() - shown);
        page.item(0, HANG, "", Paint::Strong, &text);
    }
}

/// Returns the lowest share of what a healthy machine reaches, per cent, among the figures that pairs, host copies and
/// patterns are judged by.
fn lowest(digest: &Digest<'_>) -> f64 {
    let measured = digest.report.measurements.iter();
    let others = measured.flat_map(|all| {
        let host = pinned(all).into_iter().filter_map(|copy| copy.healthy_percent);
        host.chain(all.load.iter().filter_map(|load| load.healthy_percent))
    });
    let pairs = digest.reference().into_iter().filter_map(|cell| cell.healthy_percent);
    pairs.chain(others).fold(f64::INFINITY, f64::min)
}

/// Returns the copies between pinned memory and one GPU at a time.
fn pinned(measurements: &Measurements) -> Vec<&HostCopy> {
    let is_meant = |copy: &&HostCopy| {
        let kind = (copy.memory, copy.allocation, copy.engine, copy.at_once);
        kind == (HostMemory::Pinned, Allocation::Reused, Engine::Copy, 1)
            && copy.direction != HostDirection::BothWays
    };
    measurements.host.iter().filter(is_meant).collect()
}

/// Returns the figures in a sentence for each kind of path: `56 of 56 pairs copy directly at 397 GB/s (100% of
/// healthy)`, and the same for copies with the host.
fn summary(digest: &Digest<'_>, measurements: &Measurements) -> Vec<String> {
    let pairs = Pair::ordered(&digest.gpus()).len();
    let direct = digest.reference().into_iter().filter(|cell| cell.setup.path == Path::Direct);
    let staged = digest.figures().filter(|cell| cell.setup.path == Path::Staged);
    // With access, a pair whose direct copies were not measured has a rate through host memory all the same.
    let (open, staged): (Vec<_>, Vec<_>) = staged.partition(|cell| {
        let said = measurements.driver.said_of(cell.pair);
        said.is_some_and(|said| said.possible == Some(true))
    });
    let of = |cells: &[&PeerBandwidth], how: &str| {
        let number = Figures::of(cells.iter().copied()).rates?.count;
        Some(format!("{number} of {pairs} pairs copy {how} at {}", reached(cells)?))
    };
    let host = "through host memory";
    let open = of(&open, host).map(|text| text + "; their direct copies were not measured");
    let all = [of(&direct.collect::<Vec<_>>(), "directly"), of(&staged, host), open];
    let mut all: Vec<String> = all.into_iter().flatten().collect();
    let without = pairs.saturating_sub(digest.pairs.len());
    if let Some(last) = all.last_mut().filter(|_| without > 0) {
        *last += &format!("; {without} {} not measured", if without == 1 { "was" } else { "were" });
    }
    all.extend(
        reached(&pinned(measurements)).map(|text| format!("pinned host copies reach {text}")),
    );
    all
}

/// Returns `5.7 to 26.1 GB/s (25 to 100% of healthy)`.
fn reached<M: Measurement>(cells: &[&M]) -> Option<String> {
    let figures = Figures::of(cells.iter().copied());
    let rates = figures.rates?;
    let share = figures
        .percents
        .map(|of| format!(" ({}% of healthy)", range(of.min, of.max, percent, " to ")));
    Some(format!("{} GB/s{}", range(rates.min, rates.max, rate, " to "), share.unwrap_or_default()))
}

/// Lists everything that could not be used, read or measured, with the reasons.
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

/// Writes the measurements. If all were skipped, writes nothing: the reason is among what was not tested.
fn measured(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements) {
    let gpus = digest.gpus();
    if gpus.len() > 1 {
        page.heading("Between GPUs");
        groups::write(page, digest.report, &gpus);
        if page.verbose() {
            topo::theoretical(page, digest.report, &gpus);
        }
    }
    if measurements.cells().all(|cell| cell.status == Status::Skipped) {
        return;
    }
    let groups = declared::groups(measurements);
    if gpus.len() > 1 {
        matrices::reference(page, digest, measurements, &gpus);
    }
    declared::write(page, &groups);
    for line in counters::lines(measurements) {
        page.note(Paint::Plain, &line);
    }
    soak::write(page, measurements);
    if page.verbose() && gpus.len() > 1 {
        matrices::others(page, digest, &groups, &gpus);
    }
}

/// Writes the advice for programs, one item per topic.
fn advice(page: &mut Page, report: &Report) {
    if report.advice.is_empty() {
        return;
    }
    page.heading("For programs on this machine");
    for advice in &report.advice {
        let mut text = advice.sentence.clone();
        if !advice.pytorch.is_empty() {
            text += &format!(" In PyTorch: {}.", advice.pytorch.join("; "));
        }
        page.item(2, 11, advice.basis.topic(), Paint::Strong, &text);
    }
}
