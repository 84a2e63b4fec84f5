//! Makes a worker ready. If the driver hangs or crashes on a GPU while it starts, only that GPU is lost: the others are
//! opened without it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::environment;
use super::handle::{Received, Worker};
use super::protocol::{Reply, Request};
use hardware::{ErrorKind, HardwareError, Machine};
use model::measurement::{CudaDevice, DriverFacts};
use model::units::Bytes;
use probes::Selection;

/// Number of GPUs that are left out before the driver itself is given up. Each costs a start of the driver, and its
/// whole time limit if it hangs: chosen.
const MOST_LEFT_OUT: usize = 2;

/// `CUDA_ERROR_NO_DEVICE`.
const CUDA_NO_DEVICE: u32 = 100;

/// The parameters for starting workers.
#[derive(Debug, Clone)]
pub struct Launch {
    pub machine: Arc<dyn Machine>,
    pub selections: Vec<Selection>,
    /// Maximum memory to use on each GPU.
    pub memory_limit: Bytes,
    /// Time that the driver may take to start.
    pub start_limit: Duration,
    /// Number of GPUs in the machine, including those not selected.
    pub there: usize,
    /// True if CUDA must show all GPUs although fewer are wanted, because it did not show one by its name.
    pub unmasked: bool,
}

impl Launch {
    /// Returns the value of CUDA_VISIBLE_DEVICES for the worker, if this program should set it: a driver that shows two
    /// of four GPUs is ready in half the time.
    pub fn mask(&self) -> Option<String> {
        if self.unmasked { None } else { environment::mask(&self.selections, self.there) }
    }

    /// Starts a worker for these GPUs.
    ///
    /// # Errors
    ///
    /// The program cannot be started again.
    pub fn spawn(&self) -> Result<Worker, HardwareError> {
        Worker::spawn(self.machine.as_ref(), self.start_limit, self.mask().as_deref(), None)
    }

    /// Returns true if another worker must start without the mask: a name that CUDA does not know hides all GPUs after
    /// it.
    fn unmask(&mut self, hides: bool) -> bool {
        let again = hides && self.mask().is_some();
        self.unmasked |= again;
        again
    }
}

/// GPUs that are not used any more, each with the reason.
pub type LeftOut = Vec<(u32, String)>;

/// A worker that accepts rounds.
pub struct Ready {
    pub worker: Worker,
    /// Facts that the driver reported.
    pub facts: DriverFacts,
    /// Seconds that the driver's initialisation and the contexts alone took.
    pub floor_seconds: f64,
    /// GPUs that had to be left out; `facts` lists them too.
    pub left_out: LeftOut,
    /// Problems during the start that had no effect, one sentence each.
    pub problems: Vec<String>,
}

/// The reason why a worker could not be made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// The driver's error, or a sentence for the user.
    Failed(HardwareError),
    /// A sentence; another attempt would take as long again.
    Late(String),
    /// The user stopped it.
    Interrupted,
}

fn failed(why: String) -> StartError {
    StartError::Failed(HardwareError::new(ErrorKind::Other, why))
}

