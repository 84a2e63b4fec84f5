//! Kernels of several GPUs that all talk to each other at once. A part of [`Driver`](super::Driver). probes/kernels/group.cu has
//! the boxes and the words of the result.

use std::time::Duration;

use super::{Buffer, Device, HardwareError, Stream, TalkLimits};
use model::live::{Phase, REDUCED_KIB};

/// Bytes of a box.
pub const BOX_BYTES: u64 = 1024 * 1024;
/// Words that a member writes.
pub const MET_WORDS: usize = 32;
/// Most members of a meeting.
pub const MOST_RANKS: usize = 72;
/// Most members on one device.
pub const MOST_PLACES: u32 = 4;
/// Blocks of a member that has its device for itself: every thread adds up one line of the largest parts.
pub const MEMBER_BLOCKS: u32 = 32;
/// Set in the flag of the first rank in the last round of a phase.
const LAST: u32 = 1 << 31;
/// Phases: arrival, barrier, and an all-reduce of each size.
const PHASES: usize = 2 + REDUCED_KIB.len();

/// The parts of a meeting that all members share.
#[derive(Debug, Clone, PartialEq)]
pub struct Meeting {
    /// The box of each rank, on the device of its stream.
    pub boxes: Vec<Buffer>,
    /// Rounds of each phase, at most.
    pub rounds: u32,
    /// The number that flags count from. No two meetings have the same.
    pub base: u32,
    /// Blocks of each member.
    pub blocks: u32,
    pub limits: TalkLimits,
    /// Time after which the first rank ends a phase before its rounds are over.
    pub phase: Duration,
}

/// One member of a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub stream: Stream,
    pub rank: u32,
    /// Number among the members on its device, below [`MOST_PLACES`].
    pub place: u32,
}

/// The words that a member wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Met(pub [u64; MET_WORDS]);

/// Ranks that a member did not see in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedRanks {
    pub phase: Phase,
    /// Size of an all-reduce, KiB; 0 in other phases.
    pub kib: u32,
    /// From 1 on.
    pub round: u32,
    pub ranks: Vec<u32>,
    /// The flag that was awaited.
    wanted: u32,
    /// Place of the flag of the first rank in the member's box.
    offset: u32,
}

impl MissedRanks {
    /// Returns the place of a rank's flag in the member's box.
    pub const fn offset_of(&self, rank: u32) -> u32 {
        self.offset.saturating_add(4 * rank)
    }

    /// Returns true if this word is the flag that was awaited.
    pub const fn is_awaited(&self, word: u32) -> bool {
        word == self.wanted || word == self.wanted ^ LAST
    }
}

impl Met {
    /// Places of the words.
    pub const STATE: usize = 0;
    pub const PHASE: usize = 1;
    pub const ROUND: usize = 2;
    pub const WANTED: usize = 3;
    pub const OFFSET: usize = 4;
    /// The first of two words with a bit for each rank that was missed.
    pub const MISSED: usize = 5;
    pub const TOOK: usize = 7;
    /// The first of the times of a round of each phase.
    pub const PICOSECONDS: usize = 8;
    /// The first of the counts of wrong lines.
    pub const WRONG: usize = 16;
    /// The first of two words with a bit for each rank whose lines were wrong.
    pub const WRONG_RANKS: usize = 24;
    /// States of a member.
    pub const ENDED: u64 = 2;
    pub const HAS_MISSED: u64 = 3;

    /// Returns true if the kernel came to its end, by itself or because it missed a rank.
    pub const fn has_ended(&self) -> bool {
        matches!(self.0[Self::STATE], Self::ENDED | Self::HAS_MISSED)
    }

    /// Returns what the member did not see in time; none if it saw everything.
    pub fn missed(&self) -> Option<MissedRanks> {
        if self.0[Self::STATE] != Self::HAS_MISSED {
            return None;
        }
        let word = |at: usize| u32::try_from(self.0[at]).unwrap_or(u32::MAX);
        let (phase, kib) = match usize::try_from(self.0[Self::PHASE]).ok()? {
            0 => (Phase::Arrival, 0),
            1 => (Phase::Barrier, 0),
            phase => (Phase::AllReduce, *REDUCED_KIB.get(phase - 2)?),
        };
        Some(MissedRanks {
            phase,
            kib,
            round: word(Self::ROUND),
            ranks: self.ranks(Self::MISSED),
            wanted: word(Self::WANTED),
            offset: word(Self::OFFSET),
        })
    }

    /// Returns the ranks whose bits are set in two words.
    fn ranks(&self, first: usize) -> Vec<u32> {
        let bit = |rank: &u32| self.0[first + (rank / 64) as usize] >> (rank % 64) & 1 != 0;
        (0..128).filter(bit).collect()
    }

    /// Sets the bits of ranks in two words, as the kernel does.
    pub fn set_ranks(words: &mut [u64; MET_WORDS], first: usize, ranks: &[u32]) {
        for rank in ranks.iter().filter(|rank| **rank < 128) {
            words[first + (rank / 64) as usize] |= 1 << (rank % 64);
        }
    }

