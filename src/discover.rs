//! From [`Telemetry`] to a [`Snapshot`], under a deadline.
//!
//! Calls to NVML can block for minutes on a sick machine and cannot be interrupted. Everything is
//! therefore read on threads that may be left behind: when the deadline passes, what came is
//! kept, and what did not come says so. The threads that are left behind hold nothing but the
//! telemetry and their end of a channel, and end with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::hardware::{ErrorKind, GpuGroup, HardwareError, Machine, PciTree, Telemetry};
use crate::model::reading::{Reading, Unknown};
use crate::model::snapshot::{Gpu, GpuPair, Host, Snapshot};

/// Opens the telemetry of a machine, which may block too.
///
/// # Errors
///
/// NVML is missing, does not start, or does not do so within `limit`.
pub fn open(machine: &Machine, limit: Duration) -> Result<Arc<dyn Telemetry>, HardwareError> {
    let machine = machine.clone();
    let (answer, inbox) = mpsc::channel();
    let started = start("telemetry", move || {
        let _ = answer.send(machine.telemetry());
    });
    started.map_err(|why| HardwareError::new(ErrorKind::Other, why))?;
    inbox.recv_timeout(limit).unwrap_or_else(|why| {
        let why = match why {
            RecvTimeoutError::Timeout => format!(
                "NVML did not start within {}: the driver is stuck; see dmesg for lines with NVRM or Xid",
                seconds(limit)
            ),
            RecvTimeoutError::Disconnected => "starting NVML broke off".to_owned(),
        };
        Err(HardwareError::new(ErrorKind::NoDriver, why))
    })
}

/// Reads everything that the telemetry has, for at most about `limit`.
///
/// GPUs come by index, pairs row by row. What was not read in time is unknown with that reason,
/// and `problems` says which calls did not answer.
pub fn discover(telemetry: Arc<dyn Telemetry>, limit: Duration) -> Snapshot {
    let deadline = Instant::now() + limit;
    let no_answer = format!("no answer within {}", seconds(limit));
    let pending = Unknown::Failed(no_answer.clone());
    let (answers, inbox) = mpsc::channel();
    let mut collected = Collected::default();
    collected.problems.extend(start_all(telemetry, &answers, &pending));
    // Now only threads hold an end: the channel closes when the last of them is done.
    drop(answers);
    let in_time = collected.receive(&inbox, deadline);
    let missing = if in_time { "the thread that reads it broke off".to_owned() } else { no_answer };
    collected.into_snapshot(&pending, &missing)
}

/// The snapshot of a machine whose telemetry does not open: nothing is known, for this reason.
pub fn without_telemetry(why: &HardwareError) -> Snapshot {
    Snapshot {
        host: Host::unread(&Unknown::Failed(why.message.clone())),
        gpus: Vec::new(),
        pairs: Vec::new(),
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        adapters: Vec::new(),
        problems: vec![why.message.clone()],
    }
}

/// What a thread hands in.
enum Answer {
    Host(Host),
    Tree(PciTree),
    Count(Result<u32, HardwareError>),
    /// A GPU as it is after this many groups.
    Gpu(Box<Gpu>, usize),
    Pair(GpuPair),
    Problem(String),
}

/// Starts the threads; those of GPUs are started by the one that counts them. What could not be
/// started is handed back.
fn start_all(telemetry: Arc<dyn Telemetry>, answers: &Sender<Answer>, pending: &Unknown) -> Vec<String> {
    let (host, host_answers) = (Arc::clone(&telemetry), answers.clone());
    let (tree, tree_answers) = (Arc::clone(&telemetry), answers.clone());
    let (count_answers, count_pending) = (answers.clone(), pending.clone());
    let started = [
        start("host", move || {
            let _ = host_answers.send(Answer::Host(host.host()));
        }),
        start("pci", move || {
            let _ = tree_answers.send(Answer::Tree(tree.pci_tree()));
        }),
        start("gpus", move || start_gpus(&telemetry, &count_answers, &count_pending)),
    ];
    started.into_iter().filter_map(Result::err).collect()
}

