//! Lets kernels of two GPUs talk to each other while both run. A copy and a wait for its stream flush everything, so that they
//! prove nothing about a kernel that waits for a flag, as those of collectives do.
//!
//! Both kernels begin when the gates open. Each wait in them has a limit, so that a talk that fails ends by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Round;
use crate::bench::Bench;
use crate::live::{Live as Asked, Trial};
use crate::{Outcome, Span};
use hardware::{
    Buffer, Device, ErrorKind, Event, HardwareError, MAILBOX_BYTES, Stream, Talk, TalkLimits,
    Unseen,
};
use model::live::Phase;
use model::maps::Map;
use model::placement::{Pair, Path, StreamKind};

/// Limits of a talk. On H200 the other side was seen within 8 us, the first time within 160, and no wait took more than
/// 20 us under load (docs/dev/facts.md, "Kernels that talk"). Chosen: a hundred times as long and more, and a quarter
/// of a second in all.
const LIMITS: TalkLimits = TalkLimits {
    arrival: Duration::from_millis(50),
    wait: Duration::from_millis(20),
    total: Duration::from_millis(250),
    // Chosen: some 2000 rounds over NVLink.
    channels: Duration::from_millis(5),
};
/// Least time that both kernels run at the same time if one misses something: a side that does has waited for 20 ms, and the
/// clocks of two GPUs agree to some microseconds. Chosen.
const LEAST_TOGETHER_NS: f64 = 1e6;
/// Longest wait of a trial that must fail.
const SHORT: Duration = Duration::from_micros(1);

/// What both kernels of a talk heard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Talked {
    /// The side that begins with each flag, and the one that answers it. The second was not launched if it is missing.
    pub sides: Vec<Side>,
    /// Native atomics between the two GPUs, if the driver says.
    pub native_atomics: Option<bool>,
}

/// What one kernel of a talk heard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The GPU, by NVML index.
    pub gpu: u32,
    /// True for the side that answers flags.
    pub answers: bool,
    /// Time of the kernel.
    pub span: Span,
    /// Nanoseconds of each phase that ended.
    pub ns: [Option<f64>; Phase::ALL.len()],
    /// Rates of data of channels, GB/s.
    pub gbps: [Option<f64>; 3],
    /// Lines that were wrong behind their flags, by phase.
    pub wrong: [u32; Phase::ALL.len()],
    /// Lines of 128 bytes that lacked data in the first load behind their flag.
    pub early: u32,
    /// Atomics that are lacking.
    pub atomics_lost: Option<u32>,
    /// A word that was not seen in time.
    pub unseen: Option<Unseen>,
    /// True if it was there when both kernels had ended.
    pub there_later: bool,
}

/// One side that is to be launched.
struct Seat {
    gpu: u32,
    device: Device,
    talk: Talk,
    start: Event,
    end: Event,
}

