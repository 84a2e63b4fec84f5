//! Watches PCIe links and throttling while copies run. An idle GPU drops its link to Gen1, so only a reading under load
//! shows the speed of a slot. A link that trains down also does so under load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::errors::{collect_links, read_functions, read_links};
use super::mark::Marker;
use hardware::{LinkSample, Telemetry, limits};
use model::measurement::{AerAdded, LinkState, LinkUnderLoad, NvLinkErrorsAdded};
use model::reading::Reading;
use model::snapshot::{Gpu, NvLink, PciFunction, PcieErrors, Snapshot};
use model::units::{Generation, Lanes};

/// Time between readings of one GPU. One reading takes 0.36 ms, and reading without a pause cost 0.04% of bandwidth on
/// H200. So the cost at this interval is not visible.
const INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of readings taken at once, if a driver's clock has advanced by more than that. It does on a simulated
/// machine whose copies take years.
const MOST_AT_ONCE: u32 = 50;
/// Longest wait for a reading in flight at the end.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest wait for the error counters of NVLinks at the end. On H200 NVML took 16 ms for those of 18 links in one
/// call. It read one GPU after the other whatever the threads.
const COUNTER_PATIENCE: Duration = Duration::from_secs(1);

/// A watch over some GPUs.
pub struct Watch {
    telemetry: Arc<dyn Telemetry>,
    stop: Arc<AtomicBool>,
    seen: Vec<(u32, Arc<Mutex<Seen>>)>,
    threads: Vec<JoinHandle<()>>,
    /// The pace of readings, if they follow the driver's clock.
    pace: Option<Pace>,
    /// Reasons why GPUs are not watched.
    unwatched: Vec<String>,
}

/// The driver's clock that readings follow, across all workers of a run.
#[derive(Debug)]
struct Pace {
    /// Sum of the final times of earlier workers' clocks.
    before: Duration,
    now: Duration,
    /// Time of the next reading.
    next: Duration,
}

impl Pace {
    /// Returns the number of readings that are due at this time of the clock.
    fn due(&mut self, now: Duration) -> u32 {
        if now < self.now {
            // A clock that goes back is that of another worker, which starts anew.
            self.before = self.before.saturating_add(self.now);
        }
        self.now = now;
        let elapsed = self.before.saturating_add(now);
        let mut due = 0;
        while self.next <= elapsed && due < MOST_AT_ONCE {
            (self.next, due) = (self.next.saturating_add(INTERVAL), due + 1);
        }
        if self.next <= elapsed {
            self.next = elapsed.saturating_add(INTERVAL);
        }
        due
    }
}

#[derive(Default)]
struct Seen {
    /// Readings since the last [`Watch::drain`].
    samples: Vec<LinkSample>,
    ended: bool,
}

impl Seen {
    /// Returns the state of a GPU that no thread watches.
    fn ended() -> Self {
        Self {
            samples: Vec::new(),
            ended: true,
        }
    }
}

