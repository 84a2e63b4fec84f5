//! Decisions, for people, for scripts and for shells.

mod pick;
mod ranks;

use serde::Serialize;

pub use self::pick::{pick, pick_shell};
use self::ranks::ranks;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::figures::count;
use super::format::Style;
use super::matrix::{Align, Cell, Table};
use super::page::{GLUE, Page, Paint};
use super::text::lay_out;
use decide::{Figure, Groups, Order, Sequence, WhatIf};
use model::finding::Finding;
use model::placement::Pair;
use model::report::{Report, Tool};
use model::rounding::rate;

/// Column of texts behind labels.
const HANG: usize = 16;
/// Most pairs of a change that are listed.
const MOST_PAIRS: usize = 12;

/// Returns a decision for scripts: that of the command of this name, with the report that it is made of.
pub fn json<T: Serialize>(command: &str, report: &Report, decision: &T) -> String {
    #[derive(Serialize)]
    struct Written<'a, T> {
        schema: String,
        tool: Tool,
        machine: &'a str,
        started_at: &'a str,
        #[serde(flatten)]
        decision: &'a T,
    }
    super::json::tidy(&Written {
        schema: format!("peerscope.{command}/1"),
        tool: Tool::this(),
        machine: &report.machine,
        started_at: &report.started_at,
        decision,
    })
}

fn page(report: &Report) -> Page {
    let mut page = Page::new(false);
    if let Some(simulated) = Digest::of(report).caveats.get(&Caveat::Simulated) {
        page.banner(simulated);
    }
    page
}

fn item(page: &mut Page, label: &str, text: &str) {
    page.item(2, HANG, label, Paint::Faint, text);
}

fn gbps(value: f64) -> String {
    format!("{}{GLUE}GB/s", rate(value))
}

fn list(gpus: &[u32]) -> String {
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    gpus.join(" ")
}

fn named(gpus: &[u32]) -> String {
    match gpus {
        [gpu] => format!("GPU {gpu}"),
        gpus => format!("GPUs {}", list(gpus)),
    }
}

/// Returns the order for people.
pub fn order(order: &Order, report: &Report, style: &Style) -> String {
    let mut page = page(report);
    let same = order.ring.gpus == order.natural.gpus;
    let head = match same {
        true => "The natural order is as good as any".to_owned(),
        false => format!("Ranks in the order {}", list(&order.ring.gpus)),
    };
    page.line(Paint::Strong, &head);
    let bus = |sequence: &Sequence| {
        format!(
            "ring at most {}, tree at most {} bus bandwidth",
            gbps(sequence.ring_bus_gbps),
            gbps(sequence.tree_bus_gbps)
        )
    };
    if !same {
        item(&mut page, "this order", &bus(&order.ring));
    }
    item(
        &mut page,
        "natural order",
        &format!("{}: {}", list(&order.natural.gpus), bus(&order.natural)),
    );
    if order.tree.gpus != order.ring.gpus {
        item(&mut page, "for a tree", &format!("{}: {}", list(&order.tree.gpus), bus(&order.tree)));
    }
    if !order.left_out.is_empty() {
        item(&mut page, "left out", &format!("{}: not measured", named(&order.left_out)));
    }
    if !(order.ring.exact && order.tree.exact) {
        item(&mut page, "note", "not all orders were looked at: a better one may exist");
    }
    item(
        &mut page,
        "predicted",
        "from rates measured pair by pair and with several flows at once; NCCL reaches less",
    );
    if !order.groups.is_empty() {
        page.heading("Groups of neighbours: tensor parallelism within, a pipeline across");
        page.table(groups(&order.groups));
    }
    page.heading("Ranks");
    page.table(ranks(&order.ranks));
    lay_out(&page, style)
}

fn groups(groups: &[Groups]) -> Table {
    let mut table = Table::new(1, vec![Align::Right, Align::Right, Align::Right, Align::Left]);
    table.captions(["ranks", "within, GB/s", "across, GB/s", "groups"]);
    for group in groups {
        let plain = |text: String| Cell::new(text, Paint::Plain);
        let all: Vec<String> = group.groups.iter().map(|gpus| list(gpus)).collect();
        table.row([
            plain(group.size.to_string()),
            plain(rate(group.within_gbps)),
            plain(group.across_gbps.map_or("-".into(), rate)),
            plain(all.join(" | ")),
        ]);
    }
    table
}

