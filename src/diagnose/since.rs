//! Compares the error counters of two readings of a machine. Neither reading measured anything.

use super::baseline::Beside;
use super::evidence::Evidence;
use super::words;
use model::finding::Subject;
use model::snapshot::{Gpu, NvLink, PciFunction, Snapshot, Xid};

/// The severity of one counted error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Data or a link was lost.
    Lost,
    /// The link repaired it, and sound links do not count it.
    Signal,
    /// The link repaired it, and sound links count it now and then.
    Corrected,
}

/// A counter that rose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    pub added: u64,
    /// One of them, in words: `CRC error`.
    pub what: &'static str,
    /// The link, if it is an NVLink.
    pub link: Option<u8>,
    pub weight: Weight,
}

/// The counters of one place that rose.
pub(crate) type Counts = Vec<Count>;

/// The time between the readings.
pub(crate) struct Since<'a> {
    old: &'a Snapshot,
    beside: Beside<'a>,
    /// Time of the earlier reading.
    pub then: &'a str,
    /// Minutes between them.
    pub minutes: f64,
    /// New messages of the driver.
    pub xids: Vec<&'a Xid>,
    /// Why counters say nothing of the time between, in words.
    pub began_again: Option<String>,
}

/// A counter of a place.
struct Counter {
    /// One of its errors, in words.
    what: &'static str,
    link: Option<u8>,
    weight: Weight,
    value: Option<u64>,
}

/// Returns the counters that both readings know, each with its earlier value and today's.
fn of_both(then: &[Counter], now: Vec<Counter>) -> impl Iterator<Item = (Counter, u64, u64)> {
    now.into_iter().filter_map(|now| {
        let is_same = |then: &&Counter| (then.what, then.link) == (now.what, now.link);
        let (was, is) = then.iter().find(is_same)?.value.zip(now.value)?;
        Some((now, was, is))
    })
}

impl<'a> Since<'a> {
    /// Returns the time since the earlier report, if neither has figures.
    pub(crate) fn of(evidence: &Evidence<'a>) -> Option<Self> {
        let report = evidence.baseline?;
        if evidence.measurements.is_some() || report.measurements.is_some() {
            return None;
        }
        let (old, now) = (&report.snapshot, evidence.snapshot);
        let seconds = now.host.up_seconds.get().zip(old.host.up_seconds.get());
        let minutes = seconds.map_or(0.0, |(now, then)| now.saturating_sub(then) as f64 / 60.0);
        let mut since = Self {
            old,
            beside: Beside::of(evidence)?,
            then: &report.started_at,
            minutes: minutes.max(1.0),
            xids: xids(old, now),
            began_again: restarted(old, now).then(|| "the machine was started again".to_owned()),
        };
        if since.began_again.is_none() {
            since.began_again = since.went_back(evidence);
        }
        Some(since)
    }

    /// Returns the places whose counters rose or whose GPU has new messages, each with its name.
    pub(crate) fn places(&self, evidence: &Evidence<'_>) -> Vec<(Subject, String, Counts)> {
        let gpus = self.beside.gpus(evidence).into_iter().map(|(then, now)| {
            let name = evidence.name(now.index);
            (Subject::Gpu { index: now.index }, name, rises(&of_gpu(then), of_gpu(now)))
        });
        let functions = self.functions(evidence.snapshot).map(|(then, now)| {
            let subject = Subject::PciFunction { address: now.address };
            (subject, now.address.to_string(), rises(&of_function(then), of_function(now)))
        });
        gpus.chain(functions.filter(|(_, _, counts)| !counts.is_empty())).collect()
    }

    /// Returns the PCI functions of both readings that are no GPUs.
    fn functions<'n>(
        &self,
        now: &'n Snapshot,
    ) -> impl Iterator<Item = (&'a PciFunction, &'n PciFunction)> {
        let is_gpu = |function: &&PciFunction| {
            now.gpus.iter().any(|gpu| gpu.pci.get() == Some(function.address))
        };
        let others = now.pci.iter().filter(move |function| !is_gpu(function));
        let old = self.old;
        others.filter_map(move |function| Some((old.function(function.address)?, function)))
    }

    /// Returns a counter that is lower than before, in words.
    fn went_back(&self, evidence: &Evidence<'_>) -> Option<String> {
        self.beside.gpus(evidence).into_iter().find_map(|(then, now)| {
            let was = of_gpu(then);
            let mut counters = of_both(&was, of_gpu(now));
            let (lower, then, later) = counters.find(|(_, then, now)| now < then)?;
            Some(format!(
                "the {} count of {} went from {then} to {later}: it was reset, or its driver was loaded again",
                lower.what,
                evidence.name(now.index)
            ))
        })
    }
}

