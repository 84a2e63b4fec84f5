//! The worker's side of the pipe.

use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::link::Link;
use super::protocol::{Reply, Request};
use hardware::{Driver, ErrorKind, HardwareError, Machine, limits};
use model::measurement::Rung;
use probes::share::{Sharer, Taken, Turn};
use probes::{Bench, Outcome, Round, RunEvent};

/// Serves rounds until the parent closes the pipe, or a context is broken. The driver must start within `start_limit`. The
/// process ends with `parent`, if it is given. With `has_partner`, stdin is a socket to the parent, stdout one to another worker.
///
/// # Errors
///
/// The parent is gone, or its requests do not follow this protocol.
pub fn serve(
    machine: &dyn Machine,
    start_limit: Duration,
    parent: Option<u32>,
    has_partner: bool,
) -> Result<(), String> {
    parent.map_or(Ok(()), die_with)?;
    if has_partner {
        let (to_parent, partner) = partnered()?;
        serve_over(machine, start_limit, to_parent, Some(&partner))
    } else {
        serve_over(machine, start_limit, io::stdout(), None)
    }
}

fn serve_over(
    machine: &dyn Machine,
    start_limit: Duration,
    mut to_parent: impl Write,
    partner: Option<&Link>,
) -> Result<(), String> {
    let requests = match read_requests() {
        Ok(requests) => requests,
        Err(error) => return say(&mut to_parent, &Reply::NoDriver { error }),
    };
    // Start the driver before the first request, while the parent still reads facts.
    let driver = match machine.driver(start_limit) {
        Ok(driver) => driver,
        Err(error) => return say(&mut to_parent, &Reply::NoDriver { error }),
    };
    let driver: &dyn Driver = driver.as_ref();
    let Some(first) = requests.recv().ok().transpose()? else {
        return Ok(());
    };
    let Request::Open { selections, memory_limit, one_by_one } = first else {
        return Err("the first request must open GPUs".into());
    };
    let mut gone = Ok(());
    let mut opening = |gpu| gone = gone.clone().and(say(&mut to_parent, &Reply::Opening { gpu }));
    let bench = Bench::open_telling(driver, &selections, memory_limit, one_by_one, &mut opening);
    gone?;
    say(
        &mut to_parent,
        &Reply::Ready { facts: bench.facts().clone(), floor_seconds: driver.floor_seconds() },
    )?;
    let sharer = Sharer::new(&bench);
    while let Some(request) = requests.recv().ok().transpose()? {
        let rounds = match (request, partner) {
            (Request::Run { rounds }, _) => rounds,
            (Request::Share { step }, Some(partner)) => {
                let taken = share(&sharer, step, partner);
                say(&mut to_parent, &Reply::Taken { taken })?;
                continue;
            }
            (Request::Share { .. }, None) => return Err("there is no other process".into()),
            (Request::Open { .. }, _) => return Err("GPUs are open already".into()),
        };
        let (mut broken, mut written) = (false, Ok(()));
        let mut done = |round: &Round, outcome| {
            let (outcome, ends) = settled(outcome, || bench.drain(round));
            broken |= ends;
            Reply::Done { id: round.id, outcome, clock: driver.now() }
        };
        bench.run(&rounds, &mut |what| {
            let replies = match what {
                RunEvent::Apart(head, error) => vec![Reply::Apart { id: head.id, error }],
                RunEvent::Seen(round, timeline) => vec![Reply::Seen { id: round.id, timeline }],
                RunEvent::Ended(round, outcome) => vec![done(round, outcome)],
                RunEvent::Together(all) => {
                    all.into_iter().map(|(round, outcome)| done(round, outcome)).collect()
                }
            };
            written = written.clone().and_then(|()| say_all(&mut to_parent, &replies));
        });
        written?;
        if broken {
            break;
        }
    }
    Ok(())
}

/// Takes a step of sharing, with the descriptor that comes with it or goes to the other process.
fn share(sharer: &Sharer<'_, '_>, step: Turn, partner: &Link) -> Taken {
    let comes = match &step {
        Turn::Take { rung: Rung::Descriptor, .. } => partner.receive().map(Some),
        _ => Ok(None),
    };
    let (taken, goes) = match comes {
        Ok(descriptor) => sharer.step(step, descriptor),
        Err(error) => return sharer.refused(false, error),
    };
    match goes.map_or(Ok(()), |descriptor| partner.send(&descriptor)) {
        Ok(()) => taken,
        Err(error) => sharer.refused(true, error),
    }
}

/// Returns the two sockets of a process that has a partner: to the parent, on its stdin, and to the partner, on its stdout.
fn partnered() -> Result<(UnixStream, Link), String> {
    let own = |of: std::os::fd::BorrowedFd<'_>| of.try_clone_to_owned();
    let sockets = own(io::stdin().as_fd()).and_then(|parent| {
        let partner = own(io::stdout().as_fd())?;
        Ok((UnixStream::from(parent), Link::new(partner)))
    });
    sockets.map_err(|error| format!("no socket to another process: {error}"))
}