    /// Returns the nanoseconds that the kernel ran.
    #[allow(clippy::cast_precision_loss, reason = "a quarter of a second")]
    pub const fn took_ns(&self) -> f64 {
        self.0[Self::TOOK] as f64
    }

    /// Returns the nanoseconds of a barrier; none if the phase did not end.
    pub fn barrier_ns(&self) -> Option<f64> {
        self.round_ns(1)
    }

    /// Returns the nanoseconds of an all-reduce of each size; none if the phase did not end.
    pub fn all_reduce_ns(&self) -> [Option<f64>; REDUCED_KIB.len()] {
        std::array::from_fn(|size| self.round_ns(2 + size))
    }

    #[allow(clippy::cast_precision_loss, reason = "a quarter of a second")]
    fn round_ns(&self, phase: usize) -> Option<f64> {
        let ended = self.0[Self::STATE] == Self::ENDED || (phase as u64) < self.0[Self::PHASE];
        let picoseconds = self.0[Self::PICOSECONDS + phase];
        (ended && picoseconds > 0).then_some(picoseconds as f64 / 1e3)
    }

    /// Returns the number of lines that were not what their ranks had stored.
    pub fn wrong_lines(&self) -> u32 {
        let lines = self.0[Self::WRONG..Self::WRONG + PHASES].iter();
        u32::try_from(lines.sum::<u64>()).unwrap_or(u32::MAX)
    }

    /// Returns the ranks that had them.
    pub fn wrong_ranks(&self) -> Vec<u32> {
        self.ranks(Self::WRONG_RANKS)
    }
}

/// Kernels that all talk to each other while they run. Needs the GPU kernels.
pub trait GroupDriver {
    /// Enqueues the members of a meeting, each on its stream, one right after the other. Each ends by itself, with or without
    /// the others.
    fn meet(&self, meeting: &Meeting, members: &[Member]) -> Result<(), HardwareError>;

    /// Returns what the last member at this place of a device met. Its stream must have been waited for.
    fn met(&self, device: Device, place: u32) -> Result<Met, HardwareError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::talk::is_word;

    #[test]
    fn the_words_are_where_the_kernel_has_them() {
        let source = include_str!("../../probes/kernels/group.cu");
        for (name, value) in [
            ("STATE", Met::STATE),
            ("PHASE", Met::PHASE),
            ("ROUND", Met::ROUND),
            ("WANTED", Met::WANTED),
            ("OFFSET", Met::OFFSET),
            ("MISSED", Met::MISSED),
            ("TOOK", Met::TOOK),
            ("PICOSECONDS", Met::PICOSECONDS),
            ("WRONG", Met::WRONG),
            ("WRONG_RANKS", Met::WRONG_RANKS),
            ("WORDS", MET_WORDS),
        ] {
            assert!(is_word(source, name, value), "{name} = {value}");
        }
        for line in [
            format!("RANKS = {MOST_RANKS};"),
            format!("BLOCKS = {MEMBER_BLOCKS};"),
            format!("LAST = {LAST:#x}u;"),
            format!("enum Phase {{ MEET, BARRIER, REDUCE, PHASES = {PHASES} }};"),
        ] {
            assert!(source.contains(&line), "{line}");
        }
    }

    #[test]
    fn phases_before_the_one_that_ended_the_meeting_have_times() {
        let mut words = [0; MET_WORDS];
        words[Met::STATE] = Met::HAS_MISSED;
        words[Met::PHASE] = 3;
        words[Met::ROUND] = 9;
        words[Met::WANTED] = 1009;
        words[Met::OFFSET] = 512;
        words[Met::MISSED] = 1 << 3;
        words[Met::MISSED + 1] = 1 << 6;
        words[Met::PICOSECONDS + 1] = 3_000_000;
        words[Met::PICOSECONDS + 2] = 5_000_000;
        words[Met::PICOSECONDS + 3] = 7_000_000;
        let met = Met(words);
        let missed = met.missed().unwrap();
        assert_eq!((missed.phase, missed.kib, missed.round), (Phase::AllReduce, 32, 9));
        assert_eq!(missed.ranks, [3, 70]);
        assert_eq!(missed.offset_of(70), 512 + 280);
        assert!(missed.is_awaited(1009) && missed.is_awaited(1009 | LAST));
        assert!(!missed.is_awaited(1008));
        assert_eq!(met.barrier_ns(), Some(3000.0));
        assert_eq!(met.all_reduce_ns(), [Some(5000.0), None, None, None]);
        words[Met::PHASE] = 99;
        assert_eq!(Met(words).missed(), None, "no such phase");
    }

    #[test]
    fn wrong_lines_of_all_phases_count() {
        let mut words = [0; MET_WORDS];
        words[Met::STATE] = Met::ENDED;
        (words[Met::WRONG + 2], words[Met::WRONG + 5]) = (1, 4);
        words[Met::WRONG_RANKS] = 0b10;
        let met = Met(words);
        assert_eq!((met.wrong_lines(), met.wrong_ranks()), (5, vec![1]));
        assert_eq!((met.missed(), met.barrier_ns()), (None, None));
    }
}