/// Returns true if the system was started between two readings.
pub(crate) fn restarted(then: &Snapshot, now: &Snapshot) -> bool {
    let [(then, since), (now, until)] =
        [then, now].map(|of| (&of.host.boot_id, &of.host.up_seconds));
    let differs = then.known().zip(now.known()).is_some_and(|(then, now)| then != now);
    differs || since.get().zip(until.get()).is_some_and(|(since, until)| until < since)
}

fn rises(then: &[Counter], now: Vec<Counter>) -> Counts {
    let rise = |(Counter { what, link, weight, .. }, then, now): (Counter, u64, u64)| {
        let added = now.checked_sub(then).filter(|added| *added > 0)?;
        Some(Count { added, what, link, weight })
    };
    of_both(then, now).filter_map(rise).collect()
}

impl Count {
    /// Returns `12 CRC errors of NVLink 4`.
    pub(crate) fn words(&self) -> String {
        let link = self.link.map_or(String::new(), |link| format!(" of NVLink {link}"));
        format!("{}{link}", words::count(self.added, self.what))
    }
}

const fn counter(what: &'static str, weight: Weight, value: Option<u64>) -> Counter {
    Counter { what, link: None, weight, value }
}

fn of_gpu(gpu: &Gpu) -> Vec<Counter> {
    let pcie = gpu.pcie_errors.get();
    let mut all = vec![
        counter("uncorrected memory error", Weight::Lost, gpu.ecc_uncorrected.get()),
        counter("fatal PCIe error", Weight::Lost, pcie.map(|errors| errors.fatal)),
        counter("uncorrected PCIe error", Weight::Lost, pcie.map(|errors| errors.non_fatal)),
        counter("corrected PCIe error", Weight::Corrected, pcie.map(|errors| errors.correctable)),
        counter("PCIe replay", Weight::Corrected, gpu.pcie_replays.get()),
    ];
    all.extend(gpu.nvlinks.known().into_iter().flatten().flat_map(of_link));
    all
}

fn of_link(link: &NvLink) -> [Counter; 6] {
    let packets = link.packet_errors.get();
    [
        counter("CRC error", Weight::Signal, link.crc_errors.get()),
        counter("replay", Weight::Signal, link.replay_errors.get()),
        counter("recovery", Weight::Signal, link.recovery_errors.get()),
        counter("failed recovery", Weight::Lost, packets.and_then(|of| of.failed_recoveries)),
        counter("lost packet", Weight::Lost, packets.and_then(|of| of.lost_packets)),
        counter("uncorrected error", Weight::Lost, packets.and_then(|of| of.uncorrected)),
    ]
    .map(|of_link| Counter { link: Some(link.link), ..of_link })
}

fn of_function(function: &PciFunction) -> Vec<Counter> {
    vec![
        counter("fatal PCIe error", Weight::Lost, function.aer_fatal.get()),
        counter("uncorrected PCIe error", Weight::Lost, function.aer_nonfatal.get()),
        counter("corrected PCIe error", Weight::Corrected, function.aer_correctable.get()),
    ]
}

/// Returns the messages that are new. The log forgets its oldest ones.
fn xids<'a>(old: &Snapshot, now: &'a Snapshot) -> Vec<&'a Xid> {
    let known = || old.host.xids.known().into_iter().flatten();
    let is_new = |xid: &&Xid| {
        let mut alike = known().filter(|was| (was.pci, was.code) == (xid.pci, xid.code));
        alike.all(|was| xid.seconds_since_boot > was.seconds_since_boot || xid.times > was.times)
    };
    now.host.xids.known().into_iter().flatten().filter(is_new).collect()
}
