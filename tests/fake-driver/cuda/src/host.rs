//! Copies, and memory of the host. Its bytes are real, since the program writes and reads them itself, and each buffer
//! has a simulated counterpart. A copy to a device first reads the real bytes into the simulated buffer. A copy from a
//! device is written to the real bytes when it is waited for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;

use fake_machine::traffic;
use hardware::pattern::{FACTOR, TURN_BYTES, pattern, poison};
use hardware::{Buffer, Device, Driver, HardwareError, HostDriver, Sent, Stream};
use model::flow::HostMemory;
use model::placement::Engine;
use sim::{SimDriver, Written};

use crate::state::{Fake, SMALL, code, code_of, current};

/// Buffers of the host, by address.
#[derive(Default)]
pub(crate) struct Host {
    /// Page-locked buffers.
    buffers: BTreeMap<u64, Buffer>,
    /// Pageable buffers that copies have used. The program allocates and frees such memory without telling the driver.
    pageable: RefCell<BTreeMap<u64, Buffer>>,
    /// Copies to the host that nobody has waited for.
    due: RefCell<Vec<Due>>,
}

/// An address, as a call names it.
#[derive(Clone, Copy)]
pub(crate) enum Address {
    Device(u64),
    Host(u64),
}

/// Bytes that the program is to see once it has waited for their copy.
#[derive(Clone, Copy)]
struct Due {
    stream: Stream,
    address: u64,
    buffer: Buffer,
    bytes: u64,
}

/// Stride, in words, at which a buffer is sampled to recognise its contents.
const LOOKED_AT: usize = 509;

/// Returns the bytes at an address of the program's.
fn bytes<'a>(address: u64, bytes: u64) -> &'a mut [u8] {
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the program has passed this address with `bytes` bytes, and waits for the call.
    unsafe { std::slice::from_raw_parts_mut(pointer, bytes as usize) }
}

/// Returns the seed of a pattern by its first word: the steps of `pattern` backwards.
const fn seed_of(word: u64) -> u64 {
    let z = word ^ (word >> 31) ^ (word >> 62);
    let z = z.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = z ^ (z >> 27) ^ (z >> 54);
    let z = z.wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// Returns the contents of memory whose first byte is at an offset of a buffer, at whose beginning patterns begin.
fn held(bytes: &[u8], offset: u64) -> Written<'_> {
    let word =
        |index: usize| bytes[8 * index..8 * index + 8].try_into().map_or(0, u64::from_le_bytes);
    let count = bytes.len() / 8;
    if count == 0 || !offset.is_multiple_of(8) {
        return Written::Bytes(bytes);
    }
    let all = |is: &dyn Fn(u64) -> u64| {
        (0..count)
            .step_by(LOOKED_AT)
            .chain(count.checked_sub(1))
            .all(|index| word(index) == is(index as u64))
    };
    // Copies send two parts of a pattern in turn.
    for origin in [offset, offset + TURN_BYTES] {
        let first = origin / 8;
        let seed_by = |word: u64| seed_of(word) ^ first.wrapping_mul(FACTOR);
        let (seed, value) = (seed_by(word(0)), seed_by(!word(0)));
        if all(&|index| pattern(seed, first + index)) {
            return Written::Pattern(seed, origin);
        }
        if all(&|index| poison(value, first + index)) {
            return Written::Poison(value, origin);
        }
    }
    Written::Bytes(bytes)
}

impl Fake {
    /// Returns the page-locked buffer that has an address, and the offset there.
    fn locked(&self, address: u64) -> Option<(Buffer, u64)> {
        let (begin, buffer) = self.host.buffers.range(..=address).next_back()?;
        let offset = address - begin;
        (offset < buffer.bytes).then_some((*buffer, offset))
    }

    pub(crate) fn is_host(&self, address: u64) -> bool {
        self.locked(address).is_some()
    }

    /// Forgets a page-locked buffer and the copies into it.
    fn forget_host(&mut self, address: u64, buffer: Buffer) {
        self.host.buffers.remove(&address);
        self.host
            .due
            .borrow_mut()
            .retain(|due| due.address < address || due.address - address >= buffer.bytes);
    }

