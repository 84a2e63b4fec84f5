//! Watches the GPUs while this program leaves them alone: any traffic then belongs to another program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::watch::counters::wrapping_added;
use hardware::{Moved, Telemetry, limits};
use model::background::{Background, LeftAlone, Moment};
use model::units::GbPerSecond;

/// Time between the first two readings. The counter of PCIe bytes wraps every 67 ms at 64 GB/s.
const PAUSE: Duration = Duration::from_millis(30);
/// Time between the first two readings after the copies, while the program waits. A reading takes 2 ms for each GPU (4
/// x H200).
const PAUSE_AT_THE_END: Duration = Duration::from_millis(10);
/// Longest wait for GPUs that are late with their last reading; without late GPUs there is no wait. Chosen: NVML
/// answers within milliseconds, and within a second while a driver starts.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest period that NVML's utilisation covers, and some more (`nvmlUtilization_t`: between a sixth of a second and a
/// second). A shorter watch may see what ran before it.
const PERIOD: Duration = Duration::from_millis(1100);

/// A watch of GPUs that this program leaves alone.
pub struct Quiet {
    /// Earliest time of the second reading.
    second_look: Instant,
    moment: Moment,
    /// Longest wait for the last reading.
    patience: Duration,
    /// The GPUs; with the reason for a GPU that no thread watches.
    gpus: Vec<(LeftAlone, Option<String>)>,
    over: Arc<AtomicBool>,
    threads: Vec<Thread>,
    inbox: mpsc::Receiver<Background>,
}

impl Quiet {
    /// Begins to watch, each GPU on a thread of its own: NVML can block for minutes on one of them.
    pub fn begin(telemetry: &Arc<dyn Telemetry>, gpus: &[LeftAlone], moment: Moment) -> Self {
        let began = Instant::now();
        let (answer, inbox) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let pause = if moment == Moment::End { PAUSE_AT_THE_END } else { PAUSE };
        let second_look = Instant::now() + pause;
        let watch = |gpu: LeftAlone| {
            let (telemetry, over, answer) =
                (Arc::clone(telemetry), Arc::clone(&over), answer.clone());
            let watch = move || {
                let first = telemetry.moved(gpu.gpu);
                std::thread::sleep(pause);
                let awaited = over.load(Ordering::Relaxed);
                let second = telemetry.moved(gpu.gpu);
                // If `end` waits already, a third reading would show the same moment.
                let last =
                    if awaited { second.clone() } else { third(&*telemetry, gpu.gpu, &over) };
                let mut seen = seen(gpu, moment, [first, second, last]);
                let left = PERIOD.saturating_sub(began.elapsed());
                settle(&mut seen, left, || telemetry.moved(gpu.gpu).utilization_percent);
                // The receiver is gone if the reading took too long.
                let _ = answer.send(seen);
            };
            std::thread::Builder::new().spawn(watch).map(|thread| thread.thread().clone())
        };
        let (mut threads, mut watched) = (Vec::new(), Vec::new());
        for &gpu in gpus {
            let why = watch(gpu).map(|thread| threads.push(thread)).err().map(|error| {
                limits::not_started(format!("no thread could be started for it: {error}"), &error)
                    .message
            });
            watched.push((gpu, why));
        }
        Self {
            second_look,
            moment,
            patience: telemetry.patience(PATIENCE),
            gpus: watched,
            over,
            threads,
            inbox,
        }
    }

    /// Ends the watch. A GPU that does not answer in time is returned as unread.
    pub fn end(self) -> Vec<Background> {
        self.over.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(Thread::unpark);
        let until = Instant::now().max(self.second_look) + self.patience;
        let next = || self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let mut seen: Vec<_> = std::iter::from_fn(next).take(self.threads.len()).collect();
        for (gpu, why) in self.gpus {
            if seen.iter().all(|seen| seen.gpu != gpu.gpu) {
                let why = why.unwrap_or_else(|| "NVML did not answer in time".into());
                seen.push(Background::unread(gpu, self.moment, Some(why)));
            }
        }
        seen.sort_by_key(|background| background.gpu);
        seen
    }
}

