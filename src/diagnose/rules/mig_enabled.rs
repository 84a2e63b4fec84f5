//! # What it means
//!
//! MIG mode is on: GPUs are split into instances, and no peer access is possible.
//!
//! # How it is detected
//!
//! The rule reads what NVML reports for every GPU, and makes one finding. It is information. It is a warning if some
//! GPUs of a model have MIG mode on and others of the same model do not. If peer access is refused because of MIG mode,
//! the finding on that (`peer-access-missing`) states it, and this one is not reported.
//!
//! # Why it matters
//!
//! A GPU in MIG mode cannot copy to others directly, and CUDA shows at most one instance of it to a program. If only
//! some GPUs are split, the last user usually left them that way.
//!
//! # What to do
//!
//! If these GPUs are to work together: `nvidia-smi -i GPU -mig 0`, with no program running. Older parts then need a
//! reset of the GPU.
//!
//! # Sources
//!
//! NVIDIA Multi-Instance GPU user guide (no GPU-to-GPU peer access in MIG mode).

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("mig-enabled", Severity::Info, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = &evidence.snapshot.gpus;
    let on: Vec<_> = gpus
        .iter()
        .filter(|gpu| gpu.mig.get() == Some(true))
        .collect();
    let indices: Vec<u32> = on.iter().map(|gpu| gpu.index).collect();
    let refused = evidence.topology.pairs.iter().any(|route| {
        let said = &route.peer_access;
        let nvml = said
            .nvml_write
            .is_some_and(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown));
        (indices.contains(&route.pair.source) || indices.contains(&route.pair.destination))
            && (said.cuda == Some(false) || nvml)
    });
    if on.is_empty() || refused {
        return Vec::new();
    }
    let differ = gpus.iter().any(|gpu| {
        gpu.mig.get() == Some(false)
            && on
                .iter()
                .any(|other| gpu.name.known().is_some() && other.name.known() == gpu.name.known())
    });
    let which = words::all_or(evidence.snapshot, &indices);
    let mut found = RULE
        .finding(
            Subject::Machine,
            format!(
                "MIG mode is on for {which}{}: no peer access with {}",
                if differ {
                    ", and off for others of the same model"
                } else {
                    ""
                },
                if indices.len() == 1 { "it" } else { "them" },
            ),
            [Step::MigOff(all(&indices), Listed(indices.clone()))],
        )
        .gpus(&indices);
    if differ {
        found.severity = Severity::Warning;
    }
    vec![found]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn mig_on_all_gpus_is_information_and_on_some_a_warning() {
        let mut machine = h200_vm(3);
        machine
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.mig = Reading::Known(false));
        assert_eq!(findings(&machine, None), []);
        machine.gpus[1].mig = Reading::Known(true);
        let found = only(&findings(&machine, None), "mig-enabled", Severity::Warning);
        assert!(
            found.next_step.contains("-i 1 -mig 0"),
            "{}",
            found.next_step
        );
        machine
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.mig = Reading::Known(true));
        only(&findings(&machine, None), "mig-enabled", Severity::Info);
    }
}
