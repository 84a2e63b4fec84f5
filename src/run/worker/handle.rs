//! The parent's end of one worker: its process, its pipes, its last output.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::environment;
use super::process::{End, Mortal};
use super::protocol::{Reply, Request, SUBCOMMAND};
use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError, Kills, Machine};
use model::broken_off::{Break, How};

/// Time that a killed worker may take to die before it is left behind. A worker that is stuck in the kernel driver dies
/// when the driver lets go of it, or never.
const PATIENCE: Patience =
    Patience { base: Duration::from_secs(2), per_gpu: Duration::from_secs(1) };
/// Interval between checks for an interruption while waiting.
const POLL: Duration = Duration::from_millis(50);
/// The signal of abort(3).
const ABORTED: i32 = 6;
/// Text that the standard library writes to stderr before it aborts because an allocation failed (`rust_oom` in
/// `library/std/src/alloc.rs`).
const ALLOCATION_FAILED: &str = "memory allocation of ";
/// Bytes kept of the end of a worker's stderr.
const LAST_WORDS: usize = 2000;
/// Time for the end of a dead worker's stderr to arrive: chosen. It is in the pipe already; a process that the worker
/// left behind could hold the pipe open for ever.
const WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Time that a worker's death may take. The driver takes the contexts down one after the other: with 4 GPUs of an H200
/// server a killed worker took 0.2 s, with 8 of them 0.8 s. So each GPU adds ten times the time measured there. A
/// worker given up too early costs healthy GPUs, and a stuck one is waited for only once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time for any number of GPUs.
    pub base: Duration,
    /// Additional time for each GPU that the worker was to open.
    pub per_gpu: Duration,
}

/// A worker process. Its driver starts at once.
pub struct Worker {
    process: Mortal,
    patience: Patience,
    /// Number of GPUs that it was to open.
    gpus: u32,
    requests: Option<Box<dyn Write + Send>>,
    replies: Receiver<Reply>,
    last_words: Arc<Mutex<String>>,
    /// Channel that disconnects once `last_words` is complete.
    more_words: Receiver<Infallible>,
    /// Counts of out-of-memory kills when the worker was started.
    kills: Kills,
}

/// The end of a worker, by itself or caused from outside.
pub(super) struct Death {
    /// Description of the end, with the worker's last output.
    pub how: String,
    /// True if something outside ended it, which is no evidence about the round.
    pub from_outside: bool,
    /// Signal that ended it.
    pub signal: Option<i32>,
    pub exit_code: Option<i32>,
}

impl Death {
    /// Returns the crash, with these words as its reason. Returns none if the worker was ended from outside, or in
    /// order: after an error that a limit of the process explains, it exits with 0.
    pub(crate) fn crash(&self, reason: &str) -> Option<Break> {
        let crashed = !self.from_outside && self.exit_code != Some(0);
        let (signal, exit_code) = (self.signal, self.exit_code);
        crashed.then(|| Break { signal, exit_code, ..Break::of(How::Crashed, reason.to_owned()) })
    }
}

/// The result of waiting for a worker.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Received {
    Reply(Reply),
    /// It did not answer in time.
    Late,
    /// Its end of the pipe is closed.
    Gone,
    /// The user stopped it.
    Interrupted,
}

