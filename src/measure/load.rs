//! Measures several flows at once: rows of copies behind gates that open together. The time while all flows run counts,
//! and the bytes are checked afterwards.
//!
//! Every flow has a stream of its own on the issuing GPU: the source, or the GPU in copies with the host. Every flow
//! into a GPU has an area of its own there. A first row of few copies shows the speed of each flow beside the others.
//! The rows that count then have a number of copies with which all flows last about as long. `window` evaluates the
//! times.

use std::collections::BTreeMap;

use super::bench::Bench;
use super::contents::Check;
use super::figures::{count, no_samples, without_figures};
use super::host_pool::Lent;
use super::statistics::{median, spread_percent};
use super::window::{Engine, Ran, Sample, in_turn, while_all_run};
use super::{LoadTimes, Outcome};
use hardware::{Buffer, ErrorKind, Event, HardwareError, PatternCheck, Stream};
use model::flow::{Endpoint, Flow};
use model::load::{LoadFlow, LoadPattern};
use model::measurement::Verified;
use model::placement::{Engine as Mover, Pair, Path, Side};
use model::units::{Bytes, GbPerSecond, MIB};
use plan::{AREA_STEP, Action, Round, TRIAL_COPIES};

/// Bytes of the copy before a row's first event.
const WARM_BYTES: u64 = MIB;
/// Largest number of copies of one flow in a row. A flow that needs more beside the slowest is not measured to its end.
const MOST_COPIES: u32 = 128;

/// Rows that are tried again with more copies if the slowest flow was alone for most of its time.
const MORE_TRIALS: u32 = 4;

/// The memory that contains the bytes.
#[derive(Clone, Copy)]
enum Place {
    Device(Buffer),
    Host(Lent),
}

/// One flow, with all its resources.
struct Run {
    from: Place,
    to: Place,
    /// The GPU that issues the copies.
    gpu: u32,
    engine: Engine,
    stream: Stream,
    /// True if the GPUs at both ends have kernels, which fill and check.
    kernels: bool,
    /// Seed of the pattern that is copied.
    seed: u64,
    /// Result of checking the poison; none if no check is possible.
    before: Option<PatternCheck>,
    /// Total bytes copied.
    copied: u64,
}

