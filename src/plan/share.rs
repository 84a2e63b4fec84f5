//! Plans of memory that one process hands to another.

use std::time::Duration;

use serde::Deserialize;

use super::wanted::Slot;
use super::{Action, Group, Request, Task, is_direct, overlap};
use model::flow::{Flow, Setup};
use model::placement::{Direction, Engine, Pair};
use model::sharing::{Processes, Rung, View};
use model::units::Bytes;

/// Time that a way to share memory may take. All of them took 30 ms on 2 x H200; a call that hangs, hangs for ever.
pub(super) const RUNG_LIMIT: Duration = Duration::from_secs(2);

/// Memory handed from one process to another.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Size of the memory.
    #[serde(deserialize_with = "overlap::bytes")]
    pub bytes: Bytes,
    /// Rounds of each phase of a talk of kernels of two processes. 0 leaves it out.
    #[serde(default)]
    pub talk_rounds: u32,
    /// True to hand memory over within a GPU too where there are several, which takes one more context.
    #[serde(default)]
    pub within: bool,
}

/// Returns a GPU as both ends.
const fn within(gpu: u32) -> Pair {
    Pair { source: gpu, destination: gpu }
}

/// Plans one round for each way. With one GPU, both processes use it. With several, memory of a GPU is handed over to the
/// first one that reaches it, and within that GPU if it is asked for, by processes that see all GPUs and by processes that see their own only.
/// Refusals are of the system, the driver or the process, so one pair shows them. Kernels of the two processes then talk
/// through memory that each got from the other. On a single GPU they would not run at the same time, so that they do not.
pub(super) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let asked = request.profile.share.as_ref();
    let Some(&Share { bytes, talk_rounds, within: inside_too }) =
        asked.filter(|_| request.groups.contains(&Group::Share))
    else {
        return Vec::new();
    };
    let slot = |pair: Pair, view: View, rung: Rung| {
        let setup = Setup::REFERENCE.with_bytes(bytes);
        let action = Action::Share { rung, view };
        Slot::one(Task { setup, action }, vec![Flow::from(pair)])
    };
    let usable: Vec<u32> = request.usable().map(|device| device.index).collect();
    let Some(&first) = usable.first() else {
        return Vec::new();
    };
    let pairs = Pair::ordered(&usable).into_iter();
    // The other process reaches the memory of this one.
    let across = pairs
        .filter(|pair| is_direct(request.driver, pair.reversed()))
        .min_by_key(|pair| (pair.source, pair.destination));
    let talks = across.filter(|pair| talk_rounds > 0 && is_direct(request.driver, *pair));
    let talk = |pair: Pair, view: View, rung: Rung| {
        let setup = Setup {
            engine: Engine::Kernel,
            direction: Direction::BothWays,
            ..Setup::REFERENCE.with_bytes(Bytes(0))
        };
        let action = Action::ShareTalk { rounds: talk_rounds, processes: Processes { rung, view } };
        let flows = [pair, pair.reversed()].map(Flow::from).into();
        Slot::one(Task { setup, action }, flows)
    };
    let Some(across) = across else {
        return Rung::ALL.into_iter().map(|rung| slot(within(first), View::All, rung)).collect();
    };
    let of_gpu = Rung::ALL.into_iter().filter(|rung| inside_too && rung.is_of_gpu());
    let inside = of_gpu.map(|rung| slot(within(across.source), View::All, rung));
    let views = [View::All, View::Own].into_iter();
    let of_view = |view: View| {
        let handed = Rung::ALL.into_iter().map(move |rung| slot(across, view, rung));
        let talks = talks.into_iter();
        let talked = talks.flat_map(move |pair| Rung::OF_TALKS.map(|rung| talk(pair, view, rung)));
        handed.chain(talked)
    };
    inside.chain(views.flat_map(of_view)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::profile::Name;
    use crate::{Profile, Round};
    use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
    use model::topology::Topology;

    fn rounds_of(gpus: &[u32], direct: &[(u32, u32)], (name, by_name): (Name, bool)) -> Vec<Round> {
        let driver = DriverFacts {
            devices: gpus
                .iter()
                .map(|&index| CudaDevice {
                    index,
                    budget_bytes: Some(Bytes(1 << 30)),
                    ..CudaDevice::default()
                })
                .collect(),
            peer_access: direct
                .iter()
                .map(|&(source, destination)| CudaPeerAccess {
                    pair: Pair { source, destination },
                    possible: Some(true),
                    failure: None,
                    failure_code: None,
                    hindered: false,
                })
                .collect(),
            ..DriverFacts::default()
        };
        let (topology, groups) = (Topology::default(), BTreeSet::from([Group::Share]));
        let mut profile = Profile::load(name).unwrap();
        if by_name {
            profile.name(Group::Share).unwrap();
        }
        let request = Request {
            gpus,
            driver: &driver,
            topology: &topology,
            profile: &profile,
            groups: &groups,
            overlap_bytes: None,
            deadline: None,
            serial: false,
        };
        crate::rounds(&request)
    }

    /// Returns flow, view and way of each planned round.
    fn planned(gpus: &[u32], direct: &[(u32, u32)], name: Name) -> Vec<(Flow, View, Rung)> {
        ways(rounds_of(gpus, direct, (name, false)))
    }

    fn ways(rounds: Vec<Round>) -> Vec<(Flow, View, Rung)> {
        rounds
            .into_iter()
            .filter_map(|round| match round.task.action {
                Action::Share { rung, view } => {
                    assert_eq!(round.deadline, RUNG_LIMIT);
                    Some((round.flows[0], view, rung))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn two_that_reach_each_other_talk_after_the_ways_of_their_view() {
        let talks = |gpus: &[u32], direct: &[(u32, u32)]| -> Vec<(Vec<Flow>, Processes)> {
            let rounds = rounds_of(gpus, direct, (Name::Full, false)).into_iter();
            rounds
                .filter_map(|round| match round.task.action {
                    Action::ShareTalk { rounds: 300, processes } => Some((round.flows, processes)),
                    _ => None,
                })
                .collect()
        };
        let all = talks(&[0, 1], &[(0, 1), (1, 0)]);
        let pair = Pair { source: 0, destination: 1 };
        let both = [pair, pair.reversed()].map(Flow::from);
        assert!(all.iter().all(|(flows, _)| flows[..] == both));
        let processes = all.iter().map(|(_, processes)| (processes.view, processes.rung));
        let wanted = [View::All, View::Own].map(|view| Rung::OF_TALKS.map(|rung| (view, rung)));
        assert_eq!(processes.collect::<Vec<_>>(), wanted.concat());
        // Access one way is enough for memory, and not for a talk.
        assert_eq!(talks(&[0, 1], &[(1, 0)]), []);
        assert_eq!(talks(&[3], &[]), []);
    }

    #[test]
    fn one_gpu_has_every_way_within_it_and_no_profile_but_full_has_any() {
        let rounds = planned(&[3], &[], Name::Full);
        let all: Vec<_> = Rung::ALL.map(|rung| (Flow::inside(3), View::All, rung)).into();
        assert_eq!(rounds, all);
        assert!(planned(&[3], &[], Name::Standard).is_empty());
        // Two GPUs that do not reach each other have no way across.
        assert_eq!(planned(&[3, 5], &[], Name::Full), all);
    }

    #[test]
    fn several_gpus_have_ways_within_one_and_across_for_both_views() {
        // GPU 2 reaches the memory of GPU 1.
        let planned = |by_name: bool| {
            let rounds = rounds_of(&[0, 1, 2], &[(2, 1)], (Name::Full, by_name));
            ways(rounds)
        };
        // In `full` the ways within a GPU are left out.
        assert_eq!(planned(false).len(), 7 + 7);
        let rounds = planned(true);
        let across = Flow::from(Pair { source: 1, destination: 2 });
        assert_eq!(rounds.len(), 4 + 7 + 7);
        assert!(rounds[..4].iter().all(|(flow, view, rung)| {
            (*flow, *view, rung.is_of_gpu()) == (Flow::inside(1), View::All, true)
        }));
        assert!(rounds[4..].iter().all(|(flow, ..)| *flow == across));
        let own = rounds.iter().filter(|(_, view, _)| *view == View::Own);
        assert_eq!(own.count(), 7);
    }
}
