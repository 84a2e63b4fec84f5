use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use hardware::pattern::{pattern, poison};

/// The poison of the seed that is sent.
const POISON: u64 = 1;
const MIB: u64 = 1 << 20;
/// Memory of each device.
const FREE: u64 = 1 << 40;

fn allocate(memory: &mut Memory, device: u32, bytes: u64) -> Result<Buffer, MemoryError> {
    let device = Device(device);
    memory.allocate(device, Location::Device(device), bytes, FREE)
}

fn check(memory: &mut Memory, buffer: Buffer, bytes: u64, seed: u64) -> (u64, u64, Option<u64>) {
    let check = memory.check(buffer, bytes, seed.into());
    assert_eq!(check.words, bytes / 8);
    (check.wrong, check.poisoned, check.first_wrong)
}

/// Returns the check of a copy of 512 MiB with a fault.
fn arrives(fault: CopyFault) -> (u64, u64, Option<u64>) {
    let mut memory = Memory::default();
    let [a, b] = pattern_and_poison(&mut memory, 512 * MIB);
    memory.copy(b, a, 512 * MIB, Some(fault));
    check(&mut memory, b, 512 * MIB, 1)
}

#[test]
fn fresh_memory_is_garbage_and_not_poison() {
    let mut memory = Memory::default();
    let [a, b] = [0, 1].map(|device| allocate(&mut memory, device, 64 * MIB).unwrap());
    assert_eq!(check(&mut memory, a, 64 * MIB, 1), (8 * MIB, 0, Some(0)));
    assert_eq!(check(&mut memory, b, 8, 0), (1, 0, Some(0)));
}

/// Returns two buffers: a pattern in one, poison in the other.
fn pattern_and_poison(memory: &mut Memory, bytes: u64) -> [Buffer; 2] {
    let [a, b] = [0, 1].map(|device| allocate(memory, device, bytes).unwrap());
    memory.write(a, bytes, Content::Pattern(1));
    memory.write(b, bytes, Content::Poison(POISON));
    [a, b]
}

#[test]
fn a_copy_moves_what_it_is_told_and_the_rest_keeps_its_poison() {
    let mut memory = Memory::default();
    let [a, b] = pattern_and_poison(&mut memory, 800);
    memory.copy(b, a, 400, None);
    assert_eq!(check(&mut memory, b, 400, 1), (0, 0, None));
    assert_eq!(check(&mut memory, b, 800, 1), (50, 50, Some(400)));
    assert_eq!(check(&mut memory, b, 400, 2), (50, 0, Some(0)));
    memory.copy(b, a, 800, None);
    assert_eq!(check(&mut memory, b, 800, 1), (0, 0, None));
}

#[test]
fn a_word_that_is_written_in_part_is_wrong_and_not_poison() {
    let mut memory = Memory::default();
    let [a, b] = pattern_and_poison(&mut memory, 80);
    memory.copy(b, a, 20, None);
    assert_eq!(check(&mut memory, b, 80, 1), (8, 7, Some(16)));
}

#[test]
fn every_fault_leaves_what_it_should_in_large_buffers() {
    let words = 64 * MIB;
    assert_eq!(arrives(CopyFault::Dropped), (words, words, Some(0)));
    assert_eq!(arrives(CopyFault::Corrupt { words: 3 }), (3, 0, Some(0)));
    assert_eq!(arrives(CopyFault::Corrupt { words: u64::MAX }), (words, 0, Some(0)));
    assert_eq!(arrives(CopyFault::WrongSource), (words, 0, Some(0)));
    for bytes in [4, 8, 2 * MIB, 512 * MIB - 4] {
        assert_eq!(arrives(CopyFault::Shifted { bytes }), (words, 0, Some(0)), "{bytes}");
    }
    assert_eq!(arrives(CopyFault::Shifted { bytes: 512 * MIB }), (0, 0, None));
    for bit in [0, 12_345_678, 512 * MIB * 8 - 1] {
        assert_eq!(arrives(CopyFault::FlippedBit { bit }), (1, 0, Some(bit / 64 * 8)), "{bit}");
    }
    assert_eq!(arrives(CopyFault::MissingTail { bytes: 4 }), (1, 0, Some(512 * MIB - 8)));
    assert_eq!(arrives(CopyFault::MissingTail { bytes: 4096 }), (512, 512, Some(512 * MIB - 4096)));
    assert_eq!(arrives(CopyFault::Stale), (words, words, Some(0)), "nothing was brought before");
}