/// Counts the GPUs and starts two threads for each: one for its facts, one for its row of pairs,
/// so that neither waits for the other.
fn start_gpus(telemetry: &Arc<dyn Telemetry>, answers: &Sender<Answer>, pending: &Unknown) {
    let count = telemetry.gpu_count();
    let gpus = count.as_ref().map_or(0, |count| *count);
    // Nobody listens any more when the deadline has passed, here and below.
    if answers.send(Answer::Count(count)).is_err() {
        return;
    }
    for index in 0..gpus {
        let gpu = Gpu::unread(index, pending);
        let (facts, facts_answers) = (Arc::clone(telemetry), answers.clone());
        let (row, row_answers) = (Arc::clone(telemetry), answers.clone());
        for started in [
            start(&format!("gpu{index}"), move || read_gpu(&*facts, gpu, &facts_answers)),
            start(&format!("pairs{index}"), move || read_row(&*row, index, gpus, &row_answers)),
        ] {
            if let Err(problem) = started {
                let _ = answers.send(Answer::Problem(problem));
            }
        }
    }
}

fn read_gpu(telemetry: &dyn Telemetry, mut gpu: Gpu, answers: &Sender<Answer>) {
    for (group, done) in GpuGroup::ALL.into_iter().zip(1..) {
        telemetry.read_gpu(group, &mut gpu);
        if answers.send(Answer::Gpu(Box::new(gpu.clone()), done)).is_err() {
            return;
        }
    }
}

