//! Memory that is created, mapped and given access to in three steps (cuda.h, virtual memory management), as PyTorch's
//! expandable segments and NCCL use it.

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
/// Bytes of a fabric handle (CUmemFabricHandle).
const FABRIC_BYTES: usize = 64;

/// The kind of handle by which other processes open the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Export {
    Descriptor,
    Fabric,
}

impl Export {
    const fn kind(self) -> CUmemAllocationHandleType {
        match self {
            Self::Descriptor => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            Self::Fabric => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC,
        }
    }
}

/// The place where memory is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Device(c_int),
    Node(c_int),
}

impl At {
    const fn location(self) -> CUmemLocation {
        match self {
            Self::Device(id) => {
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
            }
            Self::Node(id) => {
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id }
            }
        }
    }
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
    /// Creates memory, and maps it for these devices.
    pub(super) fn create(
        table: &Table,
        at: At,
        export: Export,
        reached_by: &[c_int],
        bytes: u64,
    ) -> Result<Self, HardwareError> {
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: export.kind(),
            location: at.location(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let size = Self::rounded(table, &properties, bytes)?;
        let mut handle = 0;
        call!(
            table,
            memory_create = "cuMemCreate"(&raw mut handle, size, &raw const properties, 0)
        )?;
        Self::mapped(table, handle, size, reached_by)
    }

    /// Maps memory that another process has created, for a device.
    pub(super) fn import(
        table: &Table,
        export: Export,
        shareable: *mut c_void,
        device: c_int,
        bytes: u64,
    ) -> Result<Self, HardwareError> {
        let mut handle = 0;
        call!(
            table,
            memory_import =
                "cuMemImportFromShareableHandle"(&raw mut handle, shareable, export.kind().0)
        )?;
        Self::mapped(table, handle, addressable(bytes)?, &[device])
    }

    /// Returns a size rounded up to what the driver maps.
    fn rounded(
        table: &Table,
        properties: &CUmemAllocationProp,
        bytes: u64,
    ) -> Result<usize, HardwareError> {
        let mut granularity = 0;
        call!(
            table,
            memory_granularity = "cuMemGetAllocationGranularity"(
                &raw mut granularity,
                std::ptr::from_ref(properties),
                GRANULARITY_MINIMUM
            )
        )?;
        if granularity == 0 {
            return Err(nothing("cuMemGetAllocationGranularity"));
        }
        let size = addressable(bytes)?.checked_next_multiple_of(granularity);
        size.ok_or_else(|| {
            HardwareError::new(ErrorKind::OutOfMemory, "more memory than can be addressed")
        })
    }

    /// Maps memory, and gives these devices access to it. On an error the memory is given back.
    fn mapped(
        table: &Table,
        handle: u64,
        bytes: usize,
        reached_by: &[c_int],
    ) -> Result<Self, HardwareError> {
        if handle == 0 {
            return Err(nothing("cuMemCreate"));
        }
        let mut memory = Self { handle, address: 0, bytes };
        match memory.map(table, reached_by) {
            Ok(()) => Ok(memory),
            Err(error) => {
                // The first error says what went wrong.
                let _ = memory.give_back(table);
                Err(error)
            }
        }
    }

    fn map(&mut self, table: &Table, reached_by: &[c_int]) -> Result<(), HardwareError> {
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
        let access: Vec<CUmemAccessDesc> = reached_by
            .iter()
            .map(|device| CUmemAccessDesc {
                location: At::Device(*device).location(),
                flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            })
            .collect();
        call!(
            table,
            memory_set_access =
                "cuMemSetAccess"(address, self.bytes, access.as_ptr(), access.len())
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
        self.export(table, Export::Descriptor, std::ptr::from_mut(&mut descriptor).cast())?;
        if descriptor < 0 {
            return Err(nothing("cuMemExportToShareableHandle"));
        }
        // SAFETY: the driver has just opened this descriptor for the caller, who owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Returns a fabric handle by which another process opens it.
    pub(super) fn fabric(&self, table: &Table) -> Result<Vec<u8>, HardwareError> {
        let mut handle = vec![0_u8; FABRIC_BYTES];
        self.export(table, Export::Fabric, handle.as_mut_ptr().cast())?;
        Ok(handle)
    }

    /// Writes a handle to `to`, which has room for one of its kind.
    fn export(&self, table: &Table, kind: Export, to: *mut c_void) -> Result<(), HardwareError> {
        call!(
            table,
            memory_export = "cuMemExportToShareableHandle"(to, self.handle, kind.kind().0, 0)
        )
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

/// Returns the pointer by which the driver takes a descriptor.
pub(super) fn as_pointer(descriptor: &OwnedFd) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX))
}

fn nothing(call: &str) -> HardwareError {
    HardwareError::new(ErrorKind::Other, format!("{call}: reported success and gave nothing"))
}
