//! Memory of other processes, under the live driver.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::OwnedFd;
use std::ptr::without_provenance_mut;

use cudarc::driver::sys::CUipcMemHandle;

use super::error::{code, lacks};
use super::held::{Held, Origin};
use super::physical::Physical;
use super::place::{self, Mapping};
use super::session::CudaDriver;
use super::startup;
use hardware::{
    Buffer, Device, Driver, ErrorKind, Handle, HardwareError, HostDriver, Location, SharedDriver,
    SharingFacts,
};
use model::flow::HostMemory;
use model::sharing::Rung;

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: as frameworks open such handles.
const LAZY_PEER_ACCESS: c_uint = 1;
/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const MANAGES_ADDRESSES: c_int = 102;
/// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED.
const SHARES_BY_DESCRIPTOR: c_int = 103;

fn no_handle(rung: Rung) -> HardwareError {
    HardwareError::new(ErrorKind::Other, format!("this is no handle for {rung}"))
}

impl CudaDriver {
    /// Fails if CUDA says that a device has no such feature. A driver that does not know the attribute is asked for the
    /// feature itself.
    fn offers(&self, device: Device, attribute: c_int, what: &str) -> Result<(), HardwareError> {
        match startup::attribute(self.table, self.handle(device)?, attribute) {
            Ok(0) => Err(HardwareError::new(
                ErrorKind::Impossible,
                format!("CUDA says that this GPU has no {what}"),
            )),
            Err(error) if error.code != Some(code::INVALID_VALUE) => Err(error),
            _ => Ok(()),
        }
    }

    fn keep_of(&self, device: Device, address: u64, bytes: u64, origin: Origin) -> Buffer {
        let pointer = without_provenance_mut::<c_void>(address as usize);
        self.keep(Held { location: Location::Device(device), pointer, bytes, origin })
    }

    fn keep_physical(&self, device: Device, memory: Physical) -> Buffer {
        self.keep_of(device, memory.address(), memory.bytes(), Origin::Mapped(memory))
    }

    /// Creates memory of a device, and its file descriptor.
    fn by_descriptor(
        &self,
        device: Device,
        bytes: u64,
    ) -> Result<(Buffer, OwnedFd), HardwareError> {
        self.offers(device, MANAGES_ADDRESSES, "memory that is mapped in steps")?;
        self.offers(device, SHARES_BY_DESCRIPTOR, "file descriptors of memory")?;
        self.enter(device)?;
        let memory = Physical::create(self.table, self.handle(device)?, bytes)?;
        let descriptor = memory.descriptor(self.table);
        let buffer = self.keep_physical(device, memory);
        self.or_free(buffer, descriptor)
    }

    /// Returns a buffer with something made of it; frees it if that failed.
    fn or_free<T>(
        &self,
        buffer: Buffer,
        made: Result<T, HardwareError>,
    ) -> Result<(Buffer, T), HardwareError> {
        match made {
            Ok(made) => Ok((buffer, made)),
            Err(error) => {
                // The first error says what went wrong.
                let _ = self.free(buffer);
                Err(error)
            }
        }
    }

    /// Page-locks a file of /dev/shm that is mapped.
    fn register_file(
        &self,
        device: Device,
        mapping: Mapping,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        let pageable = self.keep(Held {
            location: Location::Host { memory: HostMemory::Pageable, node: None },
            pointer: mapping.pointer(),
            bytes,
            origin: Origin::System(mapping),
        });
        let registered = self.host_register(device, pageable);
        self.or_free(pageable, registered).map(|(_, registered)| registered)
    }

    fn legacy_handle(&self, buffer: Buffer) -> Result<Vec<u8>, HardwareError> {
        let get = self.table.ipc_get_memory.ok_or_else(|| lacks("cuIpcGetMemHandle"))?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        let address = self.address(buffer, 0)?.addr() as u64;
        // SAFETY: writes one handle; the address is that of a live allocation of the current context.
        let result = unsafe { get(&raw mut handle, address) };
        self.table.check("cuIpcGetMemHandle", result)?;
        Ok(handle.reserved.map(|byte| byte as u8).to_vec())
    }

    fn open_legacy(
        &self,
        device: Device,
        handle: &Handle,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        let reserved: Result<[u8; 64], _> = handle.bytes.as_slice().try_into();
        let reserved = reserved.map_err(|_| no_handle(Rung::LegacyMemory))?;
        let handle = CUipcMemHandle { reserved: reserved.map(|byte| byte as c_char) };
        let open = self.table.ipc_open_memory.ok_or_else(|| lacks("cuIpcOpenMemHandle_v2"))?;
        let mut address = 0;
        // SAFETY: writes one device pointer; the handle is passed by its value.
        let result = unsafe { open(&raw mut address, handle, LAZY_PEER_ACCESS) };
        self.table.check("cuIpcOpenMemHandle", result)?;
        if address == 0 {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "cuIpcOpenMemHandle: reported success and gave nothing",
            ));
        }
        Ok(self.keep_of(device, address, bytes, Origin::Opened))
    }
}

impl SharedDriver for CudaDriver {
    fn share(
        &self,
        device: Device,
        rung: Rung,
        bytes: u64,
    ) -> Result<(Buffer, Handle), HardwareError> {
        match rung {
            Rung::LegacyMemory => {
                let buffer = self.allocate(device, bytes)?;
                let handle = self.legacy_handle(buffer);
                let (buffer, bytes) = self.or_free(buffer, handle)?;
                Ok((buffer, Handle { bytes, descriptor: None }))
            }
            Rung::Descriptor => {
                let (buffer, descriptor) = self.by_descriptor(device, bytes)?;
                Ok((buffer, Handle { bytes: Vec::new(), descriptor: Some(descriptor) }))
            }
            Rung::SharedMemory => {
                let (mapping, path) = place::create_shared(bytes)?;
                let buffer = self.register_file(device, mapping, bytes);
                // Nobody will open a file of memory that could not be registered.
                let bytes = path.keep_if(buffer.is_ok());
                Ok((buffer?, Handle { bytes, descriptor: None }))
            }
        }
    }

    fn open_shared(
        &self,
        device: Device,
        rung: Rung,
        handle: Handle,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        self.enter(device)?;
        match rung {
            Rung::LegacyMemory => self.open_legacy(device, &handle, bytes),
            Rung::Descriptor => {
                let descriptor = handle.descriptor.ok_or_else(|| no_handle(rung))?;
                let of = self.handle(device)?;
                let memory = Physical::import(self.table, &descriptor, of, bytes)?;
                Ok(self.keep_physical(device, memory))
            }
            Rung::SharedMemory => {
                let mapping = place::open_shared(&handle.bytes, bytes)?;
                self.register_file(device, mapping, bytes)
            }
        }
    }

    fn sharing_facts(&self) -> SharingFacts {
        SharingFacts::now()
    }
}
