//! Collects the readings of all threads into a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use hardware::{GpuGroup, HardwareError, NvidiaFunctions, PciTree};
use model::reading::{Reading, Unknown};
use model::snapshot::{
    DisplayFunction, Gpu, GpuPair, Host, PciFunction, PciKind, SlowFact, Snapshot,
};

use super::{Answer, Pairs, groups};

/// The results received so far.
#[derive(Default)]
pub(super) struct Collected {
    host: Option<Host>,
    tree: Option<PciTree>,
    nvidia: Option<NvidiaFunctions>,
    count: Option<Result<u32, HardwareError>>,
    gpus: BTreeMap<u32, (Box<Gpu>, usize)>,
    pairs: BTreeMap<(u32, u32), GpuPair>,
    pub(super) problems: Vec<String>,
}

impl Collected {
    /// Receives until every thread is done, or the deadline passes. Returns true if all were done.
    pub(super) fn receive(&mut self, inbox: &Receiver<Answer>, deadline: Instant) -> bool {
        loop {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Host(host)) => self.host = Some(*host),
                Ok(Answer::Tree(tree)) => self.tree = Some(tree),
                Ok(Answer::Nvidia(nvidia)) => self.nvidia = Some(nvidia),
                Ok(Answer::Count(count)) => self.count = Some(count),
                Ok(Answer::Gpu(gpu, done)) => drop(self.gpus.insert(gpu.index, (gpu, done))),
                Ok(Answer::Pair(pair)) => {
                    drop(self.pairs.insert((pair.source, pair.destination), pair))
                }
                Ok(Answer::Problem(problem)) => self.problems.push(problem),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Puts everything in order. `problems` lists facts that did not arrive, each with `missing` as the reason; their
    /// readings are `pending`.
    pub(super) fn into_snapshot(
        mut self,
        slow: &'static [SlowFact],
        asked: Pairs,
        pending: &Unknown,
        missing: &str,
    ) -> Snapshot {
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
        let nvidia = self.nvidia.unwrap_or_else(|| {
            problems.push(format!("the NVIDIA functions on the PCI bus: {missing}"));
            NvidiaFunctions::default()
        });
        let mut nvml_failure_code = None;
        let counted = matches!(self.count, Some(Ok(_)));
        let count = match self.count {
            Some(Ok(count)) => count,
            Some(Err(error)) => {
                nvml_failure_code = error.code;
                // First, because it matters most.
                problems.insert(0, error.message);
                0
            }
            None => {
                problems.push(format!("the number of GPUs: {missing}"));
                0
            }
        };
        problems.extend((count == 0).then(|| on_the_bus(&tree.functions)).flatten());
        let mut gpus = Vec::new();
        for index in 0..count {
            let (gpu, done) = self
                .gpus
                .remove(&index)
                .unwrap_or_else(|| (Box::new(Gpu::unread(index, pending)), 0));
            problems.extend(problem_of(
                &gpu,
                groups(slow).get(done..).unwrap_or_default(),
                missing,
            ));
            gpus.push(*gpu);
        }
        // Without NVML's count every GPU would appear as missing.
        let unlisted_gpus = if counted { unlisted(nvidia.displays, &gpus) } else { Vec::new() };
        let mut pairs = Vec::new();
        for source in (0..count).filter(|_| asked == Pairs::Asked) {
            let mut unread = BTreeSet::new();
            for destination in (0..count).filter(|destination| *destination != source) {
                pairs.push(self.pairs.remove(&(source, destination)).unwrap_or_else(|| {
                    unread.insert(destination);
                    GpuPair::unread(source, destination, pending)
                }));
            }
            if !unread.is_empty() {
                let peers: Vec<_> = unread.iter().map(u32::to_string).collect();
                problems.push(unread_row(source, &peers, missing));
            }
        }
        Snapshot {
            host,
            gpus,
            pairs,
            bonds: Vec::new(),
            pci: tree.functions,
            numa_nodes: tree.numa_nodes,
            adapters: tree.adapters,
            unlisted_gpus,
            nvswitches: nvidia.nvswitches,
            problems,
            nvml_failure_code,
        }
    }
}

pub(super) fn unread_row(source: u32, peers: &[String], why: &str) -> String {
    format!("peer access of GPU {source} to GPU {}: {why}", peers.join(", "))
}

/// Returns the GPUs that the kernel lists on the bus, as a problem for the case that NVML shows none.
pub(super) fn on_the_bus(functions: &[PciFunction]) -> Option<String> {
    let is_gpu =
        |function: &&PciFunction| function.kind == PciKind::Endpoint && function.is_display();
    let found: Vec<_> =
        functions.iter().filter(is_gpu).map(|function| function.address.to_string()).collect();
    let (number, them) = match found.len() {
        0 => return None,
        1 => ("1 NVIDIA GPU is".to_owned(), "it"),
        number => (format!("{number} NVIDIA GPUs are"), "them"),
    };
    Some(format!("{number} on the PCI bus ({}), and no driver shows {them}", found.join(", ")))
}

/// Returns the display functions that are not among the GPUs that NVML identified. NVML also counts GPUs that it does
/// not identify. If exactly as many usable functions are left, each gets its GPU.
pub(super) fn unlisted(displays: Vec<DisplayFunction>, gpus: &[Gpu]) -> Vec<DisplayFunction> {
    let mut known: Vec<_> = gpus.iter().filter_map(|gpu| gpu.pci.get()).collect();
    let mut left: Vec<_> =
        displays.into_iter().filter(|function| !known.contains(&function.address)).collect();
    let lost: Vec<_> =
        gpus.iter().filter(|gpu| gpu.pci.get().is_none()).map(|gpu| gpu.index).collect();
    let fitting: Vec<_> = left.iter_mut().filter(|function| function.is_for_us()).collect();
    if fitting.len() != lost.len() {
        return left;
    }
    known.extend(fitting.iter().map(|function| function.address));
    known.sort_unstable();
    // NVML numbers GPUs by address. Several lost GPUs get their functions in this order only if all identified GPUs
    // follow it.
    let in_place = |gpu: &Gpu| {
        gpu.pci.get().is_none_or(|address| known.get(gpu.index as usize) == Some(&address))
    };
    let certain = lost.len() == 1 || (known.len() == gpus.len() && gpus.iter().all(in_place));
    for (function, index) in fitting.into_iter().zip(&lost).filter(|_| certain) {
        function.gpu = Some(*index);
    }
    left
}

/// Returns the problem with reading a GPU as a whole, for which these groups were not read.
pub(super) fn problem_of(gpu: &Gpu, unread: &[GpuGroup], missing: &str) -> Option<String> {
    let label = gpu.label();
    if let [group, rest @ ..] = unread {
        let what = match group {
            GpuGroup::Identity => "identity",
            GpuGroup::Pcie => "PCIe link",
            GpuGroup::NvLink => "NVLinks and fabric",
            GpuGroup::State => "state",
            GpuGroup::LinkErrors => "error counters of NVLinks",
        };
        let rest = if rest.is_empty() { "" } else { " (nor was the rest read)" };
        return Some(format!("{label}, {what}: {missing}{rest}"));
    }
    match (&gpu.pci, &gpu.uuid, &gpu.name) {
        (Reading::Unknown(why), Reading::Unknown(_), Reading::Unknown(_)) => {
            Some(format!("{label} cannot be read: {why}"))
        }
        _ => None,
    }
}
