//! Memory of a simulated host, and copies between it and GPUs.

use serde::{Deserialize, Serialize};

use super::{MachineSpec, defaults};
use hardware::HostRoom;
use model::units::Bytes;

/// What copies between host and GPU reach, and what page-locking costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpeeds {
    /// Share of the narrowest link's rate that a copy engine reaches from page-locked memory to the GPU.
    pub up: f64,
    /// The same from the GPU.
    pub down: f64,
    /// What is left of a rate while the opposite direction is busy.
    pub both_ways: f64,
    /// Share of the narrowest link's rate that a kernel reaches that reads page-locked memory.
    pub kernel_up: f64,
    /// The same of a kernel that writes it.
    pub kernel_down: f64,
    /// The most that copies from pageable memory reach, GB/s: the processor moves them to a buffer of the driver's.
    pub pageable_up_gbps: f64,
    /// The same to pageable memory.
    pub pageable_down_gbps: f64,
    /// Rate at which the processor fills or compares memory, GB/s.
    pub processor_gbps: f64,
    /// Fixed cost of every copy in a row, microseconds.
    pub each_us: f64,
    /// Cost of the first of a row besides, microseconds.
    pub first_us: f64,
    /// Time to allocate page-locked memory, milliseconds per GiB.
    pub pin_ms_per_gib: f64,
    /// Time to free it, milliseconds per GiB.
    pub unpin_ms_per_gib: f64,
    /// Time to page-lock memory that is there, milliseconds per GiB.
    pub register_ms_per_gib: f64,
    /// Time to unlock it, milliseconds per GiB.
    pub unregister_ms_per_gib: f64,
    /// Time to touch memory for the first time, milliseconds per GiB.
    pub touch_ms_per_gib: f64,
}

/// As an H200 server on PCIe Gen5 x16 reached them (docs/facts.md, "Copies between host and GPU"): 55.3 of 63.0 GB/s
/// each way, 51.2 with both busy, 8.5 from and 13.5 to pageable memory, 1.15 s to allocate 2 GiB page-locked. The
/// shares hold for other generations too: 80 to 88% are published. Chosen, since not measured: what kernels reach,
/// the processor's rate, and what freeing, registering and touching cost.
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
    /// To the GPU.
    ToDevice,
    ToHost,
}

impl MachineSpec {
    /// How much of the host's memory is to be had when so much is taken.
    pub fn host_room(&self, taken: u64) -> HostRoom {
        let limit = |bytes: &Bytes| (!defaults::is_all(bytes)).then_some(*bytes);
        let left = |bytes: Bytes| Bytes(bytes.0.saturating_sub(taken));
        let all = self
            .numa_nodes
            .iter()
            .fold(0_u64, |sum, node| sum.saturating_add(node.memory.0));
        // Something is always in use.
        let usual = Bytes(all - all / 20);
        let host = &self.host;
        HostRoom {
            available: left(limit(&host.memory_available).unwrap_or(usual)),
            group_leaves: limit(&host.group_leaves).map(left),
            lock_limit: limit(&host.lock_limit),
        }
    }
}
