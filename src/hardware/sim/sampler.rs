//! Readings of a simulated machine's links, on the clock of its driver.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::clock::Clock;
use hardware::{LinkSample, Sampler, Telemetry};

/// Most readings taken at once. A simulated copy can take years.
const MOST_AT_ONCE: u32 = 50;

/// Readings whose times follow the driver's clock over all workers of a run.
pub(super) struct Clocked {
    telemetry: Arc<dyn Telemetry>,
    clock: Arc<Clock>,
    gpus: Vec<u32>,
    interval: Duration,
    /// Sum of the last clocks of earlier workers.
    before: Duration,
    now: Duration,
    /// Time of the next reading.
    next: Duration,
    /// Readings that nobody has taken yet.
    samples: Mutex<Vec<(u32, LinkSample)>>,
}

impl Clocked {
    /// Takes the first reading of each GPU.
    pub(crate) fn start(
        telemetry: Arc<dyn Telemetry>,
        clock: Arc<Clock>,
        gpus: &[u32],
        interval: Duration,
    ) -> Self {
        let sampler = Self {
            telemetry,
            clock,
            gpus: gpus.to_vec(),
            interval,
            before: Duration::ZERO,
            now: Duration::ZERO,
            next: interval,
            samples: Mutex::default(),
        };
        sampler.look_now();
        sampler
    }

    /// Takes a reading of every GPU.
    fn look_now(&self) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = |gpu: &u32| (*gpu, self.telemetry.sample(*gpu));
        samples.extend(self.gpus.iter().map(reading));
    }

    /// Takes the readings that are due at this time of the driver's clock, each at its own time.
    fn take_due(&mut self, now: Duration) {
        if now < self.now {
            // The clock of another worker, which began at zero.
            self.before = self.before.saturating_add(self.now);
        }
        self.now = now;
        let elapsed = self.before.saturating_add(now);
        let mut due = 0;
        while self.next <= elapsed && due < MOST_AT_ONCE {
            self.clock.passed(self.next);
            self.look_now();
            (self.next, due) = (self.next.saturating_add(self.interval), due + 1);
        }
        if self.next <= elapsed {
            self.next = elapsed.saturating_add(self.interval);
        }
        self.clock.passed(elapsed);
    }
}

impl Sampler for Clocked {
    fn follow(&mut self, now: Duration) {
        self.take_due(now);
    }

    fn drain(&self) -> Vec<(u32, LinkSample)> {
        std::mem::take(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop(&mut self) {
        self.look_now();
    }

    fn late(&self, _patience: Duration) -> Vec<u32> {
        Vec::new()
    }
}
