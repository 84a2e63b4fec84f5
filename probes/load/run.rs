//! Measures several flows at once: rows of copies behind gates that open together. The time while all flows run counts,
//! and the bytes are checked afterwards.
//!
//! Every flow has a stream of its own on the issuing GPU: the source, or the GPU in copies with the host. Every flow
//! into a GPU has an area of its own there. A first row of few copies shows the speed of each flow beside the others.
//! The rows that count then have a number of copies with which all flows last about as long. `window` evaluates the
//! times.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::check::Check;
use crate::bench::compared::copies_for;
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::figures::{count, no_samples, without_figures};
use crate::load::plan::{AREA_STEP, TRIAL_COPIES};
use crate::load::window::{Engine, FlowTimes, Sample, in_turn, while_all_run};
use crate::statistics::{median, spread_percent};
use hardware::{ErrorKind, HardwareError, PatternCheck};
use model::flow::{Endpoint, Flow};
use model::load::{LoadFlow, LoadPattern, Pattern};
use model::placement::{Engine as Mover, Pair, Path};
use model::units::{Bytes, GbPerSecond};

/// Figures of several flows that ran at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadTimes {
    /// One sample per row.
    pub samples: Vec<Sample>,
    /// Checks of the bytes of each flow after the last row; none if they cannot be checked.
    pub checks: Vec<Option<Check>>,
    /// Total bytes that each flow has copied.
    pub copied: Vec<u64>,
    /// Bytes of the copies of which each was compared, and their rate, GB/s; none for flows that were not compared so.
    #[serde(default)]
    pub compared: Vec<Option<(u64, f64)>>,
}

/// Largest number of copies of one flow in a row. Behind a shut gate a stream of an H200 takes 510 copies with an event each,
/// then the call waits (docs/dev/facts.md).
const MOST_COPIES: u32 = 256;
/// Copies that the slowest flow needs at least: one that is not counted and a complete one.
const LEAST_COPIES: f64 = 2.0;

/// Rows that are tried again with more copies if the slowest flow was alone for most of its time.
const MORE_TRIALS: u32 = 4;

