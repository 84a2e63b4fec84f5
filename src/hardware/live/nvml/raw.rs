//! NVML calls that the wrapper lacks, gets wrong, or answers with a closed list of values.
//!
//! Every function pointer comes from the wrapper's table. A missing symbol is an error there and "unsupported" here.
//! Return codes and enumerations stay plain numbers.

use std::ffi::c_uint;
use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlC2cModeInfo_v1_t, nvmlConfComputeSystemState_t, nvmlDevice_t, nvmlFieldValue_t,
    nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlMemory_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlReturn_t,
};

use super::decode;
use super::error::check;
use model::reading::Unknown;
use model::snapshot::{ConfidentialComputing, Fabric, GpuProcess, RemappedRows};
use model::units::Bytes;

// NVML writes as many bytes as the version tag gives; the sizes are those of nvml.h.
const _: () =
    assert!(size_of::<nvmlGpuFabricInfo_v2_t>() == 36 && size_of::<nvmlGpuFabricInfo_t>() == 28);
const _: () =
    assert!(size_of::<nvmlFieldValue_t>() == 40 && size_of::<nvmlC2cModeInfo_v1_t>() == 4);
const _: () = assert!(size_of::<nvmlConfComputeSystemState_t>() == 12);

/// The values of fields, or why there are none.
pub(super) type Answers = Result<Vec<Result<u64, Unknown>>, Unknown>;

/// The return code of a list that is longer than the room for it: `NVML_ERROR_INSUFFICIENT_SIZE`.
const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
/// Entries beside those that NVML counts, for processes that start meanwhile.
const LATE_PROCESSES: usize = 5;
/// The initial return code of a field, before NVML answers: `NVML_ERROR_UNKNOWN`.
const UNANSWERED: nvmlReturn_t = 999;
/// Spare fields after those that are asked for. `nvmlDeviceGetFieldValues` of driver 580.159.04 reads past the last one
/// (seen on 4 x H200, 54 fields, with a page after them that nobody may read). It takes the bytes there for a field if
/// their return code is 0. Those bytes were the heap's: 8 of 44 checks ended with "malloc(): corrupted top size". How
/// far it reads is not known; with eight spare fields none after the first was changed.
const BEHIND: usize = 16;

type GetNumber = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t;

/// A field of [`Raw::fields`]: its id, and the link or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// NVML's field id.
    pub id: u32,
    /// Link number for fields of an NVLink.
    pub scope: u32,
}

/// A device for raw calls.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    lib: &'static NvmlLib,
    handle: nvmlDevice_t,
}

/// Returns a function of the library, or "unsupported" if it is missing.
fn symbol<F: Copy, E>(symbol: &Result<F, E>) -> Result<F, Unknown> {
    symbol.as_ref().map_or(Err(Unknown::Unsupported), |function| Ok(*function))
}

/// Returns the value that a call writes.
fn written<T: Default>(call: impl FnOnce(*mut T) -> nvmlReturn_t) -> Result<T, Unknown> {
    let mut value = T::default();
    check(call(&raw mut value))?;
    Ok(value)
}

/// Returns a list of processes from a call that first counts them.
fn listed<T: Clone>(
    empty: T,
    ask: impl Fn(*mut c_uint, *mut T) -> nvmlReturn_t,
    of: impl Fn(&T) -> (u32, u64),
) -> Result<Vec<GpuProcess>, Unknown> {
    let mut count = 0;
    match ask(&raw mut count, std::ptr::null_mut()) {
        INSUFFICIENT_SIZE => {}
        code => return check(code).map(|()| Vec::new()),
    }
    let mut infos = vec![empty; count as usize + LATE_PROCESSES];
    let mut count = c_uint::try_from(infos.len()).unwrap_or(count);
    check(ask(&raw mut count, infos.as_mut_ptr()))?;
    infos.truncate(count as usize);
    let process = |info: &T| {
        let (pid, bytes) = of(info);
        GpuProcess {
            pid,
            name: None,
            // NVML_VALUE_NOT_AVAILABLE
            memory_bytes: (bytes != u64::MAX).then_some(Bytes(bytes)),
        }
    };
    Ok(infos.iter().map(process).collect())
}