impl Bench<'_> {
    /// Runs a load pattern.
    pub(super) fn load(
        &self,
        round: &Round,
        rows: u32,
        copies: u32,
    ) -> Result<Outcome, HardwareError> {
        let found = self.load_rows(round, rows, copies);
        let back = self.give_back();
        found.and_then(|load| {
            back.map(|()| Outcome::Load {
                load: Box::new(load),
            })
        })
    }

    fn load_rows(&self, round: &Round, rows: u32, copies: u32) -> Result<LoadTimes, HardwareError> {
        let bytes = round.task.setup.bytes.0;
        self.reach_all(&round.flows)?;
        let mut runs = self.runs(&round.flows, bytes)?;
        for run in &mut runs {
            self.prepare_run(run, bytes)?;
        }
        let ran = self.load_row(&mut runs, bytes, &vec![TRIAL_COPIES; round.flows.len()])?;
        let mut each = copies_each(&ran, copies);
        let (mut samples, mut more) = (Vec::new(), MORE_TRIALS);
        while samples.len() < rows.max(1) as usize {
            let ran = self.load_row(&mut runs, bytes, &each)?;
            match while_all_run(&ran) {
                Some(sample) => samples.push(sample),
                None if more > 0 && lengthen(&ran, &mut each) => more -= 1,
                None => {
                    let why =
                        "the flows did not run at the same time: no figure can be made of them";
                    return Err(HardwareError::new(ErrorKind::Hindered, why));
                }
            }
        }
        let checks = runs
            .iter()
            .map(|run| self.run_arrived(run, bytes))
            .collect::<Result<_, _>>()?;
        Ok(LoadTimes {
            samples,
            checks,
            copied: runs.iter().map(|run| run.copied).collect(),
        })
    }

    /// Gives the GPUs of all flows access to each other at the same time. If a GPU can access only some peers, access
    /// that these flows do not need is disabled first, including the reverse direction.
    fn reach_all(&self, flows: &[Flow]) -> Result<(), HardwareError> {
        let pairs: Vec<Pair> = flows.iter().filter_map(|flow| flow.pair()).collect();
        pairs
            .iter()
            .try_for_each(|pair| self.set_path(*pair, Path::Direct))?;
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

    /// Returns the resources of each flow.
    fn runs(&self, flows: &[Flow], bytes: u64) -> Result<Vec<Run>, HardwareError> {
        let odd = || HardwareError::new(ErrorKind::Other, "a load has a flow without a GPU");
        let (mut issued, mut areas) = (BTreeMap::<u32, usize>::new(), BTreeMap::<u32, u64>::new());
        let (mut lent, mut runs): (Vec<Lent>, Vec<Run>) = (Vec::new(), Vec::new());
        for flow in flows {
            let gpu = flow.from.gpu().or(flow.to.gpu()).ok_or_else(odd)?;
            let open_gpu = self.open_gpu(gpu)?;
            let mut place = |end: Endpoint, sends: bool| match end {
                Endpoint::Gpu(index) if sends => Ok(Place::Device(self.open_gpu(index)?.send)),
                Endpoint::Gpu(index) => {
                    let number = areas.entry(index).or_default();
                    let offset = *number * bytes.next_multiple_of(AREA_STEP);
                    *number += 1;
                    self.driver
                        .part(self.open_gpu(index)?.receive, offset, bytes)
                        .map(Place::Device)
                }
                Endpoint::Host { node, memory } => {
                    let on_host =
                        self.lend(open_gpu.device, (memory, node), bytes, sends, &lent)?;
                    lent.push(on_host);
                    Ok(Place::Host(on_host))
                }
            };
            let (from, to) = (place(flow.from, true)?, place(flow.to, false)?);
            let engine = match (from, to) {
                (Place::Host(_), _) => Engine::FromHost,
                (_, Place::Host(_)) => Engine::ToHost,
                _ => Engine::ToPeers,
            };
            let number = issued.entry(gpu).or_default();
            *number += 1;
            let stream = *self
                .streams(open_gpu.device, *number)?
                .last()
                .ok_or_else(odd)?;
            let mut ends = flow.ends().into_iter().filter_map(Endpoint::gpu);
            let kernels = ends.all(|gpu| self.facts().kernels_failure_of(gpu).is_none());
            runs.push(Run {
                from,
                to,
                gpu,
                engine,
                stream,
                kernels,
                seed: 0,
                before: None,
                copied: 0,
            });
        }
        Ok(runs)
    }

    /// Fills the source of the bytes and poisons their destination.
    fn prepare_run(&self, run: &mut Run, bytes: u64) -> Result<(), HardwareError> {
        let kernels = run.kernels;
        let within = Pair {
            source: run.gpu,
            destination: run.gpu,
        };
        let fresh = || {
            self.seeds
                .next(within, Mover::Copy, Side::Source, Path::Direct)
        };
        match run.from {
            Place::Host(from) => {
                run.seed = from.seed.unwrap_or_else(fresh);
                if from.seed.is_none() {
                    self.driver.host_fill(from.buffer, bytes, run.seed)?;
                    self.holds(from.buffer, Some(run.seed));
                }
            }
            Place::Device(from) => {
                let held = self.contents.borrow().get(&run.gpu).copied();
                run.seed = held.unwrap_or_else(fresh);
                if held.is_none() && kernels {
                    self.driver.fill(from, from.bytes, run.seed)?;
                    self.driver.synchronize(Stream::default_of(from.device))?;
                    self.contents.borrow_mut().insert(run.gpu, run.seed);
                }
            }
        }
        match run.to {
            Place::Host(to) => {
                self.holds(to.buffer, None);
                self.driver.host_poison(to.buffer, bytes, run.seed)?;
                let whole = PatternCheck {
                    words: bytes / 8,
                    wrong: 0,
                    poisoned: bytes / 8,
                    first_wrong: None,
                };
                run.before = kernels.then_some(whole);
            }
            Place::Device(to) if kernels => {
                self.driver.poison(to, bytes, run.seed)?;
                // A check that counts nothing would pass everything: it must see the poison first.
                run.before = Some(self.counted_in(to, bytes, run.seed)?);
            }
            Place::Device(_) => {}
        }
        Ok(())
    }

    fn counted_in(
        &self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
    ) -> Result<PatternCheck, HardwareError> {
        self.driver.check(buffer, bytes, seed, seed)?;
        self.driver.checked(buffer, bytes)
    }

    /// Checks the bytes of a flow at their destination; returns none if that is not possible.
    fn run_arrived(&self, run: &Run, bytes: u64) -> Result<Option<Check>, HardwareError> {
        let Some(before) = run.before else {
            return Ok(None);
        };
        if before.poisoned != before.words {
            let (words, seen) = (before.words, before.poisoned);
            let why = format!(
                "the check itself does not work: of {words} words that were poisoned it saw {seen}"
            );
            return Ok(Some(Check::inconclusive(why)));
        }
        let counted = match run.to {
            Place::Device(to) => self.counted_in(to, bytes, run.seed)?,
            Place::Host(to) => self
                .driver
                .host_check(to.buffer, bytes, run.seed, run.seed)?,
        };
        Ok(Some(Check::of(&counted)))
    }

    /// Times one row of each flow, with this many copies of each.
    fn load_row(
        &self,
        runs: &mut [Run],
        bytes: u64,
        copies: &[u32],
    ) -> Result<Vec<Ran>, HardwareError> {
        let marks = self.marks(runs, copies)?;
        let (mut opened, mut tries) = (BTreeMap::<u32, Event>::new(), 0);
        self.gated(|| {
            opened.clear();
            tries += 1;
            for run in runs.iter() {
                let open = match opened.get(&run.gpu) {
                    Some(open) => *open,
                    None => self.close_gate(run.gpu)?,
                };
                opened.insert(run.gpu, open);
                self.driver.wait(run.stream, open)?;
                self.copy_run(run, WARM_BYTES.min(bytes))?;
            }
            // Enqueue in turn, so that no flow is late only because it was enqueued last.
            for copy in 0..=copies.iter().copied().max().unwrap_or(0) {
                for ((run, marks), copies) in runs.iter().zip(&marks).zip(copies) {
                    if copy > 0 && copy <= *copies {
                        self.copy_run(run, bytes)?;
                    }
                    if let Some(mark) = marks.get(copy as usize) {
                        self.driver.record(*mark, run.stream)?;
                    }
                }
            }
            Ok(())
        })?;
        runs.iter()
            .try_for_each(|run| self.driver.synchronize(run.stream))?;
        self.gates_held()?;
        let mut ran = Vec::new();
        for ((run, marks), copies) in runs.iter_mut().zip(&marks).zip(copies) {
            let open = opened
                .get(&run.gpu)
                .copied()
                .ok_or_else(|| HardwareError::new(ErrorKind::Other, "no gate"))?;
            let spans = self.spans(self.opening(open), marks)?;
            // Counters include rows that are void.
            run.copied += tries * (WARM_BYTES.min(bytes) + bytes * u64::from(*copies));
            let begin = spans.first().map_or(0.0, |span| span.start_ns);
            let ends = spans.iter().map(|span| span.end_ns).collect();
            ran.push(Ran {
                gpu: run.gpu,
                engine: run.engine,
                bytes,
                begin,
                ends,
            });
        }
        Ok(ran)
    }

    /// Returns the events of each flow: one before its first copy and one after each.
    fn marks(&self, runs: &[Run], copies: &[u32]) -> Result<Vec<Vec<Event>>, HardwareError> {
        let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
        let marks = |(run, copies): (&Run, &u32)| {
            let (first, count) = (
                taken.get(&run.gpu).copied().unwrap_or(0),
                *copies as usize + 1,
            );
            taken.insert(run.gpu, first + count);
            self.events(run.stream.device, first + count)
                .map(|events| events[first..].to_vec())
        };
        runs.iter().zip(copies).map(marks).collect()
    }

    fn copy_run(&self, run: &Run, bytes: u64) -> Result<(), HardwareError> {
        match (run.from, run.to) {
            (Place::Device(from), Place::Device(to)) => {
                self.driver.copy(run.stream, to, from, bytes)
            }
            (Place::Host(from), Place::Device(to)) => {
                self.driver
                    .copy_to_device(run.stream, to, from.buffer, bytes)
            }
            (Place::Device(from), Place::Host(to)) => {
                self.driver.copy_to_host(run.stream, to.buffer, from, bytes)
            }
            (Place::Host(_), Place::Host(_)) => Err(HardwareError::new(
                ErrorKind::Other,
                "no copy within the host",
            )),
        }
    }
}

