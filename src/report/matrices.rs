//! Matrices of measured figures: the reference one, and with `verbose` all others.

use std::collections::{BTreeSet, HashMap};

use super::digest::Digest;
use super::figures::Spread;
use super::highlight::Highlights;
use super::marks::{self, Figure, cells, legend};
use super::matrix::{Cell, pair_matrix};
use super::page::{Page, Paint};
use super::pair_figures::{Figures, wrong_pairs};
use model::flow::Setup;
use model::measurement::{Measurements, PeerBandwidth, Status};
use model::placement::{Pair, Path, Placement, Side};
use model::rounding::{percent, range, rate, short};

pub(super) struct Matrices<'a> {
    digest: &'a Digest<'a>,
    measurements: &'a Measurements,
    gpus: &'a [u32],
    highlights: Highlights,
}

impl<'a> Matrices<'a> {
    pub(super) fn new(
        digest: &'a Digest<'a>,
        measurements: &'a Measurements,
        gpus: &'a [u32],
    ) -> Self {
        Self { digest, measurements, gpus, highlights: Highlights::of(&digest.report.findings) }
    }

    /// Writes the rate of every pair in the reference configuration.
    pub(super) fn reference(&self, page: &mut Page) {
        if self.has_other_setups_only() {
            return self.of_other_setups(page);
        }
        page.heading("Achieved, source (row) → destination (column), GB/s and % of theoretical");
        self.rates(page, Setup::REFERENCE, |pair| self.digest.pairs.get(&pair).copied());
        if let Some(expected) = self.expected() {
            page.note(Paint::Faint, &expected);
        }
    }

    /// Like [`Self::reference`], with only the meaning of its words and marks below it.
    pub(super) fn bare(&self, page: &mut Page) {
        if self.has_other_setups_only() {
            return self.of_other_setups(page);
        }
        page.heading("Achieved, source (row) → destination (column), GB/s and % of theoretical");
        self.matrix(page, |pair| self.digest.pairs.get(&pair).copied(), |_| ());
    }

    /// Returns true if other tools measured pairs, but none in the reference setup.
    fn has_other_setups_only(&self) -> bool {
        self.digest.report.read_from.is_some()
            && self.digest.pairs.is_empty()
            && self.measurements.peer.iter().any(|cell| cell.achieved_gbps.is_some())
    }

    /// Writes the first rate of every pair, whatever its setup.
    fn of_other_setups(&self, page: &mut Page) {
        page.heading("Achieved otherwise than in the reference setup, source (row) → destination (column), GB/s");
        let first = |pair| {
            let mut cells = self.measurements.peer.iter();
            cells.find(|cell| cell.pair == pair && cell.achieved_gbps.is_some())
        };
        self.matrix(page, first, |_| ());
    }

    fn of_setup(&self, setup: Setup) -> impl Iterator<Item = &PeerBandwidth> {
        self.measurements.peer.iter().filter(move |peer| peer.setup.of_any_size() == setup)
    }

