//! Copies between GPUs: one line for each kind of route if all is as expected, else the matrix.

use std::collections::{BTreeMap, BTreeSet};

use super::super::digest::Digest;
use super::super::figures::{Spread, count};
use super::super::groups;
use super::super::highlight::{self, Highlights};
use super::super::live;
use super::super::matrices::Matrices;
use super::super::page::{Page, Paint};
use super::super::pair_figures::{Figures, over, wrong_pairs};
use super::super::standing::{ALIKE_PERCENT, Standing, after_comma, by_way, of_copies, way};
use super::super::tables;
use super::{HANG, load};
use model::cell::Measurement;
use model::finding::Severity;
use model::flow::Setup;
use model::measurement::{Measurements, PeerBandwidth, Verified};
use model::placement::{Pair, Path, Placement};
use model::rounding::{percent, range, rate, short};
use model::topology::LinkClass;

/// Difference, in per cent, above which pairs of one kind need a matrix: repeated measurements differ by 5 to 10%
/// (cuda-samples issue 449).
const APART_PERCENT: f64 = 10.0;

/// Overlap of a kernel with a copy, in per cent, below which the table is shown, if streams allow overlap. Chosen.
const OVERLAPS_PERCENT: f64 = 90.0;

/// Writes everything about pairs; measurements only if there are `any`.
pub(super) fn write(
    page: &mut Page,
    digest: &Digest<'_>,
    measurements: &Measurements,
    gpus: &[u32],
    any: bool,
) {
    page.heading("Between GPUs");
    let routes = Routes::of(digest, gpus);
    if measurements.peer.is_empty() || !any {
        groups::write(page, digest.report, gpus);
    } else {
        copies(page, digest, measurements, gpus, &routes);
    }
    if !any {
        return;
    }
    match streams(measurements) {
        Some(Line::Fine(text)) => page.item(2, HANG, "streams", Paint::Faint, &text),
        Some(Line::Table) => {
            tables::placements(page, measurements);
            page.blank();
        }
        None => {}
    }
    if let Some(text) = ways(digest, measurements, routes.pairs) {
        page.item(2, HANG, "other ways", Paint::Faint, &text);
    }
    if let Some(text) = latency(measurements) {
        page.item(2, HANG, "latency", Paint::Faint, &text);
    }
    if let Some(text) = live::between_gpus(measurements) {
        page.item(2, HANG, "live talk", Paint::Faint, &text);
    }
    load::write(page, digest, measurements);
}

/// The form in which a result is shown.
enum Line {
    /// One line: the result is as expected.
    Fine(String),
    /// A table: the result is not as expected.
    Table,
}

/// Pairs by link class and by the path of their copies.
struct Routes<'a> {
    groups: BTreeMap<(LinkClass, Path), Vec<&'a PeerBandwidth>>,
    /// Number of all pairs.
    pairs: usize,
    /// Number of pairs without a cell.
    missing: usize,
}

impl<'a> Routes<'a> {
    fn of(digest: &Digest<'a>, gpus: &[u32]) -> Self {
        let mut routes = Self { groups: BTreeMap::new(), pairs: 0, missing: 0 };
        for pair in Pair::ordered(gpus) {
            let class = digest.class(pair);
            routes.pairs += 1;
            match digest.pairs.get(&pair) {
                Some(cell) => routes.groups.entry((class, cell.setup.path)).or_default().push(cell),
                None => routes.missing += 1,
            }
        }
        routes
    }
}

fn copies(
    page: &mut Page,
    digest: &Digest<'_>,
    measurements: &Measurements,
    gpus: &[u32],
    routes: &Routes<'_>,
) {
    let worse = digest.report.findings.iter().filter(|finding| finding.severity > Severity::Info);
    let suspected: BTreeSet<Pair> = worse.flat_map(highlight::pairs).collect();
    if routes.missing > 0 || !routes.groups.values().all(|cells| are_fine(cells, &suspected)) {
        groups::write(page, digest.report, gpus);
        Matrices::new(digest, measurements, gpus).bare(page);
        return page.blank();
    }
    for ((class, path), cells) in &routes.groups {
        let label = class.to_string();
        page.item(2, HANG, &label, Paint::Faint, &sentence(cells, *path, routes.pairs));
    }
}

