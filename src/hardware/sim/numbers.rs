//! Maps by small numbers that this program gives itself: nobody chooses them so that they collide, and they are looked up
//! many times for every copy, where the usual hash takes a tenth of the time of a worker.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such numbers.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Numbers>>;

/// A set of such numbers.
pub type Set<K> = HashSet<K, BuildHasherDefault<Numbers>>;

/// Multiplies each number in, as rustc's own tables do (FxHash).
#[derive(Debug, Default, Clone, Copy)]
pub struct Numbers(u64);

impl Hasher for Numbers {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        // A table takes its place from the lowest bits, which the product mixes least.
        self.0.rotate_left(26)
    }
}
