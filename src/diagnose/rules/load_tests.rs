//! Tests of the rules on several flows at once, on machines whose single flows are known.

use crate::testing::prelude::*;
use crate::testing::{codes, with_host};
use model::cell::Measurement;
use model::fact::Fact;
use model::finding::{Severity, Subject};
use model::flow::{Endpoint, Flow, HostMemory};
use model::load::{LoadPattern, Pattern};
use model::measurement::{Measurements, Status, Verified};
use model::placement::Pair;
use model::snapshot::Snapshot;
use model::testing::pci;
use model::units::{Bytes, GbPerSecond, MIB};

fn pair(source: u32, destination: u32) -> Flow {
    Flow::from(Pair { source, destination })
}

fn up(gpu: u32) -> Flow {
    Flow { from: Endpoint::Host { node: None, memory: HostMemory::Pinned }, to: Endpoint::Gpu(gpu) }
}

/// Returns a pattern whose flows have these rates.
fn pattern(pattern: Pattern, of: &str, flows: &[(Flow, f64)]) -> LoadPattern {
    let ways: Vec<Flow> = flows.iter().map(|(flow, _)| *flow).collect();
    let mut load = LoadPattern::without(pattern, of.into(), &ways, Status::Measured, None);
    load.achieved_gbps = Some(GbPerSecond(flows.iter().map(|(_, rate)| rate).sum()));
    load.flows
        .iter_mut()
        .zip(flows)
        .for_each(|(flow, (_, rate))| flow.achieved_gbps = Some(GbPerSecond(*rate)));
    (load.verified, load.samples, load.bytes) = (Verified::Ok, 3, Bytes(256 * MIB));
    load
}

/// Returns every pair at this share of theory, and these patterns.
fn loaded(machine: &Snapshot, share: f64, load: Vec<LoadPattern>) -> Measurements {
    Measurements { load, ..measured(machine, share) }
}

fn into(gpu: u32, sources: [u32; 2], each: f64) -> LoadPattern {
    pattern(
        Pattern::AllToOne,
        &format!("GPU {gpu}"),
        &sources.map(|source| (pair(source, gpu), each)),
    )
}

/// Returns [`two_sockets`] with eight lanes to each GPU, so that two fill the uplink.
fn half_slots() -> Snapshot {
    let mut machine = two_sockets();
    for function in &mut machine.pci {
        let is_slot = ["0000:03", "0000:04", "0000:83", "0000:84"]
            .iter()
            .any(|at| function.address.to_string().starts_with(at));
        let above =
            ["0000:02", "0000:82"].iter().any(|at| function.address.to_string().starts_with(at));
        if is_slot || above {
            (function.width, function.width_max) = (lanes(8), lanes(8));
        }
    }
    for gpu in &mut machine.gpus {
        (gpu.pcie_width, gpu.pcie_width_max) = (lanes(8), lanes(8));
    }
    machine
}

#[test]
fn eight_h200_as_they_were_measured_have_no_finding() {
    let machine = h200_vm(8);
    let all = (1..8).map(|gpu| (pair(gpu, 0), 57.0)).collect::<Vec<_>>();
    let shift = (0..8).map(|gpu| (pair(gpu, (gpu + 1) % 8), 390.0)).collect::<Vec<_>>();
    let load = vec![
        into(3, [0, 1], 199.5),
        pattern(Pattern::AllToOne, "GPU 0", &all),
        pattern(Pattern::Shift, "by 1", &shift),
    ];
    assert_eq!(findings(&machine, Some(&loaded(&machine, 0.88, load))), []);
}

#[test]
fn two_flows_that_have_less_than_one_are_a_collapse_of_the_hop_they_share() {
    let machine = h200_vm(8);
    let load = vec![into(3, [0, 1], 150.0), into(4, [0, 1], 199.0)];
    let measurements = loaded(&machine, 0.88, load);
    let found = findings(&machine, Some(&measurements));
    let found = only(&found, "load-below-expected", Severity::Error);
    assert_eq!(found.subject, Subject::Gpu { index: 3 });
    for text in ["2 flows at once", "300 GB/s", "alone (396)", "all to one, GPU 3"] {
        assert!(found.message.contains(text), "{text}: {}", found.message);
    }
    assert_eq!(exit(&[found], Some(&measurements)), 1);
}

