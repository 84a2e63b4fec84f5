//! The worker's side of the pipe.

use std::io::{BufRead, Write};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::protocol::{Reply, Request};
use crate::hardware::{Driver, ErrorKind, HardwareError, Machine, limits};
use crate::measure::{Bench, Outcome};

/// Serves rounds until the parent closes the pipe, or a context is broken. The driver is to start
/// within `start_limit`.
///
/// # Errors
///
/// The parent is gone, or its requests are not those of this protocol.
pub fn serve(machine: &Machine, start_limit: Duration, mut to_parent: impl Write) -> Result<(), String> {
    let requests = match read_requests() {
        Ok(requests) => requests,
        Err(error) => return say(&mut to_parent, &Reply::NoDriver { error }),
    };
    // Before the first request, so that the driver starts while the parent still reads facts.
    let driver = match machine.driver_within(start_limit) {
        Ok(driver) => driver,
        Err(error) => return say(&mut to_parent, &Reply::NoDriver { error }),
    };
    let driver: &dyn Driver = driver.as_ref();
    let Some(first) = requests.recv().ok().transpose()? else { return Ok(()) };
    let Request::Open { selections, memory_limit, one_by_one } = first else {
        return Err("the first request must open GPUs".into());
    };
    let mut gone = Ok(());
    let mut opening = |gpu| gone = gone.clone().and(say(&mut to_parent, &Reply::Opening { gpu }));
    let bench = Bench::open_telling(driver, &selections, memory_limit, one_by_one, &mut opening);
    gone?;
    say(&mut to_parent, &Reply::Ready { facts: bench.facts().clone(), floor_seconds: driver.floor_seconds() })?;
    while let Some(request) = requests.recv().ok().transpose()? {
        let Request::Run { round } = request else { return Err("GPUs are open already".into()) };
        let outcome = bench.run(&round);
        let broken = matches!(&outcome, Outcome::Failed { error } if error.kind == ErrorKind::Sticky);
        say(&mut to_parent, &Reply::Done { id: round.id, outcome })?;
        if broken {
            break;
        }
    }
    Ok(())
}

/// Asks the kernel to end this process when its parent ends.
///
/// # Errors
///
/// The parent has ended already.
pub fn die_with(parent: u32) -> Result<(), String> {
    // Without it there is still the pipe that closes, see below.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A parent that ended before that call sends no signal any more.
    let still_there = getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent));
    if still_there { Ok(()) } else { Err(format!("the parent, process {parent}, is gone")) }
}

/// The machine that the parent describes in its first line.
///
/// # Errors
///
/// It describes none.
pub fn described_machine() -> Result<Machine, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Machine::described(line.as_bytes()).map_err(|error| format!("the machine is not readable: {error}"))
}

fn say(to_parent: &mut impl Write, reply: &Reply) -> Result<(), String> {
    let mut line = serde_json::to_vec(reply).map_err(|error| error.to_string())?;
    line.push(b'\n');
    to_parent.write_all(&line).and_then(|()| to_parent.flush()).map_err(|error| format!("the parent is gone: {error}"))
}

/// Reads requests on a thread of their own. When the parent is gone, the process ends at once, even
/// while a copy hangs: a worker must not outlive its parent.
fn read_requests() -> Result<mpsc::Receiver<Result<Request, String>>, HardwareError> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let request = line.map_err(|error| error.to_string()).and_then(|line| {
                serde_json::from_str(&line).map_err(|error| format!("a request is not readable: {error}"))
            });
            if sender.send(request).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    thread
        .map(|_| receiver)
        .map_err(|error| limits::not_started(format!("no thread can read what is to be measured: {error}"), &error))
}
