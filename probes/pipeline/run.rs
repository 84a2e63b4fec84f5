//! Measures batches that are copied in, processed by a kernel and copied out: in one stream, and in several that take
//! the batches in turn.
//!
//! All work is enqueued behind a gate, so that the GPU is timed and not the host's launches. The time of the launches
//! is reported beside it. Calls on pageable memory wait for their bytes and would never return behind a shut gate:
//! there the host's time is included.
//!
//! The kernel reads and writes nothing and lasts a chosen part of a copy's time. So the copies bound the pipeline and
//! memory plays no part. One run of each kind has an event between any two stages; it warms up, and gives the times of
//! single stages and the picture. The timed runs have no such events.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Round;
use crate::bench::gpu_buffers::{GpuBuffers, Work, ends};
use crate::bench::timeline::Ran;
use crate::bench::{Bench, Origin};
use crate::figures::{count, no_samples, without_figures};
use crate::pipeline::Pipeline as Asked;
use crate::statistics::{median, spread_percent};
use crate::{Outcome, Span};
use hardware::{ErrorKind, Event, HardwareError, Stream};
use model::pipeline::{Bound, Pipeline};
use model::units::Bytes;

/// Length of a batch's kernel, as a share of the longer copy's time.
const KERNEL_SHARE: f64 = 0.8;
/// The shortest kernel, nanoseconds: clocks of some GPUs tick in steps of 1 us.
const SHORTEST_KERNEL_NS: f64 = 2e4;

/// A stage of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Copy from the host.
    CopyIn,
    Kernel,
    /// Copy to the host.
    CopyOut,
}

/// The time of a batch's stage, in a run with events between the stages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// Number of streams in that run.
    pub streams: u32,
    /// The stream, from 0.
    pub stream: u32,
    /// The batch, from 0.
    pub batch: u32,
    pub stage: Stage,
    /// Time of the stage. In several streams it begins when the stage before it in its stream ends, so it includes the
    /// wait for the engine.
    pub span: Span,
}

/// The times of a pipeline's runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PipelineTimes {
    /// All batches in one stream, nanoseconds, one per sample.
    pub one_stream_ns: Vec<f64>,
    /// All batches in several streams, nanoseconds, one per sample.
    pub several_streams_ns: Vec<f64>,
    /// Host time of the calls that enqueued a run in several streams, nanoseconds, one per sample.
    pub enqueue_ns: Vec<f64>,
    /// Bytes of the GPU that the batches in flight take in one stream and in several: each stream has its own.
    pub taken: [u64; 2],
    /// The stages of one run of each kind.
    pub steps: Vec<StageTime>,
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Shape {
    batches: u32,
    streams: u32,
    kernel: Duration,
    gated: bool,
    /// True if there are events between the stages.
    marked: bool,
}

/// The times of a run.
struct RunTimes {
    whole_ns: f64,
    enqueue_ns: f64,
    steps: Vec<StageTime>,
}