impl Bench<'_> {
    /// Runs a load pattern.
    pub(crate) fn load(&self, round: &Round, load: super::Load) -> Result<Outcome, HardwareError> {
        let super::Load { rows, copies, compared_ms, .. } = load;
        self.reach_all(&round.flows)?;
        let mut transfers =
            self.load_transfers(round, round.task.setup.engine, super::places(compared_ms))?;
        for transfer in &mut transfers {
            self.prepare(transfer)?;
        }
        let mut copied = vec![0; transfers.len()];
        let samples = self.while_all_run(&mut transfers, rows, copies, &mut copied)?;
        let samples = samples.into_iter().map(|(sample, _)| sample).collect();
        let checks =
            transfers.iter().map(|transfer| self.arrived(transfer)).collect::<Result<_, _>>()?;
        let mut load = Box::new(LoadTimes { samples, checks, copied, compared: Vec::new() });
        if compared_ms > 0 {
            self.compare_every(
                &mut transfers,
                Duration::from_millis(compared_ms.into()),
                &mut load,
            )?;
        }
        Ok(Outcome::Load { load })
    }

    /// Copies all flows for about this time at the rates that they had, and compares every copy.
    fn compare_every(
        &self,
        transfers: &mut [Transfer],
        time: Duration,
        load: &mut LoadTimes,
    ) -> Result<(), HardwareError> {
        let rates = load.samples.last().map_or(&[][..], |sample| &sample.flows_gbps);
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let each_ns: Vec<f64> =
            transfers.iter().zip(rates).map(|(of, gbps)| of.bytes as f64 / gbps).collect();
        copies_for(transfers, time, &each_ns);
        self.compare_all(transfers)?;
        let timed = self.row(transfers, Timing::STEADY)?;
        for (at, (transfer, timed)) in transfers.iter().zip(timed).enumerate() {
            load.copied[at] += timed.copied;
            let bytes = transfer.bytes.saturating_mul(u64::from(transfer.copies));
            let counted = self.compared_check(transfer, bytes)?;
            let gbps = timed.spans.first().map(|span| GbPerSecond::of(bytes, span.length_ns()));
            load.compared.push(counted.and(gbps).map(|gbps| (bytes, gbps.0)));
            if let Some(Some(check)) = load.checks.get_mut(at) {
                let every = transfer.judged(&counted.unwrap_or(PatternCheck::NONE));
                *check = Check::worst([check.clone(), every]);
            }
        }
        Ok(())
    }

    /// Times rows of flows, of which the time while all of them run counts. The slowest flow has at most this many copies
    /// in a row. Returns the rates, and the host's nanoseconds for a copy of each flow. Adds the bytes of each flow.
    pub(crate) fn while_all_run(
        &self,
        transfers: &mut [Transfer],
        rows: u32,
        copies: u32,
        copied: &mut [u64],
    ) -> Result<Vec<(Sample, Vec<f64>)>, HardwareError> {
        for transfer in &mut *transfers {
            transfer.copies = TRIAL_COPIES;
        }
        let (ran, _) = self.load_row(transfers, copied)?;
        let mut each = copies_each(&ran, copies);
        let (mut samples, mut more) = (Vec::new(), MORE_TRIALS);
        while samples.len() < rows.max(1) as usize {
            for (transfer, copies) in transfers.iter_mut().zip(&each) {
                transfer.copies = *copies;
            }
            let (ran, host_ns) = self.load_row(transfers, copied)?;
            match while_all_run(&ran) {
                Some(sample) => samples.push((sample, host_ns)),
                None if more > 0 && lengthen(&ran, &mut each) => more -= 1,
                None => {
                    let why =
                        "the flows did not run at the same time: no figure can be made of them";
                    return Err(HardwareError::new(ErrorKind::Hindered, why));
                }
            }
        }
        Ok(samples)
    }

    /// Gives the GPUs of all flows access to each other at the same time. If a GPU can access only some peers, access
    /// that these flows do not need is disabled first, including the reverse direction.
    pub(crate) fn reach_all(&self, flows: &[Flow]) -> Result<(), HardwareError> {
        let pairs: Vec<Pair> = flows.iter().filter_map(|flow| flow.pair()).collect();
        pairs.iter().try_for_each(|pair| self.set_path(*pair, Path::Direct))?;
        let lacks = || pairs.iter().find(|pair| !self.is_enabled(**pair));
        if lacks().is_some() {
            self.reach_only(&pairs)?;
        }
        match lacks() {
            None => Ok(()),
            Some(pair) => {
                let why = format!(
                    "this system lets a GPU reach only so many others at a time, and {pair} is one more"
                );
                Err(HardwareError::new(ErrorKind::Unsupported, why))
            }
        }
    }

    /// Returns copies of each flow, with a stream and an area of the destination of its own, twice as large if all copies are to
    /// be compared.
    pub(crate) fn load_transfers(
        &self,
        round: &Round,
        mover: Mover,
        places: u64,
    ) -> Result<Vec<Transfer>, HardwareError> {
        let Bytes(bytes) = round.task.setup.bytes;
        let (mut issued, mut areas) = (BTreeMap::<u32, usize>::new(), BTreeMap::<u32, u64>::new());
        let mut transfers: Vec<Transfer> = Vec::new();
        for flow in &round.flows {
            let mut transfer = self.transfer(*flow, mover, bytes, &transfers)?;
            if let Endpoint::Gpu(gpu) = flow.to {
                let number = areas.entry(gpu).or_default();
                let whole = transfer.to;
                let place = |number| {
                    self.driver.part(whole, number * bytes.next_multiple_of(AREA_STEP), bytes)
                };
                transfer.to = place(*number * places)?;
                transfer.spare = (places > 1).then(|| place(*number * places + 1)).transpose()?;
                *number += 1;
            }
            let number = issued.entry(transfer.issuer).or_default();
            transfer.stream = self.streams(transfer.stream.device, *number + 1)?[*number];
            *number += 1;
            transfers.push(transfer);
        }
        Ok(transfers)
    }

    /// Times one row of each flow, and adds the bytes that each has copied. Returns the host's nanoseconds for a copy too.
    pub(crate) fn load_row(
        &self,
        transfers: &[Transfer],
        copied: &mut [u64],
    ) -> Result<(Vec<FlowTimes>, Vec<f64>), HardwareError> {
        let timing = Timing { marked: true, in_turn: true, ..Timing::PLAIN };
        let mut ran = Vec::new();
        let timed = self.row(transfers, timing)?;
        let host_ns = timed.iter().map(|timed| timed.host_ns).collect();
        for ((transfer, timed), copied) in transfers.iter().zip(timed).zip(copied) {
            *copied += timed.copied;
            ran.push(FlowTimes {
                gpu: transfer.issuer,
                engine: match (transfer.from.device(), transfer.to.device()) {
                    _ if transfer.engine == Mover::Kernel => Engine::Multiprocessors,
                    (None, _) => Engine::FromHost,
                    (_, None) => Engine::ToHost,
                    _ => Engine::ToPeers,
                },
                bytes: transfer.bytes,
                begin: timed.spans.first().map_or(0.0, |span| span.start_ns),
                ends: timed.spans.iter().map(|span| span.end_ns).collect(),
            });
        }
        Ok((ran, host_ns))
    }
}

