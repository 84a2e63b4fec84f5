//! Outputs that can make whoever writes to them wait: pipes without a reader, or with one that reads no more.

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

/// How often it is looked for a reader, and for a signal.
const LOOK: Duration = Duration::from_millis(10);
/// How long a reader may take that takes nothing, once the user has asked for the end. Chosen: a program that reads
/// at all is not that late, and whoever sends a signal sends SIGKILL some seconds later.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// What a pipe that is ready takes without waiting (PIPE_BUF), bytes.
const AT_ONCE: usize = 4096;

/// Why an output was given up.
#[derive(Debug, thiserror::Error)]
#[error("nobody read it before the run was interrupted")]
struct NobodyRead;

/// Whether an output was given up because the user asked for the end while it waited for its reader.
pub fn was_given_up(error: &Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<NobodyRead>())
}

/// Waits for readers: for ever, and once the user has asked for the end, only a little longer.
#[derive(Debug)]
struct Patience {
    stop: Arc<AtomicBool>,
    /// Since when nothing was taken although the end was asked for.
    since: Option<Instant>,
}

impl Patience {
    /// Nothing was taken just now.
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
    /// What is open already. When `stop` is set, a reader who takes nothing is not waited for any longer.
    pub fn new(to: F, stop: &Arc<AtomicBool>) -> Self {
        Self {
            to,
            patience: Patience {
                stop: Arc::clone(stop),
                since: None,
            },
        }
    }

    /// Waits until something can be written without waiting.
    fn ready(&mut self) -> Result<()> {
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.as_nanos().try_into().unwrap_or(0),
        };
        loop {
            match poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => self.patience.in_vain()?,
                // What cannot be waited for says so when it is written to.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Outlet<File> {
    /// Opens a pipe or a device, or what the caller has opened for us, to write to its end.
    ///
    /// # Errors
    ///
    /// As for any file; also if the end was asked for and there is no reader ([`was_given_up`]).
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let mut patience = Patience {
            stop: Arc::clone(stop),
            since: None,
        };
        let now = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        loop {
            match OpenOptions::new().append(true).custom_flags(now).open(path) {
                // An open that waits would not return for a signal: its handler runs in another thread.
                Err(error) if has_no_reader(&error, path) => {
                    patience.in_vain()?;
                    std::thread::sleep(LOOK);
                }
                opened => {
                    return Ok(Self {
                        to: opened?,
                        patience,
                    });
                }
            }
        }
    }
}

fn has_no_reader(error: &Error, path: &Path) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Straight to the descriptor: a buffer would write more than was waited for.
impl<F: AsFd> Write for Outlet<F> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        loop {
            self.ready()?;
            match rustix::io::write(&self.to, &bytes[..bytes.len().min(AT_ONCE)]) {
                // Another process was faster.
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