fn read_row(telemetry: &dyn Telemetry, source: u32, gpus: u32, answers: &Sender<Answer>) {
    for destination in (0..gpus).filter(|destination| *destination != source) {
        if answers.send(Answer::Pair(telemetry.read_pair(source, destination))).is_err() {
            return;
        }
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| format!("the thread for {name} cannot be started: {error}"))
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// What the threads handed in so far.
#[derive(Default)]
struct Collected {
    host: Option<Host>,
    tree: Option<PciTree>,
    count: Option<Result<u32, HardwareError>>,
    gpus: BTreeMap<u32, (Box<Gpu>, usize)>,
    pairs: BTreeMap<(u32, u32), GpuPair>,
    problems: Vec<String>,
}

impl Collected {
    /// Receives until every thread is done, or the deadline passes; whether they were done.
    fn receive(&mut self, inbox: &Receiver<Answer>, deadline: Instant) -> bool {
        loop {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Host(host)) => self.host = Some(host),
                Ok(Answer::Tree(tree)) => self.tree = Some(tree),
                Ok(Answer::Count(count)) => self.count = Some(count),
                Ok(Answer::Gpu(gpu, done)) => drop(self.gpus.insert(gpu.index, (gpu, done))),
                Ok(Answer::Pair(pair)) => drop(self.pairs.insert((pair.source, pair.destination), pair)),
                Ok(Answer::Problem(problem)) => self.problems.push(problem),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Puts everything in order. `missing` says in `problems` what became of what did not come;
    /// its readings are `pending`.
    fn into_snapshot(mut self, pending: &Unknown, missing: &str) -> Snapshot {
        let mut problems = self.problems;
        let host = self.host.unwrap_or_else(|| {
            problems.push(format!("the host's facts: {missing}"));
            Host::unread(pending)
        });
        let tree = self.tree.unwrap_or_else(|| {
            problems.push(format!("the PCI tree: {missing}"));
            PciTree::default()
        });
        problems.extend(tree.problems);
        let count = match self.count {
            Some(Ok(count)) => count,
            Some(Err(error)) => {
                problems.push(error.message);
                0
            }
            None => {
                problems.push(format!("the number of GPUs: {missing}"));
                0
            }
        };
        let mut gpus = Vec::new();
        for index in 0..count {
            let (gpu, done) = self.gpus.remove(&index).unwrap_or_else(|| (Box::new(Gpu::unread(index, pending)), 0));
            problems.extend(problem_of(&gpu, done, missing));
            gpus.push(*gpu);
        }
        let mut pairs = Vec::new();
        for source in 0..count {
            let mut unread = BTreeSet::new();
            for destination in (0..count).filter(|destination| *destination != source) {
                pairs.push(self.pairs.remove(&(source, destination)).unwrap_or_else(|| {
                    unread.insert(destination);
                    GpuPair::unread(source, destination, pending)
                }));
            }
            if !unread.is_empty() {
                let peers: Vec<_> = unread.iter().map(u32::to_string).collect();
                problems.push(format!("peer access of GPU {source} to GPU {}: {missing}", peers.join(", ")));
            }
        }
        Snapshot {
            host,
            gpus,
            pairs,
            pci: tree.functions,
            numa_nodes: tree.numa_nodes,
            adapters: tree.adapters,
            problems,
        }
    }
}

/// What is wrong with the reading of a GPU as a whole, after this many groups.
fn problem_of(gpu: &Gpu, done: usize, missing: &str) -> Option<String> {
    let label = gpu.label();
    if let Some(group) = GpuGroup::ALL.get(done) {
        let what = match group {
            GpuGroup::Identity => "identity",
            GpuGroup::Pcie => "PCIe link",
            GpuGroup::NvLink => "NVLinks and fabric",
            GpuGroup::State => "state",
        };
        let rest = if done + 1 < GpuGroup::ALL.len() { " (nor was the rest read)" } else { "" };
        return Some(format!("{label}, {what}: {missing}{rest}"));
    }
    match (&gpu.pci, &gpu.uuid, &gpu.name) {
        (Reading::Unknown(why), Reading::Unknown(_), Reading::Unknown(_)) => {
            Some(format!("{label} cannot be read: {why}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::hardware::LinkSample;
    use crate::model::snapshot::P2pStatus;

    /// Where a fake machine gets stuck.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Stuck {
        Nowhere,
        Host,
        Tree,
        Count,
        Gpu(u32, GpuGroup),
        Pair(u32, u32),
    }

    struct Fake {
        gpus: Result<u32, HardwareError>,
        stuck: Stuck,
        /// Held for as long as the machine is stuck.
        gate: Arc<Mutex<()>>,
    }

    impl Fake {
        fn pass(&self, here: Stuck) {
            if self.stuck == here {
                drop(self.gate.lock());
            }
        }
    }

    impl Telemetry for Fake {
        fn host(&self) -> Host {
            self.pass(Stuck::Host);
            Host::unread(&Unknown::Unsupported)
        }

        fn pci_tree(&self) -> PciTree {
            self.pass(Stuck::Tree);
            PciTree { problems: vec!["slot 3 is odd".into()], ..PciTree::default() }
        }

        fn gpu_count(&self) -> Result<u32, HardwareError> {
            self.pass(Stuck::Count);
            self.gpus.clone()
        }

        fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu) {
            self.pass(Stuck::Gpu(gpu.index, group));
            match group {
                GpuGroup::Identity => gpu.uuid = Reading::Known(format!("GPU-{}", gpu.index)),
                GpuGroup::Pcie => gpu.pcie_width = Reading::Known(16),
                GpuGroup::NvLink => gpu.nvlinks = Reading::Known(Vec::new()),
                GpuGroup::State => gpu.mig = Reading::Known(false),
            }
        }

        fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
            self.pass(Stuck::Pair(source, destination));
            let mut pair = GpuPair::unread(source, destination, &Unknown::Unsupported);
            pair.p2p_read = Reading::Known(P2pStatus::Ok);
            pair
        }

        fn sample(&self, _index: u32) -> LinkSample {
            LinkSample::default()
        }
    }

    const LIMIT: Duration = Duration::from_millis(200);
    const LATE: &str = "no answer within 0.2 s";

    /// The snapshot of a machine with this many GPUs that gets stuck somewhere.
    fn snapshot(gpus: u32, stuck: Stuck) -> Snapshot {
        let gate = Arc::new(Mutex::new(()));
        let _stuck = gate.lock().unwrap();
        discover(Arc::new(Fake { gpus: Ok(gpus), stuck, gate: Arc::clone(&gate) }), LIMIT)
    }

    fn late<T>() -> Reading<T> {
        Reading::failed(LATE)
    }

    #[test]
    fn a_healthy_machine_is_read_in_order_and_without_waiting() {
        let start = Instant::now();
        let snapshot = discover(
            Arc::new(Fake { gpus: Ok(8), stuck: Stuck::Nowhere, gate: Arc::default() }),
            Duration::from_secs(60),
        );
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(snapshot.gpus.iter().map(|gpu| gpu.index).eq(0..8));
        assert!(snapshot.gpus.iter().all(|gpu| gpu.mig == Reading::Known(false)));
        let order: Vec<_> = snapshot.pairs.iter().map(|pair| (pair.source, pair.destination)).collect();
        assert!(order.is_sorted() && order.len() == 56);
        assert!(snapshot.pairs.iter().all(|pair| pair.p2p_read == Reading::Known(P2pStatus::Ok)));
        assert_eq!(snapshot.problems, ["slot 3 is odd"]);
    }

    #[test]
    fn a_gpu_that_blocks_keeps_what_it_said_before() {
        let snapshot = snapshot(3, Stuck::Gpu(1, GpuGroup::NvLink));
        let gpu = snapshot.gpu(1).unwrap();
        assert_eq!((&gpu.uuid, &gpu.pcie_width), (&Reading::Known("GPU-1".into()), &Reading::Known(16)));
        assert_eq!((&gpu.nvlinks, &gpu.mig), (&late(), &late()));
        assert!(snapshot.gpu(2).unwrap().mig == Reading::Known(false));
        assert_eq!(snapshot.pairs.len(), 6);
        assert_eq!(
            snapshot.problems,
            ["slot 3 is odd", "GPU 1, NVLinks and fabric: no answer within 0.2 s (nor was the rest read)"]
        );
    }

    #[test]
    fn a_gpu_that_blocks_at_once_is_listed() {
        let snapshot = snapshot(2, Stuck::Gpu(0, GpuGroup::Identity));
        assert_eq!(snapshot.gpu(0).unwrap().uuid, late());
        assert!(snapshot.problems[1].starts_with("GPU 0, identity: no answer"), "{:?}", snapshot.problems);
    }

    #[test]
    fn a_pair_that_blocks_costs_the_rest_of_its_row_alone() {
        let snapshot = snapshot(3, Stuck::Pair(1, 0));
        let late: Vec<_> =
            snapshot.pairs.iter().filter(|pair| pair.p2p_read == late()).map(|pair| pair.source).collect();
        assert_eq!(late, [1, 1]);
        assert_eq!(snapshot.problems[1], "peer access of GPU 1 to GPU 0, 2: no answer within 0.2 s");
    }

    #[test]
    fn what_belongs_to_the_whole_machine_may_block_too() {
        for (stuck, problem) in [
            (Stuck::Host, "the host's facts: no answer within 0.2 s"),
            (Stuck::Tree, "the PCI tree: no answer within 0.2 s"),
            (Stuck::Count, "the number of GPUs: no answer within 0.2 s"),
        ] {
            let snapshot = snapshot(2, stuck);
            assert!(snapshot.problems.iter().any(|said| said == problem), "{:?}", snapshot.problems);
            assert_eq!(snapshot.gpus.len(), if stuck == Stuck::Count { 0 } else { 2 });
        }
    }

    #[test]
    fn gpus_that_cannot_be_counted_are_a_problem() {
        let gpus = Err(HardwareError::new(ErrorKind::Other, "NVML does not count its GPUs: failed: timeout"));
        let snapshot = discover(Arc::new(Fake { gpus, stuck: Stuck::Nowhere, gate: Arc::default() }), LIMIT);
        assert!(snapshot.gpus.is_empty() && snapshot.pairs.is_empty());
        assert_eq!(snapshot.problems[1], "NVML does not count its GPUs: failed: timeout");
    }

    #[test]
    fn a_gpu_that_fell_off_the_bus_is_named() {
        let lost = Unknown::Failed("NVML: the GPU fell off the bus or is otherwise lost (15)".into());
        let gpu = Gpu::unread(3, &lost);
        assert_eq!(problem_of(&gpu, 4, LATE).unwrap(), format!("GPU 3 cannot be read: {lost}"));
    }

    #[test]
    fn without_telemetry_the_reason_stands_everywhere() {
        let why = HardwareError::new(ErrorKind::NoDriver, "no NVIDIA driver");
        let snapshot = without_telemetry(&why);
        assert_eq!(snapshot.problems, ["no NVIDIA driver"]);
        assert_eq!(snapshot.host.driver_version, Reading::failed("no NVIDIA driver"));
        assert!(snapshot.gpus.is_empty());
    }
}
