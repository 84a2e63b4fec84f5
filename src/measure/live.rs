//! Lets kernels of two GPUs talk to each other while both run. A copy and a wait for its stream flush everything, so that they
//! prove nothing about a kernel that waits for a flag, as those of collectives do.
//!
//! Both kernels begin when the gates open. Each wait in them has a limit, so that a talk that fails ends by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::figures::without_figures;
use super::{Outcome, Span};
use hardware::{
    Buffer, Device, ErrorKind, Event, HardwareError, MAILBOX_BYTES, Stream, Talk, TalkLimits,
    Unseen,
};
use model::flow::Flow;
use model::live::{LiveTalk, Miss, Missed, Phase};
use model::maps::Map;
use model::placement::{Pair, Path, StreamKind};
use model::status::{Ending, Status, Verified};
use plan::{Round, Trial};

/// Limits of a talk. On H200 the other side was seen within 8 us, the first time within 160, and no wait took more than 20
/// us under load (docs/facts.md, "Kernels that talk"). Chosen: a hundred times as long and more, and a quarter of a second
/// in all.
const LIMITS: TalkLimits = TalkLimits {
    arrival: Duration::from_millis(50),
    wait: Duration::from_millis(20),
    total: Duration::from_millis(250),
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
    pub ns: [Option<f64>; 7],
    /// Lines that were wrong behind their flags, by phase.
    pub wrong: [u32; 7],
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
    pub(super) fn live(
        &self,
        rounds: &[&Round],
        turns: u32,
        trial: Option<Trial>,
    ) -> Result<Vec<Outcome>, HardwareError> {
        let mut couples = Vec::new();
        for round in rounds {
            let couple = couple(round)?;
            if couple.source != couple.destination {
                self.set_path(couple, Path::Direct)?;
            }
            let native_atomics = self.native_atomics(couple);
            couples.push((
                native_atomics,
                self.seats(couple, turns, native_atomics, trial)?,
            ));
        }
        let opened = self.gated(|| {
            let mut opened = Map::default();
            let mut talks = Vec::new();
            for (_, seats) in &couples {
                // A flag of an earlier talk, or any other word of the buffers, is none of this base.
                #[allow(clippy::cast_possible_truncation, reason = "any number will do")]
                let base = self.seeds.next() as u32;
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
        let outcome = |(native_atomics, seats): &(Option<bool>, Vec<Seat>)| {
            let side = |seat: &Seat| self.side(seat, opened[&seat.gpu]);
            let sides = seats.iter().map(side).collect::<Result<Vec<_>, _>>()?;
            Ok(match not_together(&sides).filter(|_| trial.is_none()) {
                Some(error) => Outcome::Failed { error },
                None => Outcome::Live {
                    talk: Box::new(Talked {
                        sides,
                        native_atomics: *native_atomics,
                    }),
                },
            })
        };
        couples.iter().map(outcome).collect()
    }

    /// Returns true if the driver promises native atomics both ways; none if it does not say.
    fn native_atomics(&self, couple: Pair) -> Option<bool> {
        let ask = |pair: Pair| {
            let (device, peer) = (self.open_gpu(pair.source), self.open_gpu(pair.destination));
            let answer = self
                .driver
                .native_atomics(device.ok()?.device, peer.ok()?.device);
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
            self.driver
                .part(receive, place * MAILBOX_BYTES, MAILBOX_BYTES)
        };
        let mine = mailbox(couple.source, 0)?;
        let theirs = mailbox(couple.destination, u64::from(alone))?;
        let limits = match trial {
            Some(Trial::ShortLimit) => TalkLimits {
                wait: SHORT,
                ..LIMITS
            },
            _ => LIMITS,
        };
        let ends = [
            (couple.source, mine, theirs, false),
            (couple.destination, theirs, mine, true),
        ];
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
    fn side(&self, seat: &Seat, opened: Event) -> Result<Side, HardwareError> {
        let heard = self.driver.heard(seat.device, seat.talk.answers)?;
        if !heard.has_ended() {
            let why = "the kernel that talks has left no result: it was not run";
            return Err(HardwareError::new(ErrorKind::Other, why));
        }
        let span = self.span(self.opening(opened), seat.start, seat.end)?;
        let unseen = heard.unseen();
        let there_later = match unseen {
            Some(unseen) => {
                let mailbox = if unseen.remote {
                    seat.talk.theirs
                } else {
                    seat.talk.mine
                };
                self.driver.look(mailbox, unseen.offset)? == unseen.wanted
            }
            None => false,
        };
        Ok(Side {
            gpu: seat.gpu,
            answers: seat.talk.answers,
            span: Span {
                // An event before the kernel is reached while the kernel itself may still wait for its turn.
                start_ns: span.end_ns - heard.took_ns(),
                ..span
            },
            ns: Phase::ALL.map(|phase| heard.ns(phase)),
            wrong: Phase::ALL.map(|phase| heard.wrong(phase)),
            atomics_lost: heard.atomics_lost(),
            unseen,
            there_later,
        })
    }
}

/// Returns the GPUs of a talk: of a pair, or one GPU twice.
fn couple(round: &Round) -> Result<Pair, HardwareError> {
    let flow = round.flows.first().copied();
    let ends = flow.and_then(|flow| {
        Some(Pair {
            source: flow.from.gpu()?,
            destination: flow.to.gpu()?,
        })
    });
    ends.ok_or_else(|| HardwareError::new(ErrorKind::Other, "a talk needs GPUs at both ends"))
}

/// Returns an error if something was missed and the kernels did not run at the same time, which is no evidence about the
/// stores.
fn not_together(sides: &[Side]) -> Option<HardwareError> {
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

/// Returns true if a side missed something of its own accord, and not because the other one had left.
fn is_own(side: &Side, other: Option<&Side>) -> bool {
    let Some(unseen) = side.unseen else {
        return false;
    };
    let Some(of_other) = other.and_then(|other| other.unseen) else {
        return true;
    };
    let place = |unseen: &Unseen| (unseen.phase, unseen.round);
    match place(&unseen).cmp(&place(&of_other)) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        // In turn, the answer is missing because the flag was.
        std::cmp::Ordering::Equal => unseen.phase.is_at_once() || side.answers,
    }
}

/// Returns the cells of a round, one for each flow.
pub(super) fn cells(round: &Round, turns: u32, outcome: &Outcome) -> Vec<LiveTalk> {
    let flows = round.flows.iter().enumerate();
    flows
        .filter_map(|(at, flow)| cell(*flow, at, turns, outcome))
        .collect()
}

/// Returns the cell of the flow at this place: what its destination heard. Within a GPU, what either kernel heard.
fn cell(flow: Flow, at: usize, turns: u32, outcome: &Outcome) -> Option<LiveTalk> {
    let pair = Pair {
        source: flow.from.gpu()?,
        destination: flow.to.gpu()?,
    };
    let mut cell = LiveTalk::blank(pair, turns);
    let Outcome::Live { talk } = outcome else {
        cell.ending = without_figures(outcome);
        return Some(cell);
    };
    // The first flow is heard by the second side.
    let mut order: Vec<&Side> = talk.sides.iter().collect();
    if at == 0 {
        order.reverse();
    }
    if flow.within().is_some() {
        order.sort_by_key(|side| {
            let other = talk.sides.iter().find(|other| !std::ptr::eq(*other, *side));
            !is_own(side, other)
        });
    }
    let Some((side, other)) = order.split_first() else {
        cell.ending = super::figures::no_samples();
        return Some(cell);
    };
    let other = other.first().copied();
    fill(&mut cell, side, talk.native_atomics);
    if flow.within().is_some()
        && let Some(other) = other
    {
        add_wrong(&mut cell, other);
    }
    judge(&mut cell, side, other);
    Some(cell)
}

/// Adds what the other kernel of the same GPU found wrong.
fn add_wrong(cell: &mut LiveTalk, other: &Side) {
    let more = |known: &mut Option<u32>, more: Option<u32>| {
        *known = known.map(|known| known.saturating_add(more.unwrap_or_default()));
    };
    let wrong = |phase: Phase| Some(other.wrong[phase as usize]);
    more(&mut cell.torn_ll, wrong(Phase::Ll));
    more(&mut cell.torn_ll128, wrong(Phase::Ll128));
    more(&mut cell.out_of_order, wrong(Phase::Simple));
    more(&mut cell.atomics_lost, other.atomics_lost);
}

/// Fills in the figures of the phases that ended.
fn fill(cell: &mut LiveTalk, side: &Side, native_atomics: Option<bool>) {
    let us = |phase: Phase, rounds: u32| {
        side.ns[phase as usize].map(|ns| ns / 1e3 / f64::from(rounds.max(1)))
    };
    cell.arrival_us = us(Phase::Arrival, 1);
    cell.push_us = us(Phase::Push, cell.rounds);
    cell.pull_us = us(Phase::Pull, cell.rounds);
    cell.ll_us = us(Phase::Ll, cell.rounds);
    cell.ll128_us = us(Phase::Ll128, cell.rounds);
    // The kernel sends data in a quarter of the rounds.
    cell.simple_us = us(Phase::Simple, cell.rounds.div_ceil(4));
    cell.native_atomics = native_atomics;
    if native_atomics == Some(true) {
        cell.atomics_us = us(Phase::Atomics, 1);
        cell.atomics_lost = side.atomics_lost;
    }
    let wrong = |phase: Phase| side.ns[phase as usize].map(|_| side.wrong[phase as usize]);
    cell.torn_ll = wrong(Phase::Ll);
    cell.torn_ll128 = wrong(Phase::Ll128);
    cell.out_of_order = wrong(Phase::Simple);
}

/// Sets the ending, and whether the stores arrived.
fn judge(cell: &mut LiveTalk, side: &Side, other: Option<&Side>) {
    let Pair {
        source,
        destination,
    } = cell.pair;
    let Some(unseen) = side.unseen else {
        let wrong = [cell.torn_ll, cell.out_of_order, cell.atomics_lost];
        cell.verified = if wrong.iter().flatten().any(|count| *count > 0) {
            Verified::Corrupt
        } else {
            Verified::Ok
        };
        return;
    };
    let Unseen { phase, round, .. } = unseen;
    if !is_own(side, other) {
        let why = format!(
            "the talk ended in phase {phase}, because GPU {source} had missed a store of GPU {destination}"
        );
        cell.ending = Ending::without(Status::Skipped, Some(why));
        cell.verified = Verified::Skipped;
        return;
    }
    let miss = if side.there_later {
        Miss::Late
    } else {
        Miss::Never
    };
    let fate = match miss {
        Miss::Late => "it was there when both kernels had ended",
        Miss::Never => "it was not there when both kernels had ended either",
    };
    let why = format!(
        "GPU {destination} waited for a store of GPU {source} in vain (phase {phase}, round {round}): {fate}"
    );
    cell.ending = Ending::without(Status::Failed, Some(why));
    cell.missed = Some(Missed { phase, round, miss });
    cell.verified = Verified::Dropped;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(gpu: u32, unseen: Option<(Phase, u32, bool)>) -> Side {
        Side {
            gpu,
            answers: gpu == 1,
            span: Span {
                start_ns: 0.0,
                end_ns: 5e7,
            },
            ns: [Some(3000.0); 7],
            wrong: [0; 7],
            atomics_lost: Some(0),
            unseen: unseen.map(|(phase, round, _)| Unseen {
                phase,
                round,
                seen: 0,
                wanted: 1,
                offset: 0,
                remote: false,
            }),
            there_later: unseen.is_some_and(|(.., later)| later),
        }
    }

    fn outcome(sides: [Side; 2]) -> Outcome {
        Outcome::Live {
            talk: Box::new(Talked {
                sides: sides.into(),
                native_atomics: Some(true),
            }),
        }
    }

    /// Returns the cells of 0 to 1 and of 1 to 0.
    fn both(sides: [Side; 2]) -> [LiveTalk; 2] {
        let outcome = outcome(sides);
        let pair = Pair {
            source: 0,
            destination: 1,
        };
        [
            cell(pair.into(), 0, 300, &outcome).unwrap(),
            cell(pair.reversed().into(), 1, 300, &outcome).unwrap(),
        ]
    }

    #[test]
    fn what_a_side_missed_belongs_to_the_stores_of_the_other_one() {
        // GPU 1 never sees GPU 0, and leaves; GPU 0 then waits in vain.
        let [there, back] = both([
            side(0, Some((Phase::Push, 1, false))),
            side(1, Some((Phase::Arrival, 1, false))),
        ]);
        let missed = there.missed.unwrap();
        assert_eq!((missed.phase, missed.miss), (Phase::Arrival, Miss::Never));
        assert_eq!(
            (there.ending.status, there.verified),
            (Status::Failed, Verified::Dropped)
        );
        assert_eq!(
            (back.ending.status, back.verified, back.missed),
            (Status::Skipped, Verified::Skipped, None)
        );
    }

    #[test]
    fn both_miss_the_arrival_of_the_other() {
        let [there, back] = both([
            side(0, Some((Phase::Arrival, 1, true))),
            side(1, Some((Phase::Arrival, 1, false))),
        ]);
        assert_eq!(there.missed.unwrap().miss, Miss::Never);
        assert_eq!(back.missed.unwrap().miss, Miss::Late);
    }

    #[test]
    fn an_answer_that_nobody_gave_is_not_missed() {
        // GPU 1 missed the flag of round 7, so that it did not answer.
        let [there, back] = both([
            side(0, Some((Phase::Push, 7, false))),
            side(1, Some((Phase::Push, 7, true))),
        ]);
        assert_eq!(there.missed.unwrap().round, 7);
        assert_eq!(back.ending.status, Status::Skipped);
    }

    #[test]
    fn wrong_data_behind_a_flag_is_corrupt_and_torn_long_lines_are_counted() {
        let mut torn = side(1, None);
        torn.wrong[Phase::Ll128 as usize] = 4;
        let [there, _] = both([side(0, None), torn]);
        assert_eq!((there.torn_ll128, there.verified), (Some(4), Verified::Ok));
        assert!(there.push_us.is_some() && there.ending.is_sound());
        let mut order = side(0, None);
        order.wrong[Phase::Simple as usize] = 1;
        let [there, back] = both([order, side(1, None)]);
        assert_eq!(
            (there.verified, back.verified),
            (Verified::Ok, Verified::Corrupt)
        );
        assert_eq!(back.out_of_order, Some(1));
    }

    #[test]
    fn kernels_that_never_ran_together_prove_nothing() {
        let (one, mut other) = (
            side(0, Some((Phase::Arrival, 1, true))),
            side(1, Some((Phase::Push, 1, false))),
        );
        assert_eq!(not_together(&[one.clone(), other.clone()]), None);
        other.span = Span {
            start_ns: 5.1e7,
            end_ns: 7e7,
        };
        let error = not_together(&[one, other]).unwrap();
        assert_eq!(error.kind, ErrorKind::Hindered);
        assert_eq!(not_together(&[side(0, None), side(1, None)]), None);
    }
}
