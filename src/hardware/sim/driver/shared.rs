//! Memory and events of other processes. Their contents are in files without a name, so that two real
//! processes share them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::state::State;
use super::{SimDriver, failed};
use crate::spec::SharingFault;
use hardware::{
    Buffer, Device, Driver, ErrorKind, Event, Handle, HardwareError, Location, SharedDriver,
    SharingFacts,
};
use model::flow::HostMemory;
use model::sharing::Rung;

/// The driver from which on programs share memory of NUMA nodes: 12.6, as NCCL does.
const HOST_NODES_SINCE: (u32, u32) = (12, 6);

/// Returns the call that fails when memory is handed over, at the side that has it or that opens it.
const fn call_of(rung: Rung, opens: bool) -> &'static str {
    match (rung, opens) {
        (Rung::LegacyMemory, false) => "cuIpcGetMemHandle",
        (Rung::LegacyMemory, true) => "cuIpcOpenMemHandle",
        (Rung::LegacyEvent, false) => "cuIpcGetEventHandle",
        (Rung::LegacyEvent, true) => "cuIpcOpenEventHandle",
        (Rung::Fabric | Rung::HostNode, false) => "cuMemCreate",
        (Rung::Descriptor | Rung::Pidfd, false) => "cuMemExportToShareableHandle",
        (Rung::Pidfd, true) => "pidfd_getfd",
        (Rung::SharedMemory, false) => "fallocate",
        (Rung::SharedMemory, true) => "cuMemHostRegister",
        (Rung::Descriptor | Rung::Fabric | Rung::HostNode, true) => {
            "cuMemImportFromShareableHandle"
        }
    }
}

/// Microseconds until the other process can use memory, measured on H200 (docs/dev/facts.md, "Memory for several
/// processes"). Chosen for /dev/shm and NUMA nodes.
const fn open_us(rung: Rung) -> f64 {
    match rung {
        Rung::LegacyMemory => 5800.0,
        Rung::LegacyEvent => 190.0,
        Rung::Descriptor | Rung::Fabric | Rung::HostNode => 4300.0,
        Rung::Pidfd => 4330.0,
        Rung::SharedMemory => 400.0,
    }
}

/// Returns the place of a file of this process, by which another one fetches it.
fn place_of(file: &OwnedFd) -> Vec<u8> {
    format!("{} {}", std::process::id(), file.as_raw_fd()).into_bytes()
}

/// Fetches a file of another process by its place.
///
/// # Errors
///
/// There is no such process or file, or the system refuses it.
pub fn fetched(place: &[u8]) -> io::Result<OwnedFd> {
    let words = String::from_utf8_lossy(place).into_owned();
    let mut numbers =
        words.trim_end_matches('\0').split(' ').map_while(|word| word.parse::<i32>().ok());
    let (process, file) = numbers
        .next()
        .and_then(Pid::from_raw)
        .zip(numbers.next())
        .ok_or_else(|| io::Error::other("this is no handle"))?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    Ok(pidfd_getfd(&process, file, PidfdGetfdFlags::empty())?)
}

impl SimDriver {
    /// Fails with the machine's fault of a way to share memory, at the side that opens it or has it.
    pub fn sharing_fault(&self, rung: Rung, opens: bool) -> Result<(), HardwareError> {
        self.state.borrow().sharing_fault(rung, opens)
    }

    /// Returns the NUMA node of the host nearest to a device.
    pub fn nearest_node(&self, device: Device) -> Result<Option<u32>, HardwareError> {
        let state = self.state.borrow();
        let pci = state.gpu(device)?.pci;
        Ok(state.spec.function(pci).and_then(|function| function.numa_node))
    }
}

impl State {
    /// Fails with the machine's fault of a way to share memory, at one side.
    fn sharing_fault(&self, rung: Rung, opens: bool) -> Result<(), HardwareError> {
        let fault = self.spec.sharing_fault(rung, opens);
        match fault {
            Some(SharingFault { hangs: true, .. }) => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Some(SharingFault { code: Some(code), meaning, .. }) => {
                Err(failed(ErrorKind::Other, call_of(rung, opens), meaning, *code))
            }
            _ => Ok(()),
        }
    }

    /// Lets another process have a buffer's contents. Keeps the file open for as long as the driver lives.
    fn publish(&mut self, buffer: Buffer, rung: Rung) -> Result<OwnedFd, HardwareError> {
        let no_file = |error: io::Error| {
            HardwareError::new(ErrorKind::Other, format!("no file for shared memory: {error}"))
        };
        let gpu = buffer.device().map(|device| self.index(device)).transpose()?;
        let file = self.memory.share(buffer, rung, gpu).map_err(no_file)?;
        let kept = file.try_clone().map_err(no_file)?;
        self.published.push(kept);
        Ok(file)
    }
}

