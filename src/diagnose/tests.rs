use super::testing::{cell, exit, fact, findings, is, measured, only, touches};
use super::{RULES, exit_code, explain, verdict};
use crate::model::finding::{Severity, Subject};
use crate::model::measurement::{
    CudaDevice, DriverFacts, LinkUnderLoad, Measurements, Overlap, PeerBandwidth, Status, Verified,
};
use crate::model::placement::{HostMode, Pair, Path, Placement, Side, StreamKind};
use crate::model::reading::{Reading, Unknown};
use crate::model::report::Conclusion;
use crate::model::snapshot::{FabricState, Gpu, P2pStatus, Snapshot};
use crate::model::testing::{
    all_pairs, empty, function_mut, h200_vm, nvlink_bridge, pci, two_sockets, two_sockets_with_narrow_gpu,
};
use crate::model::units::{Bytes, GIB, GbPerSecond};

/// Codes of all rules ever. Append; never change or remove one: reports and scripts have them.
const CODES: &[&str] = &[
    "peer-bandwidth-low",
    "peer-data-wrong",
    "peer-access-missing",
    "pcie-narrow",
    "nvlink-inactive",
    "peer-copy-hung",
    "peer-copy-failed",
    "not-tested",
    "nothing-measured",
    "placement-serialises",
    "gpu-unreachable",
    "peer-copy-uneven",
    "expectation-unmet",
    "expectation-unchecked",
    "fell-since-baseline",
    "changed-since-baseline",
    "baseline-not-compared",
    "peer-bandwidth-outlier",
    "peer-bandwidth-asymmetric",
    "direct-slower-than-staged",
    "staged-slow",
    "unstable-measurement",
    "nvlink-fewer-than-siblings",
    "fabric-not-ready",
    "peer-access-one-way",
    "peer-access-broken",
    "nvlink-errors-rose",
    "pcie-narrow-by-design",
    "pcie-upstream-bottleneck",
    "pcie-link-changed",
    "pcie-errors-rose",
    "iommu-translating",
    "acs-redirect",
    "gpu-throttled",
    "gpu-busy",
    "gpu-memory-errors",
    "persistence-off",
    "mig-enabled",
    "compute-mode-restricted",
    "gpus-mixed",
    "firmware-mixed",
    "driver-mismatch",
    "devices-hidden",
];

#[test]
fn codes_are_unique_kebab_case_and_append_only() {
    let codes: Vec<_> = RULES.iter().map(|rule| &*rule.id).collect();
    assert_eq!(codes, CODES);
    let unique: std::collections::BTreeSet<_> = codes.iter().collect();
    assert_eq!(unique.len(), codes.len());
    for code in codes {
        assert!(code.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{code}");
        assert!(!code.starts_with('-') && !code.ends_with('-') && !code.contains("--"), "{code}");
    }
}

#[test]
fn every_rule_has_a_whole_manual_page() {
    for rule in RULES {
        let page = explain(&rule.id).unwrap();
        for part in ["What it means", "How it is detected", "Why it matters", "What to do", "Sources"] {
            assert!(page.contains(&format!("# {part}\n")), "{}: {part}", rule.id);
        }
        assert!(!page.contains("//!") && !page.contains("\nuse "), "{page}");
    }
    assert_eq!(explain("no-such-rule"), None);
}

/// `PEERSCOPE_WRITE_DOCS=1 cargo test --lib docs_rules` writes them anew.
#[test]
fn docs_rules_hold_what_the_rules_say() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules");
    let files = super::manual::files();
    if std::env::var_os("PEERSCOPE_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in &files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let mut there: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut expected: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "run PEERSCOPE_WRITE_DOCS=1 cargo test --lib docs_rules");
    for (name, text) in files {
        let written = std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(written, text, "docs/rules/{name}: run PEERSCOPE_WRITE_DOCS=1 cargo test --lib docs_rules");
    }
}

#[test]
fn every_parameter_is_named_by_its_unit() {
    for rule in RULES {
        for parameter in rule.parameters {
            let units = ["_percent", "_us", "_s", "_gbps", "_count", "_mib"];
            assert!(units.iter().any(|unit| parameter.name.ends_with(unit)), "{}", parameter.name);
            assert!(parameter.default.is_finite());
        }
    }
}

const GPU_3: Subject = Subject::Gpu { index: 3 };

#[test]
fn healthy_machines_have_no_findings() {
    for (machine, share) in [(h200_vm(8), 0.88), (two_sockets(), 0.82), (nvlink_bridge(), 0.9)] {
        let measurements = measured(&machine, share);
        let found = findings(&machine, Some(&measurements));
        assert_eq!(found, [], "{found:#?}");
        let verdict = verdict(&found, Some(&measurements), Severity::Info);
        assert_eq!((verdict.verdict, verdict.exit_code, verdict.untested), (Conclusion::Healthy, 0, 0));
        assert_eq!(findings(&machine, None), []);
    }
}

#[test]
fn a_slow_pair_and_a_slow_gpu_are_told_apart() {
    let machine = h200_vm(8);
    let mut measurements = measured(&machine, 0.88);
    for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 0, 5)) {
        cell.achieved_gbps = Some(GbPerSecond(200.0));
    }
    let found = only(&findings(&machine, Some(&measurements)), "peer-bandwidth-low", Severity::Error);
    assert_eq!(found.subject, Subject::Pair(Pair { source: 0, destination: 5 }));
    assert_eq!(exit(std::slice::from_ref(&found), Some(&measurements)), exit_code::FAULT);

    for cell in measurements.peer.iter_mut().filter(|cell| touches(cell, 3)) {
        cell.achieved_gbps = Some(GbPerSecond(200.0));
    }
    let both = findings(&machine, Some(&measurements));
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].subject, GPU_3);
    assert!(
        both[0].message.contains("GPU 3 (0000:00:09.0)") && both[0].message.contains("52% of the 387"),
        "{}",
        both[0].message
    );
}