/// Waits for the end of the watch and takes the last reading.
fn third(telemetry: &dyn Telemetry, gpu: u32, over: &AtomicBool) -> Moved {
    while !over.load(Ordering::Relaxed) {
        std::thread::park();
    }
    telemetry.moved(gpu)
}

/// Returns the activity that three readings of a GPU show.
fn seen(gpu: LeftAlone, moment: Moment, looks: [Moved; 3]) -> Background {
    let [first, second, last] = &looks;
    // The counter of PCIe bytes cannot wrap over the short time. It may have wrapped over the long time, and its
    // difference is then a lower bound of the traffic.
    let [sent, received] = [0, 1].map(|way| {
        let counted = [pcie(first, second, way), pcie(first, last, way)];
        let rates = looks.iter().filter_map(|look| Some(look.pcie_rates?[way].0));
        counted.into_iter().flatten().chain(rates).reduce(f64::max).map(GbPerSecond)
    });
    let shares = looks.iter().map(|look| look.utilization_percent);
    Background {
        nvlink_sent_gbps: nvlink(first, last, 0),
        nvlink_received_gbps: nvlink(first, last, 1),
        pcie_sent_gbps: sent,
        pcie_received_gbps: received,
        utilization_percent: match moment {
            Moment::Start => shares.min().flatten(),
            Moment::End | Moment::Load => None,
        },
        ..Background::unread(gpu, moment, looks.iter().find_map(|look| look.failure.clone()))
    }
}

/// Waits until the utilisation covers nothing from before the watch, and takes it again, if it looks like another program's work:
/// only programs with a context work.
fn settle(seen: &mut Background, left: Duration, later: impl FnOnce() -> Option<u8>) {
    if seen.has_processes && seen.at_work_percent().is_some() && !left.is_zero() {
        std::thread::sleep(left);
        if let Some(later) = later() {
            seen.utilization_percent = seen.utilization_percent.min(Some(later));
        }
    }
}

fn nvlink(from: &Moved, to: &Moved, way: usize) -> Option<GbPerSecond> {
    rate(to.nvlink?[way].saturating_sub(from.nvlink?[way]), from, to)
}

fn pcie(from: &Moved, to: &Moved, way: usize) -> Option<f64> {
    rate(wrapping_added(from.pcie?[way], to.pcie?[way]), from, to).map(|rate| rate.0)
}

