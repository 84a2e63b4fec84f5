//! Starting the driver: devices, contexts and kernels, all devices in parallel. One after the other, eight contexts
//! take eight times as long, and one that hangs would hold up the others.

use std::ffi::{CStr, c_char, c_int};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUuuid};

use super::error::code;
use super::gate::Words;
use super::images;
use super::kernels::{ATTRIBUTE_MULTIPROCESSORS, DEFAULT_STREAM, Kernels};
use super::returned::RETURNED_BYTES;
use super::table::Table;
use hardware::{Device, DeviceInfo, ErrorKind, HardwareError, limits};
use model::measurement::{CudaAttributes, RdmaSupport};
use model::reading::{Reading, Unknown};
use model::units::{Bytes, PciAddress};

/// A primary context that was retained and is never released.
#[derive(Clone, Copy)]
pub(super) struct Context(pub CUcontext);

// SAFETY: a context handle is an opaque pointer that any thread may make current; the driver
// serialises what needs it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The kernels of one device, and their resources.
pub(super) struct Loaded {
    pub kernels: Kernels,
    /// Words of device memory for what kernels return: the check kernel's counts, and those of [`super::returned`].
    pub counts: CUdeviceptr,
    /// RDMA features by which network adapters may reach the memory of the device.
    pub rdma: RdmaSupport,
}

/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and …_MINOR.
const CAPABILITY: [c_int; 2] = [75, 76];
/// CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED and CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED.
const ATTRIBUTE_GPU_DIRECT: c_int = 116;
const ATTRIBUTE_DMA_BUF: c_int = 124;
/// CU_DEVICE_ATTRIBUTE_INTEGRATED, …_PAGEABLE_MEMORY_ACCESS, …_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES and
/// …_HOST_REGISTER_SUPPORTED.
const ATTRIBUTE_INTEGRATED: c_int = 18;
const ATTRIBUTE_PAGEABLE_ACCESS: c_int = 88;
const ATTRIBUTE_HOST_PAGE_TABLES: c_int = 100;
const ATTRIBUTE_REGISTERS: c_int = 99;
/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, …_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED.
const ATTRIBUTE_VIRTUAL_MEMORY: c_int = 102;
const ATTRIBUTE_RDMA_OF_VIRTUAL_MEMORY: c_int = 110;

/// CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE.
const ATTRIBUTE_L2_CACHE: c_int = 38;

/// Returns the devices that CUDA shows, with their handles.
pub(super) fn devices(table: &Table) -> Result<Vec<(DeviceInfo, CUdevice)>, HardwareError> {
    let mut count = 0;
    // SAFETY: writes one int.
    table.check("cuDeviceGetCount", unsafe { (table.device_get_count)(&raw mut count) })?;
    (0..count)
        .map(|ordinal| {
            let mut handle = 0;
            // SAFETY: writes one device handle; the ordinal is below the count.
            table.check("cuDeviceGet", unsafe { (table.device_get)(&raw mut handle, ordinal) })?;
            let device = Device(u32::try_from(ordinal).unwrap_or_default());
            let of_gpu = uuid(table.device_get_uuid, handle);
            let newer = uuid(table.device_get_uuid_v2, handle);
            let instance = newer.filter(|newer| of_gpu.is_some_and(|of_gpu| of_gpu != *newer));
            Ok((
                DeviceInfo {
                    device,
                    uuid: of_gpu.or(newer).map(|uuid| named("GPU", uuid)),
                    instance: instance.map(|uuid| named("MIG", uuid)),
                    pci: pci(table, handle),
                    attributes: attributes(table, handle),
                },
                handle,
            ))
        })
        .collect()
}

/// Retains the primary contexts of these devices. One that takes longer than `limit` is abandoned.
pub(super) fn contexts(
    table: &'static Table,
    devices: Vec<Result<CUdevice, HardwareError>>,
    limit: Duration,
) -> Vec<Answer<Context>> {
    in_parallel(devices, limit, "its context did not come up", move |device| {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one context handle, on the stack of this thread. A call that never returns
        // keeps the thread, and so its stack, for as long as the process lives.
        let result = unsafe { (table.primary_context_retain)(&raw mut context, device?) };
        table.made("cuDevicePrimaryCtxRetain", result, context).map(Context)
    })
}

