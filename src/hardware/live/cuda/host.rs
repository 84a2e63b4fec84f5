//! Memory of the host under the live driver.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUdeviceptr;

use super::error::{addressable, lacks};
use super::held::{Held, Origin};
use super::place::{self, Mapping};
use super::session::{CudaDriver, unknown};
use super::startup;
use super::words::Words;
use hardware::limits::{self, Scarce};
use hardware::{
    Buffer, Device, Driver, ErrorKind, HardwareError, HostDriver, HostRoom, Location, PatternCheck,
    ProcessMemory, Stream, WORDS_LOOKED_AT,
};
use model::flow::HostMemory;

/// CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, and the same for CU_MEMHOSTREGISTER: every context can access
/// the memory, with copy engines and kernels alike.
const PORTABLE_MAPPED: c_uint = 3;
/// CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT.
const ATTRIBUTE_COPY_ENGINES: c_int = 40;

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
    /// Returns the first `bytes` bytes of a buffer of the host, as words.
    pub(super) fn words(&self, buffer: Buffer, bytes: u64) -> Result<Words, HardwareError> {
        let Location::Host { .. } = buffer.location else {
            return Err(unknown("buffer of the host", buffer.id));
        };
        let first = self.address(buffer, bytes)?.cast();
        // SAFETY: the buffer has these bytes, aligned to a page, until it is freed, which takes this driver.
        Ok(unsafe { Words::new(first, addressable(bytes)? / 8) })
    }

    /// Enqueues a copy by a kernel, destination first.
    pub(super) fn copy_by_kernel(
        &self,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        bytes: u64,
    ) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        let handle = self.stream(stream)?;
        let ends = (self.mapped(destination, bytes)?, self.mapped(source, bytes)?);
        self.with_kernels(stream.device, |kernels, _| kernels.copy(self.table, handle, ends, bytes))
    }

    /// Returns the address under which kernels reach a buffer.
    pub(super) fn mapped(&self, buffer: Buffer, bytes: u64) -> Result<CUdeviceptr, HardwareError> {
        let pointer = self.address(buffer, bytes)?;
        if buffer.device().is_some() {
            return Ok(pointer.addr() as u64);
        }
        if buffer.is_pageable() {
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
        self.table.made("cuMemHostAlloc", result, pointer).map_err(explained)
    }

    fn lock(&self, device: Device, pointer: *mut c_void, bytes: u64) -> Result<(), HardwareError> {
        self.enter(device)?;
        if let Some(info) = self.devices.get(device.0 as usize) {
            info.may_register()?;
        }
        let register = self.table.host_register.ok_or_else(|| lacks("cuMemHostRegister_v2"))?;
        // SAFETY: the whole of a mapping that stays until it is unregistered.
        let result = unsafe { register(pointer, bytes as usize, PORTABLE_MAPPED) };
        let registered = self.table.check("cuMemHostRegister", result);
        registered.map_err(|error| match error.kind {
            // With confidential computing on, the driver returns 801 for memory of every size.
            ErrorKind::Unsupported => HardwareError { kind: ErrorKind::Impossible, ..error },
            _ => explained(error),
        })
    }

    pub(super) fn unlock(&self, pointer: *mut c_void) -> Result<(), HardwareError> {
        let unregister = self.table.host_unregister.ok_or_else(|| lacks("cuMemHostUnregister"))?;
        // SAFETY: the pointer was registered, and exactly once.
        self.table.check("cuMemHostUnregister", unsafe { unregister(pointer) })
    }

    /// Changes the recorded kind of allocation of a buffer of the host.
    fn set_memory(&self, buffer: Buffer, memory: HostMemory) -> Buffer {
        let buffer = buffer.with_host_memory(memory);
        if let Some(Some(held)) = self.buffers.borrow_mut().get_mut(buffer.id as usize) {
            held.location = buffer.location;
        }
        buffer
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
    ) -> Result<Buffer, HardwareError> {
        self.enter(device)?;
        let size = addressable(bytes)?;
        let (pointer, mapping) = place::on_node(&self.affinity, node, || match memory {
            HostMemory::Pinned => self.pinned(size).map(|pointer| (pointer, None)),
            _ => Mapping::new(size).map(|mapping| (mapping.pointer(), Some(mapping))),
        })?;
        let origin = mapping.map_or(Origin::Allocated, Origin::System);
        let first = if matches!(origin, Origin::System(_)) { HostMemory::Pageable } else { memory };
        let buffer = self.keep(Held {
            location: Location::Host { memory: first, node },
            pointer,
            bytes,
            origin,
        });
        let ready = place::is_on(node, pointer, size).and_then(|()| match memory {
            HostMemory::Registered => self.host_register(device, buffer),
            _ => Ok(buffer),
        });
        if ready.is_err() {
            self.free(buffer)?;
        }
        ready
    }

    fn host_register(&self, device: Device, buffer: Buffer) -> Result<Buffer, HardwareError> {
        self.lock(device, self.address(buffer, 0)?, buffer.bytes)?;
        Ok(self.set_memory(buffer, HostMemory::Registered))
    }

    fn host_unregister(&self, buffer: Buffer) -> Result<Buffer, HardwareError> {
        self.unlock(self.address(buffer, 0)?)?;
        Ok(self.set_memory(buffer, HostMemory::Pageable))
    }

    fn host_copy(
        &self,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        self.words(destination, bytes)?.copy_from(self.words(source, bytes)?);
        Ok(())
    }

    fn host_look(
        &self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
    ) -> Result<PatternCheck, HardwareError> {
        let words = addressable(bytes)? / 8;
        let step = addressable(bytes / 8 / WORDS_LOOKED_AT)?.max(1);
        let some = (0..words).rev().step_by(step);
        Ok(self.words(buffer, bytes)?.compare_some(some, seed.into()))
    }

    fn copy_engines(&self, device: Device) -> Result<u32, HardwareError> {
        startup::attribute(self.table, self.handle(device)?, ATTRIBUTE_COPY_ENGINES)
    }
}
