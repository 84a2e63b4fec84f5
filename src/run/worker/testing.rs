//! Workers made of threads, for tests of the supervisor.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::handle::{Patience, Worker};
use super::process::Process;
use super::protocol::{Reply, Request};
use super::start::Launch;
use model::measurement::DriverFacts;
use model::units::Bytes;
use probes::Selection;
use sim::Simulated;

/// Patience with workers that die at once, or never.
const IMPATIENT: Patience = Patience { base: Duration::from_millis(20), per_gpu: Duration::ZERO };

/// A worker's answer to a request; None if it hangs.
pub(crate) type Answers = dyn FnMut(Request) -> Option<Vec<Reply>> + Send;

/// A process that ends once its raw status is set.
struct Mayfly {
    pid: u32,
    status: Arc<Mutex<Option<i32>>>,
}

impl Process for Mayfly {
    fn id(&self) -> u32 {
        self.pid
    }

    fn kill(&mut self) {
        self.status.lock().unwrap().get_or_insert(9);
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        self.status.lock().unwrap().map(ExitStatus::from_raw)
    }
}

/// Returns a worker that answers so, until an answer is the status with which it ends.
pub(crate) fn worker_that_dies(
    pid: u32,
    mut answers: impl FnMut(Request) -> Result<Vec<Reply>, i32> + Send + 'static,
) -> Worker {
    let (sender, requests) = mpsc::channel();
    let (reply, replies) = mpsc::channel();
    let status = Arc::<Mutex<Option<i32>>>::default();
    let ends = Arc::clone(&status);
    std::thread::spawn(move || {
        while let Ok(request) = requests.recv() {
            match answers(request) {
                Ok(said) => said.into_iter().for_each(|said| drop(reply.send(said))),
                Err(status) => {
                    ends.lock().unwrap().get_or_insert(status);
                    return;
                }
            }
        }
    });
    Worker::made_of(Mayfly { pid, status }, Requests(sender, Vec::new()), replies, IMPATIENT)
}

/// A process that ends at some time after it was killed, or never.
pub(crate) struct Fake {
    pub pid: u32,
    pub dies_after: Option<Duration>,
    pub killed: Option<Instant>,
    /// Number of times it was killed.
    pub kills: Arc<AtomicU32>,
}

impl Process for Fake {
    fn id(&self) -> u32 {
        self.pid
    }

    fn kill(&mut self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
        self.killed.get_or_insert_with(Instant::now);
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        (self.killed?.elapsed() >= self.dies_after?).then(|| ExitStatus::from_raw(9))
    }
}

/// A writer that passes each line on as a request.
struct Requests(Sender<Request>, Vec<u8>);

impl Write for Requests {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.extend_from_slice(bytes);
        while let Some(end) = self.1.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.1.drain(..=end).collect();
            let request = serde_json::from_slice(&line)?;
            self.0.send(request).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns a worker that answers so. Once it hangs it answers nothing more; if an answer has no replies, its pipe
/// closes.
pub(crate) fn worker(pid: u32, dies: bool, answers: Box<Answers>) -> Worker {
    worker_that_takes(pid, dies.then_some(Duration::ZERO), IMPATIENT, answers)
}

/// Returns such a worker that dies this long after it was killed.
pub(crate) fn worker_that_takes(
    pid: u32,
    dies_after: Option<Duration>,
    patience: Patience,
    mut answers: Box<Answers>,
) -> Worker {
    let (sender, requests) = mpsc::channel();
    let (reply, replies) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(request) = requests.recv() {
            match answers(request) {
                Some(said) if said.is_empty() => return,
                Some(said) => said.into_iter().for_each(|said| drop(reply.send(said))),
                // The pipe stays open for as long as the parent holds its end.
                None => while requests.recv().is_ok() {},
            }
        }
    });
    let process = Fake { pid, dies_after, killed: None, kills: Arc::default() };
    Worker::made_of(process, Requests(sender, Vec::new()), replies, patience)
}

/// A stop flag that is never set.
pub(crate) static GOING_ON: AtomicBool = AtomicBool::new(false);

/// Returns the parameters of workers for all of this many GPUs.
pub(crate) fn launch(gpus: u32) -> Launch {
    let selection =
        |index| Selection { index, uuid: Some(format!("GPU-{index}")), ..Selection::default() };
    Launch {
        machine: Arc::new(Simulated::find("none").unwrap()),
        selections: (0..gpus).map(selection).collect(),
        memory_limit: Bytes(1 << 30),
        start_limit: Duration::from_millis(500),
        there: gpus as usize,
        unmasked: false,
    }
}

/// Returns the reply of a driver that is ready.
pub(crate) fn ready() -> Reply {
    Reply::Ready { facts: DriverFacts::default(), floor_seconds: 0.0 }
}
