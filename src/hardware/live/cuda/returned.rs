//! The words of device memory that kernels return, in one allocation of each device.

use cudarc::driver::sys::CUdeviceptr;

use hardware::{HEARD_WORDS, MET_WORDS, MOST_PLACES};

/// Bytes of the words that a talk kernel writes.
const HEARD_BYTES: u64 = HEARD_WORDS as u64 * 8;
/// Place of the words of the first role among those that kernels return. The check kernel's counts come before them.
const HEARD_AT: u64 = 256;
/// Place of the words of a chase.
const HOPS_AT: u64 = HEARD_AT + 2 * HEARD_BYTES;

/// Bytes of the words that a member of a meeting writes.
const MET_BYTES: u64 = MET_WORDS as u64 * 8;
/// Place of the words of the first member.
const MET_AT: u64 = HOPS_AT + 256;

/// Returns the address of the words of a chase.
pub(super) const fn hops_at(returned: CUdeviceptr) -> CUdeviceptr {
    returned + HOPS_AT
}

/// Bytes of all words that the kernels of a device return.
pub(super) const RETURNED_BYTES: usize = (MET_AT + MOST_PLACES as u64 * MET_BYTES) as usize;

/// Returns the address of the words of a talk kernel.
pub(super) const fn heard_at(returned: CUdeviceptr, answers: bool) -> CUdeviceptr {
    returned + HEARD_AT + if answers { HEARD_BYTES } else { 0 }
}

/// Returns the address of the words of the member at a place of its device.
pub(super) fn met_at(returned: CUdeviceptr, place: u32) -> CUdeviceptr {
    returned + MET_AT + u64::from(place.min(MOST_PLACES - 1)) * MET_BYTES
}
