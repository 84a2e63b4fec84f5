//! Takes the free memory of a GPU, writes a tag of its own at each address, and compares all of them once all are written. A
//! write that lands elsewhere then shows at both addresses.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::bench::Bench;
use crate::bench::open_gpus::for_others;
use crate::figures::without_figures;
use hardware::{Buffer, DeviceMemory, Driver, ErrorKind, HardwareError, Sent};
use model::addresses::{Access, Fate, MemoryReach, WrongRange};
use model::placement::{Engine, Pair, Path, StreamKind};
use model::status::Verified;
use model::units::{Bytes, GIB, KIB, MIB};

/// Bytes at each address, and the distance of two.
const SLICE: u64 = 64 * KIB;
const EVERY: u64 = 32 * MIB;
/// Bytes whose addresses have tags of one seed, and of the smallest allocation. One of all free memory takes 10 ms on H200, 69
/// of 2 GiB 440 (docs/dev/facts.md); in fragmented memory smaller ones find more room.
const BLOCK: u64 = GIB;
/// Addresses of a block.
const EACH: u64 = BLOCK / EVERY;
/// Most searches of a round for the address whose bytes arrived: each compares with all, some 0.2 s on H200.
const MOST_SEARCHES: u32 = 8;
/// Most ranges of wrong addresses in a cell.
const MOST_RANGES: usize = 8;

/// Addresses that were written and read in one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    pub engine: Engine,
    pub access: Access,
    /// Number of addresses with wrong bytes.
    pub wrong: u64,
    pub ranges: Vec<WrongRange>,
}

/// Addresses with wrong bytes, by number: what comes of their bytes, and the address that is reached instead.
type Fates = BTreeMap<u64, (Fate, Option<u64>)>;

/// A part of an allocation. The tag of each address is a part of the pattern of a seed.
struct Block {
    buffer: Buffer,
    /// Seed of what was written last.
    seed: u64,
    /// Seeds of what was written before.
    earlier: Vec<u64>,
}

impl Block {
    const fn addresses(&self) -> u64 {
        self.buffer.bytes / EVERY
    }
}

/// A GPU that writes or reads, with memory for what it sends and receives.
struct Hand {
    gpu: u32,
    sent: Buffer,
    received: Buffer,
}

/// The memory that is tried, in the order in which the driver gave it.
struct Sweep<'b> {
    bench: &'b Bench<'b>,
    blocks: Vec<Block>,
    /// Searches that are left.
    searches: Cell<u32>,
}

