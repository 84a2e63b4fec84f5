//! # What it means
//!
//! GPUs are of several models, or one model has several versions of its video BIOS. Programs run at the speed of the
//! slowest; peer access between models may be refused; power limits, clocks and link settings may differ.
//!
//! # What to do
//!
//! Compare with what was ordered: one GPU may be the wrong part, or was replaced. Let programs choose GPUs of one model
//! (`CUDA_VISIBLE_DEVICES` with UUIDs). Ask the manufacturer of the machine for the firmware bundle and bring all GPUs
//! of a model to one version.
//!
//! # How it is detected
//!
//! NVML's product names differ, or the versions of GPUs with the same name. It is information: many machines are built
//! that way. Versions are a warning if the GPUs belong to an NVSwitch fabric, whose boards have their firmware as one
//! bundle.
//!
//! # Sources
//!
//! CUDA orders devices fastest first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`: its numbers differ from nvidia-smi's (CUDA
//! Programming Guide). NVIDIA HGX firmware release notes.

use super::prelude::*;

rule! {
    "gpus-mixed", Info, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let known = evidence.snapshot.gpus.iter();
    let models = words::grouped(known.filter_map(|gpu| Some((gpu.name.known()?.trim(), gpu))));
    let firmware = models.iter().filter_map(|(model, gpus)| firmware(evidence, model, gpus));
    of_models(&models).into_iter().chain(firmware).collect()
}

fn of_models(models: &BTreeMap<&str, Vec<&Gpu>>) -> Option<Finding> {
    let indices = |gpus: &[&Gpu]| gpus.iter().map(|gpu| gpu.index).collect();
    let models: BTreeMap<&str, Vec<u32>> =
        models.iter().map(|(model, gpus)| (*model, indices(gpus))).collect();
    let message = format!("The GPUs are of {} models; {}", models.len(), words::by_value(&models));
    let steps = [Step::CompareOrdered, Step::DeviceOrder];
    let found = RULE.on_machine(message, steps).fact("gpus_by_model", words::table(&models));
    (models.len() > 1).then_some(found)
}

/// Returns a finding if GPUs of one model have several versions.
fn firmware(evidence: &Evidence<'_>, model: &str, gpus: &[&Gpu]) -> Option<Finding> {
    let known = gpus.iter().filter_map(|gpu| Some((gpu.vbios.known()?.trim(), gpu.index)));
    let versions = words::grouped(known);
    if versions.len() < 2 {
        return None;
    }
    let step = match evidence.virtual_machine() {
        true => Step::AskHost(Ask::Firmware),
        false => Step::FirmwareBundle,
    };
    let message = format!(
        "{} video BIOS versions on GPUs of one model ({model}); {}",
        versions.len(),
        words::by_value(&versions)
    );
    let found = RULE.on_machine(message, [step]).fact("gpus_by_version", words::table(&versions));
    Some(found.at_if(gpus.iter().any(|gpu| gpu.in_fabric()), Severity::Warning))
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

    #[test]
    fn versions_are_compared_within_a_model() {
        for (mut machine, severity) in
            [(h200_vm(4), Severity::Warning), (two_sockets(), Severity::Info)]
        {
            machine
                .gpus
                .iter_mut()
                .for_each(|gpu| gpu.vbios = Reading::Known("96.00.D9.00.02".into()));
            assert_eq!(findings(&machine, None), []);
            machine.gpus[2].vbios = Reading::Known("96.00.A5.00.01".into());
            let found = only(&findings(&machine, None), "gpus-mixed", severity);
            assert!(found.message.contains("96.00.A5.00.01 (GPU 2)"), "{}", found.message);
            machine.gpus[2].name = Reading::Known("another".into());
            let found = only(&findings(&machine, None), "gpus-mixed", Severity::Info);
            assert!(!found.message.contains("BIOS"), "{}", found.message);
        }
    }
}
