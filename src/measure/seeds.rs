//! Seeds that no two verifications share.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use model::placement::{Engine, Pair, Path, Side};

/// The seeds of a process's verifications.
#[derive(Debug)]
pub(super) struct Seeds {
    /// Random number that separates this process from others.
    process: u64,
    /// Number of verifications so far.
    count: Cell<u32>,
}

impl Seeds {
    /// Creates seeds that, almost certainly, no other process uses.
    pub(super) fn new() -> Self {
        Self {
            process: RandomState::new().build_hasher().finish(),
            count: Cell::new(0),
        }
    }

    /// Returns a seed that no other verification of this process uses. It is never 0: the first pattern word would be
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
        // With the same count, the other parts still make the seeds distinct.
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
