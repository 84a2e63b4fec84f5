//! Compares the error counters of two readings of a machine. Neither reading measured anything.

use super::baseline::Beside;
use super::evidence::Evidence;
use super::words;
use model::finding::Subject;
use model::reading::Reading;
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

/// A counter of a place: then and now.
struct Counter {
    what: &'static str,
    link: Option<u8>,
    weight: Weight,
    values: Option<(u64, u64)>,
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
        let restarted = seconds.is_some_and(|(now, then)| now < then);
        let minutes = seconds.map_or(0.0, |(now, then)| now.saturating_sub(then) as f64 / 60.0);
        let mut since = Self {
            old,
            beside: Beside::of(evidence)?,
            then: &report.started_at,
            minutes: minutes.max(1.0),
            xids: xids(old, now),
            began_again: restarted.then(|| "the machine was started again".to_owned()),
        };
        if since.began_again.is_none() {
            since.began_again = since.went_back(evidence);
        }
        Some(since)
    }

    /// Returns the places whose counters rose or whose GPU has new messages, each with its name.
    pub(crate) fn places(&self, evidence: &Evidence<'_>) -> Vec<(Subject, String, Counts)> {
        let gpus = self.beside.gpus(evidence).into_iter().map(|(then, now)| {
            let name = words::gpu(evidence.snapshot, now.index);
            (Subject::Gpu { index: now.index }, name, rises(of_gpu(then, now)))
        });
        let functions = self.functions(evidence.snapshot).map(|(then, now)| {
            let subject = Subject::PciFunction { address: now.address };
            (subject, now.address.to_string(), rises(of_function(then, now)))
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
            let lower = of_gpu(then, now)
                .into_iter()
                .find(|one| one.values.is_some_and(|(then, now)| now < then))?;
            let (then, later) = lower.values?;
            Some(format!(
                "the {} count of {} went from {then} to {later}: it was reset, or its driver was loaded again",
                lower.what,
                words::gpu(evidence.snapshot, now.index)
            ))
        })
    }
}

fn rises(counters: Vec<Counter>) -> Counts {
    let rise = |counter: Counter| {
        let (then, now) = counter.values?;
        let added = now.checked_sub(then).filter(|added| *added > 0)?;
        Some(Count { added, what: counter.what, link: counter.link, weight: counter.weight })
    };
    counters.into_iter().filter_map(rise).collect()
}

impl Count {
    /// Returns `12 CRC errors of NVLink 4`.
    pub(crate) fn words(&self) -> String {
        let link = self.link.map_or(String::new(), |link| format!(" of NVLink {link}"));
        format!("{}{link}", words::count(self.added, self.what))
    }
}

fn counter(what: &'static str, weight: Weight, then: Option<u64>, now: Option<u64>) -> Counter {
    Counter { what, link: None, weight, values: then.zip(now) }
}

fn of_gpu(then: &Gpu, now: &Gpu) -> Vec<Counter> {
    let of = |what: &'static str, weight, figure: fn(&Gpu) -> Option<u64>| {
        counter(what, weight, figure(then), figure(now))
    };
    let mut all = vec![
        of("uncorrected memory error", Weight::Lost, |gpu| gpu.ecc_uncorrected.get()),
        of("fatal PCIe error", Weight::Lost, |gpu| Some(gpu.pcie_errors.get()?.fatal)),
        of("uncorrected PCIe error", Weight::Lost, |gpu| Some(gpu.pcie_errors.get()?.non_fatal)),
        of("corrected PCIe error", Weight::Corrected, |gpu| {
            Some(gpu.pcie_errors.get()?.correctable)
        }),
        of("PCIe replay", Weight::Corrected, |gpu| gpu.pcie_replays.get()),
    ];
    let links = now.nvlinks.known().into_iter().flatten();
    for link in links {
        let then = then.nvlinks.known().into_iter().flatten().find(|then| then.link == link.link);
        all.extend(then.into_iter().flat_map(|then| of_link(then, link)));
    }
    all
}

fn of_link(then: &NvLink, now: &NvLink) -> Vec<Counter> {
    let of = |what: &'static str, weight, figure: fn(&NvLink) -> Option<u64>| Counter {
        link: Some(now.link),
        ..counter(what, weight, figure(then), figure(now))
    };
    vec![
        of("CRC error", Weight::Signal, |link| link.crc_errors.get()),
        of("replay", Weight::Signal, |link| link.replay_errors.get()),
        of("recovery", Weight::Signal, |link| link.recovery_errors.get()),
        of("failed recovery", Weight::Lost, |link| link.packet_errors.get()?.failed_recoveries),
        of("lost packet", Weight::Lost, |link| link.packet_errors.get()?.lost_packets),
        of("uncorrected error", Weight::Lost, |link| link.packet_errors.get()?.uncorrected),
    ]
}

fn of_function(then: &PciFunction, now: &PciFunction) -> Vec<Counter> {
    let of = |what: &'static str, weight, figure: fn(&PciFunction) -> &Reading<u64>| {
        counter(what, weight, figure(then).get(), figure(now).get())
    };
    vec![
        of("fatal PCIe error", Weight::Lost, |function| &function.aer_fatal),
        of("uncorrected PCIe error", Weight::Lost, |function| &function.aer_nonfatal),
        of("corrected PCIe error", Weight::Corrected, |function| &function.aer_correctable),
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
