//! Kernels that all talk to each other at once. What each member meets is computed when it is launched; the engine has their
//! times.

use crate::engine::Op;
use crate::routes::PathClass;
use crate::spec::{Occasion, TalkFault};
use hardware::{
    BOX_BYTES, Device, ErrorKind, GroupDriver, HardwareError, MET_WORDS, Meeting, Member, Met,
    MissedRanks,
};
use model::live::REDUCED_KIB;

use super::state::State;
use super::talk::{ARRIVAL_NS, READ_NS, WRONG_LINES};
use super::{SimDriver, failed};

/// An all-reduce of no bytes relative to a barrier, and the rates of the loads of one member, GB/s: chosen.
const ALL_REDUCE: f64 = 1.3;
const WITHIN_GBPS: f64 = 400.0;
const NVLINK_GBPS: f64 = 200.0;
const PCIE_GBPS: f64 = 20.0;
const CROSS_SOCKET_GBPS: f64 = 10.0;

/// Ranks that a member misses, and the phase in which it misses them.
struct Misses {
    ranks: Vec<u32>,
    /// Number of the phase, as the kernel counts them.
    phase: u64,
    late: bool,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quarter of a second"
)]
impl State {
    /// Returns the devices of all ranks, or breaks the contexts of members that do not reach one.
    fn devices_of(
        &mut self,
        meeting: &Meeting,
        members: &[Member],
    ) -> Result<Option<Vec<Device>>, HardwareError> {
        let devices = meeting
            .boxes
            .iter()
            .map(|memory| self.mailbox_device(*memory))
            .collect::<Result<Vec<_>, _>>()?;
        for member in members {
            let from = member.stream.device;
            let mut others = devices.iter().filter(|device| **device != from);
            if others.all(|to| self.access.is_given(from, *to)) {
                continue;
            }
            let error = failed(
                ErrorKind::Sticky,
                "cuStreamSynchronize",
                "an illegal memory access was encountered",
                700,
            );
            self.one_block(member.stream, ARRIVAL_NS, None, false)?;
            if let Some(context) = self.context_mut(from) {
                context.broken = Some(error);
            }
            return Ok(None);
        }
        Ok(Some(devices))
    }

    pub(super) fn meet(
        &mut self,
        meeting: &Meeting,
        members: &[Member],
    ) -> Result<(), HardwareError> {
        self.kernels_loaded()?;
        for member in members {
            self.answers(member.stream.device)?;
        }
        for memory in &meeting.boxes {
            self.usable_buffer("cuLaunchKernel", *memory, BOX_BYTES)?;
        }
        let Some(devices) = self.devices_of(meeting, members)? else {
            return Ok(());
        };
        let gpus =
            devices.iter().map(|device| self.index(*device)).collect::<Result<Vec<_>, _>>()?;
        let ranks = 0..u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let fault = |from: u32, to: u32| {
            let (from, to) = (gpus[from as usize], gpus[to as usize]);
            self.talk_fault(from, to, Occasion::AllAtOnce)
        };
        let is_here = |rank: u32| members.iter().any(|member| member.rank == rank);
        // The higher rank of a pair that never runs together begins when the others have given up.
        let is_latecomer =
            |rank: u32| (0..rank).any(|other| fault(other, rank) == Some(TalkFault::NeverResident));
        let lost = |from: u32, to: u32| match fault(from, to) {
            Some(TalkFault::LiveWritesLost | TalkFault::Late) => true,
            _ => !is_here(from) || is_latecomer(from),
        };
        let unseen = |rank: u32| -> Vec<u32> {
            let others = ranks.clone().filter(|other| *other != rank);
            others.filter(|other| lost(*other, rank)).collect()
        };
        let mut found = Vec::new();
        for member in members {
            let rank = member.rank;
            let others = || ranks.clone().filter(|other| *other != rank);
            let missed = unseen(rank);
            let misses = if missed.is_empty() || is_latecomer(rank) {
                // Those that have left are missed at the next barrier.
                let left: Vec<u32> = others().filter(|other| !unseen(*other).is_empty()).collect();
                (!left.is_empty()).then_some(Misses { ranks: left, phase: 1, late: false })
            } else {
                let late = missed
                    .iter()
                    .all(|from| is_latecomer(*from) || fault(*from, rank) == Some(TalkFault::Late));
                Some(Misses { ranks: missed, phase: 0, late })
            };
            let hangs = others().any(|other| {
                let hangs = Some(TalkFault::Hangs);
                fault(other, rank) == hangs || fault(rank, other) == hangs
            });
            let wrong: Vec<u32> =
                others().filter(|other| fault(*other, rank) == Some(TalkFault::Order)).collect();
            found.push((*member, misses, hangs, wrong, is_latecomer(rank)));
        }
        let mut first: Option<Op> = None;
        for (member, misses, hangs, wrong, is_latecomer) in found {
            let times = self.times(&gpus, member.rank);
            let short = meeting.limits.wait.as_secs_f64() * 1e9 < times[1];
            let misses = misses.or_else(|| {
                let others = ranks.clone().filter(|other| *other != member.rank);
                short.then(|| Misses { ranks: others.collect(), phase: 1, late: true })
            });
            let took = match misses {
                Some(misses) => self.misses_ranks(meeting, &member, &misses, &times),
                None => self.meets(meeting, &member, &wrong, &times),
            };
            let after = first.filter(|_| is_latecomer);
            let op = self.one_block(member.stream, took, after, hangs)?;
            first.get_or_insert(op);
        }
        Ok(())
    }