#[test]
fn the_floor_depends_on_the_class_of_the_route() {
    let machine = two_sockets();
    let measurements = measured(&machine, 0.6);
    let found = findings(&machine, Some(&measurements));
    let pairs: Vec<_> = found.iter().map(|finding| finding.subject.clone()).collect();
    let pair = |source, destination| Subject::Pair(Pair { source, destination });
    assert_eq!(pairs, [pair(0, 1), pair(2, 3)], "pairs across sockets may reach 60%");
}

#[test]
fn wrong_bytes_are_an_error_with_suspects() {
    let mut machine = two_sockets();
    machine.host.iommu_translating = Reading::Known(true);
    function_mut(&mut machine, "0000:82:01.0").acs_redirect = Reading::Known(true);
    let mut measurements = measured(&machine, 0.85);
    for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 2, 3)) {
        cell.verified = Verified::Dropped;
        cell.verification_detail = Some("the poison is still there at offset 0".into());
        cell.status = Status::Failed;
        cell.achieved_gbps = None;
    }
    // What may be the cause is no second finding.
    let found = only(&findings(&machine, Some(&measurements)), "peer-data-wrong", Severity::Error);
    assert_eq!(found.evidence.effects().len(), 2, "{found:#?}");
    for text in ["never arrived", "copy engine, direct", "offset 0", "IOMMU", "0000:82:01.0"] {
        assert!(found.message.contains(text), "{text}: {}", found.message);
    }
}

pub(super) fn deny(measurements: &mut Measurements, denied: impl Fn(Pair) -> bool) {
    for access in &mut measurements.driver.peer_access {
        access.possible = Some(!denied(access.pair));
    }
    for one in measurements.peer.iter_mut().filter(|one| denied(one.pair)) {
        *one = cell(one.pair, Path::Staged, 8.0);
    }
}

#[test]
fn one_pair_without_access_among_many_is_an_error() {
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, None, P2pStatus::NotSupported);
    let mut measurements = measured(&machine, 0.85);
    deny(&mut measurements, |pair| pair.source.min(pair.destination) == 0 && pair.source.max(pair.destination) == 2);
    let found = only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Error);
    assert_eq!(found.subject, Subject::Pair(Pair { source: 0, destination: 2 }));
    assert!(
        found.message.contains("NVML says OK (supported), CUDA no; staged copies reach 8.0 GB/s"),
        "{}",
        found.message
    );
    let verdict = verdict(&[found], Some(&measurements), Severity::Error);
    assert_eq!((verdict.exit_code, verdict.untested), (1, 0), "the staged figure tests the pair");

    deny(&mut measurements, |pair| pair.source == 3 || pair.destination == 3);
    assert_eq!(only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Error).subject, GPU_3);
}

#[test]
fn no_access_anywhere_or_across_sockets_only_is_one_warning() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    deny(&mut measurements, |pair| pair.source / 2 != pair.destination / 2);
    let found = only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Warning);
    assert_eq!(found.subject, Subject::Machine);
    deny(&mut measurements, |_| true);
    let found = only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Warning);
    assert!(found.message.contains("any pair of GPUs"), "{}", found.message);
    assert_eq!(exit(&[found], Some(&measurements)), exit_code::HEALTHY);

    // Without CUDA, NVML's word counts.
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, None, P2pStatus::NotSupported);
    machine.pairs[0].p2p_write = Reading::Known(P2pStatus::ChipsetNotSupported);
    let found = only(&findings(&machine, None), "peer-access-one-way", Severity::Error);
    assert!(found.message.contains("CUDA was not asked"), "{}", found.message);
}

