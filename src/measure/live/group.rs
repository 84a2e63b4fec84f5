//! Lets kernels of all GPUs of a group talk to each other at once: a barrier of flags, and an all-reduce by loads from all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::bench::Bench;
use super::super::figures::{no_samples, without_figures};
use super::super::{Outcome, Span};
use super::{LEAST_TOGETHER_NS, LIMITS, SHORT};
use hardware::{
    BOX_BYTES, Buffer, ErrorKind, Event, HardwareError, MEMBER_BLOCKS, Meeting, Member, Stream,
    TalkLimits,
};
use model::flow::Flow;
use model::live::{GroupTalk, Miss, Missed, Phase, REDUCED_KIB};
use model::maps::Map;
use model::placement::{Pair, StreamKind};
use model::status::{Ending, Status, Verified};
use plan::{Round, Trial};

/// Kernels that talk at once within a single GPU, of one block each.
const WITHIN: u32 = 4;
/// Time after which a phase ends before its rounds are over. Its five phases then end within half of the whole time, over slow
/// links too.
const PHASE: Duration = Duration::from_millis(20);

/// Results of the kernels of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupMet {
    /// By rank. One that was not launched is missing at the end.
    pub members: Vec<MemberMet>,
    /// Kernels of the group.
    pub kernels: u32,
}

/// Result of the kernel of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberMet {
    /// The GPU, by NVML index.
    pub gpu: u32,
    /// Time of the kernel.
    pub span: Span,
    /// Nanoseconds of a barrier, and of an all-reduce of each size.
    pub barrier_ns: Option<f64>,
    pub all_reduce_ns: [Option<f64>; 4],
    /// Lines that were wrong behind the flags, and the ranks that had stored them.
    pub wrong_lines: u32,
    pub wrong_ranks: Vec<u32>,
    /// Ranks that were not seen in time.
    pub missed: Option<MissedOnes>,
}

/// Ranks that were not seen in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedOnes {
    pub phase: Phase,
    /// Size of the all-reduce, KiB; 0 in other phases.
    pub kib: u32,
    pub round: u32,
    pub ranks: Vec<u32>,
    /// True if the flags of all of them were there when all kernels had ended.
    pub there_later: bool,
}

/// A member that is to be launched.
struct Seat {
    gpu: u32,
    member: Member,
    start: Event,
    end: Event,
}

/// Returns the number of flags of a meeting: one for the arrival, and one for each round of each phase.
fn flags_of(rounds: u32) -> u32 {
    let reduces = u32::try_from(REDUCED_KIB.len()).unwrap_or(u32::MAX);
    rounds.saturating_mul(reduces.saturating_add(1)).saturating_add(1)
}