#[test]
fn ports_of_all_gpus_that_collapse_are_one_cause() {
    let machine = h200_vm(4);
    let load = (0..4).map(|gpu| into(gpu, [(gpu + 1) % 4, (gpu + 2) % 4], 120.0)).collect();
    let found = findings(&machine, Some(&loaded(&machine, 0.88, load)));
    let found = only(&found, "load-below-expected", Severity::Error);
    assert_eq!(found.subject, Subject::Machine);
    assert!(found.message.contains("of 4 alike"), "{}", found.message);
}

#[test]
fn what_is_slow_alone_is_not_reported_again() {
    let machine = h200_vm(8);
    let shift = (0..8)
        .map(|gpu| (pair(gpu, (gpu + 1) % 8), if gpu == 2 { 118.0 } else { 390.0 }))
        .collect::<Vec<_>>();
    let mut measurements = loaded(
        &machine,
        0.88,
        vec![into(3, [2, 1], 118.0), pattern(Pattern::Shift, "by 1", &shift)],
    );
    measurements.load[0].flows[1].achieved_gbps = Some(GbPerSecond(270.0));
    measurements.load[0].achieved_gbps = Some(GbPerSecond(388.0));
    set(&mut measurements, 120.0, |cell| is(cell, 2, 3));
    let found = findings(&machine, Some(&measurements));
    only(&found, "peer-bandwidth-low", Severity::Error);
}

#[test]
fn an_uplink_that_carries_less_than_its_slots_is_named() {
    let machine = half_slots();
    // From socket 0 to socket 1 and back; within a socket everything is as it should be.
    let across = |of: &str, flows: [(u32, u32); 2], each| {
        pattern(
            Pattern::ThroughOneHop,
            of,
            &flows.map(|(source, destination)| (pair(source, destination), each)),
        )
    };
    let mut measurements = loaded(&machine, 0.84, vec![across("up", [(0, 2), (1, 3)], 13.0)]);
    let healthy = findings(&machine, Some(&measurements));
    assert!(
        codes(&healthy).iter().all(|code| !code.starts_with("load-c") && *code != "shared-hop-low"),
        "{healthy:#?}"
    );
    measurements.load = vec![across("up", [(0, 2), (1, 3)], 4.0)];
    let found = findings(&machine, Some(&measurements));
    let of_load: Vec<_> =
        found.iter().filter(|found| &*found.code == "load-below-expected").collect();
    let [found] = of_load.as_slice() else { panic!("{found:#?}") };
    // Both uplinks and the link between the sockets are shared: the figures do not show which is the cause.
    assert_eq!((&found.subject, found.suspects.len()), (&Subject::Machine, 3), "{found:#?}");
}

#[test]
fn the_uplink_remains_where_the_other_hops_carried_as_much() {
    let machine = half_slots();
    let mut measurements = with_host(&machine, &[13.4; 4]);
    set(&mut measurements, 13.2, |_| true);
    let host = |of: &str, gpus: [u32; 2], each| {
        pattern(Pattern::ThroughOneHop, of, &gpus.map(|gpu| (up(gpu), each)))
    };
    measurements.load = vec![host("socket 0", [0, 1], 13.2), host("socket 1", [2, 3], 4.2)];
    let found = findings(&machine, Some(&measurements));
    let of_load: Vec<_> =
        found.iter().filter(|found| &*found.code == "load-below-expected").collect();
    let [found] = of_load.as_slice() else { panic!("{found:#?}") };
    assert_eq!(found.subject, Subject::PcieLink { address: pci("0000:81:00.0") }, "{found:#?}");
}

#[test]
fn flows_that_share_nothing_and_are_slow_together_are_reported_as_that() {
    let machine = h200_vm(8);
    let shift = (0..8).map(|gpu| (pair(gpu, (gpu + 1) % 8), 250.0)).collect::<Vec<_>>();
    let found = findings(
        &machine,
        Some(&loaded(&machine, 0.88, vec![pattern(Pattern::Shift, "by 1", &shift)])),
    );
    let found = only(&found, "load-below-expected", Severity::Warning);
    assert!(
        found.message.contains("8 flows at once (shift, by 1) reach 2000 GB/s, 64%"),
        "{}",
        found.message
    );
}

#[test]
fn an_uplink_that_two_slots_share_is_told_as_design() {
    let machine = two_sockets();
    let mut measurements = with_host(&machine, &[26.4; 4]);
    set(&mut measurements, 26.4, |_| true);
    let flows = [0, 1].map(|gpu| (up(gpu), 13.3));
    measurements.load = vec![pattern(Pattern::ThroughOneHop, "socket 0", &flows)];
    let found = findings(&machine, Some(&measurements));
    let found = only(&found, "load-limited-by-design", Severity::Info);
    assert_eq!(found.subject, Subject::PcieLink { address: pci("0000:01:00.0") });
    let text = "GPU 0 and GPU 1 share the PCIe link 0000:00:01.0 – 0000:01:00.0 (Gen4 x16): 2 flows reach 26.6 GB/s \
                together, 52.8 one at a time";
    assert!(found.message.starts_with(text), "{}", found.message);
}

