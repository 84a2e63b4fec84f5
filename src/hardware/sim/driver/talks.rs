//! Results of kernels that talk, follow pointers and use single links.

use std::collections::BTreeSet;

use hardware::{Device, Heard, Hops, Passed};
use model::maps::Map;

/// What talks and chases have left.
#[derive(Debug, Default)]
pub(super) struct Talks {
    pub heard: Map<(Device, bool), Heard>,
    /// First flag and number of flags of each talk so far, by the mailbox's number.
    pub flags: Map<u32, Vec<(u32, u32)>>,
    /// Words that arrived too late, by the mailbox's number and place.
    pub late: Map<(u32, u32), u32>,
    pub hops: Map<Device, Hops>,
}

/// Traffic of single links, and blocks with wrong content.
#[derive(Debug, Default)]
pub(super) struct SingleLinks {
    pub passed: Map<Device, Vec<Passed>>,
    /// Bytes sent and received, by GPU and link.
    pub bytes: Map<(u32, u8), [f64; 2]>,
    /// Blocks that hold something else than what was stored, by the memory's number.
    pub spoiled: BTreeSet<(u32, u32)>,
}

impl Talks {
    /// Takes flags for a talk with this mailbox. Returns false if an earlier talk left one of them there, which a kernel would
    /// take for one of this talk.
    pub(super) fn take_flags(&mut self, mailbox: u32, base: u32, rounds: u32) -> bool {
        let count = rounds.max(1);
        let earlier = self.flags.entry(mailbox).or_default();
        let free = earlier.iter().all(|(first, length)| {
            base.wrapping_sub(*first) > *length && first.wrapping_sub(base) > count
        });
        earlier.push((base, count));
        free
    }
}
