//! Kernels that talk to each other while both run, and loads that follow pointers. The third part of
//! [`Driver`](super::Driver). probes/live/talk.cuh has the mailbox and the words of the result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Buffer, Device, HardwareError, Stream};
use model::live::Phase;

/// Bytes of a mailbox.
pub const MAILBOX_BYTES: u64 = 64 * 1024 + 2 * (1 << 20);
/// Words that a talk kernel writes.
pub const HEARD_WORDS: usize = 64;
/// Additions of each of the 32 threads of a side to each of the two words.
const ADDITIONS: u64 = 64;
/// Swaps of a side on each of the two words.
const SWAPS: u64 = 64;

/// Most rounds of a phase of channels: chosen, more than fit in its time.
pub const CHANNEL_ROUNDS: u32 = 8192;
/// Bytes of data that a warp (LL128) or a block (Simple) of a channel gets in a round.
pub const CHANNEL_DATA: [u64; 3] = [16 * 120, 16 << 10, 16 << 10];

/// One side of a talk. The other side has the mailboxes swapped and the other role; base, rounds and atomics are the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Talk {
    pub stream: Stream,
    /// Mailbox on the device of the stream.
    pub mine: Buffer,
    /// Mailbox of the other side.
    pub theirs: Buffer,
    /// True for the side that answers flags.
    pub answers: bool,
    /// Rounds of each phase.
    pub rounds: u32,
    /// The number that flags count from. No two talks have the same, so that a flag of an earlier one means nothing.
    pub base: u32,
    /// True to end with atomics on both mailboxes.
    pub atomics: bool,
    pub limits: TalkLimits,
}

/// The longest times of a talk, by the clock of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TalkLimits {
    /// Until the other side is seen.
    pub arrival: Duration,
    /// Of each other wait.
    pub wait: Duration,
    /// Limit of the whole talk, without its channels.
    pub total: Duration,
    /// Length of each phase of channels.
    pub channels: Duration,
}

impl Talk {
    /// Returns how many numbers after its base a talk of so many rounds may use as flags.
    pub fn flags(rounds: u32) -> u32 {
        rounds.max(4 * CHANNEL_ROUNDS + 3)
    }
}

/// The words that a talk kernel wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard(pub [u64; HEARD_WORDS]);

/// A word that a side did not see in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    pub phase: Phase,
    /// From 1 on.
    pub round: u32,
    /// The last value that was seen, and the one that was waited for.
    pub seen: u32,
    pub wanted: u32,
    /// Place in the mailbox.
    pub offset: u32,
    /// True if the mailbox is that of the other side.
    pub remote: bool,
}

impl Heard {
    /// Places of the words.
    pub const STATE: usize = 0;
    pub const PHASE: usize = 1;
    pub const ROUND: usize = 2;
    pub(crate) const SEEN: usize = 3;
    pub const WANTED: usize = 4;
    pub const OFFSET: usize = 5;
    pub const REMOTE: usize = 6;
    pub const TOOK: usize = 7;
    /// The first of the times of the phases.
    pub const NS: usize = 8;
    /// The first of the counts of what was wrong.
    pub const WRONG: usize = 24;
    pub const ADDED: usize = 40;
    pub const SWAPPED: usize = 41;
    pub const HAS_ATOMICS: usize = 42;
    pub(crate) const EARLY: usize = 43;
    /// The first of the rounds of channels, of all warps or blocks.
    pub const ROUNDS: usize = 45;
    const CHANNELS_TOOK: usize = 44;
    /// States of a kernel.
    pub const ENDED: u64 = 2;
    pub const MISSED: u64 = 3;
    /// The right values of the two words of a mailbox, after both sides.
    pub const ALL_ADDED: u64 = 2 * 32 * ADDITIONS;
    pub const ALL_SWAPPED: u64 = 2 * SWAPS;

    /// Returns true if the kernel came to its end, by itself or because it missed something.
    pub const fn has_ended(&self) -> bool {
        matches!(self.0[Self::STATE], Self::ENDED | Self::MISSED)
    }

    /// Returns what the side did not see in time; none if it saw everything.
    pub fn unseen(&self) -> Option<Unseen> {
        if self.0[Self::STATE] != Self::MISSED {
            return None;
        }
        let word = |at: usize| u32::try_from(self.0[at]).unwrap_or(u32::MAX);
        Some(Unseen {
            phase: *Phase::ALL.get(usize::try_from(self.0[Self::PHASE]).ok()?)?,
            round: word(Self::ROUND),
            seen: word(Self::SEEN),
            wanted: word(Self::WANTED),
            offset: word(Self::OFFSET),
            remote: self.0[Self::REMOTE] != 0,
        })
    }

