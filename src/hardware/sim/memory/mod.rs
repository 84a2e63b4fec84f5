//! Memory of the simulated GPUs: its allocations and their contents, bit-exact.

mod contents;
mod damage;
mod shared;
mod store;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use hardware::{Buffer, Device, Location, PatternCheck, Sent};
use model::flow::HostMemory;
use model::maps::Map;

use super::spec::CopyFault;
pub(crate) use contents::Content;
use contents::{Contents, Stretch};
use shared::Backing;
use store::{Origin, Range, Store};

/// Seed of the pattern in memory that nobody wrote to, and of garbage that arrives. No caller's seed has a reason to be
/// near.
const GARBAGE: u64 = 0x6b8f_3d1a_94c7_25e0;

/// Device numbers from this one on are NUMA nodes of the host; their memory is stored with that of the devices.
const HOST: u32 = 1 << 31;

/// Returns the device that stands for the memory of a NUMA node.
pub(crate) const fn host_device(node: u32) -> Device {
    Device(HOST | node)
}

const fn is_host(device: Device) -> bool {
    device.0 >= HOST
}

/// A buffer, and where its bytes are.
#[derive(Debug)]
struct Area {
    buffer: Buffer,
    /// The device, or the NUMA node, that has the memory.
    owner: Device,
    /// The number of the allocation that it is, or is a part of.
    store: u32,
    /// Its beginning there.
    offset: u64,
    /// Its address in the memory of its owner.
    at: u64,
}

impl Area {
    /// Returns the range of its first `bytes` bytes.
    const fn first(&self, bytes: u64) -> Range {
        Range { at: self.offset, bytes }
    }
}

/// The reason why memory cannot be allocated or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryError {
    Full,
    /// There is no such buffer (any more), or it is too small.
    Invalid,
}

/// All buffers of all devices.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    taken: Map<Device, u64>,
    areas: BTreeMap<u32, Area>,
    /// The allocations.
    stores: BTreeMap<u32, Store>,
    /// Parts of allocations, by the allocation's number, offset and length.
    parts: Map<(u32, u64, u64), Buffer>,
    last_id: u32,
    last_version: u64,
    /// The data of the last copy from another device to each device.
    brought: Map<Device, Brought>,
}

/// The data of a copy.
#[derive(Debug)]
struct Brought {
    /// The store that was read, the offset there, its version, and the number of bytes. `None` if the data came from
    /// elsewhere.
    of: Option<((u32, u64), u64, u64)>,
    data: Vec<Stretch>,
    bytes: u64,
}

impl Memory {
    /// Returns the bytes allocated on a device.
    pub(crate) fn taken(&self, device: Device) -> u64 {
        self.taken.get(&device).copied().unwrap_or(0)
    }

    /// Returns the bytes allocated on the host.
    pub(crate) fn taken_on_host(&self) -> u64 {
        self.taken.iter().filter(|(device, _)| is_host(**device)).map(|(_, taken)| taken).sum()
    }

    /// Returns the number of the buffer that was allocated, of which this one may be a part.
    pub(crate) fn whole(&self, buffer: Buffer) -> u32 {
        self.areas.get(&buffer.id).map_or(buffer.id, |area| area.store)
    }

