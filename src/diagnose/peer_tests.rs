//! Tests of rules on traffic between GPUs: what they must find, and what they must not.

use super::testing::{
    cell, codes, exit, fact, findings, is, measured, of_no_known_model, only, touches, without,
};
use super::tests::deny;
use model::finding::{Severity, Subject};
use model::measurement::{Measurements, PeerBandwidth, Status, Verified};
use model::placement::{Engine, Pair, Path};
use model::reading::Reading;
use model::snapshot::{CommonAncestor, FabricState, P2pStatus, Snapshot};
use model::testing::{all_pairs, function_mut, h200_vm, nvlink_bridge, two_sockets};
use model::units::GbPerSecond;

const GPU_3: Subject = Subject::Gpu { index: 3 };

const fn pair(source: u32, destination: u32) -> Pair {
    Pair { source, destination }
}

fn scale(measurements: &mut Measurements, by: f64, which: impl Fn(&PeerBandwidth) -> bool) {
    for cell in measurements.peer.iter_mut().filter(|cell| which(cell)) {
        cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * by));
    }
}

/// Adds staged figures of every pair at this rate.
fn with_staged(measurements: &mut Measurements, gbps: f64) {
    let pairs: Vec<_> = measurements.peer.iter().map(|cell| cell.pair).collect();
    measurements.peer.extend(pairs.into_iter().map(|pair| cell(pair, Path::Staged, gbps)));
}

#[test]
fn what_scatters_or_has_no_like_is_no_outlier() {
    // Within the samples' own spread; or the spread is not known.
    let machine = of_no_known_model(h200_vm(4));
    for spread in [Some(8.0), None] {
        let mut measurements = measured(&machine, 0.88);
        scale(&mut measurements, 0.88, |cell| is(cell, 0, 2) || is(cell, 2, 0));
        measurements.peer.iter_mut().for_each(|cell| cell.spread_percent = spread);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
    // Fewer than three pairs alike: those of the two switches. Across sockets all are alike.
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    scale(&mut measurements, 0.89, |cell| (is(cell, 0, 1) || is(cell, 1, 0)) && touches(cell, 0));
    assert_eq!(findings(&machine, Some(&measurements)), []);
    // PCIe pairs of a virtual machine, whose routes are hidden.
    let mut machine = two_sockets();
    machine.host.virtual_machine = Reading::Known(true);
    let mut measurements = measured(&machine, 0.8);
    scale(&mut measurements, 0.8, |cell| cell.pair.source / 2 != cell.pair.destination / 2);
    assert_eq!(findings(&machine, Some(&measurements)), []);
}

#[test]
fn one_direction_that_is_slower_is_one_finding() {
    let machine = of_no_known_model(h200_vm(2));
    let mut measurements = measured(&machine, 0.9);
    scale(&mut measurements, 0.84, |cell| is(cell, 0, 1));
    let found = only(
        &findings(&machine, Some(&measurements)),
        "peer-bandwidth-asymmetric",
        Severity::Warning,
    );
    assert_eq!(found.subject, Subject::Pair(pair(0, 1)));
    assert!(
        found.message.contains("one way only, reach 340 GB/s, the other direction 405"),
        "{}",
        found.message
    );
    // Below the floor the pair is low, with the other direction beside it, and nothing else is reported.
    scale(&mut measurements, 0.5, |cell| is(cell, 0, 1));
    let found =
        only(&findings(&machine, Some(&measurements)), "peer-bandwidth-low", Severity::Error);
    assert_eq!(fact(&found, "other_direction_gbps"), 405.0);
    // A small difference is not reported.
    let mut measurements = measured(&machine, 0.9);
    scale(&mut measurements, 0.9, |cell| is(cell, 0, 1));
    assert_eq!(findings(&machine, Some(&measurements)), []);
}

#[test]
fn a_socket_crossing_that_is_slow_one_way_is_one_finding() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.8);
    scale(&mut measurements, 0.75, |cell| cell.pair.source < 2 && cell.pair.destination >= 2);
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["peer-bandwidth-asymmetric"], "{found:#?}");
    assert!(found[0].message.contains("from GPU 0 and GPU 1 (4 pairs)"), "{}", found[0].message);
}

#[test]
fn low_pairs_that_are_not_slower_than_staged_ones_stay() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    with_staged(&mut measurements, 12.0);
    scale(&mut measurements, 0.25, |cell| {
        cell.setup.path == Path::Direct && (is(cell, 0, 2) || is(cell, 2, 0))
    });
    scale(&mut measurements, 0.5, |cell| cell.setup.path == Path::Direct && is(cell, 1, 3));
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["direct-slower-than-staged", "peer-bandwidth-low"], "{found:#?}");
}

