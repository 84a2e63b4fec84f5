//! Memory that is created, mapped and given access to in steps, and memory and events of other processes. Handles name
//! real files, so that two processes of this driver share the contents of memory.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use cudarc::driver::sys::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUmemLocationType};
use hardware::{Buffer, Device, Driver};
use model::sharing::Rung;

use crate::state::{Fake, code, code_of, current};

/// What the driver maps at least.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR and CU_MEM_HANDLE_TYPE_FABRIC.
const DESCRIPTOR: u32 = 1;
const FABRIC: u32 = 8;
/// Bytes of a legacy handle and of a fabric handle.
pub(crate) const HANDLE: usize = 64;

/// Memory that was created or imported, by its handle.
struct Created {
    device: Device,
    bytes: u64,
    rung: Rung,
    /// The kind of handle that was asked for.
    export: u32,
    of: Of,
    mapped_at: Option<u64>,
}

enum Of {
    This(Buffer),
    /// Another process, which has the contents in this file.
    Other(Option<OwnedFd>),
}

/// Mapped and shared memory.
#[derive(Default)]
pub(crate) struct Shared {
    created: BTreeMap<u64, Created>,
    last: u64,
    /// Addresses that were reserved, with their sizes.
    reserved: BTreeMap<u64, u64>,
    /// Buffers that legacy handles have opened, by address.
    opened: BTreeMap<u64, Buffer>,
    /// Files that handles name.
    files: Vec<OwnedFd>,
}

impl Shared {
    fn add(&mut self, created: Created) -> u64 {
        self.last += 1;
        self.created.insert(self.last, created);
        self.last
    }

    /// Keeps a file, and returns the handle that names it.
    fn name(&mut self, file: OwnedFd, bytes: u64) -> [u8; HANDLE] {
        let words = format!("{} {} {bytes}", std::process::id(), file.as_raw_fd());
        self.files.push(file);
        let mut handle = [0; HANDLE];
        for (to, from) in handle.iter_mut().zip(words.bytes()) {
            *to = from;
        }
        handle
    }
}

/// Returns the file that a handle names, and the size of its memory.
fn named(handle: &[u8; HANDLE]) -> Result<(OwnedFd, u64), u32> {
    let words = String::from_utf8_lossy(handle);
    let bytes = words.trim_end_matches('\0').rsplit(' ').next().and_then(|word| word.parse().ok());
    let file = sim::fetched(handle).map_err(|_| code::INVALID_VALUE)?;
    Ok((file, bytes.ok_or(code::INVALID_VALUE)?))
}

/// Returns the way by which a file came: its name says.
fn rung_of(file: RawFd) -> Rung {
    let name = std::fs::read_link(format!("/proc/self/fd/{file}")).unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let of = |rung: &&Rung| name.contains(&format!("{}{}", sim::SHARED_FILE, rung.name()));
    Rung::ALL.iter().find(of).copied().unwrap_or(Rung::Descriptor)
}

