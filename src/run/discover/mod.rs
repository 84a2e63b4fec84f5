//! From [`Telemetry`] to a [`Snapshot`], under a deadline.
//!
//! Calls to NVML can block for minutes on a sick machine and cannot be interrupted. Everything is therefore read on
//! threads that may be left behind. When the deadline passes, facts that have arrived are kept, and the others are
//! marked as missing. The threads that are left behind own only the telemetry and their end of a channel. They end
//! with the process.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hardware::{
    ErrorKind, GpuGroup, HardwareError, Machine, NvidiaFunctions, PciTree, Telemetry, limits,
};
use model::reading::Unknown;
use model::snapshot::{Gpu, GpuPair, Host, SlowFact, Snapshot};

mod collected;
mod late;

use self::collected::Collected;
pub use self::late::{Late, LateFacts, identified};

/// Opens the telemetry of a machine, which may block too.
///
/// # Errors
///
/// Fails if it does not open within `limit`.
pub fn open(
    machine: &Arc<dyn Machine>,
    limit: Duration,
) -> Result<Arc<dyn Telemetry>, HardwareError> {
    let machine = Arc::clone(machine);
    let (answer, inbox) = mpsc::channel();
    let started = start("telemetry", move || {
        let _ = answer.send(machine.telemetry());
    });
    started?;
    inbox.recv_timeout(limit).map_err(|why| {
        let why = match why {
            RecvTimeoutError::Timeout => format!(
                "NVML did not start within {}: the driver is stuck; see dmesg for lines with NVRM or Xid",
                seconds(limit)
            ),
            RecvTimeoutError::Disconnected => "starting NVML broke off".to_owned(),
        };
        HardwareError::new(ErrorKind::NoDriver, why)
    })
}

/// Slow facts that rules need to judge a machine without measurements. `topo` reads them besides those that take no
/// time, so that its text and its saved report always reach the same conclusion.
pub const JUDGED: &[SlowFact] = &[SlowFact::PeerAccess];

/// Returns the groups of a GPU's facts to read, given these slow facts.
fn groups(slow: &[SlowFact]) -> Vec<GpuGroup> {
    let wanted =
        |group: &GpuGroup| *group != GpuGroup::LinkErrors || slow.contains(&SlowFact::NvLinkErrors);
    GpuGroup::ALL.into_iter().filter(wanted).collect()
}

/// Reads the facts of the telemetry, including these slow facts, for at most about `limit`.
///
/// GPUs are sorted by index, pairs row by row. Facts that were not read in time are unknown with that reason, and
/// `problems` lists the calls that did not answer.
pub fn discover(
    telemetry: Arc<dyn Telemetry>,
    slow: &'static [SlowFact],
    limit: Duration,
) -> Snapshot {
    read(telemetry, slow, Pairs::Asked, limit)
}

/// Tells if NVML is asked about pairs of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pairs {
    Asked,
    LeftOut,
}

fn read(
    telemetry: Arc<dyn Telemetry>,
    slow: &'static [SlowFact],
    pairs: Pairs,
    limit: Duration,
) -> Snapshot {
    let deadline = Instant::now() + limit;
    let no_answer = format!("no answer within {}", seconds(limit));
    let pending = Unknown::Failed(no_answer.clone());
    let (answers, inbox) = mpsc::channel();
    let mut collected = Collected::default();
    collected.problems.extend(start_all(telemetry, slow, pairs, &answers, &pending));
    // From here only threads own a sender: the channel closes when the last of them is done.
    drop(answers);
    let in_time = collected.receive(&inbox, deadline);
    let missing = if in_time { "the thread that reads it broke off".to_owned() } else { no_answer };
    collected.into_snapshot(slow, pairs, &pending, &missing)
}

/// Returns the snapshot of a machine whose telemetry does not open: nothing is known, for this reason.
pub fn without_telemetry(why: &HardwareError) -> Snapshot {
    Snapshot {
        host: Host::unread(&Unknown::Failed(why.message.clone())),
        gpus: Vec::new(),
        pairs: Vec::new(),
        bonds: Vec::new(),
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        adapters: Vec::new(),
        unlisted_gpus: Vec::new(),
        nvswitches: Vec::new(),
        problems: vec![why.message.clone()],
        nvml_failure_code: why.code,
    }
}

/// A result sent by a thread.
enum Answer {
    Host(Box<Host>),
    Tree(PciTree),
    Nvidia(NvidiaFunctions),
    Count(Result<u32, HardwareError>),
    /// A GPU after this many groups were read.
    Gpu(Box<Gpu>, usize),
    Pair(GpuPair),
    Problem(String),
}