impl Watch {
    /// Begins to watch, each GPU on a thread of its own: NVML can block for minutes on one of them. If time passes only
    /// with the driver's clock, [`Watch::follow`] takes the readings instead.
    pub fn start(telemetry: &Arc<dyn Telemetry>, gpus: &[u32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Self {
            telemetry: Arc::clone(telemetry),
            stop,
            seen: Vec::new(),
            threads: Vec::new(),
            pace: None,
            unwatched: Vec::new(),
        };
        if telemetry.follows_the_driver() {
            watch.pace = Some(Pace {
                before: Duration::ZERO,
                now: Duration::ZERO,
                next: INTERVAL,
            });
            watch.seen = gpus
                .iter()
                .map(|index| (*index, Arc::new(Mutex::new(Seen::ended()))))
                .collect();
            watch.read();
            return watch;
        }
        for &index in gpus {
            let (telemetry, stop) = (Arc::clone(telemetry), Arc::clone(&watch.stop));
            let seen = Arc::new(Mutex::new(Seen::default()));
            let mine = Arc::clone(&seen);
            match std::thread::Builder::new()
                .spawn(move || look(telemetry.as_ref(), index, &stop, &mine))
            {
                Ok(thread) => {
                    watch.seen.push((index, seen));
                    watch.threads.push(thread);
                }
                Err(error) => {
                    let why = format!(
                        "GPU {index} is not watched while copies run, no thread can be started"
                    );
                    watch
                        .unwatched
                        .push(limits::not_started(why, &error).message);
                }
            }
        }
        watch
    }

    /// Takes the readings that are due at this time of the driver's clock, if they follow it.
    pub fn follow(&mut self, now: Duration) {
        let due = self.pace.as_mut().map_or(0, |pace| pace.due(now));
        (0..due).for_each(|_| self.read());
    }

    /// Takes one reading of each GPU.
    fn read(&self) {
        for (index, seen) in &self.seen {
            if let Ok(mut seen) = seen.lock() {
                seen.samples.push(self.telemetry.sample(*index));
            }
        }
    }

    /// Returns the reasons why GPUs are not watched, one sentence each.
    pub fn unwatched(&self) -> Vec<String> {
        self.unwatched.clone()
    }

    /// Returns the readings since the last call, by GPU.
    pub fn drain(&self) -> Vec<(u32, LinkSample)> {
        let taken = self.seen.iter().flat_map(|(index, seen)| {
            let samples = seen
                .lock()
                .map(|mut seen| std::mem::take(&mut seen.samples))
                .unwrap_or_default();
            samples.into_iter().map(|sample| (*index, sample))
        });
        taken.collect()
    }

    /// Ends the watch. Returns the last readings, and the counts since the snapshot was taken and since the counters
    /// were read before the load patterns.
    pub fn finish(
        self,
        before: &Snapshot,
        mark: Option<Marker>,
    ) -> (Vec<(u32, LinkSample)>, Counted) {
        self.stop.store(true, Ordering::Relaxed);
        if self.pace.is_some() {
            self.read();
        }
        self.threads
            .iter()
            .for_each(|thread| thread.thread().unpark());
        let patience = |usual| self.telemetry.patience(usual);
        // Read the counters beside the last readings: on H200 they take longer.
        let counters = read_links(&self.telemetry, &before.gpus);
        let until = Instant::now() + PATIENCE;
        let ended = |seen: &Mutex<Seen>| seen.lock().is_ok_and(|seen| seen.ended);
        while !self.seen.iter().all(|(_, seen)| ended(seen)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let late = self
            .seen
            .iter()
            .filter(|(_, seen)| !ended(seen))
            .map(|(index, _)| *index)
            .collect();
        let after = collect_links(&counters, patience(COUNTER_PATIENCE));
        let functions = read_functions(&self.telemetry)
            .recv_timeout(patience(PATIENCE))
            .unwrap_or_default();
        let of = |gpu: &Gpu| nvlinks_counted(gpu.index, gpu.nvlinks.known()?, &after);
        let nvlinks = before.gpus.iter().filter_map(of).collect();
        let load = mark.map(|mark| {
            let marked = mark.end(patience(PATIENCE));
            let of = |gpu: &Gpu| nvlinks_counted(gpu.index, marked.links.get(&gpu.index)?, &after);
            let nvlinks = before.gpus.iter().filter_map(of).collect();
            LoadCounted {
                nvlinks,
                aer: rises(&marked.functions, &functions),
            }
        });
        (
            self.drain(),
            Counted {
                late,
                nvlinks,
                aer: rises(&before.pci, &functions),
                load,
            },
        )
    }

    /// Starts a reading of every GPU now, without waiting for it.
    pub fn look_now(&self) {
        if self.pace.is_some() {
            self.read();
        }
        self.threads
            .iter()
            .for_each(|thread| thread.thread().unpark());
    }
}

/// Reads a GPU repeatedly until `stop` is set.
fn look(telemetry: &dyn Telemetry, index: u32, stop: &AtomicBool, seen: &Mutex<Seen>) {
    for reading in 0_u64.. {
        // Load the flag first, so that the last reading comes after the copies. Take at least two readings, however
        // short the run.
        let stopped = stop.load(Ordering::Relaxed);
        let sample = telemetry.sample(index);
        let Ok(mut seen) = seen.lock() else { return };
        let last = stopped && reading > 0;
        seen.samples.push(sample);
        seen.ended = last;
        drop(seen);
        if last {
            return;
        }
        if !stopped {
            std::thread::park_timeout(INTERVAL);
        }
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
    /// Counts of the load patterns alone; none if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadCounted>,
}

/// Counts while load patterns ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadCounted {
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
}

impl Counted {
    /// Returns the counts of this GPU's NVLinks; none if they were not read both times.
    pub fn nvlink_of(&self, gpu: u32) -> Option<Vec<NvLinkErrorsAdded>> {
        of_gpu(&self.nvlinks, gpu)
    }
}

impl LoadCounted {
    /// Returns the counts of this GPU's NVLinks; none if they were not read both times.
    pub fn nvlink_of(&self, gpu: u32) -> Option<Vec<NvLinkErrorsAdded>> {
        of_gpu(&self.nvlinks, gpu)
    }
}

fn of_gpu(nvlinks: &[NvLinksCounted], gpu: u32) -> Option<Vec<NvLinkErrorsAdded>> {
    nvlinks
        .iter()
        .find(|counted| counted.gpu == gpu)
        .map(|counted| counted.added.clone())
}

/// Returns the error counts of a GPU's NVLinks between two readings.
fn nvlinks_counted(
    gpu: u32,
    before: &[NvLink],
    after: &HashMap<u32, Vec<NvLink>>,
) -> Option<NvLinksCounted> {
    Some(NvLinksCounted {
        gpu,
        added: errors_added(before, after.get(&gpu)?)?,
    })
}

/// Returns the links that counted errors; none if a counter was not read both times.
fn errors_added(before: &[NvLink], after: &[NvLink]) -> Option<Vec<NvLinkErrorsAdded>> {
    let mut added = Vec::new();
    for after in after {
        let before = before.iter().find(|link| link.link == after.link)?;
        let rise = |figure: fn(&NvLink) -> &Reading<u64>| {
            Some(figure(after).get()?.saturating_sub(figure(before).get()?))
        };
        let link = NvLinkErrorsAdded {
            link: after.link,
            crc: rise(|link| &link.crc_errors)?,
            replay: rise(|link| &link.replay_errors)?,
            recovery: rise(|link| &link.recovery_errors)?,
        };
        if (link.crc, link.replay, link.recovery) != (0, 0, 0) {
            added.push(link);
        }
    }
    Some(added)
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
    let mut throttle_reasons: Vec<String> = samples()
        .flat_map(|sample| sample.throttle_reasons.iter().cloned())
        .collect();
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
        throttle_reasons,
        reason: None,
    }
}

/// Returns the functions whose counters rose. A counter that fell was reset, and is ignored.
fn rises(before: &[PciFunction], after: &[PciFunction]) -> Vec<AerAdded> {
    let rise = |after: &PciFunction| {
        let before = before
            .iter()
            .find(|before| before.address == after.address)?;
        let by = |of: fn(&PciFunction) -> Option<u64>| {
            of(after)
                .zip(of(before))
                .map_or(0, |(after, before)| after.saturating_sub(before))
        };
        let added = PcieErrors {
            correctable: by(|function| function.aer_correctable.get()),
            non_fatal: by(|function| function.aer_nonfatal.get()),
            fatal: by(|function| function.aer_fatal.get()),
        };
        (added != PcieErrors::default()).then_some(AerAdded {
            address: after.address,
            added,
        })
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
#[path = "watch_tests.rs"]
mod tests;
