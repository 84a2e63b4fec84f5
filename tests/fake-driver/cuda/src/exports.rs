//! The exported functions. Each call is counted, and a planned fault (see `fake_machine::plan`) happens before the call
//! does anything.

#![allow(non_snake_case, missing_docs, reason = "the names are the driver's own")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp, CUuuid};
use fake_machine::{Calls, exports};
use hardware::{Driver, HostDriver, Sent, TalkDriver};
use model::placement::Engine;

use crate::host::Address;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::shared;
use crate::state::{self, code, code_of, current, with};
use crate::talk::Told;
use crate::words;

static CALLS: LazyLock<Calls> = LazyLock::new(|| Calls::new("cuda", FUNCTIONS));

/// The error that broke the contexts. From then on every call that needs a context returns it.
static BROKEN: AtomicU32 = AtomicU32::new(0);

/// Returns true for errors that a context does not survive.
const fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 714..=719)
}

fn call(function: usize, work: impl FnOnce() -> Result<(), u32>) -> u32 {
    let planned = CALLS.enter(function);
    let name = FUNCTIONS[function];
    let needs_context =
        !(name.starts_with("cuGetError") || name.starts_with("cuDevice") || name == "cuInit");
    let broken = BROKEN.load(Ordering::Relaxed);
    if needs_context && broken != 0 {
        return broken;
    }
    let code = planned.unwrap_or_else(|| work().err().unwrap_or(0));
    if needs_context && is_sticky(code) {
        BROKEN.store(code, Ordering::Relaxed);
    }
    code
}

/// Writes a result to the caller's pointer.
fn put<T>(to: *mut T, value: T) -> Result<(), u32> {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the function's C signature demands a pointer to such a value.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns an argument of a kernel.
fn argument<T: Copy>(arguments: *mut *mut c_void, index: usize) -> T {
    // SAFETY: cuLaunchKernel takes an array of pointers, one to each of the kernel's parameters,
    // whose types are those of probes/kernels.
    unsafe { arguments.add(index).read().cast::<T>().read_unaligned() }
}

fn text<'a>(from: *const c_char) -> Result<&'a str, u32> {
    if from.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the function's C signature demands a NUL-terminated string.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| code::INVALID_VALUE)
}

fn uuid(to: *mut CUuuid, device: c_int, of_instance: bool) -> Result<(), u32> {
    let text = with(|fake| {
        let device = fake.device(device)?;
        let info = fake.driver().devices().iter().find(|info| info.device == device);
        let instance = info.and_then(|info| info.instance.clone());
        let instance = instance.filter(|_| of_instance);
        instance.or_else(|| info?.uuid.clone()).ok_or(code::NOT_SUPPORTED)
    })?;
    let digits: String = text
        .trim_start_matches(char::is_alphabetic)
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| 999_u32)?;
    #[allow(clippy::cast_possible_wrap, reason = "C's characters")]
    put(to, CUuuid { bytes: number.to_be_bytes().map(|byte| byte as c_char) })
}