fn rate(bytes: u64, from: &Moved, to: &Moved) -> Option<GbPerSecond> {
    // This rate is a lower bound: a call of NVML takes longer while the driver starts.
    let time = to.answered.saturating_sub(from.asked);
    (!time.is_zero()).then(|| GbPerSecond::of(bytes, time.as_secs_f64() * 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::spec::OthersWork;

    fn look(at: u64, nvlink: u64, pcie: u64, utilization: u8) -> Moved {
        Moved {
            asked: Duration::from_millis(at),
            answered: Duration::from_millis(at),
            nvlink: Some([nvlink, 0]),
            pcie: Some([0, pcie]),
            pcie_rates: None,
            utilization_percent: Some(utilization),
            failure: None,
        }
    }

    fn of(gpu: u32) -> LeftAlone {
        LeftAlone { gpu, ..LeftAlone::default() }
    }

    #[test]
    fn counters_become_rates_and_a_wrapped_one_the_least_that_moved() {
        // 60 GB/s arrive from the host: 1.8 GB in 30 ms, 60 GB in a second, of which the counter shows little.
        let start = u32::MAX - 1000;
        let looks = [
            look(0, 0, start.into(), 0),
            look(30, 12_000_000_000, start.wrapping_add(1_800_000_000).into(), 97),
            look(1000, 400_000_000_000, start.wrapping_add(5_000_000).into(), 98),
        ];
        let seen = super::seen(of(3), Moment::Start, looks.clone());
        assert_eq!((seen.gpu, seen.nvlink_sent_gbps), (3, Some(GbPerSecond(400.0))));
        assert_eq!(
            (seen.pcie_sent_gbps, seen.pcie_received_gbps),
            (Some(GbPerSecond(0.0)), Some(GbPerSecond(60.0)))
        );
        // A run that ended just before raised the utilization of the first reading only.
        assert_eq!(seen.utilization_percent, Some(0));
        assert_eq!(super::seen(of(3), Moment::End, looks.clone()).utilization_percent, None);

        let rates = Some([GbPerSecond(0.25), GbPerSecond(12.0)]);
        let older = Moved {
            pcie: None,
            nvlink: None,
            pcie_rates: rates,
            utilization_percent: None,
            ..looks[0].clone()
        };
        let seen = super::seen(
            of(0),
            Moment::End,
            [
                older.clone(),
                older.clone(),
                Moved { failure: Some("NVML: unknown error (999)".into()), ..older },
            ],
        );
        assert_eq!(seen.reason.as_deref(), Some("NVML: unknown error (999)"));
        assert_eq!(
            (seen.pcie_sent_gbps, seen.pcie_received_gbps),
            (rates.map(|of| of[0]), rates.map(|of| of[1]))
        );
        assert_eq!((seen.nvlink_sent_gbps, seen.utilization_percent), (None, None));
    }

    #[test]
    fn work_from_before_the_watch_is_no_work_of_others() {
        let left = Duration::from_millis(1);
        let of_percent = |percent| Background {
            utilization_percent: Some(percent),
            has_processes: true,
            ..Background::unread(of(0), Moment::Start, None)
        };
        let settled = |percent, left, later: Option<u8>| {
            let mut seen = of_percent(percent);
            super::settle(&mut seen, left, || later);
            seen.utilization_percent
        };
        assert_eq!(settled(12, left, Some(0)), Some(0));
        assert_eq!(settled(12, left, Some(98)), Some(12));
        assert_eq!(settled(12, left, None), Some(12));
        // Another reading would show no more.
        let unread = || unreachable!("the GPU was read again");
        super::settle(&mut of_percent(12), Duration::ZERO, unread);
        super::settle(&mut of_percent(3), left, unread);
        let mut alone = Background { has_processes: false, ..of_percent(98) };
        super::settle(&mut alone, left, unread);
    }

    #[test]
    fn gpus_that_others_use_are_seen_when_they_use_them() {
        let mut spec = sim::builtin::get("h200x2").unwrap();
        let others = OthersWork {
            gpu: 1,
            only_at: Some(Moment::End),
            nvlink: [0.0, 300.0].map(|gbps: f64| gbps.try_into().unwrap()),
            pcie: [0.0; 2].map(|gbps: f64| gbps.try_into().unwrap()),
            utilization: 90.try_into().unwrap(),
            unread: false,
            only_under_load: false,
        };
        spec.faults.others = vec![others];
        let telemetry = sim::telemetry(spec);
        let start = Quiet::begin(&telemetry, &[of(0), of(1)], Moment::Start).end();
        let end = Quiet::begin(&telemetry, &[of(0), of(1)], Moment::End).end();
        let busy = |seen: &[Background]| {
            seen.iter().map(|seen| (seen.gpu, seen.uses_nvlink())).collect::<Vec<_>>()
        };
        assert_eq!(
            (busy(&start), busy(&end)),
            (vec![(0, false), (1, false)], vec![(0, false), (1, true)])
        );
        assert_eq!(end[1].nvlink_received_gbps, Some(GbPerSecond(300.0)));
    }

    #[test]
    fn a_gpu_that_does_not_answer_or_has_no_thread_says_so() {
        let (answer, inbox) = mpsc::channel();
        let thread = std::thread::current();
        answer.send(Background::unread(of(1), Moment::Start, None)).unwrap();
        let quiet = Quiet {
            second_look: Instant::now(),
            moment: Moment::Start,
            patience: PATIENCE,
            gpus: vec![(of(0), Some("no thread".into())), (of(1), None), (of(2), None)],
            over: Arc::default(),
            threads: vec![thread.clone(), thread],
            inbox,
        };
        let seen = quiet.end();
        let reasons: Vec<_> = seen.iter().map(|seen| (seen.gpu, seen.reason.as_deref())).collect();
        assert_eq!(
            reasons,
            [(0, Some("no thread")), (1, None), (2, Some("NVML did not answer in time"))]
        );
        drop(answer);
    }
}
