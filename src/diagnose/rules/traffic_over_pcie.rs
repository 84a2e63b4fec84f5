//! # What it means
//!
//! Copies between GPUs that are joined by NVLink went over PCIe. The links are up and nothing uses them.
//!
//! # What to do
//!
//! Look for what keeps the driver from NVLink: NVLink switched off (nvidia-smi nvlink -s, the module parameter
//! NVreg_NvLinkDisable), a fabric manager that does not run, MIG, or GPUs of a virtual machine from several fabric
//! partitions. Then check again.
//!
//! # How it is detected
//!
//! Counters are read around known traffic (`measurements.counted`) that the graph routes over NVLink, of less than 4
//! GiB, since some counters wrap there. The GPU's NVLinks counted less than `least_nvlink_percent` of it, and its PCIe
//! link at least as much as they lack.
//!
//! # Sources
//!
//! NVML, fields 138 and 139 (NVLink data), 197 and 198 (PCIe bytes).

use super::counted::{self, Direction};
use super::prelude::*;

rule! {
    "traffic-over-pcie", Error, One(judge);
    /// what NVLinks must have counted; chosen: counters of healthy machines are within 1
    LEAST: least_nvlink_percent = 50.0;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let taken = taken(evidence);
    let gpus: Vec<u32> = words::unique(taken.iter().map(|(counted, _)| counted.gpu));
    let share = |direction: &Direction| {
        counted::percent(direction.nvlink.unwrap_or_default(), direction.known)
    };
    let worst = taken.iter().min_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)));
    let (seen, direction) = worst?;
    let message = format!(
        "{} {} {} over PCIe although NVLink is up; its NVLinks counted {:.0}%, its PCIe link {} or more",
        evidence.name(seen.gpu),
        direction.word,
        Bytes(direction.known),
        share(direction),
        Bytes(direction.pcie.unwrap_or_default()),
    );
    let mut plan = vec![
        Step::LinkStates,
        Step::NvLinkDisabled,
        Step::FabricManager,
        Step::Partitions,
        Step::CheckAgain,
    ];
    let in_question = gpus.iter().filter_map(|gpu| evidence.snapshot.gpu(*gpu));
    if in_question.into_iter().any(|gpu| gpu.mig.get() != Some(false)) {
        plan.insert(2, Step::MigMode);
    }
    Some(
        RULE.on_gpus(&gpus, message, plan)
            .fact("copied", Fact::Bytes(Bytes(direction.known)))
            .fact("over_nvlink", Fact::Bytes(Bytes(direction.nvlink.unwrap_or_default())))
            .fact("over_pcie_at_least", Fact::Bytes(Bytes(direction.pcie.unwrap_or_default()))),
    )
}

pub(crate) fn taken<'a>(evidence: &Evidence<'a>) -> Vec<(&'a Counted, Direction)> {
    let least = LEAST.of(evidence);
    let took = |direction: &Direction| {
        let lacks = direction.lacks();
        let of_others = direction.pcie.unwrap_or_default().saturating_sub(direction.with_host);
        counted::percent(direction.known - lacks, direction.known) < least
            && counted::percent(of_others, lacks) >= least
    };
    let of = |seen: &'a Counted| {
        counted::directions(seen).filter(took).map(move |direction| (seen, direction))
    };
    let all = counted::sound(evidence).filter(|seen| counted::is_over_nvlink(evidence, seen));
    all.flat_map(of).collect()
}
