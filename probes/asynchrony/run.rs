//! Measures loops of launches with a wait in each turn. Also measures the share of a copy's data that is still old
//! before the copy has ended.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::gpu_buffers::{Work, ends};
use crate::figures::{count, no_samples, without_figures};
use crate::statistics::{median, spread_percent};
use hardware::{ErrorKind, HardwareError, Stream};
use model::asynchrony::{Hazard, LaunchLoop};

/// Length of the kernels of a loop: about the time of a small matrix product.
const LOOP_KERNEL: Duration = Duration::from_micros(10);

/// Number of turns of a loop in a timeline: all turns are alike.
const TURNS_SHOWN: u32 = 20;

/// Times of one loop of launches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoopTimes {
    /// Host time of the loop, nanoseconds.
    pub host_ns: f64,
    /// Time until the GPU had done all work, nanoseconds.
    pub whole_ns: f64,
}

/// The figures of one copy that was read early.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HazardSample {
    /// Share of the inspected data that was old directly after the call, per cent.
    pub stale_percent: f64,
    /// Share of the inspected data that was old after the wait, per cent.
    pub after_wait_percent: f64,
    /// Time from the call until the wait ended, nanoseconds.
    pub copy_ns: f64,
}

impl Bench<'_> {
    /// Runs a loop of launches on one GPU, with a wait for the same GPU or another one in each turn.
    pub(crate) fn launch_loop(
        &self,
        round: &Round,
        samples: u32,
        turns: u32,
    ) -> Result<Outcome, HardwareError> {
        let (gpu, waited_for) = of_loop(round).ok_or_else(not_asked)?;
        let (device, other) = (self.open_gpu(gpu)?.device, self.open_gpu(waited_for)?.device);
        let stream = *self.streams(device, 1)?.first().ok_or_else(not_asked)?;
        let turn = || -> Result<(), HardwareError> {
            self.driver.spin(stream, LOOP_KERNEL)?;
            self.driver.drain(other)
        };
        let mut loops = Vec::new();
        // The first loop warms up and is not counted.
        for _ in 0..=samples {
            let host_ns = self.timed(|| (0..turns).try_for_each(|_| turn()))?;
            let whole_ns = host_ns + self.timed(|| self.driver.drain(device))?;
            loops.push(LoopTimes { host_ns, whole_ns });
        }
        loops.remove(0);
        let name = || format!("GPU {gpu} works, wait for GPU {waited_for} in each turn");
        self.show("loop", name, || {
            for _ in 0..turns.min(TURNS_SHOWN) {
                self.call(
                    || format!("launch the kernel on GPU {gpu}"),
                    || self.driver.spin(stream, LOOP_KERNEL),
                )?;
                self.call(|| format!("wait for GPU {waited_for}"), || self.driver.drain(other))?;
            }
            self.call(|| format!("wait for GPU {gpu}"), || self.driver.drain(device))
        })?;
        Ok(Outcome::LaunchLoop { loops })
    }

    /// Reads the data of a copy to the host, directly after its call and again after its end.
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn hazard(&self, round: &Round, samples: u32) -> Result<Outcome, HardwareError> {
        let buffers = self.gpu_buffers(round)?;
        let host = buffers.host.ok_or_else(not_asked)?[1];
        let stream = *self.streams(buffers.device, 1)?.first().ok_or_else(not_asked)?;
        let mut all = Vec::new();
        for _ in 0..samples {
            let seed = self.seeds.next();
            // The fill overwrites the known contents.
            self.holds(buffers.send, None);
            self.driver.fill(buffers.send, buffers.bytes, seed)?;
            self.driver.synchronize(Stream::default_of(buffers.device))?;
            self.driver.poison(host, buffers.bytes, seed)?;
            let old_share = || {
                let seen = self.driver.host_look(host, buffers.bytes, seed)?;
                Ok::<_, HardwareError>(100.0 * seen.wrong as f64 / seen.words.max(1) as f64)
            };
            let mut stale_percent = 0.0;
            let copy_ns = self.timed(|| {
                self.enqueue_work(&buffers, stream, Work::Out)?;
                stale_percent = old_share()?;
                self.driver.synchronize(stream)
            })?;
            all.push(HazardSample { stale_percent, after_wait_percent: old_share()?, copy_ns });
        }
        Ok(Outcome::Hazard { samples: all })
    }
}

/// Returns the GPU that works, and the one that is waited for.
fn of_loop(round: &Round) -> Option<(u32, u32)> {
    let mut gpus = round.flows.iter().filter_map(|flow| flow.within());
    Some((gpus.next()?, gpus.next()?))
}

/// Returns the cell of a loop of so many turns.
pub(crate) fn loop_cell(round: &Round, turns: u32, outcome: &Outcome) -> Option<LaunchLoop> {
    let (gpu, synchronized) = of_loop(round)?;
    let kernel_us = LOOP_KERNEL.as_secs_f64() * 1e6;
    let mut cell = LaunchLoop::blank(gpu, synchronized, turns, kernel_us);
    let Outcome::LaunchLoop { loops } = outcome else {
        cell.ending = without_figures(outcome);
        return Some(cell);
    };
    let us = |ns: &dyn Fn(&LoopTimes) -> f64| -> Vec<f64> {
        loops.iter().map(|times| ns(times) / 1e3 / f64::from(turns.max(1))).collect()
    };
    let whole = us(&|times| times.whole_ns);
    (cell.turn_us, cell.host_us) = (median(&whole), median(&us(&|times| times.host_ns)));
    (cell.samples, cell.spread_percent) = (count(&whole), spread_percent(&whole));
    if cell.turn_us.is_none() {
        cell.ending = no_samples();
    }
    Some(cell)
}

/// Returns the cell of data that is read too early.
pub(crate) fn hazard_cell(round: &Round, outcome: &Outcome) -> Option<Hazard> {
    let (gpu, numa_node, memory) = ends(round)?;
    let mut cell = Hazard::blank(gpu, memory?, numa_node, round.task.setup.bytes);
    let Outcome::Hazard { samples } = outcome else {
        cell.ending = without_figures(outcome);
        return Some(cell);
    };
    let over =
        |figure: &dyn Fn(&HazardSample) -> f64| samples.iter().map(figure).collect::<Vec<_>>();
    let stale = over(&|sample| sample.stale_percent);
    cell.stale_percent = median(&stale);
    cell.stale_after_wait_percent =
        over(&|sample| sample.after_wait_percent).into_iter().reduce(f64::max);
    cell.copy_us = median(&over(&|sample| sample.copy_ns / 1e3));
    cell.samples = count(&stale);
    if cell.stale_percent.is_none() {
        cell.ending = no_samples();
    }
    Some(cell)
}

fn not_asked() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "the round is of another kind")
}