#[test]
fn wrong_bytes_and_failures_under_load_are_errors_of_their_own() {
    let machine = h200_vm(4);
    let mut wrong = into(0, [1, 2], 199.0);
    wrong.verified = Verified::Corrupt;
    let mut measurements = loaded(&machine, 0.88, vec![wrong.clone()]);
    let found = findings(&machine, Some(&measurements));
    let found = only(&found, "data-wrong", Severity::Error);
    assert!(
        found.message.contains("arrive wrong") && found.message.contains("GPU 1 → GPU 0"),
        "{}",
        found.message
    );
    // A pair that also loses its bytes alone has its own finding.
    for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 1, 0)) {
        cell.verified = Verified::Corrupt;
    }
    let found = findings(&machine, Some(&measurements));
    only(&found, "data-wrong", Severity::Error);
    let mut hung = into(0, [1, 2], 199.0);
    hung.forget();
    (hung.ending.status, hung.ending.reason) = (Status::Hung, Some("no answer after 5 s".into()));
    let found = findings(&machine, Some(&loaded(&machine, 0.88, vec![hung])));
    let found = only(&found, "copy-failed", Severity::Error);
    assert!(
        found.message.contains("hang") && found.message.contains("no answer"),
        "{}",
        found.message
    );
}

#[test]
fn wrong_bytes_are_those_of_the_flows_that_have_them() {
    let machine = h200_vm(4);
    let all_to_one = |gpu: u32, wrong: &[u32]| {
        let sources = (0..4).filter(|source| *source != gpu);
        let flows: Vec<(Flow, f64)> = sources.map(|source| (pair(source, gpu), 133.0)).collect();
        let mut load = pattern(Pattern::AllToOne, &format!("GPU {gpu}"), &flows);
        for flow in &mut load.flows {
            let is_wrong = flow.flow().pair().is_some_and(|pair| wrong.contains(&pair.source));
            flow.verified = Some(if is_wrong { Verified::Corrupt } else { Verified::Ok });
            flow.verification_detail = is_wrong.then(|| "8 B are wrong".into());
        }
        load.verified = if wrong.is_empty() { Verified::Ok } else { Verified::Corrupt };
        load
    };
    let judged = |patterns: Vec<LoadPattern>| {
        let found = findings(&machine, Some(&loaded(&machine, 0.88, patterns)));
        found.into_iter().filter(|found| found.code == "data-wrong").collect::<Vec<_>>()
    };
    let pairs = |all: &[(u32, u32)]| -> Vec<Pair> {
        all.iter().map(|&(source, destination)| Pair { source, destination }).collect()
    };
    let one = judged(vec![all_to_one(0, &[2]), all_to_one(1, &[])]);
    let [one] = one.as_slice() else { panic!("{one:#?}") };
    assert_eq!(
        (&one.subject, &one.scope.pairs),
        (&Subject::Pair(pairs(&[(2, 0)])[0]), &pairs(&[(2, 0)]))
    );
    assert!(one.message.starts_with(
        "GPU 2 → GPU 0: bytes arrive wrong while other copies run; all to one, GPU 0, 2 beside"
    ));
    assert_eq!(
        (&one.evidence).into_iter().find(|(key, _)| *key == "beside").map(|(_, fact)| fact),
        Some(&Fact::Pairs(pairs(&[(1, 0), (3, 0)])))
    );
    // Several flows into one GPU have that GPU in common.
    let several = judged(vec![all_to_one(0, &[1, 2, 3])]);
    let [several] = several.as_slice() else { panic!("{several:#?}") };
    assert_eq!(several.scope.pairs, pairs(&[(1, 0), (2, 0), (3, 0)]));
    assert_eq!(several.subject, Subject::Gpu { index: 0 }, "{several:#?}");
    // Two flows that share nothing are two findings.
    let apart = judged(vec![all_to_one(0, &[1]), all_to_one(3, &[2])]);
    assert_eq!(
        apart.iter().map(|found| found.scope.pairs.clone()).collect::<Vec<_>>(),
        [pairs(&[(1, 0)]), pairs(&[(2, 3)])]
    );
    // Flows with the memory of the host have no pair.
    let mut host =
        pattern(Pattern::HostToAll, "", &(0..4).map(|gpu| (up(gpu), 13.3)).collect::<Vec<_>>());
    host.flows.iter_mut().for_each(|flow| flow.verified = Some(Verified::Ok));
    (host.flows[2].verified, host.verified) = (Some(Verified::Dropped), Verified::Dropped);
    let found = judged(vec![host]);
    let [found] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((&found.subject, &found.scope.gpus), (&Subject::Gpu { index: 2 }, &vec![2]));
    assert!(
        found.message.contains("GPU 2: bytes never arrive") && found.scope.pairs.is_empty(),
        "{}",
        found.message
    );
}

