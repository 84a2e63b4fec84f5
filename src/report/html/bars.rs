//! Figures as bars: stream placements with their overlap, copies between host and GPU, pipelines, several flows at once
//! (`load.rs`). Each is shown beside its expected value.

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::figures::Spread;
use super::super::host::Ways;
use super::super::pair_figures::{Figures, wrong_pairs};
use super::super::streams;
use super::bar::bar;
use super::load;
use model::cell::Measurement;
use model::flow::Setup;
use model::measurement::Measurements;
use model::placement::{Path, Placement, Side};
use model::rounding::{percent, range, rate, short};

/// Captions of columns; on a narrow screen they precede each figure instead.
const RATE: &str = "rate, GB/s";
const OVERLAPS: [&str; 2] = ["overlap on the source, %", "overlap on the destination, %"];

/// Returns all charts that have data.
pub(super) fn write(digest: &Digest<'_>) -> Markup {
    let Some(measurements) = &digest.report.measurements else {
        return html! {};
    };
    html! { (placements(measurements)) (host(measurements)) (load::write(digest, measurements)) (pipelines(measurements)) }
}

/// Draws rate and overlap of the eight placements, medians over all pairs.
fn placements(measurements: &Measurements) -> Markup {
    let wrong = wrong_pairs(measurements, Path::Direct);
    if measurements.overlap.iter().all(|cell| wrong.contains(&cell.pair)) {
        return html! {};
    }
    let whole = Placement::all()
        .filter_map(|placement| Some(rates(measurements, placement).rates?.max))
        .fold(0.0, f64::max);
    html! {
        section {
            h2 { "Stream placements" }
            p .faint {
                "Streams of source and destination, and whether the host waits; medians over all pairs. Overlap is the \
                 share of a kernel that ran at the same time as the copy: on a default stream the two may have to take \
                 turns, by CUDA's rules and not by a fault."
            }
            div .scroll tabindex="0" role="region" aria-label="Stream placements" {
                table .bars {
                    thead { tr {
                        td {}
                        @for caption in [RATE, OVERLAPS[0], OVERLAPS[1]] { th scope="col" { (caption) } }
                    } }
                    tbody {
                        @for placement in Placement::all() {
                            @let figures = rates(measurements, placement);
                            tr {
                                th scope="row" { (placement.to_string()) }
                                td data-label=(RATE) {
                                    (measured(figures.rates, rate, whole, figures.expected))
                                    @if let Some(hidden) = figures.hidden() { " " strong { (hidden) } }
                                }
                                @for (side, label) in [Side::Source, Side::Destination].into_iter().zip(OVERLAPS) {
                                    td data-label=(label) { (measured(overlap(measurements, placement, side), percent, 100.0, None)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn rates(measurements: &Measurements, placement: Placement) -> Figures {
    let cells = measurements.in_setup(Setup::REFERENCE.with_placement(placement));
    Figures::of(cells.into_values().filter(|cell| cell.is_sound()))
}

fn overlap(measurements: &Measurements, placement: Placement, side: Side) -> Option<Spread> {
    let wrong = wrong_pairs(measurements, Path::Direct);
    let of = measurements
        .overlap
        .iter()
        .filter(|cell| cell.placement == placement && cell.compute_on == side);
    let of = of.filter(|cell| !wrong.contains(&cell.pair));
    Spread::of(of.filter(|cell| cell.cell().tested()).filter_map(|cell| cell.overlap_percent))
}

/// Draws a median as a bar with its figure.
fn measured(
    spread: Option<Spread>,
    text: fn(f64) -> String,
    whole: f64,
    expected: Option<[f64; 2]>,
) -> Markup {
    let share = |value: f64| {
        if whole > 0.0 { 100.0 * value / whole } else { 0.0 }
    };
    html! {
        @match spread {
            Some(spread) => { (bar(share(spread.median), expected.map(|ends| ends.map(share)), false)) " " (text(spread.median)) }
            None => { span .faint { "not measured" } }
        }
    }
}

/// Draws copies between host and GPU, a bar for each kind.
fn host(measurements: &Measurements) -> Markup {
    let ways: Vec<Ways> =
        Ways::of(measurements).into_iter().filter(|way| way.rates.is_some()).collect();
    let highest = |way: &Ways| {
        way.rates.map_or(0.0, |rates| rates.max).max(way.expected.map_or(0.0, |[_, high]| high))
    };
    let whole = ways.iter().map(highest).fold(0.0, f64::max);
    html! {
        @if !ways.is_empty() {
            section {
                h2 { "Copies between host and GPU" }
                p .faint { "GB/s of one GPU and one direction, median over the GPUs; the frame is what is expected." }
                div .scroll tabindex="0" role="region" aria-label="Copies between host and GPU" {
                    table .bars {
                        tbody {
                            @for way in &ways {
                                tr {
                                    th scope="row" { (way.label()) }
                                    td { (measured(way.rates, rate, whole, way.expected)) }
                                    td .faint {
                                        @if let Some([low, high]) = way.expected { (range(low, high, rate, " to ")) " expected" }
                                        @if let Some(lowest) = &way.lowest { " " strong { "lowest " (lowest) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws the speed-up of pipelines in several streams.
fn pipelines(measurements: &Measurements) -> Markup {
    let rows = streams::speed_ups(measurements);
    let possible = |name: &str| {
        let cells = measurements.pipeline.iter().filter(|cell| streams::name_of(cell) == name);
        Spread::of(cells.filter_map(|cell| cell.possible_speed_up)).map(|spread| spread.median)
    };
    let all = rows.iter().flat_map(|(name, spread)| [Some(spread.max), possible(name)]).flatten();
    let whole = all.fold(1.0, f64::max);
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Pipelines in several streams" }
                p .faint { "How many times as fast as in one stream; the frame is what is possible." }
                table .bars {
                    tbody {
                        @for (name, spread) in &rows {
                            tr {
                                th scope="row" { (name) }
                                td { (measured(Some(*spread), short, whole, possible(name).map(|most| [most; 2]))) }
                            }
                        }
                    }
                }
            }
        }
    }
}
