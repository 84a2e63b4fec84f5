//! Reads the traffic of all programs once a second, each GPU on a thread of its own. No CUDA, and no idle GPU is needed.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::errors::read_functions;
use super::{nvlinks_counted, rises, summary};
use hardware::{Counts, GpuGroup, HELD_BY, LinkSample, Telemetry};
use model::counted::PCIE_COUNTER_RANGE;
use model::snapshot::{Gpu, NvLink, Snapshot};
use model::units::GbPerSecond;
use model::watched::{Held, LinkTraffic, Watched, WatchedGpu};

/// Time between two readings of a GPU.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Number of windows between two readings in which PCIe bytes are counted, and the length of a window. The counter wraps at
/// 2^32, which 126 GB/s (Gen6 x16) reach in 34 ms.
const WINDOWS: u32 = 2;
const WINDOW: Duration = Duration::from_millis(20);
/// Readings between two of the states and errors of NVLinks, which take 16 ms for 18 links [M: H200].
const LINKS_EVERY: usize = 10;
/// Most readings that are kept of a GPU. An hour; with more, every second one goes.
const MOST: usize = 3600;
/// Longest wait for the PCI functions at the end.
const PATIENCE: Duration = Duration::from_millis(500);

/// One reading of a GPU.
#[derive(Debug, Clone, Default)]
struct Look {
    sample: LinkSample,
    counts: Counts,
    /// Rates over PCIe in the windows before it, sent and received.
    pcie: Vec<[f64; 2]>,
}

/// A GPU and what was read of it.
struct Followed {
    gpu: Gpu,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    looks: Vec<Look>,
    /// Its NVLinks, as they were read last.
    links: Option<Vec<NvLink>>,
    at: Option<Instant>,
}

/// The readings of some GPUs, which go on until it is dropped.
pub struct Traffic {
    telemetry: Arc<dyn Telemetry>,
    before: Snapshot,
    gpus: Vec<Followed>,
    stop: Arc<AtomicBool>,
    problems: Vec<String>,
}

impl Traffic {
    /// Begins to read the GPUs of these facts.
    pub fn start(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot) -> Self {
        telemetry.listen();
        let mut traffic = Self {
            telemetry: Arc::clone(telemetry),
            before: snapshot.clone(),
            gpus: Vec::new(),
            stop: Arc::default(),
            problems: Vec::new(),
        };
        for gpu in &snapshot.gpus {
            let (telemetry, stop) = (Arc::clone(telemetry), Arc::clone(&traffic.stop));
            let seen = Arc::new(Mutex::new(Seen::default()));
            let (mine, own) = (Arc::clone(&seen), gpu.clone());
            let work = move || follow(telemetry.as_ref(), own, &stop, &mine);
            if let Err(error) = std::thread::Builder::new().spawn(work) {
                let label = gpu.label();
                traffic.problems.push(format!("{label} is not watched, no thread starts: {error}"));
            }
            traffic.gpus.push(Followed { gpu: gpu.clone(), seen });
        }
        traffic
    }

    /// Returns the fewest readings of a GPU so far. Those of which none came are left out after some time.
    pub fn readings(&self) -> usize {
        self.gpus.iter().map(|gpu| gpu.seen().looks.len()).min().unwrap_or(0)
    }

    /// Returns what the last readings show, at most so many of each GPU.
    pub fn last(&self, readings: usize) -> Watched {
        let of = |followed: &Followed| {
            let seen = followed.seen();
            let from = seen.looks.len().saturating_sub(readings);
            (followed.gpu.index, seen.looks[from..].to_vec(), seen.links.clone(), seen.at)
        };
        let all: Vec<_> = self.gpus.iter().map(of).collect();
        let after: HashMap<u32, Vec<NvLink>> =
            all.iter().filter_map(|(gpu, _, links, _)| Some((*gpu, links.clone()?))).collect();
        let mut watched = Watched::default();
        for (index, looks, _, at) in &all {
            let samples: Vec<LinkSample> = looks.iter().map(|look| look.sample.clone()).collect();
            let mut link = summary(*index, &samples);
            let before = self.before.gpu(*index).and_then(|gpu| gpu.nvlinks.known());
            let counted = before.and_then(|before| nvlinks_counted(*index, before, &after));
            if let Some(counted) = counted {
                (link.nvlink_errors, link.nvlink_corrected) =
                    (Some(counted.added), counted.corrected);
            }
            watched.links.push(link);
            let late = at.is_none_or(|at| at.elapsed() > 5 * INTERVAL);
            let own = of_gpu(*index, looks, late);
            watched.seconds = watched.seconds.max(seconds(looks));
            watched.gpus.push(own);
        }
        watched
    }

