//! Finds which block of a peer's memory goes over which NVLink.
//!
//! The driver does not say how blocks are spread, so a kernel loads several at once, each twice as often as the one before. The
//! bytes that a link has received are then a binary number that names its blocks. The map of one pair is tried on the next:
//! each link gets another number of loads. If its counter does not show that number, the map is learned again. The same number
//! names the far end of the link.

use std::collections::BTreeMap;

use crate::bench::Bench;
use hardware::{
    BLOCK_BYTES, BlockList, BlockMap, BlockTraffic, BlockWork, Buffer, ErrorKind, HardwareError,
    MOST_LISTS,
};
use model::placement::{Pair, StreamKind};

/// Blocks of a link that are used. Chosen: loads of 32 or 96 reach no more on H200.
const PER_LINK: usize = 8;
/// Fewest blocks of a link. Chosen.
const LEAST_PER_LINK: usize = 4;
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
/// Tries, in case other traffic passes.
const TRIES: u32 = 3;

/// Counters of the links of the source and of the destination: bytes sent and received.
pub(super) type Counted = [BTreeMap<u8, [u64; 2]>; 2];

/// Places in [`Counted`].
pub(super) const OWN: usize = 0;
pub(super) const FAR: usize = 1;
pub(super) const SENT: usize = 0;
pub(super) const RECEIVED: usize = 1;

/// Blocks of each link of a pair, the number of each at the destination, and the counters after it was learned.
pub(super) struct PairLinks {
    pub(super) map: BlockMap,
    pub(super) far: BTreeMap<u8, u8>,
    pub(super) counted: Counted,
}

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

    pub(super) fn counted(&self, pair: Pair) -> Result<Counted, HardwareError> {
        let of = |gpu: u32| {
            let links = self.driver.link_bytes(gpu)?.into_iter();
            Ok(links.map(|of| (of.link, [of.sent, of.received])).collect())
        };
        Ok([of(pair.source)?, of(pair.destination)?])
    }

    /// Returns what the source received and the destination sent by loads of these lists, and the bytes loaded.
    fn rise(
        &self,
        pair: Pair,
        lists: &[BlockList],
        before: &mut Counted,
    ) -> Result<([BTreeMap<u8, u64>; 2], u64), HardwareError> {
        let memory = self.blocks_of(pair.destination)?;
        self.pass(pair.source, memory, BlockWork::Count, lists, (0, 0))?;
        let after = self.counted(pair)?;
        let of = |end: usize, way: usize| rise(&before[end], &after[end], way);
        let rise = [of(OWN, RECEIVED), of(FAR, SENT)];
        *before = after;
        Ok((rise, lists.iter().map(|list| list.bytes(BlockWork::Count)).sum()))
    }

    /// Tells the links of a pair apart.
    pub(super) fn pair_links(&self, pair: Pair) -> Result<PairLinks, HardwareError> {
        let mut tries = 0;
        loop {
            let known = self.blocks.borrow().clone();
            let mut counted = self.counted(pair)?;
            let map = match known.is_empty() {
                true => self.learned(pair, &mut counted),
                false => Ok(known),
            };
            let held = map.and_then(|map| Ok((self.far_ends(pair, &map, &mut counted)?, map)));
            tries += 1;
            match held {
                Ok((far, map)) => {
                    self.blocks.replace(map.clone());
                    return Ok(PairLinks { map, far, counted });
                }
                Err(why) => {
                    self.blocks.replace(BlockMap::new());
                    let may_pass = matches!(why.kind, ErrorKind::Hindered | ErrorKind::Impossible);
                    if !may_pass || tries >= TRIES {
                        return Err(why);
                    }
                }
            }
        }
    }

    /// Learns the blocks of each link from the first ones of the memory on.
    fn learned(&self, pair: Pair, before: &mut Counted) -> Result<BlockMap, HardwareError> {
        let mut map = BlockMap::new();
        let links = u32::try_from(before[0].len()).unwrap_or(u32::MAX).min(MOST_LISTS as u32);
        let mut tried = 0;
        while tried < LEAST_TRIED * links
            || map.values().any(|blocks: &Vec<u32>| blocks.len() < PER_LINK)
        {
            if tried + AT_ONCE > MOST_TRIED * links {
                break;
            }
            let list = |at: u32| BlockList { blocks: vec![tried + at], repeats: FIRST_LOADS << at };
            let lists: Vec<_> = (0..AT_ONCE).map(list).collect();
            let (rise, bytes) = self.rise(pair, &lists, before)?;
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
        // Each gets as many, so that they are alike.
        let most = map.values().map(Vec::len).min().unwrap_or_default().min(PER_LINK);
        if most < LEAST_PER_LINK {
            return Err(impossible("too few blocks of memory go over one of them"));
        }
        map.values_mut().for_each(|blocks| blocks.truncate(most));
        Ok(map)
    }

    /// Loads over each link as much as over no other, and returns the number of each at the destination, where it can be told.
    fn far_ends(
        &self,
        pair: Pair,
        map: &BlockMap,
        before: &mut Counted,
    ) -> Result<BTreeMap<u8, u8>, HardwareError> {
        let list = |(blocks, at): (&Vec<u32>, u32)| BlockList {
            blocks: blocks.clone(),
            repeats: FIRST_LOADS * at,
        };
        let lists: Vec<_> = map.values().zip(1..).map(list).collect();
        let (rise, bytes) = self.rise(pair, &lists, before)?;
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

/// Returns by how much each link's counter of one way rose.
pub(super) fn rise(
    before: &BTreeMap<u8, [u64; 2]>,
    after: &BTreeMap<u8, [u64; 2]>,
    way: usize,
) -> BTreeMap<u8, u64> {
    let of = |(link, bytes): (&u8, &[u64; 2])| {
        let before = before.get(link).map_or(0, |before| before[way]);
        (*link, bytes[way].saturating_sub(before))
    };
    after.iter().map(of).collect()
}

/// Returns why blocks could not be told apart, by what was counted and what was loaded.
fn untold(pair: Pair, rise: &BTreeMap<u8, u64>, loaded: u64) -> HardwareError {
    let counted: u64 = rise.values().sum();
    // Each counter has units of 1 KiB.
    let slack = 1024 * rise.len() as u64;
    if counted < loaded / 2 {
        return impossible("the counters of its single links do not show these loads");
    }
    if counted <= loaded + slack {
        return impossible("a block of memory goes over several links");
    }
    foreign(pair.source)
}

/// Returns the error of traffic that is not this program's.
pub(super) fn foreign(gpu: u32) -> HardwareError {
    let why = format!("other data passed the NVLinks of GPU {gpu} meanwhile");
    HardwareError::new(ErrorKind::Hindered, why)
}

pub(super) fn impossible(why: &str) -> HardwareError {
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
        assert_eq!(kind([6 * UNIT, 7 * UNIT + 2048, 0], loaded), ErrorKind::Impossible);
        // Nothing, as where a guest sees no counters.
        assert_eq!(kind([0, 1024, 0], loaded), ErrorKind::Impossible);
        assert_eq!(kind([9 * UNIT, 9 * UNIT, 0], loaded), ErrorKind::Hindered);
        assert_eq!(kind([6 * UNIT, 7 * UNIT + 5 * 1024, 0], loaded), ErrorKind::Hindered);
    }
}
