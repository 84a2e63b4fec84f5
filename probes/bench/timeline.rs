//! Records a followed round for a timeline: its host calls, the work they launched, and the offsets of its GPUs' clocks
//! from the host's.
//!
//! A probe wraps its calls in [`Bench::call`] and reports with [`Bench::worked`] the work between two events. Both
//! record only within [`Bench::show`], which repeats an action to record it. Recording takes time, so figures come from
//! runs without it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::bench::Bench;
use crate::bench::following::{GpuClock, OPEN_GATES};
use crate::probe::{Assembly, Needs, Probe};
use crate::{Action, Round};
use hardware::{ErrorKind, Event, HardwareError};
use model::flow::{Endpoint, Flow, Setup};
use model::placement::StreamKind;
use model::timeline::{Attempt, Call, ClockReading, Timeline, Work, WorkKind};

/// Number of readings of a clock, each of some 10 µs: together they bound it more tightly than the best of them.
const CLOCK_READINGS: u32 = 16;
/// Relative rounding error of the driver's times, which are floats.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

/// Reads the clocks of the GPUs relative to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clocks {}

impl Probe for Clocks {
    fn words(&self, _: Setup) -> String {
        "clocks of the GPUs".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs::default()
    }

    /// [`Bench::following`] read the clocks before the round began.
    fn run(&self, _: &Bench<'_>, _: &Round) -> Result<Outcome, HardwareError> {
        Ok(Outcome::Noted)
    }

    fn cells(&self, _: &Round, _: &Outcome, _: &mut Assembly<'_>) {}
}

/// Work between two events of a GPU.
pub(crate) struct Ran {
    pub name: String,
    pub kind: WorkKind,
    /// The GPU, by NVML index.
    pub gpu: u32,
    /// The stream; 0 is the legacy default stream.
    pub stream: u32,
    pub start: Event,
    pub end: Event,
    /// The call that launched the work, see [`Bench::last_call`].
    pub call: Option<usize>,
}

impl Bench<'_> {
    /// Runs a round, and records its timeline if the round is followed.
    pub(crate) fn following(
        &self,
        round: &Round,
        run: impl FnOnce() -> Outcome,
    ) -> (Outcome, Option<Timeline>) {
        if !round.timeline {
            return (run(), None);
        }
        let mut timeline = Timeline::default();
        match self.read_clocks(round) {
            Ok(clocks) => timeline.clocks = clocks,
            Err(error) => {
                timeline.problem = Some(format!("the clock of a GPU was not read: {error}"));
                if matches!(round.task.action, Action::Clocks(_)) {
                    return (Outcome::Failed { error }, Some(timeline));
                }
            }
        }
        *self.following.round.borrow_mut() = Some(timeline);
        let outcome = run();
        (outcome, self.following.round.take())
    }

    /// Repeats an action, if the round is followed, and records it as a part of the timeline.
    ///
    /// # Errors
    ///
    /// An error of the action.
    pub(crate) fn show(
        &self,
        probe: &str,
        name: impl FnOnce() -> String,
        run: impl FnOnce() -> Result<(), HardwareError>,
    ) -> Result<(), HardwareError> {
        if self.following.round.borrow().is_none() {
            return Ok(());
        }
        let part = Attempt { probe: probe.to_owned(), name: name(), ..Attempt::default() };
        *self.following.part.borrow_mut() = Some(part);
        let result = run();
        let part = self.following.part.take();
        if let Some(timeline) = self.following.round.borrow_mut().as_mut() {
            timeline.parts.extend(part.filter(|_| result.is_ok()));
        }
        result
    }

    /// Returns true if calls are recorded now.
    pub(crate) fn is_shown(&self) -> bool {
        self.following.part.borrow().is_some()
    }

    /// Makes a call of the host, and records it.
    pub(crate) fn call<T>(
        &self,
        name: impl FnOnce() -> String,
        run: impl FnOnce() -> Result<T, HardwareError>,
    ) -> Result<T, HardwareError> {
        if !self.is_shown() {
            return run();
        }
        let start_ns = self.now_ns();
        let result = run();
        let call = Call { name: name(), start_ns, end_ns: self.now_ns() };
        self.note(|part| part.calls.push(call));
        result
    }

    /// Returns the last recorded call.
    pub(crate) fn last_call(&self) -> Option<usize> {
        self.following.part.borrow().as_ref()?.calls.len().checked_sub(1)
    }