impl Bench<'_> {
    /// Lets all GPUs of a round talk to each other at once; with a single GPU, some kernels of it.
    pub(in super::super) fn group(
        &self,
        round: &Round,
        rounds: u32,
        trial: Option<Trial>,
    ) -> Result<Outcome, HardwareError> {
        let ranks = ranks(round)?;
        self.reach_each_other(&ranks)?;
        let seats = self.members(&ranks, trial)?;
        let mut boxes = Vec::new();
        for (at, gpu) in ranks.iter().enumerate() {
            let before = ranks[..at].iter().filter(|other| *other == gpu).count();
            boxes.push(self.box_of(*gpu, before as u64)?);
        }
        let wait = match trial {
            Some(Trial::ShortLimit) => SHORT,
            _ => LIMITS.wait,
        };
        let one_each =
            ranks.iter().all(|gpu| ranks.iter().filter(|other| *other == gpu).count() == 1);
        let mut meeting = Meeting {
            boxes,
            rounds,
            base: 0,
            blocks: if one_each { MEMBER_BLOCKS } else { 1 },
            limits: TalkLimits { wait, ..LIMITS },
            phase: PHASE,
        };
        let opened = self.gated(|| {
            meeting.base = self.seeds.flags(flags_of(rounds));
            let mut opened = Map::default();
            for seat in &seats {
                let gate = match opened.get(&seat.gpu) {
                    Some(gate) => *gate,
                    None => self.close_gate(seat.gpu)?,
                };
                opened.insert(seat.gpu, gate);
                self.driver.wait(seat.member.stream, gate)?;
                self.driver.record(seat.start, seat.member.stream)?;
            }
            self.launch(&meeting, &seats, trial)?;
            for seat in &seats {
                self.driver.record(seat.end, seat.member.stream)?;
            }
            Ok(opened)
        })?;
        for seat in &seats {
            self.driver.synchronize(seat.member.stream)?;
        }
        self.gates_held()?;
        let members = seats
            .iter()
            .map(|seat| self.member(seat, &meeting, opened[&seat.gpu]))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(error) = not_together(&members).filter(|_| trial.is_none()) {
            return Err(error);
        }
        let kernels = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        Ok(Outcome::Group { met: Box::new(GroupMet { members, kernels }) })
    }

    /// Gives each GPU of a group access to all others.
    fn reach_each_other(&self, ranks: &[u32]) -> Result<(), HardwareError> {
        let pairs = Pair::ordered(ranks).into_iter();
        let flows: Vec<Flow> =
            pairs.filter(|pair| pair.source != pair.destination).map(Flow::from).collect();
        self.reach_all(&flows).map_err(|error| match error.kind {
            // The platform does not offer it, so that nothing is left untested.
            ErrorKind::Unsupported => HardwareError { kind: ErrorKind::Impossible, ..error },
            _ => error,
        })
    }

    fn box_of(&self, gpu: u32, place: u64) -> Result<Buffer, HardwareError> {
        let receive = self.open_gpu(gpu)?.receive;
        self.driver.part(receive, place * BOX_BYTES, BOX_BYTES)
    }

    /// Prepares the members, all but the last one in a trial without it.
    fn members(&self, ranks: &[u32], trial: Option<Trial>) -> Result<Vec<Seat>, HardwareError> {
        let mut seats: Vec<Seat> = Vec::new();
        let launched = match trial {
            Some(Trial::Alone) => ranks.len().saturating_sub(1),
            _ => ranks.len(),
        };
        for (rank, gpu) in (0..).zip(&ranks[..launched]) {
            let device = self.open_gpu(*gpu)?.device;
            let place = seats.iter().filter(|seat| seat.gpu == *gpu).count();
            let events = self.events(device, 2 * place + 2)?;
            let stream: Stream = match place {
                0 => self.stream(*gpu, StreamKind::Side)?,
                more => self.streams(device, more)?[more - 1],
            };
            seats.push(Seat {
                gpu: *gpu,
                member: Member { stream, rank, place: u32::try_from(place).unwrap_or(u32::MAX) },
                start: events[2 * place],
                end: events[2 * place + 1],
            });
        }
        Ok(seats)
    }

    fn launch(
        &self,
        meeting: &Meeting,
        seats: &[Seat],
        trial: Option<Trial>,
    ) -> Result<(), HardwareError> {
        let members: Vec<Member> = seats.iter().map(|seat| seat.member).collect();
        match (trial, members.split_last(), seats.first()) {
            (Some(Trial::WrongPartner), Some((last, others)), Some(first)) => {
                self.driver.meet(meeting, others)?;
                let mut wrong = meeting.clone();
                wrong.boxes[0] = self.box_of(first.gpu, u64::from(WITHIN))?;
                self.driver.meet(&wrong, &[*last])
            }
            _ => self.driver.meet(meeting, &members),
        }
    }

    /// Returns what a member met. All kernels have ended.
    fn member(
        &self,
        seat: &Seat,
        meeting: &Meeting,
        opened: Event,
    ) -> Result<MemberMet, HardwareError> {
        let Member { stream, rank, place } = seat.member;
        let met = self.driver.met(stream.device, place)?;
        if !met.has_ended() {
            let why = "the kernel that talks has left no result: it was not run";
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        let span = self.span(self.opening(opened), seat.start, seat.end)?;
        let mut missed = None;
        if let Some(ones) = met.missed() {
            let mut there_later = true;
            for from in &ones.ranks {
                let word = self.driver.look(meeting.boxes[rank as usize], ones.offset_of(*from))?;
                there_later &= ones.is_awaited(word);
            }
            missed = Some(MissedOnes {
                phase: ones.phase,
                kib: ones.kib,
                round: ones.round,
                there_later,
                ranks: ones.ranks,
            });
        }
        Ok(MemberMet {
            gpu: seat.gpu,
            span: Span {
                // An event before the kernel is reached while the kernel itself may still wait for its turn.
                start_ns: span.end_ns - met.took_ns(),
                ..span
            },
            barrier_ns: met.barrier_ns(),
            all_reduce_ns: met.all_reduce_ns(),
            wrong_lines: met.wrong_lines(),
            wrong_ranks: met.wrong_ranks(),
            missed,
        })
    }
}

/// Returns the GPU of each rank.
fn ranks(round: &Round) -> Result<Vec<u32>, HardwareError> {
    if let Some(gpu) = round.flows.iter().find_map(|flow| flow.within()) {
        return Ok(vec![gpu; WITHIN as usize]);
    }
    let ranks: Option<Vec<u32>> = round.flows.iter().map(|flow| flow.from.gpu()).collect();
    ranks
        .filter(|ranks| ranks.len() > 1)
        .ok_or_else(|| HardwareError::new(ErrorKind::Other, "a talk of all needs GPUs"))
}

/// Returns an error if a member missed one that did not run at the same time, which is no evidence about the stores.
fn not_together(members: &[MemberMet]) -> Option<HardwareError> {
    let apart = members.iter().find_map(|one| {
        let missed = one.missed.iter().flat_map(|missed| &missed.ranks);
        let others = missed.filter_map(|rank| members.get(*rank as usize));
        let mut apart = others.filter(|other| one.span.together_ns(other.span) < LEAST_TOGETHER_NS);
        Some((one.gpu, apart.next()?.gpu))
    });
    let (one, other) = apart?;
    let why = format!(
        "the kernels of GPU {one} and GPU {other} did not run at the same time: another program has one of these GPUs"
    );
    Some(HardwareError::new(ErrorKind::Hindered, why))
}

