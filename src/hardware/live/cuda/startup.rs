//! Starting the driver: devices, contexts and kernels, all devices at once. One after the other,
//! eight contexts take eight times as long.

use std::ffi::{CStr, c_int};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUuuid};

use super::error::code;
use super::kernels::{ATTRIBUTE_MULTIPROCESSORS, Kernels};
use super::table::Table;
use crate::hardware::{Device, DeviceInfo, ErrorKind, HardwareError};
use crate::model::units::PciAddress;

/// A primary context that was retained and is never released.
#[derive(Clone, Copy)]
pub struct Context(pub CUcontext);

// SAFETY: a context handle is an opaque pointer that any thread may make current; the driver
// serialises what needs it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The kernels of one device, and what they need.
pub struct Loaded {
    /// The kernels.
    pub kernels: Kernels,
    /// Three words of device memory for the check kernel's counts.
    pub counts: CUdeviceptr,
}

/// The devices that CUDA shows, with their handles.
///
/// # Errors
///
/// The driver's own.
pub fn devices(table: &Table) -> Result<Vec<(DeviceInfo, CUdevice)>, HardwareError> {
    let mut count = 0;
    // SAFETY: writes one int.
    let result = unsafe { (table.device_get_count)(&raw mut count) };
    table.check("cuDeviceGetCount", result)?;
    (0..count)
        .map(|ordinal| {
            let mut handle = 0;
            // SAFETY: writes one device handle; the ordinal is below the count.
            let result = unsafe { (table.device_get)(&raw mut handle, ordinal) };
            table.check("cuDeviceGet", result)?;
            let device = Device(u32::try_from(ordinal).unwrap_or_default());
            Ok((DeviceInfo { device, uuid: uuid(table, handle), pci: pci(table, handle) }, handle))
        })
        .collect()
}

/// Retains the primary contexts of these devices.
pub fn contexts(table: &Table, devices: &[Result<CUdevice, HardwareError>]) -> Vec<Result<Context, HardwareError>> {
    in_parallel(devices, &|device| {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one context handle.
        let result = unsafe { (table.primary_context_retain)(&raw mut context, device.clone()?) };
        table.check("cuDevicePrimaryCtxRetain", result).map(|()| Context(context))
    })
}

/// Loads the kernels into these contexts. `gate` holds the addresses of the gate's two words.
pub fn kernels(table: &Table, places: &[(CUdevice, Context)], gate: (u64, u64)) -> Vec<Result<Loaded, HardwareError>> {
    in_parallel(places, &|&(device, context)| load_kernels(table, device, context, gate))
}

/// Loads the kernels and runs each once, so that nothing is loaded lazily while a gate is shut.
fn load_kernels(table: &Table, device: CUdevice, context: Context, gate: (u64, u64)) -> Result<Loaded, HardwareError> {
    // SAFETY: the context was retained and is never released; this thread ends after the call.
    let result = unsafe { (table.context_set_current)(context.0) };
    table.check("cuCtxSetCurrent", result)?;
    let mut multiprocessors: c_int = 0;
    // SAFETY: writes one int.
    let result = unsafe { (table.device_get_attribute)(&raw mut multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device) };
    table.check("cuDeviceGetAttribute", result)?;
    let kernels = Kernels::load(table, u32::try_from(multiprocessors).unwrap_or(1).max(1))?;
    let counts = allocate(table, 3 * 8)?;
    let stream = std::ptr::null_mut();
    kernels.gate(table, stream, gate.0, 0, 0, gate.1)?;
    kernels.spin(table, stream, 0)?;
    kernels.copy(table, stream, counts, counts, 0)?;
    kernels.fill(table, stream, counts, 0, 1)?;
    kernels.poison(table, stream, counts, 0, 1)?;
    kernels.check(table, stream, counts, 0, 1, 1, counts)?;
    // SAFETY: the legacy default stream of the current context.
    let result = unsafe { (table.stream_synchronize)(stream) };
    table.check("cuStreamSynchronize", result)?;
    Ok(Loaded { kernels, counts })
}

/// Device memory of the current context.
///
/// # Errors
///
/// The driver's own.
pub fn allocate(table: &Table, bytes: usize) -> Result<CUdeviceptr, HardwareError> {
    let mut pointer = 0;
    // SAFETY: writes one device pointer; some context is current.
    let result = unsafe { (table.memory_allocate)(&raw mut pointer, bytes) };
    table.check("cuMemAlloc", result).map(|()| pointer)
}

/// The UUID as NVML writes it. The newer call gives the UUID of a MIG instance where there is one.
fn uuid(table: &Table, device: CUdevice) -> Option<String> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let function = table.device_get_uuid_v2.or(table.device_get_uuid)?;
    // SAFETY: writes sixteen bytes.
    let result = unsafe { function(&raw mut uuid, device) };
    if result != code::SUCCESS {
        return None;
    }
    let mut text = String::from("GPU");
    for (index, byte) in uuid.bytes.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    Some(text)
}

fn pci(table: &Table, device: CUdevice) -> Option<PciAddress> {
    let mut text = [0; 32];
    // SAFETY: writes a NUL-terminated string of at most the given length.
    let result = unsafe { (table.device_get_pci_bus_id)(text.as_mut_ptr(), 32, device) };
    if result != code::SUCCESS {
        return None;
    }
    let bytes: Vec<u8> = text.iter().map(|c| *c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?.parse().ok()
}

/// Runs something for every item at once and gives the results in order.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    run: &(dyn Fn(&T) -> Result<R, HardwareError> + Sync),
) -> Vec<Result<R, HardwareError>> {
    let panicked = || HardwareError::new(ErrorKind::Other, "a start-up thread panicked");
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(move || run(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}