/// Loads the kernels into these contexts. The words of the gate are never freed. A device that takes longer than
/// `limit` is abandoned.
pub(super) fn kernels(
    table: &'static Table,
    places: Vec<(CUdevice, Context, Words)>,
    limit: Duration,
) -> Vec<Answer<Loaded>> {
    let native = images::loads_native(table);
    in_parallel(
        places,
        limit,
        "the GPU kernels were not loaded onto it",
        move |(device, context, words)| load_kernels(table, device, context, native, words),
    )
}

/// Loads the kernels and runs each once, so that nothing is loaded lazily while a gate is shut.
fn load_kernels(
    table: &Table,
    device: CUdevice,
    context: Context,
    native: bool,
    gate: Words,
) -> Result<Loaded, HardwareError> {
    // SAFETY: the context was retained and is never released; this thread ends after the call.
    table.check("cuCtxSetCurrent", unsafe { (table.context_set_current)(context.0) })?;
    let multiprocessors = attribute(table, device, ATTRIBUTE_MULTIPROCESSORS)?;
    let [major, minor] = CAPABILITY.map(|part| attribute(table, device, part));
    let capability = (major?, minor?);
    let kernels = Kernels::load(table, capability, native, multiprocessors)?;
    let counts = allocate(table, RETURNED_BYTES)?;
    let stream = std::ptr::null_mut();
    kernels.gate(table, stream, gate, 0, 0)?;
    kernels.spin(table, stream, 0)?;
    kernels.copy(table, stream, (counts, counts), 0)?;
    kernels.fill(table, counts, 0, 1)?;
    kernels.poison(table, counts, 0, 1)?;
    kernels.check(table, DEFAULT_STREAM, counts, 0, 1.into(), (counts, 0))?;
    kernels.of_nothing(table)?;
    // SAFETY: the legacy default stream of the current context.
    table.check("cuStreamSynchronize", unsafe { (table.stream_synchronize)(stream) })?;
    let rdma = RdmaSupport {
        gpu_direct: supports(table, device, ATTRIBUTE_GPU_DIRECT),
        dma_buf: supports(table, device, ATTRIBUTE_DMA_BUF),
    };
    Ok(Loaded { kernels, counts, rdma })
}

fn attributes(table: &Table, device: CUdevice) -> CudaAttributes {
    CudaAttributes {
        integrated: supports(table, device, ATTRIBUTE_INTEGRATED),
        registers_memory: supports(table, device, ATTRIBUTE_REGISTERS),
        pageable_access: supports(table, device, ATTRIBUTE_PAGEABLE_ACCESS),
        host_page_tables: supports(table, device, ATTRIBUTE_HOST_PAGE_TABLES),
        virtual_memory: supports(table, device, ATTRIBUTE_VIRTUAL_MEMORY),
        rdma_of_virtual_memory: supports(table, device, ATTRIBUTE_RDMA_OF_VIRTUAL_MEMORY),
        l2_cache_bytes: reading(table, device, ATTRIBUTE_L2_CACHE, |bytes| Bytes(bytes.into())),
    }
}

/// Returns true if a device has this feature.
fn supports(table: &Table, device: CUdevice, attribute: c_int) -> Reading<bool> {
    reading(table, device, attribute, |value| value != 0)
}

/// Returns what an attribute says. A driver that does not know it returns an error.
fn reading<T>(
    table: &Table,
    device: CUdevice,
    attribute: c_int,
    means: fn(u32) -> T,
) -> Reading<T> {
    let known = self::attribute(table, device, attribute).map(means);
    known.map_err(|error| Unknown::Failed(error.message)).into()
}

