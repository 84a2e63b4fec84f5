//! Brings the clocks of GPUs onto the host's clock.

use std::collections::BTreeMap;

use serde::Serialize;

use model::timeline::{ClockReading, Timeline};

/// Largest drift between two clocks if it was not measured: ten times the tolerance that crystal oscillators are sold
/// with.
const MOST_DRIFT: f64 = 1e-4;

/// Largest distance between the bounds of a gate's opening at which a clock is trusted, nanoseconds. Wider bounds would
/// not expose a wrong clock. The value is less than the spacer of the overlap probe: no kernel is drawn on the wrong
/// side of a copy's end.
const TRUSTED_NS: f64 = 30e3;

/// The identity of a GPU's clock: the GPU's index and the time at which that clock was set. Another worker sets another
/// clock.
pub(super) type ClockId = (u32, u64);

/// The readings of a GPU's clock against the host's.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// Readings in the order in which they were taken.
    readings: Vec<ClockReading>,
}

/// The drift of a GPU's clock from the host's, as a fraction of the elapsed time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Drift {
    measured: f64,
    uncertainty: f64,
}

impl Drift {
    /// Returns true if the drift exceeds its own uncertainty. Otherwise it is not applied.
    fn is_certain(self) -> bool {
        self.measured.abs() > self.uncertainty
    }
}

/// The facts that a timeline reports about the clock of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClockFacts {
    /// The GPU, by NVML index.
    pub gpu: u32,
    /// Number of comparisons with the host's clock.
    readings: usize,
    /// Host's clock less GPU's clock, microseconds, at the reading that is most precise.
    offset_us: f64,
    /// Largest error of this GPU's times, microseconds.
    pub uncertainty_us: f64,
    /// Rate at which the GPU's clock falls behind the host's, parts in a million. Null with one reading.
    drift_ppm: Option<f64>,
    /// Largest error of the drift, parts in a million.
    drift_uncertainty_ppm: Option<f64>,
    /// True if times were corrected by the drift, which needs a drift above its uncertainty.
    drift_applied: bool,
    /// Number of parts whose times begin with the host's opening of a gate instead, because the clock contradicts the
    /// host about it.
    by_gates: usize,
}

/// Returns the clocks of all GPUs that were followed.
pub(super) fn clocks(timelines: &[Timeline]) -> BTreeMap<ClockId, Clock> {
    let mut clocks: BTreeMap<ClockId, Clock> = BTreeMap::new();
    for reading in timelines.iter().flat_map(|timeline| &timeline.clocks) {
        clocks.entry(id(reading)).or_default().readings.push(*reading);
    }
    clocks
}

/// Returns the clock of a reading.
pub(super) const fn id(reading: &ClockReading) -> ClockId {
    (reading.gpu, reading.zero_ns.to_bits())
}

/// Returns half of the time within which a reading was taken.
fn half_ns(reading: &ClockReading) -> f64 {
    (reading.not_after_ns - reading.not_before_ns).abs() / 2.0
}

/// Returns the host's clock less the GPU's, in nanoseconds.
fn offset_ns(reading: &ClockReading) -> f64 {
    f64::midpoint(reading.not_before_ns, reading.not_after_ns) - reading.gpu_ns
}

impl Clock {
    /// Returns the drift from the first reading to the last.
    fn drift(&self) -> Option<Drift> {
        let (first, last) = (self.readings.first()?, self.readings.last()?);
        let passed = last.gpu_ns - first.gpu_ns;
        (passed > 0.0).then(|| Drift {
            measured: (offset_ns(last) - offset_ns(first)) / passed,
            uncertainty: (half_ns(first) + half_ns(last)) / passed,
        })
    }

    /// Returns how much uncertainty a time gains per distance from a reading.
    fn blur(&self) -> f64 {
        match self.drift() {
            Some(drift) if drift.is_certain() => drift.uncertainty,
            Some(drift) => (drift.measured.abs() + drift.uncertainty).min(MOST_DRIFT),
            None => MOST_DRIFT,
        }
    }

