//! # What it means
//!
//! Memory or an event of one process cannot be used by another in a way that common programs rely on.
//!
//! # How it is detected
//!
//! `check --profile full`, or `--only share`, starts two processes. One creates memory and hands it over in each way that
//! programs use (`measurements.sharing`): a legacy IPC handle, an event, a file descriptor over a socket, the same fetched
//! by pidfd_getfd, a fabric handle, a file of /dev/shm that both register, and memory of a NUMA node. The other opens it,
//! checks its pattern by a kernel and writes another, which the first one checks. With several GPUs that is done
//! from one to another (with `--only share` also within one), by processes that see all GPUs and by processes that see their own only.
//!
//! A way that the driver, the GPU or the kernel does not have at all is listed as not offered and is no finding: a fabric
//! handle without an IMEX channel, legacy handles under WSL 2, a function that an old driver lacks.
//!
//! It is an error if GPUs reach each other's memory within one process, and neither a legacy handle nor a file descriptor
//! carries memory from one to the other; or if a call does not return within two seconds, where a program would wait for
//! ever. It is a warning if one of these ways is refused, or /dev/shm, or a fabric handle
//! although there is an IMEX channel. It is information if only ways are refused for which programs have another.
//!
//! # Why it matters
//!
//! NCCL, vLLM, SGLang, UCX and Ray run one process for each GPU. NCCL from 2.19 on and its cuMem allocator hand memory over
//! by file descriptors; NCCL without cuMem, PyTorch's `torch.multiprocessing` and vLLM's own all-reduce by legacy handles
//! and events; PyTorch's expandable segments by pidfd_getfd. Where GPUs do not reach each other, NCCL copies through
//! /dev/shm, or through memory of a NUMA node from 2.24 on. A program that meets a refusal ends, hangs, or falls back to a
//! slower way without a word, although every copy within one process is fast.
//!
//! # What to do
//!
//! The message names the facts of the process that explain the refusal: an IPC namespace of its own, a seccomp filter,
//! `kernel.yama.ptrace_scope`, the limit of open files, the room of /dev/shm. Start the container with `--ipc=host` or a
//! larger `--shm-size`, allow the calls that its seccomp profile refuses, raise the limit. If no fact explains it, look for
//! messages of the driver, and compare with a check on the host.
//!
//! What this test cannot tell: it shares between two processes of one container and one user. Processes of two containers
//! are refused legacy handles unless they share the PID namespace too (`--pid=container:NAME`), and processes of two users
//! may be refused what these two may do. It tries one pair of GPUs. Whether kernels of the two processes see each other's
//! writes while they run is the subject of `live-talk-failed`.
//!
//! # Sources
//!
//! CUDA driver API, `cuIpcGetMemHandle`, `cuMemExportToShareableHandle`; NVIDIA, CUDA on WSL user guide; pidfd_getfd(2),
//! ptrace(2); NCCL, environment variables (`NCCL_CUMEM_ENABLE`, `NCCL_CUMEM_HOST_ENABLE`) and troubleshooting (shared
//! memory); Docker, `--ipc`, `--shm-size`; pytorch issue 165685 (pidfd_getfd not permitted in a container); TensorRT-LLM
//! pull request 17034 (peer access is granted and `cudaIpcOpenMemHandle` refused); vLLM pull request 55906 (PID namespaces).

use super::prelude::*;
use model::measurement::{Obstacle, Rung, Sharing};

pub(crate) const RULE: Rule = Rule::of_one("sharing-refused", Severity::Warning, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let hung = |cell: &&Sharing| cell.ending.status == Status::Hung;
    let refused: Vec<&Sharing> = measurements
        .sharing
        .iter()
        .filter(|cell| cell.works == Some(false) || hung(cell))
        .collect();
    let first = refused.first()?;
    let rungs: BTreeSet<Rung> = refused.iter().map(|cell| cell.rung).collect();
    let obstacles: BTreeSet<Obstacle> =
        refused.iter().flat_map(|cell| cell.obstacles.iter().copied()).collect();
    let (severity, which) = weight(measurements, &refused);
    let names: Vec<String> = rungs.iter().map(ToString::to_string).collect();
    let reason = |cell: &Sharing| {
        let reason = cell.refused.as_deref().or(cell.ending.reason.as_deref());
        reason.unwrap_or_default().to_owned()
    };
    let because: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    let because =
        if because.is_empty() { String::new() } else { format!("; {}", because.join(", ")) };
    let message = format!(
        "{which}: {}. The first, {} ({}): {}{because}",
        names.join(", "),
        first.rung,
        first.view,
        reason(first),
    );
    let mut gpus: Vec<u32> = refused.iter().flat_map(|cell| [cell.owner, cell.user]).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let found = RULE
        .finding(Subject::Machine, message, steps(&obstacles))
        .fact("ways_refused", Fact::Count(refused.len() as u64))
        .gpus(&gpus);
    Some(Finding { severity, ..found })
}

/// Returns the severity of these refusals, and what they mean.
fn weight(measurements: &Measurements, refused: &[&Sharing]) -> (Severity, &'static str) {
    let is = |rung: Rung, across: bool| {
        let of = |cell: &&&Sharing| cell.rung == rung && (cell.owner != cell.user) == across;
        refused.iter().any(|cell| of(&cell))
    };
    let works = |rung: Rung| {
        let mut across = measurements.sharing.iter().filter(|cell| cell.owner != cell.user);
        across.any(|cell| cell.rung == rung && cell.works == Some(true))
    };
    let neither = [Rung::LegacyMemory, Rung::Descriptor].into_iter().all(|rung| !works(rung));
    let of_either = is(Rung::LegacyMemory, true) || is(Rung::Descriptor, true);
    let any = |rungs: &[Rung]| refused.iter().any(|cell| rungs.contains(&cell.rung));
    if refused.iter().any(|cell| cell.ending.status == Status::Hung) {
        (Severity::Error, "Ways to share memory between processes hang or are refused")
    } else if neither && of_either {
        let why = "No process can use another one's GPU memory, although the GPUs reach each other; refused";
        (Severity::Error, why)
    } else if any(&[
        Rung::LegacyMemory,
        Rung::LegacyEvent,
        Rung::Descriptor,
        Rung::Fabric,
        Rung::SharedMemory,
    ]) {
        (Severity::Warning, "Ways to share memory between processes are refused")
    } else {
        let why =
            "Ways to share memory between processes are refused, for which programs have others";
        (Severity::Info, why)
    }
}

fn steps(obstacles: &BTreeSet<Obstacle>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for obstacle in obstacles {
        let step = match obstacle {
            Obstacle::IpcNamespace => Step::OneIpcNamespace,
            Obstacle::Seccomp | Obstacle::NumaRefused => Step::SeccompProfile,
            Obstacle::Yama => Step::PtraceScope,
            Obstacle::OpenFiles => Step::Limits,
            Obstacle::NoSharedMemory | Obstacle::SharedMemoryFull => Step::SharedMemoryRoom,
            Obstacle::DriverTooOld | Obstacle::NotOffered => Step::UpdateDriver,
            Obstacle::Wsl | Obstacle::KernelTooOld | Obstacle::NoImexChannel => Step::CheckOnHost,
        };
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    if steps.is_empty() {
        steps.push(Step::DriverLog);
    }
    steps.push(Step::CheckAgain);
    steps
}
