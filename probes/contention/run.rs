//! Measures what a copy and a kernel of the GPU that issues it cost each other.
//!
//! Both wait behind one gate and start together. Alone, each takes about as long as the other. The one that is timed beside
//! the other has company until its end: the other is twice as long, or longer if it ended first. If the other always ends
//! first, it is waited for.

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::bench::transfer::Transfer;
use crate::contention::Contention as Asked;
use crate::figures::{count, no_samples, without_figures};
use crate::{Outcome, Round};
use hardware::{Buffer, ErrorKind, Event, HardwareError, Stream};
use model::contention::{Contention, KernelNeed};
use model::flow::Endpoint;
use model::placement::{Path, Side};
use model::units::{GbPerSecond, MIB};

/// Largest number of copies in a row.
pub(crate) const MOST_COPIES: u32 = 32;
/// Time that a row of copies takes at least, if it may have as many: some 50 launches of a kernel, nanoseconds.
const ROW_NS: f64 = 1e6;
/// Bytes that a kernel reads in a round, if a buffer has as many: several times what the caches of GPUs hold.
const READ_BYTES: u64 = 512 * MIB;
/// Rounds of a kernel whose time is not known yet, by what it needs.
const FIRST_ROUNDS: [u32; 2] = [1, 1000];
/// The first copy of two GPUs, for which the driver may set up a channel, bytes.
const FIRST_BYTES: u64 = 4096;
/// Times that the length of the company is doubled, if it ended before what is timed.
const DOUBLINGS: u32 = 3;

/// Times of rows of copies and of kernels, nanoseconds, one entry per sample; beside the other there is none if one waits for
/// the other's end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContentionTimes {
    /// Copies in a row.
    pub copies: u32,
    pub copies_alone: Vec<f64>,
    pub copies_beside: Vec<f64>,
    pub kernel_alone: Vec<f64>,
    pub kernel_beside: Vec<f64>,
}

/// The resources of a round.
struct Stage {
    gpu: u32,
    transfer: Transfer,
    copies: Stream,
    kernel: Stream,
    marks: [Event; 4],
    /// The buffer that the kernel reads, if it reads one.
    reads: Option<Buffer>,
}

impl Bench<'_> {
    /// Times copies and kernels of a round.
    pub(crate) fn contention(&self, round: &Round, asked: Asked) -> Result<Outcome, HardwareError> {
        let mut stage = self.stage(round, asked.kernel)?;
        let transfer = stage.transfer;
        // Neither the first copy of two GPUs nor the first launch of a kernel may be behind a gate.
        let first = transfer.bytes.min(FIRST_BYTES);
        self.driver.copy(transfer.engine, stage.copies, transfer.to, transfer.from, first)?;
        self.driver.work(stage.kernel, stage.reads, 1)?;
        [stage.copies, stage.kernel].into_iter().try_for_each(|of| self.driver.synchronize(of))?;

        let [_, [one, _]] = [self.together(&stage, 1, 0)?, self.together(&stage, 1, 0)?];
        let copies = times(1, ROW_NS / one).clamp(1, MOST_COPIES);
        let mut rounds = FIRST_ROUNDS[usize::from(asked.kernel == KernelNeed::Arithmetic)];
        for _ in 0..2 {
            let [_, kernel] = self.together(&stage, 0, rounds)?;
            let wanted = f64::from(rounds) * f64::from(copies) * one / kernel;
            rounds = times(1, wanted);
            if let Some(whole) = stage.reads {
                // Whole rounds of all of it would be longer.
                let bytes = share(whole.bytes, wanted / f64::from(rounds));
                stage.reads = Some(self.driver.part(whole, 0, bytes)?);
            }
        }
        let mut found = ContentionTimes { copies, ..ContentionTimes::default() };
        for _ in 0..asked.samples.max(1) {
            found.copies_alone.push(self.together(&stage, copies, 0)?[0]);
            found.kernel_alone.push(self.together(&stage, 0, rounds)?[1]);
            let timed = |kernel: bool| {
                for longer in (1..=DOUBLINGS).map(|doubling| 1 << doubling) {
                    let number = |is_longer: bool, of: u32| {
                        if is_longer { of.saturating_mul(longer) } else { of }
                    };
                    let spans =
                        self.together(&stage, number(kernel, copies), number(!kernel, rounds))?;
                    let [timed, company] = if kernel { [spans[1], spans[0]] } else { spans };
                    if company >= timed {
                        return Ok(Some(timed));
                    }
                }
                // However long the company was: it is waited for.
                Ok::<_, HardwareError>(None)
            };
            found.copies_beside.extend(timed(false)?);
            found.kernel_beside.extend(timed(true)?);
        }
        Ok(Outcome::Contention { times: Box::new(found) })
    }

    /// Returns the streams, events and memory of a round.
    fn stage(&self, round: &Round, kernel: KernelNeed) -> Result<Stage, HardwareError> {
        let setup = round.task.setup;
        let flow = match round.pairs().next() {
            Some(pair) => {
                self.set_path(pair, Path::Direct)?;
                pair.into()
            }
            None => round.flows.first().copied().ok_or_else(no_flow)?,
        };
        let gpu = issuer(round).ok_or_else(no_flow)?;
        let mut transfer = self.transfer(flow, setup.engine, setup.bytes.0, &[])?;
        transfer.bytes = transfer.bytes.min(transfer.from.bytes).min(transfer.to.bytes);
        self.holds(transfer.to, None);
        let open_gpu = self.open_gpu(gpu)?;
        let device = open_gpu.device;
        // The buffer that the copy leaves alone.
        let is_used = [transfer.from.id, transfer.to.id].contains(&open_gpu.send.id);
        let memory = if is_used { open_gpu.receive } else { open_gpu.send };
        let reads = match kernel {
            KernelNeed::Memory => {
                Some(self.driver.part(memory, 0, memory.bytes.min(READ_BYTES))?)
            }
            KernelNeed::Arithmetic => None,
        };
        let (streams, events) = (self.streams(device, 2)?, self.events(device, 4)?);
        let marks = [events[0], events[1], events[2], events[3]];
        Ok(Stage { gpu, transfer, copies: streams[0], kernel: streams[1], marks, reads })
    }

    /// Starts so many copies and a kernel of so many rounds together, and returns the nanoseconds of each. Those of none
    /// are 0.
    fn together(&self, stage: &Stage, copies: u32, rounds: u32) -> Result<[f64; 2], HardwareError> {
        let driver = self.driver;
        let Stage { transfer, marks, reads, .. } = *stage;
        let parts = [(stage.copies, copies > 0), (stage.kernel, rounds > 0)];
        self.gated(|| {
            let opened = self.close_gate(stage.gpu)?;
            for ((stream, runs), marks) in parts.into_iter().zip(marks.chunks(2)) {
                if !runs {
                    continue;
                }
                driver.wait(stream, opened)?;
                driver.record(marks[0], stream)?;
                if stream == stage.kernel {
                    driver.work(stream, reads, rounds)?;
                } else {
                    let Transfer { engine, to, from, bytes, .. } = transfer;
                    (0..copies).try_for_each(|_| driver.copy(engine, stream, to, from, bytes))?;
                }
                driver.record(marks[1], stream)?;
            }
            Ok(())
        })?;
        [stage.copies, stage.kernel].into_iter().try_for_each(|of| driver.synchronize(of))?;
        self.gates_held()?;
        let mut spans = [0.0; 2];
        for (((_, runs), marks), span) in parts.into_iter().zip(marks.chunks(2)).zip(&mut spans) {
            if runs {
                *span = self.lasted(marks[0], marks[1])?;
            }
        }
        Ok(spans)
    }
}

