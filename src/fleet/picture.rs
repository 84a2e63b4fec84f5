//! The pictures of a fleet: a square for each node, and a strip of dots for each figure.

use maud::{Markup, PreEscaped, html};

use super::digest::word;
use super::model::{Fleet, Node};
use super::over_time::{self, place};
use super::summary::Metric;
use model::rounding::short;
use report::escape::clean;

/// Widest strip, its height and the size of a dot, in units of about a pixel.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 34.0;
const DOT: f64 = 3.5;
/// Room for the name of an outlier at the right end of a strip.
const EDGE: f64 = 110.0;
/// Most strips, and most outliers that a strip names.
const STRIPS: usize = 8;
const NAMED: usize = 3;
/// Fewest nodes that a strip shows.
const FEWEST: usize = 3;
/// Share of the median, per cent, at or below which a figure is named. Chosen: healthy nodes scatter less.
const LOW_PERCENT: f64 = 90.0;

const STYLE: &str = "
.nodes { display: flex; flex-wrap: wrap; gap: 4px; margin: .8rem 0; }
.nodes > * { min-width: 1.5rem; height: 1.5rem; padding: 0 .3rem; border-radius: 3px; font-size: .75rem; line-height: 1.5rem;
  text-align: center; text-decoration: none; color: var(--ink); background: var(--sheet); border: 1px solid var(--line); }
.nodes .faulty { background: var(--error); border-color: var(--error); color: var(--paper); font-weight: 600; }
.nodes .inconclusive { border: 2px dashed var(--warning); }
.strip { display: block; width: 100%; max-width: 42rem; height: auto; font-size: 11px; fill: var(--ink); }
.strip line { stroke: var(--line); }
.strip circle { fill: var(--faint); fill-opacity: .45; }
.strip circle.low { fill: var(--error); fill-opacity: 1; }
";

/// Draws the nodes, their figures, and the nodes with several reports over time.
pub(crate) fn write(fleet: &Fleet) -> Markup {
    html! {
        style { (PreEscaped(STYLE)) }
        @if !fleet.nodes.is_empty() {
            h2 { "Nodes" }
            p .faint { "Filled: faulty. Dashed: inconclusive. Each leads to the report that was read." }
            div .nodes { @for node in &fleet.nodes { (square(node)) } }
        }
        (strips(fleet))
        @if let Some(picture) = over_time::picture(fleet) { (picture) }
    }
}

/// Draws a node by the end of its name, which differs from its neighbours'.
fn square(node: &Node) -> Markup {
    let name = clean(&node.node);
    let short: String = match name.rfind(|c: char| !c.is_ascii_digit()) {
        Some(at) if at + 1 < name.len() => name.get(at + 1..).unwrap_or_default().to_owned(),
        _ => name.to_string(),
    };
    let said = node.findings.iter().map(|found| clean(&found.message).into_owned());
    let said: Vec<String> =
        [format!("{name}: {}", word(node.verdict))].into_iter().chain(said.take(NAMED)).collect();
    let (class, title) = (word(node.verdict), said.join("\n"));
    html! {
        @match link(&node.file) {
            Some(link) => a class=(class) href=(link) title=(title) { (short) },
            None => span class=(class) title=(title) { (short) },
        }
    }
}

/// Returns the address of a report, if it is a file of its own. Each part is encoded, so that no name leads elsewhere.
fn link(file: &str) -> Option<String> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let encoded = |part: &str| -> String {
        part.bytes()
            .map(|byte| match byte {
                byte if is_plain(byte) => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect()
    };
    let path = file.split('/').map(encoded).collect::<Vec<_>>().join("/");
    let start = if path.starts_with('/') { "file://" } else { "./" };
    (!file.contains(".tar") && !file.is_empty()).then(|| format!("{start}{path}"))
}

/// A node in a strip.
struct Dot<'a> {
    node: &'a Node,
    value: f64,
    is_low: bool,
}

