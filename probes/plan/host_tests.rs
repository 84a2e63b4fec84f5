use super::*;
use crate::Group;
use crate::plan::profile::Name;
use crate::plan::tests::{GPUS, driver, topology};
use model::choice::Choice;
use model::flow::HostMemory;
use model::flow::Place;
use model::placement::Engine;
use model::units::{Bytes, GIB, MIB};

fn plan(name: Name, gpus: &[u32], budget: Option<u64>, groups: &[Group]) -> Vec<Round> {
    let mut driver = DriverFacts { host_budget_bytes: budget.map(Bytes), ..driver() };
    driver.devices.retain(|device| gpus.contains(&device.index));
    rounds(&Request {
        gpus,
        driver: &driver,
        topology: &topology(),
        profile: &Profile::load(name).unwrap(),
        groups: &groups.iter().copied().collect(),
        deadline: None,
        serial: false,
    })
}

fn host(name: Name, gpus: &[u32], budget: Option<u64>) -> Vec<Round> {
    plan(name, gpus, budget, &[Group::Host])
}

#[test]
fn buffers_of_all_gpus_at_once_exceed_the_caches_where_everything_is_measured() {
    let sizes = |name, caches| {
        let profile = Profile::load(name).unwrap();
        let driver = DriverFacts { host_budget_bytes: Some(Bytes(64 * GIB)), ..driver() };
        let planned = rounds(&Request {
            gpus: &GPUS,
            driver: &driver,
            topology: &topology(),
            profile: &profile.beyond_caches(caches, GPUS.len()),
            groups: &[Group::Host].into(),
            deadline: None,
            serial: false,
        });
        let at_once = |round: &&Round| {
            round.flows.len() > 1
                && round.flows.iter().all(|flow| !round.flows.contains(&flow.reversed()))
        };
        let (at_once, others): (Vec<_>, Vec<_>) = planned.iter().partition(at_once);
        let most =
            |rounds: &[&Round]| rounds.iter().map(|round| round.task.setup.bytes.0 / MIB).max();
        (most(&at_once), most(&others))
    };
    // 3 GPUs: 2 x 384 MiB are 256 MiB each.
    assert_eq!(sizes(Name::Full, Some(Bytes(384 * MIB))), (Some(256), Some(64)));
    assert_eq!(sizes(Name::Full, Some(Bytes(16 * MIB))), (Some(64), Some(64)));
    assert_eq!(sizes(Name::Full, None), (Some(64), Some(64)));
    assert_eq!(sizes(Name::Standard, Some(Bytes(384 * MIB))), (Some(32), Some(32)));
}

#[test]
fn second_looks_follow_the_plan_as_far_as_the_request_goes() {
    let driver = DriverFacts { host_budget_bytes: Some(Bytes(GIB)), ..driver() };
    let (topology, profile) = (topology(), Profile::load(Name::Standard).unwrap());
    let far = Flow::from_host(Some(1), HostMemory::Pinned, 0);
    let two = [0, 1].map(|gpu| Flow::from_host(None, HostMemory::Pinned, gpu));
    let back = two.map(|flow| flow.reversed());
    let unknown = Flow::from_host(None, HostMemory::Pinned, 77);
    let planned = |groups: &[Group], serial| {
        let request = Request {
            gpus: &GPUS,
            driver: &driver,
            topology: &topology,
            profile: &profile,
            groups: &groups.iter().copied().collect(),
            deadline: None,
            serial,
        };
        let after = rounds(&request);
        let looks = second_looks(&request, &[&[far], &[unknown], &two, &back], &after);
        let ids: BTreeSet<u32> = after.iter().map(|round| round.id).collect();
        assert!(looks.iter().flatten().all(|round| !ids.contains(&round.id)));
        looks
    };
    let [Some(alone), None, Some(both), Some(back)] = &planned(&[Group::Host], false)[..] else {
        panic!("one look for each set of flows that can be measured")
    };
    assert_eq!((alone.flows.as_slice(), both.flows.as_slice()), (&[far][..], &two[..]));
    assert_eq!(both.id, alone.id + 1);
    assert!(matches!(alone.task.action, Action::Host(_)), "{alone:?}");
    let pattern = model::load::Pattern::SecondLook;
    assert!(
        matches!(both.task.action, Action::Load(crate::load::Load { pattern: of, rows: 2, .. }) if of == pattern),
        "{both:?}"
    );
    assert_eq!(both.name, "GPU 0 and GPU 1");
    assert_eq!(back.name, "from GPU 0 and from GPU 1", "a report has one row of each name");
    let serial = planned(&[Group::Host], true);
    assert!(serial[0].is_some() && serial[2].is_none(), "one flow at a time");
    assert_eq!(planned(&[Group::Peers], false), [None, None, None, None]);
}