impl Bench<'_> {
    /// Runs a pipeline in one stream and in several.
    pub(crate) fn pipeline(
        &self,
        round: &Round,
        Asked { samples, batches, streams }: Asked,
    ) -> Result<Outcome, HardwareError> {
        let buffers = self.gpu_buffers(round)?;
        let gated = buffers.host.is_some_and(|[buffer, _]| !buffer.is_pageable())
            && self.can_hold(&buffers)?;
        let kernel = self.kernel_beside_copies(&buffers, gated)?;
        let one = Shape { batches, streams: 1, kernel, gated, marked: true };
        let several = Shape { streams, ..one };
        let taken = [one, several].map(|shape| 2 * buffers.bytes * slots(&buffers, shape));
        let mut times = PipelineTimes { taken, ..PipelineTimes::default() };
        for shape in [one, several] {
            times.steps.extend(self.flow_once(&buffers, shape)?.steps);
            self.show(
                "pipeline",
                || name_of(&buffers, shape),
                || self.flow_once(&buffers, shape).map(drop),
            )?;
        }
        for _ in 0..samples {
            times
                .one_stream_ns
                .push(self.flow_once(&buffers, Shape { marked: false, ..one })?.whole_ns);
            let run = self.flow_once(&buffers, Shape { marked: false, ..several })?;
            times.several_streams_ns.push(run.whole_ns);
            times.enqueue_ns.push(run.enqueue_ns);
        }
        Ok(Outcome::Pipeline { times: Box::new(times) })
    }

    /// Returns true if streams of this device can be held.
    fn can_hold(&self, buffers: &GpuBuffers) -> Result<bool, HardwareError> {
        match self.gated(|| self.close_gate(buffers.gpu)) {
            Err(error) if error.kind.is_lack() => Ok(false),
            opened => opened.map(|_| true),
        }
    }

    /// Returns the length of a batch's kernel, from the time of its copies.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive"
    )]
    fn kernel_beside_copies(
        &self,
        buffers: &GpuBuffers,
        gated: bool,
    ) -> Result<Duration, HardwareError> {
        let mut longest = 0.0_f64;
        for work in [Work::In, Work::Out] {
            // The first copy warms up.
            for _ in 0..2 {
                longest = match gated {
                    true => self.set_off(buffers, &[work])?.into_iter().fold(longest, f64::max),
                    false => longest.max(self.called(buffers, work)?.whole_ns),
                };
            }
        }
        Ok(Duration::from_nanos((KERNEL_SHARE * longest).max(SHORTEST_KERNEL_NS) as u64))
    }

    fn flow_once(&self, buffers: &GpuBuffers, shape: Shape) -> Result<RunTimes, HardwareError> {
        let streams = self.streams(buffers.device, shape.streams as usize)?;
        // These are the beginning, the end of each stream, and four for each batch.
        let events = self.events(buffers.device, 1 + streams.len() + 4 * shape.batches as usize)?;
        let (begin, rest) = events.split_first().ok_or_else(not_asked)?;
        let (ends, marks) = rest.split_at(streams.len());
        let slot = |at: u64| {
            let part = |buffer| self.driver.part(buffer, at * buffers.bytes, buffers.bytes);
            let (send, receive) = (part(buffers.send)?, part(buffers.receive)?);
            Ok(GpuBuffers { send, receive, ..*buffers })
        };
        let slots: Vec<GpuBuffers> =
            (0..slots(buffers, shape)).map(slot).collect::<Result<_, HardwareError>>()?;
        let began = self.driver.now();
        let mut enqueue_ns = 0.0;
        let mut launched = Vec::new();
        let start = self.gated(|| {
            launched.clear();
            let start = if shape.gated { self.close_gate(buffers.gpu)? } else { *begin };
            if !shape.gated {
                self.driver.record(start, streams[0])?;
            }
            streams.iter().try_for_each(|stream| self.driver.wait(*stream, start))?;
            enqueue_ns =
                self.timed(|| self.enqueue_batches(&slots, shape, &streams, marks, &mut launched))?;
            // Make the first stream end after all others.
            for (&stream, &end) in streams.iter().zip(ends).skip(1) {
                self.driver.record(end, stream)?;
                self.driver.wait(streams[0], end)?;
            }
            self.driver.record(ends[0], streams[0])?;
            Ok(start)
        })?;
        self.call(|| "wait for the last stream".into(), || self.driver.synchronize(streams[0]))?;
        self.gates_held()?;
        if shape.marked && self.is_shown() {
            self.note_batches(buffers, &streams, marks, &launched)?;
            if shape.gated {
                self.opened(buffers.gpu, start, &ends[..1], self.last_call())?;
            }
        }
        let origin =
            if shape.gated { self.opening(start) } else { Origin { event: start, at: began } };
        let steps = if shape.marked { self.steps(origin, shape, marks)? } else { Vec::new() };
        Ok(RunTimes { whole_ns: self.lasted(start, ends[0])?, enqueue_ns, steps })
    }

    /// Enqueues the batches, each in the next stream.
    fn enqueue_batches(
        &self,
        slots: &[GpuBuffers],
        shape: Shape,
        streams: &[Stream],
        marks: &[Event],
        launched: &mut Vec<(Work, Option<usize>)>,
    ) -> Result<(), HardwareError> {
        let places = streams.iter().zip(slots.iter().cycle()).cycle();
        for (marks, (&stream, buffers)) in marks.chunks(4).zip(places) {
            let mark = |at: usize| {
                if shape.marked { self.driver.record(marks[at], stream) } else { Ok(()) }
            };
            mark(0)?;
            for (at, work) in (1..).zip([Work::In, Work::Kernel(shape.kernel), Work::Out]) {
                self.enqueue_work(buffers, stream, work)?;
                launched.push((work, self.last_call()));
                mark(at)?;
            }
        }
        Ok(())
    }

    /// Records the stages of all batches for a timeline, each with the call that launched it.
    fn note_batches(
        &self,
        buffers: &GpuBuffers,
        streams: &[Stream],
        marks: &[Event],
        launched: &[(Work, Option<usize>)],
    ) -> Result<(), HardwareError> {
        for (batch, ((marks, launched), stream)) in
            (1..).zip(marks.chunks(4).zip(launched.chunks(3)).zip(streams.iter().cycle()))
        {
            for (ends, &(work, call)) in marks.windows(2).zip(launched) {
                self.worked(Ran {
                    name: format!("{}, batch {batch}", work.name(buffers.gpu)),
                    kind: work.kind(),
                    gpu: buffers.gpu,
                    stream: stream.id,
                    start: ends[0],
                    end: ends[1],
                    call,
                })?;
            }
        }
        Ok(())
    }

    fn steps(
        &self,
        origin: Origin,
        shape: Shape,
        marks: &[Event],
    ) -> Result<Vec<StageTime>, HardwareError> {
        let mut steps = Vec::new();
        for (batch, marks) in (0..).zip(marks.chunks(4)) {
            let stages = [Stage::CopyIn, Stage::Kernel, Stage::CopyOut];
            for (stage, span) in stages.into_iter().zip(self.spans(origin, marks)?) {
                steps.push(StageTime {
                    streams: shape.streams,
                    stream: batch % shape.streams,
                    batch,
                    stage,
                    span,
                });
            }
        }
        Ok(steps)
    }
}