#[test]
fn staged_copies_are_judged_by_the_way_to_the_host() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    with_staged(&mut measurements, 2.5);
    let found = only(&findings(&machine, Some(&measurements)), "staged-slow", Severity::Warning);
    assert!(found.message.contains("between all GPUs"), "{}", found.message);
    // Denied pairs too; reaching what other machines reach is enough.
    let mut measurements = measured(&machine, 0.85);
    with_staged(&mut measurements, 7.0);
    assert_eq!(findings(&machine, Some(&measurements)), []);
    let machine = h200_vm(4);
    let mut measurements = measured(&machine, 0.88);
    with_staged(&mut measurements, 35.0);
    assert_eq!(findings(&machine, Some(&measurements)), []);
}

#[test]
fn samples_that_scatter_are_reported_and_usual_spread_is_not() {
    let machine = h200_vm(4);
    let mut measurements = measured(&machine, 0.88);
    measurements.peer.iter_mut().for_each(|cell| cell.spread_percent = Some(10.0));
    assert_eq!(findings(&machine, Some(&measurements)), []);
    measurements
        .peer
        .iter_mut()
        .filter(|cell| touches(cell, 3))
        .for_each(|cell| cell.spread_percent = Some(35.0));
    let found =
        only(&findings(&machine, Some(&measurements)), "unstable-measurement", Severity::Warning);
    assert_eq!(found.subject, GPU_3);
    // Too few samples prove nothing, and a low pair has its spread beside it.
    measurements.peer.iter_mut().for_each(|cell| cell.samples = 2);
    assert_eq!(findings(&machine, Some(&measurements)), []);
    measurements.peer.iter_mut().for_each(|cell| cell.samples = 5);
    scale(&mut measurements, 0.5, |cell| touches(cell, 3));
    only(&findings(&machine, Some(&measurements)), "peer-bandwidth-low", Severity::Error);
}

fn remove_links(machine: &mut Snapshot, gpu: usize, left: usize) {
    if let Reading::Known(links) = &mut machine.gpus[gpu].nvlinks {
        links.truncate(left);
    }
}

#[test]
fn missing_links_are_shown_by_siblings_and_remote_ends() {
    let mut machine = h200_vm(4);
    remove_links(&mut machine, 3, 16);
    let found =
        only(&without("gpus-mixed", findings(&machine, None)), "nvlink-missing", Severity::Error);
    assert_eq!(found.subject, GPU_3);
    assert!(
        found.message.contains("16 active NVLinks") && found.message.contains("has 18"),
        "{}",
        found.message
    );
    // With inactive links in the list the other rule reports it, and never both.
    if let Reading::Known(links) = &mut machine.gpus[3].nvlinks {
        links[0].active = Reading::Known(false);
    }
    assert_eq!(codes(&findings(&machine, None)), ["nvlink-inactive"]);
    // An equal number on all GPUs is by design, whatever the name; a link whose state is not known proves nothing.
    let mut narrow = h200_vm(4);
    (0..4).for_each(|gpu| remove_links(&mut narrow, gpu, 12));
    assert_eq!(findings(&narrow, None), []);
    if let Reading::Known(links) = &mut narrow.gpus[3].nvlinks {
        links[0].active = Reading::failed("timeout");
    }
    assert_eq!(findings(&narrow, None), []);

    // A bridge, one end of which lacks a link that the other has.
    let mut machine = nvlink_bridge();
    machine.gpus[1].name = Reading::Known("NVIDIA A40-other".into());
    remove_links(&mut machine, 1, 3);
    let found =
        only(&without("gpus-mixed", findings(&machine, None)), "nvlink-missing", Severity::Warning);
    assert_eq!(found.subject, Subject::Gpu { index: 1 });
}

fn set_fabric(
    machine: &mut Snapshot,
    gpus: std::ops::Range<usize>,
    change: impl Fn(&mut model::snapshot::Fabric),
) {
    for gpu in &mut machine.gpus[gpus] {
        if let Reading::Known(fabric) = &mut gpu.fabric {
            change(fabric);
        }
    }
}