    /// Records the work between two events, both reached.
    ///
    /// # Errors
    ///
    /// The driver reports no time.
    pub(crate) fn worked(&self, ran: Ran) -> Result<(), HardwareError> {
        let Ran { name, kind, gpu, stream, start, end, call } = ran;
        let clock = self.following.clocks.borrow().get(&gpu).copied();
        let Some(clock) = clock.filter(|_| self.is_shown()) else {
            return Ok(());
        };
        // Measure from the last reading, not from zero: a float has some seven digits.
        let start_ns = clock.mark_ns + self.finite_ns(clock.mark, start)?;
        let end_ns = start_ns + self.finite_ns(start, end)?;
        let work = Work { name, kind, gpu, stream, start_ns, end_ns, call };
        self.note(|part| part.work.push(work));
        Ok(())
    }

    /// Records the opening of a GPU's gate. Its earliest time is the host's call that opened it. Its latest time is the
    /// end of the call `waited`, less the GPU's time from the opening to the last event in `reached`. That call waited
    /// for these events.
    ///
    /// # Errors
    ///
    /// The driver reports no time.
    pub(crate) fn opened(
        &self,
        gpu: u32,
        opened: Event,
        reached: &[Event],
        waited: Option<usize>,
    ) -> Result<(), HardwareError> {
        let clock = self.following.clocks.borrow().get(&gpu).copied();
        let Some(clock) = clock.filter(|_| self.is_shown()) else {
            return Ok(());
        };
        let gpu_ns = clock.mark_ns + self.finite_ns(clock.mark, opened)?;
        let mut until_reached = 0.0_f64;
        for &reached in reached {
            until_reached = until_reached.max(self.finite_ns(opened, reached)?);
        }
        self.note(|part| {
            let opening = part.calls.iter().rfind(|call| call.name == OPEN_GATES);
            let waited = waited.and_then(|waited| part.calls.get(waited));
            if let (Some(opening), Some(waited)) = (opening, waited) {
                part.gates.push(ClockReading {
                    gpu,
                    zero_ns: clock.zero_ns,
                    gpu_ns,
                    not_before_ns: opening.start_ns,
                    not_after_ns: waited.end_ns - until_reached,
                });
            }
        });
        Ok(())
    }

    fn note(&self, note: impl FnOnce(&mut Attempt)) {
        if let Some(part) = self.following.part.borrow_mut().as_mut() {
            note(part);
        }
    }

    fn read_clocks(&self, round: &Round) -> Result<Vec<ClockReading>, HardwareError> {
        let gpus: BTreeSet<u32> =
            round.flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
        gpus.into_iter().map(|gpu| self.read_clock(gpu)).collect()
    }

    /// Reads a GPU's clock against the host's. Every reading bounds the offset from both sides: the event is not
    /// reached before it is recorded, nor after it was waited for.
    fn read_clock(&self, gpu: u32) -> Result<ClockReading, HardwareError> {
        let clock = self.clock(gpu)?;
        let (mut least, mut most, mut gpu_ns) = (f64::NEG_INFINITY, f64::INFINITY, 0.0);
        for _ in 0..CLOCK_READINGS {
            let before = self.now_ns();
            self.driver.record(clock.mark, clock.stream)?;
            self.driver.synchronize_event(clock.mark)?;
            let after = self.now_ns();
            gpu_ns = self.finite_ns(clock.zero, clock.mark)?;
            let rounding = gpu_ns * ROUNDING;
            (least, most) =
                (least.max(before - gpu_ns - rounding), most.min(after - gpu_ns + rounding));
        }
        self.following.clocks.borrow_mut().insert(gpu, GpuClock { mark_ns: gpu_ns, ..clock });
        // The bounds can cross, for example if a clock was set meanwhile. They are swapped then, and their distance
        // shows the contradiction.
        let (least, most) = (least.min(most), least.max(most));
        let (not_before_ns, not_after_ns) = (gpu_ns + least, gpu_ns + most);
        Ok(ClockReading { gpu, zero_ns: clock.zero_ns, gpu_ns, not_before_ns, not_after_ns })
    }

    /// Returns the clock of a GPU, and sets it at the first use.
    fn clock(&self, gpu: u32) -> Result<GpuClock, HardwareError> {
        if let Some(clock) = self.following.clocks.borrow().get(&gpu) {
            return Ok(*clock);
        }
        let device = self.open_gpu(gpu)?.device;
        let stream = self.stream(gpu, StreamKind::Side)?;
        let [zero, mark] =
            [self.driver.create_event(device, true)?, self.driver.create_event(device, true)?];
        self.driver.record(zero, stream)?;
        self.driver.synchronize_event(zero)?;
        let clock = GpuClock { stream, zero, zero_ns: self.now_ns(), mark, mark_ns: 0.0 };
        self.following.clocks.borrow_mut().insert(gpu, clock);
        Ok(clock)
    }

