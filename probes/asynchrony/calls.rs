//! Measures how long calls block the host: launches, waits, and copies of every direction and kind of memory.
//!
//! No gate is used: a call that waits for its work must find it running. Unfinished work of a call is waited for before
//! the next one. A blocking copy is a copy followed by the wait for its end, as frameworks do it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::gpu_buffers::{GpuBuffers, Work, ends};
use crate::bench::timeline::Ran;
use crate::figures::{count, no_samples, without_figures};
use crate::statistics::{median, spread_percent};
use hardware::{Event, HardwareError, Stream};
use model::asynchrony::{Call, HostCall};
use model::flow::HostMemory;
use model::host::HostDirection;
use model::placement::HostMode;

/// Length of the kernel that is launched or waited for: longer than any call takes by itself.
const KERNEL: Duration = Duration::from_micros(200);

/// A timed call: everything but the GPU and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub call: Call,
    /// Direction of a copy between host and GPU.
    pub direction: Option<HostDirection>,
    /// Blocking or not.
    pub host: HostMode,
    /// True if the GPU has work during the call.
    pub busy: bool,
}

/// Times of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallTimes {
    pub asked: Asked,
    /// Time of the host in the call, nanoseconds, one per sample.
    pub host_ns: Vec<f64>,
    /// Time of the work on the GPU, nanoseconds, one per sample.
    pub work_ns: Vec<f64>,
}

/// Times of a single copy, nanoseconds: the host in the call, the host in the call and the wait, and the copy on the
/// GPU.
pub(crate) struct CalledOnce {
    pub(crate) host_ns: f64,
    pub(crate) blocking_ns: f64,
    pub(crate) whole_ns: f64,
}

impl Bench<'_> {
    /// Times the calls of a round: copies from and to host memory if the round has some, else all others.
    pub(crate) fn calls(&self, round: &Round, samples: u32) -> Result<Outcome, HardwareError> {
        let buffers = self.gpu_buffers(round)?;
        let mut calls = Vec::new();
        for (direction, work) in copies(buffers.host.is_some()) {
            let [free, held] =
                [HostMode::NonBlocking, HostMode::Blocking].map(|host| copy(direction, host));
            let (mut free, mut held) = (CallTimes::of(free), CallTimes::of(held));
            // The first sample warms up and is not counted.
            for sample in 0..=samples {
                let once = self.called(&buffers, work)?;
                if sample > 0 {
                    free.push(once.host_ns, once.whole_ns);
                    held.push(once.blocking_ns, once.whole_ns);
                }
            }
            let memory = buffers.host.and_then(|[buffer, _]| buffer.host_memory());
            let name = || match memory {
                Some(memory) => format!("{}, {memory}", work.name(buffers.gpu)),
                None => work.name(buffers.gpu),
            };
            self.show("calls", name, || self.called(&buffers, work).map(drop))?;
            calls.extend([free, held]);
        }
        if buffers.host.is_none() {
            for asked in waits() {
                let mut times = CallTimes::of(asked);
                for sample in 0..=samples {
                    let (host_ns, work_ns) = self.waited(&buffers, asked)?;
                    if sample > 0 {
                        times.push(host_ns, work_ns);
                    }
                }
                let name = || {
                    format!(
                        "{}, {}",
                        asked.call,
                        if asked.busy { "with work" } else { "nothing to wait for" }
                    )
                };
                self.show("calls", name, || self.waited(&buffers, asked).map(drop))?;
                calls.push(times);
            }
        }
        Ok(Outcome::Calls { calls })
    }

    /// Makes one copy, and waits for its end.
    pub(crate) fn called(
        &self,
        buffers: &GpuBuffers,
        work: Work,
    ) -> Result<CalledOnce, HardwareError> {
        let (stream, [start, end]) = self.stream_and_events(buffers)?;
        self.driver.record(start, stream)?;
        let host_ns = self.timed(|| self.enqueue_work(buffers, stream, work))?;
        self.driver.record(end, stream)?;
        let launched = self.last_call();
        let wait =
            || self.call(|| "wait for its end".into(), || self.driver.synchronize_event(end));
        let blocking_ns = host_ns + self.timed(wait)?;
        self.note_between(buffers, work, [start, end], launched)?;
        Ok(CalledOnce { host_ns, blocking_ns, whole_ns: self.lasted(start, end)? })
    }

    /// Makes one launch or wait. Returns the nanoseconds of the host in the call, and of the work.
    fn waited(&self, buffers: &GpuBuffers, asked: Asked) -> Result<(f64, f64), HardwareError> {
        let (stream, [start, end]) = self.stream_and_events(buffers)?;
        let driver = self.driver;
        if asked.busy {
            driver.record(start, stream)?;
        }
        let mut host_ns = 0.0;
        if asked.busy {
            host_ns = self.timed(|| self.enqueue_work(buffers, stream, Work::Kernel(KERNEL)))?;
            driver.record(end, stream)?;
        }
        let launched = self.last_call();
        let wait = || match asked.call {
            Call::Launch | Call::Copy => Ok(()),
            Call::SynchronizeStream => driver.synchronize(stream),
            Call::SynchronizeEvent => driver.synchronize_event(end),
            Call::SynchronizeDevice => driver.drain(buffers.device),
        };
        if !matches!(asked.call, Call::Launch | Call::Copy) {
            host_ns = self.timed(|| self.call(|| asked.call.to_string(), wait))?;
        }
        driver.synchronize(stream)?;
        if asked.busy {
            self.note_between(buffers, Work::Kernel(KERNEL), [start, end], launched)?;
        }
        Ok((host_ns, if asked.busy { self.lasted(start, end)? } else { 0.0 }))
    }

    /// Records work between two events for a timeline.
    fn note_between(
        &self,
        buffers: &GpuBuffers,
        work: Work,
        [start, end]: [Event; 2],
        call: Option<usize>,
    ) -> Result<(), HardwareError> {
        if !self.is_shown() {
            return Ok(());
        }
        let (stream, _) = self.stream_and_events(buffers)?;
        let (gpu, stream) = (buffers.gpu, stream.id);
        self.worked(Ran { name: work.name(gpu), kind: work.kind(), gpu, stream, start, end, call })
    }

    fn stream_and_events(
        &self,
        buffers: &GpuBuffers,
    ) -> Result<(Stream, [Event; 2]), HardwareError> {
        let (streams, events) = (self.streams(buffers.device, 1)?, self.events(buffers.device, 2)?);
        Ok((streams[0], [events[0], events[1]]))
    }
}

