//! Choice of the rounds that make up a timeline.

use std::collections::{BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};

use crate::bench::timeline::Clocks;
use crate::plan::obstacle;
use crate::{Action, DEADLINE_BASE, Round, Task};
use model::flow::{Endpoint, Flow, Setup};
use model::measurement::DriverFacts;
use model::placement::Pair;
use model::units::Bytes;

/// Marks the rounds to follow: for each probe that a timeline shows, those of the first pair or GPU that can be
/// measured. Adds readings of their GPUs' clocks before the first round and after the last. These are far apart, so
/// that they show the drift.
pub fn follow(mut rounds: Vec<Round>, driver: &DriverFacts) -> Vec<Round> {
    let mut chosen: HashMap<Discriminant<Action>, Whose> = HashMap::new();
    for round in rounds.iter_mut().filter(|round| round.needs().is_in_timeline) {
        if obstacle(round, driver).is_none() {
            let first =
                chosen.entry(discriminant(&round.task.action)).or_insert_with(|| whose(round));
            round.timeline = *first == whose(round);
        }
    }
    let ends = rounds
        .iter()
        .filter(|round| round.timeline)
        .flat_map(|round| &round.flows)
        .flat_map(|flow| flow.ends());
    let gpus: BTreeSet<u32> = ends.filter_map(Endpoint::gpu).collect();
    if gpus.is_empty() {
        return rounds;
    }
    let next = |of: fn(&Round) -> u32| {
        rounds.iter().map(of).max().map_or(0, |last| last.saturating_add(1))
    };
    let (id, slot) = (next(|round| round.id), next(|round| round.slot));
    let clocks = |number: u32| Round {
        id: id.saturating_add(number),
        slot: slot.saturating_add(number),
        flows: gpus.iter().map(|&gpu| Flow::inside(gpu)).collect(),
        task: Task::new(Setup::REFERENCE.with_bytes(Bytes(0)), Clocks {}),
        deadline: DEADLINE_BASE,
        timeline: true,
        name: String::new(),
    };
    let (first, last) = (clocks(0), clocks(1));
    rounds.insert(0, first);
    rounds.push(last);
    rounds
}

/// The subject of a round: the pair of its first flow, and its first GPU.
type Whose = (Option<Pair>, Option<u32>);

fn whose(round: &Round) -> Whose {
    let pair = round.flows.first().and_then(|flow| flow.pair());
    (pair, round.flows.iter().flat_map(|flow| flow.ends()).find_map(Endpoint::gpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::measurement::{CudaDevice, CudaPeerAccess};

    /// Returns a driver with two GPUs that reach each other. With a failure, their kernels do not load.
    fn driver(kernels_failure: Option<&str>) -> DriverFacts {
        let access = |pair| CudaPeerAccess {
            pair,
            possible: Some(true),
            failure: None,
            failure_code: None,
            hindered: false,
        };
        DriverFacts {
            kernels_failure: kernels_failure.map(str::to_owned),
            devices: (0..2).map(|index| CudaDevice { index, ..CudaDevice::default() }).collect(),
            peer_access: Pair::ordered(&[0, 1]).into_iter().map(access).collect(),
            ..DriverFacts::default()
        }
    }

    /// Returns two rounds of latency and of overlap for each direction.
    fn rounds() -> Vec<Round> {
        let actions = [
            Action::Latency(crate::latency::Latency { samples: 1 }),
            Action::Overlap(crate::overlap::Overlap {
                samples: 2,
                kernel: model::placement::KernelStream::Default,
            }),
        ];
        let of = |pair: Pair| actions.into_iter().flat_map(move |action| [(pair, action); 2]);
        let round = |((pair, action), id): ((Pair, Action), u32)| Round {
            id,
            slot: id,
            flows: vec![pair.into()],
            task: Task { setup: Setup::REFERENCE, action },
            deadline: DEADLINE_BASE,
            timeline: false,
            name: String::new(),
        };
        Pair::ordered(&[0, 1]).into_iter().flat_map(of).zip(0..).map(round).collect()
    }

    #[test]
    fn the_first_pair_is_followed_between_two_readings_of_its_clocks() {
        let followed = follow(rounds(), &driver(None));
        let ids: Vec<_> =
            followed.iter().filter(|round| round.timeline).map(|round| round.id).collect();
        assert_eq!(ids, [8, 2, 3, 9], "overlap of GPU 0 to GPU 1");
        let (first, last) = (&followed[0], &followed[9]);
        assert!(
            [first, last]
                .iter()
                .all(|round| round.task.action == Action::Clocks(Clocks {})
                    && round.flows.len() == 2)
        );
        let unfollowed = followed.into_iter().map(|round| Round { timeline: false, ..round });
        let others: Vec<_> =
            unfollowed.filter(|round| round.task.action != Action::Clocks(Clocks {})).collect();
        assert_eq!(others, rounds(), "nothing else changes");
    }

    #[test]
    fn without_anything_to_show_nothing_is_followed() {
        assert_eq!(follow(rounds(), &driver(Some("no PTX compiler"))), rounds());
        assert_eq!(follow(Vec::new(), &driver(None)), []);
    }
}
