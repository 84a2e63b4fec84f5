//! Reads counters of links around known traffic, to compare the counted bytes with those sent.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::watch::foreign::{Whole, foreign};
use crate::{Action, Round, load};
use hardware::{Counts, Telemetry};
use model::background::Background;
use model::counted::{Counted, LinkShare, PCIE_COUNTER_RANGE};
use model::flow::{Endpoint, Flow};
use model::reading::Reading;
use model::snapshot::Snapshot;
use model::units::Bytes;

/// Longest wait for counters, each time: on H200 those of 18 links of 8 GPUs take 0.1 s in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// A GPU and its active NVLinks.
#[derive(Debug, Clone)]
struct Watched {
    gpu: u32,
    links: Vec<u8>,
}

/// The counters of some GPUs, read before and after rounds.
pub struct Counters {
    telemetry: Arc<dyn Telemetry>,
    gpus: Vec<Watched>,
    /// The current round, and the counters read before it.
    before: Option<(Round, HashMap<u32, Counts>)>,
    /// State across all load patterns together.
    whole: Whole,
    patience: Duration,
}

impl Counters {
    /// Prepares the counters of all GPUs of these facts, for these rounds.
    pub fn new(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot, rounds: &[Round]) -> Self {
        let watched = |gpu: &model::snapshot::Gpu| {
            let links = gpu.nvlinks.known().map_or(&[][..], Vec::as_slice).iter();
            let active = links.filter(|link| link.active == Reading::Known(true));
            Watched { gpu: gpu.index, links: active.map(|link| link.link).collect() }
        };
        let gpus = snapshot.gpus.iter().map(watched).collect();
        let patience = telemetry.patience(PATIENCE);
        let telemetry = Arc::clone(telemetry);
        Self { telemetry, gpus, before: None, whole: Whole::of(rounds), patience }
    }

    /// Waits this long for the driver, if that is longer than usual.
    #[must_use]
    pub fn waiting(mut self, limit: Option<Duration>) -> Self {
        self.patience = self.patience.max(limit.unwrap_or_default());
        self
    }

    /// Reads the counters before a round.
    pub fn begin(&mut self, round: &Round) {
        let read = self.read(true);
        self.whole.begin(&read);
        self.before = Some((round.clone(), read));
    }

    /// Reads the counters after a round, if it was the last to begin and has ended well.
    pub fn end(&mut self, id: u32, outcome: &Outcome) -> Vec<Counted> {
        let moved = self.whole.ended(id, outcome);
        let carried = |(flow, bytes): &(Flow, Bytes)| self.telemetry.carried(*flow, bytes.0);
        moved.iter().flatten().for_each(carried);
        let Some((round, before)) = self.before.take_if(|(round, _)| round.id == id) else {
            return Vec::new();
        };
        let Some(moved) = moved else {
            return Vec::new();
        };
        let after = self.read(true);
        let of = |watched: &Watched| {
            let counts = [before.get(&watched.gpu), after.get(&watched.gpu)];
            counted(&round, watched, &moved, counts)
        };
        self.gpus.iter().filter_map(of).collect()
    }

    /// Returns the NVLink traffic of other programs while load patterns ran, once the last pattern has ended. Contains
    /// the GPUs whose links carried other traffic.
    pub fn foreign(&mut self) -> Vec<Background> {
        let Some((before, own)) = self.whole.take() else {
            return Vec::new();
        };
        let after = self.read(false);
        foreign(&before, &after, &own)
    }

    /// Notes that the number of copied bytes is unknown from now on.
    pub fn lost(&mut self) {
        self.whole.before = None;
    }

    /// Reads the counters of all GPUs, and those of single links if `links` is true. Each GPU has a thread of its own:
    /// NVML can block for minutes on one of them. GPUs that are late, or for which no thread could start, are missing.
    fn read(&self, links: bool) -> HashMap<u32, Counts> {
        let (answer, inbox) = mpsc::channel();
        for watched in self.gpus.iter().cloned() {
            let (telemetry, answer) = (Arc::clone(&self.telemetry), answer.clone());
            let _ = std::thread::Builder::new().spawn(move || {
                // The receiver is gone if the reading took too long.
                let links = if links { watched.links.as_slice() } else { &[] };
                let _ = answer.send((watched.gpu, telemetry.counts(watched.gpu, links)));
            });
        }
        drop(answer);
        let until = Instant::now() + self.patience;
        let next = || inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).collect()
    }
}