    pub(crate) fn host_allocate(&mut self, address: u64, bytes: u64) -> Result<(), u32> {
        let device = current()?;
        let taken = self.taking_its_time(|driver| {
            driver.host_allocate(device, HostMemory::Pinned, None, bytes)
        })?;
        self.host.buffers.insert(address, taken);
        Ok(())
    }

    /// Frees a buffer, and returns its size in bytes.
    pub(crate) fn host_free(&mut self, address: u64) -> Result<u64, u32> {
        let buffer = self.host.buffers.get(&address).copied().ok_or(code::INVALID_VALUE)?;
        if buffer.host_memory() != Some(HostMemory::Pinned) {
            return Err(code::INVALID_VALUE);
        }
        self.taking_its_time(|driver| driver.free(buffer))?;
        self.forget_host(address, buffer);
        Ok(buffer.bytes)
    }

    pub(crate) fn host_register(&mut self, address: u64, bytes: u64) -> Result<(), u32> {
        if self.is_host(address) || bytes <= SMALL {
            return Err(code::INVALID_VALUE);
        }
        // The memory exists already: only registering takes time.
        let device = current()?;
        let there = self
            .driver()
            .host_allocate(device, HostMemory::Pageable, None, bytes)
            .map_err(code_of)?;
        let taken = self.taking_its_time(|driver| driver.host_register(device, there))?;
        self.host.buffers.insert(address, taken);
        Ok(())
    }

    pub(crate) fn host_unregister(&mut self, address: u64) -> Result<(), u32> {
        let buffer = self.host.buffers.get(&address).copied().ok_or(code::INVALID_VALUE)?;
        if buffer.host_memory() != Some(HostMemory::Registered) {
            return Err(code::INVALID_VALUE);
        }
        let pageable = self.taking_its_time(|driver| driver.host_unregister(buffer))?;
        self.driver().free(pageable).map_err(code_of)?;
        self.forget_host(address, buffer);
        Ok(())
    }

    /// Returns the device address, which under unified addressing is the host's.
    pub(crate) fn host_mapped(&self, address: u64) -> Result<u64, u32> {
        if self.is_host(address) { Ok(address) } else { Err(code::INVALID_VALUE) }
    }

    /// Returns the simulated buffer of some host memory, or the part of it, with the same contents.
    fn beside(&self, address: u64, length: u64, device: Device) -> Result<Buffer, u32> {
        let (buffer, offset) = match self.locked(address) {
            Some((buffer, offset)) if length > buffer.bytes - offset => {
                return Err(code::INVALID_VALUE);
            }
            Some((buffer, 0)) => (buffer, 0),
            Some((buffer, offset)) => {
                let part = self.driver().part(buffer, offset, length);
                (part.map_err(code_of)?, offset)
            }
            None => (self.pageable(address, length, device)?, 0),
        };
        self.driver()
            .host_write(buffer, length, held(bytes(address, length), offset))
            .map_err(code_of)?;
        Ok(buffer)
    }

    /// Returns the simulated buffer of pageable memory.
    fn pageable(&self, address: u64, length: u64, device: Device) -> Result<Buffer, u32> {
        let mut pageable = self.host.pageable.borrow_mut();
        if let Some(buffer) = pageable.get(&address).filter(|buffer| length <= buffer.bytes) {
            return Ok(*buffer);
        }
        // Another buffer was at this address before.
        pageable.remove(&address).map_or(Ok(()), |old| self.driver().free(old)).map_err(code_of)?;
        let taken = self
            .driver()
            .host_allocate(device, HostMemory::Pageable, None, length)
            .map_err(code_of)?;
        pageable.insert(address, taken);
        Ok(taken)
    }

    /// Runs a call on the simulated driver, and takes as long as it took there. Page-locking blocks the host for that
    /// time.
    fn taking_its_time<T>(
        &self,
        run: impl FnOnce(&SimDriver) -> Result<T, HardwareError>,
    ) -> Result<T, u32> {
        let (began, driver) = (self.driver().now(), self.driver());
        let done = run(driver).map_err(code_of)?;
        std::thread::sleep(driver.now().saturating_sub(began));
        Ok(done)
    }

