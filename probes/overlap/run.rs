//! Measures the overlap of a copy with a kernel, per stream placement and stream of the kernel. Each of the two GPUs runs
//! a kernel of its own during the same copy.
//!
//! Each device has a gate. All work is enqueued behind the gates, which open together, so that the host's launch speed
//! plays no part. A spacer runs before the kernel and moves it to the middle of the copy's time. The opening of the
//! gates aligns the clocks of the two devices to a few microseconds. The spacer keeps the ends of the kernel farther
//! than that from the ends of the copy, whether they overlap or run one after the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::bench::timeline::Ran;
use crate::figures::without_figures;
use crate::statistics::median;
use crate::{Outcome, Span};
use hardware::{ErrorKind, Event, HardwareError, Stream};
use model::flow::Setup;
use model::measurement::Overlap;
use model::placement::{Engine, HostMode, KernelStream, Pair, Path, Placement, Side};
use model::timeline::WorkKind;
use model::units::{Bytes, MIB};

/// One sample of an overlap measurement: a copy, and a kernel on each GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverlapSample {
    pub copy: Span,
    /// The kernel on the source.
    pub on_source: Span,
    /// The kernel on the destination.
    pub on_destination: Span,
    /// Nanoseconds that the host spent in the call that copies.
    pub host_ns: f64,
    /// Nanoseconds that the host spent in that call and the wait for the end of the copy, as in a blocking call.
    pub blocking_ns: f64,
}

/// Length of the spacer before the kernel, as a share of the copy's time.
const SPACER_SHARE: f64 = 0.2;
/// Length of the kernel, as a share of the copy's time. Spacer and kernel end well before the copy.
const KERNEL_SHARE: f64 = 0.5;
/// Number of rows timed to learn the pair's pace (ns per byte) if no bandwidth was measured before.
const PACE_ROWS: u32 = 2;
/// Size of the copies in these rows, bytes.
const PACE_BYTES: u64 = 64 * MIB;
/// Bytes of a pair's first copy, for which the driver may set up a channel.
const FIRST_BYTES: u64 = 4096;

/// Names of the wait for the copy in a timeline: by itself, and as part of a call that blocks.
const WAIT: &str = "wait for the copy";
const BLOCKING_WAIT: &str = "wait for the copy, as part of a blocking call";

/// The resources of one sample.
struct Scene {
    pair: Pair,
    setup: Setup,
    /// Current streams of the source (`from`) and the destination (`to`).
    from: Stream,
    to: Stream,
    /// The streams on which the kernels run.
    kernels: [Stream; 2],
    /// Start and end of the copy.
    copy: [Event; 2],
    /// Start and end of the kernel on each side.
    marks: [[Event; 2]; 2],
    /// End of the destination's work before the copy.
    ready: Event,
    /// End of the copy as the destination sees it, for a timeline.
    done: Event,
    spacer: Duration,
    kernel: Duration,
}

impl Scene {
    /// Returns the GPUs, source first.
    const fn gpus(&self) -> [u32; 2] {
        [self.pair.source, self.pair.destination]
    }
}

