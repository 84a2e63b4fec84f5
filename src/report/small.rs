//! Copies of scattered blocks: a table of all ways, and the best one by size.

use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use model::cell::Measurement;
use model::measurement::{Measurements, SmallCopy};
use model::rounding::{rate, short};
use model::small::{BlockWay, best};
use model::units::Bytes;

/// The kinds of flows that are shown apart, with what they are called.
const KINDS: [(Kind, &str); 4] = [
    (Kind::Between, "between GPUs"),
    (Kind::Within, "within a GPU"),
    (Kind::Up, "host to GPU"),
    (Kind::Down, "GPU to host"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Between,
    Within,
    Up,
    Down,
}

fn kind(cell: &SmallCopy) -> Kind {
    match (cell.source, cell.destination) {
        (None, _) => Kind::Up,
        (_, None) => Kind::Down,
        (source, destination) if source == destination => Kind::Within,
        _ => Kind::Between,
    }
}

fn of(measurements: &Measurements, wanted: Kind) -> Vec<&SmallCopy> {
    let cells = measurements.small.iter();
    cells.filter(|cell| kind(cell) == wanted).collect()
}

/// Writes rates and times of every way and size, over all flows of a kind.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    if !measurements.small.iter().any(Measurement::has_figure) {
        return;
    }
    page.heading("Scattered blocks, medians");
    let mut table = Table::of_figures(5);
    table.captions(["", "", "GB/s", "us a block", "us a block"]);
    table.captions(["blocks", "way", "", "copied", "in calls"]);
    for (wanted, name) in KINDS {
        let cells = of(measurements, wanted);
        let mut sizes: Vec<Bytes> = cells.iter().map(|cell| cell.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            for way in BlockWay::ALL {
                let meant = |cell: &&&SmallCopy| cell.bytes == size && cell.way == way;
                let cells: Vec<_> = cells.iter().filter(meant).copied().collect();
                table.row(row(format!("{size} {name}"), way, &cells));
            }
        }
    }
    page.table(table);
    for line in lines(measurements) {
        page.note(Paint::Plain, &line);
    }
}

fn row(name: String, way: BlockWay, cells: &[&SmallCopy]) -> Vec<Cell> {
    let middle = |figure: fn(&SmallCopy) -> Option<f64>| {
        let mut all: Vec<f64> =
            cells.iter().filter(|cell| cell.is_sound()).filter_map(|cell| figure(cell)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let text = |value: Option<f64>, of: fn(f64) -> String| {
        Cell::from(value.map_or_else(|| "-".to_owned(), of))
    };
    vec![
        Cell::from(name),
        Cell::from(way.to_string()),
        text(middle(|cell| cell.achieved_gbps.map(|rate| rate.0)), rate),
        text(middle(|cell| cell.block_us), short),
        text(middle(|cell| cell.call_us), short),
    ]
}

/// Returns a sentence for each kind: from which size on which way is best, calls included.
pub(super) fn lines(measurements: &Measurements) -> Vec<String> {
    let line = |(wanted, name): &(Kind, &str)| {
        let best = best(of(measurements, *wanted));
        let mut parts: Vec<String> = Vec::new();
        let mut last = None;
        for one in best {
            if last != Some(one.way) {
                parts.push(format!("{} from {}", one.way, one.bytes));
            }
            last = Some(one.way);
        }
        (!parts.is_empty()).then(|| format!("{name}, best by size: {}", parts.join(", ")))
    };
    KINDS.iter().filter_map(line).collect()
}
