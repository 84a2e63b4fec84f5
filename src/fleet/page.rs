//! The page of a fleet for people, shared by text and HTML.

mod cohorts;
mod over_time;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::model::{Finding, Fleet, Node};
use super::names;
use model::finding::{Severity, short};
use model::report::{Conclusion, MOST_GPUS};
use model::rounding::percent;
use report::figures::{by_key, count};
use report::matrix::{Cell, Table};
use report::page::{Page, Paint};

/// Most findings of one code that are shown in full; the others are listed by node.
const SHOWN: usize = 5;

/// Most nodes and table rows that are shown unless all are wanted.
const ROWS: usize = 20;

/// Most characters of a list of nodes in a table; JSON contains the whole list, and a page in HTML unfolds it.
const LIST: usize = 36;

pub(crate) fn page(fleet: &Fleet, verbose: bool) -> Page {
    let mut page = Page::new(verbose);
    if fleet.read.simulated {
        page.banner("SIMULATED machines are among these: their figures come from no hardware");
    }
    let (word, paint) = conclusion(fleet.verdict.verdict);
    page.verdict(word, paint, &headline(fleet));
    page.line(Paint::Faint, &what_was_read(fleet));
    // The nodes that somebody must go to come before what is odd about many.
    nodes(&mut page, fleet);
    steps(&mut page, fleet);
    findings(&mut page, fleet);
    heat(&mut page, fleet);
    list(&mut page, fleet);
    over_time::changes(&mut page, fleet);
    cohorts::inventory(&mut page, fleet);
    cohorts::cohorts(&mut page, fleet);
    over_time::history(&mut page, fleet);
    broken(&mut page, fleet);
    page
}

/// Returns the word for a verdict, for people.
pub(crate) const fn conclusion(verdict: Conclusion) -> (&'static str, Paint) {
    match verdict {
        Conclusion::Healthy => ("healthy", Paint::Good),
        Conclusion::Faulty => ("FAULTY", Paint::Error),
        Conclusion::Inconclusive => ("inconclusive", Paint::Warning),
    }
}

/// Returns `12 of 400 nodes faulty, 3 inconclusive, 385 healthy; 2 nodes of the list have no report`.
pub(crate) fn headline(fleet: &Fleet) -> String {
    let verdict = &fleet.verdict;
    if fleet.nodes.is_empty() {
        return "no report was read".to_owned();
    }
    let mut text = match (verdict.faulty, verdict.inconclusive) {
        (0, 0) => format!("{} healthy", count(fleet.nodes.len(), "node")),
        (faulty, inconclusive) => format!(
            "{faulty} of {} faulty, {inconclusive} inconclusive, {} healthy",
            count(fleet.nodes.len(), "node"),
            verdict.healthy
        ),
    };
    if verdict.missing > 0 {
        text += &format!("; {} of the list without a report", count(verdict.missing, "node"));
    }
    if !fleet.findings.is_empty() {
        text += &format!("; {} of the fleet", count(fleet.findings.len(), "finding"));
    }
    text
}

/// Most files of other names that the page names.
const SHOWN_LEFT_OUT: usize = 3;

fn what_was_read(fleet: &Fleet) -> String {
    let read = &fleet.read;
    let mut text =
        format!("{} read, {}", count(read.reports, "report"), count(fleet.cohorts.len(), "cohort"));
    if read.superseded > 0 {
        text += &format!("; {} replaced by a newer one of the same node", read.superseded);
    }
    if read.again > 0 {
        text += &format!("; {} read twice", count(read.again, "report"));
    }
    if read.left_out > 0 {
        let names: Vec<&str> = (read.left_out_files.iter())
            .take(SHOWN_LEFT_OUT)
            .map(|file| file.rsplit('/').next().unwrap_or(file))
            .collect();
        let more = if names.len() < read.left_out { ", ..." } else { "" };
        text += &format!(
            "; {} of other names not read ({}{more})",
            count(read.left_out, "file"),
            names.join(", ")
        );
    }
    if !read.broken.is_empty() {
        text += &format!("; {} unreadable", count(read.broken.len(), "file"));
    }
    text
}

