//! Kernels that talk while they run. Both sides of a talk are computed when they are launched; the engine has their times.

use crate::engine::{Few, Op, Submission, Work};
use crate::routes::PathClass;
use crate::spec::{CopyFault, TalkFault};
use hardware::{
    Buffer, CHANNEL_DATA, Chase, Device, ErrorKind, HEARD_WORDS, HardwareError, Heard, Hops,
    MAILBOX_BYTES, Talk, TalkDriver,
};
use model::live::Phase;
use model::placement::{Engine, Path, Side};

use super::state::State;
use super::{SimDriver, failed};

/// Round trip of a pushed flag, microseconds, over NVLink as measured on H200 (docs/dev/facts.md, "Kernels that talk").
/// The others are chosen.
const NVLINK_US: f64 = 2.8;
const PCIE_US: f64 = 4.5;
const CROSS_SOCKET_US: f64 = 6.5;
/// Between two kernels of one GPU: chosen.
const WITHIN_US: f64 = 1.4;
/// Times of the other phases relative to that of a pushed flag, measured over NVLink (docs/dev/facts.md, "Kernels that
/// talk"): 3.31, 1.0, 0.96, 4.9 and 4.5 of 2.80 us.
const PULL: f64 = 1.18;
const LL: f64 = 0.36;
const LL128: f64 = 0.34;
const SIMPLE: f64 = 1.75;
const ATOMICS: f64 = 1.6;
/// Rates of channels with LL128, GB/s, and those of Simple, pushed and pulled, relative to them: 313, 141 and 133 on 2 x H200
/// (docs/dev/facts.md). Those of PCIe are chosen.
const NVLINK_GBPS: f64 = 313.0;
const PCIE_GBPS: f64 = 10.0;
const CROSS_SOCKET_GBPS: f64 = 7.0;
const WITHIN_GBPS: f64 = 468.0;
const CHANNELS: [f64; 3] = [1.0, 0.45, 0.43];
/// Nanoseconds until a side sees the other one: 1.8 to 8 us were measured.
const ARRIVAL_NS: f64 = 3e3;
/// A load from another GPU relative to a round trip: 0.800 of 2.80 us were measured.
const CHASE: f64 = 0.286;
/// Microseconds of a load from own and from page-locked memory, as measured on H200 (docs/dev/facts.md, "Kernels that
/// talk").
const OWN_US: f64 = 0.142;
const HOST_US: f64 = 1.16;
/// Lines that arrive wrong or torn, and atomics that are lost, where a fault has them: chosen.
const WRONG_LINES: u64 = 3;

const PHASES: usize = Phase::ALL.len();
/// Nanoseconds of each phase.
type Times = [f64; PHASES];

/// Returns the nanoseconds of each phase of a talk, by the round trip of a flag.
fn times_of(talk: &Talk, rtt: f64) -> Times {
    let rounds = f64::from(talk.rounds);
    let channels = talk.limits.channels.as_secs_f64() * 1e9;
    [
        ARRIVAL_NS,
        rounds * rtt,
        rounds * rtt * PULL,
        rounds * rtt * LL,
        rounds * rtt * LL128,
        (rounds / 4.0).ceil() * rtt * SIMPLE,
        if talk.atomics { rtt * ATOMICS } else { 0.0 },
        channels,
        channels,
        channels,
    ]
}

/// One side, while its fate is found.
struct SideOf<'a> {
    talk: &'a Talk,
    /// Fault of the way from the other side to this one.
    fault: Option<TalkFault>,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quarter of a second"
)]
impl State {
    /// Returns the fault of stores of kernels on one GPU into the memory of another.
    pub(super) fn talk_fault(&self, from: u32, to: u32) -> Option<TalkFault> {
        let of_talk = self.spec.faults.talk.iter();
        let mut own =
            of_talk.filter(|fault| fault.pairs.contains(from, to)).map(|fault| fault.fault);
        // What copies by kernels lose, stores lose too.
        let copied = || {
            let ends = (from, to);
            let fault = self.spec.copy_fault(ends, Engine::Kernel, Side::Source, Path::Direct)?;
            match fault.fault {
                CopyFault::Dropped if !fault.is_conditional() => Some(TalkFault::LiveWritesLost),
                CopyFault::Hangs if !fault.is_conditional() => Some(TalkFault::Hangs),
                _ => None,
            }
        };
        own.next().or_else(copied)
    }