impl CallTimes {
    const fn of(asked: Asked) -> Self {
        Self { asked, host_ns: Vec::new(), work_ns: Vec::new() }
    }

    fn push(&mut self, host_ns: f64, work_ns: f64) {
        self.host_ns.push(host_ns);
        self.work_ns.push(work_ns);
    }
}

/// Returns the copies of a round.
fn copies(with_host: bool) -> Vec<(Option<HostDirection>, Work)> {
    match with_host {
        true => vec![
            (Some(HostDirection::ToDevice), Work::In),
            (Some(HostDirection::ToHost), Work::Out),
        ],
        false => vec![(None, Work::Within)],
    }
}

const fn copy(direction: Option<HostDirection>, host: HostMode) -> Asked {
    Asked { call: Call::Copy, direction, host, busy: true }
}

/// Returns launches, and waits with and without work to wait for.
fn waits() -> Vec<Asked> {
    let asked = |call, host, busy| Asked { call, direction: None, host, busy };
    let waits = [Call::SynchronizeStream, Call::SynchronizeEvent, Call::SynchronizeDevice];
    let both = waits
        .into_iter()
        .flat_map(|call| [true, false].map(|busy| asked(call, HostMode::Blocking, busy)));
    std::iter::once(asked(Call::Launch, HostMode::NonBlocking, true)).chain(both).collect()
}

/// Returns the cells of a round.
pub(crate) fn cells(round: &Round, outcome: &Outcome) -> Vec<HostCall> {
    let Some(ends) = ends(round) else {
        return Vec::new();
    };
    if let Outcome::Calls { calls } = outcome {
        return calls.iter().map(|times| measured(round, ends, times)).collect();
    }
    let with_host = ends.2.is_some();
    let hosts = [HostMode::NonBlocking, HostMode::Blocking];
    let asked = copies(with_host)
        .into_iter()
        .flat_map(|(direction, _)| hosts.map(|host| copy(direction, host)));
    let waits = if with_host { Vec::new() } else { waits() };
    let ending = without_figures(outcome);
    asked
        .chain(waits)
        .map(|asked| HostCall { ending: ending.clone(), ..empty(round, ends, asked) })
        .collect()
}

fn measured(round: &Round, ends: Ends, times: &CallTimes) -> HostCall {
    let mut cell = empty(round, ends, times.asked);
    cell.host_blocked_us = median(&times.host_ns).map(|ns| ns / 1e3);
    cell.work_us = median(&times.work_ns).map(|ns| ns / 1e3);
    cell.samples = count(&times.host_ns);
    cell.spread_percent = spread_percent(&times.host_ns);
    if cell.host_blocked_us.is_none() {
        cell.ending = no_samples();
    }
    cell
}

/// A GPU, the node of its host memory, and the memory's kind of allocation.
type Ends = (u32, Option<u32>, Option<HostMemory>);

fn empty(round: &Round, (gpu, numa_node, memory): Ends, asked: Asked) -> HostCall {
    let Asked { call, direction, host, busy } = asked;
    let bytes = (call == Call::Copy).then_some(round.task.setup.bytes);
    HostCall::blank(gpu, call, memory, numa_node, direction, bytes, host, busy)
}
