//! Memory of the host under the live driver, and copies between it and devices.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUdeviceptr;

use super::held::Held;
use super::in_bounds;
use super::place::{self, Mapping};
use super::session::{CudaDriver, unknown};
use hardware::limits::{self, Scarce};
use hardware::pattern::{pattern, poison};
use hardware::{
    Buffer, Device, ErrorKind, HardwareError, HostBuffer, HostDriver, HostRoom, PatternCheck,
    ProcessMemory, Stream, WORDS_LOOKED_AT,
};
use model::flow::HostMemory;

/// CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, and the same for CU_MEMHOSTREGISTER: every context can access
/// the memory, with copy engines and kernels alike.
const PORTABLE_MAPPED: c_uint = 3;
/// CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT.
const ATTRIBUTE_COPY_ENGINES: c_int = 40;

/// Returns the error for a function that this driver lacks.
fn lacks(function: &str) -> HardwareError {
    HardwareError::new(
        ErrorKind::Unsupported,
        format!("the CUDA driver library has no function {function}: the NVIDIA driver is too old"),
    )
}

/// Adds to an error of page-locking the limit that explains it.
fn explained(error: HardwareError) -> HardwareError {
    let limit = match error.kind {
        ErrorKind::OutOfMemory | ErrorKind::Other => limits::blame(Scarce::Locked),
        _ => None,
    };
    match limit {
        Some(limit) => HardwareError {
            kind: ErrorKind::Hindered,
            message: format!("{}; {limit}", error.message),
            ..error
        },
        None => error,
    }
}

impl CudaDriver {
    /// Stores a buffer, and returns its handle.
    fn keep(&self, held: Held) -> HostBuffer {
        let (memory, bytes) = (held.memory, held.bytes);
        let mut hosts = self.hosts.borrow_mut();
        hosts.push(Some(held));
        HostBuffer {
            id: u32::try_from(hosts.len() - 1).unwrap_or(u32::MAX),
            bytes,
            memory,
        }
    }

    /// Returns the address of a buffer, if it has at least `bytes` bytes.
    fn address(&self, buffer: HostBuffer, bytes: u64) -> Result<*mut c_void, HardwareError> {
        let hosts = self.hosts.borrow();
        let held = hosts.get(buffer.id as usize).and_then(Option::as_ref);
        let held = held.filter(|held| held.memory == buffer.memory);
        let held = held.ok_or_else(|| unknown("buffer of the host", buffer.id))?;
        if bytes > held.bytes {
            return Err(HardwareError::new(
                ErrorKind::Other,
                format!("{bytes} bytes do not fit the buffer"),
            ));
        }
        Ok(held.pointer)
    }

    /// Returns the address and number of the words in the first `bytes` bytes of a buffer.
    fn words(&self, buffer: HostBuffer, bytes: u64) -> Result<(*mut u64, u64), HardwareError> {
        Ok((self.address(buffer, bytes)?.cast(), bytes / 8))
    }

    /// Writes `word(index)` to every word of the first `bytes` bytes.
    fn write_words(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        word: impl Fn(u64) -> u64,
    ) -> Result<(), HardwareError> {
        let (words, count) = self.words(buffer, bytes)?;
        for index in 0..count {
            // SAFETY: the buffer has `count` words, aligned to a page. Devices may read it, so that no reference to it
            // is made.
            unsafe { words.add(index as usize).write_volatile(word(index)) };
        }
        Ok(())
    }

    /// Compares these words of the first `bytes` bytes with a pattern, one after the other.
    fn compare(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        indices: impl Iterator<Item = u64>,
        seed: u64,
        value: u64,
    ) -> Result<PatternCheck, HardwareError> {
        let (words, count) = self.words(buffer, bytes)?;
        let mut found = PatternCheck {
            words: 0,
            wrong: 0,
            poisoned: 0,
            first_wrong: None,
        };
        for index in indices.filter(|index| *index < count) {
            // SAFETY: the buffer has `count` words, aligned to a page. A device may still write it: then the read
            // returns the old or the new word, which is counted as it is.
            let word = unsafe { words.add(index as usize).read_volatile() };
            found.words += 1;
            if word != pattern(seed, index) {
                found.wrong += 1;
                found.poisoned += u64::from(word == poison(value, index));
                found.first_wrong = Some(
                    found
                        .first_wrong
                        .map_or(index * 8, |first: u64| first.min(index * 8)),
                );
            }
        }
        Ok(found)
    }