    /// Returns the round trip of a pushed flag between two GPUs, nanoseconds.
    pub(super) fn round_trip_ns(&self, one: u32, other: u32) -> f64 {
        self.between(one, other).0
    }

    /// Returns it with the rate of channels, GB/s.
    fn between(&self, one: u32, other: u32) -> (f64, f64) {
        if one == other {
            return (WITHIN_US * 1e3, WITHIN_GBPS);
        }
        let (us, gbps) = match self.spec.direct_route(one, other).class {
            PathClass::NvLink => (NVLINK_US, NVLINK_GBPS),
            PathClass::Pcie => (PCIE_US, PCIE_GBPS),
            PathClass::CrossSocket | PathClass::Staged => (CROSS_SOCKET_US, CROSS_SOCKET_GBPS),
        };
        let slow = |from, to| match self.talk_fault(from, to) {
            Some(TalkFault::Slow { times }) => *times,
            _ => 1.0,
        };
        let times = (slow(one, other) + slow(other, one)) / 2.0;
        (us * 1e3 * times, gbps / times)
    }

    pub(super) fn mailbox_device(&self, mailbox: Buffer) -> Result<Device, HardwareError> {
        mailbox
            .device()
            .ok_or_else(|| HardwareError::new(ErrorKind::Other, "a mailbox is memory of a device"))
    }

    /// Enqueues a kernel of one block that takes this long.
    pub(super) fn one_block(
        &mut self,
        talk_stream: hardware::Stream,
        ns: f64,
        after: Option<Op>,
        hangs: bool,
    ) -> Result<Op, HardwareError> {
        let lanes = Few::one(self.lane(talk_stream)?);
        self.call();
        let work = if hangs { Work::Never } else { Work::Busy(ns) };
        Ok(self.engine.enqueue(Submission {
            lanes,
            after,
            at: self.clock_ns,
            servers: Few::NONE,
            work,
        }))
    }

    pub(super) fn talk(&mut self, talks: &[Talk]) -> Result<(), HardwareError> {
        self.kernels_loaded()?;
        for talk in talks {
            self.answers(talk.stream.device)?;
            for mailbox in [talk.mine, talk.theirs] {
                self.usable_buffer("cuLaunchKernel", mailbox, MAILBOX_BYTES)?;
            }
            if !self.talks.take_flags(talk.mine.id, talk.base, Talk::flags(talk.rounds)) {
                let why = "flags of an earlier talk are in this mailbox and would be taken for those of this one";
                return Err(HardwareError::new(ErrorKind::Other, why));
            }
        }
        let mut done = vec![false; talks.len()];
        for at in 0..talks.len() {
            if std::mem::replace(&mut done[at], true) {
                continue;
            }
            let partner = (at + 1..talks.len()).find(|&other| {
                talks[other].mine == talks[at].theirs
                    && talks[other].theirs == talks[at].mine
                    && talks[other].answers != talks[at].answers
                    && talks[other].base == talks[at].base
                    && !done[other]
            });
            match partner {
                Some(other) => {
                    done[other] = true;
                    self.pair(&talks[at], &talks[other])?;
                }
                None => self.alone(&talks[at])?,
            }
        }
        Ok(())
    }

    /// Runs a side that nobody answers.
    fn alone(&mut self, talk: &Talk) -> Result<(), HardwareError> {
        let ns = self.misses(talk, Phase::Arrival, 1, false, false, &[0.0; PHASES]);
        self.one_block(talk.stream, ns, None, false).map(drop)
    }

