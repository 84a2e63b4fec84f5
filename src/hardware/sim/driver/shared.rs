//! Memory of other processes. Its contents are in files without a name, so that two real processes share them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::state::State;
use super::{SimDriver, failed};
use crate::spec::SharingFault;
use hardware::{
    Buffer, Device, Driver, ErrorKind, Handle, HardwareError, HostDriver, Location, SharedDriver,
    SharingFacts,
};
use model::flow::HostMemory;
use model::sharing::Rung;

/// Returns the call that fails when memory is handed over, at the side that has it or that opens it.
const fn call_of(rung: Rung, opens: bool) -> &'static str {
    match (rung, opens) {
        (Rung::LegacyMemory, false) => "cuIpcGetMemHandle",
        (Rung::LegacyMemory, true) => "cuIpcOpenMemHandle",
        (Rung::Descriptor, false) => "cuMemExportToShareableHandle",
        (Rung::Descriptor, true) => "cuMemImportFromShareableHandle",
        (Rung::SharedMemory, false) => "fallocate",
        (Rung::SharedMemory, true) => "cuMemHostRegister",
    }
}

/// Microseconds until the other process can use memory, measured on H200 (docs/dev/facts.md, "Memory for several
/// processes"). Chosen for /dev/shm.
const fn open_us(rung: Rung) -> f64 {
    match rung {
        Rung::LegacyMemory => 5800.0,
        Rung::Descriptor => 4300.0,
        Rung::SharedMemory => 400.0,
    }
}

/// Opens a file of another process by its path in /proc.
///
/// # Errors
///
/// There is no such process or file, or the system refuses it.
pub fn fetched(path: &[u8]) -> io::Result<OwnedFd> {
    let path = String::from_utf8_lossy(path).into_owned();
    std::fs::File::options().read(true).write(true).open(path).map(OwnedFd::from)
}

/// A buffer's contents, for another process.
pub struct Published {
    pub file: OwnedFd,
    /// Its path, by which [`fetched`] opens it.
    pub path: Vec<u8>,
}

impl SimDriver {
    /// Fails with the machine's fault of a way to share memory, at the side that opens it or has it.
    pub fn sharing_fault(&self, rung: Rung, opens: bool) -> Result<(), HardwareError> {
        self.state.borrow().sharing_fault(rung, opens)
    }

    /// Lets another process share a buffer. Its file stays open for as long as the driver lives.
    pub fn publish(&self, buffer: Buffer, rung: Rung) -> Result<Published, HardwareError> {
        let no_file = |error: io::Error| {
            HardwareError::new(ErrorKind::Other, format!("no file for shared memory: {error}"))
        };
        let mut state = self.caught_up();
        state.usable_buffer(call_of(rung, false), buffer, 0)?;
        state.sharing_fault(rung, false)?;
        let file = state.memory.share(buffer).map_err(no_file)?;
        let kept = file.try_clone().map_err(no_file)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), kept.as_raw_fd()).into_bytes();
        state.published.push(kept);
        Ok(Published { file, path })
    }

    /// Opens a buffer of another process by its file, for a device of this one.
    pub fn adopt(
        &self,
        device: Device,
        rung: Rung,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        let mut state = self.call(device)?;
        state.sharing_fault(rung, true)?;
        let (location, owner) = match rung {
            Rung::SharedMemory => {
                let location = Location::Host { memory: HostMemory::Registered, node: None };
                (location, crate::memory::host_device(0))
            }
            _ => (Location::Device(device), device),
        };
        let is_wrong = state.spec.sharing_fault(rung, true).is_some_and(|fault| fault.wrong);
        let buffer = if is_wrong {
            // Some other memory.
            state.memory.allocate(owner, location, bytes, u64::MAX).map_err(|_| {
                failed(ErrorKind::OutOfMemory, call_of(rung, true), "out of memory", 2)
            })?
        } else {
            state.memory.adopt(owner, location, bytes, file)
        };
        state.clock_ns += open_us(rung) * 1e3;
        Ok(buffer)
    }

    /// Fails if the file of /dev/shm cannot have this many bytes.
    fn room_in_shared_memory(&self, bytes: u64) -> Result<(), HardwareError> {
        if self.sharing_facts().shared_memory_bytes.is_none_or(|free| free >= bytes) {
            return Ok(());
        }
        let meaning = "fallocate, /dev/shm: No space left on device (os error 28)";
        Err(HardwareError::new(ErrorKind::Other, meaning).with_code(28))
    }
}

impl State {
    /// Fails with the machine's fault of a way to share memory, at one side.
    fn sharing_fault(&self, rung: Rung, opens: bool) -> Result<(), HardwareError> {
        match self.spec.sharing_fault(rung, opens) {
            Some(SharingFault { hangs: true, .. }) => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Some(SharingFault { code: Some(code), meaning, .. }) => {
                Err(failed(ErrorKind::Other, call_of(rung, opens), meaning, *code))
            }
            _ => Ok(()),
        }
    }
}

impl SharedDriver for SimDriver {
    fn share(
        &self,
        device: Device,
        rung: Rung,
        bytes: u64,
    ) -> Result<(Buffer, Handle), HardwareError> {
        let buffer = if rung == Rung::SharedMemory {
            self.room_in_shared_memory(bytes)?;
            self.host_allocate(device, HostMemory::Registered, None, bytes)?
        } else {
            self.allocate(device, bytes)?
        };
        match self.publish(buffer, rung) {
            Ok(Published { file, path }) => {
                let descriptor = (rung == Rung::Descriptor).then_some(file);
                Ok((buffer, Handle { bytes: path, descriptor }))
            }
            Err(error) => {
                // The first error says what went wrong.
                let _ = self.free(buffer);
                Err(error)
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
        self.sharing_fault(rung, true)?;
        let file = handle.descriptor.map_or_else(|| fetched(&handle.bytes), Ok);
        let file = file.map_err(|error| {
            HardwareError::new(ErrorKind::Other, format!("{}: {error}", call_of(rung, true)))
        })?;
        self.adopt(device, rung, file, bytes)
    }

    fn sharing_facts(&self) -> SharingFacts {
        self.state.borrow().spec.sharing_facts()
    }
}