/// Opens the GPUs with a worker and waits until it is ready. Replaces the worker by `spawn` if a single GPU is at
/// fault. Removes the GPUs that were left out from `launch`.
///
/// # Errors
///
/// The driver does not start, or not in time.
pub fn start(
    first: Result<Worker, HardwareError>,
    launch: &mut Launch,
    stop: &AtomicBool,
    spawn: &mut dyn FnMut(&Launch) -> Result<Worker, HardwareError>,
) -> Result<Ready, StartError> {
    let mut worker = first.map_err(StartError::Failed)?;
    let (mut left_out, mut one_by_one, mut problems) = (LeftOut::new(), false, Vec::new());
    let mut killed = false;
    loop {
        let (gpu, why) = match open(&mut worker, launch, one_by_one, stop) {
            Opened::Ready(facts, _)
                if launch.unmask(facts.devices.iter().any(|device| device.hidden.is_some())) =>
            {
                worker = spawn(launch).map_err(StartError::Failed)?;
                continue;
            }
            Opened::Ready(mut facts, floor_seconds) => {
                facts.devices.extend(left_out.iter().map(|(gpu, why)| CudaDevice {
                    index: *gpu,
                    failure: Some(why.clone()),
                    ..CudaDevice::default()
                }));
                return Ok(Ready { worker, facts, floor_seconds, left_out, problems });
            }
            Opened::Refused(error) if launch.unmask(error.code == Some(CUDA_NO_DEVICE)) => {
                worker = spawn(launch).map_err(StartError::Failed)?;
                continue;
            }
            Opened::Refused(error) => return Err(StartError::Failed(error)),
            Opened::Interrupted => return Err(StartError::Interrupted),
            Opened::Late(gpu, why) => (Some(gpu.ok_or(StartError::Late(why.clone()))?), why),
            // Blame no GPU: something outside killed the worker.
            Opened::Killed(why) if killed => {
                return Err(failed(format!("{why}, for the second time")));
            }
            Opened::Killed(why) => {
                killed = true;
                problems.push(format!("{why}; it was started again"));
                worker = spawn(launch).map_err(StartError::Failed)?;
                continue;
            }
            Opened::Gone(gpu, why) if gpu.is_some() || !one_by_one => (gpu, why),
            Opened::Gone(_, why) => return Err(failed(why)),
        };
        match gpu {
            Some(gpu) => {
                launch.selections.retain(|selection| selection.index != gpu);
                left_out.push((gpu, why.clone()));
                if launch.selections.is_empty() || left_out.len() > MOST_LEFT_OUT {
                    return Err(failed(why));
                }
            }
            // The worker may have died on one of the GPUs without naming it.
            None => {
                one_by_one = true;
                problems.push(format!("{why}; it was started again"));
            }
        }
        drop(worker);
        worker = spawn(launch).map_err(StartError::Failed)?;
    }
}

/// The result of opening the GPUs once. A failure comes with the GPU that the driver was opening.
enum Opened {
    Ready(DriverFacts, f64),
    Refused(HardwareError),
    Late(Option<u32>, String),
    Gone(Option<u32>, String),
    /// Killed from outside.
    Killed(String),
    Interrupted,
}

fn open(worker: &mut Worker, launch: &Launch, one_by_one: bool, stop: &AtomicBool) -> Opened {
    // A worker without a driver may be gone before it reads this; it has then reported the reason.
    let (selections, memory_limit) = (launch.selections.clone(), launch.memory_limit);
    let sent = worker.send(&Request::Open { selections, memory_limit, one_by_one });
    let until = Instant::now() + launch.start_limit;
    let mut at = None;
    loop {
        match worker.receive(until, stop) {
            Received::Reply(Reply::Opening { gpu }) => at = Some(gpu),
            Received::Reply(Reply::Ready { facts, floor_seconds }) => {
                return Opened::Ready(facts, floor_seconds);
            }
            Received::Reply(Reply::NoDriver { error }) => return Opened::Refused(error),
            Received::Reply(
                Reply::Done { .. } | Reply::Apart { .. } | Reply::Seen { .. } | Reply::Taken { .. },
            ) => {
                let why = "the worker answered before it was asked";
                return Opened::Refused(HardwareError::new(ErrorKind::Other, why));
            }
            Received::Late => {
                worker.end();
                let limit = launch.start_limit.as_secs_f64();
                let which = at.map(|gpu| format!(" and hung at GPU {gpu}")).unwrap_or_default();
                let stuck =
                    worker.stuck().map(|pid| format!("; {}", stuck(pid))).unwrap_or_default();
                return Opened::Late(
                    at,
                    format!(
                        "the CUDA driver did not start within {limit} s{which}: see dmesg for NVRM and Xid \
                         messages{stuck}"
                    ),
                );
            }
            Received::Gone => {
                let death = worker.death();
                let (at, why) = (at.filter(|_| !death.from_outside), death.how);
                let sent = sent.err().map(|error| format!(" ({error})")).unwrap_or_default();
                let which = at.map(|gpu| format!(" on GPU {gpu}")).unwrap_or_default();
                let why = format!(
                    "the worker process ended while the driver started{which}: {why}{sent}"
                );
                return if death.from_outside {
                    Opened::Killed(why)
                } else {
                    Opened::Gone(at, why)
                };
            }
            Received::Interrupted => return Opened::Interrupted,
        }
    }
}

/// Returns a sentence for people about a process that cannot be ended.
pub fn stuck(pid: u32) -> String {
    format!("process {pid} was killed and does not end: it is stuck in the kernel driver")
}
