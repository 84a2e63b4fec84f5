//! The cells of a talk: what each side missed of its own accord, and what the other one found wrong.

use crate::Outcome;
use crate::Round;
use crate::figures::{no_samples, without_figures};
use crate::live::run::Side;
use hardware::Unseen;
use model::live::{LiveTalk, Miss, Missed, Phase};
use model::placement::Pair;
use model::status::{Ending, Status, Verified};
use model::topology::{LinkClass, Topology};
use model::units::GbPerSecond;

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
pub(crate) fn cells(
    round: &Round,
    turns: u32,
    outcome: &Outcome,
    topology: &Topology,
) -> Vec<LiveTalk> {
    let flows = round.flows.iter().enumerate();
    flows
        .filter_map(|(at, flow)| {
            let pair = Pair { source: flow.from.gpu()?, destination: flow.to.gpu()? };
            let blank = LiveTalk::blank(pair, turns);
            let class = topology.route(pair).map(|route| route.class);
            let keeps_lines = class.is_some_and(LinkClass::keeps_lines);
            Some(cell(blank, at, outcome, keeps_lines))
        })
        .collect()
}

/// Fills in the cell of the flow at this place: what its destination heard. Within a GPU, what either kernel heard.
fn cell(mut cell: LiveTalk, at: usize, outcome: &Outcome, keeps_lines: bool) -> LiveTalk {
    let within = cell.pair.source == cell.pair.destination;
    let talk = match outcome {
        Outcome::Live { talk } => talk,
        _ => {
            cell.ending = without_figures(outcome);
            return cell;
        }
    };
    // The first flow is heard by the second side.
    let mut order: Vec<&Side> = talk.sides.iter().collect();
    if at == 0 {
        order.reverse();
    }
    if within {
        order.sort_by_key(|side| {
            let other = talk.sides.iter().find(|other| !std::ptr::eq(*other, *side));
            !is_own(side, other)
        });
    }
    let Some((side, other)) = order.split_first() else {
        cell.ending = no_samples();
        return cell;
    };
    let other = other.first().copied();
    fill(&mut cell, side, talk.native_atomics);
    if within && let Some(other) = other {
        add_wrong(&mut cell, other);
    }
    judge(&mut cell, side, other, keeps_lines);
    cell
}

/// Returns the counts of what was wrong in a phase.
fn wrong(cell: &mut LiveTalk) -> [(&mut Option<u32>, Phase); 6] {
    [
        (&mut cell.torn_ll, Phase::Ll),
        (&mut cell.torn_ll128, Phase::Ll128),
        (&mut cell.torn_ll128_channels, Phase::Ll128Channels),
        (&mut cell.out_of_order, Phase::Simple),
        (&mut cell.push_out_of_order, Phase::SimplePush),
        (&mut cell.pull_out_of_order, Phase::SimplePull),
    ]
}

/// Adds what the other kernel of the same GPU found wrong.
fn add_wrong(cell: &mut LiveTalk, other: &Side) {
    let more = |known: &mut Option<u32>, more: u32| {
        *known = known.map(|known| known.saturating_add(more));
    };
    for (known, phase) in wrong(cell) {
        more(known, other.wrong[phase as usize]);
    }
    more(&mut cell.early_ll128, other.early);
    more(&mut cell.atomics_lost, other.atomics_lost.unwrap_or_default());
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
    for (count, phase) in wrong(cell) {
        *count = side.ns[phase as usize].map(|_| side.wrong[phase as usize]);
    }
    cell.early_ll128 = side.ns[Phase::Ll128 as usize].map(|_| side.early);
    [cell.ll128_channels_gbps, cell.simple_push_gbps, cell.simple_pull_gbps] =
        side.gbps.map(|gbps| gbps.map(GbPerSecond));
}