    /// Runs both sides of a talk.
    fn pair(&mut self, one: &Talk, other: &Talk) -> Result<(), HardwareError> {
        let devices = [one, other].map(|talk| self.mailbox_device(talk.mine));
        let [of_one, of_other] = devices;
        let (of_one, of_other) = (of_one?, of_other?);
        let (a, b) = (self.index(of_one)?, self.index(of_other)?);
        // Without access a store into the other GPU breaks the context.
        for (talk, from, to) in [(one, of_one, of_other), (other, of_other, of_one)] {
            if from != to && !self.access.is_given(from, to) {
                let error = failed(
                    ErrorKind::Sticky,
                    "cuStreamSynchronize",
                    "an illegal memory access was encountered",
                    700,
                );
                self.one_block(talk.stream, ARRIVAL_NS, None, false)?;
                if let Some(context) = self.context_mut(from) {
                    context.broken = Some(error);
                }
                return Ok(());
            }
        }
        let sides = [
            SideOf { talk: one, fault: self.talk_fault(b, a) },
            SideOf { talk: other, fault: self.talk_fault(a, b) },
        ];
        let (rtt, gbps) = self.between(a, b);
        let ns = times_of(one, rtt);
        if sides.iter().any(|side| side.fault == Some(TalkFault::NeverResident)) {
            // The second kernel begins when the first has given up. It finds the arrival of the first.
            let first = self.misses(one, Phase::Arrival, 1, true, false, &ns);
            let op = self.one_block(one.stream, first, None, false)?;
            let second = self.misses(other, Phase::Push, 1, false, false, &ns);
            return self.one_block(other.stream, second, Some(op), false).map(drop);
        }
        for (place, side) in sides.iter().enumerate() {
            self.one_side(side, sides[1 - place].fault, (rtt, gbps))?;
        }
        Ok(())
    }

    /// Runs a side whose partner, on which the opposite fault acts, runs at the same time.
    fn one_side(
        &mut self,
        side: &SideOf<'_>,
        opposite: Option<TalkFault>,
        (rtt, gbps): (f64, f64),
    ) -> Result<(), HardwareError> {
        let ns = times_of(side.talk, rtt);
        let slow_wait = side.talk.limits.wait.as_secs_f64() * 1e9;
        // The first wait that is longer than a side may wait.
        let short = slow_wait < rtt;
        let hangs = [side.fault, opposite].contains(&Some(TalkFault::Hangs));
        let took = match (side.fault, opposite) {
            (Some(TalkFault::LiveWritesLost), _) => {
                self.misses(side.talk, Phase::Arrival, 1, false, false, &ns)
            }
            (Some(TalkFault::Late | TalkFault::NeverResident), _) => {
                self.misses(side.talk, Phase::Arrival, 1, true, false, &ns)
            }
            // It saw the other one, which then left.
            (_, Some(TalkFault::LiveWritesLost | TalkFault::Late | TalkFault::NeverResident)) => {
                self.misses(side.talk, Phase::Push, 1, false, false, &ns)
            }
            _ if short => self.misses(side.talk, Phase::Push, 1, true, false, &ns),
            (fault, _) => self.hears(side.talk, fault, &ns, gbps),
        };
        self.one_block(side.talk.stream, took, None, hangs).map(drop)
    }

    /// Notes that a side hears everything, and returns its time. What a fault makes wrong is counted.
    fn hears(&mut self, talk: &Talk, fault: Option<TalkFault>, ns: &Times, gbps: f64) -> f64 {
        let mut words = [0; HEARD_WORDS];
        let took: f64 = ns.iter().sum();
        words[Heard::STATE] = Heard::ENDED;
        words[Heard::PHASE] = Phase::SimplePull as u64;
        words[Heard::TOOK] = took as u64;
        for (place, ns) in ns.iter().enumerate() {
            words[Heard::NS + place] = *ns as u64;
        }
        if talk.atomics {
            words[Heard::HAS_ATOMICS] = 1;
            words[Heard::ADDED] = Heard::ALL_ADDED;
            words[Heard::SWAPPED] = Heard::ALL_SWAPPED;
        }
        for (at, phase) in Phase::OF_CHANNELS.into_iter().enumerate() {
            let bytes = gbps * CHANNELS[at] * ns[phase as usize];
            words[Heard::ROUNDS + at] = bytes as u64 / CHANNEL_DATA[at];
        }
        let mut wrong = |phases: &[Phase]| {
            phases.iter().for_each(|phase| words[Heard::WRONG + *phase as usize] = WRONG_LINES);
        };
        match fault {
            Some(TalkFault::Torn) => wrong(&[Phase::Ll128, Phase::Ll128Channels]),
            Some(TalkFault::TornLl) => wrong(&[Phase::Ll]),
            Some(TalkFault::Order) => wrong(&[Phase::Simple, Phase::SimplePush, Phase::SimplePull]),
            Some(TalkFault::OrderOfBlocks) => wrong(&[Phase::SimplePush, Phase::SimplePull]),
            Some(TalkFault::AtomicsLost) if talk.atomics => {
                words[Heard::ADDED] = Heard::ALL_ADDED - WRONG_LINES;
                words[Heard::WRONG + Phase::Atomics as usize] = 1;
            }
            _ => {}
        }
        self.talks.heard.insert((talk.stream.device, talk.answers), Heard(words));
        took
    }

