//! Memory handed to another process: a table of the ways, and a line.

use super::figures::count;
use super::matrix::{Cell, Table};
use super::page::Page;
use super::tables::or_dash;
use model::flow::Flow;
use model::measurement::{Measurements, Rung, Sharing, Status};
use model::rounding::short;

/// Writes the table.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    sharing(page, &measurements.sharing);
}

/// Returns the result of one way in a word or two.
fn result(cell: &Sharing) -> String {
    if cell.verified.is_wrong() {
        return "wrong bytes".to_owned();
    }
    match (cell.works, cell.ending.status) {
        (Some(true), _) => "works".to_owned(),
        (Some(false), _) => "refused".to_owned(),
        (None, _) if cell.ending.not_supported => "not offered".to_owned(),
        (None, Status::Hung) => "hung".to_owned(),
        (None, _) => "not tested".to_owned(),
    }
}

fn sharing(page: &mut Page, all: &[Sharing]) {
    let mut ways: Vec<(Flow, String)> = Vec::new();
    for cell in all {
        let way = way(cell);
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        return;
    }
    page.heading("Memory handed from one process to another: result, and ms to open");
    let mut table = Table::of_figures(1 + ways.len());
    let flows = ways.iter().map(|(flow, _)| Cell::from(flow.to_string()));
    table.row(std::iter::once(Cell::default()).chain(flows));
    let views = ways.iter().map(|(_, view)| Cell::from(view.clone()));
    table.row(std::iter::once(Cell::default()).chain(views));
    for rung in Rung::ALL {
        let found = |of: &(Flow, String)| {
            let cell = all.iter().find(|cell| cell.rung == rung && way(cell) == *of);
            or_dash(cell.map(|cell| {
                let time = cell.open_us.filter(|_| cell.works == Some(true));
                let time = time.map(|us| format!(" {}", short(us / 1e3)));
                format!("{}{}", result(cell), time.unwrap_or_default())
            }))
        };
        let cells: Vec<Cell> = ways.iter().map(found).collect();
        table.row(std::iter::once(Cell::from(rung.to_string())).chain(cells));
    }
    page.table(table);
}

/// Returns what tells the ladders apart.
fn way(cell: &Sharing) -> (Flow, String) {
    use model::cell::Subject;
    (cell.flow(), cell.view.to_string())
}

/// Returns `13 of 13 ways work; not offered: fabric handle`.
pub(super) fn sharing_line(measurements: &Measurements) -> Option<String> {
    let all = &measurements.sharing;
    let offered: Vec<&Sharing> = all.iter().filter(|cell| cell.works.is_some()).collect();
    if offered.is_empty() {
        return None;
    }
    let work = |cell: &&&Sharing| cell.works == Some(true) && !cell.verified.is_wrong();
    let mut parts = vec![format!(
        "{} of {} to another process work",
        offered.iter().filter(work).count(),
        count(offered.len(), "way")
    )];
    let named = |is: &dyn Fn(&Sharing) -> bool| {
        let mut rungs: Vec<Rung> =
            all.iter().filter(|cell| is(cell)).map(|cell| cell.rung).collect();
        rungs.sort_unstable();
        rungs.dedup();
        let names: Vec<String> = rungs.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    for (what, names) in [
        ("refused", named(&|cell| cell.works == Some(false))),
        ("wrong bytes", named(&|cell| cell.verified.is_wrong())),
        ("not offered", named(&|cell| cell.ending.not_supported)),
    ] {
        if !names.is_empty() {
            parts.push(format!("{what}: {names}"));
        }
    }
    Some(parts.join("; "))
}
