//! Summarises the readings of a GPU before the load patterns, while they ran, and after them.

use super::watch::LoadCounted;
use hardware::LinkSample;
use model::measurement::{AroundLoad, GpuReadings};
use model::snapshot::PcieErrors;

/// The range of a GPU's readings that were taken while load patterns ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct During {
    begin: usize,
    end: usize,
    loaded: bool,
}

impl During {
    /// Called when a round ends; `taken` is the number of readings so far. The first reading always counts as before
    /// the first copy. Single copies that are tried again after the patterns do not end the range.
    pub fn ended(&mut self, is_load: bool, taken: usize) {
        match (is_load, self.loaded) {
            (false, true) => {}
            (false, false) => (self.begin, self.end) = (taken, taken),
            (true, false) => {
                (self.begin, self.end, self.loaded) = (self.begin.max(1).min(taken), taken, true)
            }
            (true, true) => self.end = taken,
        }
    }

    /// Returns true if a load pattern ran.
    pub const fn is_some(self) -> bool {
        self.loaded
    }
}

/// Returns the summary of a GPU's readings.
pub fn summary(
    gpu: u32,
    all: &[LinkSample],
    during: During,
    counted: Option<&LoadCounted>,
) -> AroundLoad {
    let (until_end, later) = all.split_at(during.end.min(all.len()));
    let (earlier, loaded) = until_end.split_at(during.begin.min(until_end.len()));
    let before = earlier.last();
    // Counters only rise. If the run was cut off, the last reading is the latest known value.
    let after = later.last().or(loaded.last());
    let both = before.zip(after);
    let rise = |of: fn(&LinkSample) -> Option<u64>| {
        let (before, after) = both?;
        Some(of(after)?.saturating_sub(of(before)?))
    };
    let errors =
        both.and_then(|(before, after)| Some(added(before.pcie_errors?, after.pcie_errors?)));
    let reason = match (before, later.last(), counted) {
        (None, ..) => Some("NVML gave no reading before the first load pattern"),
        (_, None, _) => Some("NVML gave no reading after the last load pattern"),
        (.., None) => Some("the counters of NVLinks were not read after the last load pattern"),
        _ => None,
    };
    AroundLoad {
        gpu,
        before: readings(before.into_iter()),
        during: readings(loaded.iter()),
        after: readings(later.last().into_iter()),
        replays_added: rise(|sample| sample.replays),
        pcie_errors_added: errors,
        ecc_uncorrected_added: rise(|sample| sample.ecc_uncorrected),
        nvlink_errors: counted.and_then(|counted| counted.nvlink_of(gpu)),
        reason: reason.map(String::from),
    }
}

fn added(before: PcieErrors, after: PcieErrors) -> PcieErrors {
    PcieErrors {
        correctable: after.correctable.saturating_sub(before.correctable),
        non_fatal: after.non_fatal.saturating_sub(before.non_fatal),
        fatal: after.fatal.saturating_sub(before.fatal),
    }
}

fn readings<'a>(all: impl ExactSizeIterator<Item = &'a LinkSample> + Clone) -> GpuReadings {
    let range = |of: fn(&LinkSample) -> Option<u32>| {
        let known = || all.clone().filter_map(of);
        Some([known().min()?, known().max()?])
    };
    let mut throttle_reasons: Vec<String> =
        all.clone().flat_map(|sample| sample.throttle_reasons.iter().cloned()).collect();
    throttle_reasons.sort();
    throttle_reasons.dedup();
    GpuReadings {
        readings: u32::try_from(all.len()).unwrap_or(u32::MAX),
        sm_clock_mhz: range(|sample| sample.sm_clock_mhz),
        memory_clock_mhz: range(|sample| sample.memory_clock_mhz),
        temperature_c: range(|sample| sample.temperature_c),
        throttle_reasons,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::NvLinksCounted;

    fn sample(replays: u64, celsius: u32, reasons: &[&str]) -> LinkSample {
        LinkSample {
            replays: Some(replays),
            pcie_errors: Some(PcieErrors { correctable: 2 * replays, non_fatal: 0, fatal: 0 }),
            ecc_uncorrected: Some(0),
            temperature_c: Some(celsius),
            sm_clock_mhz: Some(1980),
            throttle_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            ..LinkSample::default()
        }
    }

    fn during(rounds: &[(bool, usize)]) -> During {
        let mut during = During::default();
        rounds.iter().for_each(|(is_load, taken)| during.ended(*is_load, *taken));
        assert!(during.is_some());
        during
    }

    #[test]
    fn readings_are_split_by_what_ran_meanwhile() {
        let samples = [
            sample(1, 30, &[]),
            sample(4, 31, &["hw-thermal"]),
            sample(5, 40, &["sw-power-cap"]),
            sample(9, 44, &[]),
            sample(9, 41, &[]),
        ];
        let during = during(&[(false, 1), (false, 2), (true, 3), (true, 4), (false, 5)]);
        let counted = LoadCounted {
            nvlinks: vec![NvLinksCounted { gpu: 3, added: Vec::new(), corrected: None }],
            aer: Vec::new(),
        };
        let seen = summary(3, &samples, during, Some(&counted));
        assert_eq!(
            (seen.gpu, seen.replays_added, seen.ecc_uncorrected_added),
            (3, Some(5), Some(0))
        );
        assert_eq!(seen.pcie_errors_added.map(|errors| errors.correctable), Some(10));
        assert_eq!((seen.before.readings, seen.during.readings, seen.after.readings), (1, 2, 1));
        let celsius =
            [&seen.before, &seen.during, &seen.after].map(|readings| readings.temperature_c);
        assert_eq!(celsius, [Some([31, 31]), Some([40, 44]), Some([41, 41])]);
        assert_eq!(
            (seen.before.throttle_reasons[0].as_str(), seen.during.throttle_reasons.len()),
            ("hw-thermal", 1)
        );
        assert_eq!(
            (seen.during.memory_clock_mhz, seen.nvlink_errors, seen.reason),
            (None, Some(Vec::new()), None)
        );
    }

    #[test]
    fn what_was_read_first_of_all_comes_before_and_what_is_missing_is_told() {
        let samples = [sample(1, 30, &[]), sample(2, 36, &[])];
        let seen = summary(0, &samples, during(&[(true, 2)]), None);
        assert_eq!(
            (seen.before.readings, seen.during.readings, seen.replays_added),
            (1, 1, Some(1))
        );
        assert!(seen.reason.unwrap().contains("after the last"));
        let seen = summary(0, &[], during(&[(true, 0)]), None);
        assert_eq!((seen.replays_added, seen.after.temperature_c), (None, None));
        assert!(seen.reason.unwrap().contains("before the first"));
    }
}