#[test]
fn a_registration_in_progress_is_an_error_unless_the_machine_was_just_started() {
    let mut machine = h200_vm(4);
    set_fabric(&mut machine, 0..4, |fabric| fabric.state = FabricState::InProgress);
    let mut after = |up| {
        machine.host.up_seconds = up;
        findings(&machine, None)
    };
    for (up, says) in [
        (Reading::unsupported(), "in progress"),
        (Reading::Known(2 * 60 * 60), "120 minutes after"),
        (Reading::Known(15 * 60), "15 minutes after"),
    ] {
        let found = only(&after(up), "fabric-not-ready", Severity::Error);
        assert!(found.message.contains(says), "{}", found.message);
    }
    let started = after(Reading::Known(5 * 60));
    assert_eq!(codes(&started), ["fabric-not-ready", "not-tested"]);
    assert!(started.iter().all(|found| found.severity == Severity::Warning));
}

/// Returns two boards of this name on one switch, with these answers.
fn two_boards(name: &str, nvml: P2pStatus) -> Snapshot {
    let mut machine = two_sockets();
    machine.gpus.truncate(2);
    machine.pci.retain(|function| function.address.bus < 0x80);
    for gpu in &mut machine.gpus {
        gpu.name = Reading::Known(name.into());
    }
    machine.pairs = all_pairs(2, Some(CommonAncestor::SingleSwitch), P2pStatus::NotSupported);
    for pair in &mut machine.pairs {
        (pair.p2p_read, pair.p2p_write) = (Reading::Known(nvml), Reading::Known(nvml));
    }
    machine
}

#[test]
fn the_cause_of_missing_access_is_worked_out() {
    let (geforce, board) = ("NVIDIA GeForce RTX 4090", "NVIDIA L40S");
    for (name, nvml, virtual_machine, severity, word) in [
        (
            geforce,
            P2pStatus::NotSupported,
            false,
            Severity::Info,
            "GeForce boards of this generation",
        ),
        (
            geforce,
            P2pStatus::ChipsetNotSupported,
            false,
            Severity::Info,
            "GeForce boards of this generation",
        ),
        (geforce, P2pStatus::Ok, false, Severity::Warning, "NVML grants it and CUDA refuses"),
        (
            "NVIDIA GeForce GTX 1080",
            P2pStatus::ChipsetNotSupported,
            false,
            Severity::Warning,
            "this chipset",
        ),
        (
            "NVIDIA RTX A6000",
            P2pStatus::NotSupported,
            false,
            Severity::Warning,
            "no similar pair has it",
        ),
        (board, P2pStatus::ChipsetNotSupported, false, Severity::Warning, "this chipset"),
        (
            board,
            P2pStatus::ChipsetNotSupported,
            true,
            Severity::Warning,
            "the chipset that it emulates",
        ),
        (board, P2pStatus::TopologyNotSupported, false, Severity::Warning, "too far apart"),
        (
            board,
            P2pStatus::GpuNotSupported,
            false,
            Severity::Warning,
            "do not support it with each other",
        ),
        (board, P2pStatus::DisabledByRegkey, true, Severity::Warning, "registry key"),
    ] {
        let mut machine = two_boards(name, nvml);
        machine.host.virtual_machine = Reading::Known(virtual_machine);
        let mut measurements = measured(&machine, 0.85);
        deny(&mut measurements, |_| true);
        let found = only(
            &without("iommu-translating", findings(&machine, Some(&measurements))),
            "peer-access-missing",
            severity,
        );
        assert!(found.message.contains(word), "{name} {nvml}: {}", found.message);
        assert_eq!(exit(&[found], Some(&measurements)), 0);
    }
    // The architecture outranks the name.
    let mut machine = two_boards(geforce, P2pStatus::ChipsetNotSupported);
    machine.gpus.iter_mut().for_each(|gpu| gpu.architecture = Reading::Known("Pascal".into()));
    let found = only(
        &without("iommu-translating", findings(&machine, None)),
        "peer-access-missing",
        Severity::Warning,
    );
    assert!(found.message.contains("this chipset"), "{}", found.message);

    // If the answers leave the cause open, IOMMU and ACS are suspects if the facts show them.
    let mut machine = two_boards(board, P2pStatus::NotSupported);
    machine.host.iommu_translating = Reading::Known(true);
    let found = only(
        &without("iommu-translating", findings(&machine, None)),
        "peer-access-missing",
        Severity::Warning,
    );
    assert!(found.suspects.iter().any(|suspect| suspect.id == "iommu"), "{found:#?}");
}

#[test]
fn each_cause_of_missing_access_is_one_finding() {
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, None, P2pStatus::NotSupported);
    let mut measurements = measured(&machine, 0.85);
    // Across sockets TNS, and MIG on GPU 0.
    for pair in machine.pairs.iter_mut().filter(|pair| pair.source / 2 != pair.destination / 2) {
        pair.p2p_write = Reading::Known(P2pStatus::TopologyNotSupported);
    }
    machine.gpus[0].mig = Reading::Known(true);
    deny(&mut measurements, |pair| {
        pair.source / 2 != pair.destination / 2 || pair.source == 0 || pair.destination == 0
    });
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["peer-access-missing"; 2], "{found:#?}");
    assert!(found.iter().any(|finding| finding.message.contains("MIG")));
    assert!(found.iter().any(|finding| finding.message.contains("too far apart")));
}