    /// Returns the contents of a buffer.
    fn contents(&mut self, buffer: Buffer) -> Option<Cow<'_, Contents>> {
        let area = self.areas.get(&buffer.id)?;
        let contents = self.stores.get_mut(&area.store)?.settled();
        // Most buffers are whole, and their contents are not copied.
        Some(if area.buffer.bytes == contents.bytes() {
            Cow::Borrowed(contents)
        } else {
            let part = contents.read(area.offset, area.buffer.bytes);
            Cow::Owned(Contents::new(area.buffer.bytes, part))
        })
    }

    /// Reads the beginning of a buffer.
    pub(crate) fn read(&mut self, buffer: Buffer, into: &mut [u8]) {
        if let Some(contents) = self.contents(buffer) {
            contents.first(into);
        }
    }

    /// Returns the seed if a buffer begins with `bytes` bytes of a pattern.
    pub(crate) fn pattern(&mut self, buffer: Buffer, bytes: u64) -> Option<Sent> {
        self.contents(buffer)?.pattern(bytes)
    }

    /// Returns the NUMA node of a buffer of the host.
    pub(crate) fn node(&self, buffer: Buffer) -> u32 {
        self.owner(buffer).map_or(0, |owner| owner.0 & !HOST)
    }

    /// Changes the way in which a buffer of the host is allocated. Its parts are gone then.
    pub(crate) fn set_memory(&mut self, buffer: Buffer, memory: HostMemory) -> Buffer {
        let buffer = buffer.with_host_memory(memory);
        self.forget_parts(buffer.id);
        if let Some(area) = self.areas.get_mut(&buffer.id) {
            area.buffer = buffer;
        }
        buffer
    }

    /// Allocates memory of a device or NUMA node that has `free` bytes when nothing is allocated.
    pub(crate) fn allocate(
        &mut self,
        owner: Device,
        location: Location,
        bytes: u64,
        free: u64,
    ) -> Result<Buffer, MemoryError> {
        let taken = self
            .taken(owner)
            .checked_add(bytes)
            .filter(|taken| *taken <= free)
            .ok_or(MemoryError::Full)?;
        self.taken.insert(owner, taken);
        Ok(self.add(owner, location, bytes))
    }

    fn add(&mut self, owner: Device, location: Location, bytes: u64) -> Buffer {
        let garbage = GARBAGE ^ u64::from(self.last_id + 1);
        let buffer = self.name(owner, location, bytes, None);
        let contents = Contents::new(bytes, vec![Stretch::whole(Content::Pattern(garbage))]);
        self.stores.insert(buffer.id, Store::new(contents));
        buffer
    }

    /// Names a buffer: an allocation, or a part of one from an offset on.
    fn name(
        &mut self,
        owner: Device,
        location: Location,
        bytes: u64,
        part: Option<(u32, u64)>,
    ) -> Buffer {
        self.last_id += 1;
        let buffer = Buffer { location, id: self.last_id, bytes };
        let (store, offset) = part.unwrap_or((buffer.id, 0));
        let whole = self.areas.get(&store).map(|whole| whole.at + offset);
        let at = whole.unwrap_or_else(|| self.taken(owner).saturating_sub(bytes));
        let area = Area { buffer, owner, store, offset, at };
        self.areas.insert(buffer.id, area);
        buffer
    }

    fn store_of(&mut self, buffer: Buffer) -> Option<&mut Store> {
        let store = self.areas.get(&buffer.id)?.store;
        self.stores.get_mut(&store)
    }

    /// Lets other processes share a buffer of a GPU, or of the host, by a descriptor.
    pub(crate) fn share(&mut self, buffer: Buffer) -> io::Result<OwnedFd> {
        let none = || io::Error::other("no such buffer");
        let store = self.store_of(buffer).ok_or_else(none)?;
        if store.backing().is_none() {
            store.lend(Backing::create()?);
        }
        store.backing().ok_or_else(none)?.descriptor()
    }

    /// Adds a buffer whose contents another process has. It counts as taken here, since freeing it gives that back.
    pub(crate) fn adopt(
        &mut self,
        owner: Device,
        location: Location,
        bytes: u64,
        file: OwnedFd,
    ) -> Buffer {
        let buffer = self.add(owner, location, bytes);
        if let Some(store) = self.store_of(buffer) {
            store.adopt(Backing::opened(file));
        }
        *self.taken.entry(owner).or_default() += bytes;
        buffer
    }

    /// Returns a part of a buffer: the same bytes by another name.
    pub(crate) fn part(
        &mut self,
        whole: Buffer,
        offset: u64,
        bytes: u64,
    ) -> Result<Buffer, MemoryError> {
        let end = offset.checked_add(bytes).ok_or(MemoryError::Invalid)?;
        let owner = self.usable(whole, end)?;
        let area = self.areas.get(&whole.id).ok_or(MemoryError::Invalid)?;
        let (store, offset) = (area.store, area.offset + offset);
        let key = (store, offset, bytes);
        if let Some(part) = self.parts.get(&key) {
            return Ok(*part);
        }
        let part = self.name(owner, whole.location, bytes, Some((store, offset)));
        self.parts.insert(key, part);
        Ok(part)
    }

    /// Returns the address of a buffer in its owner's memory.
    pub(crate) fn address(&self, buffer: Buffer) -> u64 {
        self.areas.get(&buffer.id).map_or(0, |area| area.at)
    }

    /// Returns the bytes at an address of a device, if they are allocated.
    pub(crate) fn buffer_at(&mut self, owner: Device, address: u64, bytes: u64) -> Option<Buffer> {
        let has = |area: &&Area| {
            let end = area.at + area.buffer.bytes;
            area.owner == owner && area.offset == 0 && (area.at..end).contains(&address)
        };
        let (whole, at) = self.areas.values().find(has).map(|area| (area.buffer, area.at))?;
        self.part(whole, address - at, bytes).ok()
    }

    fn forget_parts(&mut self, store: u32) {
        self.parts.retain(|(whole, ..), part| {
            let is_other = *whole != store;
            if !is_other {
                self.areas.remove(&part.id);
            }
            is_other
        });
    }

    /// Frees memory, with its parts.
    pub(crate) fn free(&mut self, buffer: Buffer) -> Result<(), MemoryError> {
        let owner = self.usable(buffer, 0)?;
        // A part is not freed by itself.
        self.stores.remove(&buffer.id).ok_or(MemoryError::Invalid).map(drop)?;
        self.areas.remove(&buffer.id);
        self.forget_parts(buffer.id);
        if let Some(taken) = self.taken.get_mut(&owner) {
            *taken = taken.saturating_sub(buffer.bytes);
        }
        Ok(())
    }

    fn owner(&self, buffer: Buffer) -> Option<Device> {
        self.areas.get(&buffer.id).map(|area| area.owner)
    }

    /// Returns the owner of a buffer; fails if its first `bytes` bytes cannot be used.
    pub(crate) fn usable(&self, buffer: Buffer, bytes: u64) -> Result<Device, MemoryError> {
        self.areas
            .get(&buffer.id)
            .filter(|area| area.buffer == buffer && bytes <= buffer.bytes)
            .map(|area| area.owner)
            .ok_or(MemoryError::Invalid)
    }

    /// Writes this content to the whole words of the first `bytes` bytes, as a kernel does.
    pub(crate) fn write(&mut self, buffer: Buffer, bytes: u64, content: Content) {
        self.write_from(buffer, bytes, content, 0);
    }

    /// Writes content from the byte `origin` of it on.
    pub(crate) fn write_from(&mut self, buffer: Buffer, bytes: u64, content: Content, origin: u64) {
        let Some(area) = self.areas.get(&buffer.id) else {
            return;
        };
        let to = area.first(bytes / 8 * 8);
        if let Some(store) = self.stores.get_mut(&area.store) {
            self.last_version += 1;
            store.write(to, content, origin, self.last_version);
        }
    }

    /// Copies the first `bytes` bytes, with or without a fault. Copies to or from a buffer that was freed meanwhile
    /// have no effect.
    pub(crate) fn copy(
        &mut self,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
        fault: Option<CopyFault>,
    ) {
        let (Some(from), Some(area)) =
            (self.areas.get(&source.id), self.areas.get(&destination.id))
        else {
            return;
        };
        let (to, store, first) = (area.owner, area.store, area.first(bytes));
        let place = (from.store, from.offset);
        let between_devices = from.owner != to && !is_host(from.owner);
        let Some(from) = self.stores.get(&from.store) else {
            return;
        };
        let origin = Origin { source: place, version: from.version(), to: first, fault };
        let elsewhere = matches!(fault, Some(CopyFault::Stale | CopyFault::WrongSource));
        let of = (!elsewhere).then_some((place, from.version(), bytes));
        let is_kept = !between_devices
            || self.brought.get(&to).is_some_and(|brought| of.is_some() && brought.of == of);
        // Another process may have changed what it shares.
        let shares = from.backing().is_some();
        let made_before = !elsewhere
            && !shares
            && self.stores.get(&store).is_some_and(|store| store.has(&origin));
        // A row repeats the same copy.
        if is_kept && made_before {
            return;
        }
        let Some((data, bytes)) = self.sent(destination, source, bytes, fault) else {
            return;
        };
        let covered = damage::covers(fault, bytes);
        if covered > 0
            && !made_before
            && let Some(store) = self.stores.get_mut(&store)
        {
            self.last_version += 1;
            let arrives = (data.clone(), Range { bytes, ..first });
            store.arrive(origin, arrives, covered, self.last_version);
        }
        if between_devices && damage::moves(fault, bytes) {
            self.brought.insert(to, Brought { of, data, bytes });
        }
    }

    /// Returns the data that a copy sends, and its length.
    fn sent(
        &mut self,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
        fault: Option<CopyFault>,
    ) -> Option<(Vec<Stretch>, u64)> {
        let (store, offset) = match fault {
            Some(CopyFault::Stale) => {
                let brought = self.brought.get(&self.owner(destination)?)?;
                return Some((brought.data.clone(), bytes.min(brought.bytes)));
            }
            Some(CopyFault::WrongSource) => {
                let Some(other) = self.elsewhere(source, destination, bytes) else {
                    return Some((vec![Stretch::whole(Content::Pattern(GARBAGE))], bytes));
                };
                other
            }
            _ => {
                let from = self.areas.get(&source.id)?;
                (from.store, from.offset)
            }
        };
        let from = self.stores.get_mut(&store)?.settled();
        Some((from.read(offset, bytes), bytes))
    }

    /// Returns the memory of another device that a copy from the wrong source reads. It has the same index among that
    /// device's allocations as the right one among its own, and the same offset there. A third device is preferred if there
    /// is one.
    fn elsewhere(&self, source: Buffer, destination: Buffer, bytes: u64) -> Option<(u32, u64)> {
        let (from, to) = (self.areas.get(&source.id)?, self.areas.get(&destination.id)?);
        let wholes = || self.areas.values().filter(|area| area.store == area.buffer.id);
        let of = |device| wholes().filter(move |area| area.owner == device);
        let place = of(from.owner).position(|area| area.store == from.store)?;
        let fits = |area: &&Area| {
            area.buffer.bytes >= from.offset.saturating_add(bytes) && area.store != to.store
        };
        let mut devices: Vec<_> = wholes().map(|area| area.owner).collect();
        devices.retain(|device| *device != from.owner && !is_host(*device));
        devices.sort_by_key(|device| (*device == to.owner, *device));
        devices.dedup();
        let best = |device| of(device).nth(place).filter(fits).or_else(|| of(device).find(fits));
        let other = devices.into_iter().find_map(best)?;
        Some((other.store, from.offset))
    }

    /// Compares the first `bytes` bytes with what was sent.
    pub(crate) fn check(&mut self, buffer: Buffer, bytes: u64, sent: Sent) -> PatternCheck {
        self.check_poison(buffer, bytes, sent, 0)
    }

    /// Compares the first `bytes` bytes with what was sent, and poisons them as copies that are compared are.
    pub(crate) fn compare(&mut self, buffer: Buffer, bytes: u64, sent: Sent) -> PatternCheck {
        let found = self.check_poison(buffer, bytes, sent, sent.from);
        self.write_from(buffer, bytes, Content::Poison(sent.seed), sent.from * 8);
        found
    }

    fn check_poison(&mut self, buffer: Buffer, bytes: u64, sent: Sent, from: u64) -> PatternCheck {
        let empty = PatternCheck { words: bytes / 8, ..PatternCheck::NONE };
        self.contents(buffer).map_or(empty, |contents| contents.check(bytes, sent, from))
    }
}

#[cfg(test)]
mod tests;