#[test]
fn a_narrow_link_is_named_with_its_slot_and_its_cost() {
    let machine = two_sockets_with_narrow_gpu();
    let found = only(&findings(&machine, None), "pcie-narrow", Severity::Error);
    assert_eq!(found.subject, GPU_3);
    for text in ["GPU 3 (0000:84:00.0, slot 4)", "Gen4 x4", "Gen4 x16", "7.9 instead of 31.5", "4.0 times slower"] {
        assert!(found.message.contains(text), "{text}: {}", found.message);
    }
    assert_eq!(fact(&found, "width_lanes"), 4);

    // A port that can do no more is no fault.
    let mut by_design = machine;
    function_mut(&mut by_design, "0000:82:01.0").width_max = Reading::Known(4);
    only(&findings(&by_design, None), "pcie-narrow-by-design", Severity::Info);
}

#[test]
fn a_narrow_uplink_is_one_finding_for_all_who_share_it() {
    let mut machine = two_sockets();
    function_mut(&mut machine, "0000:01:00.0").generation = Reading::Known(3);
    let found = only(&findings(&machine, None), "pcie-narrow", Severity::Error);
    assert_eq!(found.subject, Subject::PcieLink { address: pci("0000:01:00.0") });
    assert!(found.location.contains("0000:01:00.0, below 0000:00:01.0"), "{}", found.location);
    assert!(found.message.contains("GPU 0 and GPU 1 share"), "{}", found.message);
}

#[test]
fn a_generation_counts_only_under_load() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    let link = |generation, readings| LinkUnderLoad {
        index: 1,
        readings,
        generation: Some(generation),
        width: Some([16, 16]),
        replays_added: None,
        pcie_errors_before: None,
        pcie_errors_after: None,
        nvlink_errors: None,
        throttle_reasons: Vec::new(),
        reason: None,
        ..LinkUnderLoad::default()
    };
    for quiet in [link([1, 4], 40), link([1, 1], 2), link([0, 0], 40)] {
        measurements.links = vec![quiet];
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
    measurements.links = vec![link([1, 1], 40)];
    let found = only(&findings(&machine, Some(&measurements)), "pcie-narrow", Severity::Error);
    assert!(found.message.contains("Gen1 x16 under load"), "{}", found.message);
}

pub(super) fn with_links_down(machine: &mut Snapshot, gpus: &[usize], links: std::ops::Range<usize>) {
    for gpu in gpus {
        if let Reading::Known(all) = &mut machine.gpus[*gpu].nvlinks {
            all[links.clone()].iter_mut().for_each(|link| link.active = Reading::Known(false));
        }
    }
}

#[test]
fn inactive_nvlinks_are_judged_by_gpus_of_the_same_model() {
    let mut machine = h200_vm(4);
    with_links_down(&mut machine, &[3], 4..6);
    let found = only(&findings(&machine, None), "nvlink-inactive", Severity::Error);
    assert_eq!(found.subject, GPU_3);
    assert!(found.message.contains("4-5") && found.message.contains("16 active"), "{}", found.message);

    with_links_down(&mut machine, &[0, 1, 2], 4..6);
    only(&findings(&machine, None), "nvlink-inactive", Severity::Info);

    // All links of an NVSwitch machine down, whatever its like shows.
    with_links_down(&mut machine, &[0, 1, 2, 3], 0..18);
    assert_eq!(only(&findings(&machine, None), "nvlink-inactive", Severity::Error).subject, Subject::Machine);
    for gpu in &mut machine.gpus {
        if let Reading::Known(fabric) = &mut gpu.fabric {
            fabric.state = FabricState::NotSupported;
        }
    }
    only(&findings(&machine, None), "nvlink-inactive", Severity::Error);
    machine.pairs = all_pairs(4, None, P2pStatus::NotSupported);
    only(&findings(&machine, None), "nvlink-inactive", Severity::Info);
}

#[test]
fn a_bridge_that_two_of_four_gpus_lack_is_a_warning() {
    let mut machine = nvlink_bridge();
    for gpu in 2..4 {
        machine.gpus[gpu].nvlinks = machine.gpus[0].nvlinks.clone();
    }
    with_links_down(&mut machine, &[2, 3], 0..4);
    let found = findings(&machine, None);
    assert_eq!(found.iter().map(|finding| finding.severity).collect::<Vec<_>>(), [Severity::Warning]);
}

