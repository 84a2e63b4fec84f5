//! Tables of concurrency on each GPU, and of how long calls block the host.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::Spread;
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use super::pair_figures::{Figures, over};
use super::tables::{done_cell, median, or_dash, spread_row, spreads};
use model::asynchrony::{Hazard, HostCall, LaunchLoop};
use model::cell::Measurement;
use model::measurement::Measurements;
use model::pipeline::{Engines, Pipeline};
use model::rounding::{percent, short};

/// Groups cells by name, in their order of first appearance.
fn alike<T: Measurement>(cells: &[T], name: impl Fn(&T) -> String) -> Vec<(String, Vec<&T>)> {
    let mut groups: Vec<(String, Vec<&T>)> = Vec::new();
    for cell in cells {
        let name = name(cell);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(cell),
            None => groups.push((name, vec![cell])),
        }
    }
    groups
}

/// Returns the speed-up of each kind of pipeline in several streams, over the GPUs.
pub(super) fn speed_ups(measurements: &Measurements) -> Vec<(String, Spread)> {
    let groups = alike(&measurements.pipeline, name_of).into_iter();
    groups
        .filter_map(|(name, cells)| {
            Some((name, over(cells.iter().copied(), |cell| cell.speed_up)?))
        })
        .collect()
}

/// Describes a pipeline: `pinned, 8 MiB, 3 streams`.
pub(super) fn name_of(cell: &Pipeline) -> String {
    format!("{}, {}, {} streams", cell.memory, cell.bytes, cell.streams)
}

pub(super) fn pipelines(page: &mut Page, all: &[Pipeline]) {
    let Some(first) = all.first() else {
        return;
    };
    page.heading(&format!(
        "Pipelines on each GPU: {} batches copied in, worked on and copied out, medians",
        first.batches
    ));
    let mut table = Table::of_figures(7);
    table.captions(["", "one stream", "several", "times", "times at", "bound", ""]);
    table.captions(["host memory", "ms", "ms", "as fast", "the most", "by", "GPUs"]);
    for (name, cells) in alike(all, name_of) {
        let in_ms = |figure: fn(&Pipeline) -> Option<f64>| {
            median(over(cells.iter().copied(), |cell| Some(figure(cell)? / 1e3)), short)
        };
        let speed_up = over(cells.iter().copied(), |cell| cell.speed_up);
        let mut bounds: Vec<_> = cells.iter().filter_map(|cell| cell.bound).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let bounds: Vec<_> = bounds.iter().map(ToString::to_string).collect();
        table.row([
            Cell::from(name),
            in_ms(|cell| cell.one_stream_us),
            in_ms(|cell| cell.several_streams_us),
            median(speed_up, short),
            median(over(cells.iter().copied(), |cell| cell.possible_speed_up), short),
            or_dash(Some(bounds.join(", ")).filter(|bounds| !bounds.is_empty())),
            done_cell(speed_up, cells.len()),
        ]);
    }
    page.table(table);
    page.note(
        Paint::Faint,
        "at the most: if only what needs the same copy direction or the kernels had to wait",
    );
}

pub(super) fn engines(page: &mut Page, all: &[Engines]) {
    if all.is_empty() {
        return;
    }
    page.heading("Copies at the same time on one GPU, overlap in per cent");
    let mut table = Table::of_figures(8);
    table.captions(["copy engines", "up and", "two", "two", "up and", "down and", "seen at", ""]);
    table.captions(["reported", "down", "up", "down", "kernel", "kernel", "work", "GPUs"]);
    let number =
        |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let name = |cell: &Engines| format!("{}, {}", number(cell.reported), number(cell.observed));
    for (_, cells) in alike(all, name) {
        let share = |figure: fn(&Engines) -> Option<f64>| {
            median(over(cells.iter().copied(), figure), percent)
        };
        table.row([
            Cell::from(number(cells[0].reported)),
            share(|cell| cell.opposite_percent),
            share(|cell| cell.both_to_device_percent),
            share(|cell| cell.both_to_host_percent),
            share(|cell| cell.kernel_to_device_percent),
            share(|cell| cell.kernel_to_host_percent),
            Cell::from(number(cells[0].observed)),
            done_cell(over(cells.iter().copied(), |cell| cell.opposite_percent), cells.len()),
        ]);
    }
    page.table(table);
    page.note(
        Paint::Faint,
        "up is from pinned memory to the GPU; two copies in one direction share an engine and take turns: 0 is as it \
         should be",
    );
}

