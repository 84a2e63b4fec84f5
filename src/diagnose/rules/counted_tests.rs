//! Tests of the rules on counters around known traffic.

use crate::testing::prelude::*;
use model::counted::{Counted, LinkShare};
use model::finding::{Finding, Severity, Subject};
use model::flow::Flow;
use model::load::{LoadPattern, Pattern};
use model::measurement::{Measurements, Status, Verified};
use model::placement::Pair;
use model::snapshot::Snapshot;
use model::units::{Bytes, GIB, GbPerSecond};

/// Returns a GPU that sent and received 18 GiB in a ring, with links that counted it evenly.
fn seen(gpu: u32) -> Counted {
    let mut seen = Counted::unread(gpu, Pattern::Ring, String::new(), None);
    (seen.sent_bytes, seen.received_bytes) = (Bytes(18 * GIB), Bytes(18 * GIB));
    (seen.nvlink_sent_bytes, seen.nvlink_received_bytes) =
        (Some(Bytes(18 * GIB)), Some(Bytes(18 * GIB)));
    (seen.pcie_sent_bytes, seen.pcie_received_bytes) = (Some(Bytes(1 << 20)), Some(Bytes(1 << 20)));
    let link = |link| LinkShare {
        link,
        sent_bytes: Some(Bytes(GIB)),
        received_bytes: Some(Bytes(GIB)),
        sent_percent: None,
        received_percent: None,
    };
    seen.links = (0..18).map(link).collect();
    seen
}

/// Returns a ring of all GPUs whose counters read these values.
fn ring(machine: &Snapshot, counted: Vec<Counted>) -> Measurements {
    let gpus = u32::try_from(machine.gpus.len()).unwrap();
    let flows: Vec<Flow> = (0..gpus)
        .map(|gpu| Flow::from(Pair { source: gpu, destination: (gpu + 1) % gpus }))
        .collect();
    let mut load =
        LoadPattern::without(Pattern::Ring, String::new(), &flows, Status::Measured, None);
    load.flows.iter_mut().for_each(|flow| flow.achieved_gbps = Some(GbPerSecond(390.0)));
    (load.achieved_gbps, load.verified) =
        (Some(GbPerSecond(390.0 * f64::from(gpus))), Verified::Ok);
    Measurements { load: vec![load], counted, ..measured(machine, 0.88) }
}

fn found(change: impl Fn(&mut Counted)) -> Vec<Finding> {
    let machine = h200_vm(4);
    let mut counted: Vec<Counted> = (0..4).map(seen).collect();
    change(&mut counted[2]);
    findings(&machine, Some(&ring(&machine, counted)))
}

#[test]
fn counts_that_agree_have_no_finding_and_neither_have_those_that_are_unknown() {
    assert_eq!(found(|_| {}), []);
    // Within 1%, as on healthy machines.
    assert_eq!(found(|seen| seen.nvlink_sent_bytes = Some(Bytes(18 * GIB + GIB / 8))), []);
    assert_eq!(found(|seen| (seen.nvlink_sent_bytes, seen.pcie_sent_bytes) = (None, None)), []);
    assert_eq!(
        found(
            |seen| *seen = Counted::unread(2, Pattern::Ring, String::new(), Some("refused".into()))
        ),
        []
    );
    assert_eq!(
        found(|seen| (seen.nvlink_sent_bytes, seen.disturbed) = (Some(Bytes(0)), true)),
        [],
        "another program was there"
    );
}

#[test]
fn traffic_that_took_pcie_is_an_error_of_its_gpu() {
    let found = found(|seen| {
        (seen.nvlink_sent_bytes, seen.pcie_sent_bytes) = (Some(Bytes(0)), Some(Bytes(17 * GIB)));
    });
    let found = only(&found, "traffic-over-pcie", Severity::Error);
    assert_eq!(found.subject, Subject::Gpu { index: 2 });
    assert!(
        found
            .message
            .contains("sent 18 GiB over PCIe although NVLink is up; its NVLinks counted 0%"),
        "{}",
        found.message
    );
}

#[test]
fn a_lack_that_wraps_may_hide_accuses_nobody() {
    // The ring of 4 x H200 in `full`, all of it over PCIe with 8% for packets: a counter of 32 bits shows 0.58 of 4.87
    // GB.
    let ring = 4_513_071_104_u64;
    let counts = |of_pcie: u64| {
        found(|seen| {
            (seen.sent_bytes, seen.nvlink_sent_bytes) = (Bytes(ring), Some(Bytes(0)));
            seen.pcie_sent_bytes = Some(Bytes(of_pcie));
        })
    };
    let shown = ring * 108 / 100 % (1 << 32);
    let unknown = counts(shown);
    let unknown = only(&unknown, "counters-disagree", Severity::Info);
    assert!(
        unknown.message.contains("whether PCIe carried the rest cannot be told"),
        "{}",
        unknown.message
    );
    // A counter of 64 bits shows all of it.
    only(&counts(ring * 108 / 100), "traffic-over-pcie", Severity::Error);
    // No number of wraps gives this value.
    let little = counts(1 << 20);
    let little = only(&little, "counters-disagree", Severity::Warning);
    assert!(little.message.contains("PCIe did not carry the rest"), "{}", little.message);
}

#[test]
fn counts_that_lack_bytes_disagree_and_more_than_was_copied_is_another_s() {
    let less = found(|seen| seen.nvlink_received_bytes = Some(Bytes(9 * GIB)));
    let less = only(&less, "counters-disagree", Severity::Warning);
    assert!(
        less.message.contains("counted 9 GiB of 18 GiB that it received (50%), less"),
        "{}",
        less.message
    );
    let more = found(|seen| seen.nvlink_sent_bytes = Some(Bytes(27 * GIB)));
    let more = only(&more, "counters-disagree", Severity::Info);
    assert!(more.message.contains("(150%), more than was copied"), "{}", more.message);
}

#[test]
fn a_link_that_carries_nothing_or_less_than_its_part_is_named() {
    let none = found(|seen| seen.links[5].sent_bytes = Some(Bytes(0)));
    let none = only(&none, "nvlink-share-uneven", Severity::Warning);
    assert_eq!(none.subject, Subject::Link { index: 2, link: 5 });
    assert!(none.message.contains("carries nothing, of 18 links"), "{}", none.message);
    let less = found(|seen| {
        [3, 4]
            .map(|link: usize| seen.links[link].received_bytes = Some(Bytes(GIB / 2)))
            .into_iter()
            .collect()
    });
    let less = only(&less, "nvlink-share-uneven", Severity::Warning);
    assert_eq!(less.subject, Subject::Gpu { index: 2 });
    assert!(less.message.contains("NVLink 3-4 of GPU 2"), "{}", less.message);
}