/// Returns what a change would bring, for people.
pub fn what_if(found: &WhatIf, report: &Report, style: &Style) -> String {
    let mut page = page(report);
    let effects = &found.effects;
    let [before, after] = effects.gpus;
    let head = match before == after {
        true => "The machine as it would be (predicted)".to_owned(),
        false => format!(
            "The machine as it would be, with {} instead of {before} (predicted)",
            count(after, "GPU")
        ),
    };
    page.line(Paint::Strong, &head);
    let mut table = Table::of_figures(4);
    table.captions(["GB/s", "now", "then", "change"]);
    // One GPU has neither.
    for (label, figure) in [
        ("slowest pair", &effects.slowest_pair),
        ("all-reduce by the best ring", &effects.all_reduce),
    ] {
        if figure.before_gbps.or(figure.after_gbps).is_some() {
            row(&mut table, label, figure);
        }
    }
    // A GPU that is gone takes its pairs with it: that needs no list.
    let stays = |pair: &Pair| {
        before == after
            || ![pair.source, pair.destination].iter().any(|gpu| gone(report, found, *gpu))
    };
    let pairs: Vec<_> = effects.pairs.iter().filter(|moved| stays(&moved.of)).collect();
    for moved in pairs.iter().take(MOST_PAIRS) {
        row(&mut table, &moved.of.to_string(), &moved.figure);
    }
    for moved in &effects.host {
        if moved.figure.after_gbps.is_some() {
            let (gpu, way) =
                (moved.of.gpu, if moved.of.to_device { "host to" } else { "to host from" });
            row(&mut table, &format!("{way} GPU {gpu}"), &moved.figure);
        }
    }
    for moved in &effects.load {
        row(&mut table, &moved.of.pattern, &moved.figure);
    }
    page.table(table);
    if pairs.len() > MOST_PAIRS {
        let more = pairs.len() - MOST_PAIRS;
        page.note(
            Paint::Faint,
            &format!("and {} more; --format json has all", count(more, "pair")),
        );
    }
    if pairs.is_empty() && effects.host.is_empty() && effects.load.is_empty() && before == after {
        page.note(Paint::Plain, "no figure changes by more than noise");
    }
    for sentence in &found.assumed {
        page.note(Paint::Faint, &format!("Assumed: {sentence}."));
    }
    findings(&mut page, "Findings that this answers", &found.answers);
    findings(&mut page, "Findings that this brings", &found.raises);
    lay_out(&page, style)
}

/// Returns true if the changed machine lacks a GPU: all of its pairs are gone.
fn gone(report: &Report, found: &WhatIf, gpu: u32) -> bool {
    let of_gpu = found.effects.pairs.iter().filter(|moved| moved.of.touches(gpu));
    let others = report.snapshot.gpus.len().saturating_sub(1);
    let lost = of_gpu.filter(|moved| moved.figure.after_gbps.is_none()).count();
    lost > 0
        && lost >= 2 * others.saturating_sub(report.snapshot.gpus.len() - found.effects.gpus[1])
}

fn findings(page: &mut Page, heading: &str, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.heading(heading);
    for finding in findings {
        let text = format!("{}: {} [{}]", finding.severity, finding.message, finding.code);
        page.note(Paint::Plain, &text);
    }
}

fn row(table: &mut Table, label: &str, figure: &Figure) {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), rate);
    let change = figure.before_gbps.zip(figure.after_gbps).map(|(before, after)| {
        let percent = 100.0 * (after / before - 1.0);
        if percent.abs() < 0.5 { "none".to_owned() } else { format!("{percent:+.0}%") }
    });
    let plain = |text: String| Cell::new(text, Paint::Plain);
    table.row([
        Cell::new(clean(label), Paint::Plain),
        plain(text(figure.before_gbps)),
        plain(text(figure.after_gbps)),
        plain(change.unwrap_or_else(|| "-".into())),
    ]);
}
