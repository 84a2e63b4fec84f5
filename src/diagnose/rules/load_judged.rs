//! Shared by the rules on several flows at once: the patterns of a run with what each should reach.

use super::prelude::*;
use crate::expected_load::{self, Alone, Predicted};
use topology::load::Ways;

/// A pattern with its figures, the rates that single flows explain, and the expected rates.
pub(super) struct Judged<'a> {
    pub pattern: &'a LoadPattern,
    /// The prediction of how its flows share the graph.
    pub predicted: Predicted<'a>,
    /// Rates that single flows explain, GB/s, by flow.
    pub explained: Vec<f64>,
    /// Rate of each flow, GB/s.
    pub achieved: Vec<f64>,
    /// How far below its rate any figure may lie because all figures of this machine scatter, per cent.
    pub scatter_percent: f64,
}

/// Cost of a copy beside its bytes, microseconds: on H200 (docs/dev/method.md). It matters if copies are short, for
/// example because the rate of a route was not known.
const COPY_COST_US: f64 = 8.0;

impl Judged<'_> {
    /// Returns the sum over the flows at these indices, GB/s.
    pub(super) fn sum(rates: &[f64], flows: &[usize]) -> f64 {
        flows.iter().filter_map(|flow| rates.get(*flow)).sum()
    }

    /// Returns the part of a predicted rate that must be reached.
    pub(super) fn least(&self) -> f64 {
        1.0 - self.predicted.margin_percent().max(self.scatter_percent) / 100.0
    }

    /// Returns its flows.
    pub(super) fn flows(&self) -> impl Iterator<Item = Flow> + Clone {
        self.pattern.flows.iter().map(LoadFlow::flow)
    }

    /// Returns the flow at this index.
    pub(super) fn flow(&self, at: usize) -> Option<Flow> {
        self.flows().nth(at)
    }

    /// Returns the key of the figure of a flow.
    pub(super) fn key_of(&self, flow: Flow) -> FigureKey {
        self.pattern.key_of(flow)
    }

    /// Returns the indices of all its flows.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.achieved.len()).collect()
    }

    /// Returns the share of a copy's time that its bytes take at this rate.
    pub(super) fn of_bytes(&self, gbps: f64) -> f64 {
        let bytes_us = self.pattern.bytes.0 as f64 / (gbps * 1e3).max(f64::MIN_POSITIVE);
        bytes_us / (bytes_us + COPY_COST_US)
    }

    /// Returns the lowest rate that the flows at these indices must reach together, GB/s.
    pub(super) fn floor(&self, flows: &[usize]) -> f64 {
        let together = Self::sum(&self.explained, flows);
        together * self.least() * self.of_bytes(together / flows.len() as f64)
    }

    /// Returns the fastest of these flows alone, GB/s.
    pub(super) fn best_alone(&self, flows: &[usize]) -> Option<f64> {
        let alone = flows.iter().filter_map(|flow| self.predicted.alone.get(*flow).copied()?);
        alone.reduce(f64::max)
    }

    /// Returns true if these flows together reach less than they must.
    pub(super) fn is_low(&self, flows: &[usize]) -> bool {
        Self::sum(&self.achieved, flows) < self.floor(flows)
    }

    /// Returns true if this flow reaches less than it must, even with what flows beside it have above their shares:
    /// what one of them loses, another may gain.
    pub(super) fn is_low_for(&self, at: usize) -> bool {
        let above = |flow: &usize| (self.achieved[*flow] - self.explained[*flow]).max(0.0);
        let gained: f64 = self.beside(at).iter().map(above).sum();
        self.achieved[at] + gained < self.floor(&[at])
    }

    /// Returns the other flows that pass one of its hops, or have one of its ends.
    fn beside(&self, at: usize) -> Vec<usize> {
        let passed = self.predicted.load.passed();
        let at_hops = passed.values().filter(|flows| flows.contains(&at));
        let mut beside: BTreeSet<usize> = at_hops.flatten().copied().collect();
        let own = self.flow(at);
        let has_end =
            |other: Flow| own.is_some_and(|own| own.from == other.from || own.to == other.to);
        let of_ends = self.flows().enumerate().filter(|(_, flow)| has_end(*flow));
        beside.extend(of_ends.map(|(other, _)| other));
        beside.remove(&at);
        beside.into_iter().collect()
    }

    /// Returns the flows that kernels copied and that are too low by themselves, if there are any: the explanation knows
    /// flows of copy engines only.
    pub(super) fn low_by_kernel(&self) -> Option<Vec<usize>> {
        let by_kernel = self.pattern.pattern.engine() == Engine::Kernel;
        let low: Vec<usize> =
            self.all().into_iter().filter(|flow| by_kernel && self.is_low(&[*flow])).collect();
        (!low.is_empty()).then_some(low)
    }

    /// Returns the rate that these flows together must reach so as not to be slower than one of them alone, GB/s.
    fn least_of_one(&self, flows: &[usize], below_percent: f64) -> Option<f64> {
        let explained = Self::sum(&self.explained, flows);
        let best = self.best_alone(flows).map(|best| best.min(explained))?;
        Some(best * (1.0 - below_percent.max(self.scatter_percent) / 100.0))
    }

    /// Returns true if these flows together reach less than one of them alone.
    pub(super) fn is_collapse(&self, flows: &[usize], below_percent: f64) -> bool {
        let least = self.least_of_one(flows, below_percent);
        let sum = Self::sum(&self.achieved, flows);
        flows.len() > 1 && least.is_some_and(|least| sum < least)
    }

    /// Returns the rate at which a hop that these flows share has shown to be sound, GB/s.
    pub(super) fn sound(&self, flows: &[usize], below_percent: f64) -> f64 {
        let least = self.least_of_one(flows, below_percent);
        least.unwrap_or(0.0).max(self.floor(flows))
    }

    /// Returns the pairs of GPUs among its flows.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        self.pairs_of(&self.all())
    }

    /// Returns the pairs of GPUs among the flows at these indices.
    pub(super) fn pairs_of(&self, flows: &[usize]) -> Vec<Pair> {
        let flows = flows.iter().filter_map(|flow| self.flow(*flow));
        words::unique(flows.filter_map(|flow| flow.pair()))
    }

    /// Returns the GPUs of its flows.
    pub(super) fn gpus(&self) -> Vec<u32> {
        self.gpus_of(&self.all())
    }

    /// Returns the GPUs of the flows at these indices.
    pub(super) fn gpus_of(&self, flows: &[usize]) -> Vec<u32> {
        let flows = flows.iter().filter_map(|flow| self.flow(*flow));
        words::unique(flows.flat_map(|flow| flow.gpus()))
    }
}

