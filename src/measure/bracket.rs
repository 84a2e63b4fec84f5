//! Readings before and after a job, and what was added between them. CUDA is not opened.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::counters::wrapping_added;
use super::watch::{nvlinks_counted, rises, summary};
use hardware::{Counts, LinkSample, Telemetry};
use model::bracket::GpuBracket;
use model::counted::PCIE_COUNTER_RANGE;
use model::measurement::{AerAdded, LinkUnderLoad};
use model::reading::Reading;
use model::snapshot::{Gpu, Host, NvLink, Snapshot, Xid};
use model::units::Bytes;

/// Longest wait for the readings of all GPUs. On H200 those of 8 GPUs take 20 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// The counters of one GPU at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuTaken {
    pub gpu: u32,
    pub sample: LinkSample,
    pub counts: Counts,
}

/// Everything that was read at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    pub snapshot: Snapshot,
    pub gpus: Vec<GpuTaken>,
}

/// Reads the counters of the GPUs of these facts, each on a thread of its own: NVML can block for minutes. A GPU that does
/// not answer in time is missing.
pub fn take(telemetry: &Arc<dyn Telemetry>, snapshot: Snapshot) -> Taken {
    let (answer, inbox) = mpsc::channel();
    for gpu in snapshot.gpus.iter().map(|gpu| gpu.index) {
        let (telemetry, answer) = (Arc::clone(telemetry), answer.clone());
        // If the thread cannot start, the GPU is missing.
        let _ = std::thread::Builder::new().spawn(move || {
            // The receiver is gone if the reading took too long.
            let _ = answer.send(GpuTaken {
                gpu,
                sample: telemetry.sample(gpu),
                counts: telemetry.counts(gpu, &[]),
            });
        });
    }
    drop(answer);
    let until = Instant::now() + telemetry.patience(PATIENCE);
    let next = || {
        let left = until.saturating_duration_since(Instant::now());
        inbox.recv_timeout(left).ok()
    };
    let mut gpus: Vec<GpuTaken> = std::iter::from_fn(next).collect();
    gpus.sort_by_key(|taken| taken.gpu);
    Taken { snapshot, gpus }
}

/// Readings while a job ran, of which only those are kept in which something changed: a job can take weeks.
#[derive(Debug, Default)]
pub struct Meanwhile(HashMap<u32, Vec<LinkSample>>);

impl Meanwhile {
    /// Adds the next reading of a GPU.
    pub fn add(&mut self, gpu: u32, sample: LinkSample) {
        let kept = self.0.entry(gpu).or_default();
        let state = |sample: &LinkSample| {
            let reasons = sample.throttle_reasons.clone();
            (sample.generation, sample.width, reasons)
        };
        let is_new = kept.last().is_none_or(|last| state(last) != state(&sample));
        if is_new && kept.len() < LinkUnderLoad::MOST_STATES {
            kept.push(sample);
        }
    }
}

/// What was added between two readings.
#[derive(Debug, Default)]
pub struct Added {
    pub gpus: Vec<GpuBracket>,
    pub links: Vec<LinkUnderLoad>,
    pub aer: Vec<AerAdded>,
    pub xids: Option<Vec<Xid>>,
    /// Counters that were not compared, a sentence each.
    pub not_read: Vec<String>,
    /// The reason why nothing is comparable, if nothing is.
    pub began_again: Option<String>,
}

/// Returns what was added from one reading to the next. GPUs are matched by address, or by UUID: their indices change if
/// one falls off.
pub fn added(before: &Taken, after: &Taken, meanwhile: &Meanwhile) -> Added {
    let mut added =
        Added { aer: rises(&before.snapshot.pci, &after.snapshot.pci), ..Added::default() };
    let (mut compared, mut went_back) = (0, Vec::new());
    for gpu in &after.snapshot.gpus {
        let Some(was) = counterpart(gpu, &before.snapshot) else {
            continue;
        };
        let find = |taken: &'_ Taken, index| {
            let of_gpu = |taken: &&GpuTaken| taken.gpu == index;
            taken.gpus.iter().find(of_gpu).cloned()
        };
        let (Some(first), Some(last)) = (find(before, was.index), find(after, gpu.index)) else {
            let name = gpu.label();
            added
                .not_read
                .push(format!("the counters of {name} were not read: NVML did not answer in time"));
            continue;
        };
        let two = Two { was, gpu, first, last };
        compared += 1;
        if let Some(why) = two.went_back() {
            went_back.push(format!(
                "the counters of {} began again ({why}): it was reset, or its driver was loaded again",
                gpu.label()
            ));
            continue;
        }
        let during = meanwhile.0.get(&was.index);
        added.links.push(two.link(during.map_or(&[], Vec::as_slice)));
        added.gpus.push(two.traffic());
    }
    if compared > 0 && went_back.len() == compared {
        added.began_again = Some(match went_back.as_slice() {
            [only] => only.clone(),
            _ => "the counters of all GPUs began again: they were reset, or their driver was loaded again".into(),
        });
    }
    added.not_read.extend(went_back);
    match xids(&before.snapshot.host, &after.snapshot.host) {
        Ok(xids) => added.xids = Some(xids),
        Err(why) => added.not_read.push(format!(
            "Xid messages are not known, since the kernel's log was not read: {why}"
        )),
    }
    added
}

/// Returns the same GPU in an earlier snapshot.
fn counterpart<'a>(gpu: &Gpu, earlier: &'a Snapshot) -> Option<&'a Gpu> {
    let is_same = |was: &&Gpu| match (gpu.pci.get(), was.pci.get()) {
        (Some(now), Some(then)) => now == then,
        _ => gpu.uuid.known().is_some() && gpu.uuid.known() == was.uuid.known(),
    };
    earlier.gpus.iter().find(is_same)
}

