//! NVML's return codes as reasons, and as the sentence that a user reads if NVML does not start.

use nvml_wrapper::error::NvmlError;

use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError};
use model::reading::Unknown;

const SUCCESS: u32 = 0;
const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
const DRIVER_NOT_LOADED: u32 = 9;
const FUNCTION_NOT_FOUND: u32 = 13;
const LIB_RM_VERSION_MISMATCH: u32 = 18;
const MEMORY: u32 = 20;
const INSUFFICIENT_RESOURCES: u32 = 23;
const ARGUMENT_VERSION_MISMATCH: u32 = 25;
const DEPRECATED: u32 = 26;
const UNKNOWN: u32 = 999;

/// Returns words for a return code. Codes stay plain numbers: newer drivers return newer ones.
const fn words(code: u32) -> &'static str {
    match code {
        1 => "not initialised",
        2 => "invalid argument",
        NOT_SUPPORTED => "not supported",
        NO_PERMISSION => "no permission",
        6 => "not found",
        7 => "buffer too small",
        8 => "external power is not attached",
        DRIVER_NOT_LOADED => "the driver is not loaded",
        10 => "timeout in the driver",
        11 => "interrupt problem of the GPU",
        12 => "library not found",
        FUNCTION_NOT_FOUND => "function not found",
        14 => "the infoROM is corrupted",
        15 => "the GPU fell off the bus or is otherwise lost",
        16 => "the GPU needs a reset",
        17 => "blocked by the operating system",
        LIB_RM_VERSION_MISMATCH => "driver and library versions differ",
        19 => "in use",
        MEMORY => "out of memory",
        21 => "no data",
        INSUFFICIENT_RESOURCES => "out of resources",
        24 => "frequency not supported",
        ARGUMENT_VERSION_MISMATCH => "the driver has another version of the structure",
        DEPRECATED => "retired by the driver",
        27 => "not ready",
        28 => "GPU not found",
        29 => "invalid state",
        UNKNOWN => "unknown error of the driver",
        _ => "a code that is not listed",
    }
}

/// Returns the error of a code other than success.
pub(super) fn check(code: u32) -> Result<(), Unknown> {
    match code {
        SUCCESS => Ok(()),
        NOT_SUPPORTED | FUNCTION_NOT_FOUND | ARGUMENT_VERSION_MISMATCH | DEPRECATED => {
            Err(Unknown::Unsupported)
        }
        NO_PERMISSION => Err(Unknown::Denied("needs root".to_owned())),
        code => {
            let error = format!("NVML: {} ({code})", words(code));
            Err(limit(code).map_or(Unknown::Failed(error.clone()), |limit| {
                Unknown::Limited(format!("{limit} ({error})"))
            }))
        }
    }
}

/// Returns the limit of this process that explains a code. The library has one code for all refusals of the system.
fn limit(code: u32) -> Option<String> {
    match code {
        UNKNOWN | MEMORY | INSUFFICIENT_RESOURCES => limits::blame(Scarce::Something),
        _ => None,
    }
}

/// Returns the return code in an error of the wrapper. `Err` if the error is the wrapper's own.
fn code_of(error: NvmlError) -> Result<u32, NvmlError> {
    match error {
        NvmlError::Utf8Error(_)
        | NvmlError::NulError(_)
        | NvmlError::LibloadingError(_)
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::StringTooLong { .. }
        | NvmlError::IncorrectBits(_)
        | NvmlError::SetReleaseFailed
        | NvmlError::GetPciInfoFailed
        | NvmlError::PciInfoToCFailed => Err(error),
        error => Ok(error.into()),
    }
}

/// Returns the reason in an error of the wrapper.
pub(super) fn unknown(error: NvmlError) -> Unknown {
    match code_of(error) {
        Ok(code) => check(code)
            .err()
            .unwrap_or_else(|| Unknown::Failed("NVML: success as an error".to_owned())),
        Err(NvmlError::FailedToLoadSymbol(_)) => Unknown::Unsupported,
        Err(error) => Unknown::Failed(format!("NVML: {error}")),
    }
}

/// Returns the reason why a GPU that NVML counts could not be opened. Every GPU can be in principle, so this is never
/// "unsupported".
pub(super) fn not_opened(error: NvmlError) -> Unknown {
    match unknown(error) {
        Unknown::Unsupported => {
            Unknown::Failed("NVML: the GPU cannot be opened: not supported".to_owned())
        }
        unknown => unknown,
    }
}

