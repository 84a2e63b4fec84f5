//! Tables over all pairs: the eight placements, other configurations, latency, links under load.

use super::figures::Spread;
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use super::pair_figures::{Figures, over, wrong_pairs};
use model::cell::Measurement;
use model::flow::Setup;
use model::measurement::{Latency, Measurements, Overlap, PeerBandwidth};
use model::placement::{Path, Placement, Side};
use model::rounding::{percent, range, rate, short};

/// Writes all tables that have data.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    placements(page, measurements);
    latency(page, measurements);
    local(page, measurements);
    others(page, measurements);
    if page.verbose() {
        links(page, measurements);
    }
}

/// Writes bandwidth, overlap and host time of the eight placements, over all pairs.
pub(super) fn placements(page: &mut Page, measurements: &Measurements) {
    let path = path_of_placements(measurements);
    let wrong = wrong_pairs(measurements, path);
    let overlaps: Vec<_> =
        measurements.overlap.iter().filter(|overlap| !wrong.contains(&overlap.pair)).collect();
    let of_placements = |peer: &&PeerBandwidth| peer.setup.placement != Placement::REFERENCE;
    let mut other_than_reference =
        measurements.peer.iter().filter(of_placements).map(|peer| peer.pair);
    if overlaps.is_empty() && !other_than_reference.any(|pair| !wrong.contains(&pair)) {
        return;
    }
    page.heading(&format!("Stream placements, over {}", pairs_meant(measurements)));
    let mut table = Table::of_figures(8);
    table.captions(["streams of source and", "", "GB/s", "", "% of", "overlap", "overlap", "host"]);
    table.captions([
        "destination, host",
        "min",
        "median",
        "max",
        "theory",
        "src. %",
        "dest. %",
        "us",
    ]);
    for placement in Placement::all() {
        let setup = Setup::REFERENCE.with_path(path).with_placement(placement);
        let mut cells = vec![Cell::from(placement.to_string())];
        cells.extend(rate_cells(Figures::of(measurements.in_setup(setup).into_values())));
        for side in [Side::Source, Side::Destination] {
            let is_meant =
                |overlap: &&Overlap| (overlap.placement, overlap.compute_on) == (placement, side);
            let overlap = overlaps.iter().copied().filter(is_meant);
            cells.push(median(over(overlap, |cell| cell.overlap_percent), percent));
        }
        cells.push(median(host_blocked(measurements, &overlaps, setup), rate));
        table.row(cells);
    }
    page.table(table);
    let expected =
        Figures::of(measurements.in_setup(Setup::REFERENCE.with_path(path)).into_values()).expected;
    let expected =
        expected.map(|[low, high]| format!("{} GB/s expected; ", range(low, high, rate, " to ")));
    let expected = expected.unwrap_or_default();
    let note = format!(
        "copy engine, issued by source, one way, {path}; {expected}per cent of theory, overlap and host are medians"
    );
    page.note(Paint::Faint, &note);
    let overlap = "share of a kernel, on the source or the destination, that ran at the same time as the copy; on a \
                   default stream the two may have to take turns, by CUDA's rules and not by a fault";
    page.item(2, 11, "overlap", Paint::Strong, overlap);
    let host = "time that the host spent in the calls for one copy; with blocking, until the copy had ended";
    page.item(2, 11, "host", Paint::Strong, host);
}

/// Returns the staged path if no pair has a direct one.
pub(super) fn path_of_placements(measurements: &Measurements) -> Path {
    let has_direct = measurements.peer.iter().any(|peer| peer.setup.path == Path::Direct);
    if has_direct || measurements.peer.is_empty() { Path::Direct } else { Path::Staged }
}

