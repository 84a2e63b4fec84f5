//! The one page for people: text, HTML and Markdown render it. Its sections have a level; figures come from what the probes
//! declare.

use std::iter;

use super::counters;
use super::digest::{Caveat, Digest};
use super::figures::Figures;
use super::format::{Level, Style};
use super::page::{Page, Paint};
use super::{
    changes, declared, findings, gaps, groups, machine, matrices, overlap, partial, soak, topo,
    watched,
};
use model::advice::Lines;
use model::cell::Measurement;
use model::finding::Severity;
use model::flow::HostMemory;
use model::host::{Allocation, HostCopy, HostDirection};
use model::measurement::{Measurements, PeerBandwidth, Probe, Status};
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
pub(super) fn page(digest: &Digest<'_>, level: Level, style: &Style) -> Page {
    let (mut page, report) = (Page::new(level == Level::Every), digest.report);
    let is_short = level == Level::Short;
    for (caveat, sentence) in &digest.caveats {
        // Omissions of the plan are among what was not tested.
        let chosen = partial::chosen(report);
        match caveat {
            Caveat::Partial if chosen.is_empty() => {}
            Caveat::Partial => page.banner(&format!("PARTIAL: {}", chosen.join("; "))),
            _ => page.banner(sentence),
        }
    }
    verdict(&mut page, digest);
    match is_short {
        true => findings::in_short(&mut page, report),
        false => findings::write(&mut page, report),
    }
    changes::write(&mut page, report);
    page.blank();
    head(&mut page, digest, level);
    watched::write(&mut page, report, style);
    match &report.measurements {
        None if report.watched.is_some() && level != Level::Every => {}
        Some(measurements) if !is_short => {
            not_tested(&mut page, report);
            machine::write(&mut page, report);
            measured(&mut page, digest, measurements);
            advice(&mut page, report);
        }
        Some(_) if report.read_from.is_none() => {}
        _ => {
            machine::write(&mut page, report);
            topo::write(&mut page, report);
        }
    }
    page
}

fn verdict(page: &mut Page, digest: &Digest<'_>) {
    match digest.of_facts() {
        Some(text) => page.line(Paint::Plain, &text),
        None => {
            let (word, paint) = digest.conclusion();
            page.verdict(word, paint, &digest.headline());
        }
    }
}

/// Writes the lines at the head: figures, what was not tested, notes, which run this was.
fn head(page: &mut Page, digest: &Digest<'_>, level: Level) {
    let report = digest.report;
    let (is_short, verdict) = (level == Level::Short, report.verdict.verdict);
    let measured = report.measurements.as_ref();
    let figures = measured.map(|measured| summary(digest, measured)).unwrap_or_default();
    if !figures.is_empty() {
        labelled(page, "Figures", &(figures.join("; ") + "."));
    }
    // Without figures nothing is known of what the links carry.
    let are_as_healthy = (AS_HEALTHY_PERCENT..f64::INFINITY).contains(&lowest(digest));
    if is_short && digest.is_fine() && are_as_healthy {
        let text = "The links of the GPUs are as they should be. If training is slow all the same, look at software: run it \
                    with NCCL_DEBUG=INFO, and check versions and the IPC settings of containers.";
        labelled(page, "Hint", text);
    }
    // How a text was read matters beside its faults too.
    if is_short && (verdict != Conclusion::Faulty || report.read_from.is_some()) {
        let planned = |text: &String| measured.is_some_and(|all| all.thinned_out.contains(text));
        let gaps = gaps::list(report, false).into_iter().filter(|(_, text)| !planned(text));
        some_of(page, "Gaps", gaps.map(|(what, why)| format!("{what}: {why}")).collect());
    }
    if let Some(soak) = measured.and_then(|all| all.soak.as_ref()) {
        labelled(page, "Hours", &(soak::summary(soak).join(". ") + "."));
    }
    if is_short && verdict != Conclusion::Inconclusive {
        let notes = report.findings.iter();
        let notes =
            notes.filter(|note| note.severity == Severity::Info && !findings::is_usual(note));
        // Beside a fault their codes are enough.
        match digest.found() {
            Some(_) => {
                let mut codes: Vec<String> = notes.map(|note| format!("[{}]", note.code)).collect();
                codes.dedup();
                let codes = Some(codes.join(" ")).filter(|codes| !codes.is_empty());
                some_of(page, "Notes", codes.into_iter().collect());
            }
            None => {
                let notes = notes.map(|note| format!("{} [{}]", note.short(), note.code));
                some_of(page, "Notes", notes.collect());
            }
        }
    }
    let profile = measured.map(|all| format!(", profile {}", all.profile)).unwrap_or_default();
    let (tool, timing) = (&report.tool, &report.timing);
    // The short page fits its line.
    let started = if is_short { String::new() } else { format!(", {}", report.started_at) };
    let more = match level {
        Level::Short if report.watched.is_some() => String::new(),
        Level::Short if measured.is_none() => "; more: --verbose".to_owned(),
        Level::Short => "; more: --figures, --verbose".to_owned(),
        Level::Figures => String::new(),
        Level::Every => format!(
            ": discovery {}, driver start {} (the driver alone {}), measuring {}, diagnosis {}",
            short(timing.discover),
            short(timing.driver_start),
            short(timing.driver_floor),
            short(timing.measure),
            short(timing.diagnose),
        ),
    };
    let total = short(timing.total);
    let text = format!("{} {}{profile}{started}, {total} s{more}", tool.name, tool.version);
    labelled(page, "Run", &text);
}

