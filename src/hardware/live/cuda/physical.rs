//! Memory of a device that is created, mapped and given access to in three steps (cuda.h, virtual memory management),
//! since only such memory has a file descriptor, by which other processes open it.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation,
    CUmemLocationType,
};

use super::error::{addressable, lacks};
use super::table::Table;
use hardware::{ErrorKind, HardwareError};

/// CU_MEM_ALLOC_GRANULARITY_MINIMUM.
const GRANULARITY_MINIMUM: c_uint = 0;
const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

const fn of_device(id: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

/// Memory with its addresses. It is given back by [`Physical::give_back`], since that may fail.
pub(super) struct Physical {
    handle: u64,
    address: CUdeviceptr,
    bytes: usize,
}

/// Calls a function that older drivers lack.
macro_rules! call {
    ($table:ident, $function:ident = $name:literal ($($argument:expr),*)) => {{
        let function = $table.$function.ok_or_else(|| lacks($name))?;
        // SAFETY: the arguments are as the function's C signature demands, see where they are made.
        $table.check($name, unsafe { function($($argument),*) })
    }};
}

impl Physical {
    /// Creates memory of a device, and maps it there.
    pub(super) fn create(table: &Table, device: c_int, bytes: u64) -> Result<Self, HardwareError> {
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: DESCRIPTOR,
            location: of_device(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut granularity = 0;
        call!(
            table,
            memory_granularity = "cuMemGetAllocationGranularity"(
                &raw mut granularity,
                &raw const properties,
                GRANULARITY_MINIMUM
            )
        )?;
        if granularity == 0 {
            return Err(nothing("cuMemGetAllocationGranularity"));
        }
        let size = addressable(bytes)?.checked_next_multiple_of(granularity);
        let size = size.ok_or_else(|| {
            HardwareError::new(ErrorKind::OutOfMemory, "more memory than can be addressed")
        })?;
        let mut handle = 0;
        call!(
            table,
            memory_create = "cuMemCreate"(&raw mut handle, size, &raw const properties, 0)
        )?;
        Self::mapped(table, handle, size, device)
    }

    /// Maps memory that another process has created, for a device.
    pub(super) fn import(
        table: &Table,
        descriptor: &OwnedFd,
        device: c_int,
        bytes: u64,
    ) -> Result<Self, HardwareError> {
        // The driver takes a descriptor in the place of a pointer.
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let mut handle = 0;
        call!(
            table,
            memory_import = "cuMemImportFromShareableHandle"(
                &raw mut handle,
                std::ptr::without_provenance_mut(number),
                DESCRIPTOR.0
            )
        )?;
        Self::mapped(table, handle, addressable(bytes)?, device)
    }

    /// Maps memory, and gives a device access to it. On an error the memory is given back.
    fn mapped(
        table: &Table,
        handle: u64,
        bytes: usize,
        device: c_int,
    ) -> Result<Self, HardwareError> {
        if handle == 0 {
            return Err(nothing("cuMemCreate"));
        }
        let mut memory = Self { handle, address: 0, bytes };
        match memory.map(table, device) {
            Ok(()) => Ok(memory),
            Err(error) => {
                // The first error says what went wrong.
                let _ = memory.give_back(table);
                Err(error)
            }
        }
    }

    fn map(&mut self, table: &Table, device: c_int) -> Result<(), HardwareError> {
        let mut address = 0;
        call!(
            table,
            address_reserve = "cuMemAddressReserve"(&raw mut address, self.bytes, 0, 0, 0)
        )?;
        if address == 0 {
            return Err(nothing("cuMemAddressReserve"));
        }
        let mapped = call!(table, memory_map = "cuMemMap"(address, self.bytes, 0, self.handle, 0));
        if let Err(error) = mapped {
            let _ = call!(table, address_free = "cuMemAddressFree"(address, self.bytes));
            return Err(error);
        }
        self.address = address;
        let access = CUmemAccessDesc {
            location: of_device(device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        call!(
            table,
            memory_set_access = "cuMemSetAccess"(address, self.bytes, &raw const access, 1)
        )
    }

    pub(super) const fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns a file descriptor by which another process opens it.
    pub(super) fn descriptor(&self, table: &Table) -> Result<OwnedFd, HardwareError> {
        let mut descriptor: c_int = -1;
        let to: *mut c_void = std::ptr::from_mut(&mut descriptor).cast();
        call!(
            table,
            memory_export = "cuMemExportToShareableHandle"(to, self.handle, DESCRIPTOR.0, 0)
        )?;
        if descriptor < 0 {
            return Err(nothing("cuMemExportToShareableHandle"));
        }
        // SAFETY: the driver has just opened this descriptor for the caller, who owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Unmaps the memory and gives it back. Whoever opened it keeps it. Returns the first error.
    pub(super) fn give_back(&self, table: &Table) -> Result<(), HardwareError> {
        let unmapped = match self.address {
            0 => Ok(()),
            address => {
                call!(table, memory_unmap = "cuMemUnmap"(address, self.bytes)).and_then(|()| {
                    call!(table, address_free = "cuMemAddressFree"(address, self.bytes))
                })
            }
        };
        let released = call!(table, memory_release = "cuMemRelease"(self.handle));
        unmapped.and(released)
    }
}

fn nothing(call: &str) -> HardwareError {
    HardwareError::new(ErrorKind::Other, format!("{call}: reported success and gave nothing"))
}
