//! Readings of a GPU, taken together until the minute ends.

use model::reading::Unknown;

/// Sums of the readings of a GPU in this minute.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    pub temperature: Sum,
    pub hottest: Option<u32>,
    pub sm_clock: Sum,
    pub memory_clock: Sum,
    pub throttle_reasons: Vec<String>,
    pub link: Option<[u8; 2]>,
    /// First and last count since the last minute.
    pub replays: Option<[u64; 2]>,
    pub memory_errors: Option<[u64; 2]>,
    /// Xid errors; unknown if one reading of the minute is.
    pub xids: Option<Result<Vec<u32>, Unknown>>,
}

impl Readings {
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