fn spoil(
    measurements: &mut Measurements,
    verified: Verified,
    which: impl Fn(&PeerBandwidth) -> bool,
) {
    for cell in measurements.peer.iter_mut().filter(|cell| which(cell)) {
        cell.verified = verified;
        cell.ending.status = Status::Failed;
        cell.achieved_gbps = None;
    }
}

fn with_kernels(measurements: &mut Measurements) {
    let kernels: Vec<_> = measurements
        .peer
        .iter()
        .map(|cell| PeerBandwidth { setup: cell.setup.with_engine(Engine::Kernel), ..cell.clone() })
        .collect();
    measurements.peer.extend(kernels);
}

#[test]
fn dropped_bytes_everywhere_are_the_machines_setting() {
    for (iommu, redirect, word) in [
        (true, false, "IOMMU translates"),
        (false, true, "ACS redirects peer requests at 0000:82:01.0"),
    ] {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(iommu);
        function_mut(&mut machine, "0000:82:01.0").acs_redirect = Reading::Known(redirect);
        let mut measurements = measured(&machine, 0.85);
        with_kernels(&mut measurements);
        // Most pairs, and corrupt bytes with a known setting.
        spoil(&mut measurements, Verified::Dropped, |cell| !is(cell, 0, 1) && !is(cell, 1, 0));
        spoil(&mut measurements, Verified::Corrupt, |cell| is(cell, 0, 3));
        let found = only(
            &without(
                "acs-redirect",
                without("iommu-translating", findings(&machine, Some(&measurements))),
            ),
            "peer-access-broken",
            Severity::Error,
        );
        assert_eq!(found.subject, Subject::Machine);
        assert!(
            found.message.contains(word) && found.message.contains("10 of 12"),
            "{}",
            found.message
        );
    }
    // No setting is known: bytes dropped everywhere are still one finding, with suspects; corrupt bytes are not.
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    spoil(&mut measurements, Verified::Dropped, |_| true);
    let found = only(
        &without(
            "acs-redirect",
            without("iommu-translating", findings(&machine, Some(&measurements))),
        ),
        "peer-access-broken",
        Severity::Error,
    );
    assert!(!found.suspects.is_empty());
    spoil(&mut measurements, Verified::Corrupt, |_| true);
    only(
        &without(
            "acs-redirect",
            without("iommu-translating", findings(&machine, Some(&measurements))),
        ),
        "data-wrong",
        Severity::Error,
    );
    // Neither setting affects NVLink pairs.
    let mut machine = h200_vm(4);
    machine.host.iommu_translating = Reading::Known(true);
    let mut measurements = measured(&machine, 0.88);
    spoil(&mut measurements, Verified::Dropped, |_| true);
    only(
        &without(
            "acs-redirect",
            without("iommu-translating", findings(&machine, Some(&measurements))),
        ),
        "data-wrong",
        Severity::Error,
    );
}

#[test]
fn an_engine_that_alone_loses_bytes_is_named() {
    for (engine, word) in [
        (Engine::Kernel, "by kernels; what the copy engine moves arrives"),
        (Engine::Copy, "by the copy engine; what kernels move arrives"),
    ] {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(true);
        let mut measurements = measured(&machine, 0.85);
        with_kernels(&mut measurements);
        spoil(&mut measurements, Verified::Dropped, |cell| cell.setup.engine == engine);
        let found = only(
            &without("iommu-translating", findings(&machine, Some(&measurements))),
            "data-wrong",
            Severity::Error,
        );
        assert!(found.message.contains(word), "{}", found.message);
    }
}

#[test]
fn unknown_facts_give_no_finding() {
    // No rate in theory and no class: there is nothing to compare with.
    let mut machine = two_sockets();
    for at in 0..4 {
        machine.gpus[at].pci = Reading::unsupported();
        machine.gpus[at].pcie_width = Reading::unsupported();
        machine.gpus[at].pcie_width_max = Reading::unsupported();
    }
    machine.pci.clear();
    let mut measurements = measured(&machine, 0.85);
    scale(&mut measurements, 0.1, |cell| is(cell, 0, 1));
    let found = findings(&machine, Some(&measurements));
    assert!(codes(&found).iter().all(|code| *code == "peer-bandwidth-asymmetric"), "{found:#?}");
}
