//! Finds which block of a peer's memory goes over which NVLink.
//!
//! Nothing is known of how blocks are spread, so it is measured: several blocks are loaded at once, each twice as often as the
//! one before. The bytes that a link has received are then a binary number that names its blocks. What was learned with one
//! pair is tried on the next, where loads over each link are as many as no other's: if they are not counted at that link alone,
//! it is learned again. So the far end of each link is found too.

use std::collections::BTreeMap;

use crate::bench::Bench;
use hardware::{
    BLOCK_BYTES, BlockList, BlockMap, BlockTraffic, BlockWork, Buffer, ErrorKind, HardwareError,
    MOST_LISTS,
};
use model::placement::{Pair, StreamKind};

/// Blocks of a link that are used. With 16 stores scatter (docs/dev/facts.md).
const PER_LINK: usize = 8;
/// Blocks that are told apart at once.
const AT_ONCE: u32 = 13;
/// Blocks that are tried for each link, at least: so that each link that is in use is met.
const LEAST_TRIED: u32 = 12;
/// Most blocks that are tried for each link. Chosen.
const MOST_TRIED: u32 = 40;
/// Loads of the first block: 8 KiB. Counters have units of 1 KiB.
const FIRST_LOADS: u32 = 64;
const UNIT: u64 = FIRST_LOADS as u64 * 128;
/// Largest error of a count.
const TOLERANCE: u64 = UNIT / 4;
/// Times that traffic of others is tried to miss.
const TRIES: u32 = 3;

/// Counters of the links of the source and of the destination: what the first received, what the second sent.
type Counted = [BTreeMap<u8, u64>; 2];