    /// Returns the reading that gives a time most precisely, and the uncertainty of that time.
    fn nearest(&self, gpu_ns: f64) -> Option<(&ClockReading, f64)> {
        let blur = self.blur();
        let known = self
            .readings
            .iter()
            .map(|one| (one, half_ns(one) + blur * (gpu_ns - one.gpu_ns).abs()));
        known.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Returns a time of the GPU on the host's clock, and its largest error, both in nanoseconds.
    pub(super) fn on_host(&self, gpu_ns: f64) -> Option<(f64, f64)> {
        let (reading, uncertainty) = self.nearest(gpu_ns)?;
        let drift =
            self.drift().filter(|drift| drift.is_certain()).map_or(0.0, |drift| drift.measured);
        Some((gpu_ns + offset_ns(reading) + drift * (gpu_ns - reading.gpu_ns), uncertainty))
    }

    /// Returns the time when a gate opened on the host's clock, and its largest error, both in nanoseconds. The last
    /// value is true if the clock was not used. The time is the middle of the interval that both the clock and the
    /// host's calls before and after allow. If they contradict each other, or the host's calls are too far apart, the
    /// clock is not used. The time is then that of the host's opening.
    pub(super) fn opening(&self, gate: &ClockReading) -> (f64, f64, bool) {
        let (first, last) = (gate.not_before_ns, gate.not_after_ns);
        let by_clock = self.on_host(gate.gpu_ns).filter(|_| last - first <= TRUSTED_NS);
        let both = by_clock.map(|(at, off)| [first.max(at - off), last.min(at + off)]);
        match both.filter(|[first, last]| first <= last) {
            Some([first, last]) => (f64::midpoint(first, last), (last - first) / 2.0, false),
            None => (first, (last - first).abs(), true),
        }
    }

    /// Returns the facts of this clock. Takes the uncertainty of the worst of its times and the number of parts that
    /// went by gates.
    pub(super) fn facts(
        &self,
        gpu: u32,
        uncertainty_ns: f64,
        by_gates: usize,
    ) -> Option<ClockFacts> {
        let best =
            self.readings.iter().min_by(|one, other| half_ns(one).total_cmp(&half_ns(other)))?;
        let drift = self.drift();
        Some(ClockFacts {
            gpu,
            readings: self.readings.len(),
            offset_us: micros(offset_ns(best)),
            uncertainty_us: micros(uncertainty_ns),
            drift_ppm: drift.map(|drift| micros(drift.measured * 1e9)),
            drift_uncertainty_ppm: drift.map(|drift| micros(drift.uncertainty * 1e9)),
            drift_applied: drift.is_some_and(Drift::is_certain),
            by_gates,
        })
    }
}

/// Converts nanoseconds to microseconds, rounded to the nanosecond.
pub(super) fn micros(ns: f64) -> f64 {
    ns.round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading at this time of a GPU whose clock is `offset` behind, known to 5 us on either side.
    fn reading(gpu_ns: f64, offset_ns: f64) -> ClockReading {
        let host = gpu_ns + offset_ns;
        ClockReading {
            gpu: 0,
            zero_ns: 7.0,
            gpu_ns,
            not_before_ns: host - 5e3,
            not_after_ns: host + 5e3,
        }
    }

    fn clock(readings: &[ClockReading]) -> Clock {
        let timeline = Timeline { clocks: readings.to_vec(), ..Timeline::default() };
        clocks(&[timeline]).remove(&(0, 7.0_f64.to_bits())).unwrap()
    }

    #[test]
    fn a_drift_that_is_certain_is_applied() {
        // The drift is 100 us in a second, known to 10 us.
        let clock = clock(&[reading(0.0, 1e6), reading(1e9, 1.1e6)]);
        let (host, uncertainty) = clock.on_host(0.5e9).unwrap();
        assert!((host - (0.5e9 + 1.05e6)).abs() < 1.0, "{host}");
        assert!((10e3 - 1.0..=10e3 + 1.0).contains(&uncertainty), "{uncertainty}");
        let facts = clock.facts(0, uncertainty, 0).unwrap();
        assert!(
            facts.drift_applied && (facts.drift_ppm.unwrap() - 100.0).abs() < 1e-6,
            "{facts:?}"
        );
        assert!((facts.drift_uncertainty_ppm.unwrap() - 10.0).abs() < 1e-6, "{facts:?}");
    }

    #[test]
    fn a_drift_within_its_uncertainty_is_said_and_not_applied() {
        let clock = clock(&[reading(0.0, 1e6), reading(1e9, 1e6 + 4e3)]);
        let (host, uncertainty) = clock.on_host(0.25e9).unwrap();
        assert!((host - (0.25e9 + 1e6)).abs() < 1.0, "{host}");
        assert!((uncertainty - (5e3 + 14e-6 * 0.25e9)).abs() < 1.0, "{uncertainty}");
        assert!(!clock.facts(0, uncertainty, 0).unwrap().drift_applied);
    }

    #[test]
    fn one_reading_knows_its_own_time_best() {
        let clock = clock(&[reading(1e6, 2e6)]);
        assert_eq!(clock.on_host(1e6), Some((3e6, 5e3)));
        let (_, later) = clock.on_host(2e6).unwrap();
        assert!((later - 5.1e3).abs() < 1.0, "{later}");
        assert_eq!(clock.facts(0, later, 0).unwrap().drift_ppm, None);
    }

    #[test]
    fn clocks_of_two_workers_are_two() {
        let other = ClockReading { zero_ns: 8.0, ..reading(0.0, 0.0) };
        let timeline = Timeline { clocks: vec![reading(0.0, 0.0), other], ..Timeline::default() };
        assert_eq!(clocks(&[timeline]).len(), 2);
        assert_eq!(Clock::default().on_host(0.0), None);
    }
}
