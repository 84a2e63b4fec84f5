use std::time::Duration;

use super::*;
use crate::Task;
use crate::load::run::LoadTimes;
use model::flow::{HostMemory, Setup};
use model::load::Pattern;
use model::placement::Pair;
use model::snapshot::SlowFact;
use sim::spec::{CounterFault, LinkPart, MachineSpec, OthersWork, Pairs};
use sim::{self, builtin};

const SENT: u64 = 360 << 20;

fn round(flows: Vec<Flow>) -> Round {
    let action = Action::Load(crate::load::Load {
        pattern: Pattern::Ring,
        rows: 1,
        copies: 4,
        counted: true,
        compared_ms: 0,
    });
    let task = Task { setup: Setup::REFERENCE, action };
    Round {
        id: 7,
        slot: 7,
        flows,
        task,
        deadline: Duration::from_secs(5),
        timeline: false,
        name: String::new(),
    }
}

fn there_and_back() -> Vec<Flow> {
    let flow: Flow = Pair { source: 0, destination: 1 }.into();
    vec![flow, flow.reversed()]
}

/// Returns the GPUs' counts while each of these flows copies a fixed number of bytes.
fn counted(spec: MachineSpec, flows: Vec<Flow>) -> Vec<Counted> {
    let telemetry = sim::telemetry(spec);
    let snapshot =
        run::discover::discover(Arc::clone(&telemetry), SlowFact::ALL, Duration::from_secs(60));
    let load = LoadTimes {
        samples: Vec::new(),
        checks: Vec::new(),
        copied: vec![SENT; flows.len()],
        compared: Vec::new(),
    };
    let round = round(flows);
    let mut counters = Counters::new(&telemetry, &snapshot, std::slice::from_ref(&round));
    counters.begin(&round);
    assert_eq!(counters.end(6, &Outcome::Noted), [], "another round");
    let counted = counters.end(7, &Outcome::Load { load: Box::new(load) });
    assert_eq!(counters.end(7, &Outcome::Noted), [], "it was read once");
    counted
}

fn h200() -> MachineSpec {
    builtin::get("h200x2").unwrap()
}

#[test]
fn what_was_sent_is_counted_link_by_link() {
    let all = counted(h200(), there_and_back());
    assert_eq!(all.iter().map(|counted| counted.gpu).collect::<Vec<_>>(), [0, 1]);
    for counted in all {
        assert_eq!((counted.sent_bytes, counted.received_bytes), (Bytes(SENT), Bytes(SENT)));
        assert_eq!(
            (counted.nvlink_sent_bytes, counted.nvlink_received_bytes),
            (Some(Bytes(SENT)), Some(Bytes(SENT)))
        );
        assert_eq!((counted.pcie_sent_bytes, counted.reason.as_deref()), (Some(Bytes(0)), None));
        assert_eq!(counted.links.len(), 18);
        let even = |share: Option<f64>| (share.unwrap() - 100.0 / 18.0).abs() < 0.01;
        assert!(
            counted.links.iter().all(|link| even(link.sent_percent) && even(link.received_percent))
        );
    }
}

#[test]
fn traffic_with_the_host_and_over_the_wrong_way_is_on_pcie() {
    let up = Flow {
        from: Endpoint::Host { node: None, memory: HostMemory::Pinned },
        to: Endpoint::Gpu(1),
    };
    let [host] = counted(h200(), vec![up]).try_into().unwrap();
    assert_eq!(
        (host.gpu, host.received_from_host_bytes, host.sent_bytes),
        (1, Bytes(SENT), Bytes(0))
    );
    assert_eq!(
        (host.pcie_received_bytes, host.nvlink_received_bytes),
        (Some(Bytes(SENT)), Some(Bytes(0)))
    );
    let mut astray = h200();
    astray.faults.over_pcie.push(Pairs::Ordered(0, 1));
    let all = counted(astray, there_and_back());
    assert_eq!(
        (all[0].nvlink_sent_bytes, all[0].pcie_sent_bytes),
        (Some(Bytes(0)), Some(Bytes(SENT)))
    );
    assert_eq!(
        (all[0].nvlink_received_bytes, all[0].pcie_received_bytes),
        (Some(Bytes(SENT)), Some(Bytes(0)))
    );
}

