//! Outputs that can make their writer wait: pipes without a reader, or with a reader that has stopped reading.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Interval between two checks for a reader and for a signal.
const LOOK: Duration = Duration::from_millis(10);
/// Longest wait for a reader that takes nothing, once the user has asked for the end. Chosen: a program that reads at
/// all is not that late, and whoever sends a signal sends SIGKILL some seconds later.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Bytes that a ready pipe takes without blocking (PIPE_BUF).
const AT_ONCE: usize = 4096;

/// The error of an output that was given up.
#[derive(Debug, thiserror::Error)]
#[error("nobody read it before the run was interrupted")]
struct NobodyRead;

/// Returns true if an output was given up because the user asked for the end while it waited for its reader.
pub fn was_given_up(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NobodyRead>())
}

/// The patience with readers: it has no end until the user asks for the end, and then little is left.
#[derive(Debug)]
struct Patience {
    stop: Arc<AtomicBool>,
    /// Time of the first attempt without progress after the user asked for the end.
    since: Option<Instant>,
}

impl Patience {
    /// Notes that the reader took nothing just now.
    fn in_vain(&mut self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed)
            && self.since.get_or_insert_with(Instant::now).elapsed() >= LAST_WAIT
        {
            return Err(Error::new(ErrorKind::TimedOut, NobodyRead));
        }
        Ok(())
    }
}

/// An output with a reader at its other end, who may be late.
#[derive(Debug)]
pub struct Outlet<F> {
    to: F,
    patience: Patience,
}

impl<F: AsFd> Outlet<F> {
    /// Wraps an open output. Once `stop` is set, a reader that takes nothing is waited for only a little longer.
    pub fn new(to: F, stop: &Arc<AtomicBool>) -> Self {
        Self { to, patience: Patience { stop: Arc::clone(stop), since: None } }
    }

    /// Waits until a write does not block.
    fn ready(&mut self) -> Result<()> {
        let limit = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos().try_into().unwrap_or(0) };
        loop {
            match poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => self.patience.in_vain()?,
                // An output that cannot be polled reports that at the write.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Outlet<File> {
    /// Opens a pipe, a device, or a file the caller has opened for us, to append to it.
    ///
    /// # Errors
    ///
    /// As for any file; also if the user asked for the end and there is no reader ([`was_given_up`]).
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let mut patience = Patience { stop: Arc::clone(stop), since: None };
        let now = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        loop {
            match OpenOptions::new().append(true).custom_flags(now).open(path) {
                // A blocking open would not return for a signal: its handler runs in another thread.
                Err(error) if has_no_reader(&error, path) => {
                    patience.in_vain()?;
                    std::thread::sleep(LOOK);
                }
                opened => {
                    return Ok(Self { to: opened?, patience });
                }
            }
        }
    }
}

fn has_no_reader(error: &Error, path: &Path) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Writes directly to the descriptor: a buffer would write more than the poll has cleared.
impl<F: AsFd> Write for Outlet<F> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        loop {
            self.ready()?;
            match rustix::io::write(&self.to, &bytes[..bytes.len().min(AT_ONCE)]) {
                // Another process filled the pipe first.
                Err(Errno::AGAIN) => {
                    self.patience.in_vain()?;
                    std::thread::sleep(LOOK);
                }
                Err(Errno::INTR) => {}
                written => {
                    self.patience.since = None;
                    return Ok(written?);
                }
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
