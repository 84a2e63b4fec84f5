//! Matrices of measured figures: the one that matters, and with `verbose` every other.

use std::collections::HashMap;

use super::crowd;
use super::figures::{Figure, Spread, cells, legend, rate, short};
use super::highlight::Highlights;
use super::matrix::{Cell, pair_matrix};
use super::page::{Page, Paint};
use crate::model::flow::Setup;
use crate::model::measurement::{Measurements, Status};
use crate::model::placement::{Pair, Path, Placement, Side};
use crate::model::report::Report;
use crate::model::units::Bytes;

/// What a matrix is drawn from.
pub(super) struct Matrices<'a> {
    report: &'a Report,
    measurements: &'a Measurements,
    gpus: &'a [u32],
    highlights: Highlights,
}

impl<'a> Matrices<'a> {
    pub(super) fn new(report: &'a Report, measurements: &'a Measurements, gpus: &'a [u32]) -> Self {
        Self { report, measurements, gpus, highlights: Highlights::of(&report.findings) }
    }

    /// What every pair reaches in the reference configuration.
    pub(super) fn reference(&self, page: &mut Page) {
        let setup = Setup::REFERENCE;
        if crowd::is_one(self.gpus) && !page.verbose() {
            return crowd::rates(page, self.report, self.measurements, self.gpus);
        }
        page.heading("Achieved, source (row) → destination (column), GB/s and % of theoretical");
        let (direct, staged) = (
            super::figures::by_pair(self.measurements, setup),
            super::figures::by_pair(self.measurements, setup.with_path(Path::Staged)),
        );
        self.rates(page, setup, |pair| {
            Figure::direct_or_staged(direct.get(&pair).copied(), staged.get(&pair).copied())
        });
        if let Some(expected) = self.expected(setup) {
            page.note(Paint::Faint, &expected);
        }
    }

    /// What healthy machines reach on these routes, and how much of it was reached.
    fn expected(&self, setup: Setup) -> Option<String> {
        let peers = || super::figures::of_setup(self.measurements, setup);
        let mut routes: Vec<(f64, f64)> =
            peers().filter_map(|peer| Some((peer.theoretical_gbps?.0, peer.expected_gbps?.0))).collect();
        routes.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)));
        let mut texts: Vec<_> =
            routes.iter().map(|(theory, expected)| format!("{} of {}", rate(*expected), rate(*theory))).collect();
        texts.dedup();
        let reached = Spread::of(peers().filter_map(|peer| peer.expected_percent))?;
        let range = match (format!("{:.0}", reached.min), format!("{:.0}", reached.max)) {
            (min, max) if min == max => max,
            (min, max) => format!("{min} to {max}"),
        };
        Some(format!("healthy machines reach {} GB/s on these routes; achieved is {range}% of that", texts.join(", ")))
    }

    /// The size of a copy, and what was taken out of the rates.
    fn method(&self, setup: Setup) -> Option<String> {
        let peers = || super::figures::of_setup(self.measurements, setup);
        let size = size_text(peers().map(|peer| peer.setup.bytes)).map(|size| format!("copies of {size}"));
        let fixed = Spread::of(peers().filter_map(|peer| peer.fixed_cost_us));
        let fixed =
            fixed.map(|fixed| format!("rates without the fixed cost of a copy (median {} us)", rate(fixed.median)));
        let parts: Vec<_> = [size, fixed].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Every other matrix there is.
    pub(super) fn all(&self, page: &mut Page) {
        let shown_above = |setup: &Setup| *setup == Setup::REFERENCE;
        for setup in super::figures::setups(self.measurements).into_iter().filter(|setup| !shown_above(setup)) {
            page.heading(&format!("Achieved, {}, GB/s and % of theoretical", setup.difference()));
            let found = super::figures::by_pair(self.measurements, setup);
            self.rates(page, setup, |pair| Figure::of(found.get(&pair).copied()));
        }
        for path in [Path::Direct, Path::Staged] {
            let found = self.measurements.latency.iter().filter(|latency| latency.path == path);
            let values = found.map(|latency| (latency.pair, (latency.status, latency.latency_us)));
            self.plain(page, &format!("Latency {path}, source (row) → destination (column), us"), values, short);
        }
        for placement in Placement::all() {
            for side in [Side::Source, Side::Destination] {
                let of_side = self.measurements.overlap.iter().filter(|overlap| overlap.compute_on == side);
                let found = of_side.filter(|overlap| overlap.placement == placement);
                let values = found.map(|overlap| (overlap.pair, (overlap.status, overlap.overlap_percent)));
                let title = format!("Overlap with a kernel on the {side}, {placement}, %");
                self.plain(page, &title, values, |value| format!("{value:.0}"));
            }
        }
    }

    fn rates(&self, page: &mut Page, setup: Setup, figure: impl Fn(Pair) -> Figure) {
        let figures: Vec<_> = Pair::ordered(self.gpus).into_iter().map(|pair| (pair, figure(pair))).collect();
        let cells: HashMap<_, _> = cells(&figures, &self.highlights).into_iter().collect();
        let cell = |pair| cells.get(&pair).cloned().unwrap_or_default();
        page.table(pair_matrix(self.gpus, |gpu| self.highlights.label(gpu), cell));
        page.note(Paint::Faint, &setup.to_string());
        if let Some(method) = self.method(setup) {
            page.note(Paint::Faint, &method);
        }
        for (mark, meaning) in legend(figures.iter().map(|(_, figure)| figure)) {
            page.item(2, 8, mark, Paint::Strong, meaning);
        }
    }

    /// A matrix of bare numbers; nothing when there are none.
    fn plain(
        &self,
        page: &mut Page,
        title: &str,
        values: impl Iterator<Item = (Pair, (Status, Option<f64>))>,
        text: impl Fn(f64) -> String,
    ) {
        let values: HashMap<_, _> = values.collect();
        if values.is_empty() {
            return;
        }
        page.heading(title);
        let cell = |pair| match values.get(&pair) {
            Some((Status::Measured, Some(value))) => Cell::new(text(*value), self.highlights.pair(pair)),
            Some((Status::Hung, _)) => Cell::new("hung", Paint::Error),
            Some((Status::Skipped, _)) => Cell::new("skip", Paint::Faint),
            Some(_) => Cell::new("fail", Paint::Error),
            None => Cell::new("-", Paint::Faint),
        };
        page.table(pair_matrix(self.gpus, |gpu| self.highlights.label(gpu), cell));
    }
}

/// `448 MiB`.
fn size_text(sizes: impl Iterator<Item = Bytes>) -> Option<String> {
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.as_slice() {
        [] => None,
        [size] => Some(size.to_string()),
        [smallest, .., largest] => Some(format!("{smallest} to {largest}")),
    }
}
