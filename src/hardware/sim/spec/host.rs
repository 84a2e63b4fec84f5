//! Memory of a simulated host, and copies between it and GPUs.

use serde::{Deserialize, Serialize};

use super::{MachineSpec, defaults};
use hardware::HostRoom;
use model::units::Bytes;

/// The speeds of copies between host and GPU, and the cost of page-locking.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpeeds {
    /// Share of the narrowest link's rate that a copy engine reaches from page-locked memory to the GPU.
    pub up: f64,
    /// The same share from the GPU.
    pub down: f64,
    /// Factor of a rate while the opposite direction is busy.
    pub both_ways: f64,
    /// Share of the narrowest link's rate that a kernel reaches when it reads page-locked memory.
    pub kernel_up: f64,
    /// The same share of a kernel that writes it.
    pub kernel_down: f64,
    /// Highest rate of copies from pageable memory, GB/s: the processor moves the bytes to a buffer of the driver's.
    pub pageable_up_gbps: f64,
    /// Highest rate of copies to pageable memory, GB/s.
    pub pageable_down_gbps: f64,
    /// Rate at which the processor fills or compares memory, GB/s.
    pub processor_gbps: f64,
    /// Fixed cost of every copy in a row, microseconds.
    pub each_us: f64,
    /// Additional cost of the first copy of a row, microseconds.
    pub first_us: f64,
    /// Time to allocate page-locked memory, milliseconds per GiB.
    pub pin_ms_per_gib: f64,
    /// Time to free page-locked memory, milliseconds per GiB.
    pub unpin_ms_per_gib: f64,
    /// Time to page-lock existing memory, milliseconds per GiB.
    pub register_ms_per_gib: f64,
    /// Time to unlock registered memory, milliseconds per GiB.
    pub unregister_ms_per_gib: f64,
    /// Time to touch memory for the first time, milliseconds per GiB.
    pub touch_ms_per_gib: f64,
}

/// The speeds of an H200 server on PCIe Gen5 x16 (docs/dev/facts.md, "Copies between host and GPU"): 55.3 of 63.0 GB/s
/// each way, 51.2 with both busy, 8.5 from and 13.5 to pageable memory, 1.15 s to allocate 2 GiB page-locked. The
/// shares hold for other generations too: 80 to 88% are published. Chosen, since not measured: the rates of kernels and
/// of the processor, and the costs of freeing, registering and touching.
impl Default for HostSpeeds {
    fn default() -> Self {
        Self {
            up: 0.878,
            down: 0.878,
            both_ways: 0.925,
            kernel_up: 0.86,
            kernel_down: 0.87,
            pageable_up_gbps: 8.5,
            pageable_down_gbps: 13.5,
            processor_gbps: 8.0,
            each_us: 2.0,
            first_us: 8.0,
            pin_ms_per_gib: 575.0,
            unpin_ms_per_gib: 120.0,
            register_ms_per_gib: 280.0,
            unregister_ms_per_gib: 90.0,
            touch_ms_per_gib: 220.0,
        }
    }
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
        let limit = |bytes: &Bytes| (!defaults::is_all(bytes)).then_some(*bytes);
        let left = |bytes: Bytes| Bytes(bytes.0.saturating_sub(taken));
        let all = self.numa_nodes.iter().fold(0_u64, |sum, node| sum.saturating_add(node.memory.0));
        // Some memory is always in use.
        let usual = Bytes(all - all / 20);
        let host = &self.host;
        HostRoom {
            available: left(limit(&host.memory_available).unwrap_or(usual)),
            group_leaves: limit(&host.group_leaves).map(left),
            lock_limit: limit(&host.lock_limit),
        }
    }
}