pub(super) fn calls(page: &mut Page, all: &[HostCall]) {
    if all.is_empty() {
        return;
    }
    page.heading("How long calls hold the host, us, medians");
    let mut table = Table::of_figures(5);
    table.captions(["", "not", "", "GPU", ""]);
    table.captions(["", "waiting", "waiting", "works", "GPUs"]);
    for (name, cells) in alike(all, HostCall::words) {
        let of = |waits: bool| -> Vec<&HostCall> {
            cells.iter().copied().filter(|cell| cell.waits() == waits).collect()
        };
        let [free, held] = [false, true].map(|waits| over(of(waits), |cell| cell.host_blocked_us));
        let busy: Vec<_> = cells.iter().copied().filter(|cell| cell.busy).collect();
        let gpus: BTreeSet<_> = cells.iter().map(|cell| cell.gpu).collect();
        table.row([
            Cell::from(name),
            median(free, short),
            median(held, short),
            median(over(busy, |cell| cell.work_us), short),
            done_cell(free, gpus.len()),
        ]);
    }
    page.table(table);
    let bytes = all.iter().find_map(|cell| cell.bytes);
    let bytes = bytes.map(|bytes| format!("copies of {bytes}; ")).unwrap_or_default();
    page.note(
        Paint::Faint,
        &format!(
            "{bytes}not waiting: copies that do not block, and waits with nothing to wait for; a copy that does not block \
             and holds the host as long as the GPU works hides nothing"
        ),
    );
}

pub(super) fn loops(page: &mut Page, all: &[LaunchLoop]) {
    let Some(first) = all.first() else {
        return;
    };
    page.heading(&format!(
        "Loop of {} launches of {} us, with a wait in each turn, us per turn",
        first.turns,
        short(first.kernel_us)
    ));
    let mut table = spreads("wait for", "GPUs");
    let mut rows: BTreeMap<bool, Vec<&LaunchLoop>> = BTreeMap::new();
    for cell in all {
        rows.entry(cell.gpu != cell.synchronized).or_default().push(cell);
    }
    let mut medians = Vec::new();
    for (is_other, cells) in rows {
        let turns = Figures::of(cells);
        medians.extend(turns.rates.map(|turn| turn.median));
        let name = match is_other {
            true => "another GPU",
            false => "the same GPU",
        };
        spread_row(&mut table, name, turns, short);
    }
    page.table(table);
    if let [same, other] = medians.as_slice() {
        page.note(Paint::Faint, &explained(*same, *other, first.kernel_us));
    }
}

/// Explains the duration of a turn.
fn explained(same: f64, other: f64, kernel: f64) -> String {
    let between = short((same - kernel).max(0.0));
    let hidden = if other < same {
        format!(
            "; a wait for another GPU, which has no work, lets launches run ahead: {} us less",
            short(same - other)
        )
    } else {
        "; a wait for another GPU, which has no work, saves nothing here: each turn's calls take longer than the kernel"
            .to_owned()
    };
    format!(
        "a wait for the same GPU leaves it idle for {between} us a turn, between the end of a kernel and the next one's start{hidden}"
    )
}

pub(super) fn hazards(page: &mut Page, all: &[Hazard]) {
    if all.is_empty() {
        return;
    }
    page.heading(
        "Reading the bytes of a non-blocking copy to the host too early, per cent of them old",
    );
    let mut table = Table::of_figures(4);
    table.captions(["", "at once", "after waiting", "GPUs"]);
    for (name, cells) in alike(all, |cell| format!("{} of {} memory", cell.bytes, cell.memory)) {
        let stale = over(cells.iter().copied(), |cell| cell.stale_percent);
        let right = over(cells.iter().copied(), |cell| cell.stale_after_wait_percent);
        table.row([
            Cell::from(name),
            median(stale, percent),
            median(right, percent),
            done_cell(stale, cells.len()),
        ]);
    }
    page.table(table);
    page.note(
        Paint::Faint,
        "synchronise the stream or an event before the bytes are used (torch.cuda.synchronize(), event.synchronize()); \
         a copy to pageable memory waits by itself",
    );
}