#[test]
fn what_is_stale_is_what_the_last_copy_to_the_same_device_brought() {
    let mut memory = Memory::default();
    let [a, b, c] = [0, 1, 2].map(|device| allocate(&mut memory, device, 16 * MIB).unwrap());
    memory.write(a, 16 * MIB, Content::Pattern(1));
    memory.write(c, 16 * MIB, Content::Pattern(3));
    memory.copy(b, c, 16 * MIB, None);
    memory.write(b, 16 * MIB, Content::Poison(POISON));
    memory.copy(b, a, 16 * MIB, Some(CopyFault::Stale));
    assert_eq!(check(&mut memory, b, 16 * MIB, 3), (0, 0, None));
    assert_eq!(check(&mut memory, b, 16 * MIB, 1), (2 * MIB, 0, Some(0)));
}

#[test]
fn a_row_of_copies_with_thousands_of_wrong_words_costs_no_more_than_its_last_ones() {
    let mut memory = Memory::default();
    let [a, b] = pattern_and_poison(&mut memory, 512 * MIB);
    let fault = Some(CopyFault::Corrupt { words: 4096 });
    for _ in 0..1000 {
        memory.copy(b, a, 512 * MIB, fault);
        memory.copy(b, a, MIB, fault);
    }
    // The data of a large copy, and the small one on top.
    assert_eq!(memory.stores[&b.id].pending(), 2);
    let (wrong, poisoned, first) = check(&mut memory, b, 512 * MIB, 1);
    // Wrong words of the large copy, except those at the beginning, which the small one's replaced.
    assert_eq!((wrong, poisoned, first), (4096 - 8 + 4096, 0, Some(0)));
}

#[test]
fn memory_is_accounted_for() {
    let mut memory = Memory::default();
    let a = allocate(&mut memory, 0, FREE - 40).unwrap();
    for bytes in [41, u64::MAX] {
        assert_eq!(allocate(&mut memory, 0, bytes), Err(MemoryError::Full));
    }
    memory.free(a).unwrap();
    assert_eq!(memory.free(a), Err(MemoryError::Invalid));
    assert_eq!(memory.usable(a, 1), Err(MemoryError::Invalid));
    let b = allocate(&mut memory, 0, 60).unwrap();
    assert_ne!(a.id, b.id);
    assert_eq!(memory.usable(b, 61), Err(MemoryError::Invalid));
    let part = memory.part(b, 8, 52).unwrap();
    assert_eq!(memory.part(b, 8, 52), Ok(part));
    assert_eq!(memory.part(b, 8, 53), Err(MemoryError::Invalid));
    assert_eq!(memory.part(part, 52, 1), Err(MemoryError::Invalid));
    assert_eq!(memory.free(part), Err(MemoryError::Invalid));
    memory.free(b).unwrap();
    assert_eq!(memory.usable(part, 1), Err(MemoryError::Invalid));
    assert_eq!(memory.taken(Device(0)), 0);
}

#[test]
fn a_part_is_the_same_memory_by_another_name() {
    let mut memory = Memory::default();
    let [a, b] = pattern_and_poison(&mut memory, 800);
    let [from, to] = [a, b].map(|whole| memory.part(whole, 80, 160).unwrap());
    memory.copy(to, from, 160, None);
    // Words 10 to 29 of the pattern are where they belong, and the rest keeps its poison.
    assert_eq!(check(&mut memory, b, 800, 1), (80, 80, Some(0)));
    // The pattern of a part begins at the part.
    assert_eq!(check(&mut memory, to, 160, 1), (20, 0, Some(0)));
    memory.write(to, 160, Content::Pattern(2));
    assert_eq!(check(&mut memory, to, 160, 2), (0, 0, None));
    assert_eq!(check(&mut memory, b, 800, 1), (100, 80, Some(0)));
    // A copy is repeated once something else was written where it was.
    memory.copy(to, from, 160, None);
    assert_eq!(check(&mut memory, b, 800, 1), (80, 80, Some(0)));
    memory.copy(b, a, 800, None);
    assert_eq!(check(&mut memory, b, 800, 1), (0, 0, None));
}

