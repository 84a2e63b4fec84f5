//! The reports of each node over time, as a picture: a row for each node, and a mark for each of its reports.

use maud::{Markup, html};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::word;
use super::model::Fleet;
use model::report::Conclusion;
use report::escape::clean;

/// Width of the picture, its left edge, and the height of a row, in its own units: about pixels.
const WIDTH: f64 = 640.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 12.0;
const ROW: f64 = 20.0;
/// Line of times below the rows.
const TIMES: f64 = 18.0;
/// Half the size of a mark.
const MARK: f64 = 4.5;
/// Most rows, and most characters of a name beside one.
const MOST_ROWS: usize = 60;
const NAME: usize = 16;

/// A report of a node.
struct Mark {
    at: OffsetDateTime,
    verdict: Conclusion,
    words: String,
}

/// A node with its reports.
struct Row<'a> {
    node: &'a str,
    marks: Vec<Mark>,
}

/// Draws the nodes with several reports; nothing if there are none, or if the times of their reports are not known.
pub(crate) fn picture(fleet: &Fleet) -> Option<Markup> {
    let rows = rows(fleet);
    let times = || rows.iter().flat_map(|row| &row.marks).map(|mark| mark.at);
    let (first, last) = (times().min()?, times().max()?);
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    let rows = &rows[..rows.len() - left_out];
    let span = (last - first).as_seconds_f64().max(1.0);
    let wide = WIDTH - LEFT - RIGHT;
    let x = |at: OffsetDateTime| LEFT + wide * (at - first).as_seconds_f64() / span;
    let y = |row: usize| ROW * (0.5 + f64::from(u32::try_from(row).unwrap_or(u32::MAX)));
    let bottom = y(rows.len()) - ROW / 2.0;
    let view = format!("0 0 {WIDTH} {}", bottom + TIMES);
    Some(html! {
        h2 { "Reports of each node over time" }
        svg .over-time viewBox=(view) role="img" aria-label="Reports of each node over time" {
            @for (number, row) in rows.iter().enumerate() {
                text .end x=(LEFT - 8.0) y=(place(y(number) + 4.0)) { (name(row.node)) title { (clean(row.node)) } }
                line .grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(place(y(number))) y2=(place(y(number))) {}
                @for mark in &row.marks { (drawn(mark, x(mark.at), y(number))) }
            }
            text x=(LEFT) y=(place(bottom + 13.0)) { (time_of(first)) }
            text .end x=(WIDTH - RIGHT) y=(place(bottom + 13.0)) { (time_of(last)) }
        }
        p .faint {
            "Circle: healthy. Square: inconclusive. Cross: faulty. Pointing at a mark shows its findings."
            @if left_out > 0 { " " (left_out) " more nodes are in the table." }
        }
    })
}

/// Returns the nodes with several reports, in the order of the fleet, each with its reports by time.
fn rows(fleet: &Fleet) -> Vec<Row<'_>> {
    let mark = |started: &str, verdict, codes: Vec<&str>| {
        let at = OffsetDateTime::parse(started, &Rfc3339).ok()?;
        let found = match codes.is_empty() {
            true => String::new(),
            false => format!(": {}", codes.join(", ")),
        };
        Some(Mark { at, verdict, words: format!("{started} {}{found}", word(verdict)) })
    };
    let of = |node: &'_ super::model::Node| {
        let older = fleet.history.iter().filter(|older| older.node == node.node);
        let older = older.map(|older| {
            let codes = older.codes.iter().map(String::as_str).collect();
            mark(&older.started_at, older.verdict, codes)
        });
        let mut marks: Vec<Option<Mark>> = older.collect();
        if marks.is_empty() {
            return None;
        }
        let mut codes: Vec<&str> = node.findings.iter().map(|found| found.code.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        marks.push(mark(&node.started_at, node.verdict, codes));
        let mut marks: Vec<Mark> = marks.into_iter().flatten().collect();
        marks.sort_by_key(|mark| mark.at);
        Some(marks)
    };
    let nodes = fleet.nodes.iter();
    nodes.filter_map(|node| Some(Row { node: &node.node, marks: of(node)? })).collect()
}

/// Draws a mark. Its shape and its colour show the verdict.
fn drawn(mark: &Mark, x: f64, y: f64) -> Markup {
    let (left, right) = (place(x - MARK), place(x + MARK));
    let (above, below) = (place(y - MARK), place(y + MARK));
    html! {
        g {
            title { (clean(&mark.words)) }
            @match mark.verdict {
                Conclusion::Healthy => circle cx=(place(x)) cy=(place(y)) r=(MARK) fill="var(--good)" {},
                Conclusion::Inconclusive => rect x=(left) y=(above) width=(2.0 * MARK) height=(2.0 * MARK) fill="var(--warning)" {},
                Conclusion::Faulty => path d=(format!("M{left} {above}L{right} {below}M{left} {below}L{right} {above}")) stroke="var(--error)" stroke-width="2.5" {},
            }
        }
    }
}

/// Returns a name as long as there is room.
fn name(node: &str) -> String {
    let node = clean(node);
    match node.chars().count() > NAME {
        true => node.chars().take(NAME - 1).chain(['…']).collect(),
        false => node.into_owned(),
    }
}

fn time_of(at: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}", at.date(), at.time().hour(), at.time().minute())
}

/// Returns a place with one decimal.
pub(crate) fn place(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::{Question, assess};
    use crate::sources::Gathered;
    use crate::testing::{fleet_of, question, slow};

    #[test]
    fn each_report_of_a_node_has_its_mark_in_the_order_of_time() {
        let mut digests = fleet_of(6);
        for (at, started) in
            ["2026-11-01T08:00:00Z", "2026-11-11T08:00:00Z"].into_iter().enumerate()
        {
            let mut older = digests[2].clone();
            older.started_at = started.into();
            older.file = format!("older{at}.json");
            digests.push(older);
        }
        digests[2].started_at = "2026-11-21T08:00:00Z".into();
        slow(&mut digests[2], 1, 0.5);
        let gathered = |digests| Gathered { digests, ..Gathered::default() };
        let with = |history| Question { history, ..question() };
        let fleet = assess(&gathered(digests.clone()), &with(true));
        let drawn = picture(&fleet).unwrap().into_string();
        assert_eq!(drawn.matches("<g>").count(), 3, "{drawn}");
        assert_eq!(drawn.matches("node002").count(), 2, "a name and its title");
        assert!(!drawn.contains("node003"), "a node with one report");
        let places = ["2026-11-01T", "2026-11-11T", "2026-11-21T"].map(|day| drawn.find(day));
        assert!(places.is_sorted() && places[0].is_some(), "{drawn}");
        // The middle of twenty days is in the middle.
        assert!(drawn.contains("cx=\"120.0\"") && drawn.contains("cx=\"374.0\""), "{drawn}");
        let fleet = assess(&gathered(digests), &with(false));
        assert!(picture(&fleet).is_none());
    }
}
