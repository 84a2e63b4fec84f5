//! Return codes of the driver as numbers, and their meaning for a person.

use std::ffi::{CStr, c_char};

use super::table::Table;
use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError};

/// Codes that other code depends on; cuda.h, CUresult.
pub(super) mod code {
    #![allow(missing_docs, reason = "the names are the driver's own")]
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const DEINITIALIZED: u32 = 4;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const DEVICE_UNAVAILABLE: u32 = 46;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const ECC_UNCORRECTABLE: u32 = 214;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const NVLINK_UNCORRECTABLE: u32 = 220;
    pub(crate) const JIT_COMPILER_NOT_FOUND: u32 = 221;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const JIT_COMPILATION_DISABLED: u32 = 223;
    pub(crate) const INVALID_SOURCE: u32 = 300;
    pub(crate) const SHARED_OBJECT_SYMBOL_NOT_FOUND: u32 = 302;
    pub(crate) const SHARED_OBJECT_INIT_FAILED: u32 = 303;
    pub(crate) const OPERATING_SYSTEM: u32 = 304;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    pub(crate) const TOO_MANY_PEERS: u32 = 711;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const SYSTEM_NOT_READY: u32 = 802;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub(crate) const MPS_RPC_FAILURE: u32 = 806;
    pub(crate) const MPS_CLIENT_TERMINATED: u32 = 810;
    pub(crate) const EXTERNAL_DEVICE: u32 = 911;
    pub(crate) const UNKNOWN: u32 = 999;
}

/// Returns the remedy, for codes that have one.
fn advice(call: &str, code: u32) -> Option<&'static str> {
    Some(match code {
        code::OUT_OF_MEMORY if call.starts_with("cuMemHost") => {
            "the host has no more memory to page-lock: end programs that hold much of it, or give the container more"
        }
        code::OUT_OF_MEMORY => {
            "end the processes that hold the GPU's memory (nvidia-smi lists them)"
        }
        code::STUB_LIBRARY => {
            "a CUDA toolkit's stub library was loaded instead of the driver's: remove the toolkit's 'stubs' folder \
             from LD_LIBRARY_PATH, or install the NVIDIA driver"
        }
        code::DEVICE_UNAVAILABLE => {
            "another process holds the GPU in exclusive mode, or compute is prohibited on it: end that process, or set \
             the default compute mode with 'nvidia-smi -c DEFAULT'"
        }
        code::NO_DEVICE => {
            "CUDA sees no GPU: check CUDA_VISIBLE_DEVICES, and that the container was given the GPUs (nvidia-smi -L)"
        }
        code::JIT_COMPILER_NOT_FOUND => {
            "the driver's PTX compiler (libnvidia-ptxjitcompiler.so.1) is missing: install it, or in a container mount it"
        }
        code::JIT_COMPILATION_DISABLED => "unset CUDA_DISABLE_PTX_JIT",
        code::NO_BINARY_FOR_GPU | code::INVALID_PTX | code::UNSUPPORTED_PTX_VERSION => {
            "the driver does not accept peerscope's kernels: update the NVIDIA driver"
        }
        code::SYSTEM_NOT_READY => {
            "the NVSwitch fabric is not ready: check that nvidia-fabricmanager runs and has the driver's version \
             (systemctl status nvidia-fabricmanager), then that 'nvidia-smi -q' shows the fabric state as Completed"
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            "the CUDA library and the kernel driver are of different versions: reboot, or reinstall the driver so that \
             both agree"
        }
        code::TOO_MANY_PEERS => {
            "this system allows a GPU only a limited number of peers at a time (8 without NVSwitch)"
        }
        code::ECC_UNCORRECTABLE => {
            "the GPU's memory had an uncorrectable error: see 'nvidia-smi -q -d ECC' and dmesg"
        }
        code::NVLINK_UNCORRECTABLE => {
            "an NVLink had an uncorrectable error: see 'nvidia-smi nvlink -e' and dmesg"
        }
        code::ILLEGAL_ADDRESS => "a kernel accessed memory that it cannot reach",
        code::UNKNOWN => "see dmesg for the NVIDIA driver's messages (NVRM, Xid)",
        _ => return None,
    })
}

/// Returns true for codes after which the context, and with it the process, cannot be used any more. These are ECC and
/// NVLink errors, and the errors of asynchronous work from 700 on, without those about peer access and registration,
/// which concern one call only. The others are a driver that shuts down, an MPS server that does not answer or has
/// ended this client, and an error of another device. An unknown error counts too: nobody knows what it leaves behind.
fn is_sticky(code: u32) -> bool {
    matches!(
        code,
        code::DEINITIALIZED
            | code::ECC_UNCORRECTABLE
            | code::NVLINK_UNCORRECTABLE
            | 226
            | 700
            | 702
            | 709
            | 710
            | 714
            ..=719
                | 721
                | code::MPS_RPC_FAILURE
                | code::MPS_CLIENT_TERMINATED
                | 901
                | code::EXTERNAL_DEVICE
                | code::UNKNOWN
    )
}

