//! Heat maps: a figure for every pair, coloured by its share of what is expected. Nothing is shown by colour alone:
//! cells that a finding is about have a mark, and low cells have a sign.

use std::collections::{BTreeMap, HashMap};

use maud::{Markup, html};

use crate::digest::Digest;
use crate::escape::clean;
use crate::figures::{Spread, by_key, wrong_pairs};
use crate::highlight;
use crate::marks::{Entry, legend as marks_of, meaning, word};
use crate::paint::Paint;
use model::cell::{Measurement, Subject};
use model::flow::Setup;
use model::links::SingleLink;
use model::measurement::{Measurements, PeerBandwidth};
use model::node::NodeId;
use model::placement::{Direction, Engine, Pair, Path, Side};
use model::report::Report;
use model::rounding::{percent, rate, short};
use model::topology::{LinkClass, NodeKind};

/// Most GPUs with full cells. With more, cells are small and show their values on hover.
const MOST: usize = 16;

/// Lower ends of the colour steps, per cent of the healthy rate, with the words of the legend.
const STEPS: [(f64, &str); 6] = [
    (0.0, "below 50"),
    (50.0, "50"),
    (70.0, "70"),
    (85.0, "85"),
    (92.0, "92"),
    (98.0, "98 and more"),
];

/// Share of the healthy rate, in per cent, below which a cell has a sign too.
const LOW: f64 = 85.0;

/// A heat map of pairs.
struct Map {
    name: &'static str,
    note: String,
    cells: HashMap<Pair, HeatCell>,
}

struct HeatCell {
    text: String,
    /// Per cent of the healthy rate.
    share: Option<f64>,
    tip: String,
    /// Each NVLink of the pair: per cent of the median, and what it is.
    links: Vec<(f64, String)>,
}

/// Facts about the machine that every map needs.
struct Ground<'a> {
    report: &'a Report,
    gpus: Vec<u32>,
    /// True if cells are small.
    small: bool,
    pairs: HashMap<Pair, Paint>,
    of_gpu: HashMap<u32, Paint>,
    groups: BTreeMap<u32, Parents>,
}

/// The socket and the switch of a GPU.
type Parents = [Option<NodeId>; 2];

/// Renders all maps that have data, one visible at a time.
pub(super) fn write(digest: &Digest<'_>) -> Markup {
    let ground = Ground::of(digest);
    let measured = digest.report.measurements.iter().filter(|_| ground.gpus.len() > 1);
    let maps: Vec<Map> = measured.flat_map(|measured| maps(digest, measured, &ground)).collect();
    html! {
        @if !maps.is_empty() {
            section .maps aria-label="Heat maps" {
                h2 { "Pair by pair" }
                div .tabs {
                    @for (number, map) in maps.iter().enumerate() {
                        @let id = format!("map{number}");
                        input type="radio" name="map" id=(id) checked[number == 0];
                        label for=(id) { (map.name) }
                        div .panel { h3 { (map.name) } (ground.table(map)) p .faint { "From the row's GPU to the column's, GB/s. " (map.note) } }
                    }
                }
                p .legend {
                    span { "per cent of what a healthy machine reaches: " }
                    @for (number, (_, words)) in STEPS.iter().enumerate() { span class=(format!("key h{number}")) { (words) } " " }
                    span .key .none { "not known" } " "
                    span { "✖ ▲ a finding is about it, ⇄ about its other direction, ▾ below " (LOW) }
                }
            }
        }
    }
}