/// An operation on buffers and parts of them, on three devices.
#[derive(Debug, Clone)]
enum Step {
    Write { buffer: usize, bytes: u64, poison: bool, number: u64 },
    Copy { destination: usize, source: usize, bytes: u64, fault: Option<CopyFault> },
}

const SIZES: [(u32, u64); 4] = [(0, 96), (1, 200), (2, 131), (1, 64)];

/// The buffers, then parts of them, some of which overlap: the allocation, the offset there, and the size.
const AREAS: [(usize, u64, u64); 8] = [
    (0, 0, 96),
    (1, 0, 200),
    (2, 0, 131),
    (3, 0, 64),
    (1, 40, 72),
    (1, 104, 64),
    (1, 96, 104),
    (2, 13, 80),
];

fn faults() -> impl Strategy<Value = Option<CopyFault>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(CopyFault::Dropped)),
        1 => (0_u64..30).prop_map(|words| Some(CopyFault::Corrupt { words })),
        1 => Just(Some(CopyFault::WrongSource)),
        1 => (0_u64..300).prop_map(|bytes| Some(CopyFault::Shifted { bytes })),
        1 => (0_u64..2000).prop_map(|bit| Some(CopyFault::FlippedBit { bit })),
        1 => (0_u64..100).prop_map(|bytes| Some(CopyFault::MissingTail { bytes })),
        1 => Just(Some(CopyFault::Stale)),
    ]
}

/// Generates steps, each with a flag: true if the memory is read afterwards.
fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let any_bytes = || 0_u64..=200;
    let write = (0..AREAS.len(), any_bytes(), any::<bool>(), 0_u64..3)
        .prop_map(|(buffer, bytes, poison, number)| Step::Write { buffer, bytes, poison, number });
    let copy = (0..AREAS.len(), 0..AREAS.len(), any_bytes(), faults()).prop_map(
        |(destination, source, bytes, fault)| Step::Copy { destination, source, bytes, fault },
    );
    prop::collection::vec((prop_oneof![write, copy], any::<bool>()), 1..20)
}

/// The same memory in the simplest form: every byte by itself.
struct Plain {
    buffers: Vec<Vec<u8>>,
    brought: HashMap<u32, Vec<u8>>,
}

impl Plain {
    fn new() -> Self {
        let fresh = |place: usize, bytes: u64| {
            (0..bytes).map(move |at| byte(pattern(GARBAGE ^ (place as u64 + 1), at / 8), at))
        };
        let buffers = SIZES
            .iter()
            .enumerate()
            .map(|(place, (_, bytes))| fresh(place, *bytes).collect())
            .collect();
        Self { buffers, brought: HashMap::new() }
    }

    /// Returns bytes of an area.
    fn read(&self, area: usize, bytes: u64) -> Vec<u8> {
        let (buffer, offset, _) = AREAS[area];
        self.buffers[buffer][offset as usize..(offset + bytes) as usize].to_vec()
    }

    fn area_mut(&mut self, area: usize) -> &mut [u8] {
        let (buffer, offset, bytes) = AREAS[area];
        &mut self.buffers[buffer][offset as usize..(offset + bytes) as usize]
    }

