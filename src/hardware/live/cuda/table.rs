//! The functions of the CUDA driver that peerscope calls, looked up one by one.
//!
//! cudarc declares the driver's return code as a closed Rust enum, and a code it does not list would be undefined
//! behaviour: a code of 919 killed a process that way. So this module uses only cudarc's types, resolves the functions
//! by name, and keeps a code as a number. cudarc's loader would also try `libcuda.so` before `libcuda.so.1` and so find
//! a toolkit's stub first.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUipcMemHandle, CUmemAccessDesc,
    CUmemAllocationProp, CUmodule, CUstream, CUuuid,
};
use libloading::Library;

use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError};

/// Names of the driver library. The first is the driver's own; a toolkit's stub has the second name too.
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

macro_rules! table {
    (
        required { $( $name:ident = $symbol:literal : ($($argument:ty),*); )* }
        optional { $( $newer:ident = $newer_symbol:literal : ($($newer_argument:ty),*); )* }
    ) => {
        /// The functions, named without `cu` and version.
        #[allow(missing_docs, reason = "each is the driver API function of its name")]
        pub(crate) struct Table {
            $( pub(crate) $name: unsafe extern "C" fn($($argument),*) -> u32, )*
            $( pub(crate) $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> u32>, )*
            /// Keeps the library loaded for as long as its functions can be called.
            _library: Library,
        }

        impl Table {
            fn resolve(library: Library) -> Result<Self, HardwareError> {
                $(
                    // SAFETY: the symbol is the driver API function of this name, whose C
                    // signature the declaration repeats; the pointer is kept beside the library.
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> u32>($symbol) }
                        .map(|symbol| *symbol)
                        .map_err(|_| missing_symbol($symbol))?;
                )*
                $(
                    // SAFETY: as above.
                    let $newer = unsafe { library.get::<unsafe extern "C" fn($($newer_argument),*) -> u32>($newer_symbol) }
                        .map(|symbol| *symbol)
                        .ok();
                )*
                Ok(Self { $( $name, )* $( $newer, )* _library: library })
            }
        }
    };
}

