//! The parent's end of one worker: its process, its pipes, its last words.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::process::{End, Mortal};
use super::protocol::{Reply, Request, SUBCOMMAND};
use crate::hardware::Machine;

/// How long a killed worker may take to die before it is left behind: one that is stuck in the
/// kernel driver dies when that lets go of it, or never.
const DEATH_LIMIT: Duration = Duration::from_secs(2);
/// How often to check for an interruption while waiting.
const POLL: Duration = Duration::from_millis(50);
/// How much of a worker's last words is kept, bytes.
const LAST_WORDS: usize = 2000;

/// A worker process. Its driver starts at once.
pub struct Worker {
    process: Mortal,
    death_limit: Duration,
    requests: Option<Box<dyn Write + Send>>,
    replies: Receiver<Reply>,
    last_words: Arc<Mutex<String>>,
}

/// The result of waiting for a worker.
pub(super) enum Received {
    /// It answered.
    Reply(Reply),
    /// It did not, in time.
    Late,
    /// Its end of the pipe is closed.
    Gone,
    /// The user stopped it.
    Interrupted,
}

impl Worker {
    /// Starts a worker, whose driver may take so long to start. It dies when the thread that calls
    /// this ends: call it on the main thread.
    ///
    /// # Errors
    ///
    /// The program cannot be started again.
    pub fn spawn(machine: &Machine, start_limit: Duration) -> Result<Self, String> {
        // A description that was read from a pipe cannot be read again, and one in a file may have changed.
        let description = machine.description().map_err(|error| format!("cannot describe the machine: {error}"))?;
        let which = if description.is_some() { vec!["--described"] } else { vec!["--machine", machine.name()] };
        // Not by its path, which an update may have taken away or given to another version.
        let mut child = Command::new("/proc/self/exe")
            .arg0(env!("CARGO_PKG_NAME"))
            .args(["--driver-deadline", &start_limit.as_secs_f64().to_string()])
            .args([SUBCOMMAND, "--parent", &std::process::id().to_string()])
            .args(which)
            // A kernel that is loaded lazily while a gate is shut would wait for the gate.
            .env("CUDA_MODULE_LOADING", "EAGER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C reaches the whole foreground group; the parent decides what it means.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start a worker process: {error}"))?;
        let requests = child.stdin.take().map(|stdin| Box::new(stdin) as Box<dyn Write + Send>);
        let (sender, replies) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let Ok(reply) = serde_json::from_str(&line) else { return };
                    if sender.send(reply).is_err() {
                        return;
                    }
                }
            });
        }
        let last_words = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&last_words);
            std::thread::spawn(move || keep_last_words(stderr, &kept));
        }
        let mut worker = Self { process: Mortal::new(child), death_limit: DEATH_LIMIT, requests, replies, last_words };
        if let Some(description) = description {
            // Should it be gone already, whoever waits for its answer finds out, with its last words.
            let _ = worker.line(description);
        }
        Ok(worker)
    }

    /// A worker of another kind, for tests.
    #[cfg(test)]
    pub(super) fn made_of(
        process: impl super::process::Process + 'static,
        requests: impl Write + Send + 'static,
        replies: Receiver<Reply>,
    ) -> Self {
        Self {
            process: Mortal::new(process),
            death_limit: Duration::from_millis(20),
            requests: Some(Box::new(requests)),
            replies,
            last_words: Arc::default(),
        }
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<(), String> {
        self.line(serde_json::to_vec(request).map_err(|error| error.to_string())?)
    }

    fn line(&mut self, mut line: Vec<u8>) -> Result<(), String> {
        let requests = self.requests.as_mut().ok_or("the worker is gone")?;
        line.push(b'\n');
        requests.write_all(&line).and_then(|()| requests.flush()).map_err(|error| error.to_string())
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

    /// Kills the process and waits a little; one that does not die is left behind, and never waited
    /// for again.
    pub(super) fn end(&mut self) -> End {
        self.requests = None;
        self.process.end(self.death_limit)
    }

    /// The number of the process, if it was killed and did not end.
    pub(super) fn stuck(&self) -> Option<u32> {
        self.process.is_stuck().then(|| self.process.id())
    }

    /// How a worker that is gone ended, with its last words.
    pub(super) fn death(&mut self) -> String {
        // Its pipe closes a moment before the process can be waited for.
        let status = self.process.wait(self.death_limit).or_else(|| match self.end() {
            End::Exited(status) => Some(status),
            End::Stuck => None,
        });
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((_, Some(signal))) => format!("it was ended by signal {signal}"),
            Some((Some(code), _)) => format!("it exited with code {code}"),
            _ => "it could not be ended".to_owned(),
        };
        let words = self.last_words.lock().map(|words| words.trim().replace('\n', " / ")).unwrap_or_default();
        if words.is_empty() { how } else { format!("{how}; its last output: {words}") }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
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