    /// Returns the nanoseconds that the last kernel ran, of talk or channels.
    #[allow(clippy::cast_precision_loss, reason = "a quarter of a second")]
    pub const fn took_ns(&self) -> f64 {
        let of_channels = self.0[Self::CHANNELS_TOOK];
        (if of_channels > 0 { of_channels } else { self.0[Self::TOOK] }) as f64
    }

    /// Returns the nanoseconds of a phase that was run to its end.
    #[allow(clippy::cast_precision_loss, reason = "a quarter of a second")]
    pub fn ns(&self, phase: Phase) -> Option<f64> {
        let missed = self.unseen().map(|unseen| unseen.phase);
        let ns = self.0[Self::NS + phase as usize];
        (ns > 0 && missed != Some(phase)).then_some(ns as f64)
    }

    /// Returns the rates of data of channels, GB/s.
    #[allow(clippy::cast_precision_loss, reason = "some megabytes")]
    pub fn gbps(&self) -> [Option<f64>; 3] {
        std::array::from_fn(|at| {
            let bytes = self.0[Self::ROUNDS + at] * CHANNEL_DATA[at];
            Some(bytes as f64 / self.ns(Phase::OF_CHANNELS[at])?)
        })
    }

    /// Returns the number of lines that were wrong behind their flag in a phase.
    pub fn wrong(&self, phase: Phase) -> u32 {
        u32::try_from(self.0[Self::WRONG + phase as usize]).unwrap_or(u32::MAX)
    }

    /// Returns the number of lines of 128 bytes whose first load behind the flag lacked data.
    pub fn early(&self) -> u32 {
        u32::try_from(self.0[Self::EARLY]).unwrap_or(u32::MAX)
    }

    /// Returns the number of additions and swaps that are lacking on the words of this side's mailbox. A surplus counts too.
    /// `None` if they were not made to the end.
    pub fn atomics_lost(&self) -> Option<u32> {
        if self.0[Self::STATE] != Self::ENDED || self.0[Self::HAS_ATOMICS] == 0 {
            return None;
        }
        let lacking = self.0[Self::ADDED].abs_diff(Self::ALL_ADDED)
            + self.0[Self::SWAPPED].abs_diff(Self::ALL_SWAPPED);
        Some(u32::try_from(lacking).unwrap_or(u32::MAX))
    }
}

/// Pointers to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chase {
    pub stream: Stream,
    /// The memory that is read: of the device, of a peer, or page-locked memory of the host.
    pub memory: Buffer,
    /// Number of pointers, a power of two.
    pub count: u32,
    /// Distance between pointers, bytes.
    pub stride: u32,
    /// Loads that are timed.
    pub hops: u32,
    /// Time after which it ends by itself.
    pub limit: Duration,
}

/// The loads of a chase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    pub made: u64,
    pub ns: u64,
}

/// Kernels that talk while they run. Needs the GPU kernels.
pub trait TalkDriver {
    /// Returns true if the driver promises that atomics of `device` on the memory of `peer` are made there, natively. Within a
    /// device they are.
    fn native_atomics(&self, device: Device, peer: Device) -> Result<bool, HardwareError>;

    /// Enqueues these sides, each on its stream, one right after the other. Each ends by itself, with or without the other.
    fn talk(&self, talks: &[Talk]) -> Result<(), HardwareError>;

    /// Returns what the last talk kernel of a device and role heard. Its stream must have been waited for.
    fn heard(&self, device: Device, answers: bool) -> Result<Heard, HardwareError>;

    /// Reads a word of a mailbox as it is when everything on the device has ended.
    fn look(&self, mailbox: Buffer, offset: u32) -> Result<u32, HardwareError>;

    /// Enqueues a kernel that follows pointers, after it has written them.
    fn chase(&self, chase: &Chase) -> Result<(), HardwareError>;

    /// Returns the loads of the last chase of a device. Its stream must have been waited for.
    fn chased(&self, device: Device) -> Result<Hops, HardwareError>;
}