/// Returns the state of confidential computing, which is the same for the whole machine.
pub(super) fn confidential_computing(
    nvml: &'static nvml_wrapper::Nvml,
) -> Result<ConfidentialComputing, Unknown> {
    let function = symbol(&nvml.lib().nvmlSystemGetConfComputeState)?;
    let mut state = nvmlConfComputeSystemState_t { environment: 0, ccFeature: 0, devToolsMode: 0 };
    // SAFETY: the function writes this structure, which has no version.
    check(unsafe { function(&raw mut state) })?;
    decode::confidential_computing(state.ccFeature, state.devToolsMode)
}

impl Raw {
    /// Prepares raw calls to the wrapper's device.
    pub(super) fn new(device: &Device<'static>) -> Self {
        // SAFETY: the handle is only used for calls to the NVML that it came from, which is never shut down.
        let handle = unsafe { device.handle() };
        Self { lib: device.nvml().lib(), handle }
    }

    /// Returns NVML's number of the architecture.
    pub(super) fn architecture(self) -> Result<u32, Unknown> {
        self.number(symbol(&self.lib.nvmlDeviceGetArchitecture)?)
    }

    /// Returns NVML's number of the compute mode.
    pub(super) fn compute_mode(self) -> Result<u32, Unknown> {
        self.number(symbol(&self.lib.nvmlDeviceGetComputeMode)?)
    }

    /// Returns the performance state.
    pub(super) fn power_state(self) -> Result<u32, Unknown> {
        self.number(symbol(&self.lib.nvmlDeviceGetPerformanceState)?)
    }

    /// Returns the highest PCIe generation of the GPU itself.
    pub(super) fn pcie_generation_device_max(self) -> Result<u32, Unknown> {
        self.number(symbol(&self.lib.nvmlDeviceGetGpuMaxPcieLinkGeneration)?)
    }

    /// Calls one of the functions above; all have this form.
    fn number(self, function: GetNumber) -> Result<u32, Unknown> {
        // SAFETY: the callers hand in functions of this library that write one unsigned int for a
        // device, and the handle is valid.
        written(|value| unsafe { function(self.handle, value) })
    }