/// Returns the cells of a round, one for each GPU.
pub(in super::super) fn cells(round: &Round, outcome: &Outcome) -> Vec<GroupTalk> {
    let Ok(ranks) = ranks(round) else {
        return Vec::new();
    };
    let mut gpus = ranks.clone();
    gpus.dedup();
    let kernels = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let blank = |gpu: &u32| GroupTalk::blank(*gpu, gpus.clone(), kernels);
    gpus.iter().map(|gpu| fill(blank(gpu), outcome)).collect()
}

/// Returns the place of a member's miss among those of all.
fn place(missed: &MissedOnes) -> (Phase, u32, u32) {
    (missed.phase, missed.kib, missed.round)
}

/// Returns the pair whose store was missed first.
fn ended_by(members: &[MemberMet], gpus_of: impl Fn(Vec<u32>) -> Vec<u32>) -> Option<Pair> {
    let missed = members.iter().filter_map(|member| Some((member.gpu, member.missed.as_ref()?)));
    let (destination, missed) = missed.min_by_key(|(_, missed)| place(missed))?;
    Some(Pair { source: *gpus_of(missed.ranks.clone()).first()?, destination })
}

fn fill(mut cell: GroupTalk, outcome: &Outcome) -> GroupTalk {
    let Outcome::Group { met } = outcome else {
        cell.ending = without_figures(outcome);
        return cell;
    };
    let members: Vec<&MemberMet> =
        met.members.iter().filter(|member| member.gpu == cell.gpu).collect();
    if members.is_empty() {
        cell.ending = no_samples();
        return cell;
    }
    // The slowest member of the GPU.
    let slowest = |figure: fn(&MemberMet) -> Option<f64>| {
        let all: Option<Vec<f64>> = members.iter().map(|member| figure(member)).collect();
        all.and_then(|all| all.into_iter().reduce(f64::max)).map(|ns| ns / 1e3)
    };
    cell.barrier_us = slowest(|member| member.barrier_ns);
    cell.all_reduce_8k_us = slowest(|member| member.all_reduce_ns[0]);
    cell.all_reduce_32k_us = slowest(|member| member.all_reduce_ns[1]);
    cell.all_reduce_128k_us = slowest(|member| member.all_reduce_ns[2]);
    cell.all_reduce_256k_us = slowest(|member| member.all_reduce_ns[3]);
    let gpus_of = |ranks: Vec<u32>| -> Vec<u32> {
        let gpu = |rank: u32| match cell.gpus.as_slice() {
            [only] => Some(*only),
            gpus => gpus.get(rank as usize).copied(),
        };
        let mut gpus: Vec<u32> = ranks.into_iter().filter_map(gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    };
    let wrong = members.iter().map(|member| member.wrong_lines);
    cell.wrong_lines = Some(wrong.sum());
    cell.wrong_from =
        gpus_of(members.iter().flat_map(|member| member.wrong_ranks.clone()).collect());
    cell.verified = if cell.wrong_lines > Some(0) { Verified::Corrupt } else { Verified::Ok };
    cell.ended_by = ended_by(&met.members, gpus_of);
    // Whoever missed something first did so of its own accord; the others missed one that had left.
    let first = met.members.iter().filter_map(|member| member.missed.as_ref()).map(place).min();
    let missed = members
        .iter()
        .filter_map(|member| member.missed.as_ref())
        .min_by_key(|missed| place(missed));
    let Some(missed) = missed else { return cell };
    let at = match missed.kib {
        0 => format!("phase {}, round {}", missed.phase, missed.round),
        kib => format!("phase {} of {kib} KiB, round {}", missed.phase, missed.round),
    };
    let gpu = cell.gpu;
    let from = gpus_of(missed.ranks.clone());
    if Some(place(missed)) > first && cell.wrong_lines == Some(0) {
        let why = format!(
            "the talk of all ended for GPU {gpu} ({at}), because others had missed a store and left"
        );
        cell.ending = Ending::without(Status::Skipped, Some(why));
        cell.verified = Verified::Skipped;
        return cell;
    }
    let (miss, fate) = if missed.there_later {
        (Miss::Late, "it was there when all kernels had ended")
    } else {
        (Miss::Never, "it was not there when all kernels had ended either")
    };
    let names: Vec<String> = from.iter().map(|gpu| format!("GPU {gpu}")).collect();
    let why = format!(
        "GPU {gpu} waited for a store of {} in vain while all GPUs talked at once ({at}): {fate}",
        names.join(", ")
    );
    cell.ending = Ending::without(Status::Failed, Some(why));
    cell.missed = Some(Missed { phase: missed.phase, round: missed.round, miss });
    cell.missed_from = from;
    cell.verified = Verified::Dropped;
    cell
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