/// Returns the copies of each flow: the slowest has at most this many, and all flows last about as long. Flows that are copied
/// in turn all have the same number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clamped, positive count"
)]
fn copies_each(trial: &[FlowTimes], copies: u32) -> Vec<u32> {
    let mut each: Vec<f64> =
        trial.iter().map(|ran| ran.length() / f64::from(TRIAL_COPIES)).collect();
    for flows in in_turn(trial) {
        let longest = flows.iter().map(|flow| each[*flow]).fold(0.0, f64::max);
        flows.into_iter().for_each(|flow| each[flow] = longest);
    }
    let slowest = each.iter().copied().fold(0.0, f64::max);
    let fastest = each.iter().copied().fold(slowest, f64::min).max(1.0);
    // The fastest ends with the slowest, or the rates of flows that differ 100 times would not be measured.
    let most = (f64::from(MOST_COPIES) * fastest / slowest.max(1.0)).floor().max(LEAST_COPIES);
    let copies = f64::from(copies).min(most);
    let of =
        |ns: &f64| (copies * slowest / ns.max(1.0)).round().clamp(copies, f64::from(MOST_COPIES));
    each.iter().map(|ns| of(ns) as u32).collect()
}

/// Gives more copies to flows that ended before others had a second one. Returns true if there are such flows.
fn lengthen(ran: &[FlowTimes], each: &mut [u32]) -> bool {
    let second = ran.iter().filter_map(|ran| ran.ends.get(1)).copied().fold(0.0, f64::max);
    let early = |ran: &FlowTimes| ran.ends.last().is_some_and(|end| *end < second);
    let mut longer = false;
    for (_, copies) in
        ran.iter().zip(each).filter(|(ran, copies)| early(ran) && **copies < MOST_COPIES)
    {
        *copies = copies.saturating_mul(4).min(MOST_COPIES);
        longer = true;
    }
    longer
}

/// Returns the cell of a round.
pub(crate) fn cell(round: &Round, pattern: Pattern, outcome: &Outcome) -> LoadPattern {
    let flows = round.flows.iter().copied().map(LoadFlow::of).collect();
    let bytes = round.task.setup.bytes;
    let mut cell = LoadPattern::blank(pattern, round.name.clone(), flows, bytes);
    let load = match outcome {
        Outcome::Load { load } => load,
        outcome => {
            cell.ending = without_figures(outcome);
            return cell;
        }
    };
    let of_flow = |at: usize| {
        load.samples.iter().filter_map(|sample| sample.flows_gbps.get(at)).copied().collect()
    };
    let rates: Vec<Vec<f64>> = (0..round.flows.len()).map(of_flow).collect();
    if load.samples.is_empty() || rates.iter().any(|rates| rates.len() < load.samples.len()) {
        cell.ending = no_samples();
        return cell;
    }
    let totals: Vec<f64> = load.samples.iter().map(|sample: &Sample| sample.gbps).collect();
    let medians: Vec<f64> = rates.iter().filter_map(|rates| median(rates)).collect();
    let checks: Vec<Check> = load
        .checks
        .iter()
        .map(|check| check.clone().unwrap_or_else(Check::without_kernels))
        .collect();
    let compared = |at: usize| load.compared.get(at).copied().flatten();
    let flow = |(at, (flow, rate)): (usize, (&Flow, &f64))| {
        let check = checks.get(at);
        LoadFlow {
            achieved_gbps: Some(GbPerSecond(*rate)),
            compared_bytes: compared(at).map(|(bytes, _)| Bytes(bytes)),
            compared_gbps: compared(at).map(|(_, gbps)| GbPerSecond(gbps)),
            verified: check.map(|check| check.verified),
            verification_detail: check.and_then(|check| check.detail.clone()),
            ..LoadFlow::of(*flow)
        }
    };
    let Check { verified, detail } = worst(&round.flows, &checks);
    LoadPattern {
        flows: round.flows.iter().zip(&medians).enumerate().map(flow).collect(),
        achieved_gbps: median(&totals).map(GbPerSecond),
        samples: count(&totals),
        spread_percent: spread_percent(&totals),
        verified,
        verification_detail: detail,
        ..cell
    }
}

/// Returns the worst check of all flows.
fn worst(flows: &[Flow], checks: &[Check]) -> Check {
    let of = |(flow, check): (&Flow, &Check)| {
        let detail =
            check.detail.as_ref().map(|detail| format!("{} → {}: {detail}", flow.from, flow.to));
        Check { verified: check.verified, detail }
    };
    Check::worst(flows.iter().zip(checks).map(of))
}

/// Returns the bytes that each flow of a round has copied; none if the round has not ended well.
pub(crate) fn copied(round: &Round, outcome: &Outcome) -> Option<Vec<(Flow, Bytes)>> {
    let Outcome::Load { load } = outcome else {
        return None;
    };
    Some(round.flows.iter().copied().zip(load.copied.iter().copied().map(Bytes)).collect())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
