//! Heat maps: a figure for every pair, coloured by its share of what is expected. Nothing is shown by colour alone:
//! cells that a finding is about have a mark, and low cells have a sign.

use std::collections::{BTreeMap, HashMap};

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::figures::Spread;
use super::super::marks::{Figure, Mark, legend as marks_of, meaning, word};
use super::super::pair_figures::wrong_pairs;
use super::map_cells::{HeatCell, LOW, MOST, MapContext, STEPS, dress, head};
use model::flow::Setup;
use model::measurement::{Measurements, PeerBandwidth};
use model::placement::{Direction, Engine, Pair, Path, Side};
use model::report::Report;
use model::rounding::{percent, rate, short};
use model::topology::LinkClass;

/// A heat map of pairs.
struct Map {
    name: &'static str,
    note: String,
    cells: HashMap<Pair, HeatCell>,
}

/// Renders all maps that have data, one visible at a time.
pub(super) fn write(digest: &Digest<'_>) -> Markup {
    let Some(measurements) = &digest.report.measurements else {
        return html! {};
    };
    let ground = MapContext::of(digest);
    let maps = if ground.gpus.len() > 1 { maps(digest, measurements, &ground) } else { Vec::new() };
    html! {
        @if !maps.is_empty() {
            section .maps aria-label="Heat maps" {
                h2 { "Pair by pair" }
                div .tabs {
                    @for (number, map) in maps.iter().enumerate() {
                        @let id = format!("map{number}");
                        input type="radio" name="map" id=(id) checked[number == 0];
                        label for=(id) { (map.name) }
                        div .panel { h3 { (map.name) } (table(map, &ground, digest.report)) p .faint { "From the row's GPU to the column's, GB/s. " (map.note) } }
                    }
                }
                (legend())
            }
        }
    }
}

fn maps(digest: &Digest<'_>, measurements: &Measurements, ground: &MapContext) -> Vec<Map> {
    let reference = Setup::REFERENCE;
    let setups = [
        ("both ways", reference.with_direction(Direction::BothWays)),
        ("read", reference.with_issuer(Side::Destination)),
        ("kernel writes", reference.with_engine(Engine::Kernel)),
        ("kernel reads", reference.with_engine(Engine::Kernel).with_issuer(Side::Destination)),
        ("staged", reference.with_path(Path::Staged)),
    ];
    let rates = |name, setup: Setup, cells: BTreeMap<Pair, &PeerBandwidth>| {
        let marks = marks(&cells);
        let (note, cells) = match setup.path {
            Path::Direct => (
                setup.to_string(),
                cells.into_iter().map(|(pair, cell)| (pair, heat(cell))).collect(),
            ),
            Path::Staged => {
                (format!("{setup}; the colour compares with the median"), staged(cells))
            }
        };
        Map { name, note: note + &marks, cells }
    };
    let mut maps = vec![rates("one way", reference, digest.pairs.clone())];
    maps.extend(setups.map(|(name, setup)| rates(name, setup, measurements.in_setup(setup))));
    maps.push(latency(measurements));
    // A sparse map of many GPUs is less useful than the tables below.
    let whole = ground.gpus.len() * ground.gpus.len().saturating_sub(1);
    maps.retain(|map| {
        !map.cells.is_empty() && (ground.gpus.len() <= MOST || map.cells.len() * 2 > whole)
    });
    maps
}

/// Explains the words and marks of these cells, as a suffix of how they were measured.
fn marks(cells: &BTreeMap<Pair, &PeerBandwidth>) -> String {
    let figures: Vec<Figure> = cells.values().map(|cell| Figure::of(Some(cell))).collect();
    let said = |known: Mark| format!("; {}: {}", known.mark, known.meaning);
    marks_of(&figures).into_iter().map(said).collect()
}

/// Compares copies through the host with their median: their expected rate depends mostly on the processors.
fn staged(cells: BTreeMap<Pair, &PeerBandwidth>) -> HashMap<Pair, HeatCell> {
    let rates = cells
        .values()
        .filter(|cell| !cell.ending.disturbed)
        .filter_map(|cell| Some(cell.achieved_gbps?.0));
    let median = Spread::of(rates).map(|spread| spread.median).filter(|median| *median > 0.0);
    let share = |cell: &PeerBandwidth| {
        Some(100.0 * cell.achieved_gbps.filter(|_| !cell.ending.disturbed)?.0 / median?)
    };
    let heat = |cell: &PeerBandwidth| HeatCell { share: share(cell), ..plain(cell) };
    cells.into_iter().map(|(pair, cell)| (pair, heat(cell))).collect()
}

/// Compares a figure with what the healthy machine reaches. Copies through the host get no such comparison.
fn heat(cell: &PeerBandwidth) -> HeatCell {
    let plain = plain(cell);
    let healthy = cell.healthy_percent.zip(cell.healthy_gbps);
    let Some((share, healthy)) =
        healthy.filter(|_| !cell.ending.disturbed && cell.setup.path == Path::Direct)
    else {
        return plain;
    };
    HeatCell {
        share: Some(share),
        tip: format!("{}, {}% of a healthy {}", plain.tip, percent(share), rate(healthy.0)),
        ..plain
    }
}