    /// Returns the rates of healthy machines on these routes.
    fn expected(&self) -> Option<String> {
        let of =
            |peer: &PeerBandwidth| Some((peer.theoretical_gbps?.0, Figures::of([peer]).expected?));
        let arrived = self.of_setup(Setup::REFERENCE).filter(|peer| !peer.verified.is_wrong());
        // For a route with a degraded link, the expected rate is that of a sound one.
        let mut routes: Vec<(f64, [f64; 2])> =
            arrived.filter_map(of).filter(|(theory, [low, _])| low <= theory).collect();
        routes
            .sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1[1].total_cmp(&one.1[1])));
        let text = |(theory, [low, high]): &(f64, [f64; 2])| {
            format!("{} of {}", range(*low, *high, rate, " to "), rate(*theory))
        };
        let mut texts: Vec<_> = routes.iter().map(text).collect();
        texts.dedup();
        (!texts.is_empty())
            .then(|| format!("healthy machines reach {} GB/s on these routes", texts.join(", ")))
    }

    /// Returns the size of a copy, its fixed cost, and how many pairs were copied at once.
    fn method(&self, setup: Setup) -> Option<String> {
        let arrived = || self.of_setup(setup).filter(|peer| !peer.verified.is_wrong());
        let sizes: BTreeSet<_> = arrived().map(|peer| peer.setup.bytes).collect();
        let size = match (sizes.first(), sizes.last()) {
            (Some(smallest), Some(largest)) if smallest < largest => {
                Some(format!("copies of {smallest} to {largest}"))
            }
            (first, _) => first.map(|size| format!("copies of {size}")),
        };
        let fixed = Spread::of(arrived().filter_map(|peer| peer.fixed_cost_us));
        let without = Spread::of(arrived().filter_map(|peer| Some(peer.asymptotic_gbps?.0)));
        let fixed = fixed.zip(without).map(|(fixed, without)| {
            let (fixed, without) = (rate(fixed.median), rate(without.median));
            format!("a copy costs {fixed} us beside its bytes, without which the rate is {without} GB/s (medians)")
        });
        let parts: Vec<_> = [size, fixed, self.at_once(setup)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns how many pairs were copied at the same time, and how much that changed the rates.
    fn at_once(&self, setup: Setup) -> Option<String> {
        let compared: Vec<_> = self
            .measurements
            .at_once
            .iter()
            .filter(|one| one.setup.of_any_size() == setup)
            .collect();
        let most =
            compared.iter().map(|one| one.difference_percent.abs()).max_by(f64::total_cmp)?;
        let most = short(most);
        if compared.iter().any(|one| one.apart) {
            return Some(format!(
                "pairs that share nothing were copied one at a time, since copied at once they differ by {most}% from one \
                 alone"
            ));
        }
        let pairs = self.of_setup(setup).map(|peer| peer.at_once).max()?;
        Some(format!("up to {pairs} pairs that share nothing at once, within {most}% of one alone"))
    }

    /// Writes every other matrix.
    pub(super) fn all(&self, page: &mut Page) {
        for setup in
            self.measurements.setups().into_iter().filter(|setup| *setup != Setup::REFERENCE)
        {
            page.heading(&format!("Achieved, {}, GB/s and % of theoretical", setup.difference()));
            let found = self.measurements.in_setup(setup);
            self.rates(page, setup, |pair| found.get(&pair).copied());
        }
        for path in [Path::Direct, Path::Staged] {
            let wrong = wrong_pairs(self.measurements, path);
            let found = self.measurements.latency.iter().filter(|latency| latency.path == path);
            let found = found.filter(|latency| !wrong.contains(&latency.pair));
            let values =
                found.map(|latency| (latency.pair, (latency.ending.status, latency.latency_us)));
            self.plain(
                page,
                &format!("Latency {path}, source (row) → destination (column), us"),
                values,
                short,
            );
        }
        let wrong = wrong_pairs(self.measurements, Path::Direct);
        for placement in Placement::all() {
            for side in [Side::Source, Side::Destination] {
                let of_side =
                    self.measurements.overlap.iter().filter(|overlap| overlap.compute_on == side);
                let found = of_side.filter(|overlap| overlap.placement == placement);
                let found = found.filter(|overlap| !wrong.contains(&overlap.pair));
                let values = found.map(|overlap| {
                    (overlap.pair, (overlap.ending.status, overlap.overlap_percent))
                });
                let title = format!("Overlap with a kernel on the {side}, {placement}, %");
                self.plain(page, &title, values, percent);
            }
        }
    }

    fn rates(
        &self,
        page: &mut Page,
        setup: Setup,
        shown: impl Fn(Pair) -> Option<&'a PeerBandwidth>,
    ) {
        self.matrix(page, shown, |page| {
            page.note(Paint::Faint, &setup.to_string());
            if let Some(method) = self.method(setup) {
                page.note(Paint::Faint, &method);
            }
        });
    }

    /// Writes the figures of all pairs, then `below`, then the meaning of the marks.
    fn matrix(
        &self,
        page: &mut Page,
        shown: impl Fn(Pair) -> Option<&'a PeerBandwidth>,
        below: impl FnOnce(&mut Page),
    ) {
        let pairs = Pair::ordered(self.gpus).into_iter();
        let figure = |pair| Figure::of(shown(pair)).marked(self.highlights.is_affected(pair));
        let figures: Vec<_> = pairs.map(|pair| (pair, figure(pair))).collect();
        let cells: HashMap<_, _> = cells(&figures, &self.highlights).into_iter().collect();
        let cell = |pair| cells.get(&pair).cloned().unwrap_or_default();
        page.table(pair_matrix(self.gpus, |gpu| self.highlights.label(gpu), cell));
        below(page);
        for known in legend(figures.iter().map(|(_, figure)| figure)) {
            page.item(2, 8, known.mark, Paint::Strong, &known.in_full());
        }
    }

    /// Writes a matrix of bare numbers, or nothing if there are none.
    fn plain(
        &self,
        page: &mut Page,
        title: &str,
        values: impl Iterator<Item = (Pair, (Status, Option<f64>))>,
        text: fn(f64) -> String,
    ) {
        let values: HashMap<_, _> = values.collect();
        if values.is_empty() {
            return;
        }
        page.heading(title);
        let cell = |pair| match values.get(&pair) {
            Some((Status::Measured, Some(value))) => {
                Cell::new(text(*value), self.highlights.pair(pair))
            }
            other => {
                let word = other.map_or("-", |(status, _)| marks::word(*status));
                Cell::new(word, marks::paint(word))
            }
        };
        page.table(pair_matrix(self.gpus, |gpu| self.highlights.label(gpu), cell));
    }
}