/// Returns true if every pair has an undisputed figure, and all are alike.
fn are_fine(cells: &[&PeerBandwidth], suspected: &BTreeSet<Pair>) -> bool {
    let clean = |cell: &&PeerBandwidth| {
        cell.is_sound()
            && cell.verified != Verified::Inconclusive
            && !suspected.contains(&cell.pair)
    };
    let rates = Figures::of(cells.iter().copied()).rates;
    cells.iter().all(clean) && rates.is_some_and(|rates| is_within(rates, APART_PERCENT))
}

fn is_within(spread: Spread, percent: f64) -> bool {
    spread.min >= spread.max * (1.0 - percent / 100.0)
}

/// Returns `all 56 pairs: 397 of 450 GB/s, 88%, as expected; bytes verified`.
fn sentence(cells: &[&PeerBandwidth], path: Path, pairs: usize) -> String {
    let figures = Figures::of(cells.iter().copied());
    let number = match cells.len() {
        2 if pairs == 2 => "both pairs".to_owned(),
        all if all == pairs => format!("all {all} pairs"),
        some => format!("{some} pairs"),
    };
    let path = if path == Path::Staged { " through host memory" } else { "" };
    let theory = Spread::of(cells.iter().filter_map(|cell| Some(cell.theoretical_gbps?.0)));
    let theory =
        theory.map(|of| format!(" of {}", range(of.min, of.max, rate, " to "))).unwrap_or_default();
    let rates =
        figures.rates.map_or_else(|| "-".to_owned(), |of| range(of.min, of.max, rate, " to "));
    let share = figures.percents.map(|of| format!(", {}%", range(of.min, of.max, percent, " to ")));
    let verified = cells.iter().all(|cell| cell.verified == Verified::Ok);
    let verified = if verified { "; bytes verified" } else { "" };
    // No finding is about one of them: such pairs are in a table.
    let standing = after_comma(of_copies(cells), false);
    format!("{number}{path}: {rates}{theory} GB/s{}{standing}{verified}", share.unwrap_or_default())
}

/// Summarizes the eight stream placements.
fn streams(measurements: &Measurements) -> Option<Line> {
    let path = tables::path_of_placements(measurements);
    let wrong = wrong_pairs(measurements, path);
    let setup = |placement| Setup::REFERENCE.with_path(path).with_placement(placement);
    let of = |placement| Figures::of(measurements.in_setup(setup(placement)).into_values());
    let figures: Vec<Figures> = Placement::all().map(of).collect();
    let others = Placement::all().filter(|placement| *placement != Placement::REFERENCE);
    let overlaps = || measurements.overlap.iter().filter(|overlap| !wrong.contains(&overlap.pair));
    if overlaps().next().is_none() && !others.into_iter().any(|placement| of(placement).planned > 0)
    {
        return None;
    }
    let medians: Vec<f64> =
        figures.iter().filter_map(|figures| Some(figures.rates?.median)).collect();
    let hidden = figures
        .iter()
        .filter_map(|figures| figures.lowest)
        .min_by(|(_, one), (_, other)| one.total_cmp(other));
    let hidden = hidden.map_or_else(String::new, |(flow, value)| {
        format!(" in the middle, lowest {}, {flow}", rate(value))
    });
    let alike =
        Spread::of(medians.iter().copied()).filter(|medians| is_within(*medians, ALIKE_PERCENT));
    let sound = overlaps().filter(|overlap| overlap.cell().tested());
    let may: Vec<f64> = sound
        .filter(|overlap| overlap.placement.should_overlap(overlap.compute_on))
        .filter_map(|overlap| overlap.overlap_percent)
        .collect();
    let may = Spread::of(may);
    if may.is_some_and(|may| may.min < OVERLAPS_PERCENT) || (alike.is_none() && !medians.is_empty())
    {
        return Some(Line::Table);
    }
    let rates = alike.map(|alike| {
        let number =
            if medians.len() == 8 { "all eight".to_owned() } else { medians.len().to_string() };
        format!("{number} alike, {} GB/s{hidden}", range(alike.min, alike.max, rate, " to "))
    });
    let overlap = may.map(|may| {
        format!("side streams overlap kernels {}%", range(may.min, may.max, percent, " to "))
    });
    let parts: Vec<String> = [rates, overlap].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| Line::Fine(parts.join("; ")))
}