fn maps(digest: &Digest<'_>, measurements: &Measurements, ground: &Ground<'_>) -> Vec<Map> {
    let reference = Setup::REFERENCE;
    let setups = [
        ("both ways", reference.with_direction(Direction::BothWays)),
        ("read", reference.with_issuer(Side::Destination)),
        ("kernel writes", reference.with_engine(Engine::Kernel)),
        ("kernel reads", reference.with_engine(Engine::Kernel).with_issuer(Side::Destination)),
        ("staged", reference.with_path(Path::Staged)),
    ];
    let rates = |name, setup: Setup, cells: BTreeMap<Pair, &PeerBandwidth>| {
        let figures: Vec<Entry> = cells.values().map(|cell| Entry::of(Some(cell))).collect();
        let is_staged = setup.path == Path::Staged;
        let mut note = setup.to_string();
        if is_staged {
            note += "; the colour compares with the median";
        }
        for (mark, meaning) in marks_of(figures.iter()) {
            note += &format!("; {mark}: {}", meaning.split(',').next().unwrap_or_default());
        }
        // The expected rate of copies through the host depends mostly on the processors.
        let sound = cells.values().filter(|cell| is_staged && !cell.ending.disturbed);
        let median = Spread::of(sound.filter_map(|cell| Some(cell.achieved_gbps?.0)));
        let median = median.map(|spread| spread.median).filter(|median| *median > 0.0);
        let cells = cells.into_iter().map(|(pair, cell)| (pair, heat(cell, median))).collect();
        Map { name, note, cells }
    };
    let mut maps = vec![rates("one way", reference, digest.pairs.clone())];
    maps.extend(setups.map(|(name, setup)| rates(name, setup, measurements.in_setup(setup))));
    maps.push(latency(measurements));
    maps.push(links(measurements));
    // A sparse map of many GPUs is less useful than the tables below.
    let whole = ground.gpus.len() * (ground.gpus.len() - 1);
    maps.retain(|map| !map.cells.is_empty() && (!ground.small || map.cells.len() * 2 > whole));
    maps
}

/// Returns a figure, or the word for the reason why there is none. A direct copy compares with the healthy machine, a
/// staged one with the median of all where that is given.
fn heat(cell: &PeerBandwidth, median: Option<f64>) -> HeatCell {
    let achieved = cell.achieved_gbps.map(|achieved| achieved.0);
    let (text, mut tip) = match Entry::of(Some(cell)) {
        Entry::Number { value, .. } => {
            (value, achieved.map(|gbps| format!(": {} GB/s", rate(gbps))).unwrap_or_default())
        }
        Entry::Word(word) => {
            let reason = cell.ending.reason.as_deref().unwrap_or_else(|| meaning(word));
            (word.to_owned(), format!(": {reason}"))
        }
    };
    tip.insert_str(0, &cell.pair.to_string());
    let mut tip = clean(&tip).into_owned();
    let share = match cell.healthy_percent.zip(cell.healthy_gbps) {
        _ if cell.ending.disturbed => None,
        Some((share, healthy)) if cell.setup.path == Path::Direct => {
            tip += &format!(", {}% of a healthy {}", percent(share), rate(healthy.0));
            Some(share)
        }
        _ => achieved.zip(median).map(|(achieved, median)| 100.0 * achieved / median),
    };
    HeatCell { text, share, tip, links: Vec::new() }
}

/// Compares latencies with the median of all: less is better.
fn latency(measurements: &Measurements) -> Map {
    // The latency of a copy that delivers wrong bytes means nothing.
    let wrong = wrong_pairs(measurements);
    let all = measurements
        .latency
        .iter()
        .filter(|cell| cell.path == Path::Direct && !wrong.contains(&(cell.pair, Path::Direct)));
    let median = Spread::of(all.clone().filter_map(|cell| cell.latency_us));
    let cells = all.map(|cell| {
        let text = cell.latency_us.map_or_else(|| word(cell.ending.status).to_owned(), short);
        let compared = median.zip(cell.latency_us.filter(|us| *us > 0.0));
        let share = compared.map(|(all, us)| 100.0 * all.median / us);
        let tip = format!("{}: {text} us", cell.pair);
        (cell.pair, HeatCell { tip, text, share, links: Vec::new() })
    });
    Map {
        name: "latency",
        note: "Here microseconds of a small copy; the colour compares with the median".into(),
        cells: cells.collect(),
    }
}

