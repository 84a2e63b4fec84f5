//! # What it means
//!
//! The loaded NVIDIA kernel module and the NVIDIA libraries have different versions. NVML and CUDA refuse to start.
//!
//! # What to do
//!
//! Usually a package was updated. Reboot, or end all programs and reload the module
//! (`rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`). If it stays, DKMS did not build the new
//! module (`dkms status`). In a container: the image must not bring its own libraries.
//!
//! # How it is detected
//!
//! The loaded module (/sys/module/nvidia/version) differs from what NVML reports for driver and itself, or NVML does
//! not start (error 18). In the output of other tools, the refusal is an error.
//!
//! # Sources
//!
//! NVML, NVML_ERROR_LIB_RM_VERSION_MISMATCH (18); the kernel's message "NVRM: API mismatch".

use super::prelude::*;
use model::restore::NVML_VERSION_MISMATCH;

rule! {
    "driver-mismatch", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let host = &evidence.snapshot.host;
    let module = host.kernel_module_version.known().map(|version| version.trim());
    let driver = host.driver_version.known().map(|version| version.trim());
    // NVML puts the CUDA major version before the driver's.
    let library = host
        .nvml_version
        .known()
        .and_then(|version| version.trim().split_once('.'))
        .map(|(_, version)| version);
    let refused = evidence.snapshot.nvml_failure_code == Some(NVML_VERSION_MISMATCH);
    let differs =
        |other: Option<&str>| module.zip(other).is_some_and(|(module, other)| module != other);
    if !refused && !differs(driver) && !differs(library) {
        return None;
    }
    let loaded = words::after(" ", module);
    let others = words::after(" ", library.or(driver));
    let refused_it = if refused { "; NVML does not start (error 18)" } else { "" };
    Some(
        RULE.on_machine(format!("The loaded kernel module{loaded} and the NVIDIA libraries{others} differ{refused_it}"),
            Plan::now([Step::Reboot, Step::CheckAgain])
                .if_it_stays([Step::Dkms, Step::Container]),
        )
        .fact("kernel_module_version", module)
        .fact("driver_version", driver)
        // Of what no tool could read, no other rule says anything.
        .at_if(refused && evidence.read_from.is_some(), Severity::Error),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn versions_that_differ_are_reported_and_unknown_ones_are_not() {
        let mut machine = h200_vm(2);
        let known = |text: &str| Reading::Known(text.to_owned());
        machine.host.driver_version = known("580.159.04");
        machine.host.nvml_version = known("13.580.159.04");
        assert_eq!(findings(&machine, None), []);
        machine.host.kernel_module_version = known("580.159.04");
        assert_eq!(findings(&machine, None), []);
        machine.host.kernel_module_version = known("580.95.05");
        let found = only(&findings(&machine, None), "driver-mismatch", Severity::Warning);
        assert!(
            found.message.contains("580.95.05 and") && found.message.contains("580.159.04"),
            "{}",
            found.message
        );
        let may = ["dkms", "container"];
        for guest in [true, false] {
            machine.host.virtual_machine = Reading::Known(guest);
            assert_advice(&RULE, &findings(&machine, None), &["reboot"], &may);
        }
    }

    #[test]
    fn a_refusal_of_nvml_is_reported_with_the_loaded_version() {
        let mut machine = empty();
        machine.nvml_failure_code = Some(NVML_VERSION_MISMATCH);
        machine.host.kernel_module_version = Reading::Known("580.95.05".into());
        let found = findings(&machine, None);
        let finding = found.iter().find(|finding| finding.code == RULE.id).unwrap();
        assert!(
            finding.message.contains("580.95.05") && finding.message.contains("18"),
            "{}",
            finding.message
        );
    }
}