#[test]
fn what_others_send_and_links_that_carry_nothing_show() {
    let mut spec = h200();
    let links = vec![LinkPart { link: 3, part: 0.0.try_into().unwrap() }];
    spec.faults.counters.push(CounterFault {
        gpu: 0,
        links,
        counted: 1.0.try_into().unwrap(),
        unread: false,
        unsupported: false,
    });
    spec.faults.others.push(OthersWork {
        gpu: 1,
        only_at: None,
        nvlink: [10.0, 0.0].map(|gbps: f64| gbps.try_into().unwrap()),
        pcie: [0.0; 2].map(|gbps: f64| gbps.try_into().unwrap()),
        utilization: 0.try_into().unwrap(),
        unread: false,
        only_under_load: true,
    });
    let all = counted(spec, there_and_back());
    assert_eq!(all[0].nvlink_sent_bytes, Some(Bytes(SENT)));
    assert_eq!(all[0].links[3].sent_percent, Some(0.0));
    assert_eq!(all[1].nvlink_sent_bytes, Some(Bytes(SENT + 300_000_000)));
}

#[test]
fn counters_that_are_not_to_be_had_say_why() {
    let with = |unread, unsupported| {
        let mut spec = h200();
        spec.faults.counters.push(CounterFault {
            gpu: 0,
            links: Vec::new(),
            counted: 1.0.try_into().unwrap(),
            unread,
            unsupported,
        });
        counted(spec, there_and_back()).remove(0)
    };
    let (unread, unsupported) = (with(true, false), with(false, true));
    assert_eq!(unread.reason.as_deref(), Some("NVML: unknown error of the driver (999)"));
    assert_eq!(
        unsupported.reason.as_deref(),
        Some("this GPU and driver do not count what goes over NVLinks and PCIe")
    );
    assert_eq!((unsupported.nvlink_sent_bytes, unsupported.links.len()), (None, 0));
    // A GPU without NVLinks counts nothing there, and this is not reported as missing.
    let single = counted(builtin::get("rtx4090x4").unwrap(), there_and_back());
    assert_eq!(
        (single.len(), single[0].nvlink_sent_bytes, single[0].reason.clone()),
        (2, None, None)
    );
    assert_eq!(single[0].pcie_sent_bytes, Some(Bytes(SENT)));
}

/// Returns the traffic of other programs while these patterns ran. Each pattern copies its number of bytes there and
/// back.
fn foreign(spec: MachineSpec, patterns: &[u64], lost: bool) -> Vec<Background> {
    let telemetry = sim::telemetry(spec);
    let snapshot =
        run::discover::discover(Arc::clone(&telemetry), SlowFact::ALL, Duration::from_secs(60));
    let rounds: Vec<Round> =
        (7..).zip(patterns).map(|(id, _)| Round { id, ..round(there_and_back()) }).collect();
    let mut counters = Counters::new(&telemetry, &snapshot, &rounds);
    counters.begin(&rounds[0]);
    for (round, bytes) in rounds.iter().zip(patterns) {
        assert_eq!(counters.foreign(), [], "before the last has ended");
        let load = LoadTimes {
            samples: Vec::new(),
            checks: Vec::new(),
            copied: vec![*bytes; 2],
            compared: Vec::new(),
        };
        counters.end(round.id, &Outcome::Load { load: Box::new(load) });
        if lost {
            counters.lost();
        }
    }
    counters.foreign()
}

#[test]
fn what_others_move_while_any_pattern_runs_is_seen() {
    let mut spec = h200();
    assert_eq!(foreign(h200(), &[SENT, SENT, 2 * SENT], false), []);
    spec.faults.others.push(OthersWork {
        gpu: 1,
        only_at: None,
        nvlink: [0.0, 100.0].map(|gbps: f64| gbps.try_into().unwrap()),
        pcie: [0.0; 2].map(|gbps: f64| gbps.try_into().unwrap()),
        utilization: 0.try_into().unwrap(),
        unread: false,
        only_under_load: true,
    });
    let seen = foreign(spec.clone(), &[SENT, SENT], false);
    let [seen] = seen.as_slice() else { panic!("{seen:#?}") };
    assert_eq!((seen.gpu, seen.nvlink_sent_gbps.unwrap().0), (1, 0.0));
    assert!((seen.nvlink_received_gbps.unwrap().0 - 100.0).abs() < 1.0, "{seen:?}");
    // After a problem, the number of copied bytes is unknown.
    assert_eq!(foreign(spec, &[SENT, SENT], true), []);
}

#[test]
fn a_counter_of_32_bits_wraps_and_one_of_64_is_not_cut() {
    assert_eq!(wrapping_added(10, 30), 20);
    assert_eq!(wrapping_added(u64::from(u32::MAX), 9), 10, "it has wrapped once");
    let wide = 7 << 32;
    assert_eq!(wrapping_added(wide, wide + (5 << 32)), 5 << 32);
    assert_eq!(wrapping_added(100, 5 << 32), (5 << 32) - 100, "it passed 32 bits meanwhile");
    assert_eq!(wrapping_added(wide, 0), 0, "it was set back: nothing is known");
}
