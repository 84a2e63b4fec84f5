//! Counts how much of what was asked for was tested, and why the rest was not.

use std::collections::BTreeMap;

use model::measurement::Cell;
use model::measurement::{Hidden, Measurements, Status, Verified};
use model::placement::{Pair, Path};

/// Returns every measurement that was asked for.
///
/// A pair that CUDA denies peer access is tested by its staged copies. A direct one that was skipped for that reason
/// does not count as asked for. Nor does one that the platform cannot make, as the driver says.
pub fn cells(measurements: &Measurements) -> impl Iterator<Item = Cell<'_>> {
    let denied = |cell: &Cell<'_>| {
        let said = cell.flow.pair().and_then(|pair| measurements.driver.said_of(pair));
        cell.setup.path == Path::Direct && said.is_some_and(|said| said.possible == Some(false))
    };
    measurements
        .cells()
        .filter(move |cell| cell.status != Status::Skipped || !(cell.not_supported || denied(cell)))
}

/// Returns GPUs that were asked for and could not be used, with the reason.
pub(crate) fn unusable(measurements: &Measurements) -> impl Iterator<Item = (u32, &str)> {
    measurements
        .driver
        .devices
        .iter()
        .filter_map(|device| Some((device.index, device.failure.as_deref()?)))
}

/// Returns those of the unusable GPUs that CUDA does not show while it shows others, with the reason.
pub(crate) fn hidden(measurements: &Measurements) -> impl Iterator<Item = (u32, Hidden, &str)> {
    let devices = &measurements.driver.devices;
    let shows_some = devices.iter().any(|device| device.ordinal.is_some());
    let hidden = devices.iter().filter(move |device| shows_some && device.ordinal.is_none());
    // CUDA was not asked for GPUs that NVML could not identify.
    hidden.filter_map(|device| Some((device.index, device.hidden?, device.failure.as_deref()?)))
}

/// Counts of what was tested and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// Measurements with a result.
    pub tested: u32,
    /// Number of tested ways from one place to another, and of those within a place whose probe counts them as ways.
    pub tested_ways: u32,
    /// Measurements without a result.
    pub untested: u32,
    /// Measurements with a result whose figure exists but whose bytes are not known to have arrived.
    pub unverified: u32,
    /// Untested measurements that are lost with GPUs that CUDA does not show.
    pub hidden: u32,
    /// Untested measurements whose figure another program disturbed.
    pub set_aside: u32,
    /// Why skipped measurements have no result, with counts. Excludes hidden GPUs and disturbed figures.
    pub reasons: BTreeMap<String, u32>,
}

/// Returns the number of measurements that have an outcome, whatever it is, and the number planned.
pub fn outcomes(measurements: &Measurements) -> (usize, usize) {
    let has_outcome = |cell: &Cell<'_>| cell.status != Status::Skipped;
    (cells(measurements).filter(has_outcome).count(), cells(measurements).count())
}

/// Counts what was tested and what was not.
pub(crate) fn coverage(measurements: &Measurements) -> Coverage {
    let mut coverage = Coverage::default();
    for cell in cells(measurements) {
        if cell.tested() {
            coverage.tested += 1;
            let is_way = cell.flow.from != cell.flow.to || cell.probe.scope().is_way_within();
            coverage.tested_ways += u32::from(is_way);
            coverage.unverified += u32::from(cell.verified == Verified::Inconclusive);
            continue;
        }
        coverage.untested += 1;
        if cell.disturbed {
            coverage.set_aside += 1;
            continue;
        }
        let reason = match cell.status {
            Status::Skipped => cell.reason.unwrap_or("no reason given").to_owned(),
            Status::Measured => "measured, says the report, and has no figure".to_owned(),
            Status::Failed | Status::Hung => continue,
        };
        *coverage.reasons.entry(reason).or_default() += 1;
    }
    coverage.untested = coverage.untested.saturating_add(measurements.absent);
    // It is not known what could have been measured with a GPU that cannot be used: its pairs count as one each.
    let gpus: Vec<u32> = measurements.driver.devices.iter().map(|device| device.index).collect();
    let mut pairs = Pair::ordered(&gpus);
    for (gpu, reason) in unusable(measurements) {
        let of_gpu = |pair: &Pair| pair.touches(gpu);
        if cells(measurements).any(|cell| cell.uses(gpu)) {
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