    /// Returns the address under which devices reach page-locked memory.
    fn mapped(&self, buffer: HostBuffer, bytes: u64) -> Result<CUdeviceptr, HardwareError> {
        let pointer = self.address(buffer, bytes)?;
        if buffer.memory == HostMemory::Pageable {
            return Err(HardwareError::new(
                ErrorKind::Unsupported,
                "pageable memory is not mapped into the GPU",
            ));
        }
        // A driver without this function has unified addressing: the address is the host's own.
        let Some(address) = self.table.host_address else {
            return Ok(pointer as u64);
        };
        let mut mapped = 0;
        // SAFETY: writes one device pointer; the memory is page-locked and the flags must be 0.
        let result = unsafe { address(&raw mut mapped, pointer, 0) };
        self.table.check("cuMemHostGetDevicePointer", result)?;
        if mapped == 0 {
            let why = "cuMemHostGetDevicePointer: reported success and gave nothing";
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        Ok(mapped)
    }

    /// Allocates page-locked memory through the driver.
    fn pinned(&self, bytes: usize) -> Result<*mut c_void, HardwareError> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: writes one pointer; some context is current.
        let result =
            unsafe { (self.table.host_allocate)(&raw mut pointer, bytes, PORTABLE_MAPPED) };
        self.table
            .made("cuMemHostAlloc", result, pointer)
            .map_err(explained)
    }

    fn lock(&self, device: Device, pointer: *mut c_void, bytes: u64) -> Result<(), HardwareError> {
        self.enter(device)?;
        let register = self
            .table
            .host_register
            .ok_or_else(|| lacks("cuMemHostRegister_v2"))?;
        // SAFETY: the whole of a mapping that stays until it is unregistered.
        let result = unsafe { register(pointer, bytes as usize, PORTABLE_MAPPED) };
        self.table
            .check("cuMemHostRegister", result)
            .map_err(explained)
    }

    fn unlock(&self, pointer: *mut c_void) -> Result<(), HardwareError> {
        let unregister = self
            .table
            .host_unregister
            .ok_or_else(|| lacks("cuMemHostUnregister"))?;
        // SAFETY: the pointer was registered, and exactly once.
        self.table
            .check("cuMemHostUnregister", unsafe { unregister(pointer) })
    }

    /// Changes the recorded kind of memory of a buffer.
    fn set_memory(&self, buffer: HostBuffer, memory: HostMemory) -> HostBuffer {
        if let Some(Some(held)) = self.hosts.borrow_mut().get_mut(buffer.id as usize) {
            held.memory = memory;
        }
        HostBuffer { memory, ..buffer }
    }
}

impl HostDriver for CudaDriver {
    fn host_room(&self) -> Result<HostRoom, HardwareError> {
        HostRoom::now()
    }

    fn process_memory(&self) -> Option<ProcessMemory> {
        ProcessMemory::now()
    }

    fn host_allocate(
        &self,
        device: Device,
        memory: HostMemory,
        node: Option<u32>,
        bytes: u64,
    ) -> Result<HostBuffer, HardwareError> {
        self.enter(device)?;
        let size = usize::try_from(bytes).map_err(|_| {
            HardwareError::new(ErrorKind::OutOfMemory, "more memory than can be addressed")
        })?;
        let (pointer, mapping) = place::on_node(&self.affinity, node, || match memory {
            HostMemory::Pinned => self.pinned(size).map(|pointer| (pointer, None)),
            _ => Mapping::new(size).map(|mapping| (mapping.pointer(), Some(mapping))),
        })?;
        let first = if mapping.is_some() {
            HostMemory::Pageable
        } else {
            memory
        };
        let buffer = self.keep(Held {
            memory: first,
            pointer,
            bytes,
            mapping,
        });
        let ready = place::is_on(node, pointer).and_then(|()| match memory {
            HostMemory::Registered => self.host_register(device, buffer),
            _ => Ok(buffer),
        });
        if ready.is_err() {
            self.host_free(buffer)?;
        }
        ready
    }