/// Returns the copies of each flow: the slowest has this many, and all flows last about as long. Flows that are copied
/// in turn all have the same number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clamped, positive count"
)]
fn copies_each(trial: &[Ran], copies: u32) -> Vec<u32> {
    let mut each: Vec<f64> = trial
        .iter()
        .map(|ran| ran.length() / f64::from(TRIAL_COPIES))
        .collect();
    for flows in in_turn(trial) {
        let longest = flows.iter().map(|flow| each[*flow]).fold(0.0, f64::max);
        flows.into_iter().for_each(|flow| each[flow] = longest);
    }
    let slowest = each.iter().copied().fold(0.0, f64::max);
    let of = |ns: &f64| {
        (f64::from(copies) * slowest / ns.max(1.0))
            .round()
            .clamp(f64::from(copies), f64::from(MOST_COPIES))
    };
    each.iter().map(|ns| of(ns) as u32).collect()
}

/// Gives more copies to flows that ended before others had a second one. Returns true if there are such flows.
fn lengthen(ran: &[Ran], each: &mut [u32]) -> bool {
    let second = ran
        .iter()
        .filter_map(|ran| ran.ends.get(1))
        .copied()
        .fold(0.0, f64::max);
    let early = |ran: &Ran| ran.ends.last().is_some_and(|end| *end < second);
    let mut longer = false;
    for (_, copies) in ran
        .iter()
        .zip(each)
        .filter(|(ran, copies)| early(ran) && **copies < MOST_COPIES)
    {
        *copies = copies.saturating_mul(4).min(MOST_COPIES);
        longer = true;
    }
    longer
}

