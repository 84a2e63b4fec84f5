//! Memory of the host: taking it, page-locking it, copying from and to it. The other half of
//! [`Driver`](super::Driver).

use super::{Buffer, Device, HardwareError, PatternCheck, Stream};
use crate::model::flow::HostMemory;
use crate::model::units::Bytes;

/// A buffer in the memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostBuffer {
    /// Numbered by the driver room.
    pub id: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// How it was allocated.
    pub memory: HostMemory,
}

/// Words that [`HostDriver::host_look`] looks at: some 0.1 ms, since none is in a cache.
pub const WORDS_LOOKED_AT: u64 = 1024;

/// Share of the available memory that is taken at most, as a divisor: 5%.
const SHARE: u64 = 20;
/// Of what a control group leaves, one part in so many is taken at most: the program itself and the driver need
/// some too, and a group that is full ends a process.
const GROUP_PART: u64 = 2;

/// How much of the host's memory is to be had now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoom {
    /// Memory that programs could get without swapping.
    pub available: Bytes,
    /// What the limits of this process's control groups leave; none where there is no limit.
    pub group_leaves: Option<Bytes>,
    /// Bytes that this process may lock (`ulimit -l`); none where there is no limit.
    pub lock_limit: Option<Bytes>,
}

impl HostRoom {
    /// The most that may be taken in all, where `taken` of it are taken already: never more than 5% of what is
    /// available, nor than the control group leaves.
    pub fn most(self, taken: u64) -> u64 {
        let of_all = self.available.0.saturating_add(taken) / SHARE;
        let of_group = self
            .group_leaves
            .map_or(u64::MAX, |left| left.0.saturating_add(taken) / GROUP_PART);
        of_all.min(of_group)
    }
}

/// What the system counts as memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident, page-locked or not.
    pub resident: Bytes,
}

/// Host memory, and copies between it and devices. Calls that enqueue return before the work is done, but for those
/// with pageable memory, which the driver copies through a buffer of its own: these hold the host.
pub trait HostDriver {
    /// How much of the host's memory is to be had now.
    fn host_room(&self) -> Result<HostRoom, HardwareError>;

    /// What the system counts as memory of this process; none where it does not tell.
    fn process_memory(&self) -> Option<ProcessMemory>;

    /// Takes host memory, on a NUMA node where one is given, touches every page of it, and page-locks it where that
    /// is asked for, so that every device reaches it. An error where the memory turns out to be on another node.
    fn host_allocate(
        &self,
        device: Device,
        memory: HostMemory,
        node: Option<u32>,
        bytes: u64,
    ) -> Result<HostBuffer, HardwareError>;

    /// Gives it back. Everything that uses it must have ended.
    fn host_free(&self, buffer: HostBuffer) -> Result<(), HardwareError>;

    /// Page-locks pageable memory. The buffer is the same one, registered.
    fn host_register(
        &self,
        device: Device,
        buffer: HostBuffer,
    ) -> Result<HostBuffer, HardwareError>;

    /// Unlocks registered memory. The buffer is the same one, pageable.
    fn host_unregister(&self, buffer: HostBuffer) -> Result<HostBuffer, HardwareError>;

    /// Enqueues a copy of the first `bytes` bytes from the host to the stream's device, by a copy engine.
    fn copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Enqueues a copy of the first `bytes` bytes from the stream's device to the host, by a copy engine.
    fn copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// [`HostDriver::copy_to_device`] by a kernel, over memory that is page-locked and so mapped.
    fn kernel_copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// [`HostDriver::copy_to_host`] by a kernel, over memory that is page-locked and so mapped.
    fn kernel_copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Fills the first `bytes` bytes with the pattern of `seed`, by the processor.
    fn host_fill(&self, buffer: HostBuffer, bytes: u64, seed: u64) -> Result<(), HardwareError>;

    /// Fills the first `bytes` bytes with poison, by the processor.
    fn host_poison(&self, buffer: HostBuffer, bytes: u64, value: u64) -> Result<(), HardwareError>;

    /// Compares the first `bytes` bytes with the pattern of `seed`, by the processor, as they are now: what is still
    /// on its way is not waited for.
    fn host_check(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> Result<PatternCheck, HardwareError>;

    /// Looks at some words all over the first `bytes` bytes, the last one first, as they are now, and compares them
    /// with the pattern of `seed`: so quickly that most of what is on its way has not arrived meanwhile. What it
    /// counts are the words that it looked at.
    fn host_look(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> Result<PatternCheck, HardwareError>;

    /// Copies to and from the host that a device says it makes at the same time as kernels.
    fn copy_engines(&self, device: Device) -> Result<u32, HardwareError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::GIB;

    #[test]
    fn never_more_is_taken_than_a_twentieth_or_than_the_group_leaves() {
        let room = |available, group_leaves: Option<u64>| HostRoom {
            available: Bytes(available),
            group_leaves: group_leaves.map(Bytes),
            lock_limit: None,
        };
        assert_eq!(room(100 * GIB, None).most(0), 5 * GIB);
        // What is taken is no longer available, and counts all the same.
        assert_eq!(room(95 * GIB, None).most(5 * GIB), 5 * GIB);
        assert_eq!(room(100 * GIB, Some(GIB)).most(0), GIB / 2);
        assert_eq!(room(100 * GIB, Some(GIB / 2)).most(GIB / 2), GIB / 2);
        assert_eq!(room(0, Some(0)).most(0), 0);
    }
}