    /// Notes that a side misses a word, and returns its time. A word that arrives late is there afterwards.
    fn misses(
        &mut self,
        talk: &Talk,
        phase: Phase,
        round: u32,
        late: bool,
        remote: bool,
        ns: &Times,
    ) -> f64 {
        let (offset, wanted) = match phase {
            Phase::Arrival => (0, talk.base),
            _ => (128, talk.base.wrapping_add(round)),
        };
        let limit = if phase == Phase::Arrival { talk.limits.arrival } else { talk.limits.wait };
        let limit = limit.min(talk.limits.total).as_secs_f64() * 1e9;
        let before: f64 = ns[..phase as usize].iter().sum();
        let mut words = [0; HEARD_WORDS];
        words[Heard::STATE] = Heard::MISSED;
        words[Heard::PHASE] = phase as u64;
        words[Heard::ROUND] = u64::from(round);
        words[Heard::WANTED] = u64::from(wanted);
        words[Heard::OFFSET] = u64::from(offset);
        words[Heard::REMOTE] = u64::from(remote);
        words[Heard::TOOK] = (before + limit) as u64;
        for (place, ns) in ns.iter().enumerate().take(phase as usize) {
            words[Heard::NS + place] = *ns as u64;
        }
        words[Heard::NS + phase as usize] = limit as u64;
        if late {
            self.talks.late.insert((talk.mine.id, offset), wanted);
        }
        self.talks.heard.insert((talk.stream.device, talk.answers), Heard(words));
        before + limit
    }

    pub(super) fn chase(&mut self, chase: &Chase) -> Result<(), HardwareError> {
        self.kernels_loaded()?;
        let device = chase.stream.device;
        self.answers(device)?;
        let bytes = u64::from(chase.count) * u64::from(chase.stride);
        self.usable_buffer("cuLaunchKernel", chase.memory, bytes)?;
        let us = match chase.memory.device() {
            None => HOST_US,
            Some(of) if of == device => OWN_US,
            Some(of) => {
                let (a, b) = (self.index(device)?, self.index(of)?);
                self.round_trip_ns(a, b) / 1e3 * CHASE
            }
        };
        let ns = (f64::from(chase.hops) * us * 1e3).min(chase.limit.as_secs_f64() * 1e9);
        let made = (ns / (us * 1e3)).round() as u64;
        self.talks.hops.insert(device, Hops { made, ns: ns as u64 });
        self.one_block(chase.stream, ns, None, false).map(drop)
    }
}

impl TalkDriver for SimDriver {
    fn native_atomics(&self, device: Device, peer: Device) -> Result<bool, HardwareError> {
        let mut state = self.state.borrow_mut();
        state.call();
        let (device, peer) = (state.index(device)?, state.index(peer)?);
        Ok(device == peer || state.spec.native_atomics(device, peer))
    }

    fn talk(&self, talks: &[Talk]) -> Result<(), HardwareError> {
        self.state.borrow_mut().talk(talks)
    }

    fn heard(&self, device: Device, answers: bool) -> Result<Heard, HardwareError> {
        let mut state = self.call(device)?;
        state.clock_ns += READ_NS;
        state.catch_up();
        let heard = state.talks.heard.get(&(device, answers)).copied();
        Ok(heard.unwrap_or(Heard([0; HEARD_WORDS])))
    }

    fn look(&self, mailbox: Buffer, offset: u32) -> Result<u32, HardwareError> {
        let mut state = self.caught_up();
        state.usable_buffer("cuMemcpyDtoH", mailbox, u64::from(offset) + 4)?;
        state.clock_ns += READ_NS;
        let there = state.talks.late.get(&(mailbox.id, offset)).copied();
        Ok(there.unwrap_or_default())
    }

    fn chase(&self, chase: &Chase) -> Result<(), HardwareError> {
        self.state.borrow_mut().chase(chase)
    }

    fn chased(&self, device: Device) -> Result<Hops, HardwareError> {
        let mut state = self.call(device)?;
        state.clock_ns += READ_NS;
        state.catch_up();
        let hops = state.talks.hops.get(&device).copied();
        Ok(hops.unwrap_or(Hops { made: 0, ns: 0 }))
    }
}

/// Nanoseconds of a small copy to the host that is waited for: chosen.
const READ_NS: f64 = 1e4;
