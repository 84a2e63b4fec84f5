//! Plans of memory that one process hands to another.

use std::time::Duration;

use serde::Deserialize;

use crate::plan::slot::Slot;
use crate::plan::slot::size;
use crate::{Group, Request, Task};
use model::flow::{Flow, Setup};
use model::placement::Pair;
use model::sharing::Rung;
use model::units::Bytes;

/// Time that a way to share memory may take. All of them took 30 ms on 2 x H200; a call that hangs, hangs for ever.
pub(crate) const RUNG_LIMIT: Duration = Duration::from_secs(2);

/// Memory handed from one process to another.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size of the memory.
    #[serde(deserialize_with = "size")]
    pub bytes: Bytes,
}

/// Plans one round for each way: from the first GPU whose memory another one reaches to that one, or within the first
/// GPU. Refusals are of the system, the driver or the process, so one pair shows them.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let asked = request.profile.share.as_ref();
    let Some(share) = asked.filter(|_| request.groups.contains(&Group::Share)) else {
        return Vec::new();
    };
    let usable: Vec<u32> = request.usable().map(|device| device.index).collect();
    let pairs = Pair::ordered(&usable).into_iter();
    let across = pairs
        .filter(|pair| request.driver.is_direct(pair.reversed()))
        .min_by_key(|pair| (pair.source, pair.destination));
    let within = usable.first().map(|gpu| Flow::inside(*gpu));
    let Some(flow) = across.map(Flow::from).or(within) else {
        return Vec::new();
    };
    let setup = Setup::REFERENCE.with_bytes(share.bytes);
    let slot = |rung| Slot::one(Task::new(setup, super::Share { rung }), vec![flow]);
    Rung::ALL.into_iter().map(slot).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Round;
    use crate::plan::Profile;
    use crate::plan::profile::Name;
    use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
    use model::topology::Topology;

    fn rounds_of(gpus: &[u32], direct: &[(u32, u32)], name: Name) -> Vec<Round> {
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
        let profile = Profile::load(name).unwrap();
        let request = Request {
            gpus,
            driver: &driver,
            topology: &topology,
            profile: &profile,
            groups: &groups,
            deadline: None,
            serial: false,
        };
        crate::plan::rounds(&request)
    }

    /// Returns flow and way of each planned round.
    fn planned(gpus: &[u32], direct: &[(u32, u32)], name: Name) -> Vec<(Flow, Rung)> {
        let way = |round: Round| match round.task.action {
            crate::Action::Share(crate::share::Share { rung }) => {
                assert_eq!(round.deadline, RUNG_LIMIT);
                Some((round.flows[0], rung))
            }
            _ => None,
        };
        rounds_of(gpus, direct, name).into_iter().filter_map(way).collect()
    }

    #[test]
    fn one_gpu_has_every_way_within_it_and_no_profile_but_full_has_any() {
        let all = Rung::ALL.map(|rung| (Flow::inside(3), rung));
        assert_eq!(planned(&[3], &[], Name::Full), all);
        assert!(planned(&[3], &[], Name::Standard).is_empty());
        // Two GPUs that do not reach each other have no way across.
        assert_eq!(planned(&[3, 5], &[], Name::Full), all);
    }

    #[test]
    fn of_several_gpus_the_first_hands_memory_to_one_that_reaches_it() {
        // GPU 2 reaches the memory of GPU 1.
        let across = Flow::from(Pair { source: 1, destination: 2 });
        let all = Rung::ALL.map(|rung| (across, rung));
        assert_eq!(planned(&[0, 1, 2], &[(2, 1)], Name::Full), all);
    }
}
