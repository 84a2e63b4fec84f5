//! NVIDIA's words for the status and the health mask of an NVSwitch fabric.

/// Returns NVML's name of a return code, with its number (nvml.h, `nvmlReturn_t`).
pub(super) fn status(code: u32) -> String {
    const NAMES: [&str; 30] = [
        "SUCCESS",
        "UNINITIALIZED",
        "INVALID_ARGUMENT",
        "NOT_SUPPORTED",
        "NO_PERMISSION",
        "ALREADY_INITIALIZED",
        "NOT_FOUND",
        "INSUFFICIENT_SIZE",
        "INSUFFICIENT_POWER",
        "DRIVER_NOT_LOADED",
        "TIMEOUT",
        "IRQ_ISSUE",
        "LIBRARY_NOT_FOUND",
        "FUNCTION_NOT_FOUND",
        "CORRUPTED_INFOROM",
        "GPU_IS_LOST",
        "RESET_REQUIRED",
        "OPERATING_SYSTEM",
        "LIB_RM_VERSION_MISMATCH",
        "IN_USE",
        "MEMORY",
        "NO_DATA",
        "VGPU_ECC_NOT_SUPPORTED",
        "INSUFFICIENT_RESOURCES",
        "FREQ_NOT_SUPPORTED",
        "ARGUMENT_VERSION_MISMATCH",
        "DEPRECATED",
        "NOT_READY",
        "GPU_NOT_FOUND",
        "INVALID_STATE",
    ];
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    match (name, code) {
        (Some(name), _) => format!("{code} (NVML_ERROR_{name})"),
        (None, 999) => "999 (NVML_ERROR_UNKNOWN)".to_owned(),
        (None, _) => code.to_string(),
    }
}

/// Returns the faults in a health mask as the snapshot stores it: a bit for each faulty part, and the number of the
/// configuration's fault (nvml.h, `NVML_GPU_FABRIC_HEALTH_MASK_*`).
pub(super) fn health(mask: u32) -> String {
    const PARTS: [(u32, &str); 4] = [
        (0, "DEGRADED_BW"),
        (2, "ROUTE_RECOVERY"),
        (4, "ROUTE_UNHEALTHY"),
        (6, "ACCESS_TIMEOUT_RECOVERY"),
    ];
    const CONFIGURATION: [&str; 8] = [
        "NOT_SUPPORTED",
        "NONE",
        "INCORRECT_SYSGUID",
        "INCORRECT_CHASSIS_SN",
        "NO_PARTITION",
        "INSUFFICIENT_NVLINKS",
        "INCOMPATIBLE_GPU_FW",
        "INVALID_LOCATION",
    ];
    let set =
        PARTS.iter().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| (*name).to_owned());
    let fault = mask >> 8 & 0xf;
    let name = usize::try_from(fault).ok().and_then(|fault| CONFIGURATION.get(fault));
    let configuration = (fault > 1).then(|| match name {
        Some(name) => format!("INCORRECT_CONFIGURATION: {name}"),
        None => format!("INCORRECT_CONFIGURATION: {fault}"),
    });
    let words: Vec<_> = set.chain(configuration).collect();
    if words.is_empty() {
        format!("{mask:#x}")
    } else {
        format!("{} ({mask:#x})", words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_nvml() {
        let said: Vec<_> = [3, 10, 29, 30, 999].into_iter().map(status).collect();
        let words = [
            "3 (NVML_ERROR_NOT_SUPPORTED)",
            "10 (NVML_ERROR_TIMEOUT)",
            "29 (NVML_ERROR_INVALID_STATE)",
            "30",
        ];
        assert_eq!(said, [&words[..], &["999 (NVML_ERROR_UNKNOWN)"]].concat());
        assert_eq!(health(0x11), "DEGRADED_BW, ROUTE_UNHEALTHY (0x11)");
        assert_eq!(health(0x400), "INCORRECT_CONFIGURATION: NO_PARTITION (0x400)");
        assert_eq!(
            health(0x944),
            "ROUTE_RECOVERY, ACCESS_TIMEOUT_RECOVERY, INCORRECT_CONFIGURATION: 9 (0x944)"
        );
        assert_eq!(health(2), "0x2");
    }
}
