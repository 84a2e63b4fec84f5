//! Readings of GPUs' links, taken again and again while copies run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{LinkSample, Telemetry, limits};

/// Takes readings of some GPUs until it is stopped.
pub trait Sampler: Send {
    /// Reports the driver's clock ([`super::Driver::now`]) of the current worker. Matters only to machines whose time passes
    /// with that clock.
    fn follow(&mut self, _now: Duration) {}

    /// Returns the readings since the last call, by NVML's index. Those of one GPU are in their order.
    fn drain(&self) -> Vec<(u32, LinkSample)>;

    /// Asks for the last readings; does not wait for them.
    fn stop(&mut self);

    /// Waits at most `patience` for the last readings, and returns the GPUs whose last reading did not come.
    fn late(&self, patience: Duration) -> Vec<u32>;

    /// Why GPUs are not sampled, a sentence each.
    fn unwatched(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Readings on the host's clock, each GPU on a thread of its own: NVML can block for minutes on one of them.
pub struct Threads {
    stop: Arc<AtomicBool>,
    seen: Vec<(u32, Arc<Mutex<Seen>>)>,
    threads: Vec<JoinHandle<()>>,
    unwatched: Vec<String>,
}

#[derive(Default)]
struct Seen {
    /// Readings that nobody has taken yet.
    samples: Vec<LinkSample>,
    ended: bool,
}

impl Threads {
    /// Begins to sample these GPUs, with this time between two readings.
    pub fn start(telemetry: &Arc<dyn Telemetry>, gpus: &[u32], interval: Duration) -> Self {
        let mut sampler = Self {
            stop: Arc::default(),
            seen: Vec::new(),
            threads: Vec::new(),
            unwatched: Vec::new(),
        };
        for &index in gpus {
            let (telemetry, stop) = (Arc::clone(telemetry), Arc::clone(&sampler.stop));
            let seen = Arc::new(Mutex::new(Seen::default()));
            let mine = Arc::clone(&seen);
            let work = move || look(telemetry.as_ref(), index, interval, &stop, &mine);
            match std::thread::Builder::new().spawn(work) {
                Ok(thread) => {
                    sampler.seen.push((index, seen));
                    sampler.threads.push(thread);
                }
                Err(error) => {
                    let why = format!(
                        "GPU {index} is not watched while copies run, no thread can be started"
                    );
                    let why = limits::not_started(why, &error).message;
                    sampler.unwatched.push(why);
                }
            }
        }
        sampler
    }
}

impl Sampler for Threads {
    fn drain(&self) -> Vec<(u32, LinkSample)> {
        let taken = self.seen.iter().flat_map(|(index, seen)| {
            let samples =
                seen.lock().map(|mut seen| std::mem::take(&mut seen.samples)).unwrap_or_default();
            samples.into_iter().map(|sample| (*index, sample))
        });
        taken.collect()
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    fn late(&self, patience: Duration) -> Vec<u32> {
        let until = Instant::now() + patience;
        let ended = |seen: &Mutex<Seen>| seen.lock().is_ok_and(|seen| seen.ended);
        while !self.seen.iter().all(|(_, seen)| ended(seen)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.seen.iter().filter(|(_, seen)| !ended(seen)).map(|(index, _)| *index).collect()
    }

    fn unwatched(&self) -> Vec<String> {
        self.unwatched.clone()
    }
}

/// Reads a GPU again and again until it is stopped.
fn look(
    telemetry: &dyn Telemetry,
    index: u32,
    interval: Duration,
    stop: &AtomicBool,
    seen: &Mutex<Seen>,
) {
    for reading in 0_u64.. {
        // The flag is read first, so that the last reading comes after the copies. There are two readings at least,
        // however short the run.
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
            std::thread::park_timeout(interval);
        }
    }
}
