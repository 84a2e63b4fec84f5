//! Numbers that no two verifications share.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::model::placement::{Engine, Pair, Path, Side};

/// Seeds of a process's verifications.
#[derive(Debug)]
pub(super) struct Seeds {
    /// What sets this process apart from others.
    process: u64,
    /// Verifications up to now.
    count: Cell<u32>,
}

impl Seeds {
    /// Seeds that no other process has, as good as certainly.
    pub(super) fn new() -> Self {
        Self {
            process: RandomState::new().build_hasher().finish(),
            count: Cell::new(0),
        }
    }

    /// A number that no other verification of this process has; never 0, whose first pattern word is
    /// 0, the content of untouched memory.
    pub(super) fn next(&self, pair: Pair, engine: Engine, issuer: Side, path: Path) -> u64 {
        let axes = u64::from(engine == Engine::Kernel)
            | u64::from(issuer == Side::Destination) << 1
            | u64::from(path == Path::Staged) << 2;
        let count = self.count.replace(self.count.get().wrapping_add(1));
        let index = |index: u32| u64::from(index & 0xfff);
        let own =
            u64::from(count) << 32 | index(pair.source) << 20 | index(pair.destination) << 8 | axes;
        match own ^ self.process {
            0 => u64::MAX,
            seed => seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_combinations_share_a_seed_nor_does_one_with_itself() {
        let mut found = std::collections::HashSet::new();
        let (seeds, others) = (Seeds::new(), Seeds::new());
        for pair in Pair::ordered(&(0..72).collect::<Vec<_>>()) {
            for engine in [Engine::Copy, Engine::Kernel] {
                for issuer in [Side::Source, Side::Destination] {
                    for path in [Path::Direct, Path::Staged] {
                        assert!(found.insert(seeds.next(pair, engine, issuer, path)));
                        assert!(found.insert(seeds.next(pair, engine, issuer, path)));
                        assert!(found.insert(others.next(pair, engine, issuer, path)));
                    }
                }
            }
        }
        assert!(!found.contains(&0));
        // Where the count is the same, the rest tells apart.
        let first = |pair| {
            Seeds {
                process: 5,
                count: Cell::new(0),
            }
            .next(pair, Engine::Copy, Side::Source, Path::Direct)
        };
        let pairs = Pair::ordered(&(0..72).collect::<Vec<_>>());
        let distinct: std::collections::HashSet<_> = pairs.iter().copied().map(first).collect();
        assert_eq!(distinct.len(), pairs.len());
    }
}
