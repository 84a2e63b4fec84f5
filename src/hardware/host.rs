//! Memory of the host: allocating it and page-locking it. The other half of [`Driver`](super::Driver).

use super::{Buffer, Device, HardwareError, PatternCheck};
use model::flow::HostMemory;
use model::units::Bytes;

/// Words that [`HostDriver::host_look`] checks: some 0.1 ms, since none is in a cache.
pub const WORDS_LOOKED_AT: u64 = 1024;

/// Divisor of the available memory: at most 1/20 (5%) is taken.
const SHARE: u64 = 20;
/// Divisor of the memory that the control group has left: at most half is taken. The program itself and the driver need
/// some too, and the kernel ends a process when its group is full.
const GROUP_PART: u64 = 2;

/// The host memory that can be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoom {
    /// Memory that programs could get without swapping.
    pub available: Bytes,
    /// Memory left under the limits of this process's control groups; `None` without a limit.
    pub group_leaves: Option<Bytes>,
    /// Bytes that this process may lock (`ulimit -l`); `None` without a limit.
    pub lock_limit: Option<Bytes>,
}

impl HostRoom {
    /// Returns the most that may be taken in all; `taken` bytes of it are taken already. Never exceeds 5% of the
    /// available memory, nor half of what the control group has left.
    pub fn most(self, taken: u64) -> u64 {
        let of_all = self.available.0.saturating_add(taken) / SHARE;
        let of_group =
            self.group_leaves.map_or(u64::MAX, |left| left.0.saturating_add(taken) / GROUP_PART);
        of_all.min(of_group)
    }
}

/// The memory that the system counts for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident memory, page-locked or not.
    pub resident: Bytes,
}

/// Host memory, which [`Driver`](super::Driver) copies, fills and checks like that of devices.
pub trait HostDriver {
    /// Returns the host memory that can be taken now.
    fn host_room(&self) -> Result<HostRoom, HardwareError>;

    /// Returns the memory that the system counts for this process; `None` if it does not report it.
    fn process_memory(&self) -> Option<ProcessMemory>;

    /// Allocates host memory, on a NUMA node if one is given, and touches every page of it. Page-locks it if `memory`
    /// asks for that, so that every device reaches it. Fails if the memory turns out to be on another node.
    fn host_allocate(
        &self,
        device: Device,
        memory: HostMemory,
        node: Option<u32>,
        bytes: u64,
    ) -> Result<Buffer, HardwareError>;

    /// Page-locks pageable memory. Returns the same buffer, registered.
    fn host_register(&self, device: Device, buffer: Buffer) -> Result<Buffer, HardwareError>;

    /// Unlocks registered memory. Returns the same buffer, pageable.
    fn host_unregister(&self, buffer: Buffer) -> Result<Buffer, HardwareError>;

    /// Copies within the memory of the host on the calling thread, as a program's `memcpy` does.
    fn host_copy(
        &self,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Compares some words, spread over the first `bytes` bytes, with the pattern of `seed`, the last word first. It
    /// reads the words as they are now, so quickly that most data on its way does not arrive meanwhile. The counts
    /// cover only the words that it read.
    fn host_look(
        &self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
    ) -> Result<PatternCheck, HardwareError>;

    /// Returns the number of copies to and from the host that a device reports it makes at the same time as kernels.
    fn copy_engines(&self, device: Device) -> Result<u32, HardwareError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::GIB;

    #[test]
    fn never_more_is_taken_than_a_twentieth_or_than_the_group_leaves() {
        let room = |available, group_leaves: Option<u64>| HostRoom {
            available: Bytes(available),
            group_leaves: group_leaves.map(Bytes),
            lock_limit: None,
        };
        assert_eq!(room(100 * GIB, None).most(0), 5 * GIB);
        // Memory already taken is no longer available, but still counts.
        assert_eq!(room(95 * GIB, None).most(5 * GIB), 5 * GIB);
        assert_eq!(room(100 * GIB, Some(GIB)).most(0), GIB / 2);
        assert_eq!(room(100 * GIB, Some(GIB / 2)).most(GIB / 2), GIB / 2);
        assert_eq!(room(0, Some(0)).most(0), 0);
    }
}
