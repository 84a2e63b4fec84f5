//! A comparison of two reports, for people and for scripts.

use super::digest::{Caveat, Digest};
use super::figures::count;
use super::format::{Format, Level, Style};
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use super::text::lay_out;
use super::{findings, html, partial};
use diagnose::compare::{ComparedReport, Comparison};
use model::finding::Finding;
use model::report::{Conclusion, Report};
use model::rounding::rate;

/// The formats of a comparison.
pub(super) const FORMATS: [&str; 4] = ["text", "json", "html", "markdown"];

/// Returns the comparison in one of these formats: the conclusion, what is worse, what is different, and new or resolved
/// findings; for a browser also a map of the changes.
pub fn render(
    comparison: &Comparison,
    reports: [&Report; 2],
    format: &Format,
    style: &Style,
) -> String {
    let page = |verbose| page(comparison, reports, verbose);
    match format.name {
        "json" => super::json::tidy(comparison),
        "html" => html::comparison(comparison, reports[1], &page(true)),
        "markdown" => markdown(comparison, page(false)),
        _ => lay_out(&page(style.level == Level::Every), style),
    }
}

/// Returns the comparison for a ticket.
fn markdown(comparison: &Comparison, mut page: Page) -> String {
    let mut changes: Vec<_> = comparison.pairs.iter().collect();
    changes.sort_by(|one, other| {
        other.percent().abs().total_cmp(&one.percent().abs()).then(one.pair.cmp(&other.pair))
    });
    if !changes.is_empty() {
        page.heading("Pairs that changed most");
        let mut table = Table::of_figures(4);
        table.captions(["pair", "then, GB/s", "now, GB/s", "change"]);
        for change in changes.iter().take(CHANGES) {
            let [old, new] = [change.old_gbps, change.new_gbps].map(rate);
            let cells = [change.pair.to_string(), old, new, format!("{:+.1}%", change.percent())];
            table.row(cells.map(Cell::from));
        }
        page.table(table);
        let more = changes.len().saturating_sub(CHANGES);
        if more > 0 {
            page.note(Paint::Plain, &format!("and {more} more pairs that changed less"));
        }
    }
    super::markdown::lay_out("peerscope compare", &page)
}

/// Rule for a figure that fell. As a warning, it concerns a figure that depends on the host.
const FELL: &str = "fell-since-baseline";

/// Most pairs that a ticket lists, those that changed most.
const CHANGES: usize = 12;

/// Builds the page that text and HTML share.
fn page(comparison: &Comparison, [old, new]: [&Report; 2], verbose: bool) -> Page {
    let mut page = Page::new(verbose);
    if let Some(simulated) = Digest::of(new).caveats.get(&Caveat::Simulated) {
        page.banner(simulated);
    }
    if comparison.of_two_machines {
        page.banner(
            "TWO MACHINES: no GPU of the earlier report is in the later one, so nearly everything differs",
        );
    }
    let mut missing = ", and nothing is missing";
    for (when, report) in [("then", old), ("now", new)] {
        let chosen = partial::chosen(report);
        if !chosen.is_empty() {
            page.banner(&format!("PARTIAL {when}: {}", chosen.join("; ")));
            missing = ", and nothing of what both looked at is missing";
        }
    }
    if comparison.verdict.untested > 0 {
        missing = "";
    }
    let fell = match comparison.findings.iter().any(|finding| &*finding.code == FELL) {
        true => "nothing fell that the links of the machine decide",
        false => "no figure fell by more than its noise",
    };
    let no_worse = format!("{fell}{missing}");
    let (word, paint, said) = match comparison.verdict.verdict {
        Conclusion::Healthy => ("no worse", Paint::Good, no_worse.as_str()),
        Conclusion::Faulty => {
            ("WORSE", Paint::Error, "something is worse than in the earlier report")
        }
        Conclusion::Inconclusive => {
            ("inconclusive", Paint::Warning, "not all of it could be compared")
        }
    };
    let mut text = format!("{said}; {} compared", count(comparison.compared, "figure"));
    if comparison.not_compared > 0 {
        let why = comparison.not_compared_because.join(", ");
        let missing = comparison.not_compared;
        text += &format!(", {missing} from the earlier report not measured again ({why})");
    }
    if comparison.only_in_new > 0 {
        text += &format!(", {} that the earlier report has not", comparison.only_in_new);
    }
    page.verdict(word, paint, &text);
    let side = |side: &ComparedReport| format!("{} ({})", side.started_at, side.machine);
    let (then, now) = (side(&comparison.old), side(&comparison.new));
    page.line(Paint::Faint, &format!("then {then}, now {now}"));
    let shown = Report { findings: comparison.findings.clone(), ..new.clone() };
    findings::write(&mut page, &shown);
    for (heading, list) in
        [("New findings", &comparison.appeared), ("Findings that are gone", &comparison.gone)]
    {
        if !list.is_empty() {
            page.heading(heading);
        }
        for Finding { severity, message, code, .. } in list {
            page.note(Paint::Plain, &format!("{severity}: {message} [{code}]"));
        }
    }
    page
}