fn findings(page: &mut Page, fleet: &Fleet) {
    let mut by_code = by_key(fleet.findings.iter().map(|finding| (finding.code, finding)));
    by_code.sort_by_key(|(code, _)| is_about_the_list(code));
    for (code, alike) in by_code {
        let worst = alike.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Info);
        page.at_end(label(worst), code, alike.iter().map(|finding| short(&finding.message)));
        let shown = if page.verbose() || alike.len() <= SHOWN + 1 { alike.len() } else { SHOWN };
        // Steps that the next one has too stand below the last.
        for (number, finding) in alike[..shown].iter().enumerate() {
            let next = alike[..shown].get(number + 1);
            one(page, finding, next.is_none_or(|next| next.next_step != finding.next_step));
        }
        if shown < alike.len() {
            let nodes: Vec<_> = alike[shown..]
                .iter()
                .filter_map(|finding| names::expand(&finding.nodes).ok())
                .flatten()
                .collect();
            let text = format!(
                "{} more like this: {} [{code}]",
                alike.len() - shown,
                names::fold(nodes.iter().map(String::as_str))
            );
            page.finding(label(worst), &text, Vec::new());
        }
    }
}

/// Returns true for findings about reports and versions, which follow those about machines.
fn is_about_the_list(code: &str) -> bool {
    ["fleet-node-missing", "fleet-file-broken", "fleet-inventory-odd"].contains(&code)
}

fn one(page: &mut Page, finding: &Finding, with_steps: bool) {
    let text = match finding.count {
        0 => finding.message.clone(),
        1 if !finding.nodes.is_empty() => format!("{}: {}", finding.nodes, finding.message),
        _ => finding.message.clone(),
    };
    let nodes = if finding.count > 1 { finding.nodes.clone() } else { String::new() };
    let below = vec![
        ("nodes", nodes),
        ("do", if with_steps { finding.next_step.clone() } else { String::new() }),
    ];
    page.finding(label(finding.severity), &format!("{text} [{}]", finding.code), below);
}

const fn label(severity: Severity) -> (&'static str, Paint) {
    match severity {
        Severity::Error => ("ERROR", Paint::Error),
        Severity::Warning => ("warning", Paint::Warning),
        Severity::Info => ("info", Paint::Plain),
    }
}

fn paint(severity: Severity) -> Paint {
    label(severity).1
}

fn words(columns: usize) -> Table {
    Table::of_words(columns)
}

/// Writes a row for each faulty node: where to go, with which part, and what to do there.
fn steps(page: &mut Page, fleet: &Fleet) {
    let faulty = fleet.nodes.iter().filter(|node| node.verdict == Conclusion::Faulty);
    let worst = |node: &'_ Node| {
        let mut found = node.findings.iter().filter(|found| found.severity > Severity::Info);
        found.next().cloned()
    };
    let rows: Vec<_> = faulty.filter_map(|node| Some((node, worst(node)?))).collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Faulty nodes: part and step");
    let shown = if page.verbose() || rows.len() <= ROWS + 1 { rows.len() } else { ROWS };
    let hang =
        4 + rows[..shown].iter().map(|(node, _)| node.node.len().min(LIST)).max().unwrap_or(0);
    for (node, found) in &rows[..shown] {
        let text = [model::finding::short(&found.message), &found.part, &found.step].into_iter();
        let text: Vec<&str> = text.filter(|text| !text.is_empty()).collect();
        page.item(2, hang, &node.node, paint(found.severity), &text.join(". "));
    }
    rest(page, rows[shown..].iter().map(|(node, _)| node.node.as_str()));
}

/// Writes nodes by their problems: nodes with the same findings share a row.
fn nodes(page: &mut Page, fleet: &Fleet) {
    let mut rows: Vec<(Conclusion, String, Vec<&str>)> = Vec::new();
    for verdict in [Conclusion::Faulty, Conclusion::Inconclusive] {
        let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for node in fleet.nodes.iter().filter(|node| node.verdict == verdict) {
            alike.entry(what_is_wrong(node)).or_default().push(&node.node);
        }
        let mut alike: Vec<_> =
            alike.into_iter().map(|(wrong, nodes)| (verdict, wrong, nodes)).collect();
        alike.sort_by_key(|(.., nodes)| Reverse(nodes.len()));
        rows.append(&mut alike);
    }
    if rows.is_empty() {
        return;
    }
    page.heading("Nodes that are not healthy, by findings");
    let shown = if page.verbose() || rows.len() <= ROWS + 1 { rows.len() } else { ROWS };
    let mut table = words(4);
    table.captions(["verdict", "nodes", "which", "findings"]);
    for (verdict, wrong, nodes) in &rows[..shown] {
        let (word, paint) = conclusion(*verdict);
        let list = names::fold(nodes.iter().copied());
        let most = if page.verbose() { usize::MAX } else { LIST };
        table.row([
            Cell::new(word, paint),
            nodes.len().to_string().into(),
            Cell::cut(&list, most),
            wrong.into(),
        ]);
    }
    page.table(table);
    rest(page, rows[shown..].iter().flat_map(|(.., nodes)| nodes.iter().copied()));
}