impl Fake {
    fn at_location(&self, location: CUmemLocation) -> Result<Device, u32> {
        match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => self.device(location.id),
            // Memory of a node is a buffer of the device that maps it.
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if location.id >= 0 => current(),
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// Creates memory, and returns its handle.
    pub(crate) fn create(
        &mut self,
        bytes: u64,
        properties: &CUmemAllocationProp,
    ) -> Result<u64, u32> {
        let device = self.at_location(properties.location)?;
        let node = properties.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
        let export = properties.requestedHandleTypes.0;
        let rung = match export {
            FABRIC => Rung::Fabric,
            _ if node => Rung::HostNode,
            _ => Rung::Descriptor,
        };
        if bytes == 0
            || !bytes.is_multiple_of(GRANULARITY)
            || ![0, DESCRIPTOR, FABRIC].contains(&export)
        {
            return Err(code::INVALID_VALUE);
        }
        self.driver().offers(device, rung).map_err(code_of)?;
        if rung == Rung::Fabric {
            self.driver().fabric_allowed().map_err(code_of)?;
        }
        if rung != Rung::Descriptor {
            self.driver().sharing_fault(rung, false).map_err(code_of)?;
        }
        let buffer = self.driver().allocate(device, bytes).map_err(code_of)?;
        Ok(self.shared.add(Created {
            device,
            bytes,
            rung,
            export,
            of: Of::This(buffer),
            mapped_at: None,
        }))
    }

    /// Gives back memory that is not mapped any more.
    pub(crate) fn release(&mut self, handle: u64) -> Result<(), u32> {
        let created = self.shared.created.get(&handle).ok_or(code::INVALID_VALUE)?;
        if created.mapped_at.is_some() {
            return Err(code::INVALID_VALUE);
        }
        let created = self.shared.created.remove(&handle);
        match created.map(|created| created.of) {
            Some(Of::This(buffer)) => self.driver().free(buffer).map_err(code_of),
            _ => Ok(()),
        }
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<u64, u32> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(code::INVALID_VALUE);
        }
        let address = self.take_address(bytes);
        self.shared.reserved.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn unreserve(&mut self, address: u64, bytes: u64) -> Result<(), u32> {
        let mapped = self.shared.created.values().any(|created| created.mapped_at == Some(address));
        if mapped || self.shared.reserved.get(&address) != Some(&bytes) {
            return Err(code::INVALID_VALUE);
        }
        self.shared.reserved.remove(&address);
        Ok(())
    }

    pub(crate) fn map_at(&mut self, address: u64, bytes: u64, handle: u64) -> Result<(), u32> {
        if self.shared.reserved.get(&address) != Some(&bytes) {
            return Err(code::INVALID_VALUE);
        }
        let (device, rung, file) = {
            let created = self.shared.created.get_mut(&handle).ok_or(code::INVALID_VALUE)?;
            let fits =
                created.mapped_at.is_none() && (created.bytes == bytes || created.bytes == 0);
            if !fits {
                return Err(code::INVALID_VALUE);
            }
            let file = match &mut created.of {
                Of::This(_) => None,
                Of::Other(file) => file.take(),
            };
            (created.device, created.rung, file)
        };
        let adopted = file.map(|file| self.driver().adopt(device, rung, file, bytes));
        let adopted = adopted.transpose().map_err(code_of)?;
        let created = self.shared.created.get_mut(&handle).ok_or(code::INVALID_VALUE)?;
        if let Some(buffer) = adopted {
            created.of = Of::This(buffer);
        }
        created.mapped_at = Some(address);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), u32> {
        let at = |created: &&mut Created| created.mapped_at == Some(address);
        let created = self.shared.created.values_mut().find(at);
        let created = created.filter(|_| self.shared.reserved.get(&address) == Some(&bytes));
        created.ok_or(code::INVALID_VALUE)?.mapped_at = None;
        self.forget(address);
        Ok(())
    }

    /// Gives devices access to mapped memory, which can be used from then on.
    pub(crate) fn set_access(
        &mut self,
        address: u64,
        bytes: u64,
        access: &[CUmemAccessDesc],
    ) -> Result<(), u32> {
        let at = |created: &&Created| created.mapped_at == Some(address);
        let created = self.shared.created.values().find(at).ok_or(code::INVALID_VALUE)?;
        let Of::This(buffer) = created.of else {
            return Err(code::INVALID_VALUE);
        };
        let device = created.device;
        for one in access {
            self.device(one.location.id)?;
        }
        self.hold_at(address, device, bytes, buffer);
        Ok(())
    }

    /// Returns true if memory at an address was mapped in steps.
    pub(crate) fn is_mapped(&self, address: u64) -> bool {
        let at = |created: &Created| created.mapped_at == Some(address);
        self.shared.created.values().any(at)
    }

    /// Returns a descriptor for another process, which the caller owns.
    pub(crate) fn export_descriptor(&mut self, handle: u64) -> Result<RawFd, u32> {
        let (buffer, rung) = self.exportable(handle, DESCRIPTOR)?;
        let file = self.driver().publish(buffer, rung).map_err(code_of)?;
        Ok(file.into_raw_fd())
    }

    pub(crate) fn export_fabric(&mut self, handle: u64) -> Result<[u8; HANDLE], u32> {
        let (buffer, rung) = self.exportable(handle, FABRIC)?;
        let file = self.driver().publish(buffer, rung).map_err(code_of)?;
        Ok(self.shared.name(file, buffer.bytes))
    }

    fn exportable(&self, handle: u64, kind: u32) -> Result<(Buffer, Rung), u32> {
        let created = self.shared.created.get(&handle).ok_or(code::INVALID_VALUE)?;
        match created.of {
            Of::This(buffer) if created.export == kind => Ok((buffer, created.rung)),
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// Imports memory of another process by the descriptor that the caller keeps.
    pub(crate) fn import_descriptor(&mut self, descriptor: RawFd) -> Result<u64, u32> {
        if descriptor < 0 {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller has this descriptor open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
        let rung = rung_of(descriptor);
        self.import(file.map_err(|_| code::INVALID_VALUE)?, rung)
    }

    pub(crate) fn import_fabric(&mut self, handle: &[u8; HANDLE]) -> Result<u64, u32> {
        self.import(named(handle)?.0, Rung::Fabric)
    }

    fn import(&mut self, file: OwnedFd, rung: Rung) -> Result<u64, u32> {
        let device = current()?;
        self.driver().sharing_fault(rung, true).map_err(code_of)?;
        Ok(self.shared.add(Created {
            device,
            bytes: 0,
            rung,
            export: 0,
            of: Of::Other(Some(file)),
            mapped_at: None,
        }))
    }

    pub(crate) fn legacy_handle(&mut self, address: u64) -> Result<[u8; HANDLE], u32> {
        let buffer = self.buffer(address, 1)?;
        // As the driver: memory that was mapped in steps has no legacy handle.
        if self.is_mapped(address) {
            return Err(code::INVALID_VALUE);
        }
        let file = self.driver().publish(buffer, Rung::LegacyMemory).map_err(code_of)?;
        Ok(self.shared.name(file, buffer.bytes))
    }

    pub(crate) fn open_legacy(&mut self, handle: &[u8; HANDLE]) -> Result<u64, u32> {
        let device = current()?;
        let rung = Rung::LegacyMemory;
        self.driver().sharing_fault(rung, true).map_err(code_of)?;
        let (file, bytes) = named(handle)?;
        let buffer = self.driver().adopt(device, rung, file, bytes).map_err(code_of)?;
        let address = self.take_address(bytes);
        self.hold_at(address, device, bytes, buffer);
        self.shared.opened.insert(address, buffer);
        Ok(address)
    }

    pub(crate) fn close_legacy(&mut self, address: u64) -> Result<(), u32> {
        let buffer = self.shared.opened.remove(&address).ok_or(code::INVALID_VALUE)?;
        self.forget(address);
        self.driver().free(buffer).map_err(code_of)
    }

    pub(crate) fn event_handle(&self, event: *const c_void) -> Result<[u8; HANDLE], u32> {
        self.event(event)?;
        self.driver().sharing_fault(Rung::LegacyEvent, false).map_err(code_of)?;
        Ok([b'e'; HANDLE])
    }

    pub(crate) fn open_event(&mut self, handle: &[u8; HANDLE]) -> Result<*mut c_void, u32> {
        if handle != &[b'e'; HANDLE] {
            return Err(code::INVALID_VALUE);
        }
        self.driver().sharing_fault(Rung::LegacyEvent, true).map_err(code_of)?;
        self.create_event()
    }

    /// Returns the nearest NUMA node of the host.
    pub(crate) fn nearest_node(&self, device: Device) -> Result<i32, u32> {
        let node = self.driver().nearest_node(device).map_err(code_of)?;
        Ok(node.map_or(-1, |node| i32::try_from(node).unwrap_or(-1)))
    }

    /// Returns true if memory of a device can be shared in a way.
    pub(crate) fn offers(&self, device: Device, rung: Rung) -> i32 {
        i32::from(self.driver().offers(device, rung).is_ok())
    }
}