    /// Returns the simulated buffer that begins at an address.
    pub(crate) fn at(&self, address: Address, length: u64, device: Device) -> Result<Buffer, u32> {
        match address {
            Address::Device(address) => self.buffer(address, length),
            Address::Host(address) => self.beside(address, length, device),
        }
    }

    /// Returns an argument of a kernel as an address. Under unified addressing it may be the host's.
    pub(crate) fn unified(&self, address: u64) -> Address {
        if self.is_host(address) { Address::Host(address) } else { Address::Device(address) }
    }

    /// Copies by a kernel. The first launch, of no bytes, warms up and has no effect.
    pub(crate) fn kernel_copy(
        &self,
        to: u64,
        from: u64,
        length: u64,
        stream: *const c_void,
    ) -> Result<(), u32> {
        if length == 0 {
            return self.stream(stream).map(drop);
        }
        let (to, from) = (self.unified(to), self.unified(from));
        self.copy(Engine::Kernel, to, from, length, stream)
    }

    pub(crate) fn copy(
        &self,
        engine: Engine,
        to: Address,
        from: Address,
        length: u64,
        stream: *const c_void,
    ) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        let (source, destination) =
            (self.at(from, length, stream.device)?, self.at(to, length, stream.device)?);
        let copied = self.driver().copy(engine, stream, destination, source, length);
        copied.map_err(code_of)?;
        // The counters do not show a staged copy, nor here a kernel's to and from the host.
        let is_counted = match (source.device(), destination.device()) {
            (Some(of), Some(at)) => self.reaches(of, at),
            _ => engine == Engine::Copy,
        };
        if is_counted {
            let address = |buffer: Buffer| self.address(buffer.device()?);
            traffic::note(traffic::Copy {
                from: address(source),
                to: address(destination),
                bytes: length,
            });
        }
        let Address::Host(address) = to else {
            return Ok(());
        };
        self.due_at(stream, address, destination, length);
        // For pageable memory the call has waited for the copy.
        if self.is_host(address) {
            Ok(())
        } else {
            self.show(|of| (of.device, of.id) == (stream.device, stream.id))
        }
    }

    fn due_at(&self, stream: Stream, address: u64, buffer: Buffer, bytes: u64) {
        let mut all = self.host.due.borrow_mut();
        let same = all
            .iter_mut()
            .find(|due| (due.stream, due.address, due.buffer) == (stream, address, buffer));
        match same {
            Some(due) => due.bytes = bytes.max(due.bytes),
            None => all.push(Due { stream, address, buffer, bytes }),
        }
    }

    /// Writes what copies on these streams have brought so far to the host memory.
    pub(crate) fn show(&self, is_meant: impl Fn(Stream) -> bool) -> Result<(), u32> {
        let due: Vec<_> =
            self.host.due.borrow().iter().filter(|due| is_meant(due.stream)).copied().collect();
        due.iter().try_for_each(|due| self.show_one(due).map_err(code_of))?;
        // Copies on an idle stream are now fully shown and need not be repeated.
        self.host
            .due
            .borrow_mut()
            .retain(|due| !is_meant(due.stream) || self.driver().is_idle(due.stream) != Ok(true));
        Ok(())
    }

    fn show_one(&self, due: &Due) -> Result<(), HardwareError> {
        let into = bytes(due.address, due.bytes);
        let Some(Sent { seed, from, .. }) = self.driver().host_pattern(due.buffer, due.bytes)?
        else {
            return self.driver().host_read(due.buffer, into);
        };
        // The contents of nearly all copies. Written word by word, because the compiler optimises that.
        let (words, rest) = into.as_chunks_mut::<8>();
        words
            .iter_mut()
            .zip(from..)
            .for_each(|(word, index)| *word = pattern(seed, index).to_le_bytes());
        let last = pattern(seed, from + words.len() as u64).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
        Ok(())
    }
}