/// Returns the counts of a GPU for known traffic; none if the GPU took no part in it.
fn counted(
    round: &Round,
    watched: &Watched,
    moved: &[(Flow, Bytes)],
    counts: [Option<&Counts>; 2],
) -> Option<Counted> {
    let Action::Load(load::Load { pattern, .. }) = round.task.action else {
        return None;
    };
    let gpu = Endpoint::Gpu(watched.gpu);
    if !round.flows.iter().any(|flow| flow.ends().contains(&gpu)) {
        return None;
    }
    let sum = |is: &dyn Fn(&Flow) -> bool| {
        Bytes(moved.iter().filter(|(flow, _)| is(flow)).map(|(_, bytes)| bytes.0).sum())
    };
    let mut counted = Counted {
        sent_bytes: sum(&|flow| flow.from == gpu && flow.pair().is_some()),
        received_bytes: sum(&|flow| flow.to == gpu && flow.pair().is_some()),
        sent_to_host_bytes: sum(&|flow| flow.from == gpu && flow.with_host().is_some()),
        received_from_host_bytes: sum(&|flow| flow.to == gpu && flow.with_host().is_some()),
        ..Counted::unread(watched.gpu, pattern, round.name.clone(), None)
    };
    let [Some(before), Some(after)] = counts else {
        return Some(Counted { reason: Some("NVML did not answer in time".into()), ..counted });
    };
    let added = |way: usize| Some(Bytes(after.nvlink?[way].saturating_sub(before.nvlink?[way])));
    (counted.nvlink_sent_bytes, counted.nvlink_received_bytes) = (added(0), added(1));
    let added = |way: usize| Some(Bytes(wrapping_added(before.pcie?[way], after.pcie?[way])));
    (counted.pcie_sent_bytes, counted.pcie_received_bytes) = (added(0), added(1));
    counted.links = watched.links.iter().filter_map(|link| share(*link, before, after)).collect();
    counted.share();
    counted.reason = missing(watched, before, after);
    Some(counted)
}

/// Returns the least number of bytes that a PCIe counter has added: one of 32 bits may have wrapped. Returns 0 if a
/// wider counter was set back.
pub(crate) const fn wrapping_added(before: u64, after: u64) -> u64 {
    match after.checked_sub(before) {
        Some(added) => added,
        None => (after + PCIE_COUNTER_RANGE).saturating_sub(before),
    }
}

/// Returns the counts of one link, if it was read both times.
fn share(link: u8, before: &Counts, after: &Counts) -> Option<LinkShare> {
    let of = |counts: &Counts| {
        counts.links.iter().find(|(number, _)| *number == link).map(|(_, counted)| *counted)
    };
    let (before, after) = (of(before)?, of(after)?);
    let added = |way: usize| Some(Bytes(after[way].saturating_sub(before[way])));
    let (sent_percent, received_percent) = (None, None);
    Some(LinkShare {
        link,
        sent_bytes: added(0),
        received_bytes: added(1),
        sent_percent,
        received_percent,
    })
}

fn missing(watched: &Watched, before: &Counts, after: &Counts) -> Option<String> {
    if let Some(failure) = before.failure.as_ref().or(after.failure.as_ref()) {
        return Some(failure.clone());
    }
    let (no_nvlink, no_pcie) =
        (after.nvlink.is_none() && !watched.links.is_empty(), after.pcie.is_none());
    let what = match (no_nvlink, no_pcie) {
        (false, false) => return None,
        (true, false) => "what goes over NVLinks",
        (false, true) => "what goes over PCIe",
        (true, true) => "what goes over NVLinks and PCIe",
    };
    Some(format!("this GPU and driver do not count {what}"))
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