/// Lets the devices finish after an error, within the deadline of the failed round. Leftovers then do not disturb the
/// next round's check. If that fails as well, this process is of no more use. Returns the outcome, whose error kind
/// reports this to the parent, and true if the process must end.
fn settled(outcome: Outcome, drain: impl FnOnce() -> Result<(), HardwareError>) -> (Outcome, bool) {
    let Outcome::Failed { error } = outcome else {
        return (outcome, false);
    };
    if error.kind == ErrorKind::Sticky {
        return (Outcome::Failed { error }, true);
    }
    match drain() {
        Ok(()) => (Outcome::Failed { error }, false),
        // A limit of the process is no evidence of a fault. The parent finds the worker gone, and starts another.
        Err(left) if left.kind == ErrorKind::Hindered => (Outcome::Failed { error }, true),
        Err(left) => {
            let message = format!("{error}; what it left on the devices did not end well: {left}");
            (
                Outcome::Failed {
                    error: HardwareError { kind: ErrorKind::Sticky, message, ..error },
                },
                true,
            )
        }
    }
}

/// Asks the kernel to end this process when its parent ends. Fails if the parent has ended already.
fn die_with(parent: u32) -> Result<(), String> {
    // If this fails, the closing pipe still ends the process; see below.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A parent that ended before that call sends no signal.
    let still_there =
        getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent));
    if still_there { Ok(()) } else { Err(format!("the parent, process {parent}, is gone")) }
}

/// Reads the description of a machine, which the parent sends as its first line.
///
/// # Errors
///
/// The pipe cannot be read.
pub fn description() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

fn say(to_parent: &mut impl Write, reply: &Reply) -> Result<(), String> {
    say_all(to_parent, std::slice::from_ref(reply))
}

/// Sends several replies in one call: each call would wake the parent.
fn say_all(to_parent: &mut impl Write, replies: &[Reply]) -> Result<(), String> {
    let mut send = || {
        let mut lines = Vec::new();
        for reply in replies {
            serde_json::to_writer(&mut lines, reply)?;
            lines.push(b'\n');
        }
        to_parent.write_all(&lines)?;
        to_parent.flush()
    };
    send().map_err(|error: io::Error| format!("the parent is gone: {error}"))
}

/// Reads requests on a thread of their own. If the parent is gone, the process ends at once, even while a copy hangs: a
/// worker must not outlive its parent.
fn read_requests() -> Result<mpsc::Receiver<Result<Request, String>>, HardwareError> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines() {
            let request = line.map_err(|error| error.to_string()).and_then(|line| {
                serde_json::from_str(&line)
                    .map_err(|error| format!("a request is not readable: {error}"))
            });
            if sender.send(request).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    thread.map(|_| receiver).map_err(|error| {
        limits::not_started(format!("no thread can read what is to be measured: {error}"), &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: ErrorKind) -> Outcome {
        Outcome::Failed { error: HardwareError::new(kind, "cuMemcpyPeerAsync: no (1)") }
    }

    fn kind(outcome: &Outcome) -> ErrorKind {
        let Outcome::Failed { error } = outcome else { panic!("{outcome:?}") };
        error.kind
    }

    #[test]
    fn what_an_error_leaves_is_waited_for_before_the_next_round() {
        let mut drained = 0;
        let mut drain = || {
            drained += 1;
            Ok(())
        };
        let rows = Outcome::Rows { rows: Vec::new() };
        assert_eq!(settled(rows.clone(), &mut drain), (rows, false));
        assert_eq!(
            settled(failed(ErrorKind::Sticky), &mut drain),
            (failed(ErrorKind::Sticky), true)
        );
        assert_eq!(
            settled(failed(ErrorKind::Other), &mut drain),
            (failed(ErrorKind::Other), false)
        );
        assert_eq!(
            settled(failed(ErrorKind::Hindered), &mut drain),
            (failed(ErrorKind::Hindered), false)
        );
        assert_eq!(drained, 2, "after errors that the process survives");
    }

    #[test]
    fn what_cannot_be_waited_for_ends_the_worker() {
        let left = |kind| move || Err(HardwareError::new(kind, "cuCtxSynchronize: gone (719)"));
        let (outcome, broken) = settled(failed(ErrorKind::Other), left(ErrorKind::Sticky));
        assert_eq!((kind(&outcome), broken), (ErrorKind::Sticky, true));
        let Outcome::Failed { error } = outcome else { panic!() };
        assert!(error.message.contains("(1)") && error.message.contains("(719)"), "{error}");
        let (outcome, broken) = settled(failed(ErrorKind::Hindered), left(ErrorKind::Hindered));
        assert_eq!((outcome, broken), (failed(ErrorKind::Hindered), true), "it accuses nothing");
    }
}