impl Bench<'_> {
    pub(crate) fn overlap(
        &self,
        pair: Pair,
        setup: Setup,
        asked: super::Overlap,
    ) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let pace = self.pace_of(pair)?;
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let copy_ns = pace * setup.bytes.0 as f64;
        let scene = self.scene(pair, setup, asked.kernel, copy_ns)?;
        // The first sample of a placement warms it up and is not counted.
        let mut all = Vec::new();
        for _ in 0..=asked.samples {
            all.push(self.overlap_once(&scene, WAIT)?);
        }
        all.remove(0);
        // Repeat both variants for a timeline. The devices do the same in both; only the wait of the host differs.
        for (host, wait) in [(HostMode::NonBlocking, WAIT), (HostMode::Blocking, BLOCKING_WAIT)] {
            let placement = Placement { host, ..setup.placement };
            self.show(
                "overlap",
                || placement.to_string(),
                || self.overlap_once(&scene, wait).map(drop),
            )?;
        }
        Ok(Outcome::Overlap { samples: all })
    }

    /// Returns the nanoseconds per byte of a direct copy of this pair.
    fn pace_of(&self, pair: Pair) -> Result<f64, HardwareError> {
        let key = (pair, Setup::REFERENCE);
        if self.pace.borrow().get(&key).is_none() {
            let setup = Setup::REFERENCE.with_bytes(Bytes(PACE_BYTES.min(self.both_hold(pair)?)));
            // This may be the first copy of the pair, which must not be behind a gate.
            for transfer in self.between(&[pair], setup, 1)? {
                self.copy_once(&transfer, FIRST_BYTES)?;
                self.driver.synchronize(transfer.stream)?;
            }
            self.bandwidth(&[pair], setup, PACE_ROWS, 1)?;
        }
        let no_pace =
            || HardwareError::new(ErrorKind::Other, "the pace of a copy could not be measured");
        self.pace.borrow().get(&key).copied().ok_or_else(no_pace)
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive"
    )]
    fn scene(
        &self,
        pair: Pair,
        setup: Setup,
        kernel: KernelStream,
        copy_ns: f64,
    ) -> Result<Scene, HardwareError> {
        let devices = [self.open_gpu(pair.source)?.device, self.open_gpu(pair.destination)?.device];
        let (on_source, on_destination) =
            (self.events(devices[0], 4)?, self.events(devices[1], 4)?);
        let length = |share: f64| Duration::from_nanos((copy_ns * share) as u64);
        let [from, to] = [Side::Source, Side::Destination]
            .map(|side| self.current_stream(pair, setup.placement, side));
        let (from, to) = (from?, to?);
        let kernels = match kernel {
            KernelStream::Default => devices.map(Stream::default_of),
            KernelStream::Same => [from, to],
            KernelStream::Other => {
                [self.streams(devices[0], 1)?[0], self.streams(devices[1], 1)?[0]]
            }
        };
        Ok(Scene {
            pair,
            setup,
            from,
            to,
            kernels,
            copy: [on_source[0], on_source[1]],
            marks: [[on_source[2], on_source[3]], [on_destination[0], on_destination[1]]],
            ready: on_destination[2],
            done: on_destination[3],
            spacer: length(SPACER_SHARE),
            kernel: length(KERNEL_SHARE),
        })
    }

    fn overlap_once(&self, scene: &Scene, wait: &str) -> Result<OverlapSample, HardwareError> {
        let driver = self.driver;
        let Scene { from, to, kernels, copy: [copy_start, copy_end], marks, .. } = *scene;
        let (mut host_ns, mut launched) = (0.0, [None; 3]);
        let opened = self.gated(|| {
            let opened = self.call(|| "shut the gates".into(), || self.shut_both(scene))?;
            host_ns = self.timed(|| self.enqueue_copy(scene, &mut launched[0]))?;
            if self.is_shown() {
                driver.record(scene.done, to)?;
            }
            for side in [0, 1] {
                launched[side + 1] = self.enqueue_kernel(scene, side)?;
            }
            Ok(opened)
        })?;
        // Wait for the event, not the stream: on a default stream the kernel follows the copy.
        let waited = || self.call(|| wait.into(), || driver.synchronize_event(copy_end));
        let blocking_ns = host_ns + self.timed(waited)?;
        let copied = self.last_call();
        self.call(
            || "wait for all streams".into(),
            || {
                [from, to]
                    .into_iter()
                    .chain(kernels)
                    .try_for_each(|stream| driver.synchronize(stream))
            },
        )?;
        self.gates_held()?;
        self.note_work(scene, launched)?;
        self.opened(scene.pair.source, opened[0], &[copy_end], copied)?;
        self.opened(
            scene.pair.destination,
            opened[1],
            &[marks[1][1], scene.done],
            self.last_call(),
        )?;

        let [on_source, on_destination] = [0, 1].map(|side: usize| {
            let [start, end] = marks[side];
            self.span(self.opening(opened[side]), start, end)
        });
        let copy = self.span(self.opening(opened[0]), copy_start, copy_end)?;
        Ok(OverlapSample {
            copy,
            on_source: on_source?,
            on_destination: on_destination?,
            host_ns,
            blocking_ns,
        })
    }

    /// Closes the gates of both GPUs for all streams of the sample. Returns the events of their opening.
    fn shut_both(&self, scene: &Scene) -> Result<[Event; 2], HardwareError> {
        let opened =
            [self.close_gate(scene.pair.source)?, self.close_gate(scene.pair.destination)?];
        for (stream, opened) in
            [scene.from, scene.to].into_iter().chain(scene.kernels).zip(opened.into_iter().cycle())
        {
            self.driver.wait(stream, opened)?;
        }
        Ok(opened)
    }

    /// Enqueues the copy in the order that frameworks use, and stores the call that launched it.
    fn enqueue_copy(
        &self,
        scene: &Scene,
        launched: &mut Option<usize>,
    ) -> Result<(), HardwareError> {
        let (driver, &Scene { from, to, copy: [copy_start, copy_end], ready, .. }) =
            (self.driver, scene);
        let [source, destination] = scene.gpus();
        self.call(|| format!("record an event on GPU {destination}"), || driver.record(ready, to))?;
        self.call(
            || format!("let GPU {source}'s stream wait for it"),
            || driver.wait(from, ready),
        )?;
        driver.record(copy_start, from)?;
        let copy = || self.copy_parts(scene);
        self.call(|| format!("copy {} to GPU {destination}", scene.setup.bytes), copy)?;
        *launched = self.last_call();
        self.call(|| format!("record an event on GPU {source}"), || driver.record(copy_end, from))?;
        self.call(
            || format!("let GPU {destination}'s stream wait for it"),
            || driver.wait(to, copy_end),
        )
    }

    /// Returns the number of bytes that both buffers of a pair hold.
    fn both_hold(&self, pair: Pair) -> Result<u64, HardwareError> {
        let (from, to) = (self.open_gpu(pair.source)?, self.open_gpu(pair.destination)?);
        Ok(from.send.bytes.min(to.receive.bytes))
    }

    /// Enqueues the copy. A copy larger than the buffers is split into several, enqueued one after the other.
    fn copy_parts(&self, scene: &Scene) -> Result<(), HardwareError> {
        let (from, to) = (
            self.open_gpu(scene.pair.source)?.send,
            self.open_gpu(scene.pair.destination)?.receive,
        );
        let (mut left, most) = (scene.setup.bytes.0, self.both_hold(scene.pair)?);
        while left > 0 {
            let part = left.min(most);
            self.driver.copy(Engine::Copy, scene.from, to, from, part)?;
            left -= part;
        }
        Ok(())
    }

    /// Enqueues spacer and kernel on one side, and returns the call that launched the kernel.
    fn enqueue_kernel(&self, scene: &Scene, side: usize) -> Result<Option<usize>, HardwareError> {
        let (stream, [start, end], gpu) =
            (scene.kernels[side], scene.marks[side], scene.gpus()[side]);
        self.call(
            || format!("launch a spacer on GPU {gpu}"),
            || self.driver.spin(stream, scene.spacer),
        )?;
        self.driver.record(start, stream)?;
        self.call(
            || format!("launch the kernel on GPU {gpu}"),
            || self.driver.spin(stream, scene.kernel),
        )?;
        let launched = self.last_call();
        self.driver.record(end, stream)?;
        Ok(launched)
    }

    /// Records copy and kernels of a sample for a timeline.
    fn note_work(&self, scene: &Scene, launched: [Option<usize>; 3]) -> Result<(), HardwareError> {
        if !self.is_shown() {
            return Ok(());
        }
        let [source, destination] = scene.gpus();
        self.worked(Ran {
            name: format!("copy {} to GPU {destination}", scene.setup.bytes),
            kind: WorkKind::Copy,
            gpu: source,
            stream: scene.from.id,
            start: scene.copy[0],
            end: scene.copy[1],
            call: launched[0],
        })?;
        [0, 1].into_iter().try_for_each(|side: usize| {
            let ([start, end], gpu) = (scene.marks[side], scene.gpus()[side]);
            let (name, call) = ("kernel".to_owned(), launched[side + 1]);
            self.worked(Ran {
                name,
                kind: WorkKind::Kernel,
                gpu,
                stream: scene.kernels[side].id,
                start,
                end,
                call,
            })
        })
    }
}

