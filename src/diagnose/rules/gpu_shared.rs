//! # What it means
//!
//! Other programs had contexts on GPUs that were tested. One that copies or computes lowers the figures that the
//! machine is judged by.
//!
//! # What to do
//!
//! Nothing if all figures are as expected. Otherwise end the programs (`nvidia-smi` lists the processes), and check
//! again.
//!
//! # How it is detected
//!
//! NVML lists processes with a context, other than peerscope's own. It is information, and a warning if a copy with
//! such a GPU was slow. Programs seen at work are `gpu-busy`. In a container, peerscope's own worker may be listed.
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetComputeRunningProcesses`.

use super::gpu_busy;
use super::prelude::*;

rule! {
    "gpu-shared", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    // Without figures a program cannot have changed any.
    evidence.measurements?;
    let busy = gpu_busy::used_by_others(evidence);
    let at_work: Vec<u32> = pids(evidence, &busy);
    let (mut gpus, mut pids, mut held) = (Vec::new(), Vec::new(), 0_u64);
    for gpu in evidence.snapshot.gpus.iter().filter(|gpu| !busy.contains(&gpu.index)) {
        let processes = gpu.processes.known().into_iter().flatten();
        let before = pids.len();
        for process in processes.filter(|process| !at_work.contains(&process.pid)) {
            pids.push(process.pid);
            held = held.saturating_add(process.memory_bytes.map_or(0, |bytes| bytes.0));
        }
        if pids.len() > before {
            gpus.push(gpu.index);
        }
    }
    if gpus.is_empty() {
        return None;
    }
    pids.sort_unstable();
    pids.dedup();
    let slow: Vec<_> = gpus.iter().flat_map(|gpu| links::slow_with(evidence, *gpu)).collect();
    let end = [Step::Stop(Work::OnGpus), Step::CheckAgain];
    let (effect, plan) = match slow.is_empty() {
        true => ("", Plan::now([Step::Nothing(Fine::Always)]).otherwise(end)),
        false => ("; copies with them were slower than expected", Plan::now(end)),
    };
    let who = match pids.len() {
        1 => "Another process".to_owned(),
        several => format!("{several} other processes"),
    };
    let message = format!("{who} had contexts on {} during the run{effect}", words::gpus(&gpus));
    let found = RULE
        .finding(Subject::of_gpus(&gpus), message, plan)
        .fact("processes", evidence.processes(&gpus))
        .fact("memory_held", Bytes(held))
        .about_pairs(links::pairs(&slow))
        .at_if(!slow.is_empty(), Severity::Warning);
    Some(links::with_slowed(found, &slow))
}

/// Returns the other programs with a context on any of these GPUs.
fn pids(evidence: &Evidence<'_>, gpus: &[u32]) -> Vec<u32> {
    let processes = gpus.iter().filter_map(|gpu| evidence.snapshot.gpu(*gpu)?.processes.known());
    processes.flatten().map(|process| process.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::snapshot::GpuProcess;

    #[test]
    fn other_programs_are_reported_and_suspected_where_copies_were_slow() {
        let mut machine = h200_vm(4);
        machine.gpus[1].processes = Reading::Known(Vec::new());
        let mut measurements = measured(&machine, 0.88);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        machine.gpus[1].processes =
            Reading::Known(vec![GpuProcess { pid: 4711, name: None, memory_bytes: None }]);
        assert_eq!(findings(&machine, None), [], "nothing was measured");
        let found = only(&findings(&machine, Some(&measurements)), "gpu-shared", Severity::Info);
        assert_eq!(found.subject, Subject::Gpu { index: 1 });
        set(&mut measurements, 100.0, |cell| touches(cell, 1));
        let found = findings(&machine, Some(&measurements));
        let slow = only(&found, "peer-bandwidth-low", Severity::Error);
        assert_eq!(slow.evidence.effects()[0].rule, RULE.id, "{slow:#?}");
        // If only some of the slow copies are with it, it is reported by itself.
        set(&mut measurements, 396.0, |cell| touches(cell, 1) && !touches(cell, 3));
        machine.gpus[2].processes = machine.gpus[1].processes.clone();
        set(&mut measurements, 100.0, |cell| touches(cell, 0) && touches(cell, 2));
        let found = findings(&machine, Some(&measurements));
        assert!(
            found
                .iter()
                .any(|finding| finding.code == RULE.id && finding.severity == Severity::Warning),
            "{found:#?}"
        );
    }
}
