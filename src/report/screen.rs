//! The screen of `watch`: the last second of a job, and what is odd in the last seconds.

use std::time::Duration;

use super::format::Style;
use super::page::{FINDING, Page, Paint};
use super::{findings, text, watched};
use model::report::Report;

/// Returns the screen of a moment.
pub fn screen(report: &Report, elapsed: Duration, style: &Style) -> String {
    let mut page = Page::new(false);
    let host = report.snapshot.host.hostname.known().map_or("this machine", String::as_str);
    let place = match report.is_simulated() {
        true => format!("SIMULATED machine {}", report.machine),
        false => host.to_owned(),
    };
    let text = format!("peerscope watch, {place}, {} s, GB/s; q ends", elapsed.as_secs());
    page.line(Paint::Strong, &text);
    page.blank();
    watched::table(&mut page, report, style);
    page.blank();
    for finding in &report.findings {
        let (word, paint) = findings::label(finding.severity);
        let text = format!("{} [{}]", finding.short(), finding.code);
        page.item(0, FINDING, word, paint, &text);
    }
    if report.findings.is_empty() {
        page.line(Paint::Faint, "Nothing odd.");
    }
    text::blocks(page.blocks(), style)
}
