//! Waits until no other peerscope measures this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::remark;
use crate::discover;
use crate::hardware::{ErrorKind, HardwareError, Lock, Machine, NotLocked};
use crate::model::measurement::{DriverFacts, Hindrance};
use crate::recording::{Event, Journal, Recorded, Recorder};

/// How often it is tried again.
const POLL: Duration = Duration::from_millis(50);

/// What came of it.
pub enum Turn {
    /// The machine is this run's until the lock is dropped.
    Ours(Lock),
    /// Nobody can tell; a sentence says why. The run goes on.
    Unknown(String),
    /// Another run has it; a sentence says which.
    Theirs(String),
    /// The user stopped the wait.
    Interrupted,
}

/// Takes the lock of the machine, waiting for so long where another run has it.
pub fn take(machine: &Machine, wait: Option<Duration>, stop: &AtomicBool) -> Turn {
    let began = Instant::now();
    let limit = wait.unwrap_or_default();
    let mut announced = false;
    loop {
        match machine.lock() {
            Ok(lock) => return Turn::Ours(lock),
            Err(NotLocked::Impossible(why)) => return Turn::Unknown(why),
            Err(NotLocked::Taken) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Turn::Interrupted;
        }
        if began.elapsed() >= limit {
            let holder = machine.holder();
            return Turn::Theirs(match wait {
                None => format!("{holder}; wait with --wait SECONDS"),
                Some(wait) => format!("{holder}; it did not end within {} s (--wait)", wait.as_secs_f64()),
            });
        }
        if !announced {
            remark(&format!("{}; waiting for up to {} s", machine.holder(), limit.as_secs_f64()));
            announced = true;
        }
        std::thread::sleep(POLL);
    }
}

/// What a run comes to whose turn never came: nothing was read and nothing measured.
pub fn nothing(profile: &str, turn: Turn) -> Recorded {
    let (why, interrupted) = match turn {
        Turn::Theirs(why) => (why, false),
        _ => ("interrupted while it waited for another check".to_owned(), true),
    };
    remark(&why);
    let mut recorder = Recorder::new(Journal::none(), profile, Instant::now());
    let error = HardwareError::new(ErrorKind::Hindered, why.clone());
    recorder.take(Event::Facts { snapshot: discover::without_telemetry(&error) });
    let facts = DriverFacts { failure: Some(why), hindrance: Some(Hindrance::AnotherCheck), ..DriverFacts::default() };
    recorder.take(Event::Driver { floor_seconds: 0.0, facts });
    recorder.take(Event::Measured { interrupted });
    recorder.finish().0
}