/// Sets the ending, and whether the stores arrived. Torn lines of 128 bytes are wrong where the route promises whole ones.
fn judge(cell: &mut LiveTalk, side: &Side, other: Option<&Side>, keeps_lines: bool) {
    let Pair { source, destination } = cell.pair;
    let Some(unseen) = side.unseen else {
        let torn = [cell.torn_ll128, cell.torn_ll128_channels];
        let mut wrong = cell.out_of_order().map(|(_, count)| count).to_vec();
        wrong.push(cell.atomics_lost);
        wrong.extend(torn.into_iter().filter(|_| keeps_lines));
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
    let miss = if side.there_later { Miss::Late } else { Miss::Never };
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
    use crate::Span;
    use crate::live::run::{Talked, not_together};
    use hardware::ErrorKind;

    fn side(gpu: u32, unseen: Option<(Phase, u32, bool)>) -> Side {
        Side {
            gpu,
            answers: gpu == 1,
            span: Span { start_ns: 0.0, end_ns: 5e7 },
            ns: [Some(3000.0); Phase::ALL.len()],
            gbps: [Some(100.0); 3],
            wrong: [0; Phase::ALL.len()],
            early: 0,
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
        Outcome::Live { talk: Box::new(Talked { sides: sides.into(), native_atomics: Some(true) }) }
    }

    /// Returns the cells of 0 to 1 and of 1 to 0.
    fn both(sides: [Side; 2]) -> [LiveTalk; 2] {
        both_over(sides, true)
    }

    /// Returns them on a route that keeps lines of 128 bytes whole, or not.
    fn both_over(sides: [Side; 2], keeps_lines: bool) -> [LiveTalk; 2] {
        let outcome = outcome(sides);
        let pair = Pair { source: 0, destination: 1 };
        [
            cell(LiveTalk::blank(pair, 300), 0, &outcome, keeps_lines),
            cell(LiveTalk::blank(pair.reversed(), 300), 1, &outcome, keeps_lines),
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
        assert_eq!((there.ending.status, there.verified), (Status::Failed, Verified::Dropped));
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
        let [there, back] =
            both([side(0, Some((Phase::Push, 7, false))), side(1, Some((Phase::Push, 7, true)))]);
        assert_eq!(there.missed.unwrap().round, 7);
        assert_eq!(back.ending.status, Status::Skipped);
    }

    #[test]
    fn wrong_data_behind_a_flag_is_corrupt_and_torn_long_lines_where_none_are_promised_are_counted()
    {
        let mut early = side(1, None);
        early.early = 5;
        let [there, _] = both([side(0, None), early.clone()]);
        assert_eq!((there.early_ll128, there.torn_ll128), (Some(5), Some(0)));
        assert_eq!(there.verified, Verified::Ok, "the first load is no fault");
        let mut torn = early.clone();
        for phase in [Phase::Ll128, Phase::Ll128Channels] {
            torn = early.clone();
            torn.wrong[phase as usize] = 4;
            for (keeps_lines, verified) in [(true, Verified::Corrupt), (false, Verified::Ok)] {
                let [there, _] = both_over([side(0, None), torn.clone()], keeps_lines);
                let lines = there.torn_ll128.max(there.torn_ll128_channels);
                assert_eq!((lines, there.verified), (Some(4), verified));
            }
        }
        let [there, _] = both_over([side(0, None), torn], false);
        assert!(there.push_us.is_some() && there.ending.is_sound());
        for phase in [Phase::Simple, Phase::SimplePush, Phase::SimplePull] {
            let mut order = side(0, None);
            order.wrong[phase as usize] = 1;
            let [there, back] = both([order, side(1, None)]);
            assert_eq!((there.verified, back.verified), (Verified::Ok, Verified::Corrupt));
            let wrong = [back.out_of_order, back.push_out_of_order, back.pull_out_of_order];
            assert_eq!(wrong.iter().flatten().sum::<u32>(), 1, "{phase}");
        }
    }

    #[test]
    fn kernels_that_never_ran_together_prove_nothing() {
        let (one, mut other) =
            (side(0, Some((Phase::Arrival, 1, true))), side(1, Some((Phase::Push, 1, false))));
        assert_eq!(not_together(&[one.clone(), other.clone()]), None);
        other.span = Span { start_ns: 5.1e7, end_ns: 7e7 };
        let error = not_together(&[one, other]).unwrap();
        assert_eq!(error.kind, ErrorKind::Hindered);
        assert_eq!(not_together(&[side(0, None), side(1, None)]), None);
    }
}