/// Returns a figure, or the word for the reason why there is none.
fn plain(cell: &PeerBandwidth) -> HeatCell {
    let (text, tip) = match Figure::of(Some(cell)) {
        Figure::Number { value, .. } => {
            let achieved =
                cell.achieved_gbps.map(|achieved| format!(": {} GB/s", rate(achieved.0)));
            (value, achieved.unwrap_or_default())
        }
        Figure::Word(word) => (
            word.to_owned(),
            format!(": {}", cell.ending.reason.clone().unwrap_or_else(|| meaning(word))),
        ),
    };
    HeatCell { text, share: None, tip: clean(&format!("{}{tip}", cell.pair)).into_owned() }
}

/// Compares latencies with the median of all: less is better.
fn latency(measurements: &Measurements) -> Map {
    // The latency of a copy that delivers wrong bytes means nothing.
    let wrong = wrong_pairs(measurements, Path::Direct);
    let direct = || {
        measurements
            .latency
            .iter()
            .filter(|cell| cell.path == Path::Direct && !wrong.contains(&cell.pair))
    };
    let median =
        Spread::of(direct().filter_map(|cell| cell.latency_us)).map(|spread| spread.median);
    let cells = direct().map(|cell| {
        let text = cell.latency_us.map_or_else(|| word(cell.ending.status).to_owned(), short);
        let share = median
            .zip(cell.latency_us)
            .filter(|(_, us)| *us > 0.0)
            .map(|(median, us)| 100.0 * median / us);
        (cell.pair, HeatCell { tip: format!("{}: {text} us", cell.pair), text, share })
    });
    Map {
        name: "latency",
        note: "Here microseconds of a small copy; the colour compares with the median".into(),
        cells: cells.collect(),
    }
}

fn legend() -> Markup {
    html! {
        p .legend {
            span { "per cent of what a healthy machine reaches: " }
            @for (number, (_, words)) in STEPS.iter().enumerate() { span class=(format!("key h{number}")) { (words) } " " }
            span .key .none { "not known" } " "
            span { "✖ ▲ a finding is about it, ⇄ about its other direction, ▾ below " (LOW) }
        }
    }
}

fn table(map: &Map, ground: &MapContext, report: &Report) -> Markup {
    let small = ground.gpus.len() > MOST;
    let starts = |place: usize| {
        place > 0
            && ground.groups.get(&ground.gpus[place]) != ground.groups.get(&ground.gpus[place - 1])
    };
    html! {
        div .scroll tabindex="0" role="region" aria-label=(map.name) {
            table .heat.small[small] {
                thead {
                    @if !ground.sockets.is_empty() { (above(ground, &starts)) }
                    tr { td {} @for (place, &gpu) in ground.gpus.iter().enumerate() { (head(ground, gpu, "col", starts(place), small)) } }
                }
                tbody {
                    @for (row, &source) in ground.gpus.iter().enumerate() {
                        tr .top[starts(row)] {
                            (head(ground, source, "row", false, small))
                            @for (column, &destination) in ground.gpus.iter().enumerate() {
                                @let pair = Pair { source, destination };
                                @if source == destination {
                                    td .self.left[starts(column)] { @if !small { "·" } }
                                } @else {
                                    (cell(map, ground, report, pair, (starts(column), small)))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the sockets above their columns.
fn above(ground: &MapContext, starts: &dyn Fn(usize) -> bool) -> Markup {
    let first = |number: usize| ground.sockets[..number].iter().map(|(columns, _)| columns).sum();
    html! {
        tr {
            td {}
            @for (number, (columns, name)) in ground.sockets.iter().enumerate() {
                th .socket.left[starts(first(number))] scope="colgroup" colspan=(columns) { (name) }
            }
        }
    }
}

fn cell(
    map: &Map,
    ground: &MapContext,
    report: &Report,
    pair: Pair,
    (left, small): (bool, bool),
) -> Markup {
    let heat = map.cells.get(&pair);
    let (mut sign, mut class) = dress(heat, ground.marks.get(&pair).copied().unwrap_or_default());
    let reverse = ground.reverse.contains(&pair);
    if reverse {
        class += " reverse";
        sign = "⇄";
    }
    if left {
        class += " left";
    }
    let gpus = format!("{} {}", pair.source, pair.destination);
    let way = report
        .topology
        .route(pair)
        .filter(|_| !small)
        .filter(|route| matches!(route.class, LinkClass::NvLink(_)));
    let about = if reverse { "; a finding is about the other direction" } else { "" };
    let tip = heat.map(|heat| format!("{}{about}", heat.tip));
    html! {
        @if small {
            td class=(class) title=[tip] { (sign) }
        } @else {
            td class=(class) title=[tip] data-g=(gpus) data-way=[way.map(|_| "nv")] {
                @if !sign.is_empty() { span .sign { (sign) } }
                (heat.map_or("-", |heat| heat.text.as_str()))
            }
        }
    }
}
