//! The page of a terminal: the verdict, a line for each finding, the next steps of those that matter, and a line for
//! each kind of measurement that is as expected. Other measurements keep their table, and `--verbose` shows all tables.

use super::body::{self, Expected};
use super::digest::Digest;
use super::page::{Page, Paint};
use super::{advice, bracket, by_hand, findings, machine, topo};
use model::measurement::{Measurements, Status};
use model::rounding::short;

mod between;
mod gpus;
mod load;
mod summary;
#[cfg(test)]
mod tests;

/// Column at which the text of a figure's line starts.
const HANG: usize = 14;

/// Returns the whole page, for lines of this width.
pub(super) fn page(digest: &Digest<'_>, width: usize) -> Page {
    let (mut page, report) = (Page::new(false), digest.report);
    body::top(&mut page, digest, Expected::Below);
    body::standing(&mut page, digest);
    summary::write(&mut page, digest, width, summary::Of::EachRule);
    findings::worse(&mut page, report);
    findings::notes(&mut page, report);
    body::not_tested_at_all(&mut page, report);
    match (&report.measurements, &report.bracket) {
        (None, Some(bracket)) => bracket::write(&mut page, report, bracket),
        (None, None) => {
            machine::write(&mut page, report);
            topo::write(&mut page, report);
        }
        (Some(measurements), _) => {
            machine::write(&mut page, report);
            measured(&mut page, digest, measurements);
        }
    }
    end(&mut page, digest);
    page
}

/// Returns the verdict, and a line for each finding.
pub(super) fn brief(digest: &Digest<'_>, width: usize) -> Page {
    let mut page = Page::new(false);
    body::top(&mut page, digest, Expected::Said);
    summary::write(&mut page, digest, width, summary::Of::EachFinding);
    notes(&mut page, digest);
    page
}

/// Returns the verdict, and the advice for programs.
pub(super) fn advice(digest: &Digest<'_>) -> Page {
    let mut page = Page::new(false);
    body::top(&mut page, digest, Expected::Said);
    if digest.report.advice.is_empty() {
        page.blank();
        page.line(
            Paint::Plain,
            "There is no advice: no figure that it would follow from was measured.",
        );
    }
    advice::write(&mut page, digest.report);
    page
}

/// Returns the verdict again, for the end of a page whose beginning has scrolled away.
pub(super) fn last(digest: &Digest<'_>) -> Page {
    let mut page = Page::new(false);
    if digest.report.measurements.is_some() {
        body::verdict_line(&mut page, digest);
    }
    page
}

/// Writes the measurements. If all were skipped, there is nothing to show: the reason is at the top.
fn measured(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements) {
    let gpus = digest.gpus();
    let any = measurements.cells().any(|cell| cell.status != Status::Skipped);
    if gpus.len() > 1 {
        between::write(page, digest, measurements, &gpus, any);
    }
    if any {
        gpus::write(page, digest, measurements);
        by_hand::lines(page, measurements, HANG);
    }
    super::soak::write(page, measurements);
}

/// Writes in one line what nearly every healthy machine gets.
fn notes(page: &mut Page, digest: &Digest<'_>) {
    if let Some(codes) = summary::usual(digest) {
        page.blank();
        let text = format!("as most machines have: {codes}");
        page.item(0, 8, "Notes", Paint::Strong, &text);
    }
}

/// Writes which run this was, and where to find the rest.
fn end(page: &mut Page, digest: &Digest<'_>) {
    let report = digest.report;
    let profile = report
        .measurements
        .as_ref()
        .map(|measurements| format!("profile {}, ", measurements.profile));
    let tool = &report.tool;
    let text = format!(
        "{} {}, {}{}, {} s",
        tool.name,
        tool.version,
        profile.unwrap_or_default(),
        report.started_at,
        short(report.timing.total)
    );
    page.blank();
    notes(page, digest);
    page.item(0, 8, "Run", Paint::Strong, &text);
    page.item(
        0,
        8,
        "More",
        Paint::Strong,
        match report.bracket {
            Some(_) => "--verbose the machine, 'peerscope explain CODE'",
            None => "--verbose all tables, --advice for programs, 'peerscope explain CODE'",
        },
    );
}