/// Compares the NVLinks of each pair with their median: the slowest as the cell's figure, all as a strip.
fn links(measurements: &Measurements) -> Map {
    let sound = measurements.nvlinks.iter().filter(|cell| cell.is_sound());
    let of_pair = by_key(sound.filter_map(|cell| Some((cell.pair, (cell, cell.load_gbps?.0)))));
    let cell = |(pair, links): (Pair, Vec<(&SingleLink, f64)>)| {
        let all = Spread::of(links.iter().map(|(_, gbps)| *gbps))?;
        let share = |gbps: f64| 100.0 * gbps / all.median;
        let late = Spread::of(links.iter().filter_map(|(link, _)| link.latency_ns));
        let strip = links.iter().map(|(link, gbps)| {
            let (mut worst, mut tip) =
                (share(*gbps), format!("{pair}, {}: {} GB/s", link.what(), rate(*gbps)));
            if let Some((late, ns)) = late.as_ref().zip(link.latency_ns) {
                worst = worst.min(100.0 * late.median / ns);
                tip += &format!(", a load {} ns", short(ns));
            }
            (worst, tip)
        });
        let text = rate(all.min);
        let tip = format!("{pair}: {text} to {} GB/s over a link", rate(all.max));
        Some((pair, HeatCell { text, share: Some(share(all.min)), tip, links: strip.collect() }))
    };
    Map {
        name: "each NVLink",
        note: "The slowest of the pair, and a strip of all, by their numbers at the source; colours compare with the pair's \
               median"
            .into(),
        cells: of_pair.into_iter().filter_map(cell).collect(),
    }
}

impl<'a> Ground<'a> {
    fn of(digest: &Digest<'a>) -> Self {
        let (report, mut gpus) = (digest.report, digest.gpus());
        let groups: BTreeMap<u32, Parents> =
            gpus.iter().map(|&gpu| (gpu, group(report, gpu))).collect();
        // By socket, within a socket by switch, each in the order of its first GPU.
        let first = |parts: usize, gpu: u32| {
            groups
                .iter()
                .find(|(_, other)| other[..parts] == groups[&gpu][..parts])
                .map(|(gpu, _)| *gpu)
        };
        gpus.sort_by_key(|&gpu| (first(1, gpu), first(2, gpu), gpu));
        let findings = || digest.findings.iter().copied();
        Self {
            report,
            small: gpus.len() > MOST,
            pairs: highlight::worst(findings(), highlight::pairs),
            of_gpu: highlight::worst(findings(), highlight::gpus),
            gpus,
            groups,
        }
    }

    /// Returns the number of columns and the name of each socket, in order; none if there is only one.
    fn sockets(&self) -> Vec<(usize, String)> {
        let of = |gpu: &u32| self.groups[gpu][0];
        let runs: Vec<_> = self.gpus.chunk_by(|one, next| of(one) == of(next)).collect();
        // A name needs some columns of width.
        let least = if self.small { 8 } else { 2 };
        if runs.len() < 2 || self.gpus.len() < runs.len() * least {
            return Vec::new();
        }
        let name =
            |id: Option<NodeId>| Some(clean(&self.report.topology.node(id?)?.label).into_owned());
        runs.iter().map(|run| (run.len(), name(of(&run[0])).unwrap_or_default())).collect()
    }

    /// Returns true if the GPU at this place begins another group.
    fn starts(&self, place: usize) -> bool {
        place > 0 && self.groups[&self.gpus[place]] != self.groups[&self.gpus[place - 1]]
    }

