//! Overlap of copies with kernels: for each place of the kernel a table of the copy's streams.

use super::figures::{Spread, by_key, wrong_pairs};
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use model::cell::Measurement;
use model::flow::Setup;
use model::measurement::{Measurements, Overlap};
use model::placement::{KernelStream, StreamKind};
use model::rounding::{percent, range};

pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    let wrong = wrong_pairs(measurements);
    let is_sound =
        |cell: &&Overlap| cell.is_sound() && !wrong.contains(&(cell.pair, Setup::REFERENCE.path));
    let sound = measurements.overlap.iter().filter(is_sound);
    let places = by_key(sound.map(|cell| ((cell.kernel_stream, cell.compute_on), cell)));
    if places.is_empty() {
        return;
    }
    page.heading(
        "Overlap: a copy beside a kernel, % of the kernel's time, by the copy's streams, source (row) → destination (column)",
    );
    let (mut is_against, mut uniform) = (false, Vec::new());
    for ((stream, side), cells) in &places {
        let of_stream = match stream {
            KernelStream::Default => "kernel on the default stream",
            KernelStream::Same => "kernel on the same stream",
            KernelStream::Other => "kernel on a stream of its own",
        };
        let all = share(cells.iter().copied());
        if all.paint == Paint::Plain && !all.text.contains('-') {
            uniform.push(((of_stream, all.text), side.to_string()));
            continue;
        }
        is_against |= all.paint == Paint::Warning;
        let kinds: Vec<StreamKind> = StreamKind::ALL
            .into_iter()
            .filter(|kind| cells.iter().any(|cell| cell.placement.has(*kind)))
            .collect();
        let mut table = Table::of_figures(kinds.len() + 1);
        let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let name = format!("{of_stream}, {side}");
        table.captions([name.as_str()].into_iter().chain(names.iter().map(String::as_str)));
        for source in &kinds {
            let of = |destination: &StreamKind| {
                let is_of = |cell: &&&Overlap| {
                    (cell.placement.source, cell.placement.destination) == (*source, *destination)
                };
                share(cells.iter().filter(is_of).copied())
            };
            table.row([Cell::from(format!("  {source}"))].into_iter().chain(kinds.iter().map(of)));
        }
        page.table(table);
    }
    for ((stream, share), sides) in by_key(uniform) {
        let sides = sides.join(" or ");
        page.item(2, 5, &share, Paint::Plain, &format!("{stream}, {sides}, for every kind"));
    }
    let (paint, note) = match is_against {
        true => (Paint::Warning, "✗ against CUDA's order of streams"),
        false => (Paint::Plain, "All as CUDA orders streams, whether the host waits or not."),
    };
    page.note(paint, note);
}

/// Returns the shares of some cells as they read, marked if one contradicts CUDA's order.
fn share<'a>(cells: impl Iterator<Item = &'a Overlap> + Clone) -> Cell {
    let mut against = cells.clone().filter(|cell| cell.is_against() == Some(true));
    match Spread::of(cells.clone().filter_map(|cell| cell.overlap_percent)) {
        None => Cell::from("-"),
        Some(Spread { min, max, .. }) => {
            let text = range(min, max, percent, "-");
            match against.next() {
                Some(_) => Cell::new(format!("{text} ✗"), Paint::Warning),
                None => Cell::from(text),
            }
        }
    }
}