impl Bench<'_> {
    /// Lets the kernels of these rounds talk, all at once. A round that fails alone has its error in its outcome.
    pub(crate) fn live(
        &self,
        rounds: &[&Round],
        Asked { rounds: turns, trial }: Asked,
    ) -> Result<Vec<Outcome>, HardwareError> {
        let mut couples = Vec::new();
        for round in rounds {
            let couple = couple(round)?;
            if couple.source != couple.destination {
                self.set_path(couple, Path::Direct)?;
            }
            let native_atomics = self.native_atomics(couple);
            couples.push((native_atomics, self.seats(couple, turns, native_atomics, trial)?));
        }
        let opened = self.gated(|| {
            let mut opened = Map::default();
            let mut talks = Vec::new();
            for (_, seats) in &couples {
                let rounds = seats.iter().map(|seat| seat.talk.rounds).max();
                let base = self.seeds.flags(Talk::flags(rounds.unwrap_or(0)));
                for seat in seats {
                    let gate = match opened.get(&seat.gpu) {
                        Some(gate) => *gate,
                        None => self.close_gate(seat.gpu)?,
                    };
                    opened.insert(seat.gpu, gate);
                    self.driver.wait(seat.talk.stream, gate)?;
                    self.driver.record(seat.start, seat.talk.stream)?;
                    talks.push(Talk { base, ..seat.talk });
                }
            }
            self.driver.talk(&talks)?;
            for seat in couples.iter().flat_map(|(_, seats)| seats) {
                self.driver.record(seat.end, seat.talk.stream)?;
            }
            Ok(opened)
        })?;
        for seat in couples.iter().flat_map(|(_, seats)| seats) {
            self.driver.synchronize(seat.talk.stream)?;
        }
        self.gates_held()?;
        let mut outcomes = Vec::new();
        for (native_atomics, seats) in &couples {
            let side = |seat: &Seat| self.side_of(seat, opened[&seat.gpu]);
            let sides = seats.iter().map(side).collect::<Result<Vec<_>, _>>()?;
            outcomes.push(match not_together(&sides).filter(|_| trial.is_none()) {
                Some(error) => Outcome::Failed { error },
                None => Outcome::Live {
                    talk: Box::new(Talked { sides, native_atomics: *native_atomics }),
                },
            });
        }
        Ok(outcomes)
    }

    /// Returns true if the driver promises native atomics both ways; none if it does not say.
    fn native_atomics(&self, couple: Pair) -> Option<bool> {
        let ask = |pair: Pair| {
            let (device, peer) = (self.open_gpu(pair.source), self.open_gpu(pair.destination));
            let answer = self.driver.native_atomics(device.ok()?.device, peer.ok()?.device);
            answer.ok()
        };
        Some(ask(couple)? && ask(couple.reversed())?)
    }

    /// Prepares both sides of a talk, or the one side of a trial.
    fn seats(
        &self,
        couple: Pair,
        rounds: u32,
        native_atomics: Option<bool>,
        trial: Option<Trial>,
    ) -> Result<Vec<Seat>, HardwareError> {
        let alone = couple.source == couple.destination;
        let mailbox = |gpu: u32, place: u64| -> Result<Buffer, HardwareError> {
            let receive = self.open_gpu(gpu)?.receive;
            self.driver.part(receive, place * MAILBOX_BYTES, MAILBOX_BYTES)
        };
        let mine = mailbox(couple.source, 0)?;
        let theirs = mailbox(couple.destination, u64::from(alone))?;
        let limits = match trial {
            Some(Trial::ShortLimit) => TalkLimits { wait: SHORT, ..LIMITS },
            _ => LIMITS,
        };
        let ends = [(couple.source, mine, theirs, false), (couple.destination, theirs, mine, true)];
        let mut seats = Vec::new();
        for (place, (gpu, mine, theirs, answers)) in ends.into_iter().enumerate() {
            if trial == Some(Trial::Alone) && answers {
                break;
            }
            let theirs = match trial {
                Some(Trial::WrongPartner) if !answers => mailbox(gpu, 2)?,
                _ => theirs,
            };
            let device = self.open_gpu(gpu)?.device;
            let events = self.events(device, 4)?;
            let first = if alone { 2 * place } else { 0 };
            let stream: Stream = if alone && answers {
                self.streams(device, 1)?[0]
            } else {
                self.stream(gpu, StreamKind::Side)?
            };
            seats.push(Seat {
                gpu,
                device,
                talk: Talk {
                    stream,
                    mine,
                    theirs,
                    answers,
                    rounds,
                    base: 0,
                    atomics: native_atomics == Some(true),
                    limits,
                },
                start: events[first],
                end: events[first + 1],
            });
        }
        Ok(seats)
    }

    /// Returns what a side heard. Its kernel and the other one have ended.
    fn side_of(&self, seat: &Seat, opened: Event) -> Result<Side, HardwareError> {
        let talk = &seat.talk;
        let heard = self.driver.heard(seat.device, talk.answers)?;
        if !heard.has_ended() {
            let why = "the kernel that talks has left no result: it was not run";
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        let span = self.span(self.opening(opened), seat.start, seat.end)?;
        let span = Span {
            // An event before the kernel is reached while the kernel itself may still wait for its turn.
            start_ns: span.end_ns - heard.took_ns(),
            ..span
        };
        let unseen = heard.unseen();
        let there_later = match unseen {
            Some(unseen) => {
                let mailbox = if unseen.remote { talk.theirs } else { talk.mine };
                // What follows in the same place shows that it was there too.
                self.driver.look(mailbox, unseen.offset)?.wrapping_sub(unseen.wanted) < 4
            }
            None => false,
        };
        Ok(Side {
            gpu: seat.gpu,
            answers: talk.answers,
            span,
            ns: Phase::ALL.map(|phase| heard.ns(phase)),
            gbps: heard.gbps(),
            wrong: Phase::ALL.map(|phase| heard.wrong(phase)),
            early: heard.early(),
            atomics_lost: heard.atomics_lost(),
            unseen,
            there_later,
        })
    }
}

/// Returns the GPUs of a talk: of a pair, or one GPU twice.
fn couple(round: &Round) -> Result<Pair, HardwareError> {
    let flow = round.flows.first().copied();
    let ends =
        flow.and_then(|flow| Some(Pair { source: flow.from.gpu()?, destination: flow.to.gpu()? }));
    ends.ok_or_else(|| HardwareError::new(ErrorKind::Other, "a talk needs GPUs at both ends"))
}

/// Returns an error if something was missed and the kernels did not run at the same time, which is no evidence about the
/// stores.
pub(crate) fn not_together(sides: &[Side]) -> Option<HardwareError> {
    let [one, other] = sides else { return None };
    let missed = one.unseen.is_some() || other.unseen.is_some();
    if !missed || one.span.together_ns(other.span) >= LEAST_TOGETHER_NS {
        return None;
    }
    let why = format!(
        "the kernels of GPU {} and GPU {} did not run at the same time: another program has one of these GPUs",
        one.gpu, other.gpu
    );
    Some(HardwareError::new(ErrorKind::Hindered, why))
}
