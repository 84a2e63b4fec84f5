//! Memory of a simulated host, and copies between it and GPUs.

use serde::{Deserialize, Serialize};

use super::{MachineSpec, Micros, Millis, Rate, Ratio};
use hardware::HostRoom;
use model::units::Bytes;

/// The speeds of copies between host and GPU, and the cost of page-locking.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpeeds {
    /// Share of the narrowest link's rate that a copy engine reaches from page-locked memory to the GPU.
    pub up: Ratio,
    /// The same share from the GPU.
    pub down: Ratio,
    /// Factor of a rate while the opposite direction is busy.
    pub both_ways: Ratio,
    /// Share of the narrowest link's rate that a kernel reaches when it reads page-locked memory.
    pub kernel_up: Ratio,
    /// The same share of a kernel that writes it.
    pub kernel_down: Ratio,
    /// Highest rate of copies from pageable memory, GB/s: the processor moves the bytes to a buffer of the driver's.
    pub pageable_up_gbps: Rate,
    /// Highest rate of copies to pageable memory, GB/s.
    pub pageable_down_gbps: Rate,
    /// Rate at which the processor fills or compares memory, GB/s.
    pub processor_gbps: Rate,
    /// Fixed cost of every copy in a row, microseconds.
    pub each_us: Micros,
    /// Additional cost of the first copy of a row, microseconds.
    pub first_us: Micros,
    /// Time to allocate page-locked memory, milliseconds per GiB.
    pub pin_ms_per_gib: Millis,
    /// Time to free page-locked memory, milliseconds per GiB.
    pub unpin_ms_per_gib: Millis,
    /// Time to page-lock existing memory, milliseconds per GiB.
    pub register_ms_per_gib: Millis,
    /// Time to unlock registered memory, milliseconds per GiB.
    pub unregister_ms_per_gib: Millis,
    /// Time to touch memory for the first time, milliseconds per GiB.
    pub touch_ms_per_gib: Millis,
}

/// One direction between host and GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostWay {
    ToDevice,
    ToHost,
}

impl MachineSpec {
    /// Returns the host memory that can be taken when `taken` bytes are taken already.
    pub fn host_room(&self, taken: u64) -> HostRoom {
        let left = |bytes: Bytes| Bytes(bytes.0.saturating_sub(taken));
        let all = self.numa_nodes.iter().fold(0_u64, |sum, node| sum.saturating_add(node.memory.0));
        // Some memory is always in use.
        let usual = Bytes(all - all / 20);
        let host = &self.host;
        HostRoom {
            available: left(host.memory_available.unwrap_or(usual)),
            group_leaves: host.group_leaves.map(left),
            lock_limit: host.lock_limit,
        }
    }
}