    /// Returns the free and all memory, for drivers before R510, which lack the call that the wrapper makes.
    pub(super) fn memory(self) -> Result<[Bytes; 2], Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetMemoryInfo)?;
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the function writes this structure, which has no version; the handle is valid.
        check(unsafe { function(self.handle, &raw mut memory) })?;
        Ok([memory.free, memory.total].map(Bytes))
    }

    /// Returns the processes with a context, for the same drivers.
    pub(super) fn processes(self) -> Result<Vec<GpuProcess>, Unknown> {
        if let Ok(function) = symbol(&self.lib.nvmlDeviceGetComputeRunningProcesses_v2) {
            // SAFETY: the structure is plain numbers, for which zero is a value.
            let empty: nvmlProcessInfo_v2_t = unsafe { mem::zeroed() };
            // SAFETY: the function writes at most as many structures as the count names, and the count.
            let ask = |count, infos| unsafe { function(self.handle, count, infos) };
            return listed(empty, ask, |info| (info.pid, info.usedGpuMemory));
        }
        let function = symbol(&self.lib.nvmlDeviceGetComputeRunningProcesses)?;
        let empty = nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 };
        // SAFETY: as above.
        let ask = |count, infos| unsafe { function(self.handle, count, infos) };
        listed(empty, ask, |info| (info.pid, info.usedGpuMemory))
    }

    /// Returns the mask of the reasons why clocks are reduced. Newer drivers renamed the function.
    pub(super) fn throttle_mask(self) -> Result<u64, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetCurrentClocksEventReasons)
            .or_else(|_| symbol(&self.lib.nvmlDeviceGetCurrentClocksThrottleReasons))?;
        // SAFETY: both functions write one unsigned long long; the handle is valid.
        written(|mask| unsafe { function(self.handle, mask) })
    }

    /// Returns the replaced rows of memory.
    pub(super) fn remapped_rows(self) -> Result<RemappedRows, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetRemappedRows)?;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: the function writes four unsigned ints; the handle is valid.
        check(unsafe {
            function(
                self.handle,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed,
            )
        })?;
        Ok(RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
    }

    /// Returns the number of the GPU's module on the baseboard.
    pub(super) fn module_id(self) -> Result<u32, Unknown> {
        self.number(symbol(&self.lib.nvmlDeviceGetModuleId)?)
    }

    /// Returns true if the chip-to-chip link is on.
    pub(super) fn c2c(self) -> Result<bool, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetC2cModeInfoV)?;
        let mut info = nvmlC2cModeInfo_v1_t { isC2cEnabled: 0 };
        // SAFETY: the function writes this structure, which has no version; the handle is valid.
        check(unsafe { function(self.handle, &raw mut info) })?;
        decode::on(info.isC2cEnabled.into())
    }

    /// Returns the state of the fabric, with the health mask if the driver has it.
    pub(super) fn fabric(self) -> Result<Fabric, Unknown> {
        self.fabric_with_health().or_else(|unknown| match unknown {
            Unknown::Unsupported => self.fabric_without_health(),
            unknown => Err(unknown),
        })
    }

    fn fabric_with_health(self) -> Result<Fabric, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetGpuFabricInfoV)?;
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut info: nvmlGpuFabricInfo_v2_t = unsafe { mem::zeroed() };
        // NVML's tag of a versioned structure: the size, and the version in the top byte.
        #[allow(clippy::cast_possible_truncation, reason = "36")]
        let version = size_of_val(&info) as u32 | 2 << 24;
        info.version = version;
        // SAFETY: the function takes any version of the structure and writes the number of bytes in its tag, which is
        // the size of this one; the handle is valid.
        check(unsafe { function(self.handle, (&raw mut info).cast()) })?;
        decode::fabric(
            info.state,
            info.status,
            info.cliqueId,
            info.clusterUuid,
            Some(info.healthMask),
        )
    }

    fn fabric_without_health(self) -> Result<Fabric, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetGpuFabricInfo)?;
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut info: nvmlGpuFabricInfo_t = unsafe { mem::zeroed() };
        // SAFETY: the function writes this structure; the handle is valid.
        check(unsafe { function(self.handle, &raw mut info) })?;
        decode::fabric(info.state, info.status, info.cliqueId, info.clusterUuid, None)
    }

    /// Returns NVML's number of the kind of device at the other end of an NVLink.
    pub(super) fn nvlink_remote(self, link: u32) -> Result<u32, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetNvLinkRemoteDeviceType)?;
        // SAFETY: the function writes one unsigned int; the handle is valid and NVML checks the
        // link's number.
        written(|kind| unsafe { function(self.handle, link, kind) })
    }

    /// Returns the values of many fields, read in one call, in the order asked for.
    pub(super) fn fields(self, fields: &[Field]) -> Answers {
        let function = symbol(&self.lib.nvmlDeviceGetFieldValues)?;
        let value = |field: Field| {
            // SAFETY: the structure is plain numbers and a union of such, for which zero is a
            // value. All eight bytes of the union are initialised by it.
            let mut value: nvmlFieldValue_t = unsafe { mem::zeroed() };
            value.fieldId = field.id;
            value.scopeId = field.scope;
            // A field that NVML leaves unchanged was not answered; it must not read as the number 0.
            value.nvmlReturn = UNANSWERED;
            value
        };
        let behind = std::iter::repeat_n(Field { id: 0, scope: 0 }, BEHIND);
        let mut values: Vec<_> = fields.iter().copied().chain(behind).map(value).collect();
        let count =
            fields.len().try_into().map_err(|_| Unknown::Failed("too many fields".to_owned()))?;
        // SAFETY: there are `count` structures and more. NVML writes the value, its type and a return code into each of
        // them; the handle is valid.
        check(unsafe { function(self.handle, count, values.as_mut_ptr()) })?;
        let read = |value: nvmlFieldValue_t| {
            check(value.nvmlReturn)?;
            // SAFETY: the union's bytes were all zeroed before NVML wrote some of them, and any
            // bytes are a value of an array of bytes of the same size.
            let bytes: [u8; 8] = unsafe { mem::transmute(value.value) };
            decode::field_value(value.valueType, bytes)
        };
        values.truncate(fields.len());
        Ok(values.into_iter().map(read).collect())
    }

    /// Returns NVML's number of the lowest PCI level that both devices share.
    pub(super) fn common_ancestor(self, other: Self) -> Result<u32, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetTopologyCommonAncestor)?;
        // SAFETY: the function writes one unsigned int; both handles are valid.
        written(|level| unsafe { function(self.handle, other.handle, level) })
    }

    /// Returns NVML's status of a peer capability (0 read, 1 write, 2 NVLink, 3 atomics, 4 PCI) towards another GPU.
    pub(super) fn p2p_status(self, other: Self, capability: u32) -> Result<u32, Unknown> {
        let function = symbol(&self.lib.nvmlDeviceGetP2PStatus)?;
        // SAFETY: the function writes one unsigned int; both handles are valid.
        written(|status| unsafe { function(self.handle, other.handle, capability, status) })
    }
}