    fn host_free(&self, buffer: HostBuffer) -> Result<(), HardwareError> {
        let pointer = self.address(buffer, 0)?;
        if buffer.memory == HostMemory::Registered {
            self.unlock(pointer)?;
        }
        let held = self
            .hosts
            .borrow_mut()
            .get_mut(buffer.id as usize)
            .and_then(Option::take);
        if held.is_some_and(|held| held.mapping.is_some()) {
            return Ok(());
        }
        let free = self.table.host_free.ok_or_else(|| lacks("cuMemFreeHost"))?;
        // SAFETY: the pointer came from cuMemHostAlloc and was just forgotten, so it is freed once.
        self.table.check("cuMemFreeHost", unsafe { free(pointer) })
    }

    fn host_register(
        &self,
        device: Device,
        buffer: HostBuffer,
    ) -> Result<HostBuffer, HardwareError> {
        self.lock(device, self.address(buffer, 0)?, buffer.bytes)?;
        Ok(self.set_memory(buffer, HostMemory::Registered))
    }

    fn host_unregister(&self, buffer: HostBuffer) -> Result<HostBuffer, HardwareError> {
        self.unlock(self.address(buffer, 0)?)?;
        Ok(self.set_memory(buffer, HostMemory::Pageable))
    }

    fn copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (to, from) = (self.pointer(destination)?, self.address(source, bytes)?);
        let size = in_bounds(bytes, destination, destination)?;
        let copy = self
            .table
            .copy_up
            .ok_or_else(|| lacks("cuMemcpyHtoDAsync_v2"))?;
        self.enter(stream.device)?;
        // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
        self.table.check("cuMemcpyHtoDAsync", unsafe {
            copy(to, from, size, self.stream(stream)?)
        })
    }

    fn copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (to, from) = (self.address(destination, bytes)?, self.pointer(source)?);
        let size = in_bounds(bytes, source, source)?;
        let copy = self
            .table
            .copy_down
            .ok_or_else(|| lacks("cuMemcpyDtoHAsync_v2"))?;
        self.enter(stream.device)?;
        // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
        self.table.check("cuMemcpyDtoHAsync", unsafe {
            copy(to, from, size, self.stream(stream)?)
        })
    }

    fn kernel_copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        let (to, from) = (self.pointer(destination)?, self.mapped(source, bytes)?);
        in_bounds(bytes, destination, destination)?;
        let handle = self.stream(stream)?;
        self.with_kernels(stream.device, |kernels, _| {
            kernels.copy(self.table, handle, to, from, bytes)
        })
    }

    fn kernel_copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        let (to, from) = (self.mapped(destination, bytes)?, self.pointer(source)?);
        in_bounds(bytes, source, source)?;
        let handle = self.stream(stream)?;
        self.with_kernels(stream.device, |kernels, _| {
            kernels.copy(self.table, handle, to, from, bytes)
        })
    }

    fn host_fill(&self, buffer: HostBuffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        self.write_words(buffer, bytes, |index| pattern(seed, index))
    }

    fn host_poison(&self, buffer: HostBuffer, bytes: u64, value: u64) -> Result<(), HardwareError> {
        self.write_words(buffer, bytes, |index| poison(value, index))
    }

    fn host_check(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        value: u64,
    ) -> Result<PatternCheck, HardwareError> {
        let (_, count) = self.words(buffer, bytes)?;
        self.compare(buffer, bytes, 0..count, seed, value)
    }

    fn host_look(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        value: u64,
    ) -> Result<PatternCheck, HardwareError> {
        let (_, count) = self.words(buffer, bytes)?;
        let step = (count / WORDS_LOOKED_AT).max(1);
        self.compare(
            buffer,
            bytes,
            (0..count).rev().step_by(usize::try_from(step).unwrap_or(1)),
            seed,
            value,
        )
    }

    fn copy_engines(&self, device: Device) -> Result<u32, HardwareError> {
        let mut engines: c_int = 0;
        // SAFETY: writes one int.
        let result = unsafe {
            (self.table.device_get_attribute)(
                &raw mut engines,
                ATTRIBUTE_COPY_ENGINES,
                self.handle(device)?,
            )
        };
        self.table.check("cuDeviceGetAttribute", result)?;
        Ok(u32::try_from(engines).unwrap_or(0))
    }
}
