//! Memory of the simulated GPUs: what is taken, and what stands in it. Contents are kept as
//! stretches of 8-byte words that hold the same kind of thing, so that filling, copying and
//! checking are exact for any size.

use std::collections::HashMap;

use crate::hardware::{Buffer, Device, PatternCheck};

/// What a stretch of words holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing that anybody wrote whole: fresh memory, damaged or half-written words.
    Garbage,
    /// This value in every word.
    Poison(u64),
    /// The pattern of this seed, which depends on the offset.
    Pattern(u64),
}

/// A stretch of words, from here to the start of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    start: u64,
    content: Content,
}

#[derive(Debug)]
struct State {
    buffer: Buffer,
    /// Sorted, the first at 0.
    stretches: Vec<Stretch>,
}

/// Why memory cannot be had or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// It is full.
    Full,
    /// There is no such buffer (any more), or it is smaller than that.
    Invalid,
}

/// All buffers of all devices.
#[derive(Debug, Default)]
pub struct Memory {
    taken: HashMap<Device, u64>,
    buffers: HashMap<u32, State>,
    last_id: u32,
}

impl Memory {
    /// Bytes taken on a device.
    pub fn taken(&self, device: Device) -> u64 {
        self.taken.get(&device).copied().unwrap_or(0)
    }

    /// Takes memory on a device that has `free` bytes when nothing is taken.
    pub fn allocate(&mut self, device: Device, bytes: u64, free: u64) -> Result<Buffer, MemoryError> {
        let taken = self.taken(device).checked_add(bytes).filter(|taken| *taken <= free).ok_or(MemoryError::Full)?;
        self.taken.insert(device, taken);
        self.last_id += 1;
        let buffer = Buffer { device, id: self.last_id, bytes };
        let stretches = vec![Stretch { start: 0, content: Content::Garbage }];
        self.buffers.insert(buffer.id, State { buffer, stretches });
        Ok(buffer)
    }

    /// Gives memory back.
    pub fn free(&mut self, buffer: Buffer) -> Result<(), MemoryError> {
        self.usable(buffer, 0)?;
        self.buffers.remove(&buffer.id);
        if let Some(taken) = self.taken.get_mut(&buffer.device) {
            *taken = taken.saturating_sub(buffer.bytes);
        }
        Ok(())
    }

    /// Whether the first `bytes` bytes of a buffer can be used.
    pub fn usable(&self, buffer: Buffer, bytes: u64) -> Result<(), MemoryError> {
        let known = self.buffers.get(&buffer.id).is_some_and(|state| state.buffer == buffer);
        if known && bytes <= buffer.bytes { Ok(()) } else { Err(MemoryError::Invalid) }
    }

    /// Writes the same content to the first `bytes` bytes.
    pub fn write(&mut self, buffer: Buffer, bytes: u64, content: Content) {
        self.replace(buffer, bytes, &[Stretch { start: 0, content }]);
    }

    /// Copies the first `bytes` bytes; this many words, evenly spread, arrive damaged. Copies to
    /// or from a buffer that was given back meanwhile go nowhere.
    pub fn copy(&mut self, destination: Buffer, source: Buffer, bytes: u64, damaged: u64) {
        let Some(from) = self.buffers.get(&source.id) else { return };
        let stretches = from.stretches.clone();
        self.replace(destination, bytes, &stretches);
        let words = bytes / 8;
        for index in 0..damaged.min(words) {
            self.damage(destination, index * (words / damaged.max(1)).max(1));
        }
    }

    /// Compares the first `bytes` bytes with the pattern of a seed.
    pub fn check(&self, buffer: Buffer, bytes: u64, seed: u64, poison: u64) -> PatternCheck {
        let words = bytes / 8;
        let mut check = PatternCheck { words, wrong: 0, poisoned: 0, first_wrong: None };
        let Some(state) = self.buffers.get(&buffer.id) else { return check };
        let ends = state.stretches.iter().skip(1).map(|next| next.start).chain([u64::MAX]);
        for (stretch, end) in state.stretches.iter().zip(ends) {
            let count = end.min(words).saturating_sub(stretch.start);
            if count == 0 || stretch.content == Content::Pattern(seed) {
                continue;
            }
            check.wrong += count;
            check.first_wrong.get_or_insert(stretch.start * 8);
            if stretch.content == Content::Poison(poison) {
                check.poisoned += count;
            }
        }
        check
    }