#[test]
fn copies_that_hang_or_fail_are_named_with_their_reason() {
    let machine = h200_vm(4);
    for (status, code) in [(Status::Hung, "peer-copy-hung"), (Status::Failed, "peer-copy-failed")] {
        let mut measurements = measured(&machine, 0.88);
        for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 1, 2)) {
            cell.status = status;
            cell.achieved_gbps = None;
            cell.reason = Some("CUDA error 719".into());
        }
        let found = findings(&machine, Some(&measurements));
        assert!(only(&found, code, Severity::Error).message.contains("from GPU 1 (0000:00:07.0) to GPU 2"));
        let verdict = verdict(&found, Some(&measurements), Severity::Error);
        assert_eq!((verdict.exit_code, verdict.tested, verdict.untested), (1, 11, 1));
    }
}

#[test]
fn less_than_what_was_asked_for_is_inconclusive() {
    let machine = h200_vm(4);
    let mut measurements = measured(&machine, 0.88);
    for cell in measurements.peer.iter_mut().filter(|cell| touches(cell, 3)) {
        cell.status = Status::Skipped;
        cell.achieved_gbps = None;
        cell.reason = Some("GPU 3 is in exclusive mode".into());
    }
    let found = findings(&machine, Some(&measurements));
    let message = only(&found, "not-tested", Severity::Warning).message;
    assert!(message.contains("6 of 12") && message.contains("exclusive mode (6)"), "{message}");
    for fail_on in [Severity::Error, Severity::Warning, Severity::Info] {
        let verdict = verdict(&found, Some(&measurements), fail_on);
        assert_eq!((verdict.verdict, verdict.exit_code), (Conclusion::Inconclusive, exit_code::INCOMPLETE));
    }

    // A found fault outranks; an interruption ends as one, and says what was found by then.
    measurements.peer[0].verified = Verified::Corrupt;
    let found = findings(&machine, Some(&measurements));
    assert_eq!(exit(&found, Some(&measurements)), exit_code::FAULT);
    measurements.interrupted = true;
    let verdict = verdict(&found, Some(&measurements), Severity::Error);
    assert_eq!((verdict.verdict, verdict.exit_code), (Conclusion::Faulty, exit_code::INTERRUPTED));
}

#[test]
fn a_figure_whose_bytes_are_in_doubt_and_a_gpu_without_cells_are_untested() {
    let machine = h200_vm(3);
    let mut measurements = measured(&machine, 0.88);
    measurements.peer.retain(|cell| !touches(cell, 2));
    measurements.peer[0].verified = Verified::Inconclusive;
    let failure = Some("hidden by CUDA_VISIBLE_DEVICES".into());
    measurements.driver.devices = vec![CudaDevice { index: 2, failure, ..CudaDevice::default() }];
    let found = findings(&machine, Some(&measurements));
    let message = only(&found, "not-tested", Severity::Warning).message;
    assert!(message.contains("could not be told") && message.contains("GPU 2 and its pairs: hidden"), "{message}");
    let verdict = verdict(&found, Some(&measurements), Severity::Error);
    assert_eq!((verdict.tested, verdict.untested, verdict.exit_code), (2, 1, 3));
}

#[test]
fn nothing_measured_is_never_healthy() {
    let machine = h200_vm(8);
    let driver = DriverFacts {
        failure: Some("cuInit: CUDA error 802".into()),
        failure_code: Some(802),
        ..DriverFacts::default()
    };
    let measurements = Measurements { driver, ..Measurements::default() };
    let found = findings(&machine, Some(&measurements));
    let finding = only(&found, "nothing-measured", Severity::Warning);
    assert!(finding.message.contains("802") && finding.next_step.contains("fabric manager"));
    assert_eq!(exit(&found, Some(&measurements)), exit_code::INCOMPLETE);

    let alone = h200_vm(1);
    let found = findings(&alone, Some(&Measurements::default()));
    assert!(only(&found, "nothing-measured", Severity::Warning).message.contains("only one GPU"));

    let mut nothing = empty();
    nothing.problems.push("NVML: driver not loaded".into());
    let found = findings(&nothing, None);
    assert!(only(&found, "nothing-measured", Severity::Warning).message.contains("driver not loaded"));
    assert_eq!(exit(&found, None), exit_code::INCOMPLETE);
}