/// Draws the worst figure of every node, for the kinds with the most nodes that stand out, then those that most nodes have.
fn strips(fleet: &Fleet) -> Markup {
    let mut all: Vec<(&Metric, Vec<Dot<'_>>)> = (fleet.kinds.iter().enumerate())
        .map(|(number, kind)| (kind, dots(fleet, number, kind)))
        .filter(|(_, dots)| {
            dots.len() >= FEWEST && dots.iter().any(|dot| dot.value != dots[0].value)
        })
        .collect();
    let low = |dots: &[Dot<'_>]| dots.iter().filter(|dot| dot.is_low).count();
    all.sort_by_key(|(_, dots)| std::cmp::Reverse((low(dots), dots.len())));
    html! {
        @if !all.is_empty() {
            h2 { "Worst figure of each node" }
            @for (kind, dots) in all.iter().take(STRIPS) { (strip(kind, dots)) }
        }
    }
}

fn dots<'a>(fleet: &'a Fleet, number: usize, kind: &Metric) -> Vec<Dot<'a>> {
    let known: Vec<(&Node, f64)> = (fleet.nodes.iter())
        .filter_map(|node| Some((node, *node.worst.get(&number)?)))
        .filter(|(_, value)| value.is_finite())
        .collect();
    let mut values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let Some(median) = values.get(values.len() / 2).copied() else { return Vec::new() };
    let share = |value: f64| if kind.what.is_time() { median / value } else { value / median };
    let is_low = |value: f64| 100.0 * share(value) <= LOW_PERCENT;
    known.into_iter().map(|(node, value)| Dot { node, value, is_low: is_low(value) }).collect()
}

/// Returns `peer NV18: direct, one way`.
fn words(kind: &Metric) -> String {
    let class = kind.class.map(|class| format!(" {class}")).unwrap_or_default();
    match kind.what.setup() {
        setup if setup.is_empty() => format!("{}{class}", kind.what.probe()),
        setup => format!("{}{class}: {setup}", kind.what.probe()),
    }
}

fn strip(kind: &Metric, dots: &[Dot<'_>]) -> Markup {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for dot in dots {
        (least, most) = (least.min(dot.value), most.max(dot.value));
    }
    let span = (most - least).max(most.abs() * 0.05).max(f64::MIN_POSITIVE);
    let x = |value: f64| DOT + (WIDTH - EDGE - 2.0 * DOT) * (value - least) / span;
    let mut low: Vec<&Dot<'_>> = dots.iter().filter(|dot| dot.is_low).collect();
    low.sort_by(|one, other| one.value.total_cmp(&other.value));
    let names: Vec<String> = low
        .iter()
        .take(NAMED)
        .map(|dot| format!("{} {}", clean(&dot.node.node), short(dot.value)))
        .collect();
    let more = low.len().saturating_sub(NAMED);
    let unit = kind.what.unit();
    html! {
        h3 { (clean(&words(kind))) ", " (unit) }
        svg .strip viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(clean(&words(kind))) {
            line .grid x1="0" x2=(place(WIDTH - EDGE)) y1="12" y2="12" {}
            @for dot in dots.iter().filter(|dot| !dot.is_low) { (circle(dot, x(dot.value))) }
            @for dot in &low { (circle(dot, x(dot.value))) }
            text x="0" y=(place(HEIGHT - 3.0)) { (short(least)) }
            text .end x=(place(WIDTH - EDGE)) y=(place(HEIGHT - 3.0)) { (short(most)) }
        }
        @if !names.is_empty() {
            p { (names.join(", ")) @if more > 0 { " and " (more) " more" } }
        }
    }
}

fn circle(dot: &Dot<'_>, x: f64) -> Markup {
    html! {
        circle .low[dot.is_low] cx=(place(x)) cy="12" r=(DOT) {
            title { (clean(&dot.node.node)) ": " (short(dot.value)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Gathered;
    use crate::testing::{assessed, fleet_of, slow};

    #[test]
    fn each_node_is_a_square_that_leads_to_its_report_and_outliers_are_named() {
        let mut digests = fleet_of(8);
        slow(&mut digests[2], 1, 0.5);
        let fleet = assessed(&Gathered { digests, ..Gathered::default() });
        let drawn = write(&fleet).into_string();
        assert_eq!(drawn.matches("href=\"./node00").count(), 8, "{drawn}");
        assert!(drawn.contains("node002 "), "the low one is named: {drawn}");
        assert!(drawn.contains("class=\"low\""), "{drawn}");
        assert!(drawn.matches("<svg").count() <= STRIPS, "{drawn}");
    }

    #[test]
    fn a_name_leads_nowhere_else_and_an_archive_has_no_address() {
        assert_eq!(link("a b/n1.json").unwrap(), "./a%20b/n1.json");
        assert_eq!(link("/reports/n1.json").unwrap(), "file:///reports/n1.json");
        assert_eq!(link("javascript:alert(1)").unwrap(), "./javascript%3Aalert%281%29");
        assert_eq!(link("all.tar.gz/n1.json"), None);
    }
}