impl Worker {
    /// Starts a worker whose driver may take `start_limit` to start and shows only the GPUs that `visible` names. The
    /// worker dies when the calling thread ends: call this on the main thread. `partner` is a socket to another worker;
    /// requests and replies go over one socket then.
    ///
    /// # Errors
    ///
    /// The program cannot be started again, or there is no socket.
    pub fn spawn(
        machine: &dyn Machine,
        start_limit: Duration,
        visible: Option<&str>,
        partner: Option<OwnedFd>,
    ) -> Result<Self, HardwareError> {
        // Send the description itself: one read from a pipe cannot be read again, and one in a file may have changed.
        let description = machine.description();
        let description = description.map_err(|error| {
            HardwareError::new(ErrorKind::Other, format!("cannot describe the machine: {error}"))
        })?;
        let which = if description.is_some() {
            vec!["--described"]
        } else {
            vec!["--machine", machine.name()]
        };
        // Start `/proc/self/exe`, not the program's path: an update may have removed the path or given it to another
        // version.
        let kills = Kills::now();
        let mut command = Command::new("/proc/self/exe");
        let queues = partner.is_some().then_some(1);
        environment::prepare(&mut command, machine, visible, queues);
        let not_started = |error: std::io::Error| {
            limits::not_started(format!("cannot start a worker process: {error}"), &error)
        };
        // Standard streams are the ones that a process can take over without unsafe code.
        let (own, streams, partnered) = match partner {
            Some(partner) => {
                let (own, child) = UnixStream::pair().map_err(not_started)?;
                let streams = (Stdio::from(OwnedFd::from(child)), Stdio::from(partner));
                (Some(own), streams, Some("--partner"))
            }
            None => (None, (Stdio::piped(), Stdio::piped()), None),
        };
        let mut child = command
            .arg0(model::report::PROGRAM)
            .args(["--driver-deadline", &start_limit.as_secs_f64().to_string()])
            .args([SUBCOMMAND, "--parent", &std::process::id().to_string()])
            .args(which)
            .args(partnered)
            // A kernel that is loaded lazily while a gate is shut would wait for the gate.
            .env("CUDA_MODULE_LOADING", "EAGER")
            .stdin(streams.0)
            .stdout(streams.1)
            .stderr(Stdio::piped())
            // Ctrl-C reaches the whole foreground group; only the parent reacts to it.
            .process_group(0)
            .spawn()
            .map_err(not_started)?;
        // The parent's copies of the child's ends must be closed, or nobody would see the child's end.
        drop(command);
        let (sender, replies) = mpsc::channel();
        let stderr = child.stderr.take();
        let answers = match &own {
            Some(own) => {
                Some(Box::new(own.try_clone().map_err(not_started)?) as Box<dyn Read + Send>)
            }
            None => child.stdout.take().map(|stdout| Box::new(stdout) as Box<dyn Read + Send>),
        };
        let requests = match own {
            Some(own) => Some(Box::new(own) as Box<dyn Write + Send>),
            None => child.stdin.take().map(|stdin| Box::new(stdin) as Box<dyn Write + Send>),
        };
        // `Mortal` ends the process when an error below drops the worker: nobody would listen to it.
        let process = Mortal::new(child);
        let last_words = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&last_words);
        let (still_open, more_words) = mpsc::channel();
        let mut worker = Self {
            process,
            patience: PATIENCE,
            gpus: 0,
            requests,
            replies,
            last_words,
            more_words,
            kills,
        };
        if let Some(answers) = answers {
            listen(move || {
                for line in BufReader::new(answers).lines().map_while(Result::ok) {
                    let Ok(reply) = serde_json::from_str(&line) else {
                        return;
                    };
                    if sender.send(reply).is_err() {
                        return;
                    }
                }
            })?;
        }
        if let Some(stderr) = stderr {
            listen(move || {
                let _still_open: Sender<Infallible> = still_open;
                keep_last_words(stderr, &kept);
            })?;
        }
        if let Some(description) = description {
            // If the worker is gone already, the wait for its answer reports that, with its last output.
            let _ = worker.line(description);
        }
        Ok(worker)
    }

    /// Builds a worker from parts, for tests.
    #[cfg(test)]
    pub(super) fn made_of(
        process: impl super::process::Process + 'static,
        requests: impl Write + Send + 'static,
        replies: Receiver<Reply>,
        patience: Patience,
    ) -> Self {
        Self {
            process: Mortal::new(process),
            patience,
            gpus: 0,
            requests: Some(Box::new(requests)),
            replies,
            last_words: Arc::default(),
            more_words: mpsc::channel().1,
            kills: Kills::default(),
        }
    }

    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        if let Request::Open { selections, .. } = request {
            self.gpus = u32::try_from(selections.len()).unwrap_or(u32::MAX);
        }
        self.line(serde_json::to_vec(request)?)
    }

    fn line(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        let gone = || io::Error::other("the worker is gone");
        let requests = self.requests.as_mut().ok_or_else(gone)?;
        line.push(b'\n');
        requests.write_all(&line)?;
        requests.flush()
    }

    pub(super) fn receive(&self, until: Instant, stop: &AtomicBool) -> Received {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Received::Interrupted;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left.min(POLL)) {
                Ok(reply) => return Received::Reply(reply),
                Err(RecvTimeoutError::Disconnected) => return Received::Gone,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Received::Late,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Kills the process and does not wait: [`Worker::end`] does.
    pub fn kill(&mut self) {
        self.requests = None;
        self.process.kill();
    }

    /// Kills the process and waits a little. A process that does not die is left behind, and never waited for again.
    pub fn end(&mut self) -> End {
        self.requests = None;
        self.process.end(self.death_limit())
    }

    /// Kills it and lets it die without waiting.
    pub fn leave(self) {
        let mut worker = std::mem::ManuallyDrop::new(self);
        worker.kill();
    }

    fn death_limit(&self) -> Duration {
        self.patience.base + self.patience.per_gpu * self.gpus
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the process id, if the process was killed and did not end.
    pub fn stuck(&self) -> Option<u32> {
        self.process.is_stuck().then(|| self.process.id())
    }

    /// Returns how a worker that is gone ended.
    pub(super) fn death(&mut self) -> Death {
        // The pipe closes a moment before the process can be waited for.
        let status = self.process.wait(self.death_limit());
        let signal = status.and_then(|status| status.signal());
        let words = self.last_words();
        let no_memory = signal == Some(ABORTED) && words.contains(ALLOCATION_FAILED);
        let (mut how, mut from_outside) = match (status, signal) {
            _ if no_memory => ("it ran out of memory".to_owned(), true),
            (Some(_), Some(signal)) => match sent_from_outside(signal) {
                Some(name) => (format!("it was killed by signal {signal} ({name})"), true),
                None => (format!("it was ended by signal {signal}"), false),
            },
            (Some(status), None) => {
                (format!("it exited with code {}", status.code().unwrap_or_default()), false)
            }
            (None, _) => match self.end() {
                End::Exited(_) => ("it closed its pipe, and was killed".to_owned(), false),
                End::Stuck => ("it could not be ended".to_owned(), false),
            },
        };
        let why = match from_outside {
            true if no_memory => limits::blame(Scarce::Memory),
            true => self.kills.why(self.process.id()),
            // Libraries that get no file or no memory are known to crash.
            false => limits::blame(Scarce::Something),
        };
        if let Some(why) = why {
            (how, from_outside) = (format!("{how}: {why}"), true);
        }
        if !words.is_empty() {
            how = format!("{how}; its last output: {words}");
        }
        Death { how, from_outside, signal, exit_code: status.and_then(|status| status.code()) }
    }

    /// Returns the end of a dead worker's stderr, on one line.
    fn last_words(&self) -> String {
        let _ = self.more_words.recv_timeout(WORDS_LIMIT);
        self.last_words.lock().map(|words| words.trim().replace('\n', " / ")).unwrap_or_default()
    }
}

/// Returns the name of a signal that no code in a process raises against itself: somebody sent it, or the kernel for
/// lack of memory or processor time.
const fn sent_from_outside(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        12 => "SIGUSR2",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return None,
    })
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads from a worker on a thread of its own.
fn listen(to: impl FnOnce() + Send + 'static) -> Result<(), HardwareError> {
    let thread = std::thread::Builder::new().spawn(to);
    thread.map(drop).map_err(|error| {
        limits::not_started(format!("no thread can listen to the worker: {error}"), &error)
    })
}

