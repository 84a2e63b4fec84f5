//! Watches PCIe links and throttling while copies run. An idle GPU drops its link to Gen1, so only
//! a reading under load tells what a slot can do; and a link that trains down does so under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hardware::{LinkSample, Telemetry};
use crate::model::measurement::LinkUnderLoad;

/// Time between readings of one GPU. One reading takes 0.36 ms, and reading without a pause cost
/// 0.04% of bandwidth on H200, so this costs nothing that could be seen.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a reading in flight is waited for at the end.
const PATIENCE: Duration = Duration::from_millis(500);

/// A watch over some GPUs.
pub struct Watch {
    stop: Arc<AtomicBool>,
    seen: Vec<(u32, Arc<Mutex<Seen>>)>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    samples: Vec<LinkSample>,
    ended: bool,
}

impl Watch {
    /// Begins to watch, each GPU on a thread of its own: NVML can block for minutes on one of them.
    pub fn start(telemetry: &Arc<dyn Telemetry>, gpus: &[u32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, threads) = gpus
            .iter()
            .map(|&index| {
                let (telemetry, stop) = (Arc::clone(telemetry), Arc::clone(&stop));
                let seen = Arc::new(Mutex::new(Seen::default()));
                let mine = Arc::clone(&seen);
                let thread = std::thread::spawn(move || {
                    loop {
                        // Read before looking at the flag, so that the last reading comes after the copies.
                        let last = stop.load(Ordering::Relaxed);
                        let sample = telemetry.sample(index);
                        let Ok(mut seen) = mine.lock() else { return };
                        seen.samples.push(sample);
                        seen.ended = last;
                        drop(seen);
                        if last {
                            return;
                        }
                        std::thread::park_timeout(INTERVAL);
                    }
                });
                ((index, seen), thread)
            })
            .unzip();
        Self { stop, seen, threads }
    }

    /// Ends the watch and says what was seen.
    pub fn finish(self) -> Vec<LinkUnderLoad> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let until = Instant::now() + PATIENCE;
        let all_ended = || self.seen.iter().all(|(_, seen)| seen.lock().is_ok_and(|seen| seen.ended));
        while !all_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.seen.iter().map(|(index, seen)| summary(*index, seen)).collect()
    }
}

fn summary(index: u32, seen: &Mutex<Seen>) -> LinkUnderLoad {
    let Ok(seen) = seen.lock() else {
        return LinkUnderLoad {
            index,
            readings: 0,
            generation: None,
            width: None,
            replays_added: None,
            throttle_reasons: Vec::new(),
            reason: Some("the watching thread failed".into()),
        };
    };
    let range = |figure: fn(&LinkSample) -> Option<u8>| {
        let known = || seen.samples.iter().filter_map(figure);
        Some([known().min()?, known().max()?])
    };
    let mut replays = seen.samples.iter().filter_map(|sample| sample.replays);
    let (first, last) = (replays.next(), replays.next_back());
    let mut throttle_reasons: Vec<String> =
        seen.samples.iter().flat_map(|sample| sample.throttle_reasons.iter().cloned()).collect();
    throttle_reasons.sort();
    throttle_reasons.dedup();
    LinkUnderLoad {
        index,
        readings: u32::try_from(seen.samples.len()).unwrap_or(u32::MAX),
        generation: range(|sample| sample.generation),
        width: range(|sample| sample.width),
        replays_added: first.map(|first| last.unwrap_or(first).saturating_sub(first)),
        throttle_reasons,
        reason: (!seen.ended).then(|| "NVML did not answer in time".to_owned()),
    }
}