/// Returns the patterns with sound figures and a prediction.
pub(super) fn judged<'a>(evidence: &Evidence<'a>) -> Vec<Judged<'a>> {
    judged_of(evidence, &evidence.measured().load)
}

/// Returns these patterns, if their figures are sound, with a prediction from the measurements of single flows.
pub(super) fn judged_of<'a>(
    evidence: &Evidence<'a>,
    patterns: &'a [LoadPattern],
) -> Vec<Judged<'a>> {
    let measurements = evidence.measured();
    if patterns.is_empty() {
        return Vec::new();
    }
    let set = &evidence.settings.shares;
    let ways = Ways::of(evidence.snapshot, evidence.topology);
    let alone = Alone::of(measurements);
    let one = |pattern: &'a LoadPattern| {
        pattern.rate()?;
        let machine = (&ways, evidence.topology, evidence.snapshot);
        let predicted = Predicted::of(pattern, machine, &alone, set);
        // A flow with an unknown route may pass any hop, and takes a share of it.
        if predicted.load.ways.iter().any(Vec::is_empty) {
            return None;
        }
        let explained = predicted
            .explained(expected_load::near(set))
            .into_iter()
            .map(|share| Some(share?.gbps));
        let achieved = pattern.flows.iter().map(|flow| Some(flow.achieved_gbps?.0));
        Some(Judged {
            pattern,
            explained: explained.collect::<Option<_>>()?,
            achieved: achieved.collect::<Option<_>>()?,
            predicted,
            scatter_percent: evidence.scatter_percent(),
        })
    };
    patterns.iter().filter_map(one).collect()
}
