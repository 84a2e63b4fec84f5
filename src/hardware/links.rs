//! Traffic over single NVLinks. The fourth part of [`Driver`](super::Driver). probes/links/links.cu has the kernel.

use std::collections::BTreeMap;

use super::{Buffer, Device, HardwareError, Stream};

/// Bytes of a peer's memory that go over one link [M: 4 x H100, NVSwitch].
pub const BLOCK_BYTES: u64 = 256;
/// Most lists of blocks, and most blocks of all lists. The kernel has the same.
pub const MOST_LISTS: usize = 36;
pub const MOST_BLOCKS: usize = 288;
/// Groups of 16 threads that store the blocks of a list, and that load them. With more, links differ by what the multiprocessors
/// get [M: 2 x H200].
pub const STORE_GROUPS: u32 = 16;
pub const LOAD_GROUPS: u32 = 32;

/// The work of a kernel on the blocks of a list. The kernel has the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockWork {
    /// Loads 128 bytes of each block so many times.
    Count,
    /// [`STORE_GROUPS`] groups store a block so many times each, and load it back each time.
    Store,
    /// [`LOAD_GROUPS`] groups load a block so many times each, and compare it with what was stored.
    Load,
    /// Loads one block after the other, so many in all.
    Chase,
}

/// Blocks of a peer's memory, by the link of the GPU that reaches them.
pub type BlockMap = BTreeMap<u8, Vec<u32>>;

/// Blocks that share a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockList {
    /// Numbers of the blocks within the memory.
    pub blocks: Vec<u32>,
    pub repeats: u32,
}

impl BlockList {
    /// Returns the bytes that this work moves over the link.
    pub fn bytes(&self, work: BlockWork) -> u64 {
        let (blocks, repeats) = (self.blocks.len() as u64, u64::from(self.repeats));
        match work {
            BlockWork::Count => blocks * repeats * 128,
            BlockWork::Store => u64::from(STORE_GROUPS) * repeats * BLOCK_BYTES,
            BlockWork::Load => u64::from(LOAD_GROUPS) * repeats * BLOCK_BYTES,
            BlockWork::Chase => repeats * 32,
        }
    }
}

/// Traffic of a kernel over blocks of a peer's memory, all lists at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockTraffic {
    pub stream: Stream,
    pub memory: Buffer,
    pub work: BlockWork,
    pub lists: Vec<BlockList>,
    /// Seed of what is stored.
    pub seed: u32,
    /// The turn whose stores loads expect.
    pub last: u32,
}

/// The traffic of one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    pub ns: u64,
    /// Loads of 16 bytes that were not what was stored.
    pub wrong: u64,
}

/// Bytes that an NVLink has carried, by its own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBytes {
    pub link: u8,
    pub sent: u64,
    pub received: u64,
}

/// Kernels that use single NVLinks. Needs the GPU kernels.
pub trait LinkDriver {
    /// Enqueues a kernel. There are at most [`MOST_LISTS`] lists with [`MOST_BLOCKS`] blocks.
    fn pass(&self, traffic: &BlockTraffic) -> Result<(), HardwareError>;

    /// Returns the first lists of the last such kernel of a device. Its stream must have been waited for.
    fn passed(&self, device: Device, lists: usize) -> Result<Vec<Passed>, HardwareError>;

    /// Returns the counters of a GPU's NVLinks, those that are read; by NVML's index. It is the only call to NVML here, and
    /// the first one starts it.
    fn link_bytes(&self, gpu: u32) -> Result<Vec<LinkBytes>, HardwareError>;
}