impl SimDriver {
    /// Fails if this machine has no such way to share memory of a device, as CUDA says.
    pub fn offers(&self, device: Device, rung: Rung) -> Result<(), HardwareError> {
        let state = self.state.borrow();
        let architecture = state.gpu(device)?.architecture.clone();
        let lacks = |what: &str| {
            Err(HardwareError::new(
                ErrorKind::Impossible,
                format!("CUDA says that this GPU has no {what}"),
            ))
        };
        match rung {
            Rung::Fabric if !matches!(architecture.as_str(), "Hopper" | "Blackwell") => {
                lacks("fabric handles of memory")
            }
            Rung::HostNode if state.spec.cuda_version() < HOST_NODES_SINCE => {
                lacks("memory of NUMA nodes that is mapped in steps")
            }
            _ => Ok(()),
        }
    }

    /// Lets another process share a buffer, and returns the file with its contents.
    pub fn publish(&self, buffer: Buffer, rung: Rung) -> Result<OwnedFd, HardwareError> {
        let mut state = self.caught_up();
        state.usable_buffer(call_of(rung, false), buffer, 0)?;
        state.sharing_fault(rung, false)?;
        state.publish(buffer, rung)
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
        let location = match rung {
            Rung::SharedMemory => Location::Host { memory: HostMemory::Registered, node: None },
            _ => Location::Device(device),
        };
        let owner = match rung {
            Rung::SharedMemory => crate::memory::host_device(0),
            _ => device,
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

    /// Takes the time to open an event of another process; fails with the machine's fault.
    fn events_between_processes(
        &self,
        device: Device,
        opens: bool,
    ) -> Result<Event, HardwareError> {
        let rung = Rung::LegacyEvent;
        self.state.borrow().sharing_fault(rung, opens)?;
        let event = self.create_event(device)?;
        if opens {
            self.state.borrow_mut().clock_ns += open_us(rung) * 1e3;
        }
        Ok(event)
    }

    /// Fails if fabric handles are refused: without a channel the driver answers that it is not permitted.
    pub fn fabric_allowed(&self) -> Result<(), HardwareError> {
        if self.sharing_facts().imex_channels == Some(0) {
            let meaning = "operation not permitted";
            return Err(failed(ErrorKind::Other, "cuMemCreate", meaning, 800));
        }
        Ok(())
    }

    /// Fails if the file of /dev/shm cannot have this many bytes.
    fn room_in_shared_memory(&self, bytes: u64) -> Result<(), HardwareError> {
        let facts = self.sharing_facts();
        let (call, meaning, code) = match (facts.shared_memory, facts.shared_memory_bytes) {
            (Some(false), _) => ("open, /dev/shm", "No such file or directory (os error 2)", 2),
            (_, Some(free)) if free < bytes => {
                ("fallocate, /dev/shm", "No space left on device (os error 28)", 28)
            }
            _ => return Ok(()),
        };
        Err(HardwareError::new(ErrorKind::Other, format!("{call}: {meaning}")).with_code(code))
    }
}

impl SharedDriver for SimDriver {
    fn share(
        &self,
        device: Device,
        rung: Rung,
        bytes: u64,
    ) -> Result<(Buffer, Handle), HardwareError> {
        self.offers(device, rung)?;
        let buffer = match rung {
            Rung::SharedMemory => {
                use hardware::HostDriver;
                self.room_in_shared_memory(bytes)?;
                self.host_allocate(device, HostMemory::Registered, None, bytes)?
            }
            Rung::Fabric => {
                self.fabric_allowed()?;
                self.allocate(device, bytes)?
            }
            _ => self.allocate(device, bytes)?,
        };
        match self.publish(buffer, rung) {
            Ok(file) => {
                let bytes = place_of(self.state.borrow().published.last().unwrap_or(&file));
                let descriptor = rung.sends_descriptor().then_some(file);
                Ok((buffer, Handle { bytes, descriptor }))
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
        self.state.borrow().sharing_fault(rung, true)?;
        let file = match handle.descriptor {
            Some(file) => Ok(file),
            None => fetched(&handle.bytes),
        };
        let file = file.map_err(|error| {
            HardwareError::new(ErrorKind::Other, format!("{}: {error}", call_of(rung, true)))
        })?;
        self.adopt(device, rung, file, bytes)
    }

    fn share_event(&self, device: Device) -> Result<(Event, Handle), HardwareError> {
        let event = self.events_between_processes(device, false)?;
        Ok((event, Handle { bytes: b"event".to_vec(), descriptor: None }))
    }

    fn open_event(&self, device: Device, _handle: Handle) -> Result<Event, HardwareError> {
        self.events_between_processes(device, true)
    }

    fn sharing_facts(&self) -> SharingFacts {
        self.state.borrow().spec.sharing_facts()
    }
}