    /// Returns the facts with the NVLinks as they were read last.
    pub fn facts(&self) -> Snapshot {
        let mut snapshot = self.before.clone();
        for gpu in &mut snapshot.gpus {
            let followed = self.gpus.iter().find(|followed| followed.gpu.index == gpu.index);
            if let Some(links) = followed.and_then(|followed| followed.seen().links.clone()) {
                gpu.nvlinks = model::reading::Reading::Known(links);
            }
        }
        snapshot.problems.extend(self.problems.iter().cloned());
        snapshot
    }

    /// Ends the readings, and returns what all of them show.
    pub fn finish(self) -> (Snapshot, Watched) {
        self.stop.store(true, Ordering::Relaxed);
        let patience = self.telemetry.patience(PATIENCE);
        let functions = read_functions(&self.telemetry).recv_timeout(patience).unwrap_or_default();
        let aer_added = rises(&self.before.pci, &functions);
        (self.facts(), Watched { aer_added, ..self.last(usize::MAX) })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Followed {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a GPU until it is stopped.
fn follow(telemetry: &dyn Telemetry, mut gpu: Gpu, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let index = gpu.index;
    let links = gpu.nvlinks.known().map_or(&[][..], Vec::as_slice);
    let links: Vec<u8> =
        links.iter().filter(|link| link.active.get() == Some(true)).map(|link| link.link).collect();
    let mut next = Instant::now();
    for reading in 0_usize.. {
        let mut pcie = Vec::new();
        // The first reading comes at once.
        for _ in 0..if reading == 0 { 0 } else { WINDOWS } {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let before = telemetry.counts(index, &[]);
            std::thread::sleep(WINDOW);
            pcie.extend(pcie_rates(&before, &telemetry.counts(index, &[])));
            next += INTERVAL / WINDOWS;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let look =
            Look { counts: telemetry.counts(index, &links), sample: telemetry.sample(index), pcie };
        let states = (reading % LINKS_EVERY == 0 && !links.is_empty()).then(|| {
            telemetry.read_gpu(GpuGroup::NvLink, &mut gpu);
            telemetry.read_gpu(GpuGroup::LinkErrors, &mut gpu);
            gpu.nvlinks.known().cloned()
        });
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.looks.push(look);
        seen.at = Some(Instant::now());
        if let Some(Some(links)) = states {
            seen.links = Some(links);
        }
        if seen.looks.len() > MOST {
            thin(&mut seen.looks);
        }
    }
}

/// Takes every second reading away, except the last, and those that show another state of the PCIe link than the one before.
fn thin(looks: &mut Vec<Look>) {
    let state = |look: &Look| (look.sample.generation, look.sample.width);
    let last = looks.len() - 1;
    let goes: Vec<bool> = (0..looks.len())
        .map(|at| at % 2 == 1 && at < last && state(&looks[at]) == state(&looks[at - 1]))
        .collect();
    let mut goes = goes.into_iter();
    looks.retain(|_| !goes.next().unwrap_or(false));
}

/// Returns the rates over PCIe between two readings of its counter, sent and received, GB/s.
fn pcie_rates(before: &Counts, after: &Counts) -> Option<[f64; 2]> {
    let (then, now) = before.pcie.zip(after.pcie)?;
    let time = between(before, after)?;
    let moved = |way: usize| match now[way].checked_sub(then[way]) {
        Some(moved) => moved,
        None => (now[way] + PCIE_COUNTER_RANGE).saturating_sub(then[way]),
    };
    Some([rate(moved(0), time), rate(moved(1), time)])
}

/// Returns the time between the middles of two readings, seconds; none if none passed.
fn between(before: &Counts, after: &Counts) -> Option<f64> {
    let middle = |counts: &Counts| (counts.asked + counts.answered).as_secs_f64() / 2.0;
    Some(middle(after) - middle(before)).filter(|time| *time > 0.0)
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

fn seconds(looks: &[Look]) -> f64 {
    let ends = looks.first().zip(looks.last());
    ends.and_then(|(first, last)| between(&first.counts, &last.counts)).unwrap_or(0.0)
}

/// Returns what the readings of a GPU show.
fn of_gpu(gpu: u32, looks: &[Look], late: bool) -> WatchedGpu {
    let samples = || looks.iter().map(|look| &look.sample);
    let failure = looks.iter().rev().find_map(|look| look.counts.failure.clone());
    let reason = match late {
        true => Some("its readings do not arrive".to_owned()),
        false => failure,
    };
    let readings = u32::try_from(looks.len()).unwrap_or(u32::MAX);
    let mut own = WatchedGpu { gpu, readings, reason, ..WatchedGpu::default() };
    own.busy_percent = mean(samples().filter_map(|sample| sample.busy_percent.map(f64::from)));
    own.sm_clock_mhz = clock(looks);
    own.temperature_c = samples().filter_map(|sample| sample.temperature_c).max();
    let watts = |milliwatts: Option<u32>| Some(f64::from(milliwatts?) / 1000.0);
    own.power_w = mean(samples().filter_map(|sample| watts(sample.power?.milliwatts)));
    own.power_limit_w =
        samples().filter_map(|sample| watts(sample.power?.limit_milliwatts)).next_back();
    let pcie = |way: usize| mean(looks.iter().flat_map(|look| &look.pcie).map(|rates| rates[way]));
    (own.pcie_sent_gbps, own.pcie_received_gbps) =
        (pcie(0).map(GbPerSecond), pcie(1).map(GbPerSecond));
    own.held = held(looks);
    own.programs =
        samples().filter_map(|sample| sample.programs.clone()).next_back().unwrap_or_default();
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return own };
    let Some(time) = between(&first.counts, &last.counts) else { return own };
    let moved = |[before, after]: [[u64; 2]; 2]| {
        [0, 1].map(|way| GbPerSecond(rate(after[way].saturating_sub(before[way]), time)))
    };
    if let Some((before, after)) = first.counts.nvlink.zip(last.counts.nvlink) {
        let [sent, received] = moved([before, after]);
        (own.nvlink_sent_gbps, own.nvlink_received_gbps) = (Some(sent), Some(received));
    }
    let link = |(link, after): &(u8, [u64; 2])| {
        let (_, before) = first.counts.links.iter().find(|(other, _)| other == link)?;
        let [sent_gbps, received_gbps] = moved([*before, *after]);
        Some(LinkTraffic { link: *link, sent_gbps, received_gbps })
    };
    own.nvlinks = last.counts.links.iter().filter_map(link).collect();
    own
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, number) = values.fold((0.0, 0_u32), |(sum, number), value| (sum + value, number + 1));
    (number > 0).then(|| sum / f64::from(number))
}

/// Returns the median clock in the readings that found the GPU busy, or in all if none did.
fn clock(looks: &[Look]) -> Option<u32> {
    let of = |busy: bool| {
        let is_busy = move |sample: &&LinkSample| {
            let percent = sample.busy_percent.map_or(0.0, f64::from);
            !busy || percent >= WatchedGpu::BUSY_PERCENT
        };
        let samples = looks.iter().map(|look| &look.sample).filter(is_busy);
        let mut clocks: Vec<u32> = samples.filter_map(|sample| sample.sm_clock_mhz).collect();
        clocks.sort_unstable();
        clocks.get(clocks.len() / 2).copied()
    };
    of(true).or_else(|| of(false))
}

/// Returns the reasons that held the clocks back: by the driver's own time where it counts that, else by the readings.
fn held(looks: &[Look]) -> Vec<Held> {
    let elapsed = seconds(looks);
    let counted = |reason: &str| {
        let at = HELD_BY.iter().position(|known| *known == reason)?;
        let time = |look: &Look| look.sample.power?.held_ns[at];
        let (before, after) = (time(looks.first()?)?, time(looks.last()?)?);
        (elapsed > 0.0).then(|| after.saturating_sub(before))
    };
    let seen =
        looks.iter().flat_map(|look| look.sample.throttle_reasons.iter().map(String::as_str));
    let reasons: BTreeSet<&str> = seen.chain(HELD_BY).collect();
    let of = |reason: &str| {
        let has = |look: &&Look| look.sample.throttle_reasons.iter().any(|seen| seen == reason);
        let share = looks.iter().filter(has).count() as f64 / looks.len().max(1) as f64;
        let nanoseconds = counted(reason);
        let share = nanoseconds.map_or(share, |held| held as f64 / 1e9 / elapsed).min(1.0);
        (share > 0.0).then(|| Held {
            reason: reason.to_owned(),
            percent: 100.0 * share,
            nanoseconds,
        })
    };
    reasons.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hardware::Power;

    const GB: u64 = 1_000_000_000;

    fn counts(milliseconds: u64, nvlink: u64, pcie: u64) -> Counts {
        let at = Duration::from_millis(milliseconds);
        Counts {
            asked: at,
            answered: at,
            nvlink: Some([nvlink, nvlink / 2]),
            links: vec![(0, [nvlink, 0]), (1, [0, nvlink / 2])],
            pcie: Some([pcie, 0]),
            failure: None,
            ..Counts::default()
        }
    }

    fn look(second: u64, busy: u8, clock: u32, held: &[&str]) -> Look {
        let power = Power {
            milliwatts: Some(600_000),
            limit_milliwatts: Some(700_000),
            ..Power::default()
        };
        let sample = LinkSample {
            busy_percent: Some(busy),
            sm_clock_mhz: Some(clock),
            temperature_c: Some(50 + u32::from(busy) / 10),
            power: Some(power),
            throttle_reasons: held.iter().map(|reason| (*reason).to_owned()).collect(),
            ..LinkSample::default()
        };
        Look {
            sample,
            counts: counts(1000 * second, 300 * GB * second, 0),
            pcie: vec![[1.0, 3.0], [3.0, 3.0]],
        }
    }

    #[test]
    fn readings_become_rates_and_means() {
        let looks = [
            look(0, 0, 300, &[]),
            look(1, 100, 1980, &["sw-power-cap"]),
            look(2, 90, 1900, &["sw-power-cap"]),
        ];
        let own = of_gpu(3, &looks, false);
        let rates = [
            own.nvlink_sent_gbps,
            own.nvlink_received_gbps,
            own.pcie_sent_gbps,
            own.pcie_received_gbps,
        ];
        assert_eq!(rates.map(|rate| rate.unwrap().0), [300.0, 150.0, 2.0, 3.0]);
        let link = |link, sent, received| LinkTraffic {
            link,
            sent_gbps: GbPerSecond(sent),
            received_gbps: GbPerSecond(received),
        };
        assert_eq!(own.nvlinks, [link(0, 300.0, 0.0), link(1, 0.0, 150.0)]);
        assert_eq!((own.gpu, own.readings, own.temperature_c), (3, 3, Some(60)));
        assert_eq!(own.sm_clock_mhz, Some(1980), "the reading at rest does not count");
        assert!((own.busy_percent.unwrap() - 63.3).abs() < 0.1 && own.power_w == Some(600.0));
        assert_eq!(own.held.len(), 1);
        assert!((own.held[0].percent - 66.7).abs() < 0.1, "{:?}", own.held);
        // The driver's own time counts where it is known.
        let mut timed = looks.clone();
        for (second, look) in (0_u64..).zip(&mut timed) {
            let power = look.sample.power.as_mut().unwrap();
            power.held_ns[0] = Some(7 + 250_000_000 * second);
        }
        let held =
            Held { reason: "sw-power-cap".into(), percent: 25.0, nanoseconds: Some(500_000_000) };
        assert_eq!(of_gpu(3, &timed, false).held, [held]);
        // One reading is no rate, and a clock at rest is better than none.
        let one = of_gpu(3, &looks[..1], true);
        assert_eq!((one.nvlink_sent_gbps, one.sm_clock_mhz), (None, Some(300)));
        assert!(one.reason.is_some() && of_gpu(3, &[], false).readings == 0);
    }

    #[test]
    fn a_counter_of_pcie_that_wraps_is_read_on() {
        let rates = |then, now| pcie_rates(&counts(0, 0, then), &counts(20, 0, now)).unwrap()[0];
        assert!((rates(GB, 2 * GB) - 50.0).abs() < 1e-9);
        assert!((rates(PCIE_COUNTER_RANGE - GB / 2, GB / 2) - 50.0).abs() < 1e-9);
        // A counter of 64 bits does not wrap here; one that is set back says nothing.
        assert!((rates(5 * PCIE_COUNTER_RANGE, 5 * PCIE_COUNTER_RANGE + GB) - 50.0).abs() < 1e-9);
        assert!(rates(5 * PCIE_COUNTER_RANGE, 0).abs() < 1e-9);
        assert!(pcie_rates(&counts(20, 0, 0), &counts(20, 0, 9)).is_none(), "no time passed");
    }

    #[test]
    fn hours_are_thinned_out_and_keep_their_ends_and_changes() {
        let mut looks: Vec<Look> = (0..12).map(|second| look(second, 100, 1980, &[])).collect();
        for (at, look) in looks.iter_mut().enumerate() {
            look.sample.width = model::units::Lanes::try_from(if at == 5 { 8_u8 } else { 16 }).ok();
        }
        thin(&mut looks);
        let at: Vec<u64> = looks.iter().map(|look| look.counts.asked.as_secs()).collect();
        assert_eq!(at, [0, 2, 4, 5, 6, 8, 10, 11]);
        assert!((of_gpu(0, &looks, false).nvlink_sent_gbps.unwrap().0 - 300.0).abs() < 1e-9);
    }
}
