//! Watches PCIe links and throttling while copies run. An idle GPU drops its link to Gen1, so only a reading under load
//! shows the speed of a slot. A link that trains down also does so under load.

pub mod background;
pub mod counters;
pub(crate) mod errors;
pub(crate) mod foreign;
pub mod traffic;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::watch::errors::{collect_links, read_functions, read_links};
use hardware::{LinkSample, Sampler, Telemetry};
use model::measurement::{AerAdded, LinkState, LinkUnderLoad, NvLinkCorrected, NvLinkErrorsAdded};
use model::reading::Reading;
use model::snapshot::{Gpu, NvLink, NvLinkPacketErrors, PciFunction, PcieErrors, Snapshot};
use model::units::{Generation, Lanes};

/// Time between readings of one GPU. One reading takes 0.36 ms, and reading without a pause cost 0.04% of bandwidth on
/// H200. So the cost at this interval is not visible.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same for hours, whose minutes have means of many readings.
const INTERVAL_FOR_HOURS: Duration = Duration::from_secs(1);
/// Longest wait for a reading in flight at the end.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest wait for the error counters of NVLinks at the end. On H200 NVML took 16 ms for those of 18 links in one
/// call. It read one GPU after the other whatever the threads.
const COUNTER_PATIENCE: Duration = Duration::from_secs(1);

/// A watch over some GPUs.
pub struct Watch {
    telemetry: Arc<dyn Telemetry>,
    sampler: Box<dyn Sampler>,
}

impl Watch {
    /// Begins to watch these GPUs.
    pub fn start(telemetry: &Arc<dyn Telemetry>, gpus: &[u32]) -> Self {
        Self::start_every(telemetry, gpus, INTERVAL)
    }

    /// Begins to watch these GPUs for hours.
    pub fn start_for_hours(telemetry: &Arc<dyn Telemetry>, gpus: &[u32]) -> Self {
        telemetry.listen();
        Self::start_every(telemetry, gpus, INTERVAL_FOR_HOURS)
    }

    fn start_every(telemetry: &Arc<dyn Telemetry>, gpus: &[u32], interval: Duration) -> Self {
        Self {
            telemetry: Arc::clone(telemetry),
            sampler: Arc::clone(telemetry).sampler(gpus, interval),
        }
    }

    /// Reports the current worker's clock.
    pub fn follow(&mut self, now: Duration) {
        self.sampler.follow(now);
    }

    /// Returns why GPUs are not watched, a sentence each.
    pub fn unwatched(&self) -> Vec<String> {
        self.sampler.unwatched()
    }

    /// Returns the readings since the last call, by GPU.
    pub fn drain(&self) -> Vec<(u32, LinkSample)> {
        self.sampler.drain()
    }

    /// Takes the last readings, for which [`Self::drain`] waits no longer. Returns GPUs whose last reading did not come.
    pub fn stop(&mut self) -> Vec<u32> {
        self.sampler.stop();
        self.sampler.late(self.telemetry.patience(PATIENCE))
    }

    /// Ends the watch. Returns the last readings, and the increase of counters since the snapshot.
    pub fn finish(mut self, before: &Snapshot) -> (Vec<(u32, LinkSample)>, Counted) {
        self.sampler.stop();
        let patience = |usual| self.telemetry.patience(usual);
        // Read the counters beside the last readings: on H200 they take longer.
        let counters = read_links(&self.telemetry, &before.gpus);
        let late = self.sampler.late(PATIENCE);
        let after = collect_links(&counters, patience(COUNTER_PATIENCE));
        let functions =
            read_functions(&self.telemetry).recv_timeout(patience(PATIENCE)).unwrap_or_default();
        let of = |gpu: &Gpu| nvlinks_counted(gpu.index, gpu.nvlinks.known()?, &after);
        let nvlinks = before.gpus.iter().filter_map(of).collect();
        let counted = Counted { late, nvlinks, aer: rises(&before.pci, &functions) };
        (self.drain(), counted)
    }
}

