//! Memory of the simulated GPUs: its allocations and their contents, bit-exact.

mod contents;
mod damage;
mod shared;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use hardware::{Buffer, Device, Location, PatternCheck};
use model::flow::HostMemory;
use model::maps::Map;
use model::sharing::Rung;

use super::spec::CopyFault;
pub(crate) use contents::Content;
use contents::{Contents, Stretch};
use damage::Piece;
use shared::Backing;
pub use shared::SHARED_FILE;

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

#[derive(Debug)]
struct State {
    buffer: Buffer,
    /// The device, or the NUMA node, that has the memory.
    owner: Device,
    contents: Contents,
    /// Changes with every write.
    version: u64,
    /// The copy that wrote its contents, if nothing else was written since. Repeating that copy changes nothing.
    origin: Option<Origin>,
    /// Copies into it that are carried out at the next read, since most are overwritten before. A row of copies with
    /// thousands of wrong words each then costs one.
    due: Vec<Arrival>,
    /// The file that has its contents, if other processes share them.
    backing: Option<Backing>,
}

/// A copy that has arrived.
#[derive(Debug)]
struct Arrival {
    data: Vec<Stretch>,
    bytes: u64,
    fault: Option<CopyFault>,
}

impl State {
    /// Drops pending copies that a write of `bytes` bytes from the beginning on would hide.
    fn overwrite(&mut self, bytes: u64) {
        self.due.retain(|arrival| arrival.bytes > bytes);
    }

    /// Carries out the pending copies, after reading what other processes have written.
    fn settle(&mut self) {
        if let Some(backing) = &self.backing {
            let bytes = self.buffer.bytes;
            // A file that cannot be read has nothing new: the check of its bytes reports that.
            if let Ok(Some(contents)) = backing.load(bytes) {
                self.contents = contents;
            }
        }
        let written = !self.due.is_empty();
        for Arrival { data, bytes, fault } in std::mem::take(&mut self.due) {
            let whole = Contents::new(bytes, data);
            let garbage = [Stretch::whole(Content::Pattern(GARBAGE))];
            let pieces = damage::pieces(fault, bytes);
            self.contents
                .write_all(pieces.iter().filter_map(|piece| match *piece {
                    Piece::Arrives { from, at, bytes } => {
                        Some((at, bytes, Cow::Owned(whole.read(from, bytes))))
                    }
                    Piece::Garbage { at, bytes } => Some((at, bytes, Cow::Borrowed(&garbage[..]))),
                    Piece::Flips { .. } => None,
                }));
            for piece in &pieces {
                if let Piece::Flips { bit } = *piece {
                    self.contents.flip(bit);
                }
            }
        }
        if written {
            self.publish();
        }
    }

    /// Shows the contents to the processes that share them.
    fn publish(&mut self) {
        if let Some(backing) = &mut self.backing {
            // Contents that cannot be written are missing on the other side, which its check reports.
            let _ = backing.store(&self.contents);
        }
    }
}

/// The data that determine the result of a copy.
#[derive(Debug, PartialEq)]
struct Origin {
    source: u32,
    version: u64,
    bytes: u64,
    fault: Option<CopyFault>,
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
    buffers: BTreeMap<u32, State>,
    /// Parts of buffers, by the whole's id, offset and length. A part has contents of its own.
    parts: Map<(u32, u64, u64), Buffer>,
    last_id: u32,
    last_version: u64,
    /// The data of the last copy from another device to each device.
    brought: Map<Device, Brought>,
}

