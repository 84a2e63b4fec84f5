//! Tables over all pairs: the eight placements, other configurations, latency, links under load.

use super::figures::{Spread, rate, short};
use super::matrix::{Align, Cell, Table};
use super::page::{Page, Paint};
use crate::model::flow::Setup;
use crate::model::measurement::{Measurements, PeerBandwidth, Status, Verified};
use crate::model::placement::{Path, Placement, Side};

/// Bandwidth, overlap and host time of the eight placements, over all pairs.
pub(super) fn placements(page: &mut Page, measurements: &Measurements) {
    let other_than_reference = measurements.peer.iter().any(|peer| peer.setup.placement != Placement::REFERENCE);
    if !other_than_reference && measurements.overlap.is_empty() {
        return;
    }
    page.heading(&format!("Stream placements, over {}", pairs_meant(measurements)));
    let mut align = vec![Align::Right; 9];
    align[0] = Align::Left;
    let mut table = Table::new(1, align);
    table.captions(["streams of source and", "", "GB/s", "", "% of", "% of", "overlap", "overlap", "host"]);
    table.captions(["destination, host", "min", "median", "max", "theory", "exp.", "src. %", "dest. %", "us"]);
    let path = path_of_placements(measurements);
    for placement in Placement::all() {
        let setup = Setup::REFERENCE.with_path(path).with_placement(placement);
        let mut cells = vec![Cell::from(placement.to_string())];
        cells.extend(spread_cells(Spread::of(figures(setup, measurements).map(|(rate, _)| rate))));
        cells.extend(percent_cells(setup, measurements));
        for side in [Side::Source, Side::Destination] {
            let overlap = measurements.overlap.iter().filter(|overlap| overlap.placement == placement);
            let overlap = overlap.filter(|overlap| overlap.compute_on == side && overlap.status == Status::Measured);
            let median = Spread::of(overlap.filter_map(|overlap| overlap.overlap_percent));
            cells.push(or_dash(median.map(|spread| format!("{:.0}", spread.median))));
        }
        cells.push(or_dash(host_blocked(measurements, setup).map(rate)));
        table.row(cells);
    }
    page.table(table);
    let note = format!("copy engine, issued by source, one way, {path}; per cent, overlap and host are medians");
    page.note(Paint::Faint, &note);
    let overlap = "share of a kernel, on the source or the destination, that ran beside the copy; where a stream is \
                   the default one the two may have to take turns: CUDA's order and no fault";
    page.item(2, 11, "overlap", Paint::Strong, overlap);
    page.item(
        2,
        11,
        "host",
        Paint::Strong,
        "time that the host spent in the calls for one copy; where they block, until it had ended",
    );
}

/// Where no pair has a direct path, the staged one is what the pairs have.
fn path_of_placements(measurements: &Measurements) -> Path {
    let has_direct = measurements.peer.iter().any(|peer| peer.setup.path == Path::Direct);
    if has_direct || measurements.peer.is_empty() { Path::Direct } else { Path::Staged }
}

/// Time that the host spent in the copy call: from the bandwidth probe, else from the overlap one.
fn host_blocked(measurements: &Measurements, setup: Setup) -> Option<f64> {
    let overlap = measurements.overlap.iter().filter(|overlap| overlap.placement == setup.placement);
    let overlap = overlap.filter(|overlap| overlap.status == Status::Measured);
    Spread::of(measured(setup, measurements).filter_map(|peer| peer.host_blocked_us))
        .or_else(|| Spread::of(overlap.filter_map(|overlap| overlap.host_blocked_us)))
        .map(|spread| spread.median)
}

/// One row for each configuration beside the placements.
pub(super) fn others(page: &mut Page, measurements: &Measurements) {
    let path = path_of_placements(measurements);
    let is_placement = |setup: &Setup| *setup == Setup::REFERENCE.with_path(path).with_placement(setup.placement);
    let setups: Vec<_> =
        super::figures::setups(measurements).into_iter().filter(|setup| !is_placement(setup)).collect();
    if setups.is_empty() {
        return;
    }
    page.heading(&format!("Other ways to copy, all else as above, over {}", pairs_meant(measurements)));
    let mut align = vec![Align::Right; 7];
    align[0] = Align::Left;
    let mut table = Table::new(1, align);
    table.captions(["", "", "GB/s", "", "% of", "% of", ""]);
    table.captions(["", "min", "median", "max", "theory", "exp.", "pairs"]);
    for setup in setups {
        let planned = super::figures::of_setup(measurements, setup).count();
        let rates = Spread::of(figures(setup, measurements).map(|(rate, _)| rate));
        let done = rates.map_or(0, |rates| rates.count);
        let mut cells = vec![Cell::from(setup.difference())];
        cells.extend(spread_cells(rates));
        cells.extend(percent_cells(setup, measurements));
        let paint = if done < planned { Paint::Warning } else { Paint::Plain };
        cells.push(Cell::new(if done < planned { format!("{done} of {planned}") } else { done.to_string() }, paint));
        table.row(cells);
    }
    page.table(table);
}

