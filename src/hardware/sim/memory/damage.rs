//! The bytes that arrive of a faulty copy.

use std::ops::Range;

use crate::spec::CopyFault;

/// Most damaged words that are listed one by one. Beyond, they form this many groups, so that a copy with millions of
/// them stays cheap.
const MOST_PLACES: u64 = 4096;

/// Bytes of a line, and the offset of the one that is lost.
const LINE_BYTES: u64 = 128;
const LOST_AT: u64 = 7 * LINE_BYTES;

/// The bit that is flipped of those that flip now and then. Chosen: in the middle of some word.
const FLIPPED: u64 = 1_234_567;

/// A change that a copy makes to the destination, in bytes from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of the source arrive.
    Arrives {
        /// Offset in the source.
        from: u64,
        at: u64,
        bytes: u64,
    },
    /// Bytes arrive that nobody sent.
    Garbage {
        at: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A bit flips.
    Flips {
        /// Number of the bit from the beginning.
        bit: u64,
    },
}

/// Returns true if a copy of this many bytes moves any.
pub(super) const fn moves(fault: Option<CopyFault>, bytes: u64) -> bool {
    bytes > 0 && !matches!(fault, Some(CopyFault::Dropped | CopyFault::Hangs | CopyFault::Crashes))
}

/// Returns the number of bytes that a copy of `bytes` bytes writes, from the beginning of the destination on.
pub(super) fn covers(fault: Option<CopyFault>, bytes: u64) -> u64 {
    match fault {
        Some(CopyFault::MissingTail { bytes: missing }) => bytes.saturating_sub(missing),
        Some(CopyFault::LostLine { .. }) => bytes.min(LOST_AT),
        fault if moves(fault, bytes) => bytes,
        _ => 0,
    }
}

/// Returns the changes that a copy of this many bytes makes, one after the other.
pub(super) fn pieces(fault: Option<CopyFault>, bytes: u64) -> Vec<Piece> {
    let arrives = |from, at, bytes| Piece::Arrives { from, at, bytes };
    let all = arrives(0, 0, bytes);
    match fault {
        fault if !moves(fault, bytes) => Vec::new(),
        Some(CopyFault::Corrupt { words }) => {
            let places = spread(words, bytes / 8);
            let garbage = places.map(|words| Piece::Garbage {
                at: words.start * 8,
                bytes: (words.end - words.start) * 8,
            });
            [all].into_iter().chain(garbage).collect()
        }
        Some(CopyFault::Shifted { bytes: by }) => {
            let by = by % bytes;
            vec![arrives(0, by, bytes - by), arrives(bytes - by, 0, by)]
        }
        Some(CopyFault::BitErrors { .. }) => {
            vec![all, Piece::Flips { bit: FLIPPED % (bytes * 8) }]
        }
        Some(CopyFault::FlippedBit { bit }) => vec![all, Piece::Flips { bit: bit % (bytes * 8) }],
        Some(CopyFault::MissingTail { bytes: missing }) => {
            vec![arrives(0, 0, bytes.saturating_sub(missing))]
        }
        Some(CopyFault::LostLine { .. }) => {
            let after = LOST_AT + LINE_BYTES;
            vec![
                arrives(0, 0, bytes.min(LOST_AT)),
                arrives(after, after, bytes.saturating_sub(after)),
            ]
        }
        // The source of the bytes and the time of their arrival are decided elsewhere.
        _ => vec![all],
    }
}

/// Returns `some` of `of` words, evenly spread, including the first.
fn spread(some: u64, of: u64) -> impl Iterator<Item = Range<u64>> {
    let some = some.min(of);
    let groups = some.min(MOST_PLACES);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "no larger than what is scaled, which has 64 bits"
    )]
    let part = move |of: u64, group: u64| {
        (u128::from(of) * u128::from(group) / u128::from(groups.max(1))) as u64
    };
    let mut free = 0;
    (0..groups).map(move |group| {
        let start = part(of, group).max(free);
        free = start + part(some, group + 1) - part(some, group);
        start..free
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_words_are_as_many_as_are_asked_for_and_no_two_the_same() {
        for of in [1, 2, 3, 5, 7, 100, 4095, 4096, 4097, 10_000, 1 << 26] {
            for some in [0, 1, 2, 3, 5, 99, 4095, 4096, 4097, 9_999, 1 << 25, u64::MAX] {
                let places: Vec<_> = spread(some, of).collect();
                assert_eq!(
                    places.iter().map(|place| place.end - place.start).sum::<u64>(),
                    some.min(of),
                    "{some} of {of}"
                );
                assert!(places.windows(2).all(|two| two[0].end <= two[1].start), "{some} of {of}");
                assert!(places.last().is_none_or(|last| last.end <= of), "{some} of {of}");
                assert!(places.first().is_none_or(|first| first.start == 0));
            }
        }
    }
}