/// The data of a copy.
#[derive(Debug)]
struct Brought {
    /// The source buffer, its version, and the number of bytes. `None` if the data came from elsewhere.
    of: Option<(u32, u64, u64)>,
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
        self.taken
            .iter()
            .filter(|(device, _)| is_host(**device))
            .map(|(_, taken)| taken)
            .sum()
    }

    fn settled(&mut self, buffer: Buffer) -> Option<&State> {
        let state = self.buffers.get_mut(&buffer.id)?;
        state.settle();
        Some(state)
    }

    /// Reads the beginning of a buffer.
    pub(crate) fn read(&mut self, buffer: Buffer, into: &mut [u8]) {
        if let Some(state) = self.settled(buffer) {
            state.contents.first(into);
        }
    }

    /// Returns the seed if a buffer begins with `bytes` bytes of a pattern.
    pub(crate) fn pattern(&mut self, buffer: Buffer, bytes: u64) -> Option<u64> {
        self.settled(buffer)?.contents.pattern(bytes)
    }

    /// Returns the NUMA node of a buffer of the host.
    pub(crate) fn node(&self, buffer: Buffer) -> u32 {
        self.owner(buffer).map_or(0, |owner| owner.0 & !HOST)
    }

    /// Changes the way in which a buffer of the host is allocated.
    pub(crate) fn set_memory(&mut self, buffer: Buffer, memory: HostMemory) -> Buffer {
        let buffer = buffer.with_host_memory(memory);
        if let Some(state) = self.buffers.get_mut(&buffer.id) {
            state.buffer = buffer;
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
        self.last_id += 1;
        let buffer = Buffer {
            location,
            id: self.last_id,
            bytes,
        };
        let contents = Contents::new(
            bytes,
            vec![Stretch::whole(Content::Pattern(
                GARBAGE ^ u64::from(buffer.id),
            ))],
        );
        self.buffers.insert(
            buffer.id,
            State {
                buffer,
                owner,
                contents,
                version: 0,
                origin: None,
                due: Vec::new(),
                backing: None,
            },
        );
        buffer
    }

    /// Lets other processes share a buffer, by a descriptor.
    pub(crate) fn share(&mut self, buffer: Buffer, rung: Rung) -> io::Result<OwnedFd> {
        let state = self.buffers.get_mut(&buffer.id);
        let state = state.ok_or_else(|| io::Error::other("no such buffer"))?;
        if state.backing.is_none() {
            state.settle();
            state.backing = Some(Backing::create(rung)?);
            state.publish();
        }
        match &state.backing {
            Some(backing) => backing.descriptor(),
            None => Err(io::Error::other("no such buffer")),
        }
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
        if let Some(state) = self.buffers.get_mut(&buffer.id) {
            state.backing = Some(Backing::opened(file));
        }
        *self.taken.entry(owner).or_default() += bytes;
        buffer
    }

    /// Returns a part of a buffer. A new part has not been written to.
    pub(crate) fn part(
        &mut self,
        whole: Buffer,
        offset: u64,
        bytes: u64,
    ) -> Result<Buffer, MemoryError> {
        let end = offset.checked_add(bytes).ok_or(MemoryError::Invalid)?;
        let owner = self.usable(whole, end)?;
        let key = (whole.id, offset, bytes);
        if let Some(part) = self.parts.get(&key) {
            return Ok(*part);
        }
        let part = self.add(owner, whole.location, bytes);
        self.parts.insert(key, part);
        Ok(part)
    }

    /// Frees memory.
    pub(crate) fn free(&mut self, buffer: Buffer) -> Result<(), MemoryError> {
        let owner = self.usable(buffer, 0)?;
        self.buffers.remove(&buffer.id);
        let (gone, kept) = std::mem::take(&mut self.parts)
            .into_iter()
            .partition(|((whole, ..), _)| *whole == buffer.id);
        self.parts = kept;
        Map::into_values(gone).for_each(|part: Buffer| drop(self.buffers.remove(&part.id)));
        if let Some(taken) = self.taken.get_mut(&owner) {
            *taken = taken.saturating_sub(buffer.bytes);
        }
        Ok(())
    }

    fn owner(&self, buffer: Buffer) -> Option<Device> {
        self.buffers.get(&buffer.id).map(|state| state.owner)
    }

    /// Returns the owner of a buffer; fails if its first `bytes` bytes cannot be used.
    pub(crate) fn usable(&self, buffer: Buffer, bytes: u64) -> Result<Device, MemoryError> {
        self.buffers
            .get(&buffer.id)
            .filter(|state| state.buffer == buffer && bytes <= buffer.bytes)
            .map(|state| state.owner)
            .ok_or(MemoryError::Invalid)
    }

    /// Writes this content to the whole words of the first `bytes` bytes, as a kernel does.
    pub(crate) fn write(&mut self, buffer: Buffer, bytes: u64, content: Content) {
        if let Some(state) = self.buffers.get_mut(&buffer.id) {
            self.last_version += 1;
            (state.version, state.origin) = (self.last_version, None);
            state.overwrite(bytes / 8 * 8);
            state.settle();
            state
                .contents
                .write(0, bytes / 8 * 8, &[Stretch::whole(content)]);
            state.publish();
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
        let (Some(from), Some(to)) = (self.buffers.get(&source.id), self.owner(destination)) else {
            return;
        };
        let origin = Origin {
            source: source.id,
            version: from.version,
            bytes,
            fault,
        };
        let elsewhere = matches!(fault, Some(CopyFault::Stale | CopyFault::WrongSource));
        let of = (!elsewhere).then_some((source.id, from.version, bytes));
        let between_devices = from.owner != to && !is_host(from.owner);
        let is_kept = !between_devices
            || self
                .brought
                .get(&to)
                .is_some_and(|brought| of.is_some() && brought.of == of);
        // Another process may have changed what it shares.
        let shares = from.backing.is_some();
        let made_before = |state: &State| {
            let same = state.origin.as_ref() == Some(&origin);
            same && !elsewhere && !shares && state.backing.is_none()
        };
        // A row repeats the same copy.
        if is_kept && self.buffers.get(&destination.id).is_some_and(made_before) {
            return;
        }
        let Some((data, bytes)) = self.sent(destination, source, bytes, fault) else {
            return;
        };
        let Some(state) = self.buffers.get_mut(&destination.id) else {
            return;
        };
        let covered = damage::covers(fault, bytes);
        if covered > 0 && !made_before(state) {
            self.last_version += 1;
            (state.version, state.origin) = (self.last_version, Some(origin));
            state.overwrite(covered);
            state.due.push(Arrival {
                data: data.clone(),
                bytes,
                fault,
            });
            if state.backing.is_some() {
                state.settle();
            }
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
        match fault {
            Some(CopyFault::Stale) => {
                let brought = self.brought.get(&self.owner(destination)?)?;
                Some((brought.data.clone(), bytes.min(brought.bytes)))
            }
            Some(CopyFault::WrongSource) => {
                self.buffers.values_mut().for_each(State::settle);
                let garbage = || vec![Stretch::whole(Content::Pattern(GARBAGE))];
                let other = self.elsewhere(source, destination, bytes);
                Some((
                    other.map_or_else(garbage, |other| other.contents.read(0, bytes)),
                    bytes,
                ))
            }
            _ => {
                let from = self.buffers.get_mut(&source.id)?;
                from.settle();
                Some((from.contents.read(0, bytes), bytes))
            }
        }
    }

    /// Returns the buffer of another device that a copy from the wrong source reads. It has the same index among that
    /// device's buffers as the right one among its own. A third device is preferred if there is one.
    fn elsewhere(&self, source: Buffer, destination: Buffer, bytes: u64) -> Option<&State> {
        let (from, to) = (self.owner(source)?, self.owner(destination)?);
        let of = |device| {
            self.buffers
                .values()
                .filter(move |state| state.owner == device)
        };
        let place = of(from).position(|state| state.buffer == source)?;
        let fits = |state: &&State| state.buffer.bytes >= bytes && state.buffer != destination;
        let mut devices: Vec<_> = self.buffers.values().map(|state| state.owner).collect();
        devices.retain(|device| *device != from && !is_host(*device));
        devices.sort_by_key(|device| (*device == to, *device));
        devices.dedup();
        let best = |device| {
            of(device)
                .nth(place)
                .filter(fits)
                .or_else(|| of(device).find(fits))
        };
        devices.into_iter().find_map(best)
    }

    /// Compares the first `bytes` bytes with the pattern of a seed.
    pub(crate) fn check(
        &mut self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> PatternCheck {
        let empty = PatternCheck {
            words: bytes / 8,
            wrong: 0,
            poisoned: 0,
            first_wrong: None,
        };
        self.buffers.get_mut(&buffer.id).map_or(empty, |state| {
            state.settle();
            state.contents.check(bytes, seed, poison)
        })
    }
}

#[cfg(test)]
mod tests;