/// Counters that were read again after the copies had ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// GPUs whose last reading did not come in time.
    pub late: Vec<u32>,
    /// GPUs whose NVLink counters were read both times.
    pub nvlinks: Vec<NvLinksCounted>,
    /// PCI functions whose AER counters rose.
    pub aer: Vec<AerAdded>,
}

/// Error counts of a GPU's active NVLinks, without those that counted nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NvLinksCounted {
    pub gpu: u32,
    /// Counts by link.
    pub added: Vec<NvLinkErrorsAdded>,
    /// Symbols that forward error correction corrected, by link; none if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Vec<NvLinkCorrected>>,
}

impl Counted {
    /// Returns the counts of this GPU's NVLinks; none if they were not read both times.
    pub fn nvlink_of(&self, gpu: u32) -> Option<Vec<NvLinkErrorsAdded>> {
        let own = self.nvlinks.iter().find(|counted| counted.gpu == gpu)?;
        Some(own.added.clone())
    }

    /// Returns what this GPU's NVLinks corrected; none if it was not read both times.
    pub fn corrected_of(&self, gpu: u32) -> Option<Vec<NvLinkCorrected>> {
        let own = self.nvlinks.iter().find(|counted| counted.gpu == gpu)?;
        own.corrected.clone()
    }
}

/// Returns the error counts of a GPU's NVLinks between two readings.
pub(crate) fn nvlinks_counted(
    gpu: u32,
    before: &[NvLink],
    after: &HashMap<u32, Vec<NvLink>>,
) -> Option<NvLinksCounted> {
    let after = after.get(&gpu)?;
    Some(NvLinksCounted {
        gpu,
        added: errors_added(before, after)?,
        corrected: corrected(before, after),
    })
}

/// Returns the links that corrected symbols; none if no link counts them, or if one was not read both times.
fn corrected(before: &[NvLink], after: &[NvLink]) -> Option<Vec<NvLinkCorrected>> {
    let unsupported = Reading::unsupported();
    let mut links = None;
    for after in after {
        let before = before.iter().find(|link| link.link == after.link)?;
        if before.fec_histogram == unsupported && after.fec_histogram == unsupported {
            continue;
        }
        let (then, now) = (before.fec_histogram.known()?, after.fec_histogram.known()?);
        let rise = now.iter().zip(then);
        let mut codewords: Vec<u64> = rise.map(|(now, then)| now.saturating_sub(*then)).collect();
        let most = codewords.iter().rposition(|count| *count > 0);
        codewords.truncate(most.map_or(0, |most| most + 1));
        let link = NvLinkCorrected { link: after.link, codewords };
        let links: &mut Vec<NvLinkCorrected> = links.get_or_insert_default();
        if link.from(1) > 0 {
            links.push(link);
        }
    }
    links
}

/// Returns the links that counted errors; none if a counter was not read both times. Counters that a link does not have
/// stay at 0; one that has none at all was not watched.
fn errors_added(before: &[NvLink], after: &[NvLink]) -> Option<Vec<NvLinkErrorsAdded>> {
    let mut added = Vec::new();
    for after in after {
        let before = before.iter().find(|link| link.link == after.link)?;
        let mut counters = 0;
        let mut rise = |figure: fn(&NvLink) -> &Reading<u64>| {
            if figure(after) == &Reading::unsupported() && figure(before) == figure(after) {
                return Some(0);
            }
            counters += 1;
            Some(figure(after).get()?.saturating_sub(figure(before).get()?))
        };
        let link = NvLinkErrorsAdded {
            link: after.link,
            crc: rise(|link| &link.crc_errors)?,
            replay: rise(|link| &link.replay_errors)?,
            recovery: rise(|link| &link.recovery_errors)?,
            ..packet_errors_added(before, after)?
        };
        // An inactive link has no counters either.
        if counters == 0 && after.active.get() != Some(false) {
            return None;
        }
        if link.all() > 0 {
            added.push(link);
        }
    }
    Some(added)
}