/// Returns the number of batches in flight that have memory of their own: one for each stream, if the buffers hold as many.
fn slots(buffers: &GpuBuffers, shape: Shape) -> u64 {
    let held = buffers.send.bytes.min(buffers.receive.bytes) / buffers.bytes.max(1);
    u64::from(shape.streams).min(held).max(1)
}

/// Returns the name of a pipeline in a timeline: `pinned, 8 x 8 MiB, streams: 3`.
fn name_of(buffers: &GpuBuffers, shape: Shape) -> String {
    let memory = buffers
        .host
        .and_then(|[buffer, _]| Some(format!("{}, ", buffer.host_memory()?)))
        .unwrap_or_default();
    format!("{memory}{} x {}, streams: {}", shape.batches, Bytes(buffers.bytes), shape.streams)
}

/// Returns the cell of a round.
pub(crate) fn cell(
    round: &Round,
    Asked { batches, streams, .. }: Asked,
    outcome: &Outcome,
) -> Option<Pipeline> {
    let (gpu, numa_node, memory) = ends(round)?;
    let bytes = round.task.setup.bytes;
    let mut cell = Pipeline::blank(gpu, numa_node, memory?, batches, bytes, streams);
    match outcome {
        Outcome::Pipeline { times } => fill(&mut cell, times),
        outcome => cell.ending = without_figures(outcome),
    }
    Some(cell)
}