/// Returns the time that the host spent in the copy call: from the bandwidth probe, else from the overlap probe.
fn host_blocked(
    measurements: &Measurements,
    overlaps: &[&Overlap],
    setup: Setup,
) -> Option<Spread> {
    let copies = measurements.in_setup(setup).into_values();
    let is_meant = |overlap: &&Overlap| overlap.placement == setup.placement;
    let overlaps = overlaps.iter().copied().filter(is_meant);
    over(copies, |cell| cell.host_blocked_us)
        .or_else(|| over(overlaps, |overlap| overlap.host_blocked_us))
}

/// Writes one row for each other configuration.
pub(super) fn others(page: &mut Page, measurements: &Measurements) {
    let path = path_of_placements(measurements);
    let is_placement =
        |setup: &Setup| *setup == Setup::REFERENCE.with_path(path).with_placement(setup.placement);
    // A setup whose copies are wrong for every pair has no figure; a finding reports it.
    let all_wrong =
        |setup: &Setup| measurements.in_setup(*setup).values().all(|cell| cell.verified.is_wrong());
    let setups =
        measurements.setups().into_iter().filter(|setup| !is_placement(setup) && !all_wrong(setup));
    let setups: Vec<_> = setups.collect();
    if setups.is_empty() {
        return;
    }
    page.heading(&format!(
        "Other ways to copy, all else as above, over {}",
        pairs_meant(measurements)
    ));
    let mut table = Table::of_figures(7);
    table.captions(["", "", "GB/s", "", "% of", "GB/s", ""]);
    table.captions(["", "min", "median", "max", "theory", "expected", "pairs"]);
    // Placements of one setup are below its name: in one label they would leave no room for figures.
    let alike = |setup: &Setup| setup.with_placement(Setup::REFERENCE.placement);
    let mut groups: Vec<(Setup, Vec<Setup>)> = Vec::new();
    for setup in setups {
        match groups.iter_mut().find(|(name, _)| *name == alike(&setup)) {
            Some((_, members)) => members.push(setup),
            None => groups.push((alike(&setup), vec![setup])),
        }
    }
    for (name, members) in groups {
        let alone = members.len() == 1;
        if !alone {
            table.row(
                [Cell::from(name.difference())]
                    .into_iter()
                    .chain(std::iter::repeat_n(Cell::default(), 6)),
            );
        }
        for setup in members {
            let label = if alone { setup.difference() } else { format!("  {}", setup.placement) };
            let figures = Figures::of(measurements.in_setup(setup).into_values());
            let mut cells = vec![Cell::from(label)];
            cells.extend(rate_cells(figures));
            cells.push(or_dash(figures.expected.map(|[low, high]| range(low, high, rate, "-"))));
            cells.push(done_cell(figures.rates, figures.planned));
            table.row(cells);
        }
    }
    page.table(table);
}

/// Writes the latency of small copies, direct and staged.
fn latency(page: &mut Page, measurements: &Measurements) {
    let of = |path: Path| -> Vec<&Latency> {
        let wrong = wrong_pairs(measurements, path);
        let planned = measurements.latency.iter().filter(|latency| latency.path == path);
        planned.filter(|latency| !wrong.contains(&latency.pair)).collect()
    };
    let [direct, staged] = [Path::Direct, Path::Staged].map(of);
    if direct.is_empty() && staged.is_empty() {
        return;
    }
    page.heading(&format!("Latency of a small copy, over {}, us", pairs_meant(measurements)));
    let mut table = spreads("", "pairs");
    for (path, planned) in [(Path::Direct, direct), (Path::Staged, staged)] {
        if let Some(first) = planned.first() {
            let name = format!("{path}, {}", first.bytes);
            spread_row(&mut table, name, Figures::of(planned), short);
        }
    }
    page.table(table);
}