/// Returns `issued by destination 394, kernel writes 365, both ways 392, staged 36.8 (8 pairs) GB/s, as expected`: each
/// over all its placements.
fn ways(digest: &Digest<'_>, measurements: &Measurements, pairs: usize) -> Option<String> {
    let path = tables::path_of_placements(measurements);
    let mut groups = by_way(measurements);
    groups.retain(|(setup, _)| *setup != Setup::REFERENCE.with_path(path));
    let all: Vec<&PeerBandwidth> = groups.iter().flat_map(|(_, cells)| cells).copied().collect();
    let (all, fine) = (of_copies(&all), of_copies(&all).is_none_or(Standing::is_fine));
    let part = |(setup, cells): &(Setup, Vec<&PeerBandwidth>)| {
        let rates = Figures::of(cells.iter().copied()).rates?;
        let pairs_of: BTreeSet<Pair> = cells.iter().map(|cell| cell.pair).collect();
        let all_below = of_copies(cells).is_some_and(|of| of.number_below == cells.len());
        let of = (pairs_of.len() < pairs
            || !all_below && of_copies(cells).is_some_and(|of| !of.is_fine()))
        .then(|| count(pairs_of.len(), "pair"));
        let below = of_copies(cells).filter(|standing| !standing.is_fine()).map(|standing| {
            let few = (cells.iter().copied())
                .filter(|cell| of_copies(&[cell]).is_some_and(|one| !one.is_fine()));
            let few: BTreeSet<Pair> = few.map(|cell| cell.pair).collect();
            let words = standing.words();
            match few.len() < pairs_of.len() {
                true => format!("{} of them {words}", few.len()),
                false => words,
            }
        });
        let notes: Vec<String> = of.into_iter().chain(below).collect();
        let notes =
            if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
        Some(format!("{} {}{notes}", way(*setup), range(rates.min, rates.max, rate, " to ")))
    };
    let parts: Vec<String> = groups.iter().filter_map(part).collect();
    let all = if fine {
        let found = Highlights::of(&digest.report.findings);
        let doubted = groups.iter().flat_map(|(_, cells)| cells);
        let doubted = doubted.clone().any(|cell| found.doubts(cell.pair));
        after_comma(all, doubted)
    } else {
        String::new()
    };
    (!parts.is_empty()).then(|| format!("{} GB/s{all}", parts.join(", ")))
}

/// Returns `2.82 us direct, 16.2 us staged, for 16 B`.
fn latency(measurements: &Measurements) -> Option<String> {
    let of = |path: Path| {
        let wrong = wrong_pairs(measurements, path);
        let of_path = measurements.latency.iter().filter(|latency| latency.path == path);
        let right = of_path.filter(|latency| !wrong.contains(&latency.pair));
        let spread = over(right, |latency| latency.latency_us)?;
        Some(format!("{} us {path}", range(spread.min, spread.max, short, " to ")))
    };
    let parts: Vec<String> = [Path::Direct, Path::Staged].into_iter().filter_map(of).collect();
    let bytes = measurements.latency.first()?.bytes;
    (!parts.is_empty()).then(|| format!("{}, for {bytes}", parts.join(", ")))
}
