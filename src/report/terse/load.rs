//! Several flows at once: one line if all reach what is expected, else the table.

use super::super::figures::Spread;
use super::super::load::{self as tables, PatternFigures};
use super::super::page::{Page, Paint};
use super::super::standing::{Standing, of_load};
use super::HANG;
use model::measurement::Measurements;
use model::rounding::{range, rate};

/// Writes patterns, all-reduce and counters.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
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
            format!("; all-reduce at most {}", reduced.join(", "))
        };
        match patterns(&kinds) {
            Some(text) => page.item(2, HANG, "at once", Paint::Faint, &(text + &reduced)),
            None => tables::patterns(page, measurements),
        }
    }
    if let Some(line) = tables::summary(&measurements.counted).first() {
        page.item(2, HANG, "counters", Paint::Faint, line);
    }
}

/// Returns `ring 3115, shift 3115, two into one 396 GB/s, as expected`, or `None` if one is below.
fn patterns(kinds: &[PatternFigures<'_>]) -> Option<String> {
    let standing = of_load(kinds);
    if !standing.is_none_or(Standing::is_fine) {
        return None;
    }
    let part = |kind: &PatternFigures<'_>| {
        let Spread {
            min, max, count, ..
        } = kind.rates?;
        let all = kind.all.len();
        let of = if count < all {
            format!(" ({count} of {all})")
        } else {
            String::new()
        };
        Some(format!(
            "{} {}{of}",
            kind.pattern,
            range(min, max, rate, " to ")
        ))
    };
    let parts: Vec<String> = kinds.iter().filter_map(part).collect();
    let standing = standing
        .map(|standing| format!(", {}", standing.words()))
        .unwrap_or_default();
    (!parts.is_empty()).then(|| format!("{} GB/s{standing}", parts.join(", ")))
}