impl Bench<'_> {
    /// Tries addresses all over the free memory of a pair's second GPU, from both.
    pub(crate) fn addresses(&self, pair: Pair) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let mut taken = Vec::new();
        let tried = self.try_addresses(pair, &mut taken);
        // All of it is given back, whatever happened.
        let given: Vec<_> = taken.iter().map(|buffer| self.driver.free(*buffer)).collect();
        // Other programs may have taken the memory: that is no fault.
        let tried = tried.map_err(|error| match error.kind {
            ErrorKind::OutOfMemory => HardwareError { kind: ErrorKind::Hindered, ..error },
            _ => error,
        })?;
        given.into_iter().collect::<Result<(), _>>().map(|()| tried)
    }

    fn try_addresses(
        &self,
        Pair { source, destination }: Pair,
        taken: &mut Vec<Buffer>,
    ) -> Result<Outcome, HardwareError> {
        let [peer, owner] = [self.hand(source, taken)?, self.hand(destination, taken)?];
        let (blocks, refused_bytes) = self.take(destination, taken)?;
        let span_bytes = blocks.iter().map(|block| block.buffer.bytes).sum();
        let mut sweep = Sweep { bench: self, blocks, searches: Cell::new(MOST_SEARCHES) };
        sweep.write(&owner, Engine::Copy)?;
        if !sweep.compare(&owner, Engine::Copy, Access::Read)?.is_empty() {
            let why =
                format!("GPU {destination} reads other bytes than it wrote to its own memory");
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        let mut passes = Vec::new();
        for access in [Access::Read, Access::Write] {
            for engine in [Engine::Copy, Engine::Kernel] {
                let fates = match access {
                    Access::Read => sweep.compare(&peer, engine, access)?,
                    Access::Write => {
                        sweep.write(&peer, engine)?;
                        sweep.compare(&owner, Engine::Copy, access)?
                    }
                };
                let wrong = fates.len() as u64;
                passes.push(Pass { engine, access, wrong, ranges: ranges(&fates) });
            }
        }
        Ok(Outcome::Addresses { span_bytes, refused_bytes, passes })
    }

    fn hand(&self, gpu: u32, taken: &mut Vec<Buffer>) -> Result<Hand, HardwareError> {
        let bytes = EACH * SLICE;
        let both = self.driver.allocate(self.open_gpu(gpu)?.device, 2 * bytes)?;
        taken.push(both);
        let [sent, received] = [0, bytes].map(|from| self.driver.part(both, from, bytes));
        Ok(Hand { gpu, sent: sent?, received: received? })
    }

    /// Takes the memory of a GPU that is to be had, but for a margin. Returns also how much of it is free and not to be had.
    fn take(&self, gpu: u32, taken: &mut Vec<Buffer>) -> Result<(Vec<Block>, u64), HardwareError> {
        let device = self.open_gpu(gpu)?.device;
        // Other programs may be there: those of another container, or that draw, are not known.
        let free = || {
            let DeviceMemory { free, total } = self.driver.memory(device)?;
            Ok::<_, HardwareError>(free.saturating_sub(for_others(total)))
        };
        let mut left = free()? / EVERY * EVERY;
        let (mut blocks, mut size) = (Vec::new(), left);
        while left > 0 {
            match self.driver.allocate(device, left.min(size)) {
                Ok(whole) => {
                    left -= whole.bytes;
                    taken.push(whole);
                    for at in (0..whole.bytes).step_by(BLOCK as usize) {
                        let buffer = self.driver.part(whole, at, BLOCK.min(whole.bytes - at))?;
                        blocks.push(Block { buffer, seed: 0, earlier: Vec::new() });
                    }
                }
                Err(error) if error.kind == ErrorKind::OutOfMemory && size > BLOCK => {
                    size = (size / 2).next_multiple_of(BLOCK);
                }
                // Another program was faster, or a window is full into which the driver maps what peers may reach.
                Err(error) if error.kind == ErrorKind::OutOfMemory => break,
                Err(error) => return Err(error),
            }
        }
        if blocks.is_empty() {
            let why = format!("GPU {gpu} has too little free memory to try its addresses");
            return Err(HardwareError::new(ErrorKind::Hindered, why));
        }
        Ok((blocks, left.min(free()?)))
    }
}