/// Returns the error for NVML that does not start, with the remedy.
pub(super) fn not_started(error: NvmlError) -> HardwareError {
    let code = code_of(error);
    let number = code.as_ref().ok().copied();
    let message = match code {
        Ok(NO_PERMISSION) => {
            "NVML has no permission to use the driver (4): run with access to /dev/nvidiactl, or as root".into()
        }
        Ok(DRIVER_NOT_LOADED) => {
            "the NVIDIA driver is not loaded (9): load it with 'modprobe nvidia' and see dmesg if that fails".into()
        }
        Ok(LIB_RM_VERSION_MISMATCH) => {
            "kernel module and NVML library disagree (18): reboot or reload the driver".into()
        }
        Ok(code) => match limit(code) {
            Some(limit) => format!("NVML does not start: {} ({code}); {limit}", words(code)),
            None => format!("NVML does not start: {} ({code}); see dmesg for lines with NVRM", words(code)),
        },
        Err(NvmlError::LibloadingError(error)) => not_loaded(&error.to_string()),
        Err(NvmlError::FailedToLoadSymbol(_)) => {
            "libnvidia-ml.so.1 is not NVML, or far too old: nvmlInit_v2 is missing; install the driver".into()
        }
        Err(error) => format!("NVML does not start: {error}"),
    };
    HardwareError { code: number, ..HardwareError::new(ErrorKind::NoDriver, message) }
}

/// Returns the reason why the library could not be loaded, from the dynamic linker's message.
fn not_loaded(words: &str) -> String {
    if words.contains("No such file") {
        "no NVIDIA driver: libnvidia-ml.so.1 was not found; install the driver, or in a container start it with the \
         NVIDIA runtime"
            .to_owned()
    } else {
        let limit =
            limits::blame(Scarce::Something).map(|limit| format!("; {limit}")).unwrap_or_default();
        format!("libnvidia-ml.so.1 is there but cannot be loaded: {words}{limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_reasons() {
        assert_eq!(check(0), Ok(()));
        for code in [3, 13, 25, 26] {
            assert_eq!(check(code), Err(Unknown::Unsupported), "{code}");
        }
        assert_eq!(check(4), Err(Unknown::Denied("needs root".into())));
        assert_eq!(
            check(15),
            Err(Unknown::Failed("NVML: the GPU fell off the bus or is otherwise lost (15)".into()))
        );
        assert_eq!(
            check(4711),
            Err(Unknown::Failed("NVML: a code that is not listed (4711)".into()))
        );
    }

    #[test]
    fn the_wrappers_errors_become_the_same_reasons() {
        assert_eq!(unknown(NvmlError::NotSupported), Unknown::Unsupported);
        assert_eq!(unknown(NvmlError::FailedToLoadSymbol("nvmlX".into())), Unknown::Unsupported);
        assert_eq!(unknown(NvmlError::NoPermission), Unknown::Denied("needs root".into()));
        assert_eq!(unknown(NvmlError::GpuLost), check(15).unwrap_err());
        assert_eq!(unknown(NvmlError::UnexpectedVariant(4711)), check(4711).unwrap_err());
        assert!(matches!(not_opened(NvmlError::NotSupported), Unknown::Failed(_)));
    }

    #[test]
    fn a_start_that_fails_names_the_way_out() {
        for (error, words) in [
            (NvmlError::DriverNotLoaded, "modprobe nvidia"),
            (NvmlError::LibRmVersionMismatch, "kernel module and NVML library disagree"),
            (NvmlError::NoPermission, "/dev/nvidiactl"),
            (NvmlError::Unknown, "999"),
            (NvmlError::FailedToLoadSymbol(String::new()), "nvmlInit_v2"),
        ] {
            let error = not_started(error);
            assert_eq!(error.kind, ErrorKind::NoDriver);
            assert!(error.message.contains(words), "{}", error.message);
            assert!(!error.message.ends_with('.'));
        }
        assert!(
            not_loaded(
                "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
            )
            .starts_with("no NVIDIA driver: libnvidia-ml.so.1 was not found")
        );
        assert!(not_loaded("invalid ELF header").contains("invalid ELF header"));
    }
}
