//! # What it means
//!
//! GPUs of one model have different versions of the video BIOS. Their power limits, clocks and link settings may
//! differ.
//!
//! # What to do
//!
//! Ask the manufacturer of the machine for the firmware bundle and bring all GPUs to one version. Usually the GPU
//! that differs was replaced.
//!
//! # How it is detected
//!
//! NVML's versions of GPUs with the same name differ. It is a warning if they belong to an NVSwitch fabric, whose
//! boards have their firmware as one bundle, and are supported with one only. Otherwise it is information: boards of
//! different manufacturers always differ.
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetVbiosVersion`; NVIDIA HGX firmware release notes (one bundle for a baseboard).

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::new("firmware-mixed", Severity::Info, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let known = evidence.snapshot.gpus.iter().filter(|gpu| gpu.vbios.known().is_some());
    let models = words::grouped(known.filter_map(|gpu| Some((gpu.name.known()?, gpu))));
    let models = models.into_iter();
    models.filter_map(|(model, gpus)| finding(evidence, model, &gpus)).collect()
}

fn finding(evidence: &Evidence<'_>, model: &str, gpus: &[&Gpu]) -> Option<Finding> {
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
        "GPUs of one model ({model}) have different video BIOS versions: {}",
        words::by_value(&versions)
    );
    let found = RULE
        .finding(Subject::Machine, message, [step])
        .fact("gpus_by_version", words::table(&versions));
    Some(found.at_if(gpus.iter().any(|gpu| gpu.in_fabric()), Severity::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

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
            let found = only(&findings(&machine, None), "firmware-mixed", severity);
            assert!(found.message.contains("96.00.A5.00.01 (GPU 2)"), "{}", found.message);
            machine.gpus[2].name = Reading::Known("another".into());
            assert!(findings(&machine, None).iter().all(|finding| finding.code != RULE.id));
        }
    }
}