/// Returns an attribute of a device.
pub(super) fn attribute(
    table: &Table,
    device: CUdevice,
    attribute: c_int,
) -> Result<u32, HardwareError> {
    let mut value: c_int = 0;
    // SAFETY: writes one int.
    let result = unsafe { (table.device_get_attribute)(&raw mut value, attribute, device) };
    table.check("cuDeviceGetAttribute", result)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Allocates device memory in the current context.
pub(super) fn allocate(table: &Table, bytes: usize) -> Result<CUdeviceptr, HardwareError> {
    let mut pointer = 0;
    // SAFETY: writes one device pointer; some context is current.
    table.check("cuMemAlloc", unsafe { (table.memory_allocate)(&raw mut pointer, bytes) })?;
    if pointer == 0 {
        return Err(HardwareError::new(
            ErrorKind::Other,
            "cuMemAlloc: reported success and gave nothing",
        ));
    }
    Ok(pointer)
}

/// Returns a UUID of a device. `cuDeviceGetUuid` returns the GPU's. Of `cuDeviceGetUuid_v2` cuda.h says: "If the device
/// is in MIG mode, returns its MIG UUID which uniquely identifies the subscribed MIG compute instance."
fn uuid(
    function: Option<unsafe extern "C" fn(*mut CUuuid, CUdevice) -> u32>,
    device: CUdevice,
) -> Option<[c_char; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: writes sixteen bytes.
    let result = unsafe { function?(&raw mut uuid, device) };
    (result == code::SUCCESS).then_some(uuid.bytes)
}

/// Returns a UUID as NVML writes it, for a GPU or an instance.
fn named(kind: &str, uuid: [c_char; 16]) -> String {
    let mut text = kind.to_owned();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    text
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

/// The result for a device.
#[derive(Debug)]
pub(super) enum Answer<R> {
    /// The driver answered.
    Given(Result<R, HardwareError>),
    /// It did not answer in time: the device is better left alone.
    Late(HardwareError),
}

/// Runs a function for every item in parallel and returns the results in order. Every thread owns all that it works on,
/// so that one that never ends can be abandoned.
fn in_parallel<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    limit: Duration,
    late: &str,
    run: impl Fn(T) -> Result<R, HardwareError> + Clone + Send + 'static,
) -> Vec<Answer<R>> {
    let until = Instant::now() + limit;
    let (give, answers) = mpsc::channel();
    let mut results: Vec<Option<Answer<R>>> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let (give, run) = (give.clone(), run.clone());
        // A late send finds no receiver, which is fine.
        let started = thread::Builder::new().spawn(move || drop(give.send((index, run(item)))));
        results.push(started.err().map(|error| {
            Answer::Given(Err(limits::not_started(
                format!("a thread cannot be started: {error}"),
                &error,
            )))
        }));
    }
    drop(give);
    let in_time = loop {
        match answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((index, result)) => results[index] = Some(Answer::Given(result)),
            Err(RecvTimeoutError::Timeout) => break false,
            Err(RecvTimeoutError::Disconnected) => break true,
        }
    };
    let missing = || {
        if in_time {
            return Answer::Given(Err(HardwareError::new(
                ErrorKind::Other,
                "a start-up thread panicked",
            )));
        }
        let limit = limit.as_secs_f64();
        let why = format!("{late} within {limit:.1} s: see dmesg for NVRM and Xid messages");
        Answer::Late(HardwareError::new(ErrorKind::Other, why))
    };
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_answers_costs_itself_and_one_limit() {
        // On a busy machine the threads that answer may need a longer limit.
        for (tenths, last) in [(2, false), (20, false), (200, true)] {
            let limit = Duration::from_millis(100 * tenths);
            let answers = in_parallel(vec![0, 1, 2], limit, "it did not come", |item| match item {
                0 => Ok("up"),
                1 => loop {
                    thread::park();
                },
                _ => Err(HardwareError::new(ErrorKind::Other, "refused")),
            });
            let within = format!("it did not come within {}.{} s", tenths / 10, tenths % 10);
            assert!(matches!(&answers[1], Answer::Late(why) if why.message.starts_with(&within)));
            let up = matches!(answers[0], Answer::Given(Ok("up")));
            let refused =
                matches!(&answers[2], Answer::Given(Err(why)) if why.message == "refused");
            if up && refused {
                return;
            }
            assert!(!last, "up: {up}, refused: {refused}");
        }
    }

    #[test]
    fn where_all_answer_nothing_is_waited_for() {
        // An hour: the test would not end.
        let answers = in_parallel(vec![1, 2], Duration::from_secs(3600), "late", Ok);
        assert!(matches!(answers[..], [Answer::Given(Ok(1)), Answer::Given(Ok(2))]));
    }
}
