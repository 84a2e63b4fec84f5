//! The screen of `watch`: it shows the last second of a job, and the findings of the last seconds.

use std::time::Duration;

use super::format::Style;
use super::page::{FINDING, Page, Paint};
use super::{findings, text, watched};
use model::report::Report;

/// Returns the screen, of at most `rows` lines. If the table and the findings need more, both are cut.
pub fn screen(report: &Report, elapsed: Duration, style: &Style, rows: usize) -> String {
    let host = report.snapshot.host.hostname.known().map_or("this machine", String::as_str);
    let place = match report.is_simulated() {
        true => format!("SIMULATED machine {}", report.machine),
        false => host.to_owned(),
    };
    let head = format!("peerscope watch, {place}, {} s, GB/s; q ends", elapsed.as_secs());
    let head = lines(style, |page| page.line(Paint::Strong, &head));
    let table = lines(style, |page| watched::table(page, report, style));
    let mut odd = lines(style, |page| odd(page, report));
    let mut room = rows.saturating_sub(head.len() + 2);
    // At least half of the room is the table's.
    shorten(&mut odd, room.saturating_sub(table.len()).max(room / 2), "findings");
    room = room.saturating_sub(odd.len());
    let mut table = table;
    shorten(&mut table, room, "GPUs and links");
    let blank = || vec![String::new()];
    [head, blank(), table, blank(), odd].concat().join("\n")
}

/// Writes the findings, a line each.
fn odd(page: &mut Page, report: &Report) {
    for finding in &report.findings {
        let (word, paint) = findings::label(finding.severity);
        let text = format!("{} [{}]", finding.short(), finding.code);
        page.item(0, FINDING, word, paint, &text);
    }
    let is_busy = report.watched.as_ref().is_some_and(model::watched::Watched::is_any_busy);
    match (report.findings.is_empty(), is_busy) {
        (_, false) => {
            page.line(Paint::Faint, "No GPU computes or moves data: nothing can be said of a job.")
        }
        (true, true) => page.line(Paint::Faint, "Nothing odd."),
        (false, true) => {}
    }
}

fn lines(style: &Style, write: impl FnOnce(&mut Page)) -> Vec<String> {
    let mut page = Page::new(false);
    write(&mut page);
    text::blocks(page.blocks(), style).lines().map(str::to_owned).collect()
}

/// Cuts lines to this number, and says how many there are more.
fn shorten(lines: &mut Vec<String>, most: usize, what: &str) {
    if lines.len() > most {
        let more = lines.len() - most.saturating_sub(1);
        lines.truncate(most.saturating_sub(1));
        lines.push(format!("  … {more} more lines of {what}: a higher window shows them"));
    }
}
