//! Plans of many GPUs.

use super::*;
use crate::Group;
use crate::plan::in_full::in_full;
use model::choice::Choice;
use model::topology::Topology;
use model::units::Bytes;

#[test]
fn with_many_gpus_every_pair_is_measured_once_and_some_in_full() {
    let gpus: Vec<u32> = (0..20).collect();
    let device = |&index: &u32| CudaDevice {
        index,
        ordinal: Some(index),
        budget_bytes: Some(Bytes(1020 * MIB)),
        ..CudaDevice::default()
    };
    let pairs = Pair::ordered(&gpus);
    // GPU 3 and GPU 9 do not reach each other.
    let denied = |pair: &Pair| [(3, 9), (9, 3)].contains(&(pair.source, pair.destination));
    let access = |pair: &Pair| CudaPeerAccess {
        pair: *pair,
        possible: Some(!denied(pair)),
        failure: None,
        failure_code: None,
        hindered: false,
    };
    let driver = DriverFacts {
        devices: gpus.iter().map(device).collect(),
        peer_access: pairs.iter().map(access).collect(),
        ..DriverFacts::default()
    };
    let groups: BTreeSet<_> = Group::ALL.iter().copied().collect();
    let profile = Profile::load(Name::Standard).unwrap();
    let request = Request {
        gpus: &gpus,
        driver: &driver,
        topology: &Topology::default(),
        profile: &profile,
        groups: &groups,
        deadline: None,
        serial: false,
    };
    let mut rounds = rounds(&request);
    rounds.retain(|round| !matches!(round.task.action, Action::Load(_)));
    let in_full = in_full(&gpus).unwrap();
    assert_eq!(in_full.len(), 40);
    for gpu in &gpus {
        assert_eq!(in_full.iter().filter(|pair| pair.source == *gpu).count(), 2, "{gpu}");
        assert_eq!(in_full.iter().filter(|pair| pair.destination == *gpu).count(), 2, "{gpu}");
    }
    for pair in &pairs {
        let tasks = of(&rounds, pair.source, pair.destination);
        let wanted = if denied(pair) { Path::Staged } else { Path::Direct };
        assert!(tasks.iter().any(|task| is_reference_set(task, wanted)), "{pair}");
        if in_full.contains(pair) {
            assert!(tasks.iter().any(|task| matches!(task.action, Action::Overlap(_))), "{pair}");
        } else {
            // A pair that runs both ways with a fully measured pair gets that measurement too.
            assert_eq!(tasks.iter().filter(|task| !task.is_both_ways()).count(), 2, "{pair}");
            assert!(is_verification(&tasks[0], Setup::REFERENCE.with_path(wanted)), "{pair}");
        }
    }
    let said = left_out(&gpus, &groups).unwrap();
    assert!(
        said.starts_with("20 GPUs are 380 pairs: all are verified") && said.contains("40 of them"),
        "{said}"
    );
    assert!(!left_out(&gpus, &[Group::Overlap].into()).unwrap().contains("verified"));
    assert_eq!(left_out(&gpus[..16], &groups), None);
    assert_eq!(thinned_out(&request), None, "no rates are known");
}
