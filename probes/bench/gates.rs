//! Gates, and times since they opened.

use std::collections::BTreeSet;
use std::time::Duration;

use hardware::{Device, ErrorKind, Event, HardwareError};

use crate::Span;
use crate::bench::following::OPEN_GATES;
use crate::bench::{Bench, Origin};

/// Time that devices may take to reach their gates. A launch begins after some 10 us, and the host has enqueued a row
/// by then. A GPU shared in time slices gives each program about this long. Chosen.
const GATE_PATIENCE: Duration = Duration::from_millis(2);
/// Tries of a row whose device has not reached its gate in time. Chosen.
const GATE_TRIES: u32 = 3;

impl Bench<'_> {
    /// Closes the gate of a device and returns the event of its opening. Streams that wait for the event stay shut
    /// until [`Driver::release`].
    ///
    /// # Errors
    ///
    /// Confidential computing is on. Its copies pass through encrypted buffers, and their calls hold the host until the
    /// bytes are moved (NVIDIA, confidential computing deployment guide). Behind a closed gate they would never return.
    pub(crate) fn close_gate(&self, index: u32) -> Result<Event, HardwareError> {
        let open_gpu = self.open_gpu(index)?;
        if open_gpu.confidential {
            let why = "confidential computing is on: calls of copies wait for the GPU, so no work can be held back and \
                       started together";
            return Err(HardwareError::new(ErrorKind::Impossible, why));
        }
        self.driver.hold(open_gpu.gate)?;
        self.driver.record(open_gpu.opened, open_gpu.gate)?;
        Ok(open_gpu.opened)
    }

    /// Enqueues work that closes gates, and opens them in any case: a closed gate would block all later work. Every
    /// device must reach its gate before the opening. A device that comes later begins later than the others, and
    /// nothing would show it. Then the enqueued work is void: it is waited for and enqueued again.
    ///
    /// # Errors
    ///
    /// An error of `enqueue`; or a device was late every time, which is no evidence about the hardware.
    pub(crate) fn gated<T>(
        &self,
        mut enqueue: impl FnMut() -> Result<T, HardwareError>,
    ) -> Result<T, HardwareError> {
        let mut late = Vec::new();
        for _ in 0..GATE_TRIES {
            let result = enqueue();
            // If enqueueing failed, the gate itself may be missing.
            late = if result.is_ok() { self.driver.late(GATE_PATIENCE) } else { Vec::new() };
            let release = || {
                self.driver.release();
                Ok(())
            };
            let opened = self.call(|| OPEN_GATES.into(), release);
            self.released.set(self.driver.now());
            if late.is_empty() {
                return opened.and(result);
            }
            self.open_gpus.values().try_for_each(|open_gpu| self.driver.drain(open_gpu.device))?;
            // Reset the expiry too: a gate that opened by itself meanwhile is void as well.
            self.driver.expired();
        }
        Err(self.used_by_others(&late))
    }

    /// Returns the error for devices that reached their gates too late.
    fn used_by_others(&self, late: &[Device]) -> HardwareError {
        let own = self.open_gpus.iter().filter(|(_, open_gpu)| late.contains(&open_gpu.device));
        let gpus: BTreeSet<u32> = own.map(|(index, _)| *index).collect();
        let gpus: Vec<String> = gpus.iter().map(|index| format!("GPU {index}")).collect();
        let are = if gpus.len() == 1 { "is" } else { "are" };
        let why = format!(
            "{} {are} used by other programs: what was enqueued did not begin there within {} ms, {GATE_TRIES} times \
             one after the other",
            gpus.join(", "),
            GATE_PATIENCE.as_millis()
        );
        HardwareError::new(ErrorKind::Hindered, why)
    }

    /// Returns the origin of a device's times: the opening of its gate.
    pub(crate) fn opening(&self, opened: Event) -> Origin {
        Origin { event: opened, at: self.released.get() }
    }

    /// Returns the time between two events.
    ///
    /// # Errors
    ///
    /// A time is not a number, which is no evidence about the copy.
    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    pub(crate) fn span(
        &self,
        origin: Origin,
        start: Event,
        end: Event,
    ) -> Result<Span, HardwareError> {
        let start_ns = origin.at.as_nanos() as f64 + self.driver.elapsed_ns(origin.event, start)?;
        // Measure from the start, not from the origin: drivers give times as floats of some seven digits.
        let span = Span { start_ns, end_ns: start_ns + self.driver.elapsed_ns(start, end)? };
        if !(span.start_ns.is_finite() && span.end_ns.is_finite()) {
            let why = "the driver gave a time that is no number: no figure can be made of it";
            return Err(HardwareError::new(ErrorKind::Hindered, why));
        }
        Ok(span)
    }

    /// Returns the spans between successive marks.
    ///
    /// # Errors
    ///
    /// A span took no time, although the driver reported that the work was enqueued.
    pub(crate) fn spans(
        &self,
        origin: Origin,
        marks: &[Event],
    ) -> Result<Vec<Span>, HardwareError> {
        let span = |ends: &[Event]| match self.span(origin, ends[0], ends[1])? {
            span if span.length_ns() <= 0.0 => {
                Err(HardwareError::new(ErrorKind::Other, "the work took no time: it was not done"))
            }
            span => Ok(span),
        };
        marks.windows(2).map(span).collect()
    }

    /// Returns an error if a gate opened by itself: times taken meanwhile are void.
    pub(crate) fn gates_held(&self) -> Result<(), HardwareError> {
        if self.driver.expired() {
            return Err(HardwareError::new(
                ErrorKind::Hindered,
                "enqueueing took so long that the gate opened by itself: the host is overloaded, or each call waits for the GPU \
                 (CUDA_LAUNCH_BLOCKING, a debugger)",
            ));
        }
        Ok(())
    }
}
