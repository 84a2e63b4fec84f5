//! The words of device memory that kernels return, in one allocation of each device.

use cudarc::driver::sys::CUdeviceptr;

use hardware::{HEARD_WORDS, MOST_LISTS, MOST_TALLIES, PatternCheck};

/// Bytes of the words that a talk kernel writes.
const HEARD_BYTES: u64 = HEARD_WORDS as u64 * 8;
/// Place of the words of the first role among those that kernels return. The check kernel's counts come before them.
const HEARD_AT: u64 = 256;
/// Place of the words of a chase.
const HOPS_AT: u64 = HEARD_AT + 2 * HEARD_BYTES;

/// Bytes of the words of a chase, and a reserve.
const HOPS_BYTES: u64 = 256;

/// Returns the address of the words of a chase.
pub(super) const fn hops_at(returned: CUdeviceptr) -> CUdeviceptr {
    returned + HOPS_AT
}

/// Place of the words of single links, three for each list.
const PASSED_AT: u64 = HOPS_AT + HOPS_BYTES;

/// Place of the counts of compared copies.
const TALLIES_AT: u64 = PASSED_AT + 24 * MOST_LISTS as u64;

/// Bytes of all words that the kernels of a device return.
pub(super) const RETURNED_BYTES: usize = TALLIES_AT as usize + 48 * MOST_TALLIES as usize;

/// Counts of the check kernel before it has counted.
pub(super) const NO_COUNTS: [u64; 6] = [0, 0, u64::MAX, 0, 0, u64::MAX];

/// Returns the counts of the check kernel over so many words.
pub(super) fn counts_of(
    [wrong, poisoned, first, stale, copies, _]: [u64; 6],
    words: u64,
) -> PatternCheck {
    let first_wrong = (wrong > 0).then(|| first * 8);
    PatternCheck { words, wrong, poisoned, stale, first_wrong, copies }
}

/// Returns the address of the counts of a number.
pub(super) fn tally_at(returned: CUdeviceptr, tally: u32) -> CUdeviceptr {
    returned + TALLIES_AT + 48 * u64::from(tally.min(MOST_TALLIES - 1))
}

/// Returns the address of the words of single links.
pub(super) const fn passed_at(returned: CUdeviceptr) -> CUdeviceptr {
    returned + PASSED_AT
}

/// Returns the address of the words of a talk kernel.
pub(super) const fn heard_at(returned: CUdeviceptr, answers: bool) -> CUdeviceptr {
    returned + HEARD_AT + if answers { HEARD_BYTES } else { 0 }
}