impl Sweep<'_> {
    /// Writes a new tag at each address, from the memory of this GPU.
    fn write(&mut self, hand: &Hand, engine: Engine) -> Result<(), HardwareError> {
        let (bench, driver) = (self.bench, self.bench.driver);
        let stream = bench.stream(hand.gpu, StreamKind::Side)?;
        for block in &mut self.blocks {
            block.earlier.push(std::mem::replace(&mut block.seed, bench.seeds.next()));
            driver.fill(hand.sent, hand.sent.bytes, block.seed)?;
            bench.settle([hand.sent].into_iter())?;
            for at in 0..block.addresses() {
                let to = driver.part(block.buffer, at * EVERY, SLICE)?;
                driver.copy(engine, stream, to, part(driver, hand.sent, at)?, SLICE)?;
            }
            driver.synchronize(stream)?;
        }
        Ok(())
    }

    /// Copies what is at each address to the memory of this GPU and compares it there.
    fn compare(&self, hand: &Hand, engine: Engine, access: Access) -> Result<Fates, HardwareError> {
        let (bench, driver) = (self.bench, self.bench.driver);
        let stream = bench.stream(hand.gpu, StreamKind::Side)?;
        let blank = bench.seeds.next();
        let (mut fates, mut shift) = (Fates::new(), 0);
        for (block, first) in self.blocks.iter().zip((0..).step_by(EACH as usize)) {
            driver.fill(hand.received, hand.received.bytes, blank)?;
            bench.settle([hand.received].into_iter())?;
            for at in 0..block.addresses() {
                let from = driver.part(block.buffer, at * EVERY, SLICE)?;
                driver.copy(engine, stream, part(driver, hand.received, at)?, from, SLICE)?;
            }
            driver.synchronize(stream)?;
            let all = driver.part(hand.received, 0, block.addresses() * SLICE)?;
            if holds(driver, all, block.seed, 0)? {
                continue;
            }
            for at in 0..block.addresses() {
                let (here, slice) = (first + at, part(driver, hand.received, at)?);
                if holds(driver, slice, block.seed, at)? {
                    continue;
                }
                let unchanged = [&[blank], block.earlier.as_slice()].concat();
                if unchanged.iter().try_fold(false, |is, seed| {
                    Ok::<_, HardwareError>(is || holds(driver, slice, *seed, at)?)
                })? {
                    fates.entry(here).or_insert((Fate::Lost, None));
                    continue;
                }
                let Some(other) = self.whose(slice, here.wrapping_add(shift))? else {
                    fates.entry(here).or_insert((Fate::Corrupt, None));
                    continue;
                };
                shift = other.wrapping_sub(here);
                let (address, reached) = match access {
                    Access::Read => (here, other),
                    Access::Write => (other, here),
                };
                fates.insert(address, (Fate::Elsewhere, Some(reached)));
            }
        }
        Ok(fates)
    }

    /// Returns the number of the address whose tag these bytes are, tried at this one first.
    fn whose(&self, slice: Buffer, first: u64) -> Result<Option<u64>, HardwareError> {
        let is_of = |address: u64| -> Result<bool, HardwareError> {
            let block = usize::try_from(address / EACH).ok().and_then(|at| self.blocks.get(at));
            let block = block.filter(|block| address % EACH < block.addresses());
            let held = |block: &Block| holds(self.bench.driver, slice, block.seed, address % EACH);
            block.map_or(Ok(false), held)
        };
        if is_of(first)? {
            return Ok(Some(first));
        }
        let left = self.searches.get();
        self.searches.set(left.saturating_sub(1));
        let all = if left > 0 { self.blocks.len() as u64 * EACH } else { 0 };
        for address in 0..all {
            if is_of(address)? {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }
}

/// Returns the place of an address in memory beside that which is tried.
fn part(driver: &dyn Driver, beside: Buffer, at: u64) -> Result<Buffer, HardwareError> {
    driver.part(beside, at * SLICE, SLICE)
}

/// Returns true if a buffer holds what a seed has from this address on.
fn holds(driver: &dyn Driver, buffer: Buffer, seed: u64, at: u64) -> Result<bool, HardwareError> {
    let from = at * SLICE / 8;
    let sent = Sent { seed, from, before: from };
    let checks = driver.check(&[(buffer, sent)], buffer.bytes)?;
    Ok(checks.iter().all(|check| check.wrong == 0))
}

/// Returns neighbouring addresses of one fate together.
fn ranges(fates: &Fates) -> Vec<WrongRange> {
    let mut ranges: Vec<WrongRange> = Vec::new();
    for (at, (fate, instead)) in fates {
        let (from, instead) = (at * EVERY, instead.map(|at| Bytes(at * EVERY)));
        let goes_on = |last: &&mut WrongRange| {
            let expected = last.instead_bytes.map(|at| Bytes(at.0 + from - last.from_bytes.0));
            (last.to_bytes.0, last.fate, expected) == (from, *fate, instead)
        };
        let (from_bytes, to_bytes) = (Bytes(from), Bytes(from + EVERY));
        match ranges.last_mut().filter(goes_on) {
            Some(last) => last.to_bytes = to_bytes,
            None => ranges.push(WrongRange {
                from_bytes,
                to_bytes,
                fate: *fate,
                instead_bytes: instead,
            }),
        }
    }
    ranges.truncate(MOST_RANGES);
    ranges
}

/// Returns the cells of a pair: one for each way, or one with the reason why there are none.
pub(crate) fn cells(pair: Pair, outcome: &Outcome) -> Vec<MemoryReach> {
    let Outcome::Addresses { span_bytes, refused_bytes, passes } = outcome else {
        let mut cell = MemoryReach::blank(pair, Engine::Copy, Access::Write);
        cell.ending = without_figures(outcome);
        return vec![cell];
    };
    let addresses = span_bytes / EVERY;
    let cell = |pass: &Pass| {
        let mut cell = MemoryReach::blank(pair, pass.engine, pass.access);
        #[allow(clippy::cast_precision_loss, reason = "thousands")]
        let share = |part: u64| 100.0 * part as f64 / addresses.max(1) as f64;
        cell.right_percent = Some(share(addresses.saturating_sub(pass.wrong)));
        (cell.addresses, cell.wrong) = (addresses, pass.wrong);
        cell.span_bytes = Bytes(*span_bytes);
        cell.verified = match pass.ranges.as_slice() {
            [] if *refused_bytes > BLOCK => {
                let [given, refused] = [span_bytes, refused_bytes].map(|bytes| Bytes(*bytes));
                let why = format!("the driver gave {given} and refused {refused} that are free");
                cell.verification_detail = Some(why);
                Verified::Inconclusive
            }
            [] => Verified::Ok,
            all if all.iter().all(|range| range.fate == Fate::Lost) => Verified::Dropped,
            _ => Verified::Corrupt,
        };
        cell.ranges.clone_from(&pass.ranges);
        cell
    };
    passes.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;
    use model::status::Status;
    use sim::spec::WindowFault;

    const PAIR: Pair = Pair { source: 0, destination: 1 };
    /// The memory that is tried begins here: large buffers, and what is sent and received.
    const BEGIN: u64 = 64 * MIB;

    fn window(from_gib: u64, to_gib: u64, instead: Option<u64>) -> WindowFault {
        let at = |gib: u64| Bytes(BEGIN + gib * GIB);
        let (from, to, instead) = (at(from_gib), at(to_gib), instead.map(at));
        WindowFault { gpu: 1, by: None, engine: None, from, to, instead }
    }

    /// Returns the cells where GPU 1 has 24 GiB.
    fn tried(windows: &[WindowFault]) -> Vec<MemoryReach> {
        let mut spec = sim::builtin::get("h200x2").unwrap();
        (spec.gpus[1].memory, spec.gpus[1].memory_free) = (Bytes(24 * GIB), Bytes(24 * GIB));
        spec.faults.windows = windows.to_vec();
        let driver = sim::driver(spec).unwrap();
        let selections = [0, 1].map(|gpu| Selection::of(&*driver, gpu));
        let bench = Bench::open(&*driver, &selections, Bytes(64 * MIB));
        let device = bench.open_gpu(1).unwrap().device;
        let before = driver.memory(device).unwrap();
        let cells = cells(PAIR, &bench.addresses(PAIR).unwrap());
        assert_eq!(driver.memory(device).unwrap(), before, "all is given back");
        cells
    }

    fn range(from: u64, to: u64, fate: Fate, instead: Option<u64>) -> WrongRange {
        let [from_bytes, to_bytes] = [from, to].map(Bytes);
        WrongRange { from_bytes, to_bytes, fate, instead_bytes: instead.map(Bytes) }
    }

    #[test]
    fn all_free_memory_but_a_margin_is_tried_in_four_ways() {
        let cells = tried(&[]);
        assert_eq!(cells.len(), 4);
        for cell in cells {
            assert_eq!(cell.span_bytes.0, 24 * GIB - BEGIN - 2 * GIB);
            assert_eq!((cell.verified, cell.right_percent), (Verified::Ok, Some(100.0)));
            assert_eq!((cell.addresses, cell.wrong), (cell.span_bytes.0 / EVERY, 0));
        }
    }

    #[test]
    fn a_window_that_wraps_shows_where_bytes_go() {
        let end = 24 * GIB - BEGIN - 2 * GIB;
        for cell in tried(&[window(16, 64, Some(0))]) {
            assert_eq!(
                cell.ranges,
                [range(16 * GIB, end, Fate::Elsewhere, Some(0))],
                "{:?} {:?}",
                cell.engine,
                cell.access
            );
            assert_eq!(cell.verified, Verified::Corrupt);
        }
        // Of three images the last one is seen.
        let twice = [window(8, 16, Some(0)), window(16, 64, Some(0))];
        for cell in tried(&twice).into_iter().filter(|cell| cell.access == Access::Write) {
            let lost = range(8 * GIB, end - 8 * GIB, Fate::Lost, None);
            assert_eq!(cell.ranges[0], lost);
            assert_eq!(cell.ranges.last(), Some(&range(16 * GIB, end, Fate::Elsewhere, Some(0))));
            assert_eq!(cell.wrong, (end - 8 * GIB) / EVERY);
        }
    }

    #[test]
    fn a_hole_of_one_engine_is_found_with_its_ends() {
        let hole = WindowFault { engine: Some(Engine::Kernel), ..window(8, 10, None) };
        for cell in tried(&[hole]) {
            match cell.engine {
                Engine::Copy => assert_eq!(cell.verified, Verified::Ok),
                Engine::Kernel => {
                    assert_eq!(cell.ranges, [range(8 * GIB, 10 * GIB, Fate::Lost, None)]);
                    assert_eq!((cell.verified, cell.wrong), (Verified::Dropped, 64));
                }
            }
        }
    }

    #[test]
    fn a_later_result_hides_no_wrong_address() {
        let outcome = |wrong| Outcome::Addresses {
            span_bytes: GIB,
            refused_bytes: 0,
            passes: vec![Pass {
                engine: Engine::Copy,
                access: Access::Read,
                wrong,
                ranges: Vec::new(),
            }],
        };
        let mut known = outcome(0);
        for (later, expected) in [(0, 0), (2, 2), (0, 2)] {
            known.follow_up(outcome(later));
            assert_eq!(known, outcome(expected));
        }
    }

    #[test]
    fn free_memory_that_the_driver_refuses_is_unsure() {
        let passes =
            [Pass { engine: Engine::Copy, access: Access::Read, wrong: 0, ranges: Vec::new() }];
        for (refused_bytes, verified) in [(GIB, Verified::Ok), (2 * GIB, Verified::Inconclusive)] {
            let passes = passes.to_vec();
            let outcome = Outcome::Addresses { span_bytes: GIB, refused_bytes, passes };
            assert_eq!(cells(PAIR, &outcome)[0].verified, verified);
        }
    }

    #[test]
    fn without_free_memory_nothing_is_said_of_the_gpu() {
        let mut spec = sim::builtin::get("h200x2").unwrap();
        spec.gpus[1].memory_free = Bytes(700 * MIB);
        let driver = sim::driver(spec).unwrap();
        let selections = [0, 1].map(|gpu| Selection::of(&*driver, gpu));
        let bench = Bench::open(&*driver, &selections, Bytes(64 * MIB));
        let error = bench.addresses(PAIR).unwrap_err();
        let cell = &cells(PAIR, &Outcome::Failed { error })[0];
        assert_eq!((cell.ending.status, cell.right_percent), (Status::Skipped, None));
    }
}
