//! Memory and events of other processes, under the live driver.

use std::ffi::{c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::without_provenance_mut;

use cudarc::driver::sys::{CUipcEventHandle, CUipcMemHandle};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::error::{code, lacks};
use super::held::{Held, Origin};
use super::images;
use super::physical::{At, Export, Physical, as_pointer};
use super::place::{self, Mapping};
use super::session::CudaDriver;
use super::startup;
use hardware::limits;
use hardware::{
    Buffer, Device, Driver, ErrorKind, Event, Handle, HardwareError, Location, SharedDriver,
    SharingFacts,
};
use model::flow::HostMemory;
use model::sharing::Rung;

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: as frameworks open such handles.
const LAZY_PEER_ACCESS: c_uint = 1;
/// CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, which go only together.
const BETWEEN_PROCESSES: c_uint = 2 | 4;

/// The driver from which on NCCL shares memory of NUMA nodes.
const HOST_NODES_SINCE: c_int = 12_060;

/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const MANAGES_ADDRESSES: c_int = 102;
/// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED.
const SHARES_BY_DESCRIPTOR: c_int = 103;
/// CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED.
const SHARES_EVENTS: c_int = 125;
/// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED.
const SHARES_BY_FABRIC: c_int = 128;
/// CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: the node nearest to the device; -1 if there is none.
const NEAREST_NODE: c_int = 134;
/// CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const MANAGES_HOST_NODES: c_int = 141;

/// Returns the handle by which another process fetches a descriptor.
fn by_number(descriptor: &OwnedFd) -> Vec<u8> {
    format!("{} {}", std::process::id(), descriptor.as_raw_fd()).into_bytes()
}

fn no_handle(rung: Rung) -> HardwareError {
    HardwareError::new(ErrorKind::Other, format!("this is no handle for {rung}"))
}

/// Returns the error of a call of the system, with the limit that explains it.
fn of_system(call: &str, error: rustix::io::Errno) -> HardwareError {
    let code = error.raw_os_error().unsigned_abs();
    let error = std::io::Error::from(error);
    match limits::of_error(&error) {
        Some(limit) => HardwareError::new(ErrorKind::Hindered, format!("{call}: {error}; {limit}")),
        None => HardwareError::new(ErrorKind::Other, format!("{call}: {error}")),
    }
    .with_code(code)
}

/// Fetches a descriptor of another process.
fn fetched(handle: &Handle) -> Result<OwnedFd, HardwareError> {
    let words = String::from_utf8_lossy(&handle.bytes).into_owned();
    let mut numbers = words.split(' ').map_while(|word| word.parse::<i32>().ok());
    let (process, descriptor) = numbers
        .next()
        .and_then(Pid::from_raw)
        .zip(numbers.next())
        .ok_or_else(|| no_handle(Rung::Pidfd))?;
    let process =
        pidfd_open(process, PidfdFlags::empty()).map_err(|error| of_system("pidfd_open", error))?;
    pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty())
        .map_err(|error| of_system("pidfd_getfd", error))
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

    /// Fails if the driver is older than those that share memory of NUMA nodes.
    fn offers_host_nodes(&self, device: Device) -> Result<(), HardwareError> {
        let what = "memory of NUMA nodes that is mapped in steps";
        let version = images::driver_version(self.table);
        if version.is_some_and(|version| version < HOST_NODES_SINCE) {
            let why =
                format!("this driver is too old for {what}: programs use it from CUDA 12.6 on");
            return Err(HardwareError::new(ErrorKind::Impossible, why));
        }
        self.offers_mapped(device, MANAGES_HOST_NODES, what)
    }

    fn keep_physical(&self, device: Device, memory: Physical) -> Buffer {
        self.keep(Held {
            location: Location::Device(device),
            pointer: without_provenance_mut(memory.address() as usize),
            bytes: memory.bytes(),
            origin: Origin::Mapped(memory),
        })
    }

    /// Creates memory for one device that other processes can open.
    fn exported(
        &self,
        device: Device,
        at: At,
        export: Export,
        bytes: u64,
    ) -> Result<Physical, HardwareError> {
        self.enter(device)?;
        Physical::create(self.table, at, export, &[self.handle(device)?], bytes)
    }

    fn share_by_descriptor(
        &self,
        device: Device,
        at: At,
        bytes: u64,
    ) -> Result<(Buffer, OwnedFd), HardwareError> {
        let memory = self.exported(device, at, Export::Descriptor, bytes)?;
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

    /// Returns the NUMA node of the host nearest to a device.
    fn nearest_node(&self, device: Device) -> At {
        let node = startup::attribute(self.table, self.handle(device).unwrap_or(0), NEAREST_NODE);
        At::Node(node.ok().and_then(|node| c_int::try_from(node).ok()).unwrap_or(0))
    }

    /// Fails unless a device has memory that is mapped in steps, with this kind of handle.
    fn offers_mapped(
        &self,
        device: Device,
        attribute: c_int,
        what: &str,
    ) -> Result<(), HardwareError> {
        self.offers(device, MANAGES_ADDRESSES, "memory that is mapped in steps")?;
        self.offers(device, attribute, what)
    }

    /// Page-locks a file of /dev/shm that is mapped.
    fn register_file(
        &self,
        device: Device,
        mapping: Mapping,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        use hardware::HostDriver;
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
        let reserved = reserved(handle).ok_or_else(|| no_handle(Rung::LegacyMemory))?;
        let open = self.table.ipc_open_memory.ok_or_else(|| lacks("cuIpcOpenMemHandle_v2"))?;
        let mut address = 0;
        // SAFETY: writes one device pointer; the handle is passed by its value.
        let result =
            unsafe { open(&raw mut address, CUipcMemHandle { reserved }, LAZY_PEER_ACCESS) };
        self.table.check("cuIpcOpenMemHandle", result)?;
        if address == 0 {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "cuIpcOpenMemHandle: reported success and gave nothing",
            ));
        }
        Ok(self.keep(Held {
            location: Location::Device(device),
            pointer: without_provenance_mut(address as usize),
            bytes,
            origin: Origin::Opened,
        }))
    }
}

