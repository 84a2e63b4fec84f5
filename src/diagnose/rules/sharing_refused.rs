//! # What it means
//!
//! Memory of one process cannot be used by another in a common way. Programs of several processes (NCCL, vLLM, SGLang,
//! UCX, Ray) end, hang, or take a slower way silently.
//!
//! # What to do
//!
//! The message names the cause: an IPC namespace of its own (`--ipc=host`), room of /dev/shm (`--shm-size`), calls that
//! a seccomp profile refuses, the limit of open files. Otherwise look for messages of the driver, and compare with a
//! check on the host. Legacy handles between two containers also need a common PID namespace (`--pid=container:NAME`),
//! which is not tested.
//!
//! # How it is detected
//!
//! In `full`, or with `--only share`, one process hands memory to another (`measurements.sharing`) by legacy IPC
//! handle, file descriptor, and file of /dev/shm; a kernel of the other checks it. It is an error if neither handle nor
//! descriptor works between GPUs with peer access, or a call takes over two seconds; a warning if a way is refused.
//! What driver or GPU lack is no finding.
//!
//! # Sources
//!
//! CUDA driver API, `cuIpcGetMemHandle`, `cuMemExportToShareableHandle`; TensorRT-LLM pull request 17034; vLLM pull
//! request 55906 (PID namespaces).

use super::prelude::*;
use model::measurement::{Obstacle, Rung, Sharing};

rule! {
    "sharing-refused", Warning, One(judge);
}

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
    let because = words::after("; ", Some(because.join(", ")));
    let message = format!(
        "{which}; {}; the first, {}: {}{because}",
        names.join(", "),
        first.rung,
        reason(first),
    );
    let mut gpus: Vec<u32> = refused.iter().flat_map(|cell| [cell.owner, cell.user]).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let found = RULE
        .on_machine(message, steps(&obstacles))
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
    if refused.iter().any(|cell| cell.ending.status == Status::Hung) {
        (Severity::Error, "IPC: ways to share GPU memory between processes hang or are refused")
    } else if neither && of_either {
        let why = "IPC: no process can use another one's GPU memory; the GPUs reach each other";
        (Severity::Error, why)
    } else {
        (Severity::Warning, "IPC: ways to share GPU memory between processes are refused")
    }
}

fn steps(obstacles: &BTreeSet<Obstacle>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for obstacle in obstacles {
        let step = match obstacle {
            Obstacle::IpcNamespace => Step::OneIpcNamespace,
            Obstacle::Seccomp => Step::SeccompProfile,
            Obstacle::OpenFiles => Step::Limits,
            Obstacle::SharedMemoryFull => Step::SharedMemoryRoom,
            Obstacle::DriverTooOld | Obstacle::NotOffered => Step::UpdateDriver,
            Obstacle::Wsl => Step::CheckOnHost,
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