fn fill(cell: &mut Pipeline, times: &PipelineTimes) {
    let us = |samples: &[f64]| median(samples).map(|ns| ns / 1e3);
    let stage = |wanted: Stage| {
        let alone = times.steps.iter().filter(|step| step.streams == 1 && step.stage == wanted);
        us(&alone.map(|step| step.span.length_ns()).collect::<Vec<_>>())
    };
    (cell.one_stream_us, cell.several_streams_us) =
        (us(&times.one_stream_ns), us(&times.several_streams_ns));
    (cell.copy_in_us, cell.kernel_us, cell.copy_out_us) =
        (stage(Stage::CopyIn), stage(Stage::Kernel), stage(Stage::CopyOut));
    cell.enqueue_us = us(&times.enqueue_ns);
    let [one, several] = times.taken.map(|bytes| Some(Bytes(bytes)));
    (cell.one_stream_bytes, cell.several_streams_bytes) = (one, several);
    cell.samples = count(&times.several_streams_ns);
    cell.spread_percent = spread_percent(&times.several_streams_ns);
    cell.speed_up =
        cell.one_stream_us.zip(cell.several_streams_us).map(|(one, several)| one / several);
    let stages = cell.copy_in_us.zip(cell.kernel_us).zip(cell.copy_out_us);
    if let Some(((copy_in, kernel), copy_out)) = stages {
        cell.possible_speed_up =
            Some(possible(cell.batches, cell.streams, [copy_in, kernel, copy_out]));
        cell.bound = cell
            .enqueue_us
            .map(|enqueue| bound(cell.batches, enqueue, kernel, copy_in.max(copy_out)));
    }
    if cell.speed_up.is_none() {
        cell.ending = no_samples();
    }
}

/// Returns the speed-up of batches in several streams, if a stage waits only for its batch, for the same stage of the
/// batch before it, and for the batch before it in its stream.
fn possible(batches: u32, streams: u32, stages: [f64; 3]) -> f64 {
    let (mut engines, mut ends) = ([0.0_f64; 3], vec![0.0_f64; streams.max(1) as usize]);
    for batch in 0..batches {
        let end = &mut ends[(batch % streams.max(1)) as usize];
        for (engine, stage) in engines.iter_mut().zip(stages) {
            *engine = end.max(*engine) + stage;
            *end = *engine;
        }
    }
    let [.., last] = engines;
    f64::from(batches) * stages.iter().sum::<f64>() / last
}

/// Returns the resource that takes the longest over all batches.
fn bound(batches: u32, enqueue_us: f64, kernel_us: f64, copy_us: f64) -> Bound {
    let on_gpu = f64::from(batches) * kernel_us.max(copy_us);
    match () {
        () if enqueue_us > on_gpu => Bound::Host,
        () if kernel_us > copy_us => Bound::Kernel,
        () => Bound::Copy,
    }
}

fn not_asked() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "the round is of another kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_possible_follows_from_the_longest_stage() {
        // Three equal stages with endless batches run three times as fast.
        assert!((possible(10_000, 3, [1.0; 3]) - 3.0).abs() < 1e-3);
        assert!((possible(4, 3, [1.0; 3]) - 2.0).abs() < 1e-9, "12 stages in 6 steps");
        assert!(
            (possible(1, 3, [1.0; 3]) - 1.0).abs() < 1e-9,
            "one batch has nothing to overlap with"
        );
        // Two streams hold two batches at a time.
        assert!((possible(4, 2, [1.0; 3]) - 12.0 / 7.0).abs() < 1e-9, "12 stages in 7 steps");
        assert!((possible(10_000, 2, [1.0; 3]) - 2.0).abs() < 1e-3);
        assert!((possible(10_000, 3, [1.0, 10.0, 1.0]) - 1.2).abs() < 1e-3);
    }

    #[test]
    fn what_takes_longest_bounds_a_pipeline() {
        assert_eq!(bound(8, 100.0, 120.0, 150.0), Bound::Copy);
        assert_eq!(bound(8, 100.0, 180.0, 150.0), Bound::Kernel);
        assert_eq!(bound(8, 1300.0, 120.0, 150.0), Bound::Host);
    }
}