/// Returns the 64 bytes of a legacy handle.
fn reserved(handle: &Handle) -> Option<[c_char; 64]> {
    let bytes: [u8; 64] = handle.bytes.as_slice().try_into().ok()?;
    Some(bytes.map(|byte| byte as c_char))
}

impl SharedDriver for CudaDriver {
    fn share(
        &self,
        device: Device,
        rung: Rung,
        bytes: u64,
    ) -> Result<(Buffer, Handle), HardwareError> {
        let of_device = At::Device(self.handle(device)?);
        let only = |bytes| Handle { bytes, descriptor: None };
        match rung {
            Rung::LegacyMemory => {
                let buffer = self.allocate(device, bytes)?;
                let handle = self.legacy_handle(buffer).map(only);
                self.or_free(buffer, handle)
            }
            Rung::LegacyEvent => Err(no_handle(rung)),
            Rung::Descriptor | Rung::Pidfd => {
                self.offers_mapped(device, SHARES_BY_DESCRIPTOR, "file descriptors of memory")?;
                let (buffer, descriptor) = self.share_by_descriptor(device, of_device, bytes)?;
                Ok((buffer, Handle { bytes: by_number(&descriptor), descriptor: Some(descriptor) }))
            }
            Rung::Fabric => {
                self.offers_mapped(device, SHARES_BY_FABRIC, "fabric handles of memory")?;
                let memory = self.exported(device, of_device, Export::Fabric, bytes)?;
                let handle = memory.fabric(self.table).map(only);
                let buffer = self.keep_physical(device, memory);
                self.or_free(buffer, handle)
            }
            Rung::SharedMemory => {
                let (mapping, path) = place::create_shared(bytes)?;
                let buffer = self.register_file(device, mapping, bytes);
                // Nobody will open a file of memory that could not be registered.
                let path = path.keep_if(buffer.is_ok());
                buffer.map(|buffer| (buffer, only(path)))
            }
            Rung::HostNode => {
                self.offers_host_nodes(device)?;
                let node = self.nearest_node(device);
                let (buffer, descriptor) = self.share_by_descriptor(device, node, bytes)?;
                Ok((buffer, Handle { bytes: Vec::new(), descriptor: Some(descriptor) }))
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
        let of_device = self.handle(device)?;
        let imported = |export, shareable| {
            let memory = Physical::import(self.table, export, shareable, of_device, bytes)?;
            Ok(self.keep_physical(device, memory))
        };
        match rung {
            Rung::LegacyMemory => self.open_legacy(device, &handle, bytes),
            Rung::LegacyEvent => Err(no_handle(rung)),
            Rung::Descriptor | Rung::HostNode => {
                let descriptor = handle.descriptor.ok_or_else(|| no_handle(rung))?;
                imported(Export::Descriptor, as_pointer(&descriptor))
            }
            Rung::Pidfd => {
                let descriptor = fetched(&handle)?;
                imported(Export::Descriptor, as_pointer(&descriptor))
            }
            Rung::Fabric => {
                let mut shareable = handle.bytes;
                imported(Export::Fabric, shareable.as_mut_ptr().cast())
            }
            Rung::SharedMemory => {
                let mapping = place::open_shared(&handle.bytes, bytes)?;
                self.register_file(device, mapping, bytes)
            }
        }
    }

    fn share_event(&self, device: Device) -> Result<(Event, Handle), HardwareError> {
        self.offers(device, SHARES_EVENTS, "events for other processes")?;
        let event = self.new_event(device, BETWEEN_PROCESSES)?;
        let get = self.table.ipc_get_event.ok_or_else(|| lacks("cuIpcGetEventHandle"))?;
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: writes one handle; the event is alive and was made for other processes.
        let result = unsafe { get(&raw mut handle, self.event(event)?) };
        self.table.check("cuIpcGetEventHandle", result)?;
        let bytes = handle.reserved.map(|byte| byte as u8).to_vec();
        Ok((event, Handle { bytes, descriptor: None }))
    }

    fn open_event(&self, device: Device, handle: Handle) -> Result<Event, HardwareError> {
        self.enter(device)?;
        let reserved = reserved(&handle).ok_or_else(|| no_handle(Rung::LegacyEvent))?;
        let open = self.table.ipc_open_event.ok_or_else(|| lacks("cuIpcOpenEventHandle"))?;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one event handle; the handle is passed by its value.
        let result = unsafe { open(&raw mut event, CUipcEventHandle { reserved }) };
        let event = self.table.made("cuIpcOpenEventHandle", result, event)?;
        Ok(self.keep_event(device, event))
    }

    fn sharing_facts(&self) -> SharingFacts {
        SharingFacts { numa_policy: Some(place::tells_policy()), ..SharingFacts::now() }
    }
}
