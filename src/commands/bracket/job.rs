//! Runs a command between two readings. It has this process' stdin, stdout and stderr, and gets its signals.

use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, waitid};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::super::files::Files;
use super::super::{Failure, complain, remark};
use super::{Job, Source, conclude, judging_of_command, style};
use crate::cli::{BracketArgs, Cli, Color};
use ::diagnose::Ending;
use hardware::{Machine, Sampler, limits};
use measure::bracket::Meanwhile;
use report::{Of, Style, render};

/// Signals that the command gets.
const PASSED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT];

/// Time between two readings of a GPU while the command runs. One takes 0.36 ms on H200, and the driver serves one call at
/// a time: with 8 GPUs that is 0.06% of its time.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time between two looks at these readings: few of them are kept.
const TIDIED: Duration = Duration::from_secs(60);

/// Exit codes of env(1) and of shells for a command that is not there, and for one that cannot be started.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
/// Added by shells to the number of the signal that ended a command.
const BY_SIGNAL: i32 = 128;

/// Runs the command and returns its exit code.
///
/// # Errors
///
/// The command was not started, because the command line is wrong.
pub(super) fn run(
    cli: &Cli,
    machine: &Arc<dyn Machine>,
    args: &BracketArgs,
) -> Result<u8, Failure> {
    let files = Files::prepare(&args.out.output, Of::All)?;
    let judging = judging_of_command(cli)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err("there is no command after '--'".into());
    };
    let passed = PassedOn::begin();
    let started = Instant::now();
    let mut source = Source::open(cli, machine);
    let before = source.read();
    let mut child = match Command::new(program).args(rest).spawn() {
        Ok(child) => child,
        Err(error) => {
            let name = program.to_string_lossy();
            complain(&format!("cannot start '{name}': {error}").into());
            return Ok(match error.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_STARTED,
            });
        }
    };
    passed.to(&child);
    // The command has the limits of its caller; from here on this process has its own.
    limits::raise();
    live::ignore_file_size_signal();
    let gpus: Vec<u32> = before.taken.gpus.iter().map(|taken| taken.gpu).collect();
    let sampler = source.telemetry.as_ref().ok();
    let mut sampler = sampler.map(|telemetry| Arc::clone(telemetry).sampler(&gpus, INTERVAL));
    let mut meanwhile = Meanwhile::default();
    let status = wait(&mut child, &passed, || {
        let read = sampler.iter().flat_map(|sampler| sampler.drain());
        read.for_each(|(gpu, sample)| meanwhile.add(gpu, sample));
    });
    sampler.iter_mut().for_each(|sampler: &mut Box<dyn Sampler>| sampler.stop());
    let after = source.read();
    let words = |text: &std::ffi::OsString| text.to_string_lossy().into_owned();
    let job = Job {
        name: args.job.clone(),
        command: Some(args.command.iter().map(words).collect()),
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    };
    let report = conclude(machine.name(), started, job, (before, after, &meanwhile), &judging);
    let style = style(cli, &args.out);
    let is_seen = std::io::stderr().is_terminal();
    let on_stderr = Style {
        color: style.color && (is_seen || cli.color == Color::Always),
        terminal: style.terminal && is_seen,
        ..style
    };
    let text = render(&report, args.out.format, &on_stderr);
    // The exit code is the command's, whoever reads the report.
    let _ = std::io::stderr().write_all(text.as_bytes());
    if let (_, Some(failure)) = files.write(&report, &[], &style) {
        remark(&failure.sentence);
    }
    let code = status.map_or(i32::from(cli.exit_contract.code(Ending::Usage)), |status| {
        let by_signal = || status.signal().map_or(0, |signal| BY_SIGNAL + signal);
        status.code().unwrap_or_else(by_signal)
    });
    Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

/// Waits for the command; calls `tidy` now and then, and once at its end. Returns `None` if the system does not tell how
/// it ended.
fn wait(child: &mut Child, passed: &PassedOn, mut tidy: impl FnMut()) -> Option<ExitStatus> {
    let (ended, end) = mpsc::channel();
    if let Some(pid) = pid_of(child) {
        // Without the thread, the wait below is the only one, and nothing is tidied meanwhile.
        let _ = std::thread::Builder::new().spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let interrupted = rustix::io::Errno::INTR;
            while waitid(WaitId::Pid(pid), options).is_err_and(|why| why == interrupted) {}
            let _ = ended.send(());
        });
    }
    while end.recv_timeout(TIDIED) == Err(RecvTimeoutError::Timeout) {
        tidy();
    }
    // From here on its number may belong to another process.
    passed.forget();
    let status = child.wait().ok();
    tidy();
    status
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Signals on their way to the command.
struct PassedOn(Arc<Mutex<Receiver>>);

/// The state of the command that gets them.
enum Receiver {
    /// It has not been started; these came before.
    NotYet(Vec<i32>),
    There(Pid),
    Gone,
}

impl PassedOn {
    /// Begins to take signals. If the system refuses, they act on this process as ever.
    fn begin() -> Self {
        let receiver = Arc::new(Mutex::new(Receiver::NotYet(Vec::new())));
        let theirs = Arc::clone(&receiver);
        if let Ok(mut signals) = Signals::new(PASSED_ON) {
            let _ = std::thread::Builder::new().spawn(move || {
                for signal in signals.forever() {
                    let mut receiver = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                    match &mut *receiver {
                        Receiver::NotYet(came) => came.push(signal),
                        Receiver::There(pid) => pass_on(*pid, signal),
                        Receiver::Gone => {}
                    }
                }
            });
        }
        Self(receiver)
    }

    /// Passes signals on to this process, those first that came before it was started.
    fn to(&self, child: &Child) {
        let mut receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pid) = pid_of(child) else { return };
        if let Receiver::NotYet(came) = std::mem::replace(&mut *receiver, Receiver::There(pid)) {
            came.into_iter().for_each(|signal| pass_on(pid, signal));
        }
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Receiver::Gone;
    }
}

/// Sends a signal to the command, unless the terminal has sent it already: its keys reach every process in front of it.
fn pass_on(pid: Pid, signal: i32) {
    let is_of_keys = [SIGINT, SIGQUIT].contains(&signal);
    if is_of_keys && is_in_front() {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The command may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Returns true if this process is in front of its terminal.
fn is_in_front() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}
