//! # What it means
//!
//! MIG mode is on: GPUs are split, and no peer access is possible. CUDA shows a program at most one instance of a
//! GPU.
//!
//! # What to do
//!
//! If these GPUs are to work together: `nvidia-smi -i GPU -mig 0`, with no program running. Older parts then need a
//! reset of the GPU.
//!
//! # How it is detected
//!
//! NVML reports it for every GPU; one finding. It is a warning if only some GPUs of a model are split: usually the last
//! user left them so. If peer access is refused because of it, `peer-access-missing` reports it instead.
//!
//! # Sources
//!
//! NVIDIA Multi-Instance GPU user guide (no GPU-to-GPU peer access in MIG mode).

use super::prelude::*;

rule! {
    "mig-enabled", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let snapshot = evidence.snapshot;
    let indices = snapshot.gpus_with(|gpu| gpu.mig.get() == Some(true));
    let refused = evidence.topology.pairs.iter().any(|route| {
        let said = &route.peer_access;
        let word = said.nvml_write;
        let nvml = word.is_some_and(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown));
        let in_mig = route.pair.gpus().iter().any(|gpu| indices.contains(gpu));
        in_mig && (said.cuda == Some(false) || nvml)
    });
    if indices.is_empty() || refused {
        return None;
    }
    let differ = snapshot.gpus.iter().any(|gpu| {
        let model = gpu.name.known();
        let is_same = |other: &u32| model.is_some() && snapshot.model_of(*other) == model;
        gpu.mig.get() == Some(false) && indices.iter().any(is_same)
    });
    let message = format!(
        "MIG mode is on for {}, which excludes peer access{}",
        evidence.named(&indices),
        if differ { "; it is off for others of the same model" } else { "" },
    );
    let off = Step::MigOff(all(&indices));
    let found = RULE.on_machine(message, [off]).gpus(&indices);
    Some(found.at_if(differ, Severity::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn mig_on_all_gpus_is_information_and_on_some_a_warning() {
        let mut machine = h200_vm(3);
        machine.gpus.iter_mut().for_each(|gpu| gpu.mig = Reading::Known(false));
        assert_eq!(findings(&machine, None), []);
        machine.gpus[1].mig = Reading::Known(true);
        let found = only(&findings(&machine, None), "mig-enabled", Severity::Warning);
        assert!(found.next_step.contains("-i 1 -mig 0"), "{}", found.next_step);
        machine.gpus.iter_mut().for_each(|gpu| gpu.mig = Reading::Known(true));
        only(&findings(&machine, None), "mig-enabled", Severity::Info);
    }
}