/// Starts the threads; the thread that counts the GPUs starts those of the GPUs. Returns problems for threads that
/// could not be started.
fn start_all(
    telemetry: Arc<dyn Telemetry>,
    slow: &'static [SlowFact],
    pairs: Pairs,
    answers: &Sender<Answer>,
    pending: &Unknown,
) -> Vec<String> {
    let mut problems = Vec::new();
    // This thread reports facts without a thread as not read, with that reason.
    let mut read = |name, ask: fn(&dyn Telemetry) -> Answer, unread: fn(&Unknown) -> Answer| {
        let (telemetry, own) = (Arc::clone(&telemetry), answers.clone());
        if let Err(error) = start(name, move || drop(own.send(ask(&*telemetry)))) {
            let _ = answers.send(unread(&not_started(&error)));
            problems.push(error.message);
        }
    };
    read(
        "host",
        |telemetry| Answer::Host(Box::new(telemetry.host())),
        |why| Answer::Host(Box::new(Host::unread(why))),
    );
    read(
        "pci",
        |telemetry| Answer::Tree(telemetry.pci_tree()),
        |_| Answer::Tree(PciTree::default()),
    );
    read(
        "nvidia",
        |telemetry| Answer::Nvidia(telemetry.nvidia_functions()),
        |_| Answer::Nvidia(NvidiaFunctions::default()),
    );
    let (own, pending) = (answers.clone(), pending.clone());
    let gpus = start("gpus", move || start_gpus(&telemetry, slow, pairs, &own, &pending));
    if let Err(error) = gpus {
        let _ = answers.send(Answer::Count(Err(error)));
    }
    problems
}

/// Returns the reason for facts whose thread could not be started.
fn not_started(error: &HardwareError) -> Unknown {
    match error.kind {
        ErrorKind::Hindered => Unknown::Limited(error.message.clone()),
        _ => Unknown::Failed(error.message.clone()),
    }
}

/// Counts the GPUs and starts two threads for each: one for its facts, one for its row of pairs. This way neither
/// waits for the other.
fn start_gpus(
    telemetry: &Arc<dyn Telemetry>,
    slow: &'static [SlowFact],
    pairs: Pairs,
    answers: &Sender<Answer>,
    pending: &Unknown,
) {
    let count = telemetry.gpu_count();
    let gpus = count.as_ref().map_or(0, |count| *count);
    // The receiver is gone if the deadline has passed, here and below.
    if answers.send(Answer::Count(count)).is_err() {
        return;
    }
    for index in 0..gpus {
        let gpu = Gpu::unread(index, pending);
        let (facts, facts_answers) = (Arc::clone(telemetry), answers.clone());
        let (row, row_answers) = (Arc::clone(telemetry), answers.clone());
        if let Err(error) =
            start(&format!("gpu{index}"), move || read_gpu(&*facts, slow, gpu, &facts_answers))
        {
            let unread = Gpu::unread(index, &not_started(&error));
            let _ = answers.send(Answer::Gpu(Box::new(unread), groups(slow).len()));
        }
        if pairs == Pairs::LeftOut {
            continue;
        }
        if let Err(error) = start(&format!("pairs{index}"), move || {
            read_row(&*row, slow, index, gpus, &row_answers)
        }) {
            for destination in (0..gpus).filter(|destination| *destination != index) {
                let _ = answers.send(Answer::Pair(GpuPair::unread(
                    index,
                    destination,
                    &not_started(&error),
                )));
            }
            let _ = answers.send(Answer::Problem(error.message));
        }
    }
}

fn read_gpu(telemetry: &dyn Telemetry, slow: &[SlowFact], mut gpu: Gpu, answers: &Sender<Answer>) {
    for (group, done) in groups(slow).into_iter().zip(1..) {
        telemetry.read_gpu(group, &mut gpu);
        if answers.send(Answer::Gpu(Box::new(gpu.clone()), done)).is_err() {
            return;
        }
    }
}

fn read_row(
    telemetry: &dyn Telemetry,
    slow: &'static [SlowFact],
    source: u32,
    gpus: u32,
    answers: &Sender<Answer>,
) {
    for destination in (0..gpus).filter(|destination| *destination != source) {
        let mut pair = telemetry.read_pair(source, destination);
        read_slowly(telemetry, slow, &mut pair);
        if answers.send(Answer::Pair(pair)).is_err() {
            return;
        }
    }
}

fn read_slowly(telemetry: &dyn Telemetry, slow: &[SlowFact], pair: &mut GpuPair) {
    if slow.contains(&SlowFact::PeerAccess) {
        telemetry.read_access(pair);
    }
    if slow.contains(&SlowFact::PeerAtomics) {
        telemetry.read_atomics(pair);
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), HardwareError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| {
        limits::not_started(format!("the thread for {name} cannot be started: {error}"), &error)
    })
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests;