    /// Returns the nanoseconds of a round of each phase: arrival, barrier, and the all-reduces.
    fn times(&self, gpus: &[u32], rank: u32) -> Vec<f64> {
        let own = gpus[rank as usize];
        let others = || gpus.iter().enumerate().filter(|(at, _)| *at != rank as usize);
        let barrier = others()
            .map(|(_, gpu)| self.round_trip_ns(own, *gpu, Occasion::AllAtOnce))
            .fold(0.0, f64::max);
        let ns_of_byte: f64 = others()
            .map(|(_, gpu)| match self.spec.direct_route(own, *gpu).class {
                _ if own == *gpu => 1.0 / WITHIN_GBPS,
                PathClass::NvLink => 1.0 / NVLINK_GBPS,
                PathClass::Pcie => 1.0 / PCIE_GBPS,
                PathClass::CrossSocket | PathClass::Staged => 1.0 / CROSS_SOCKET_GBPS,
            })
            .sum();
        let reduced = REDUCED_KIB
            .iter()
            .map(|kib| ALL_REDUCE * barrier + f64::from(*kib) * 1024.0 * ns_of_byte);
        [ARRIVAL_NS, barrier].into_iter().chain(reduced).collect()
    }

    /// Notes that a member meets all others, and returns its time.
    fn meets(&mut self, meeting: &Meeting, member: &Member, wrong: &[u32], times: &[f64]) -> f64 {
        let mut words = [0; MET_WORDS];
        words[Met::STATE] = Met::ENDED;
        let took = self.passes(meeting, &mut words, times);
        if !wrong.is_empty() {
            words[Met::WRONG + 2] = WRONG_LINES;
            Met::set_ranks(&mut words, Met::WRONG_RANKS, wrong);
        }
        words[Met::TOOK] = took as u64;
        self.note_met(member, words);
        took
    }

    /// Notes that a member misses others, and returns its time. Flags that arrive late are there afterwards.
    fn misses_ranks(
        &mut self,
        meeting: &Meeting,
        member: &Member,
        misses: &Misses,
        times: &[f64],
    ) -> f64 {
        let mut words = [0; MET_WORDS];
        let phase = misses.phase as usize;
        let before = self.passes(meeting, &mut words, &times[..phase]);
        let limit = if phase == 0 { meeting.limits.arrival } else { meeting.limits.wait };
        let took = before + limit.min(meeting.limits.total).as_secs_f64() * 1e9;
        let wanted = meeting.base.wrapping_add(1 + phase as u32);
        words[Met::STATE] = Met::HAS_MISSED;
        words[Met::PHASE] = misses.phase;
        words[Met::ROUND] = 1;
        words[Met::WANTED] = u64::from(wanted);
        words[Met::OFFSET] = u64::from(wanted & 1) * 512;
        words[Met::TOOK] = took as u64;
        Met::set_ranks(&mut words, Met::MISSED, &misses.ranks);
        let missed: Option<MissedRanks> = Met(words).missed();
        for rank in missed.iter().flat_map(|missed| missed.ranks.iter()) {
            let own = meeting.boxes[member.rank as usize].id;
            let offset = missed.as_ref().map_or(0, |missed| missed.offset_of(*rank));
            if misses.late {
                self.talks.late.insert((own, offset), wanted);
            } else {
                self.talks.late.remove(&(own, offset));
            }
        }
        self.note_met(member, words);
        took
    }

    /// Notes the times of phases that were passed, and returns their sum.
    fn passes(&self, meeting: &Meeting, words: &mut [u64; MET_WORDS], times: &[f64]) -> f64 {
        let mut took = 0.0;
        for (phase, ns) in times.iter().enumerate() {
            let rounds = if phase == 0 { 1 } else { meeting.rounds.max(1) };
            words[Met::PICOSECONDS + phase] = (ns * 1e3) as u64;
            took += (f64::from(rounds) * ns).min(meeting.phase.as_secs_f64() * 1e9);
        }
        took
    }

    fn note_met(&mut self, member: &Member, words: [u64; MET_WORDS]) {
        let place = (member.stream.device, member.place);
        self.talks.met.insert(place, Met(words));
    }
}

impl GroupDriver for SimDriver {
    fn meet(&self, meeting: &Meeting, members: &[Member]) -> Result<(), HardwareError> {
        self.state.borrow_mut().meet(meeting, members)
    }

    fn met(&self, device: Device, place: u32) -> Result<Met, HardwareError> {
        let mut state = self.call(device)?;
        state.clock_ns += READ_NS;
        state.catch_up();
        let met = state.talks.met.get(&(device, place)).copied();
        Ok(met.unwrap_or(Met([0; MET_WORDS])))
    }
}
