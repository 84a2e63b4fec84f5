//! Memory handed to another process: a table of the ways, and a line.

use super::figures::count;
use super::matrix::{Cell, Table};
use super::page::Page;
use super::tables::or_dash;
use model::cell::Subject;
use model::measurement::{Measurements, Sharing, Status};
use model::rounding::short;

/// Returns the result of one way in a word or two.
fn result(cell: &Sharing) -> &'static str {
    match (cell.works, cell.ending.status) {
        (Some(true), _) if cell.verified.is_wrong() => "wrong bytes",
        (Some(true), _) => "works",
        (Some(false), _) => "refused",
        (None, _) if cell.ending.not_supported => "not offered",
        (None, Status::Hung) => "hung",
        (None, _) => "not tested",
    }
}

/// Writes the table.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    if measurements.sharing.is_empty() {
        return;
    }
    page.heading("Memory handed from one process to another: result, and ms to open");
    let mut table = Table::of_figures(3);
    for cell in &measurements.sharing {
        let time = cell.open_us.filter(|_| cell.works == Some(true));
        table.row([
            Cell::from(format!("{}, {}", cell.flow(), cell.rung)),
            Cell::from(result(cell).to_owned()),
            or_dash(time.map(|us| short(us / 1e3))),
        ]);
    }
    page.table(table);
}

/// Returns `2 of 3 ways to another process work; legacy IPC handle: refused`.
pub(super) fn sharing_line(measurements: &Measurements) -> Option<String> {
    let all = &measurements.sharing;
    if all.iter().all(|cell| cell.works.is_none()) {
        return None;
    }
    let (work, other): (Vec<_>, Vec<_>) = all.iter().partition(|cell| result(cell) == "works");
    let ways = count(all.len(), "way");
    let mut parts = vec![format!("{} of {ways} to another process work", work.len())];
    parts.extend(other.iter().map(|cell| format!("{}: {}", cell.rung, result(cell))));
    Some(parts.join("; "))
}