#[test]
fn a_placement_that_should_overlap_and_does_not_is_a_warning() {
    let machine = h200_vm(2);
    let mut measurements = measured(&machine, 0.88);
    let overlap = |placement, share| Overlap {
        pair: Pair { source: 0, destination: 1 },
        placement,
        compute_on: Side::Source,
        bytes: Bytes(GIB),
        overlap_percent: Some(share),
        host_blocked_us: None,
        copy_us: None,
        kernel_us: None,
        samples: 3,
        status: Status::Measured,
        reason: None,
    };
    let serial = Placement { source: StreamKind::Default, destination: StreamKind::Side, host: HostMode::NonBlocking };
    measurements.overlap = vec![overlap(serial, 0.0), overlap(Placement::REFERENCE, 99.0)];
    assert_eq!(findings(&machine, Some(&measurements)), []);
    measurements.overlap.extend([overlap(Placement::REFERENCE, 1.0), overlap(Placement::REFERENCE, 0.0)]);
    let found = only(&findings(&machine, Some(&measurements)), "placement-serialises", Severity::Warning);
    assert!(
        found.message.contains("side/side/non-blocking, kernel on the source: 2 of 3 pairs, down to 0%"),
        "{}",
        found.message
    );
}

#[test]
fn an_error_about_peer_access_is_a_fault_and_no_denial() {
    let machine = h200_vm(3);
    let why = || Some("cuCtxEnablePeerAccess: CUDA error (919)".to_owned());
    // CUDA cannot answer the question; or says yes, and enabling fails.
    for possible in [None, Some(true)] {
        let mut measurements = measured(&machine, 0.88);
        let only_staged = |cell: &mut PeerBandwidth| cell.path = Path::Staged;
        measurements.peer.iter_mut().for_each(only_staged);
        for access in &mut measurements.driver.peer_access {
            (access.possible, access.failure) = (possible, why());
        }
        let found = findings(&machine, Some(&measurements));
        let finding = only(&found, "peer-access-missing", Severity::Error);
        assert!(finding.message.contains("919"), "{}", finding.message);
        assert!(!finding.message.contains("other pairs like it"), "{}", finding.message);
        assert_eq!(exit(&found, Some(&measurements)), exit_code::FAULT);
    }
}

#[test]
fn a_generation_is_judged_only_where_copies_used_the_link() {
    let machine = h200_vm(3);
    let mut measurements = measured(&machine, 0.88);
    let idle = |index| LinkUnderLoad {
        index,
        readings: 10,
        generation: Some([1, 1]),
        width: Some([16, 16]),
        replays_added: Some(0),
        pcie_errors_before: None,
        pcie_errors_after: None,
        nvlink_errors: None,
        throttle_reasons: Vec::new(),
        reason: None,
        ..LinkUnderLoad::default()
    };
    measurements.links = (0..3).map(idle).collect();
    assert_eq!(findings(&machine, Some(&measurements)), [], "NVLink copies leave the PCIe link idle");
    measurements.peer.push(cell(Pair { source: 0, destination: 1 }, Path::Staged, 3.0));
    let found = findings(&machine, Some(&measurements));
    let subjects: Vec<_> = found.iter().map(|finding| (&*finding.code, finding.subject.to_string())).collect();
    assert_eq!(subjects, [("pcie-narrow", "GPU 0".to_owned()), ("pcie-narrow", "GPU 1".to_owned())]);
}

#[test]
fn a_way_of_copying_that_is_far_slower_than_the_reference_is_told() {
    let machine = h200_vm(3);
    let mut measurements = measured(&machine, 0.88);
    let reference = measurements.peer.clone();
    let slower = |cell: &PeerBandwidth, share: f64| PeerBandwidth {
        placement: Placement { source: StreamKind::Default, ..cell.placement },
        achieved_gbps: cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * share)),
        ..cell.clone()
    };
    measurements.peer.extend(reference.iter().map(|cell| slower(cell, 0.97)));
    assert_eq!(findings(&machine, Some(&measurements)), []);
    measurements.peer.push(slower(&reference[0], 0.5));
    let found = only(&findings(&machine, Some(&measurements)), "peer-copy-uneven", Severity::Warning);
    assert!(found.message.contains("default/side/non-blocking: 1 of 6 pairs, down to 198.0 GB/s, 50%"), "{found:?}");
}

#[test]
fn a_gpu_that_does_not_answer_is_an_error() {
    let mut machine = h200_vm(4);
    let name = machine.gpus[3].name.clone();
    machine.gpus[3] = Gpu { name, ..Gpu::unread(3, &Unknown::Failed("GPU is lost".into())) };
    let found = only(&findings(&machine, None), "gpu-unreachable", Severity::Error);
    assert_eq!(found.subject, GPU_3);
    assert!(found.message.contains("GPU is lost"));
    assert_eq!(exit(&[found], None), exit_code::FAULT);
}