/// Returns the pattern of a round; none if it is of another kind.
pub(super) fn pattern(round: &Round, outcome: &Outcome) -> Option<LoadPattern> {
    let Action::Load { pattern, .. } = round.task.action else {
        return None;
    };
    let flows = round.flows.iter().copied().map(LoadFlow::of).collect();
    let bytes = round.task.setup.bytes;
    let mut cell = LoadPattern::blank(pattern, round.name.clone(), flows, bytes);
    let load = match outcome {
        Outcome::Load { load } => load,
        outcome => {
            cell.ending = without_figures(outcome);
            return Some(cell);
        }
    };
    let of_flow = |at: usize| {
        load.samples
            .iter()
            .filter_map(|sample| sample.flows_gbps.get(at))
            .copied()
            .collect()
    };
    let rates: Vec<Vec<f64>> = (0..round.flows.len()).map(of_flow).collect();
    if load.samples.is_empty() || rates.iter().any(|rates| rates.len() < load.samples.len()) {
        cell.ending = no_samples();
        return Some(cell);
    }
    let totals: Vec<f64> = load
        .samples
        .iter()
        .map(|sample: &Sample| sample.gbps)
        .collect();
    let medians: Vec<f64> = rates.iter().filter_map(|rates| median(rates)).collect();
    let checks: Vec<Check> = load
        .checks
        .iter()
        .map(|check| check.clone().unwrap_or_else(unchecked))
        .collect();
    let flow = |(at, (flow, rate)): (usize, (&Flow, &f64))| {
        let check = checks.get(at);
        LoadFlow {
            achieved_gbps: Some(GbPerSecond(*rate)),
            verified: check.map(|check| check.verified),
            verification_detail: check.and_then(|check| check.detail.clone()),
            ..LoadFlow::of(*flow)
        }
    };
    let Check { verified, detail } = worst(&round.flows, &checks);
    Some(LoadPattern {
        flows: round
            .flows
            .iter()
            .zip(&medians)
            .enumerate()
            .map(flow)
            .collect(),
        achieved_gbps: median(&totals).map(GbPerSecond),
        fairness: jain(&medians),
        samples: count(&totals),
        spread_percent: spread_percent(&totals),
        verified,
        verification_detail: detail,
        ..cell
    })
}

fn unchecked() -> Check {
    Check::inconclusive("not checked, since the GPU kernels could not be loaded")
}

/// Returns the worst check of all flows: bytes known to be wrong come first.
fn worst(flows: &[Flow], checks: &[Check]) -> Check {
    let of = |(flow, check): (&Flow, &Check)| {
        let detail = check
            .detail
            .as_ref()
            .map(|detail| format!("{} → {}: {detail}", flow.from, flow.to));
        Check {
            verified: check.verified,
            detail,
        }
    };
    let checks: Vec<Check> = flows.iter().zip(checks).map(of).collect();
    let wrong = checks.iter().find(|check| check.verified.is_wrong());
    let unsure = || checks.iter().find(|check| check.verified != Verified::Ok);
    wrong.or_else(unsure).cloned().unwrap_or(Check::OK)
}

/// Returns Jain's index: (sum of x)^2 / (n x sum of x^2). None for one flow.
#[allow(clippy::cast_precision_loss, reason = "few flows")]
fn jain(rates: &[f64]) -> Option<f64> {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let sum: f64 = rates.iter().sum();
    (rates.len() > 1 && squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// Returns the bytes that each flow of a round has copied; none if the round has not ended well.
pub(super) fn copied(round: &Round, outcome: &Outcome) -> Option<Vec<(Flow, Bytes)>> {
    let Outcome::Load { load } = outcome else {
        return None;
    };
    Some(
        round
            .flows
            .iter()
            .copied()
            .zip(load.copied.iter().copied().map(Bytes))
            .collect(),
    )
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