#[test]
fn host_copies_come_last_and_their_way_by_itself_first() {
    // The probes on one GPU use the same buffers and come after the host copies.
    let rounds = plan(
        Name::Standard,
        &GPUS,
        Some(GIB),
        &[Group::Peers, Group::Overlap, Group::Latency, Group::Host],
    );
    let is_host = |round: &Round| matches!(round.task.action, Action::Host(_) | Action::Pinning(_));
    let first = rounds.iter().position(is_host).unwrap();
    assert!(rounds[first..].iter().all(is_host));
    for joined in rounds[first..].iter().filter(|round| round.flows.len() > 1) {
        let alone =
            |flow: &Flow| rounds.iter().any(|round| round.id < joined.id && round.flows == [*flow]);
        assert!(joined.flows.iter().all(alone), "{}", joined.way());
    }
    // Five for each GPU, two with memory page-locked anew, one with memory that is filled first, two of all GPUs at once,
    // one of page-locking.
    assert_eq!(rounds.len() - first, 3 * 5 + 2 + 1 + 2 + 1);
    assert_eq!(rounds.last().unwrap().task.to_string(), "page-locking");
}

#[test]
fn all_buffers_together_stay_within_what_the_host_lets_go() {
    let bytes = |budget| host(Name::Full, &GPUS, budget)[0].task.setup.bytes;
    assert_eq!(bytes(Some(GIB)), Bytes(64 * MIB), "as the profile has it");
    // One buffer for each GPU, and four more.
    assert_eq!(bytes(Some(70 * MIB)), Bytes(10 * MIB));
    assert_eq!(bytes(Some(0)), Bytes(MIB), "the worker says that there is no room");
    assert_eq!(bytes(None), Bytes(MIB));
}

#[test]
fn one_gpu_has_no_others_at_once_and_its_own_memory_beside() {
    let rounds = host(Name::Standard, &[1], Some(GIB));
    assert!(rounds.iter().all(|round| round.flows.len() == 1 || round.task.is_both_ways()));
    assert_eq!(rounds.len(), 5 + 2 + 1 + 1);
    let local =
        |rounds: &[Round]| rounds.iter().filter(|round| round.flows[0].within() == Some(1)).count();
    let both = [Group::Host, Group::Peers];
    assert_eq!(local(&plan(Name::Standard, &[1], Some(GIB), &both)), 1);
    assert_eq!(local(&plan(Name::Standard, &[1], Some(GIB), &[Group::Peers])), 0, "beside nothing");
    // Otherwise a quick check of one GPU would measure nothing.
    assert_eq!(plan(Name::Quick, &[1], Some(GIB), Group::ALL).len(), 2);
}

#[test]
fn copies_within_a_gpu_exceed_four_caches_if_the_buffer_does() {
    use model::measurement::CudaAttributes;
    use model::reading::{Reading, Unknown};
    let sizes = |cache: Option<u64>| {
        let mut driver = driver();
        let said = CudaAttributes {
            l2_cache_bytes: cache
                .map_or(Reading::unsupported(), |mib| Reading::Known(Bytes(mib * MIB))),
            ..CudaAttributes::unread(&Unknown::Unsupported)
        };
        driver.devices[0].attributes = Some(said);
        let rounds = rounds(&Request {
            gpus: &GPUS,
            driver: &driver,
            topology: &topology(),
            profile: &Profile::load(Name::Quick).unwrap(),
            groups: &[Group::Peers].into(),
            deadline: None,
            serial: false,
        });
        let local = rounds.iter().filter(|round| round.flows[0].within().is_some());
        local.map(|round| round.task.setup.bytes.0 / MIB).collect::<Vec<_>>()
    };
    // The cache of the first GPU alone is known.
    for (cache, first) in [(None, 128), (Some(6), 128), (Some(50), 200), (Some(192), 510)] {
        let mut expected = vec![128; GPUS.len()];
        expected[0] = first;
        assert_eq!(sizes(cache), expected);
    }
}

#[test]
fn full_has_kernels_and_registered_memory_for_every_gpu() {
    let rounds = host(Name::Full, &GPUS, Some(GIB));
    let kernels = rounds.iter().filter(|round| round.task.setup.engine == Engine::Kernel).count();
    assert_eq!(kernels, 2 * 3);
    let of = |memory, gpu| {
        let end = Endpoint::Host { node: None, memory };
        rounds
            .iter()
            .filter(|round| round.flows[0].ends().contains(&end) && round.uses(Place::Gpu(gpu)))
            .count()
    };
    // Reused memory each way and both ways, memory page-locked anew each way.
    GPUS.iter().for_each(|gpu| assert_eq!(of(HostMemory::Registered, *gpu), 3 + 2));
    let mut without_kernels = driver();
    without_kernels.kernels_failure = Some("no compiler".into());
    let kept = rounds.iter().filter(|round| obstacle(round, &without_kernels).is_some()).count();
    assert_eq!(kept, kernels);
}

#[test]
fn full_measures_kernels_beside_copies_between_gpus_or_of_a_single_one_with_the_host() {
    let of = |name, gpus: &[u32]| {
        let rounds = plan(name, gpus, Some(GIB), &[Group::Overlap]);
        let beside = |round: &&Round| matches!(round.task.action, Action::Contention(_));
        let (pairs, host): (Vec<_>, Vec<_>) =
            rounds.iter().filter(beside).partition(|round| round.flows[0].pair().is_some());
        (pairs.len(), host.len())
    };
    assert_eq!((of(Name::Full, &[1]), of(Name::Standard, &[1])), ((0, 4), (0, 0)));
    // The direct pairs of the ring: either GPU, either engine, either kernel.
    assert_eq!(of(Name::Full, &GPUS), (2 * 8, 0));
}