    /// Replaces the first `bytes` bytes by what these stretches hold. A word that is written in
    /// part holds garbage.
    fn replace(&mut self, buffer: Buffer, bytes: u64, with: &[Stretch]) {
        let Some(state) = self.buffers.get_mut(&buffer.id) else { return };
        let (whole, touched) = (bytes / 8, bytes.div_ceil(8));
        let behind = state.stretches.iter().rev().find(|stretch| stretch.start <= touched).map(|old| old.content);
        let later = state.stretches.iter().filter(|stretch| stretch.start > touched).copied();
        let mut stretches: Vec<_> = with.iter().filter(|stretch| stretch.start < whole).copied().collect();
        if touched > whole {
            stretches.push(Stretch { start: whole, content: Content::Garbage });
        }
        if touched < buffer.bytes.div_ceil(8) {
            stretches.extend(behind.map(|content| Stretch { start: touched, content }));
        }
        stretches.extend(later);
        stretches.dedup_by_key(|stretch| stretch.content);
        state.stretches = stretches;
    }

    /// Turns one word into garbage.
    fn damage(&mut self, buffer: Buffer, word: u64) {
        let Some(state) = self.buffers.get_mut(&buffer.id) else { return };
        let Some(place) = state.stretches.iter().rposition(|stretch| stretch.start <= word) else { return };
        let old = state.stretches[place];
        let next_start = state.stretches.get(place + 1).map_or(u64::MAX, |next| next.start);
        let mut pieces = vec![Stretch { start: word, content: Content::Garbage }];
        if old.start < word {
            pieces.insert(0, old);
        }
        if word + 1 < next_start {
            pieces.push(Stretch { start: word + 1, content: old.content });
        }
        state.stretches.splice(place..=place, pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POISON: u64 = 0xdead_beef;
    const MIB: u64 = 1 << 20;

    fn two(memory: &mut Memory, bytes: u64) -> [Buffer; 2] {
        [0, 1].map(|device| memory.allocate(Device(device), bytes, 1 << 40).unwrap())
    }

    fn check(memory: &Memory, buffer: Buffer, bytes: u64, seed: u64) -> (u64, u64, Option<u64>) {
        let check = memory.check(buffer, bytes, seed, POISON);
        assert_eq!(check.words, bytes / 8);
        (check.wrong, check.poisoned, check.first_wrong)
    }

    #[test]
    fn fresh_memory_is_garbage_and_not_poison() {
        let mut memory = Memory::default();
        let [a, _] = two(&mut memory, 64 * MIB);
        assert_eq!(check(&memory, a, 64 * MIB, 1), (8 * MIB, 0, Some(0)));
    }

    #[test]
    fn a_copy_moves_what_it_is_told_and_the_rest_keeps_its_poison() {
        let mut memory = Memory::default();
        let [a, b] = two(&mut memory, 800);
        memory.write(a, 800, Content::Pattern(1));
        memory.write(b, 800, Content::Poison(POISON));
        memory.copy(b, a, 400, 0);
        assert_eq!(check(&memory, b, 400, 1), (0, 0, None));
        assert_eq!(check(&memory, b, 800, 1), (50, 50, Some(400)));
        assert_eq!(check(&memory, b, 400, 2), (50, 0, Some(0)));
        memory.copy(b, a, 800, 0);
        assert_eq!(check(&memory, b, 800, 1), (0, 0, None));
    }

    #[test]
    fn a_word_that_is_written_in_part_is_wrong() {
        let mut memory = Memory::default();
        let [a, b] = two(&mut memory, 80);
        memory.write(a, 80, Content::Pattern(1));
        memory.write(b, 80, Content::Poison(POISON));
        memory.copy(b, a, 20, 0);
        assert_eq!(check(&memory, b, 80, 1), (8, 7, Some(16)));
    }

    #[test]
    fn damage_is_counted_word_by_word() {
        let mut memory = Memory::default();
        let [a, b] = two(&mut memory, 512 * MIB);
        memory.write(a, 512 * MIB, Content::Pattern(1));
        memory.write(b, 512 * MIB, Content::Poison(POISON));
        memory.copy(b, a, 512 * MIB, 3);
        assert_eq!(check(&memory, b, 512 * MIB, 1), (3, 0, Some(0)));
        memory.copy(b, a, 16, 5);
        assert_eq!(check(&memory, b, 16, 1), (2, 0, Some(0)));
    }

    #[test]
    fn memory_is_accounted_for() {
        let mut memory = Memory::default();
        let a = memory.allocate(Device(0), 60, 100).unwrap();
        assert_eq!(memory.allocate(Device(0), 60, 100), Err(MemoryError::Full));
        assert_eq!(memory.allocate(Device(0), u64::MAX, 100), Err(MemoryError::Full));
        memory.free(a).unwrap();
        assert_eq!(memory.free(a), Err(MemoryError::Invalid));
        assert_eq!(memory.usable(a, 1), Err(MemoryError::Invalid));
        let b = memory.allocate(Device(0), 60, 100).unwrap();
        assert_ne!(a.id, b.id);
        assert_eq!(memory.usable(b, 61), Err(MemoryError::Invalid));
    }
}
