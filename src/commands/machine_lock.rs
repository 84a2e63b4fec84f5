//! Waits until no other peerscope measures this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::remark;
use hardware::{ErrorKind, HardwareError, Lock, Machine, NotLocked};
use model::measurement::{DriverFacts, Hindrance};
use run::discover;
use run::recording::{Event, Journal, Recorded, Recorder};

/// Interval between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(50);
/// Interval between two attempts while the worker of an ended check is taken down.
const SHORT_POLL: Duration = Duration::from_millis(5);
/// Longest time for taking down that worker: some hundred times the time measured with 4 GPUs. After that it is stuck,
/// and may be so for ever.
const LAST_WORKER: Duration = Duration::from_secs(20);

/// Interval between two questions about the lock's holder. The kernel keeps every question until the holder ends, and
/// has room for some thousand.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(super) enum MachineLock {
    /// This run has the machine until the lock is dropped.
    Ours(Lock),
    /// The state cannot be found out; the sentence is the reason. The run goes on.
    Unknown(String),
    /// Another run has the machine; the sentence names it.
    Theirs(String),
    /// The user stopped the wait.
    Interrupted,
}

/// Takes the lock of the machine. Waits for at most `wait` if another run has it. If that run has ended and only its
/// worker still dies, waits even without `wait`.
pub(super) fn take(
    machine: &dyn Machine,
    wait: Option<Duration>,
    stop: &AtomicBool,
) -> MachineLock {
    let began = Instant::now();
    let limit = wait.unwrap_or_default();
    let mut announced = false;
    let mut asked = None;
    loop {
        match machine.lock() {
            Ok(lock) => return MachineLock::Ours(lock),
            Err(NotLocked::Impossible(why)) => return MachineLock::Unknown(why),
            Err(NotLocked::Taken) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return MachineLock::Interrupted;
        }
        let fresh = asked.take().filter(|(at, _): &(Instant, _)| at.elapsed() < ASK_AGAIN);
        let (at, holder) = fresh.unwrap_or_else(|| (Instant::now(), machine.holder()));
        let (is_gone, words) = (holder.is_gone(), holder.to_string());
        asked = Some((at, holder));
        if is_gone {
            if began.elapsed() >= LAST_WORKER {
                return MachineLock::Unknown(
                    "the worker of an earlier check has not ended yet: it may be stuck in the kernel driver, and with \
                     it the GPUs that it holds"
                        .into(),
                );
            }
            std::thread::sleep(SHORT_POLL);
            continue;
        }
        if began.elapsed() >= limit {
            return MachineLock::Theirs(match wait {
                None => format!("{words}; wait with --wait TIME"),
                Some(wait) => {
                    format!("{words}; it did not end within {} s (--wait)", wait.as_secs_f64())
                }
            });
        }
        if !announced {
            remark(&format!("{words}; waiting for up to {} s", limit.as_secs_f64()));
            announced = true;
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the result of a run whose turn never came: nothing was read and nothing measured.
pub(super) fn nothing(profile: &str, lock: MachineLock) -> Recorded {
    let (why, interrupted) = match lock {
        MachineLock::Theirs(why) => (why, false),
        _ => ("interrupted while it waited for another check".to_owned(), true),
    };
    remark(&why);
    let mut recorder = Recorder::new(Journal::none(), profile, Instant::now());
    let error = HardwareError::new(ErrorKind::Hindered, why.clone());
    recorder.take(Event::Facts { snapshot: discover::without_telemetry(&error) });
    let facts = DriverFacts {
        failure: Some(why),
        hindrance: Some(Hindrance::AnotherCheck),
        ..DriverFacts::default()
    };
    recorder.take(Event::Driver { floor_seconds: 0.0, facts });
    recorder.take(Event::Measured { interrupted });
    recorder.finish().0
}