    fn table(&self, map: &Map) -> Markup {
        let sockets = self.sockets();
        let first = |number: usize| sockets[..number].iter().map(|(columns, _)| columns).sum();
        html! {
            div .scroll tabindex="0" role="region" aria-label=(map.name) {
                table .heat.small[self.small] {
                    thead {
                        @if !sockets.is_empty() {
                            tr {
                                td {}
                                @for (number, (columns, name)) in sockets.iter().enumerate() {
                                    th .socket.left[self.starts(first(number))] scope="colgroup" colspan=(columns) { (name) }
                                }
                            }
                        }
                        tr { td {} @for (place, &gpu) in self.gpus.iter().enumerate() { (self.head(gpu, "col", self.starts(place))) } }
                    }
                    tbody {
                        @for (row, &source) in self.gpus.iter().enumerate() {
                            tr .top[self.starts(row)] {
                                (self.head(source, "row", false))
                                @for (column, &destination) in self.gpus.iter().enumerate() {
                                    @if source == destination {
                                        td .self.left[self.starts(column)] { @if !self.small { "·" } }
                                    } @else {
                                        (self.cell(map, Pair { source, destination }, self.starts(column)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Renders a GPU's name, with the mark of a finding about it.
    fn head(&self, gpu: u32, scope: &str, left: bool) -> Markup {
        let paint = self.of_gpu.get(&gpu).copied().unwrap_or_default();
        let sign = paint.sign();
        html! {
            th scope=(scope) .left[left].error[paint == Paint::Error].warning[paint == Paint::Warning] data-g=(gpu) {
                @if self.small { (gpu) } @else { (sign) @if !sign.is_empty() { "\u{a0}" } @if scope == "row" { "GPU " } (gpu) }
            }
        }
    }

    fn cell(&self, map: &Map, pair: Pair, left: bool) -> Markup {
        let heat = map.cells.get(&pair);
        let share = heat.and_then(|heat| heat.share);
        let found = |pair: Pair| self.pairs.get(&pair).copied().unwrap_or_default();
        let paint = found(pair);
        let step = |share: f64| STEPS.iter().rposition(|(low, _)| share >= *low).unwrap_or(0);
        let mut class =
            share.map_or_else(|| "none".to_owned(), |share| format!("h{}", step(share)));
        let mut sign = paint.sign();
        match paint {
            Paint::Error => class += " error",
            Paint::Warning => class += " warning",
            _ if share.is_some_and(|share| share < LOW) => sign = "▾",
            _ => {}
        }
        let reverse = paint < Paint::Warning && found(pair.reversed()) >= Paint::Warning;
        if reverse {
            class += " reverse";
            sign = "⇄";
        }
        if left {
            class += " left";
        }
        let gpus = format!("{} {}", pair.source, pair.destination);
        let way = self.report.topology.route(pair);
        let way = way.filter(|route| matches!(route.class, LinkClass::NvLink(_))).map(|_| "nv");
        let about = if reverse { "; a finding is about the other direction" } else { "" };
        let tip = heat.map(|heat| format!("{}{about}", heat.tip));
        html! {
            @if self.small {
                td class=(class) title=[tip] { (sign) }
            } @else {
                td class=(class) title=[tip] data-g=(gpus) data-way=[way] {
                    @if !sign.is_empty() { span .sign { (sign) } }
                    (heat.map_or("-", |heat| heat.text.as_str()))
                    @if let Some(links) = heat.map(|heat| &heat.links).filter(|links| !links.is_empty()) {
                        div .strip { @for (share, what) in links { span class=(format!("h{}", step(*share))) title=(what) {} } }
                    }
                }
            }
        }
    }
}

/// Returns the socket and the switch of a GPU; GPUs of one group are adjacent.
fn group(report: &Report, gpu: u32) -> Parents {
    let way = report.topology.way_up(NodeId::Gpu(gpu));
    let is = |id: &NodeId, kind| report.topology.node(*id).is_some_and(|node| node.kind == kind);
    let socket = way.iter().find(|id| is(id, NodeKind::NumaNode)).copied();
    [socket, way.iter().rfind(|id| is(id, NodeKind::SwitchPort)).copied()]
}