/// A GPU before and after.
struct Two<'a> {
    was: &'a Gpu,
    gpu: &'a Gpu,
    first: GpuTaken,
    last: GpuTaken,
}

impl Two<'_> {
    /// Returns a counter that is lower than before, in words. The PCIe counter of bytes may have wrapped.
    fn went_back(&self) -> Option<String> {
        let (first, last) = (&self.first, &self.last);
        let of_link = |counter: fn(&NvLink) -> &Reading<u64>| {
            let sum = |gpu: &Gpu| -> Option<u64> {
                let links = gpu.nvlinks.known()?.iter();
                links.filter_map(|link| counter(link).get()).reduce(u64::saturating_add)
            };
            (sum(self.was), sum(self.gpu))
        };
        let bytes = |way: usize| {
            let of = |counts: &Counts| counts.nvlink.map(|bytes| bytes[way]);
            (of(&first.counts), of(&last.counts))
        };
        let errors = |sample: &LinkSample| {
            let errors = sample.pcie_errors?;
            Some(errors.correctable.saturating_add(errors.non_fatal).saturating_add(errors.fatal))
        };
        let counters = [
            ("bytes sent over NVLink", bytes(0)),
            ("bytes received over NVLink", bytes(1)),
            ("CRC errors", of_link(|link| &link.crc_errors)),
            ("NVLink replays", of_link(|link| &link.replay_errors)),
            ("NVLink recoveries", of_link(|link| &link.recovery_errors)),
            ("PCIe replays", (first.sample.replays, last.sample.replays)),
            ("PCIe errors", (errors(&first.sample), errors(&last.sample))),
            (
                "uncorrected memory errors",
                (first.sample.ecc_uncorrected, last.sample.ecc_uncorrected),
            ),
        ];
        counters.into_iter().find_map(|(what, both)| match both {
            (Some(then), Some(now)) if now < then => Some(format!("{what} from {then} to {now}")),
            _ => None,
        })
    }

    /// Returns what the link, the memory and the NVLinks counted, as a check counts it.
    fn link(&self, meanwhile: &[LinkSample]) -> LinkUnderLoad {
        let first = [self.first.sample.clone()];
        let last = [self.last.sample.clone()];
        let all: Vec<LinkSample> = [&first[..], meanwhile, &last[..]].concat();
        let mut link = summary(self.gpu.index, &all);
        let before = &self.first.sample.throttle_reasons;
        link.throttle_reasons.retain(|reason| !before.contains(reason));
        let counted = self.was.nvlinks.known().and_then(|was| {
            let links = self.gpu.nvlinks.known()?.iter();
            let active = links.filter(|link| link.active.get() == Some(true));
            let now = HashMap::from([(self.gpu.index, active.cloned().collect())]);
            nvlinks_counted(self.gpu.index, was, &now)
        });
        (link.nvlink_errors, link.nvlink_corrected) = match counted {
            Some(counted) => (Some(counted.added), counted.corrected),
            None => (None, None),
        };
        link
    }

    fn traffic(&self) -> GpuBracket {
        let (then, now) = (&self.first.counts, &self.last.counts);
        let nvlink = |way: usize| {
            let (then, now) = (then.nvlink?[way], now.nvlink?[way]);
            Some(Bytes(now.saturating_sub(then)))
        };
        let is_wide = [then.pcie, now.pcie]
            .into_iter()
            .flatten()
            .flatten()
            .any(|bytes| bytes >= PCIE_COUNTER_RANGE);
        let pcie = |way: usize| {
            let (then, now) = (then.pcie?[way], now.pcie?[way]);
            (now >= then || !is_wide).then(|| Bytes(wrapping_added(then, now)))
        };
        let both =
            |of: fn(&LinkSample) -> Option<u32>| [of(&self.first.sample), of(&self.last.sample)];
        GpuBracket {
            index: self.gpu.index,
            nvlink_sent_bytes: nvlink(0),
            nvlink_received_bytes: nvlink(1),
            pcie_sent_bytes: pcie(0),
            pcie_received_bytes: pcie(1),
            pcie_is_least: now.pcie.is_some() && !is_wide,
            sm_clock_mhz: both(|sample| sample.sm_clock_mhz),
            temperature_c: both(|sample| sample.temperature_c),
            reason: then.failure.clone().or_else(|| now.failure.clone()),
        }
    }
}

/// Returns the Xid messages that are new, or the reason why that is not known. The log forgets its oldest messages, so that
/// a code may have come more often than the difference says.
fn xids(before: &Host, after: &Host) -> Result<Vec<Xid>, String> {
    let of = |host: &Host| match &host.xids {
        Reading::Known(xids) => Ok(xids.clone()),
        Reading::Unknown(why) => Err(why.to_string()),
    };
    let (before, after) = (of(before)?, of(after)?);
    let new = |xid: Xid| {
        let was = before.iter().find(|was| (was.pci, was.code) == (xid.pci, xid.code));
        let Some(was) = was else { return Some(xid) };
        let is_later = xid.seconds_since_boot > was.seconds_since_boot || xid.times > was.times;
        let times = xid.times.saturating_sub(was.times).max(1);
        is_later.then_some(Xid { times, ..xid })
    };
    Ok(after.into_iter().filter_map(new).collect())
}

#[cfg(test)]
#[path = "bracket_tests.rs"]
mod tests;