#[test]
fn what_another_program_disturbed_is_not_judged() {
    let machine = h200_vm(8);
    let mut load = into(3, [0, 1], 50.0);
    load.ending.disturbed = true;
    assert_eq!(findings(&machine, Some(&loaded(&machine, 0.88, vec![load]))), []);
}

#[test]
fn every_pattern_that_fails_is_told_with_its_own_reason() {
    let machine = h200_vm(4);
    let failed = |gpu: u32, from: [u32; 2], reason: &str| {
        let mut pattern = into(gpu, from, 199.0);
        pattern.forget();
        (pattern.ending.status, pattern.ending.reason) = (Status::Failed, Some(reason.into()));
        pattern
    };
    let patterns =
        vec![failed(0, [1, 2], "one"), failed(1, [2, 3], "another"), failed(2, [3, 0], "one")];
    let found = findings(&machine, Some(&loaded(&machine, 0.88, patterns)));
    let found = only(&found, "copy-failed", Severity::Error);
    let text = "Copies fail while several run at once; all to one, GPU 0 (GPU 1 → GPU 0, GPU 2 → GPU 0) and 1 other \
                pattern: one; all to one, GPU 1 (GPU 2 → GPU 1, GPU 3 → GPU 1): another";
    assert_eq!(found.message, text);
}

#[test]
fn an_uplink_is_named_by_one_finding() {
    let machine = two_sockets();
    let mut measurements = with_host(&machine, &[26.4; 4]);
    set(&mut measurements, 26.4, |_| true);
    let together: Vec<_> = measurements
        .host
        .iter()
        .cloned()
        .map(|copy| model::host::HostCopy {
            at_once: 4,
            achieved_gbps: Some(GbPerSecond(13.3)),
            ..copy
        })
        .collect();
    measurements.host.extend(together);
    let codes_of = |measurements: &Measurements| -> Vec<String> {
        let found = findings(&two_sockets(), Some(measurements));
        found.iter().map(|found| found.code.to_string()).collect()
    };
    let both = ["host-memory-saturates", "load-limited-by-design"];
    let named =
        |found: Vec<String>| both.map(|code| found.iter().filter(|found| *found == code).count());
    assert_eq!(named(codes_of(&measurements)), [1, 0]);
    let flows: Vec<_> = (0..4).map(|gpu| (up(gpu), 13.3)).collect();
    measurements.load = vec![pattern(Pattern::HostToAll, "", &flows)];
    assert_eq!(named(codes_of(&measurements)), [0, 1]);
}

#[test]
fn a_pattern_whose_bytes_could_not_be_checked_is_told() {
    let machine = h200_vm(4);
    let mut doubtful = into(0, [1, 2], 199.0);
    (doubtful.verified, doubtful.verification_detail) =
        (Verified::Inconclusive, Some("it saw 0 words".into()));
    let found = findings(&machine, Some(&loaded(&machine, 0.88, vec![doubtful])));
    let found = only(&found, "not-tested", Severity::Warning);
    assert!(
        found.message.contains("are not verified") && found.message.contains("it saw 0 words"),
        "{found:#?}"
    );
}

#[test]
fn what_is_left_out_for_a_pattern_that_failed_is_no_finding_of_its_own() {
    let machine = h200_vm(4);
    let mut failed = into(0, [1, 2], 199.0);
    failed.forget();
    (failed.ending.status, failed.ending.reason) = (Status::Failed, Some("error 719".into()));
    let all: Vec<_> = (1..4).map(|gpu| (pair(gpu, 0), 133.0)).collect();
    let mut more = pattern(Pattern::AllToOne, "GPU 0", &all);
    more.forget();
    (more.ending.status, more.ending.reason) =
        (Status::Skipped, Some("not run, since another went wrong".into()));
    let found = findings(&machine, Some(&loaded(&machine, 0.88, vec![failed, more])));
    only(&found, "copy-failed", Severity::Error);
}