/// Writes copies within each GPU: over all of them, and on request also of each.
fn local(page: &mut Page, measurements: &Measurements) {
    let Some(first) = measurements.local.first() else {
        return;
    };
    page.heading("Copies within each GPU, GB/s copied (not read plus written)");
    let mut table = spreads("", "GPUs");
    let name = format!("copies of {}", first.bytes);
    spread_row(&mut table, name, Figures::of(&measurements.local), rate);
    if page.verbose() {
        for local in &measurements.local {
            let achieved =
                local.achieved_gbps.filter(|_| local.is_sound()).map(|achieved| rate(achieved.0));
            let cells =
                [Cell::from(format!("GPU{}", local.gpu)), Cell::default(), or_dash(achieved)];
            table.row(cells.into_iter().chain([Cell::default(), Cell::default()]));
        }
    }
    page.table(table);
}

/// Writes PCIe links and counters while copies ran.
fn links(page: &mut Page, measurements: &Measurements) {
    if measurements.links.is_empty() {
        return;
    }
    page.heading("PCIe links while copies ran");
    let mut table = Table::of_figures(5);
    table.captions(["", "generation", "lanes", "replays", "readings"]);
    for link in &measurements.links {
        let range = |range: Option<[u8; 2]>| {
            range.map(
                |[low, high]| {
                    if low == high { high.to_string() } else { format!("{low}-{high}") }
                },
            )
        };
        table.row([
            Cell::from(format!("GPU{}", link.index)),
            or_dash(range(link.generation)),
            or_dash(range(link.width)),
            or_dash(link.replays_added.map(|replays| format!("+{replays}"))),
            Cell::from(link.readings.to_string()),
        ]);
    }
    page.table(table);
    for link in &measurements.links {
        if !link.throttle_reasons.is_empty() {
            let reasons = link.throttle_reasons.join(", ");
            page.note(Paint::Plain, &format!("GPU {}: clocks held back by {reasons}", link.index));
        }
        if let Some(why) = &link.reason {
            page.note(Paint::Plain, &format!("GPU {}: {why}", link.index));
        }
    }
}

/// Returns which pairs a table covers: with many GPUs, not everything is measured on all of them.
const fn pairs_meant(measurements: &Measurements) -> &'static str {
    if measurements.left_out.is_empty() {
        "all pairs"
    } else {
        "the pairs that were measured in this way"
    }
}

/// Returns rates, and the median of the per cent of theoretical.
fn rate_cells(figures: Figures) -> Vec<Cell> {
    let mut cells = spread_cells(figures.rates, rate).to_vec();
    cells.push(median(figures.percents, percent));
    cells
}

/// Returns a table of the main figures of a probe: a row for each kind of measurement, over pairs or GPUs.
pub(super) fn spreads(kind: &'static str, over: &'static str) -> Table {
    let mut table = Table::of_figures(5);
    table.captions([kind, "min", "median", "max", over]);
    table
}

/// Adds a row to such a table.
pub(super) fn spread_row(
    table: &mut Table,
    name: impl Into<String>,
    figures: Figures,
    text: fn(f64) -> String,
) {
    let mut cells = vec![Cell::from(name.into())];
    cells.extend(spread_cells(figures.rates, text));
    cells.push(done_cell(figures.rates, figures.planned));
    table.row(cells);
}

pub(super) fn spread_cells(spread: Option<Spread>, text: fn(f64) -> String) -> [Cell; 3] {
    let values = spread
        .map_or([None; 3], |spread| [Some(spread.min), Some(spread.median), Some(spread.max)]);
    values.map(|value| or_dash(value.map(text)))
}

/// Returns the number of pairs with a figure, and the number of all pairs if some have none.
pub(super) fn done_cell(spread: Option<Spread>, planned: usize) -> Cell {
    match spread.map_or(0, |spread| spread.count) {
        done if done < planned => Cell::new(format!("{done} of {planned}"), Paint::Warning),
        done => Cell::from(done.to_string()),
    }
}

pub(super) fn median(spread: Option<Spread>, text: fn(f64) -> String) -> Cell {
    or_dash(spread.map(|spread| text(spread.median)))
}

pub(super) fn or_dash(text: Option<String>) -> Cell {
    text.map_or_else(|| Cell::new("-", Paint::Faint), Cell::from)
}
