//! How much of what was asked for was tested, and why the rest was not.

use std::collections::BTreeMap;

use crate::model::measurement::{Hidden, Measurements, Status, Verified};
use crate::model::placement::{Pair, Path};

/// One measurement that was asked for, whatever its probe.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// What was measured.
    pub probe: &'static str,
    /// The pair.
    pub pair: Pair,
    /// Direct or staged, where that is told apart.
    pub path: Option<Path>,
    /// How it ended.
    pub status: Status,
    /// Whether it has a figure.
    pub has_figure: bool,
    /// Why there is no figure.
    pub reason: Option<&'a str>,
    /// Whether the bytes arrived.
    pub verified: Verified,
}

impl Cell<'_> {
    /// Whether it has an answer. Wrong bytes are one, whatever became of the timing.
    pub fn tested(&self) -> bool {
        matches!(self.verified, Verified::Dropped | Verified::Corrupt)
            || (self.status == Status::Measured && self.has_figure)
    }
}

/// Every measurement that was asked for.
///
/// A pair that CUDA denies peer access is tested by its staged copies: a direct one that was
/// skipped for that is not one that was asked for.
pub fn cells(measurements: &Measurements) -> impl Iterator<Item = Cell<'_>> {
    let denied = |pair| measurements.driver.said_of(pair).is_some_and(|said| said.possible == Some(false));
    let peer = measurements.peer.iter().map(|cell| Cell {
        probe: "bandwidth",
        pair: cell.pair,
        path: Some(cell.path),
        status: cell.status,
        has_figure: cell.achieved_gbps.is_some(),
        reason: cell.reason.as_deref(),
        verified: cell.verified,
    });
    let overlap = measurements.overlap.iter().map(|cell| Cell {
        probe: "overlap",
        pair: cell.pair,
        path: None,
        status: cell.status,
        has_figure: cell.overlap_percent.is_some(),
        reason: cell.reason.as_deref(),
        verified: Verified::Skipped,
    });
    let latency = measurements.latency.iter().map(|cell| Cell {
        probe: "latency",
        pair: cell.pair,
        path: Some(cell.path),
        status: cell.status,
        has_figure: cell.latency_us.is_some(),
        reason: cell.reason.as_deref(),
        verified: Verified::Skipped,
    });
    peer.chain(overlap)
        .chain(latency)
        .filter(move |cell| !(cell.status == Status::Skipped && cell.path == Some(Path::Direct) && denied(cell.pair)))
}

/// GPUs that were asked for and could not be used, with the reason.
pub fn unusable(measurements: &Measurements) -> impl Iterator<Item = (u32, &str)> {
    measurements.driver.devices.iter().filter_map(|device| Some((device.index, device.failure.as_deref()?)))
}

/// Of those, the GPUs that CUDA does not show while it shows others, with the reason.
pub fn hidden(measurements: &Measurements) -> impl Iterator<Item = (u32, Hidden, &str)> {
    let devices = &measurements.driver.devices;
    let shows_some = devices.iter().any(|device| device.ordinal.is_some());
    let hidden = devices.iter().filter(move |device| shows_some && device.ordinal.is_none());
    // What NVML could not identify, CUDA was not asked for.
    hidden.filter_map(|device| Some((device.index, device.hidden?, device.failure.as_deref()?)))
}

/// Counts of what was tested and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Measurements with an answer.
    pub tested: u32,
    /// Measurements without.
    pub untested: u32,
    /// Of those with an answer, how many have a figure of which it could not be told whether the
    /// bytes arrived.
    pub unverified: u32,
    /// Of those without, how many are lost with GPUs that CUDA does not show.
    pub hidden: u32,
    /// Why those without a fault of their own (skipped) have none, with counts; without those of
    /// hidden GPUs.
    pub reasons: BTreeMap<String, u32>,
}

/// Counts what was tested and what was not.
pub fn coverage(measurements: &Measurements) -> Coverage {
    let mut coverage = Coverage::default();
    for cell in cells(measurements) {
        if cell.tested() {
            coverage.tested += 1;
            coverage.unverified += u32::from(cell.verified == Verified::Inconclusive);
            continue;
        }
        coverage.untested += 1;
        let reason = match cell.status {
            Status::Skipped => cell.reason.unwrap_or("no reason given").to_owned(),
            Status::Measured => "measured, says the report, and has no figure".to_owned(),
            Status::Failed | Status::Hung => continue,
        };
        *coverage.reasons.entry(reason).or_default() += 1;
    }
    // What could have been measured with a GPU that cannot be used is not known: its pairs count as
    // one each.
    let gpus: Vec<u32> = measurements.driver.devices.iter().map(|device| device.index).collect();
    let mut pairs = Pair::ordered(&gpus);
    for (gpu, reason) in unusable(measurements) {
        let of_gpu = |pair: &Pair| pair.touches(gpu);
        if cells(measurements).any(|cell| of_gpu(&cell.pair)) {
            continue;
        }
        let lost = pairs.iter().filter(|pair| of_gpu(pair)).count();
        pairs.retain(|pair| !of_gpu(pair));
        let lost = u32::try_from(lost).unwrap_or(u32::MAX).max(1);
        coverage.untested += lost;
        if hidden(measurements).any(|(index, ..)| index == gpu) {
            coverage.hidden += lost;
            continue;
        }
        *coverage.reasons.entry(format!("GPU {gpu} and its pairs: {reason}")).or_default() += lost;
    }
    coverage
}
