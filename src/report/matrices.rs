//! Matrices of pairs, written only where their cells differ.

use std::collections::HashMap;

use super::declared::{Series, capital, text_of, words};
use super::digest::Digest;
use super::highlight::Highlights;
use super::marks::{self, Entry, cells, legend};
use super::matrix::{Cell, pair_matrix};
use super::page::{Page, Paint};
use model::cell::Measurement;
use model::measurement::{Measurements, Probe, Verified};
use model::placement::Pair;

/// Difference, in per cent, above which cells differ: repeated measurements differ by 5 to 10% (cuda-samples issue 449).
const APART_PERCENT: f64 = 10.0;

/// Returns true if a cell has no figure, or one is far from another.
fn differ(values: impl Iterator<Item = Option<f64>>) -> bool {
    let values: Option<Vec<f64>> = values.collect();
    values.is_none_or(|known| {
        let most = known.iter().copied().fold(0.0, f64::max);
        known.iter().any(|value| *value < most * (1.0 - APART_PERCENT / 100.0))
    })
}

/// Writes the rate of every pair in the reference setup, if they differ. If other tools measured pairs, but none in that
/// setup, writes their first rate.
pub(super) fn reference(
    page: &mut Page,
    digest: &Digest<'_>,
    measured: &Measurements,
    gpus: &[u32],
) {
    if measured.peer.is_empty() {
        return;
    }
    let pasted = digest.report.read_from.is_some() && digest.pairs.is_empty();
    let cell = |pair| match digest.pairs.get(&pair).copied() {
        None if pasted => {
            measured.peer.iter().find(|cell| cell.pair == pair && cell.achieved_gbps.is_some())
        }
        cell => cell,
    };
    let highlights = Highlights::of(&digest.report.findings);
    let pairs = Pair::ordered(gpus);
    let sound = |pair: &Pair| {
        let cell = cell(*pair).filter(|cell| cell.is_sound())?;
        let is_clear = cell.verified != Verified::Inconclusive && !highlights.is_affected(*pair);
        cell.achieved_gbps.filter(|_| is_clear).map(|rate| rate.0)
    };
    if !differ(pairs.iter().map(sound)) {
        return;
    }
    let what = if pasted { "otherwise than in the reference setup, " } else { "" };
    page.heading(&format!(
        "Achieved, {what}source (row) → destination (column), GB/s and % of a healthy machine"
    ));
    let figure = |pair| Entry::of(cell(pair)).marked(highlights.is_affected(pair));
    let figures: Vec<_> = pairs.into_iter().map(|pair| (pair, figure(pair))).collect();
    let shown: HashMap<_, _> = cells(&figures, &highlights).into_iter().collect();
    let cell = |pair| shown.get(&pair).cloned().unwrap_or_default();
    page.table(pair_matrix(gpus, |gpu| highlights.label(gpu), cell));
    for (mark, meaning) in legend(figures.iter().map(|(_, figure)| figure)) {
        page.item(2, 8, mark, Paint::Strong, meaning);
    }
}

/// Writes the main figure of every other way to measure pairs whose cells differ.
pub(super) fn others(page: &mut Page, digest: &Digest<'_>, groups: &[Series<'_>], gpus: &[u32]) {
    let highlights = Highlights::of(&digest.report.findings);
    for (group, row) in
        groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)))
    {
        let value = |cell: &dyn Measurement| {
            cell.figures().first().and_then(|main| main.value).filter(|_| cell.is_sound())
        };
        let mut pairs: HashMap<Pair, &dyn Measurement> = HashMap::new();
        for cell in &row.cells {
            let Some(pair) = cell.flow().pair() else { continue };
            // The lowest of several of a pair.
            let known = pairs.entry(pair).or_insert(*cell);
            if value(*cell).is_none_or(|of| value(*known).is_some_and(|known| of < known)) {
                *known = *cell;
            }
        }
        let name = group.apart(row);
        // The first way of a probe for large copies is the reference.
        let is_reference = name.is_empty() && group.probe == Probe::Bandwidth;
        let is_uniform = || !differ(pairs.values().map(|cell| value(*cell)));
        let Some(main) = row.main().filter(|_| !pairs.is_empty() && !is_reference && !is_uniform())
        else {
            continue;
        };
        let (unit, text) = (main.unit(), text_of(&main));
        let what = match name.is_empty() {
            true => words(&main),
            false => format!("{name}, {unit}"),
        };
        page.heading(&format!("{}, {what}", capital(&group.probe.to_string())));
        let cell = |pair| match pairs.get(&pair).map(|cell| value(*cell).ok_or(cell)) {
            None => Cell::new("-", Paint::Faint),
            Some(Ok(figure)) => Cell::new(text(figure), highlights.pair(pair)),
            Some(Err(cell)) => {
                let word = marks::word(cell.ending().status);
                Cell::new(word, marks::paint(word))
            }
        };
        page.table(pair_matrix(gpus, |gpu| highlights.label(gpu), cell));
    }
}