fn labelled(page: &mut Page, label: &str, text: &str) {
    page.item(0, HANG, label, Paint::Strong, text);
}

/// Writes the first of these lines, and how many there are more.
fn some_of(page: &mut Page, label: &str, mut lines: Vec<String>) {
    if lines.len() > SHOWN + 1 {
        let more = lines.split_off(SHOWN).len();
        lines.push(format!("{more} more, which --figures shows"));
    }
    for (number, line) in lines.iter().enumerate() {
        labelled(page, if number == 0 { label } else { "" }, line);
    }
}

/// Returns the lowest share of what a healthy machine reaches, per cent, among the figures that pairs, host copies and
/// patterns are judged by.
fn lowest(digest: &Digest<'_>) -> f64 {
    let pairs = digest.reference().into_iter().map(|cell| cell.healthy_percent);
    let others = digest.report.measurements.iter().flat_map(|all| {
        let host = pinned(all).map(|copy| copy.healthy_percent);
        host.chain(all.load.iter().map(|load| load.healthy_percent))
    });
    pairs.chain(others).flatten().fold(f64::INFINITY, f64::min)
}

/// Returns the copies between pinned memory and one GPU at a time.
fn pinned(measurements: &Measurements) -> impl Iterator<Item = &HostCopy> {
    measurements.host.iter().filter(|copy| {
        let kind = (copy.memory, copy.allocation, copy.engine, copy.at_once);
        kind == (HostMemory::Pinned, Allocation::Reused, Engine::Copy, 1)
            && copy.direction != HostDirection::BothWays
    })
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
    let of = |cells: Vec<&PeerBandwidth>, how: &str| {
        let number = Figures::of(cells.iter().copied()).rates?.count;
        Some(format!("{number} of {pairs} pairs copy {how} at {}", reached(cells)?))
    };
    let host = "through host memory";
    let open = of(open, host).map(|text| text + "; their direct copies were not measured");
    let all = [of(direct.collect(), "directly"), of(staged, host), open];
    let mut all: Vec<String> = all.into_iter().flatten().collect();
    let without = pairs.saturating_sub(digest.pairs.len());
    if let Some(last) = all.last_mut().filter(|_| without > 0) {
        *last += &format!("; {without} {} not measured", if without == 1 { "was" } else { "were" });
    }
    if all.is_empty() {
        let reads =
            measurements.peer.iter().filter(|cell| cell.is_sound() && cell.setup.is_plain());
        all.extend(of(reads.collect(), "directly (as reads)"));
    }
    let host = reached(pinned(measurements));
    all.extend(host.map(|text| format!("pinned host copies reach {text}")));
    all
}

/// Returns `5.7 to 26.1 GB/s (25 to 100% of healthy)`.
fn reached<'a, M: Measurement + 'a>(cells: impl IntoIterator<Item = &'a M>) -> Option<String> {
    let Figures { rates, percents } = Figures::of(cells);
    let share = percents
        .map(|of| format!(" ({}% of healthy)", range(of.min, of.max, percent, " to ")))
        .unwrap_or_default();
    rates.map(|of| format!("{} GB/s{share}", range(of.min, of.max, rate, " to ")))
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
    let mut groups = declared::groups(measurements);
    groups.retain(|group| group.probe != Probe::Overlap);
    if gpus.len() > 1 {
        matrices::reference(page, digest, measurements, &gpus);
    }
    declared::write(page, &groups);
    for line in counters::lines(measurements) {
        page.note(Paint::Plain, &line);
    }
    overlap::write(page, measurements);
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
        page.item(2, 11, advice.basis.topic(), Paint::Strong, &advice.sentence);
        for Lines { framework, lines } in &advice.programs {
            let labels = iter::once(framework.to_string()).chain(iter::repeat(String::new()));
            for (label, line) in labels.zip(lines) {
                page.item(11, 20, &label, Paint::Plain, line);
            }
        }
    }
}