table! {
    required {
        init = b"cuInit": (c_uint);
        device_get_count = b"cuDeviceGetCount": (*mut c_int);
        device_get = b"cuDeviceGet": (*mut CUdevice, c_int);
        device_get_attribute = b"cuDeviceGetAttribute": (*mut c_int, c_int, CUdevice);
        device_get_pci_bus_id = b"cuDeviceGetPCIBusId": (*mut c_char, c_int, CUdevice);
        device_can_access_peer = b"cuDeviceCanAccessPeer": (*mut c_int, CUdevice, CUdevice);
        primary_context_retain = b"cuDevicePrimaryCtxRetain": (*mut CUcontext, CUdevice);
        context_set_current = b"cuCtxSetCurrent": (CUcontext);
        context_synchronize = b"cuCtxSynchronize": ();
        context_enable_peer_access = b"cuCtxEnablePeerAccess": (CUcontext, c_uint);
        context_disable_peer_access = b"cuCtxDisablePeerAccess": (CUcontext);
        memory_info = b"cuMemGetInfo_v2": (*mut usize, *mut usize);
        memory_allocate = b"cuMemAlloc_v2": (*mut CUdeviceptr, usize);
        memory_free = b"cuMemFree_v2": (CUdeviceptr);
        host_allocate = b"cuMemHostAlloc": (*mut *mut c_void, usize, c_uint);
        copy_to_device = b"cuMemcpyHtoD_v2": (CUdeviceptr, *const c_void, usize);
        copy_to_host = b"cuMemcpyDtoH_v2": (*mut c_void, CUdeviceptr, usize);
        copy_peer_async = b"cuMemcpyPeerAsync": (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        stream_create = b"cuStreamCreate": (*mut CUstream, c_uint);
        stream_synchronize = b"cuStreamSynchronize": (CUstream);
        stream_wait_event = b"cuStreamWaitEvent": (CUstream, CUevent, c_uint);
        event_create = b"cuEventCreate": (*mut CUevent, c_uint);
        event_record = b"cuEventRecord": (CUevent, CUstream);
        event_synchronize = b"cuEventSynchronize": (CUevent);
        event_elapsed = b"cuEventElapsedTime": (*mut f32, CUevent, CUevent);
        module_load = b"cuModuleLoadData": (*mut CUmodule, *const c_void);
        module_get_function = b"cuModuleGetFunction": (*mut CUfunction, CUmodule, *const c_char);
        launch = b"cuLaunchKernel": (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
    }
    optional {
        driver_get_version = b"cuDriverGetVersion": (*mut c_int);
        device_get_uuid_v2 = b"cuDeviceGetUuid_v2": (*mut CUuuid, CUdevice);
        device_get_uuid = b"cuDeviceGetUuid": (*mut CUuuid, CUdevice);
        stream_wait_value = b"cuStreamWaitValue32_v2": (CUstream, CUdeviceptr, u32, c_uint);
        stream_wait_value_v1 = b"cuStreamWaitValue32": (CUstream, CUdeviceptr, u32, c_uint);
        stream_write_value = b"cuStreamWriteValue32_v2": (CUstream, CUdeviceptr, u32, c_uint);
        stream_write_value_v1 = b"cuStreamWriteValue32": (CUstream, CUdeviceptr, u32, c_uint);
        stream_query = b"cuStreamQuery": (CUstream);
        host_free = b"cuMemFreeHost": (*mut c_void);
        host_register = b"cuMemHostRegister_v2": (*mut c_void, usize, c_uint);
        host_unregister = b"cuMemHostUnregister": (*mut c_void);
        host_address = b"cuMemHostGetDevicePointer_v2": (*mut CUdeviceptr, *mut c_void, c_uint);
        copy_up = b"cuMemcpyHtoDAsync_v2": (CUdeviceptr, *const c_void, usize, CUstream);
        copy_down = b"cuMemcpyDtoHAsync_v2": (*mut c_void, CUdeviceptr, usize, CUstream);
        device_p2p_attribute = b"cuDeviceGetP2PAttribute": (*mut c_int, c_int, CUdevice, CUdevice);
        memory_granularity = b"cuMemGetAllocationGranularity": (*mut usize, *const CUmemAllocationProp, c_uint);
        memory_create = b"cuMemCreate": (*mut u64, usize, *const CUmemAllocationProp, u64);
        memory_release = b"cuMemRelease": (u64);
        address_reserve = b"cuMemAddressReserve": (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
        address_free = b"cuMemAddressFree": (CUdeviceptr, usize);
        memory_map = b"cuMemMap": (CUdeviceptr, usize, usize, u64, u64);
        memory_unmap = b"cuMemUnmap": (CUdeviceptr, usize);
        memory_set_access = b"cuMemSetAccess": (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        memory_export = b"cuMemExportToShareableHandle": (*mut c_void, u64, c_uint, u64);
        memory_import = b"cuMemImportFromShareableHandle": (*mut u64, *mut c_void, c_uint);
        ipc_get_memory = b"cuIpcGetMemHandle": (*mut CUipcMemHandle, CUdeviceptr);
        ipc_open_memory = b"cuIpcOpenMemHandle_v2": (*mut CUdeviceptr, CUipcMemHandle, c_uint);
        ipc_close_memory = b"cuIpcCloseMemHandle": (CUdeviceptr);
        get_error_name = b"cuGetErrorName": (u32, *mut *const c_char);
        get_error_string = b"cuGetErrorString": (u32, *mut *const c_char);
    }
}

fn missing_symbol(symbol: &[u8]) -> HardwareError {
    HardwareError::new(
        ErrorKind::NoDriver,
        format!(
            "the CUDA driver library has no function {}: the NVIDIA driver is too old or the library is not NVIDIA's",
            String::from_utf8_lossy(symbol)
        ),
    )
}

impl Table {
    /// Loads the driver library and looks up its functions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoDriver`] with the loader's reason.
    pub(super) fn load() -> Result<Self, HardwareError> {
        let mut reason = String::new();
        for name in LIBRARY_NAMES {
            // SAFETY: loading runs the library's initialisers; this is the NVIDIA driver, which is
            // made for being loaded so.
            match unsafe { Library::new(name) } {
                Ok(library) => return Self::resolve(library),
                Err(error) if reason.is_empty() => {
                    // The loader's own message comes after libloading's "dlopen failed".
                    reason = std::error::Error::source(&error).unwrap_or(&error).to_string();
                }
                Err(_) => {}
            }
        }
        if !reason.contains("No such file")
            && let Some(limit) = limits::blame(Scarce::Something)
        {
            let message = format!("the CUDA driver library cannot be loaded ({reason}); {limit}");
            return Err(HardwareError::new(ErrorKind::Hindered, message));
        }
        Err(HardwareError::new(
            ErrorKind::NoDriver,
            format!(
                "the CUDA driver library cannot be loaded ({reason}): install the NVIDIA driver, or start the \
                 container with the NVIDIA runtime and the 'compute' capability"
            ),
        ))
    }
}