/// Returns the limit of this process that explains a code, since the driver has few codes for refusals of the system.
/// The driver opens a file for most of what it maps, and loads its compiler from one. It reports "out of memory" if it
/// gets no file, and "not found" if it cannot open the compiler. Only one call asks for a GPU's own memory; if it
/// fails, that memory is full unless hardly any file is left.
fn limit(call: &str, code: u32) -> Option<String> {
    match code {
        code::OUT_OF_MEMORY if call == "cuMemAlloc" => limits::blame(Scarce::LastFiles),
        code::OUT_OF_MEMORY
        | code::SHARED_OBJECT_SYMBOL_NOT_FOUND
        | code::SHARED_OBJECT_INIT_FAILED
        | code::OPERATING_SYSTEM
        | code::UNKNOWN => limits::blame(Scarce::Something),
        // These mean something else if there are enough files.
        code::NO_DEVICE | code::JIT_COMPILER_NOT_FOUND => limits::blame(Scarce::LastFiles),
        _ => None,
    }
}

impl Table {
    /// Returns `Ok` for success, otherwise the error with the call that returned it.
    ///
    /// # Errors
    ///
    /// Any code other than success.
    pub(super) fn check(&self, call: &str, code: u32) -> Result<(), HardwareError> {
        if code == code::SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// Does [`Table::check`] for a call that makes something. Success without a handle is an error too, since a null
    /// stream is the default one and a null pointer must not be written to.
    ///
    /// # Errors
    ///
    /// Any code other than success, or a null handle.
    pub(super) fn made<T>(
        &self,
        call: &str,
        code: u32,
        handle: *mut T,
    ) -> Result<*mut T, HardwareError> {
        self.check(call, code)?;
        if handle.is_null() {
            return Err(HardwareError::new(
                ErrorKind::Other,
                format!("{call}: reported success and gave nothing"),
            ));
        }
        Ok(handle)
    }

    /// Returns the error for a code other than success.
    pub(super) fn error(&self, call: &str, code: u32) -> HardwareError {
        let kind = match code {
            code::OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            code::NOT_SUPPORTED => ErrorKind::Unsupported,
            code::TOO_MANY_PEERS => ErrorKind::TooManyPeers,
            code if is_sticky(code) => ErrorKind::Sticky,
            _ => ErrorKind::Other,
        };
        let name = self.text(self.get_error_name, code).unwrap_or_else(|| "CUDA error".into());
        let words = self.text(self.get_error_string, code);
        let mut message = match words {
            Some(words) => format!("{call}: {words} ({name}, {code})"),
            None => format!("{call}: {name} ({code})"),
        };
        if let Some(limit) = limit(call, code) {
            return HardwareError::new(ErrorKind::Hindered, format!("{message}; {limit}"))
                .with_code(code);
        }
        if let Some(advice) = advice(call, code) {
            message.push_str("; ");
            message.push_str(advice);
        }
        HardwareError::new(kind, message).with_code(code)
    }

    fn text(
        &self,
        function: Option<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>,
        code: u32,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: the function writes a pointer to a static string, or null for an unknown code.
        let result = unsafe { function?(code, &raw mut text) };
        if result != code::SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: it is a NUL-terminated string that lives as long as the library.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// Returns the error for a function that this driver lacks.
pub(super) fn lacks(function: &str) -> HardwareError {
    HardwareError::new(
        ErrorKind::Unsupported,
        format!("the CUDA driver library has no function {function}: the NVIDIA driver is too old"),
    )
}

/// Returns a size in the driver's type.
pub(super) fn addressable(bytes: u64) -> Result<usize, HardwareError> {
    usize::try_from(bytes).map_err(|_| {
        HardwareError::new(ErrorKind::OutOfMemory, "more memory than can be addressed")
    })
}

#[cfg(test)]
mod tests {
    use super::is_sticky;

    /// cuda.h, CUresult: it documents for each of them that the process must end. For 4 and 999 it documents nothing
    /// that would let the process go on.
    #[test]
    fn codes_that_end_a_process_are_told_from_those_of_one_call() {
        for code in [4, 214, 220, 226, 700, 702, 709, 710, 714, 719, 721, 806, 810, 901, 911, 999] {
            assert!(is_sticky(code), "{code}");
        }
        for code in [
            1, 2, 3, 46, 101, 201, 217, 304, 400, 600, 701, 704, 705, 711, 720, 801, 802, 805, 807,
            919,
        ] {
            assert!(!is_sticky(code), "{code}");
        }
    }
}
