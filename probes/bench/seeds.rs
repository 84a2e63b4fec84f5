//! Seeds that no two fills share, flags that no two talks share, and what a fill leaves in a buffer.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The seeds of a process's fills.
#[derive(Debug)]
pub(crate) struct Seeds {
    /// Random number that separates this process from others.
    process: u64,
    /// Number of fills so far.
    count: Cell<u64>,
    /// The first flag that no talk had.
    flag: Cell<u32>,
}

impl Seeds {
    /// Creates seeds that, almost certainly, no other process uses.
    pub(crate) fn new() -> Self {
        let random = || RandomState::new().build_hasher().finish();
        #[allow(clippy::cast_possible_truncation, reason = "any number will do")]
        let flag = random() as u32;
        Self { process: random(), count: Cell::new(0), flag: Cell::new(flag) }
    }

    /// Returns the number from which the flags of a talk count. Neither it nor the `count` numbers after it were those of an
    /// earlier talk of this process, whose flags are still in the mailboxes.
    pub(crate) fn flags(&self, count: u32) -> u32 {
        let base = self.flag.get();
        self.flag.set(base.wrapping_add(count.saturating_add(1)));
        base
    }

    /// Returns a seed that no other fill of this process uses. It is never 0: the first pattern word would be 0, the
    /// content of untouched memory.
    pub(crate) fn next(&self) -> u64 {
        let count = self.count.replace(self.count.get() + 1);
        // Counts in the upper half: nearby seeds of two processes are then far apart.
        match self.process ^ count.rotate_right(32) {
            0 => u64::MAX,
            seed => seed,
        }
    }
}

/// The pattern that a buffer holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) seed: u64,
    /// Bytes from the beginning on. A buffer of the host is filled as far as a copy needs.
    pub(crate) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fills_share_a_seed_nor_do_two_processes() {
        let mut found = std::collections::HashSet::new();
        for seeds in [Seeds::new(), Seeds::new()] {
            assert!((0..10_000).all(|_| found.insert(seeds.next())));
        }
        let seeds = Seeds { process: 1 << 32, count: Cell::new(1), flag: Cell::new(0) };
        assert_eq!(seeds.next(), u64::MAX, "a seed is never 0");
    }

    #[test]
    fn no_flag_of_a_talk_is_one_of_an_earlier_talk() {
        let seeds = Seeds::new();
        let mut found = std::collections::HashSet::new();
        for rounds in [2000, 300, 1, 0, 300] {
            let base = seeds.flags(rounds);
            assert!((0..=rounds).all(|round| found.insert(base.wrapping_add(round))));
        }
    }
}