impl Bench<'_> {
    /// Returns the memory of the destination that is used, up to this many blocks.
    pub(super) fn blocks_of(&self, gpu: u32) -> Result<Buffer, HardwareError> {
        let receive = self.open_gpu(gpu)?.receive;
        self.holds(receive, None);
        let bytes = receive.bytes.min(u64::from(MOST_TRIED) * MOST_LISTS as u64 * BLOCK_BYTES);
        self.driver.part(receive, 0, bytes)
    }

    /// Runs a kernel of a GPU on blocks of this memory.
    pub(super) fn pass(
        &self,
        gpu: u32,
        memory: Buffer,
        work: BlockWork,
        lists: &[BlockList],
        (seed, last): (u32, u32),
    ) -> Result<(), HardwareError> {
        let stream = self.stream(gpu, StreamKind::Side)?;
        let lists = lists.to_vec();
        self.driver.pass(&BlockTraffic { stream, memory, work, lists, seed, last })?;
        self.driver.synchronize(stream)
    }

    fn counted(&self, pair: Pair) -> Result<Counted, HardwareError> {
        let own = self.driver.link_bytes(pair.source)?.into_iter();
        let far = self.driver.link_bytes(pair.destination)?.into_iter();
        Ok([
            own.map(|of| (of.link, of.received)).collect(),
            far.map(|of| (of.link, of.sent)).collect(),
        ])
    }

    /// Returns the rise of the counters by loads of these lists, and the bytes loaded.
    fn rise(
        &self,
        pair: Pair,
        lists: &[BlockList],
        before: &mut Counted,
    ) -> Result<(Counted, u64), HardwareError> {
        let memory = self.blocks_of(pair.destination)?;
        self.pass(pair.source, memory, BlockWork::Count, lists, (0, 0))?;
        let after = self.counted(pair)?;
        let mut rise = after.clone();
        for (rise, before) in rise.iter_mut().zip(before.iter()) {
            for (link, bytes) in rise {
                *bytes = bytes.saturating_sub(before.get(link).copied().unwrap_or_default());
            }
        }
        *before = after;
        Ok((rise, lists.iter().map(|list| list.bytes(BlockWork::Count)).sum()))
    }

    /// Returns the blocks of each link of a pair, and the number of each link at the destination.
    pub(super) fn block_map(
        &self,
        pair: Pair,
    ) -> Result<(BlockMap, BTreeMap<u8, u8>), HardwareError> {
        let mut error = None;
        for _ in 0..TRIES {
            let known = self.blocks.borrow().clone();
            let map = if known.is_empty() { self.learned(pair) } else { Ok(known) };
            let held = map.and_then(|map| Ok((self.far_ends(pair, &map)?, map)));
            match held {
                Ok((far, map)) => {
                    self.blocks.replace(map.clone());
                    return Ok((map, far));
                }
                Err(why) => {
                    self.blocks.replace(BlockMap::new());
                    let is_final = !matches!(why.kind, ErrorKind::Hindered | ErrorKind::Impossible);
                    if is_final {
                        return Err(why);
                    }
                    error = Some(why);
                }
            }
        }
        Err(error.unwrap_or_else(|| HardwareError::new(ErrorKind::Other, "no try")))
    }

    /// Learns the blocks of each link from the first ones of the memory on.
    fn learned(&self, pair: Pair) -> Result<BlockMap, HardwareError> {
        let mut map = BlockMap::new();
        let mut before = self.counted(pair)?;
        let links = u32::try_from(before[0].len()).unwrap_or(u32::MAX).min(MOST_LISTS as u32);
        let mut tried = 0;
        while tried < LEAST_TRIED * links
            || map.values().any(|blocks: &Vec<u32>| blocks.len() < PER_LINK)
        {
            if tried >= MOST_TRIED * links {
                break;
            }
            let list = |at: u32| BlockList { blocks: vec![tried + at], repeats: FIRST_LOADS << at };
            let lists: Vec<_> = (0..AT_ONCE).map(list).collect();
            let (rise, bytes) = self.rise(pair, &lists, &mut before)?;
            let mut named = 0;
            for (link, counted) in &rise[0] {
                let number = (counted + UNIT / 2) / UNIT;
                let is_exact = counted.abs_diff(number * UNIT) <= TOLERANCE && named & number == 0;
                if !is_exact {
                    return Err(untold(pair, &rise[0], bytes));
                }
                named |= number;
                let blocks = (0..AT_ONCE).filter(|at| number >> at & 1 == 1).map(|at| tried + at);
                map.entry(*link).or_default().extend(blocks);
            }
            if named != (1 << AT_ONCE) - 1 {
                return Err(untold(pair, &rise[0], bytes));
            }
            map.retain(|_, blocks| !blocks.is_empty());
            tried += AT_ONCE;
        }
        if map.is_empty() {
            return Err(impossible("NVML does not count the bytes of single links"));
        }
        map.values_mut().for_each(|blocks| blocks.truncate(PER_LINK));
        Ok(map)
    }

    /// Loads over each link as much as over no other, and returns the number of each at the destination, where it can be told.
    fn far_ends(&self, pair: Pair, map: &BlockMap) -> Result<BTreeMap<u8, u8>, HardwareError> {
        let mut before = self.counted(pair)?;
        let list = |(blocks, at): (&Vec<u32>, u32)| BlockList {
            blocks: blocks.clone(),
            repeats: FIRST_LOADS * at,
        };
        let lists: Vec<_> = map.values().zip(1..).map(list).collect();
        let (rise, bytes) = self.rise(pair, &lists, &mut before)?;
        let wanted: BTreeMap<u8, u64> = map
            .keys()
            .zip(&lists)
            .map(|(link, list)| (*link, list.bytes(BlockWork::Count)))
            .collect();
        let is_near = |one: u64, other: u64| one.abs_diff(other) <= TOLERANCE;
        let holds = rise[0]
            .iter()
            .all(|(link, bytes)| is_near(*bytes, wanted.get(link).copied().unwrap_or_default()));
        if !holds {
            return Err(untold(pair, &rise[0], bytes));
        }
        let far = wanted.iter().filter_map(|(link, wanted)| {
            let mut ends = rise[1].iter().filter(|(_, bytes)| is_near(**bytes, *wanted));
            let (end, _) = ends.next()?;
            ends.next().is_none().then_some((*link, *end))
        });
        Ok(far.collect())
    }
}

/// Returns why blocks could not be told apart, by what was counted and what was loaded.
fn untold(pair: Pair, rise: &BTreeMap<u8, u64>, loaded: u64) -> HardwareError {
    let counted: u64 = rise.values().sum();
    let slack = TOLERANCE * rise.len() as u64;
    if counted < loaded / 2 {
        return impossible("the counters of its single links do not show these loads");
    }
    if counted <= loaded + slack {
        return impossible("a block of memory goes over several links");
    }
    foreign(pair.source)
}

pub(super) fn foreign(gpu: u32) -> HardwareError {
    let why = format!("other data passed the NVLinks of GPU {gpu} meanwhile");
    HardwareError::new(ErrorKind::Hindered, why)
}

fn impossible(why: &str) -> HardwareError {
    HardwareError::new(ErrorKind::Impossible, format!("NVLinks cannot be told apart: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_told_is_no_fault_and_traffic_of_others_is_tried_again() {
        let pair = Pair { source: 0, destination: 1 };
        let kind = |counted: [u64; 3], loaded: u64| {
            untold(pair, &(0..).zip(counted).collect(), loaded).kind
        };
        let loaded = 13 * UNIT;
        // Half of a block over each of two links.
        assert_eq!(kind([6 * UNIT, 6 * UNIT + 2048, 0], loaded), ErrorKind::Impossible);
        // Nothing, as where a guest sees no counters.
        assert_eq!(kind([0, 1024, 0], loaded), ErrorKind::Impossible);
        assert_eq!(kind([9 * UNIT, 9 * UNIT, 0], loaded), ErrorKind::Hindered);
    }
}