/// Returns the share of a kernel's time during which the copy ran, per cent.
fn share(kernel: Span, sample: &OverlapSample) -> f64 {
    100.0 * sample.copy.together_ns(kernel) / kernel.length_ns()
}

/// Returns the cells of a round: a kernel on either GPU, for a non-blocking call and for a blocking one. The devices do
/// the same in both; the blocking call waits for the event after the copy.
pub(crate) fn cells(
    pair: Pair,
    setup: Setup,
    kernel: KernelStream,
    outcome: &Outcome,
) -> Vec<Overlap> {
    let hosts = [HostMode::NonBlocking, HostMode::Blocking];
    let sides = [Side::Source, Side::Destination];
    hosts
        .into_iter()
        .flat_map(|host| {
            let placement = Placement { host, ..setup.placement };
            let blank = |side| Overlap::blank(pair, placement, side, kernel, setup.bytes);
            sides.map(|side| cell(blank(side), outcome))
        })
        .collect()
}

fn cell(mut cell: Overlap, outcome: &Outcome) -> Overlap {
    let Overlap { placement, compute_on, .. } = cell;
    cell.expected_overlap_percent = Some(if cell.should_overlap() { 100.0 } else { 0.0 });
    if let Outcome::Overlap { samples } = outcome {
        let over = |figure: &dyn Fn(&OverlapSample) -> f64| {
            median(&samples.iter().map(figure).collect::<Vec<_>>())
        };
        let kernel = |sample: &OverlapSample| match compute_on {
            Side::Source => sample.on_source,
            Side::Destination => sample.on_destination,
        };
        let host_ns = |sample: &OverlapSample| match placement.host {
            HostMode::NonBlocking => sample.host_ns,
            HostMode::Blocking => sample.blocking_ns,
        };
        cell.overlap_percent = over(&|sample| share(kernel(sample), sample));
        cell.host_blocked_us = over(&|sample| host_ns(sample) / 1e3);
        cell.copy_us = over(&|sample| sample.copy.length_ns() / 1e3);
        cell.kernel_us = over(&|sample| kernel(sample).length_ns() / 1e3);
        cell.samples = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    } else {
        cell.ending = without_figures(outcome);
    }
    cell
}