/// Returns a number times a factor, at least 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before")]
fn times(number: u32, factor: f64) -> u32 {
    (f64::from(number) * factor).ceil().clamp(1.0, f64::from(u32::MAX / 16)) as u32
}

/// Returns a share of these bytes, in units of what a kernel loads at once.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a size far below 2^53"
)]
fn share(bytes: u64, of_it: f64) -> u64 {
    (bytes as f64 * of_it.min(1.0)) as u64 / 16 * 16
}

/// Returns the GPU of the kernel, which issues the copies.
fn issuer(round: &Round) -> Option<u32> {
    match round.pairs().next() {
        Some(pair) if round.task.setup.issuer == Side::Destination => Some(pair.destination),
        Some(pair) => Some(pair.source),
        None => round.flows.iter().flat_map(|flow| flow.ends()).find_map(Endpoint::gpu),
    }
}

fn no_flow() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "a round of copies beside kernels has no flow")
}

/// Returns the cell of a round.
pub(crate) fn cell(round: &Round, kernel: KernelNeed, outcome: &Outcome) -> Option<Contention> {
    let (setup, flow) = (round.task.setup, round.flows.first()?);
    let (source, destination) = (flow.from.gpu(), flow.to.gpu());
    let gpu = issuer(round)?;
    let mut cell = Contention::blank(gpu, source, destination, setup.engine, kernel, setup.bytes);
    let Outcome::Contention { times } = outcome else {
        cell.ending = without_figures(outcome);
        return Some(cell);
    };
    let bytes = setup.bytes.0.saturating_mul(times.copies.into());
    // Stalls of other origin make a sample longer, never shorter.
    let fastest = |ns: &[f64]| ns.iter().copied().reduce(f64::min);
    let gbps = |ns: &[f64]| fastest(ns).map(|ns| GbPerSecond::of(bytes, ns));
    let us = |ns: &[f64]| fastest(ns).map(|ns| ns / 1e3);
    (cell.copy_alone_gbps, cell.copy_beside_gbps) =
        (gbps(&times.copies_alone), gbps(&times.copies_beside));
    (cell.kernel_alone_us, cell.kernel_beside_us) =
        (us(&times.kernel_alone), us(&times.kernel_beside));
    // Without a time beside the other, each waits for the other's end. It is chance which one starts first.
    let keeps = |alone: &[f64], beside: &[f64]| {
        let beside = fastest(beside).filter(|_| 2 * beside.len() >= alone.len());
        Some(100.0 * fastest(alone)? / beside.unwrap_or(f64::INFINITY))
    };
    cell.copy_keeps_percent = keeps(&times.copies_alone, &times.copies_beside);
    cell.kernel_keeps_percent = keeps(&times.kernel_alone, &times.kernel_beside);
    cell.samples = count(&times.copies_alone);
    if cell.copy_keeps_percent.is_none() {
        cell.ending = no_samples();
    }
    Some(cell)
}
