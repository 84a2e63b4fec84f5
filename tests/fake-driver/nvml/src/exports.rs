//! The exported functions. Each call is counted, and a planned fault (see `fake_machine::plan`) happens before the call
//! does anything.

#![allow(non_snake_case, missing_docs, reason = "the names are the library's own")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::LazyLock;

use fake_machine::{Calls, exports};
use hardware::GpuGroup;
use model::snapshot::ConfidentialComputing;
use model::units::PciAddress;
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlConfComputeSystemState_t, nvmlEventData_t, nvmlFieldValue_t,
    nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlUtilization_t,
};

use crate::answers::{self, Errors, code, gpu, host, known, link, pair};
use crate::numbers;

static CALLS: LazyLock<Calls> = LazyLock::new(|| Calls::new("nvml", FUNCTIONS));

fn call(function: usize, work: impl FnOnce() -> Result<(), u32>) -> u32 {
    CALLS.enter(function).unwrap_or_else(|| work().err().unwrap_or(0))
}

/// A device's handle: an opaque pointer.
type Handle = *mut c_void;

/// Writes a result to the caller's pointer.
fn put<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: the function's C signature demands a pointer to such a value.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a NUL-terminated text if `length` characters are enough.
fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), u32> {
    if to.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    if length as usize <= text.len() {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller has room for `length` characters, which is more than the text has.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Checks the version of a structure that the caller has filled in.
fn version_of(structure: *const c_uint, expected: u32) -> Result<(), u32> {
    if structure.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: every versioned structure begins with its version.
    if unsafe { structure.read() } == expected {
        Ok(())
    } else {
        Err(code::ARGUMENT_VERSION_MISMATCH)
    }
}

/// Returns the tag of a versioned structure: its size, and the version in the top byte.
#[allow(clippy::cast_possible_truncation, reason = "sizes of some 40 bytes")]
const fn tag<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

fn pci_info(address: PciAddress) -> nvmlPciInfo_t {
    pci_text(
        &format!(
            "{:08X}:{:02X}:{:02X}.{:X}",
            address.domain, address.bus, address.device, address.function
        ),
        address,
    )
}

fn pci_text(text: &str, address: PciAddress) -> nvmlPciInfo_t {
    let mut bus_id = [0; 32];
    for (to, byte) in bus_id.iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
    nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: address.domain,
        bus: address.bus.into(),
        device: address.device.into(),
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: bus_id,
    }
}

/// Writes the processes of a GPU, if there is room for all of them, and their number.
fn put_processes<T>(
    device: Handle,
    count: *mut c_uint,
    to: *mut T,
    info: impl Fn(u32, u64) -> T,
) -> Result<(), u32> {
    let processes = known(&gpu(device, GpuGroup::State)?.processes)?;
    if count.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller passes the number of entries that it has room for.
    let room = unsafe { count.read() } as usize;
    put(count, u32::try_from(processes.len()).unwrap_or(u32::MAX))?;
    if room < processes.len() {
        return Err(code::INSUFFICIENT_SIZE);
    }
    for (place, process) in processes.iter().enumerate() {
        let used = process.memory_bytes.map_or(u64::MAX, |bytes| bytes.0);
        // SAFETY: there is room for more than `place` entries.
        unsafe { to.add(place).write(info(process.pid, used)) };
    }
    Ok(())
}

exports! {
    fn nvmlInit_v2() { answers::start() }

    fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&host()?.driver_version)?)
    }

    fn nvmlSystemGetNVMLVersion(to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&host()?.nvml_version)?)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) {
        put(to, fake_machine::cuda_version(&known(&host()?.cuda_version)?).ok_or(code::UNKNOWN)?)
    }

    fn nvmlDeviceGetCount_v2(to: *mut c_uint) { put(to, answers::count()?) }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Handle) { put(to, answers::handle(index)?) }

    fn nvmlDeviceGetPciInfo_v3(device: Handle, to: *mut nvmlPciInfo_t) {
        put(to, pci_info(known(&gpu(device, GpuGroup::Identity)?.pci)?))
    }

    fn nvmlDeviceGetUUID(device: Handle, to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&gpu(device, GpuGroup::Identity)?.uuid)?)
    }

    fn nvmlDeviceGetName(device: Handle, to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&gpu(device, GpuGroup::Identity)?.name)?)
    }

    fn nvmlDeviceGetArchitecture(device: Handle, to: *mut c_uint) {
        put(to, numbers::architecture(&known(&gpu(device, GpuGroup::Identity)?.architecture)?))
    }

    fn nvmlDeviceGetMinorNumber(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::Identity)?.minor)?)
    }

    fn nvmlDeviceGetSerial(device: Handle, to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&gpu(device, GpuGroup::Identity)?.serial)?)
    }

    fn nvmlDeviceGetVbiosVersion(device: Handle, to: *mut c_char, length: c_uint) {
        put_text(to, length, &known(&gpu(device, GpuGroup::Identity)?.vbios)?)
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, to: *mut nvmlMemory_v2_t) {
        let version = tag::<nvmlMemory_v2_t>(2);
        version_of(to.cast(), version)?;
        let gpu = gpu(device, GpuGroup::Identity)?;
        let (total, free) = (known(&gpu.memory_total_bytes)?.0, known(&gpu.memory_free_bytes)?.0);
        put(to, nvmlMemory_v2_t { version, total, reserved: 0, free, used: total.saturating_sub(free) })
    }

    fn nvmlDeviceGetVirtualizationMode(device: Handle, to: *mut c_uint) {
        // NVML_GPU_VIRTUALIZATION_MODE_NONE and …_VGPU
        put(to, if known(&gpu(device, GpuGroup::State)?.vgpu)? { 2 } else { 0 })
    }

    fn nvmlDeviceGetMemoryInfo(device: Handle, to: *mut nvmlMemory_t) {
        let gpu = gpu(device, GpuGroup::Identity)?;
        let (total, free) = (known(&gpu.memory_total_bytes)?.0, known(&gpu.memory_free_bytes)?.0);
        put(to, nvmlMemory_t { total, free, used: total.saturating_sub(free) })
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(device: Handle, to: *mut c_uint) {
        answers::look(device)?;
        put(to, answers::pcie_now(device)?.0.into())
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: Handle, to: *mut c_uint) {
        put(to, answers::pcie_now(device)?.1.into())
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::Pcie)?.pcie_generation_max)?.into())
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::Pcie)?.pcie_width_max)?.into())
    }

    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::Pcie)?.pcie_generation_device_max)?.into())
    }

    fn nvmlDeviceGetPcieReplayCounter(device: Handle, to: *mut c_uint) {
        put(to, u32::try_from(answers::replays(device)?).unwrap_or(u32::MAX))
    }

    fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: *mut nvmlFieldValue_t) {
        let device = answers::index(device)?;
        let count = usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)?;
        if values.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let mut links = None;
        // SAFETY: the caller has `count` values.
        for value in unsafe { std::slice::from_raw_parts_mut(values, count) } {
            match answers::field(device, value.fieldId, value.scopeId, &mut links) {
                Ok(number) => {
                    value.valueType = numbers::UNSIGNED_LONG_LONG;
                    value.value.ullVal = number;
                    value.nvmlReturn = 0;
                }
                Err(code) => value.nvmlReturn = code,
            }
        }
        // Driver 580.159.04 on H200 reads past the last field, and answers anything there that looks like another
        // field.
        // SAFETY: callers that know that driver have room there; scripts/valgrind reports those that have not.
        let behind = unsafe { &mut *values.add(count) };
        if behind.nvmlReturn == 0 {
            behind.value.ullVal = 0;
            behind.nvmlReturn = code::NOT_SUPPORTED;
        }
        Ok(())
    }

    // For drivers without the counters of bytes: nothing moves.
    fn nvmlDeviceGetPcieThroughput(device: Handle, counter: c_uint, to: *mut c_uint) {
        answers::index(device)?;
        if counter > 1 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(to, 0)
    }

    fn nvmlDeviceGetUtilizationRates(device: Handle, to: *mut nvmlUtilization_t) {
        let share = answers::moved(answers::index(device)?).utilization_percent.ok_or(code::NOT_SUPPORTED)?;
        put(to, nvmlUtilization_t { gpu: share.into(), memory: 0 })
    }

    fn nvmlDeviceGetNvLinkState(device: Handle, number: c_uint, to: *mut c_uint) {
        put(to, known(&link(device, number)?.active)?.into())
    }

    fn nvmlDeviceGetNvLinkVersion(device: Handle, number: c_uint, to: *mut c_uint) {
        put(to, numbers::nvlink_version(&known(&link(device, number)?.version)?).ok_or(code::UNKNOWN)?)
    }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: Handle, number: c_uint, to: *mut c_uint) {
        put(to, numbers::nvlink_remote(known(&link(device, number)?.remote)?))
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Handle, number: c_uint, to: *mut nvmlPciInfo_t) {
        let link = link(device, number)?;
        match link.remote_pci.get() {
            Some(address) => put(to, pci_info(address)),
            // A virtual machine does not see the switches.
            None if link.active.get() == Some(true) => {
                let nowhere = PciAddress { domain: u32::MAX, bus: 0xff, device: 0xff, function: 0 };
                put(to, pci_text("FFFFFFFF:FF:FF.0", nowhere))
            }
            None => Err(code::NOT_SUPPORTED),
        }
    }

    fn nvmlDeviceGetNvLinkErrorCounter(device: Handle, number: c_uint, counter: c_uint, to: *mut c_ulonglong) {
        let errors = match counter {
            0 => Errors::Replay,
            // NVLink 5 and later count recoveries in a field alone.
            1 if link(device, number)?.crc_errors.get().is_some() => Errors::Recovery,
            2 => Errors::Crc,
            _ => return Err(code::NOT_SUPPORTED),
        };
        put(to, answers::link_errors(answers::index(device)?, number, errors)?)
    }

    fn nvmlDeviceGetGpuFabricInfoV(device: Handle, to: *mut nvmlGpuFabricInfo_v2_t) {
        let version = tag::<nvmlGpuFabricInfo_v2_t>(2);
        version_of(to.cast(), version)?;
        let fabric = known(&gpu(device, GpuGroup::NvLink)?.fabric)?;
        put(to, nvmlGpuFabricInfo_v2_t {
            version,
            clusterUuid: numbers::cluster(&fabric.cluster_uuid).ok_or(code::UNKNOWN)?,
            status: fabric.status,
            cliqueId: fabric.clique_id,
            state: numbers::fabric_state(fabric.state),
            // A driver without the mask lacks this version of the structure too.
            healthMask: numbers::health(fabric.health_mask.ok_or(code::ARGUMENT_VERSION_MISMATCH)?),
        })
    }

    fn nvmlDeviceGetGpuFabricInfo(device: Handle, to: *mut nvmlGpuFabricInfo_t) {
        let fabric = known(&gpu(device, GpuGroup::NvLink)?.fabric)?;
        put(to, nvmlGpuFabricInfo_t {
            clusterUuid: numbers::cluster(&fabric.cluster_uuid).ok_or(code::UNKNOWN)?,
            status: fabric.status,
            cliqueId: fabric.clique_id,
            state: numbers::fabric_state(fabric.state),
        })
    }

    fn nvmlSystemGetConfComputeState(to: *mut nvmlConfComputeSystemState_t) {
        let (feature, dev_tools) = match known(&host()?.confidential_computing)? {
            ConfidentialComputing::Off => (0, 0),
            ConfidentialComputing::On => (1, 0),
            ConfidentialComputing::DevTools => (1, 1),
        };
        put(to, nvmlConfComputeSystemState_t { environment: 2 * feature, ccFeature: feature, devToolsMode: dev_tools })
    }

    fn nvmlDeviceGetModuleId(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::NvLink)?.module_id)?)
    }

    fn nvmlDeviceGetC2cModeInfoV(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::NvLink)?.c2c)?.into())
    }

    fn nvmlDeviceGetBAR1MemoryInfo(device: Handle, to: *mut nvmlBAR1Memory_t) {
        let total = known(&gpu(device, GpuGroup::State)?.bar1_total_bytes)?.0;
        put(to, nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }

    fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let on = known(&gpu(device, GpuGroup::State)?.mig)?.into();
        put(current, on)?;
        put(pending, on)
    }

    fn nvmlDeviceGetComputeMode(device: Handle, to: *mut c_uint) {
        put(to, numbers::compute_mode(known(&gpu(device, GpuGroup::State)?.compute_mode)?))
    }

    fn nvmlDeviceGetPersistenceMode(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::State)?.persistence)?.into())
    }

    fn nvmlDeviceGetEccMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let on = known(&gpu(device, GpuGroup::State)?.ecc)?.into();
        put(current, on)?;
        put(pending, on)
    }

    fn nvmlDeviceGetTotalEccErrors(device: Handle, kind: c_uint, counter: c_uint, to: *mut c_ulonglong) {
        // Uncorrected errors since the last reboot; peerscope asks for nothing else.
        if (kind, counter) != (1, 0) {
            return Err(code::NOT_SUPPORTED);
        }
        put(to, known(&gpu(device, GpuGroup::State)?.ecc_uncorrected)?)
    }

    fn nvmlDeviceGetRemappedRows(
        device: Handle,
        corrected: *mut c_uint,
        uncorrected: *mut c_uint,
        pending: *mut c_uint,
        failed: *mut c_uint,
    ) {
        let rows = known(&gpu(device, GpuGroup::State)?.remapped_rows)?;
        put(corrected, rows.corrected)?;
        put(uncorrected, rows.uncorrected)?;
        put(pending, rows.pending.into())?;
        put(failed, rows.failed.into())
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(device: Handle, to: *mut c_ulonglong) {
        put(to, numbers::throttle_mask(&answers::throttle_reasons(device)?))
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, to: *mut c_ulonglong) {
        put(to, numbers::throttle_mask(&answers::throttle_reasons(device)?))
    }

    fn nvmlDeviceGetClockInfo(device: Handle, clock: c_uint, to: *mut c_uint) {
        let gpu = gpu(device, GpuGroup::State)?;
        put(to, match clock {
            1 => known(&gpu.sm_clock_mhz)?,
            2 => known(&gpu.memory_clock_mhz)?,
            _ => return Err(code::NOT_SUPPORTED),
        })
    }

    fn nvmlDeviceGetTemperature(device: Handle, sensor: c_uint, to: *mut c_uint) {
        // The chip's temperature; peerscope asks for no other.
        if sensor != 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(to, answers::temperature(device)?)
    }

    fn nvmlEventSetCreate(to: *mut Handle) { put(to, answers::new_events()) }

    fn nvmlDeviceRegisterEvents(device: Handle, kinds: c_ulonglong, events: Handle) {
        // Xid errors; peerscope asks for no other events.
        if kinds != 8 {
            return Err(code::NOT_SUPPORTED);
        }
        answers::register(device, events)
    }

    fn nvmlEventSetWait_v2(events: Handle, to: *mut nvmlEventData_t, wait: c_uint) {
        let (device, xid) = answers::event(events, wait)?;
        put(to, nvmlEventData_t {
            device: device.cast(),
            eventType: 8,
            eventData: xid.into(),
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        })
    }

    fn nvmlEventSetFree(events: Handle) { answers::free_events(events) }

    fn nvmlDeviceGetPerformanceState(device: Handle, to: *mut c_uint) {
        put(to, known(&gpu(device, GpuGroup::State)?.power_state)?.into())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, to: *mut nvmlProcessInfo_t) {
        put_processes(device, count, to, |pid, usedGpuMemory| {
            nvmlProcessInfo_t { pid, usedGpuMemory, gpuInstanceId: u32::MAX, computeInstanceId: u32::MAX }
        })
    }

    // For drivers before R510: the same structure under its older name, and one without instances.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: *mut c_uint, to: *mut nvmlProcessInfo_t) {
        put_processes(device, count, to, |pid, usedGpuMemory| {
            nvmlProcessInfo_t { pid, usedGpuMemory, gpuInstanceId: u32::MAX, computeInstanceId: u32::MAX }
        })
    }

    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: *mut c_uint, to: *mut nvmlProcessInfo_v1_t) {
        put_processes(device, count, to, |pid, usedGpuMemory| nvmlProcessInfo_v1_t { pid, usedGpuMemory })
    }

    fn nvmlDeviceGetTopologyCommonAncestor(device: Handle, other: Handle, to: *mut c_uint) {
        put(to, numbers::common_ancestor(known(&pair(device, other)?.common_ancestor)?))
    }

    fn nvmlDeviceGetP2PStatus(device: Handle, other: Handle, capability: c_uint, to: *mut c_uint) {
        let pair = pair(device, other)?;
        let status = match capability {
            0 => &pair.p2p_read,
            1 => &pair.p2p_write,
            2 => &pair.p2p_nvlink,
            3 => &pair.p2p_atomics,
            4 => &pair.p2p_pci,
            _ => return Err(code::INVALID_ARGUMENT),
        };
        put(to, numbers::p2p_status(known(status)?))
    }
}

/// Reports a call that peerscope was not known to make, as a file with its name in the folder of counts.
pub(crate) fn unexpected(name: &str) -> u32 {
    CALLS.unexpected(name);
    code::FUNCTION_NOT_FOUND
}