exports! {
    fn cuInit(_flags: c_uint) { state::init() }

    fn cuDeviceGetCount(count: *mut c_int) {
        with(|fake| put(count, c_int::try_from(fake.count()).unwrap_or(0)))
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        with(|fake| fake.device(ordinal).and_then(|_| put(device, ordinal)))
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        with(|fake| match attribute {
            // Multiprocessors: the number does not matter here.
            16 => fake.device(device).and_then(|_| put(value, 132)),
            75 | 76 => {
                let [major, minor] = state::capability(&fake.gpu(fake.device(device)?)?.architecture);
                put(value, if attribute == 75 { major } else { minor })
            }
            40 => {
                let engines = fake.driver().copy_engines(fake.device(device)?).map_err(code_of)?;
                put(value, c_int::try_from(engines).unwrap_or(0))
            }
            // Integrated, coherent access to pageable memory, registered memory, virtual memory.
            18 | 88 | 99 | 100 | 102 | 110 => {
                let device = fake.device(device)?;
                let info = fake.driver().devices().iter().find(|info| info.device == device);
                let attributes = &info.ok_or(code::INVALID_DEVICE)?.attributes;
                let said = match attribute {
                    18 => &attributes.integrated,
                    88 => &attributes.pageable_access,
                    100 => &attributes.host_page_tables,
                    102 => &attributes.virtual_memory,
                    110 => &attributes.rdma_of_virtual_memory,
                    _ => &attributes.registers_memory,
                };
                put(value, said.get().ok_or(code::INVALID_VALUE)?.into())
            }
            38 => {
                let device = fake.device(device)?;
                let info = fake.driver().devices().iter().find(|info| info.device == device);
                let cache = info.and_then(|info| info.attributes.l2_cache_bytes.get());
                put(value, cache.map_or(0, |cache| c_int::try_from(cache.0).unwrap_or(0)))
            }
            // Descriptors of memory.
            103 => fake.device(device).and_then(|_| put(value, 1)),
            // GPUDirect RDMA and dma-buf.
            116 | 124 => {
                let rdma = fake.driver().rdma(fake.device(device)?).ok_or(code::INVALID_VALUE)?;
                let supported = if attribute == 116 { rdma.gpu_direct } else { rdma.dma_buf };
                put(value, supported.get().ok_or(code::INVALID_VALUE)?.into())
            }
            _ => Err(code::INVALID_VALUE),
        })
    }

    fn cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) {
        let address = with(|fake| {
            let device = fake.device(device)?;
            let info = fake.driver().devices().iter().find(|info| info.device == device);
            info.and_then(|info| info.pci).ok_or(code::NOT_SUPPORTED)
        })?;
        let bytes = format!("{address}\0").into_bytes();
        if usize::try_from(length).is_ok_and(|length| length < bytes.len()) {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller gives room for `length` characters.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        with(|fake| put(version, fake.cuda_version))
    }

    fn cuDeviceGetUuid(to: *mut CUuuid, device: c_int) { uuid(to, device, false) }

    fn cuDeviceGetUuid_v2(to: *mut CUuuid, device: c_int) { uuid(to, device, true) }

    fn cuDeviceCanAccessPeer(possible: *mut c_int, device: c_int, peer: c_int) {
        with(|fake| {
            let (device, peer) = (fake.device(device)?, fake.device(peer)?);
            put(possible, fake.driver().can_access_peer(device, peer).map_err(code_of)?.into())
        })
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) {
        with(|fake| {
            let (device, peer) = (fake.device(device)?, fake.device(peer)?);
            match attribute {
                // Native atomics.
                3 if device != peer => {
                    put(value, fake.driver().native_atomics(device, peer).map_err(code_of)?.into())
                }
                _ => Err(code::INVALID_VALUE),
            }
        })
    }

    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) {
        with(|fake| put(context, fake.retain(fake.device(device)?)?))
    }

    fn cuCtxSetCurrent(context: *mut c_void) { with(|fake| fake.set_current(context)) }

    fn cuCtxSynchronize() {
        with(|fake| fake.drain(current()?))
    }

    fn cuCtxEnablePeerAccess(peer: *mut c_void, _flags: c_uint) { with(|fake| fake.peer(peer, true)) }

    fn cuCtxDisablePeerAccess(peer: *mut c_void) { with(|fake| fake.peer(peer, false)) }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let memory = with(|fake| fake.memory())?;
        put(free, usize::try_from(memory.0).unwrap_or(0))?;
        put(total, usize::try_from(memory.1).unwrap_or(0))
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        with(|fake| put(address, fake.allocate(bytes as u64)?))
    }

    fn cuMemFree_v2(address: u64) { with(|fake| fake.free(address)) }

    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) {
        current()?;
        let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| code::INVALID_VALUE)?;
        // SAFETY: the size is not zero. Small memory is never freed: the gate's words live as long as the process.
        let memory = unsafe { alloc_zeroed(layout) };
        // The address comes back as a number, in the arguments of the gate kernel.
        memory.expose_provenance();
        if memory.is_null() {
            return Err(code::OUT_OF_MEMORY);
        }
        if bytes as u64 > state::SMALL {
            with(|fake| fake.host_allocate(memory.addr() as u64, bytes as u64))?;
        }
        put(address, memory.cast())
    }

    fn cuMemFreeHost(address: *mut c_void) {
        let bytes = with(|fake| fake.host_free(address.addr() as u64))?;
        let layout = Layout::from_size_align(usize::try_from(bytes).unwrap_or(1), 4096);
        // SAFETY: the memory of cuMemHostAlloc, of the size with which it was allocated. Its entry was removed above.
        layout.into_iter().for_each(|layout| unsafe { dealloc(address.cast(), layout) });
        Ok(())
    }

    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, _flags: c_uint) {
        address.expose_provenance();
        with(|fake| fake.host_register(address.addr() as u64, bytes as u64))
    }

    fn cuMemHostUnregister(address: *mut c_void) {
        with(|fake| fake.host_unregister(address.addr() as u64))
    }

    fn cuMemHostGetDevicePointer_v2(to: *mut u64, address: *mut c_void, _flags: c_uint) {
        put(to, with(|fake| fake.host_mapped(address.addr() as u64))?)
    }

    fn cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const CUmemAllocationProp, _option: c_uint) {
        if properties.is_null() {
            return Err(code::INVALID_VALUE);
        }
        put(granularity, usize::try_from(shared::GRANULARITY).unwrap_or(0))
    }

    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, _flags: u64) {
        if properties.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller gives a pointer to such a structure.
        let properties = unsafe { properties.read() };
        let created = with(|fake| fake.create(bytes as u64, &properties))?;
        put(handle, created)
    }

    fn cuMemRelease(handle: u64) { with(|fake| fake.release(handle)) }

    fn cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _wanted: u64, _flags: u64) {
        put(address, with(|fake| fake.reserve(bytes as u64))?)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) {
        with(|fake| fake.unreserve(address, bytes as u64))
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        if offset != 0 {
            return Err(code::INVALID_VALUE);
        }
        with(|fake| fake.map_at(address, bytes as u64, handle))
    }

    fn cuMemUnmap(address: u64, bytes: usize) { with(|fake| fake.unmap(address, bytes as u64)) }

    fn cuMemSetAccess(address: u64, bytes: usize, access: *const CUmemAccessDesc, count: usize) {
        if access.is_null() || count == 0 {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller gives an array of so many structures.
        let access = unsafe { std::slice::from_raw_parts(access, count) };
        with(|fake| fake.set_access(address, bytes as u64, access))
    }

    fn cuMemExportToShareableHandle(to: *mut c_void, handle: u64, kind: c_uint, _flags: u64) {
        match kind {
            1 => put(to.cast::<c_int>(), with(|fake| fake.export_descriptor(handle))?),
            _ => Err(code::INVALID_VALUE),
        }
    }

    fn cuMemImportFromShareableHandle(handle: *mut u64, from: *mut c_void, kind: c_uint) {
        if kind != 1 {
            return Err(code::INVALID_VALUE);
        }
        let descriptor = c_int::try_from(from.addr()).map_err(|_| code::INVALID_VALUE)?;
        put(handle, with(|fake| fake.import_descriptor(descriptor))?)
    }

    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: u64) {
        put(handle.cast::<[u8; shared::HANDLE]>(), with(|fake| fake.legacy_handle(address))?)
    }

    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: CUipcMemHandle, _flags: c_uint) {
        let handle = handle.reserved.map(|byte| byte as u8);
        put(address, with(|fake| fake.open_legacy(&handle))?)
    }

    fn cuIpcCloseMemHandle(address: u64) { with(|fake| fake.close_legacy(address)) }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        from.expose_provenance();
        with(|fake| {
            fake.copy(Engine::Copy, Address::Device(to), Address::Host(from.addr() as u64), bytes as u64, stream)?;
            fake.wait_if_blocking(stream)
        })
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        to.expose_provenance();
        with(|fake| {
            fake.copy(Engine::Copy, Address::Host(to.addr() as u64), Address::Device(from), bytes as u64, stream)?;
            fake.wait_if_blocking(stream)
        })
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        with(|fake| {
            let held = fake.bytes(to, bytes)?;
            // SAFETY: the caller has `bytes` bytes to read.
            held.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), bytes) });
            Ok(())
        })
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        with(|fake| {
            fake.start_talks()?;
            fake.show_talks()?;
            fake.show_counts(from)?;
            if let Some(word) = fake.word_of_mailbox(from, bytes)? {
                // SAFETY: the caller has room for a word.
                unsafe { to.cast::<u32>().write_unaligned(word) };
                return Ok(());
            }
            let held = fake.bytes(from, bytes)?;
            // SAFETY: the caller has room for `bytes` bytes.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(held.as_ptr(), bytes) };
            Ok(())
        })
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        to_context: *mut c_void,
        from: u64,
        from_context: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) {
        with(|fake| {
            for (address, context) in [(to, to_context), (from, from_context)] {
                if !fake.belongs(address, fake.context(context)?) {
                    return Err(code::INVALID_VALUE);
                }
            }
            fake.copy(Engine::Copy, Address::Device(to), Address::Device(from), bytes as u64, stream)?;
            fake.wait_if_blocking(stream)
        })
    }

    fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) {
        with(|fake| put(stream, fake.create_stream(flags)?))
    }

    fn cuStreamSynchronize(stream: *mut c_void) {
        with(|fake| fake.synchronize(stream))
    }

    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        with(|fake| fake.driver().wait(fake.stream(stream)?, fake.event(event)?).map_err(code_of))
    }

    fn cuStreamWaitValue32_v2(stream: *mut c_void, address: u64, value: u32, _flags: c_uint) {
        with(|fake| fake.hold(stream, address, value, [0, 0]))
    }

    fn cuStreamWriteValue32_v2(stream: *mut c_void, address: u64, value: u32, _flags: c_uint) {
        with(|fake| fake.write(stream, address, value))
    }

    fn cuStreamWaitValue32(stream: *mut c_void, address: u64, value: u32, _flags: c_uint) {
        with(|fake| fake.hold(stream, address, value, [0, 0]))
    }

    fn cuStreamWriteValue32(stream: *mut c_void, address: u64, value: u32, _flags: c_uint) {
        with(|fake| fake.write(stream, address, value))
    }

    fn cuStreamQuery(stream: *mut c_void) {
        // Not ready: peerscope only asks about held streams.
        with(|fake| fake.stream(stream).and(Err(code::NOT_READY)))
    }

    fn cuEventCreate(event: *mut *mut c_void, flags: c_uint) {
        with(|fake| put(event, fake.create_event(flags)?))
    }

    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        with(|fake| {
            fake.start_talks()?;
            fake.driver().record(fake.event(event)?, fake.stream(stream)?).map_err(code_of)
        })
    }

    fn cuEventSynchronize(event: *mut c_void) {
        with(|fake| {
            fake.driver().synchronize_event(fake.event(event)?).map_err(code_of)?;
            fake.show(|_| true)
        })
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        let ns = with(|fake| fake.driver().elapsed_ns(fake.event(start)?, fake.event(end)?).map_err(code_of))?;
        #[allow(clippy::cast_possible_truncation, reason = "the driver's own type")]
        put(milliseconds, (ns / 1e6) as f32)
    }

    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        let image = Image::at(image)?;
        with(|fake| put(module, fake.load(&image)?))
    }

    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        let name = text(name)?;
        with(|fake| put(function, fake.function(module, name)?))
    }

    fn cuLaunchKernel(
        function: *mut c_void,
        blocks: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        _shared: c_uint,
        stream: *mut c_void,
        arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        if [blocks, blocks_y, blocks_z, threads, threads_y, threads_z].contains(&0) || arguments.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let number = |index| argument::<u64>(arguments, index);
        let launched = with(|fake| match fake.kernel(function)? {
            Kernel::Gate => fake.hold(stream, number(0), argument(arguments, 1), [number(3), number(4)]),
            Kernel::Spin => fake.spin(stream, number(0)),
            Kernel::Work => fake.work(stream, number(0), number(1) * 16, argument(arguments, 2), number(3)),
            Kernel::Copy => fake.kernel_copy(number(0), number(1), number(2) * 16, stream),
            Kernel::Fill => {
                let bytes = number(1) * 8;
                fake.over(number(0), bytes, |driver, buffer| driver.fill(buffer, bytes, number(2)))
            }
            Kernel::Poison => {
                let bytes = number(1) * 8;
                fake.over(number(0), bytes, |driver, buffer| driver.poison(buffer, bytes, number(2)))
            }
            Kernel::Talk => fake.talk(stream, &Told {
                mailboxes: [number(0), number(1)],
                role: argument(arguments, 2),
                rounds: argument(arguments, 3),
                base: argument(arguments, 4),
                phases: argument(arguments, 5),
                limits: [number(6), number(7), number(8)],
                heard: number(9),
            }),
            // The simulated machine has its result in that of the talk.
            Kernel::Channel => fake.channel(stream, argument(arguments, 3), [number(0), number(1)]),
            Kernel::Chase => {
                let [count, stride, hops] = [1, 2, 3].map(|at| argument::<u32>(arguments, at));
                fake.chase(stream, number(0), [count, stride, hops], number(4), number(5))
            }
            Kernel::Links => {
                let [work, lists, seed, last] = [1, 2, 4, 5].map(|at| argument::<u32>(arguments, at));
                fake.links(stream, number(0), work, (lists, argument(arguments, 3)), [seed, last], number(6))
            }
            Kernel::Check => {
                let sent = Sent { seed: number(2), from: number(3), before: number(4) };
                fake.check(stream, number(0), number(1) * 8, sent, (number(5), number(6)))
            }
        });
        launched.and_then(|()| with(|fake| fake.wait_if_blocking(stream)))
    }

    fn cuGetErrorName(code: u32, to: *mut *const c_char) {
        put(to, words::of(code).ok_or(code::INVALID_VALUE)?.0.as_ptr())
    }

    fn cuGetErrorString(code: u32, to: *mut *const c_char) {
        put(to, words::of(code).ok_or(code::INVALID_VALUE)?.1.as_ptr())
    }
}
