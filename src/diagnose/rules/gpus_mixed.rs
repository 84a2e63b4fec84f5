//! # What it means
//!
//! The GPUs of this machine are not all of one model. Programs run at the speed of the slowest, and peer access
//! between models may be refused.
//!
//! # What to do
//!
//! Compare with what was ordered: one GPU may be the wrong part. Let programs choose GPUs of one model
//! (`CUDA_VISIBLE_DEVICES` with UUIDs).
//!
//! # How it is detected
//!
//! NVML's product names differ. It is information: many machines are built that way.
//!
//! # Sources
//!
//! CUDA orders devices fastest first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`, so with mixed models its numbers differ
//! from those of nvidia-smi (CUDA Programming Guide, environment variables).

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::of_one("gpus-mixed", Severity::Info, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let known = evidence.snapshot.gpus.iter();
    let known = known.filter_map(|gpu| Some((gpu.name.known()?.trim(), gpu.index)));
    let models = words::grouped(known);
    let message = format!("The GPUs are of {} models: {}", models.len(), words::by_value(&models));
    let steps = [Step::CompareOrdered, Step::DeviceOrder];
    let found = RULE
        .finding(Subject::Machine, message, steps)
        .fact("models", models.len())
        .fact("gpus_by_model", words::table(&models));
    (models.len() > 1).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn different_models_are_one_finding() {
        let mut machine = h200_vm(3);
        machine.gpus[1].name = Reading::failed("no answer");
        assert!(findings(&machine, None).iter().all(|finding| finding.code != RULE.id));
        machine.gpus[1].name = Reading::Known("NVIDIA H100 80GB HBM3".into());
        let found = only(&findings(&machine, None), "gpus-mixed", Severity::Info);
        assert!(found.message.contains("NVIDIA H200 (GPU 0 and GPU 2)"), "{}", found.message);
    }
}