    fn copy(&mut self, destination: usize, source: usize, bytes: u64, fault: Option<CopyFault>) {
        let garbage = |count: usize| -> Vec<u8> {
            (0..count as u64).map(|at| byte(pattern(GARBAGE, at / 8), at)).collect()
        };
        let mut data = self.read(source, bytes);
        let area = destination;
        let (destination, (source, offset, _)) = (AREAS[destination].0, AREAS[source]);
        let (to, from) = (SIZES[destination].0, SIZES[source].0);
        match fault {
            Some(CopyFault::Dropped) => return,
            Some(CopyFault::Stale) => match self.brought.get(&to) {
                Some(stale) => data = stale[..stale.len().min(bytes as usize)].to_vec(),
                None => return,
            },
            Some(CopyFault::WrongSource) => {
                // The first buffer of each device has index 0, the other index 1.
                let place = usize::from(source == 3);
                let mut devices: Vec<u32> = (0..3).filter(|device| *device != from).collect();
                devices.sort_by_key(|device| (*device == to, *device));
                let fits =
                    |index: &usize| SIZES[*index].1 >= offset + bytes && *index != destination;
                let of = |device: u32| {
                    (0..4).filter(|index| SIZES[*index].0 == device).collect::<Vec<_>>()
                };
                let best = |device: u32| {
                    of(device)
                        .get(place)
                        .copied()
                        .filter(fits)
                        .or_else(|| of(device).into_iter().find(fits))
                };
                data = match devices.into_iter().find_map(best) {
                    Some(other) => {
                        self.buffers[other][offset as usize..(offset + bytes) as usize].to_vec()
                    }
                    None => garbage(bytes as usize),
                };
            }
            _ => {}
        }
        let target = self.area_mut(area);
        let length = data.len();
        if length == 0 {
            return;
        }
        match fault {
            Some(CopyFault::Shifted { bytes: by }) => {
                for (at, value) in data.iter().enumerate() {
                    target[(at + by as usize) % length] = *value;
                }
            }
            Some(CopyFault::MissingTail { bytes: missing }) => {
                let there = length.saturating_sub(missing as usize);
                target[..there].copy_from_slice(&data[..there]);
            }
            _ => target[..length].copy_from_slice(&data),
        }
        match fault {
            Some(CopyFault::FlippedBit { bit }) => {
                let bit = bit as usize % (length * 8);
                target[bit / 8] ^= 1 << (bit % 8);
            }
            Some(CopyFault::Corrupt { words }) => {
                let all = length / 8;
                let some = all.min(words as usize);
                for word in (0..some).map(|index| index * all / some) {
                    target[word * 8..word * 8 + 8].copy_from_slice(&garbage(8));
                }
            }
            _ => {}
        }
        if to != from {
            self.brought.insert(to, data);
        }
    }

    fn check(&self, area: usize, bytes: u64, seed: u64) -> PatternCheck {
        let held = self.read(area, AREAS[area].2);
        let mut check = PatternCheck { words: bytes / 8, ..PatternCheck::NONE };
        for index in 0..bytes / 8 {
            let at = index as usize * 8;
            let word = u64::from_le_bytes(held[at..at + 8].try_into().unwrap());
            if word != pattern(seed, index) {
                check.wrong += 1;
                check.poisoned += u64::from(word == poison(seed, index));
                check.copies = 1;
                check.first_wrong.get_or_insert(index * 8);
            }
        }
        check
    }
}

fn byte(word: u64, at: u64) -> u8 {
    word.to_le_bytes()[(at % 8) as usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stretches_and_a_plain_model_of_memory_agree(steps in steps()) {
        let mut plain = Plain::new();
        let mut memory = Memory::default();
        let wholes = SIZES.map(|(device, bytes)| allocate(&mut memory, device, bytes).unwrap());
        let areas = AREAS.map(|(buffer, offset, bytes)| match offset {
            0 => wholes[buffer],
            _ => memory.part(wholes[buffer], offset, bytes).unwrap(),
        });
        let last = steps.len() - 1;
        for (place, (step, look)) in steps.into_iter().enumerate() {
            match step {
                Step::Write { buffer, bytes, poison: poisoned, number } => {
                    let bytes = bytes.min(AREAS[buffer].2);
                    let value = |at: u64| if poisoned { poison(number, at / 8) } else { pattern(number, at / 8) };
                    for at in 0..bytes / 8 * 8 {
                        plain.area_mut(buffer)[at as usize] = byte(value(at), at);
                    }
                    let content = if poisoned { Content::Poison(number) } else { Content::Pattern(number) };
                    memory.write(areas[buffer], bytes, content);
                }
                Step::Copy { destination, source, bytes, fault } => {
                    if destination == source {
                        continue;
                    }
                    let bytes = bytes.min(AREAS[destination].2).min(AREAS[source].2);
                    plain.copy(destination, source, bytes, fault);
                    memory.copy(areas[destination], areas[source], bytes, fault);
                }
            }
            if !look && place < last {
                continue;
            }
            for (index, (_, _, bytes)) in AREAS.into_iter().enumerate() {
                let contents = memory.contents(areas[index]).unwrap().into_owned();
                let found: Vec<u8> = (0..bytes).map(|at| contents.byte(at)).collect();
                prop_assert_eq!(&found, &plain.read(index, bytes));
                let mut read = vec![0; bytes as usize];
                memory.read(areas[index], &mut read);
                prop_assert_eq!(&read, &found);
                for seed in [0, 1, 2] {
                    let found = memory.check(areas[index], bytes, seed.into());
                    prop_assert_eq!(found, plain.check(index, bytes, seed));
                }
            }
        }
    }
}