/// Returns the codes of a node's findings, and what was not tested.
fn what_is_wrong(node: &Node) -> String {
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for found in node.findings.iter().filter(|found| found.severity > Severity::Info) {
        *codes.entry(&found.code).or_default() += 1;
    }
    let mut codes: Vec<String> = codes
        .into_iter()
        .map(
            |(code, number)| {
                if number > 1 { format!("{number} x {code}") } else { code.to_owned() }
            },
        )
        .collect();
    if node.untested > 0 {
        codes.push(format!("{} not tested", node.untested));
    }
    codes.join(", ")
}

fn rest<'a>(page: &mut Page, nodes: impl Iterator<Item = &'a str>) {
    let nodes: Vec<&str> = nodes.collect();
    if !nodes.is_empty() {
        page.note(
            Paint::Faint,
            &format!("and {} more: {}", nodes.len(), names::fold(nodes.iter().copied())),
        );
    }
}

/// Writes GPUs by their lowest share of the cohort's figures.
fn heat(page: &mut Page, fleet: &Fleet) {
    let mut low: Vec<&Node> =
        fleet.nodes.iter().filter(|node| !node.percent_of_cohort.is_empty()).collect();
    let named: BTreeSet<u32> =
        low.iter().flat_map(|node| node.percent_of_cohort.keys().copied()).collect();
    let Some(last) = named.last().copied() else {
        return;
    };
    // A broken index must not create a table of as many columns.
    let gpus: Vec<u32> = if (last as usize) < MOST_GPUS {
        (0..=last).collect()
    } else {
        named.into_iter().collect()
    };
    let lowest =
        |node: &Node| node.percent_of_cohort.values().copied().fold(f64::INFINITY, f64::min);
    low.sort_by(|one, other| lowest(one).total_cmp(&lowest(other)));
    page.heading("Figures that are low, per cent of the cohort's median, by GPU");
    let shown = if page.verbose() || low.len() <= ROWS + 1 { low.len() } else { ROWS };
    let mut table = Table::of_figures(gpus.len() + 1);
    let captions = gpus.iter().map(|gpu| Cell::new(gpu.to_string(), Paint::Faint));
    table.head_row(std::iter::once(Cell::from("")).chain(captions));
    for node in &low[..shown] {
        let cell = |gpu| match node.percent_of_cohort.get(gpu) {
            Some(share) => Cell::new(percent(*share), Paint::Warning).with_share(Some(*share)),
            None => Cell::new("·", Paint::Faint),
        };
        table.row(std::iter::once(Cell::from(&node.node)).chain(gpus.iter().map(cell)));
    }
    page.table(table);
    rest(page, low[shown..].iter().map(|node| node.node.as_str()));
}

fn list(page: &mut Page, fleet: &Fleet) {
    let Some(list) = fleet.list.as_ref().filter(|list| list.unexpected_count > 0) else {
        return;
    };
    page.heading("Nodes that are not on the list");
    page.note(
        Paint::Plain,
        &format!("{}: {}", count(list.unexpected_count, "node"), list.unexpected),
    );
}

fn broken(page: &mut Page, fleet: &Fleet) {
    if fleet.read.broken.is_empty() {
        return;
    }
    page.heading("Files that cannot be read");
    let shown = if page.verbose() { usize::MAX } else { ROWS };
    for broken in fleet.read.broken.iter().take(shown) {
        page.note(Paint::Plain, &format!("{} {}", broken.file, broken.why));
    }
    if let Some(more) = fleet.read.broken.len().checked_sub(shown).filter(|more| *more > 0) {
        page.note(Paint::Faint, &format!("and {more} more"));
    }
}