/// Small-copy latency, direct and staged.
pub(super) fn latency(page: &mut Page, measurements: &Measurements) {
    if measurements.latency.is_empty() {
        return;
    }
    page.heading(&format!("Latency of a small copy, over {}, us", pairs_meant(measurements)));
    let mut align = vec![Align::Right; 5];
    align[0] = Align::Left;
    let mut table = Table::new(1, align);
    table.captions(["", "min", "median", "max", "pairs"]);
    for path in [Path::Direct, Path::Staged] {
        let planned: Vec<_> = measurements.latency.iter().filter(|latency| latency.path == path).collect();
        let Some(first) = planned.first() else { continue };
        let figures = planned.iter().filter(|latency| latency.status == Status::Measured);
        let spread = Spread::of(figures.filter_map(|latency| latency.latency_us));
        let mut cells = vec![Cell::from(format!("{path}, {}", first.bytes))];
        let values = spread.map_or([None; 3], |spread| [Some(spread.min), Some(spread.median), Some(spread.max)]);
        cells.extend(values.map(|value| or_dash(value.map(short))));
        let done = spread.map_or(0, |spread| spread.count);
        let paint = if done < planned.len() { Paint::Warning } else { Paint::Plain };
        let text = if done < planned.len() { format!("{done} of {}", planned.len()) } else { done.to_string() };
        cells.push(Cell::new(text, paint));
        table.row(cells);
    }
    page.table(table);
}

/// PCIe links and counters while copies ran.
pub(super) fn links(page: &mut Page, measurements: &Measurements) {
    if measurements.links.is_empty() {
        return;
    }
    page.heading("PCIe links while copies ran");
    let mut align = vec![Align::Right; 5];
    align[0] = Align::Left;
    let mut table = Table::new(1, align);
    table.captions(["", "generation", "lanes", "replays", "readings"]);
    for link in &measurements.links {
        let range = |range: Option<[u8; 2]>| {
            range.map(|[low, high]| if low == high { high.to_string() } else { format!("{low}-{high}") })
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

/// Which pairs a table is about: with many GPUs not everything is measured on all of them.
const fn pairs_meant(measurements: &Measurements) -> &'static str {
    if measurements.left_out.is_empty() { "all pairs" } else { "the pairs that were measured so" }
}

/// What was measured in a configuration while the bytes arrived.
fn measured(setup: Setup, measurements: &Measurements) -> impl Iterator<Item = &PeerBandwidth> {
    let arrived = |peer: &&PeerBandwidth| !matches!(peer.verified, Verified::Dropped | Verified::Corrupt);
    super::figures::of_setup(measurements, setup).filter(|peer| peer.status == Status::Measured).filter(arrived)
}

/// Rates and per cent of a configuration.
fn figures(setup: Setup, measurements: &Measurements) -> impl Iterator<Item = (f64, Option<f64>)> {
    measured(setup, measurements).filter_map(|peer| Some((peer.achieved_gbps?.0, peer.percent)))
}

/// Per cent of theoretical, and of what healthy machines reach: medians.
fn percent_cells(setup: Setup, measurements: &Measurements) -> [Cell; 2] {
    let theory = Spread::of(figures(setup, measurements).filter_map(|(_, percent)| percent));
    let expected = Spread::of(measured(setup, measurements).filter_map(|peer| peer.expected_percent));
    [theory, expected].map(|spread| or_dash(spread.map(|spread| format!("{:.0}", spread.median))))
}

/// What all pairs reach in the reference configuration, in GB/s, per cent of theoretical, and per
/// cent of expected: for the summary line.
pub(super) fn reference(measurements: &Measurements) -> Option<(Spread, [Option<Spread>; 2])> {
    let rates = Spread::of(figures(Setup::REFERENCE, measurements).map(|(rate, _)| rate))?;
    let theory = Spread::of(figures(Setup::REFERENCE, measurements).filter_map(|(_, percent)| percent));
    let expected = Spread::of(measured(Setup::REFERENCE, measurements).filter_map(|peer| peer.expected_percent));
    Some((rates, [theory, expected]))
}

fn spread_cells(spread: Option<Spread>) -> [Cell; 3] {
    let values = spread.map_or([None; 3], |spread| [Some(spread.min), Some(spread.median), Some(spread.max)]);
    values.map(|value| or_dash(value.map(rate)))
}

fn or_dash(text: Option<String>) -> Cell {
    text.map_or_else(|| Cell::new("-", Paint::Faint), Cell::from)
}
