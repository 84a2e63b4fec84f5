//! Kernels that talk to each other while they run, and the latency of loads.

use super::figures::{Spread, count};
use super::page::{Page, Paint};
use super::pair_figures::{Figures, over};
use super::tables::{done_cell, spread_cells, spread_row, spreads};
use model::live::{Chased, LiveTalk, PointerChase};
use model::measurement::Measurements;
use model::rounding::{range, short};

/// A figure of a talk, with its name.
type Row = (&'static str, fn(&LiveTalk) -> Option<f64>);

/// The times of a talk, in the order of its phases.
const TIMES: [Row; 6] = [
    ("flag pushed there and back", |cell| cell.push_us),
    ("flag pulled there and back", |cell| cell.pull_us),
    ("512 B by LL, both ways", |cell| cell.ll_us),
    ("512 B by LL128, both ways", |cell| cell.ll128_us),
    ("8 KiB, fence, flag, both ways", |cell| cell.simple_us),
    ("4096 atomics of each side", |cell| cell.atomics_us),
];

/// The memory of loads, with its name.
const LOADS: [(Chased, &str); 3] = [
    (Chased::Peer, "load from another GPU"),
    (Chased::Own, "load from own memory"),
    (Chased::Host, "load from the host"),
];

fn between(measurements: &Measurements) -> impl Iterator<Item = &LiveTalk> + Clone {
    let talks = measurements.live.iter();
    talks.filter(|talk| talk.pair.source != talk.pair.destination)
}

fn within(measurements: &Measurements) -> impl Iterator<Item = &LiveTalk> + Clone {
    let talks = measurements.live.iter();
    talks.filter(|talk| talk.pair.source == talk.pair.destination)
}

fn loads(
    measurements: &Measurements,
    memory: Chased,
) -> impl Iterator<Item = &PointerChase> + Clone {
    let loads = measurements.chase.iter();
    loads.filter(move |chase| chase.memory == memory)
}

/// Writes the tables of both probes.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    talks(
        page,
        between(measurements),
        "Kernels that talk to each other while they run, us",
        "pairs",
    );
    talks(
        page,
        within(measurements),
        "Two kernels of a GPU that talk to each other while they run, us",
        "GPUs",
    );
    if measurements.chase.is_empty() {
        return;
    }
    page.heading("Latency of loads, each of which has the address of the next, us");
    let mut table = spreads("", "flows");
    for (memory, name) in LOADS {
        let planned = loads(measurements, memory);
        if planned.clone().next().is_some() {
            spread_row(&mut table, name, Figures::of(planned), short);
        }
    }
    page.table(table);
}

fn talks<'a>(
    page: &mut Page,
    talks: impl Iterator<Item = &'a LiveTalk> + Clone,
    heading: &str,
    over_what: &'static str,
) {
    if talks.clone().next().is_none() {
        return;
    }
    page.heading(heading);
    let mut table = spreads("", over_what);
    for (name, figure) in TIMES {
        let planned = talks.clone();
        let spread = over(planned.clone(), figure);
        let atomics = name.contains("atomics");
        let promised = planned.filter(|talk| !atomics || talk.native_atomics == Some(true));
        let planned = promised.count();
        if planned > 0 {
            let mut cells = vec![super::matrix::Cell::from(name.to_owned())];
            cells.extend(spread_cells(spread, short));
            cells.push(done_cell(spread, planned));
            table.row(cells);
        }
    }
    page.table(table);
    for sentence in sentences(talks) {
        page.line(Paint::Faint, &sentence);
    }
}

/// Returns sentences about what the platform does not offer, and about lines that were torn.
fn sentences<'a>(talks: impl Iterator<Item = &'a LiveTalk> + Clone) -> Vec<String> {
    let mut sentences = Vec::new();
    let without = talks.clone().filter(|talk| talk.native_atomics == Some(false)).count();
    if without > 0 {
        sentences.push(format!(
            "The driver promises no native atomics for {}: none were made there.",
            count(without, "pair")
        ));
    }
    let torn = talks.filter_map(|talk| talk.torn_ll128).fold(0_u32, u32::saturating_add);
    if torn > 0 {
        sentences.push(format!(
            "{} of 128 bytes had their flag before their data.",
            count(torn as usize, "line")
        ));
    }
    sentences
}

/// Returns times between GPUs in one line: `flag there and back 2.80 us, LL 1.01, load 0.80`.
pub(super) fn between_gpus(measurements: &Measurements) -> Option<String> {
    line(told(between(measurements)), [(Chased::Peer, "load")], measurements)
}

/// Returns times within GPUs and with the host in one line.
pub(super) fn on_each_gpu(measurements: &Measurements) -> Option<String> {
    let from = [(Chased::Own, "load"), (Chased::Host, "from host")];
    line(told(within(measurements)), from, measurements)
}

fn line<const N: usize>(
    mut parts: Vec<(&str, Spread)>,
    from: [(Chased, &'static str); N],
    measurements: &Measurements,
) -> Option<String> {
    for (memory, name) in from {
        let spread = Figures::of(loads(measurements, memory)).rates;
        parts.extend(spread.map(|spread| (name, spread)));
    }
    let (first, rest) = parts.split_first()?;
    let rest = rest.iter().map(|(name, spread)| format!(", {name} {}", times(*spread)));
    let rest: String = rest.collect();
    Some(format!("{} {} us{rest}", first.0, times(first.1)))
}

fn told<'a>(talks: impl Iterator<Item = &'a LiveTalk> + Clone) -> Vec<(&'static str, Spread)> {
    let figures: [Row; 4] = [
        ("flag there and back", |talk| talk.push_us),
        ("LL", |talk| talk.ll_us),
        ("LL128", |talk| talk.ll128_us),
        ("8 KiB with a fence", |talk| talk.simple_us),
    ];
    let figures = figures.into_iter();
    figures.filter_map(|(name, figure)| Some((name, over(talks.clone(), figure)?))).collect()
}

fn times(spread: Spread) -> String {
    range(spread.min, spread.max, short, " to ")
}
