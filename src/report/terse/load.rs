//! Several flows at once: one line if all reach what is expected, else the table.

use super::super::digest::Digest;
use super::super::figures::Spread;
use super::super::highlight::Highlights;
use super::super::load::{self as tables, PatternFigures};
use super::super::page::{Page, Paint};
use super::super::pair_figures::HIDDEN;
use super::super::standing::{Standing, after_comma, of_load};
use super::HANG;
use model::flow::Flow;
use model::load::LoadPattern;
use model::measurement::Measurements;
use model::rounding::{range, rate};

/// Writes patterns, all-reduce and counters.
pub(super) fn write(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements) {
    let kinds = PatternFigures::of(measurements);
    if !kinds.is_empty() {
        let reduced = measurements
            .all_reduce
            .iter()
            .map(|found| format!("{} by {}", found.bus_gbps, found.algorithm));
        let reduced: Vec<String> = reduced.collect();
        let reduced = if reduced.is_empty() {
            String::new()
        } else {
            format!("; all-reduce ≈{}", reduced.join(", "))
        };
        match patterns(&kinds, slowest(digest, &kinds), doubts(digest, &kinds)) {
            Some(text) => page.item(2, HANG, "at once", Paint::Faint, &(text + &reduced)),
            None => tables::patterns(page, measurements),
        }
    }
    if let Some(line) = tables::summary(&measurements.counted).first() {
        page.item(2, HANG, "counters", Paint::Faint, line);
    }
}

/// Returns the slowest flow of a pair that a finding is about, if others of its pattern are clearly faster.
fn slowest(digest: &Digest<'_>, kinds: &[PatternFigures<'_>]) -> Option<(Flow, f64)> {
    let found = Highlights::of(&digest.report.findings);
    let of_pattern = |load: &&LoadPattern| {
        let rates = load.flows.iter().filter_map(|flow| flow.achieved_gbps);
        let most = rates.map(|rate| rate.0).fold(0.0, f64::max);
        let slow = load.flows.iter().filter_map(move |flow| {
            let rate = flow.achieved_gbps?.0;
            (rate < HIDDEN * most).then_some((flow.flow(), rate))
        });
        slow.collect::<Vec<_>>()
    };
    let all = kinds.iter().flat_map(|kind| &kind.all).flat_map(of_pattern);
    all.filter(|(flow, _)| flow.pair().is_some_and(|pair| found.is_affected(pair)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Returns true if a warning or an error is about a pair of these patterns.
fn doubts(digest: &Digest<'_>, kinds: &[PatternFigures<'_>]) -> bool {
    let found = Highlights::of(&digest.report.findings);
    let all = kinds.iter().flat_map(|kind| &kind.all);
    let mut pairs = all.flat_map(|load| load.flows.iter().filter_map(|flow| flow.flow().pair()));
    pairs.any(|pair| found.doubts(pair))
}

/// Returns `ring 3115, shift 3115, all to one 396 GB/s, as expected`, or `None` if one is below. What is expected of
/// flows follows the links as they are, so a pattern with a slow pair may be as expected.
fn patterns(
    kinds: &[PatternFigures<'_>],
    slowest: Option<(Flow, f64)>,
    doubted: bool,
) -> Option<String> {
    let standing = of_load(kinds);
    if !standing.is_none_or(Standing::is_fine) {
        return None;
    }
    let part = |kind: &PatternFigures<'_>| {
        let Spread { min, max, count, .. } = kind.rates?;
        let all = kind.all.len();
        let of = if count < all { format!(" ({count} of {all})") } else { String::new() };
        Some(format!("{} {}{of}", kind.pattern, range(min, max, rate, " to ")))
    };
    let parts: Vec<String> = kinds.iter().filter_map(part).collect();
    let standing = match (standing, slowest) {
        (_, Some((flow, least))) => {
            format!(", as the links allow as they are; lowest {}, {flow}", rate(least))
        }
        (standing, None) => after_comma(standing, doubted),
    };
    (!parts.is_empty()).then(|| format!("{} GB/s{standing}", parts.join(", ")))
}