fn keep_last_words(mut from: impl Read, kept: &Mutex<String>) {
    let mut buffer = [0; 512];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Ok(mut kept) = kept.lock() {
            kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
            let excess = kept.len().saturating_sub(LAST_WORDS);
            if let Some(start) = (excess..kept.len()).find(|&at| kept.is_char_boundary(at)) {
                kept.drain(..start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::worker::testing::worker_that_dies;

    /// Returns the death of a worker with this last output.
    fn death(status: i32, words: &str) -> Death {
        let mut worker = worker_that_dies(1, move |_| Err(status));
        *worker.last_words.lock().unwrap() = words.to_owned();
        worker.send(&Request::Run { rounds: Vec::new() }).unwrap();
        let some_day = Instant::now() + Duration::from_secs(3600);
        assert!(matches!(worker.receive(some_day, &AtomicBool::new(false)), Received::Gone));
        worker.death()
    }

    #[test]
    fn a_worker_that_ran_out_of_memory_accuses_nothing() {
        let out_of_memory = death(ABORTED, "memory allocation of 4096 bytes failed\n");
        assert!(out_of_memory.from_outside, "{}", out_of_memory.how);
        assert_eq!(
            out_of_memory.how,
            "it ran out of memory; its last output: memory allocation of 4096 bytes failed"
        );
        let crash = death(ABORTED, "free(): invalid pointer\n");
        assert!(!crash.from_outside, "{}", crash.how);
        let exit = death(3 << 8, "");
        assert_eq!((exit.how.as_str(), exit.from_outside), ("it exited with code 3", false));
    }
}