/// Returns the errors that NVLink 5 and later count; none if they were not read both times.
fn packet_errors_added(before: &NvLink, after: &NvLink) -> Option<NvLinkErrorsAdded> {
    let unsupported = Reading::unsupported();
    if before.packet_errors == unsupported && after.packet_errors == unsupported {
        return Some(NvLinkErrorsAdded::default());
    }
    let (before, after) = (before.packet_errors.get()?, after.packet_errors.get()?);
    let rise = |of: fn(&NvLinkPacketErrors) -> Option<u64>| {
        let both = of(&after).zip(of(&before));
        both.map_or(0, |(after, before)| after.saturating_sub(before))
    };
    Some(NvLinkErrorsAdded {
        failed_recovery: rise(|errors| errors.failed_recoveries),
        packet: rise(|errors| errors.lost_packets),
        effective: rise(|errors| errors.uncorrected),
        ..NvLinkErrorsAdded::default()
    })
}

/// Returns the summary of the readings of a GPU's link.
pub fn summary(index: u32, readings: &[LinkSample]) -> LinkUnderLoad {
    let samples = || readings.iter();
    let range = |figure: fn(&LinkSample) -> Option<u8>| {
        let known = || samples().filter_map(figure);
        Some([known().min()?, known().max()?])
    };
    let rise = |figure: fn(&LinkSample) -> Option<u64>| {
        let mut known = samples().filter_map(figure);
        let first = known.next()?;
        Some(known.next_back().unwrap_or(first).saturating_sub(first))
    };
    let mut pcie_errors = samples().filter_map(|sample| sample.pcie_errors);
    let pcie_errors_before = pcie_errors.next();
    let mut throttle_reasons: Vec<String> =
        samples().flat_map(|sample| sample.throttle_reasons.iter().cloned()).collect();
    throttle_reasons.sort();
    throttle_reasons.dedup();
    LinkUnderLoad {
        index,
        readings: u32::try_from(readings.len()).unwrap_or(u32::MAX),
        generation: range(|sample| sample.generation.map(Generation::number)),
        width: range(|sample| sample.width.map(Lanes::number)),
        states: states(readings),
        ecc_uncorrected_added: rise(|sample| sample.ecc_uncorrected),
        replays_added: rise(|sample| sample.replays),
        pcie_errors_before,
        pcie_errors_after: pcie_errors.next_back().or(pcie_errors_before),
        nvlink_errors: None,
        nvlink_corrected: None,
        throttle_reasons,
        temperature_max_c: samples().filter_map(|sample| sample.temperature_c).max(),
        reason: None,
    }
}

/// Returns the functions whose counters rose. A counter that fell was reset, and is ignored.
pub(crate) fn rises(before: &[PciFunction], after: &[PciFunction]) -> Vec<AerAdded> {
    let rise = |after: &PciFunction| {
        let before = before.iter().find(|before| before.address == after.address)?;
        let by = |of: fn(&PciFunction) -> Option<u64>| {
            of(after).zip(of(before)).map_or(0, |(after, before)| after.saturating_sub(before))
        };
        let added = PcieErrors {
            correctable: by(|function| function.aer_correctable.get()),
            non_fatal: by(|function| function.aer_nonfatal.get()),
            fatal: by(|function| function.aer_fatal.get()),
        };
        (added != PcieErrors::default()).then_some(AerAdded { address: after.address, added })
    };
    after.iter().filter_map(rise).collect()
}

/// Returns the successive states of the link.
fn states(readings: &[LinkSample]) -> Vec<LinkState> {
    let state = |(reading, sample): (usize, &LinkSample)| {
        let reading = u32::try_from(reading).unwrap_or(u32::MAX);
        Some(LinkState {
            reading,
            generation: sample.generation?.number(),
            width: sample.width?.number(),
        })
    };
    let mut states: Vec<LinkState> = readings.iter().enumerate().filter_map(state).collect();
    states.dedup_by_key(|state| (state.generation, state.width));
    states.truncate(LinkUnderLoad::MOST_STATES);
    states
}

#[cfg(test)]
mod tests;
