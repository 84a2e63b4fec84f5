//! Readings of a GPU, taken together until the minute ends.

use std::collections::BTreeMap;

use hardware::{HELD_BY, Power};
use model::reading::Unknown;

/// Sums of the readings of a GPU in this minute.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    pub temperature: Sum,
    pub hottest: Option<u32>,
    pub sm_clock: Sum,
    pub memory_clock: Sum,
    pub power: Sum,
    pub power_limit: Option<u32>,
    pub memory_temperature: Sum,
    pub energy: Option<[u64; 2]>,
    pub held: [Option<[u64; 2]>; 4],
    pub throttle_reasons: Vec<String>,
    pub link: Option<[u8; 2]>,
    /// First and last count since the last minute.
    pub replays: Option<[u64; 2]>,
    pub memory_errors: Option<[u64; 2]>,
    /// Xid errors; unknown if one reading of the minute is.
    pub xids: Option<Result<Vec<u32>, Unknown>>,
}

impl Readings {
    /// Takes power, energy and what depends on them.
    pub(crate) fn draws(&mut self, power: &Power) {
        self.power.add(power.milliwatts);
        self.power_limit = power.limit_milliwatts.or(self.power_limit);
        self.memory_temperature.add(power.memory_c);
        count(&mut self.energy, power.millijoules);
        for (held, now) in self.held.iter_mut().zip(power.held_ns) {
            count(held, now);
        }
    }

    /// Returns the nanoseconds by which each reason held the clocks back in this minute.
    pub(crate) fn held_ns(&self) -> BTreeMap<String, u64> {
        let added = self
            .held
            .iter()
            .map(|counts| counts.map_or(0, |[first, last]| last.saturating_sub(first)));
        let held = HELD_BY.iter().zip(added).filter(|(_, added)| *added > 0);
        held.map(|(reason, added)| ((*reason).to_owned(), added)).collect()
    }

    /// Takes the Xid errors since the last reading.
    pub(crate) fn heard(&mut self, xids: &Result<Vec<u32>, Unknown>) {
        match (&mut self.xids, xids) {
            (None, first) => self.xids = Some(first.clone()),
            (Some(Ok(all)), Ok(more)) => all.extend(more),
            (Some(Ok(_)), unknown) => self.xids = Some(unknown.clone()),
            (Some(Err(_)), _) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    count: f64,
    sum: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, value: Option<u32>) {
        if let Some(value) = value {
            self.count += 1.0;
            self.sum += f64::from(value);
        }
    }

    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| (100.0 * self.sum / self.count).round() / 100.0)
    }
}

/// Takes a count: the first one stays, the last one is replaced.
pub(crate) fn count(counts: &mut Option<[u64; 2]>, now: Option<u64>) {
    if let Some(now) = now {
        let [first, _] = counts.unwrap_or([now, now]);
        *counts = Some([first, now]);
    }
}