    fn finite_ns(&self, start: Event, end: Event) -> Result<f64, HardwareError> {
        let time = self.driver.elapsed_ns(start, end)?;
        let why = "the driver gave a time that is no number: no timeline can be made of it";
        if time.is_finite() { Ok(time) } else { Err(HardwareError::new(ErrorKind::Hindered, why)) }
    }

    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    fn now_ns(&self) -> f64 {
        self.driver.now().as_nanos() as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Task;
    use crate::{RunEvent, Selection};
    use model::flow::{Flow, Setup};
    use model::placement::{Pair, Placement};
    use model::units::{Bytes, MIB};

    const PAIR: Pair = Pair { source: 0, destination: 1 };

    fn round(action: Action, timeline: bool) -> Round {
        let setup = Setup::REFERENCE.with_bytes(Bytes(64 * MIB));
        let task = Task { setup, action };
        Round {
            id: 0,
            slot: 0,
            flows: vec![Flow::from(PAIR)],
            task,
            deadline: Duration::from_secs(5),
            timeline,
            name: String::new(),
        }
    }

    /// Returns the timelines of rounds on two simulated GPUs.
    fn seen(rounds: &[Round]) -> Vec<Timeline> {
        let driver = sim::driver(sim::Simulated::find("h200x2").unwrap().spec).unwrap();
        let select = |index: u32| Selection {
            index,
            pci: driver.devices()[index as usize].pci,
            ..Selection::default()
        };
        let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(512 * MIB));
        let mut seen = Vec::new();
        for round in rounds {
            bench.run(std::slice::from_ref(round), &mut |event| match event {
                RunEvent::Seen(_, timeline) => seen.push(timeline),
                RunEvent::Ended(_, outcome) => {
                    assert!(!matches!(outcome, Outcome::Failed { .. }), "{outcome:?}")
                }
                RunEvent::Together(_) => panic!("one round was run"),
                RunEvent::Apart(_, error) => panic!("{error}"),
            });
        }
        seen
    }

    #[test]
    fn a_round_that_is_not_followed_leaves_nothing() {
        assert_eq!(
            seen(&[
                round(
                    Action::Overlap(crate::overlap::Overlap {
                        samples: 2,
                        kernel: model::placement::KernelStream::Default
                    }),
                    false
                ),
                round(Action::Clocks(crate::bench::timeline::Clocks {}), false)
            ]),
            []
        );
    }

    #[test]
    fn a_placement_and_its_blocking_twin_are_kept_with_what_their_calls_launched() {
        let seen = seen(&[round(
            Action::Overlap(crate::overlap::Overlap {
                samples: 3,
                kernel: model::placement::KernelStream::Default,
            }),
            true,
        )]);
        let names: Vec<_> = seen[0].parts.iter().map(|part| part.name.as_str()).collect();
        let twin = Placement { host: model::placement::HostMode::Blocking, ..Placement::REFERENCE };
        assert_eq!(names, [Placement::REFERENCE.to_string(), twin.to_string()]);
        for part in &seen[0].parts {
            let launched: Vec<_> =
                part.work.iter().map(|work| part.calls[work.call.unwrap()].name.as_str()).collect();
            assert_eq!(
                launched,
                [
                    "copy 64 MiB to GPU 1",
                    "launch the kernel on GPU 0",
                    "launch the kernel on GPU 1"
                ],
                "{part:?}"
            );
            assert!(
                part.calls.windows(2).all(|calls| calls[0].end_ns <= calls[1].start_ns),
                "{part:?}"
            );
            assert!(
                part.calls.iter().any(|call| call.name.starts_with("wait for the copy")),
                "{part:?}"
            );
            assert_eq!(part.work.iter().map(|work| work.gpu).collect::<Vec<_>>(), [0, 0, 1]);
        }
        assert!(seen[0].parts[1].calls.iter().any(|call| call.name.ends_with("blocking call")));
        assert_eq!(seen[0].problem, None);
    }

    #[test]
    fn readings_bound_the_clocks_of_all_gpus_of_a_round() {
        let seen = seen(&[
            round(Action::Clocks(crate::bench::timeline::Clocks {}), true),
            round(Action::Clocks(crate::bench::timeline::Clocks {}), true),
        ]);
        let gpus = |timeline: &Timeline| {
            timeline.clocks.iter().map(|reading| reading.gpu).collect::<Vec<_>>()
        };
        assert_eq!(seen.iter().map(gpus).collect::<Vec<_>>(), [[0, 1], [0, 1]]);
        for (one, other) in seen[0].clocks.iter().zip(&seen[1].clocks) {
            assert!(one.zero_ns.to_bits() == other.zero_ns.to_bits(), "the clock is set once");
            assert!(one.gpu_ns < other.gpu_ns);
            // The simulation has one clock: its zero lies between both bounds of the reading.
            for reading in [one, other] {
                let off =
                    [reading.not_before_ns, reading.not_after_ns].map(|host| host - reading.gpu_ns);
                assert!(off[0] <= reading.zero_ns && off[1] - off[0] < 50e3, "{reading:?}");
            }
        }
    }
}
