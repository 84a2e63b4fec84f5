//! What changed since the last report of the machine.

use super::page::{FINDING, Page, Paint};
use model::report::{Changed, Report};
use model::shell::word;

/// Most changes that have a line each.
const SHOWN: usize = 8;

/// Writes the section, if anything changed.
pub(super) fn write(page: &mut Page, report: &Report) {
    let Some(changes) = &report.changes else {
        return;
    };
    let command = match &report.measurements {
        None => "topo",
        Some(measured) if measured.soak.is_some() => "soak",
        Some(_) => "check",
    };
    let time = |range| changes.since.get(range).unwrap_or_default();
    page.blank();
    let since = format!("Since the last {command}, {} {} UTC:", time(0..10), time(11..16));
    page.line(Paint::Strong, &since);
    let mut line = |label: &str, paint, text: &str| page.item(2, FINDING, label, paint, text);
    for change in changes.list.iter().take(SHOWN) {
        let (label, paint) = match change.what {
            Changed::Fixed => ("FIXED", Paint::Good),
            Changed::New => ("NEW", Paint::Error),
            Changed::Machine | Changed::Figure => ("", Paint::Plain),
        };
        line(label, paint, &change.text);
    }
    let more = changes.list.len().saturating_sub(SHOWN);
    if more > 0 {
        // A report that could not be kept has no file.
        let name = |path: &Option<String>| path.as_deref().map_or("FILE".into(), word);
        let [old, new] = changes.reports.each_ref().map(name);
        line("", Paint::Plain, &format!("and {more} more: peerscope compare {old} {new}"));
    }
}