/// Returns true if the source of a kernel gives a word of its result this number.
#[cfg(test)]
pub(crate) fn is_word(source: &str, name: &str, number: usize) -> bool {
    let mut lines = source.lines().map(str::trim_start);
    lines.any(|line| {
        let given = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(" = "));
        given.is_some_and(|given| given.split([',', ' ']).next() == Some(&number.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_where_the_kernel_has_them() {
        let source = include_str!("../../probes/live/talk.cuh");
        for (name, value) in [
            ("STATE", Heard::STATE),
            ("PHASE", Heard::PHASE),
            ("ROUND", Heard::ROUND),
            ("SEEN", Heard::SEEN),
            ("WANTED", Heard::WANTED),
            ("OFFSET", Heard::OFFSET),
            ("REMOTE", Heard::REMOTE),
            ("TOOK", Heard::TOOK),
            ("NS", Heard::NS),
            ("WRONG", Heard::WRONG),
            ("ADDED", Heard::ADDED),
            ("SWAPPED", Heard::SWAPPED),
            ("HAS_ATOMICS", Heard::HAS_ATOMICS),
            ("EARLY", Heard::EARLY),
            ("CHANNELS_TOOK", Heard::CHANNELS_TOOK),
            ("ROUNDS", Heard::ROUNDS),
            ("WORDS", HEARD_WORDS),
        ] {
            assert!(is_word(source, name, value), "{name} = {value}");
        }
        let phases = source.lines().find(|line| line.starts_with("enum Phase {")).unwrap();
        assert_eq!(phases.matches(',').count(), Phase::ALL.len());
        assert!(phases.ends_with("ATOMICS, LL128_CHANNELS, SIMPLE_PUSH, SIMPLE_PULL, PHASES };"));
        let source = include_str!("../../probes/live/talk.cu");
        assert!(source.contains(&format!("ADDITIONS = {ADDITIONS};")));
        assert!(source.contains(&format!("SWAPS = {SWAPS};")));
    }

    #[test]
    fn the_rate_of_channels_is_that_of_all_their_rounds() {
        let mut words = [0; HEARD_WORDS];
        words[Heard::STATE] = Heard::ENDED;
        assert_eq!(Heard(words).gbps(), [None; 3], "without channels");
        words[Heard::NS + Phase::Ll128Channels as usize] = 1920;
        words[Heard::NS + Phase::SimplePull as usize] = 16384;
        words[Heard::ROUNDS..Heard::ROUNDS + 3].copy_from_slice(&[150, 9, 80]);
        assert_eq!(Heard(words).gbps(), [Some(150.0), None, Some(80.0)]);
        words[Heard::STATE] = Heard::MISSED;
        words[Heard::PHASE] = Phase::SimplePull as u64;
        assert_eq!(Heard(words).gbps(), [Some(150.0), None, None], "it never ended");
    }

    #[test]
    fn a_missed_word_is_of_the_phase_that_ended_the_talk() {
        let mut words = [0; HEARD_WORDS];
        words[Heard::STATE] = Heard::MISSED;
        words[Heard::PHASE] = Phase::Ll as u64;
        words[Heard::ROUND] = 7;
        words[Heard::NS + Phase::Push as usize] = 840_000;
        words[Heard::NS + Phase::Ll as usize] = 20_000_000;
        let heard = Heard(words);
        assert_eq!(heard.unseen().map(|unseen| (unseen.phase, unseen.round)), Some((Phase::Ll, 7)));
        assert_eq!(heard.ns(Phase::Push), Some(840_000.0));
        assert_eq!(heard.ns(Phase::Ll), None, "it never ended");
        assert_eq!(heard.ns(Phase::Simple), None, "it never began");
        assert_eq!(heard.atomics_lost(), None);
        words[Heard::PHASE] = 99;
        assert_eq!(Heard(words).unseen(), None, "no such phase");
    }

    #[test]
    fn atomics_are_lost_if_the_sums_differ_either_way() {
        let mut words = [0; HEARD_WORDS];
        words[Heard::STATE] = Heard::ENDED;
        assert_eq!(Heard(words).atomics_lost(), None, "none were made");
        words[Heard::HAS_ATOMICS] = 1;
        words[Heard::ADDED] = Heard::ALL_ADDED;
        words[Heard::SWAPPED] = Heard::ALL_SWAPPED;
        assert_eq!(Heard(words).atomics_lost(), Some(0));
        words[Heard::ADDED] -= 5;
        words[Heard::SWAPPED] += 1;
        assert_eq!(Heard(words).atomics_lost(), Some(6));
    }
}
