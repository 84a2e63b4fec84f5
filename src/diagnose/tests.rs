use std::collections::BTreeSet;

use super::testing::{cell, exit, findings, is, measured, only, set, touches};
use super::verdict::exit_code;
use super::{RULES, explain, verdict};
use model::finding::{Severity, Subject};
use model::measurement::{
    CudaDevice, LinkUnderLoad, Measurements, PeerBandwidth, Status, Verified,
};
use model::placement::{HostMode, Pair, Path, Placement, StreamKind};
use model::reading::Reading;
use model::snapshot::{P2pStatus, Snapshot};
use model::testing::{all_pairs, empty, function_mut, h200_vm, overlap, pci, two_sockets};

#[test]
fn codes_are_unique_kebab_case_and_append_only() {
    let codes: Vec<_> = RULES.iter().map(|rule| &*rule.id).collect();
    let unique: std::collections::BTreeSet<_> = codes.iter().collect();
    assert_eq!(unique.len(), codes.len());
    for code in &codes {
        assert!(code.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{code}");
        assert!(!code.starts_with('-') && !code.ends_with('-') && !code.contains("--"), "{code}");
    }
    // The index is written from the rules in their order, so its previous entries stay at its head.
    let index = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules/README.md");
    let index = std::fs::read_to_string(index).unwrap();
    let known: Vec<_> =
        index.lines().filter_map(|line| line.strip_prefix("| [")?.split_once(']')).collect();
    let known: Vec<_> = known.iter().map(|(code, _)| *code).collect();
    assert!(
        known.len() > 40 && codes.starts_with(&known),
        "reports and scripts have these codes: {known:?}"
    );
}

#[test]
fn every_rule_has_a_whole_and_short_manual_page() {
    for rule in RULES {
        let page = explain(&rule.id).unwrap();
        let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        let wanted = ["What it means", "What to do", "How it is detected", "Sources"];
        let rest = sections.strip_prefix(&wanted);
        assert!(matches!(rest, Some([] | ["Parameters"])), "{}: {sections:?}", rule.id);
        // Short enough to be read: one line of the index, and a page.
        assert!(rule.summary().split_whitespace().count() <= 15, "{}", rule.summary());
        let words = rule.page().split_whitespace().count();
        assert!(words <= 300, "{}: {words} words", rule.id);
        // The page ends where the code begins.
        assert!(
            !page.contains("//!")
                && !page.contains("\nuse model::")
                && !page.contains("pub const RULE"),
            "{page}"
        );
    }
    assert_eq!(explain("no-such-rule"), None);
}

/// A row of tests/machines/advice.toml, or a test in the rule's file, compares the advice of a rule with the facts.
#[test]
fn the_advice_of_every_rule_is_tested() {
    let rows: toml::Table =
        toml::from_str(include_str!("../../tests/machines/advice.toml")).unwrap();
    let rows = rows["row"].as_array().unwrap();
    let of_cases: BTreeSet<&str> = rows.iter().filter_map(|row| row["rule"].as_str()).collect();
    for rule in RULES {
        // A long call is broken over several lines.
        let source: String = rule.source.split_whitespace().collect();
        let tested = of_cases.contains(&*rule.id) || source.contains("assert_advice(&RULE,");
        assert!(
            tested,
            "{} has neither a row in tests/machines/advice.toml nor an `assert_advice` in its file",
            rule.id
        );
    }
    let all: BTreeSet<&str> = RULES.iter().map(|rule| &*rule.id).collect();
    let unknown: Vec<_> = of_cases.difference(&all).collect();
    assert!(unknown.is_empty(), "no such rules: {unknown:?}");
}

/// `PEERSCOPE_WRITE_DOCS=1 cargo test --lib docs_rules` writes the files again.
#[test]
fn docs_rules_match_the_rules() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules");
    let files = super::manual::pages::files();
    if std::env::var_os("PEERSCOPE_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in &files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let mut there: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "docs/rules has other files: scripts/goldens writes missing ones");
    for (name, text) in files {
        let written = std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(written, text, "docs/rules/{name} is not up to date: scripts/goldens writes it");
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

#[test]
fn the_floor_depends_on_the_class_of_the_route() {
    let machine = two_sockets();
    let measurements = measured(&machine, 0.6);
    let found =
        only(&findings(&machine, Some(&measurements)), "peer-bandwidth-low", Severity::Error);
    // All copies below one switch are slow: one change.
    assert_eq!(found.subject, Subject::Machine);
    let twos: BTreeSet<_> = found.scope.pairs.iter().map(|pair| pair.unordered()).collect();
    let wanted = BTreeSet::from([(0, 1), (2, 3)]);
    assert_eq!(twos, wanted, "pairs across sockets may reach 60%");
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
        cell.ending.status = Status::Failed;
        cell.achieved_gbps = None;
    }
    // The possible causes are not findings of their own.
    let found = only(&findings(&machine, Some(&measurements)), "data-wrong", Severity::Error);
    assert_eq!(found.evidence.effects().len(), 2, "{found:#?}");
    for text in ["never arrive", "copy engine, direct", "offset 0"] {
        assert!(found.message.contains(text), "{text}: {}", found.message);
    }
    let suspects: Vec<_> = found.suspects.iter().map(|suspect| &*suspect.id).collect();
    assert!(suspects.starts_with(&["iommu", "acs"]), "{suspects:?}");
    assert_eq!(found.suspects[1].steps[0].addresses, [pci("0000:82:01.0")]);
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
fn peer_access_missing_across_sockets_or_everywhere_is_one_warning() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    deny(&mut measurements, |pair| pair.source / 2 != pair.destination / 2);
    let found =
        only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Warning);
    assert_eq!(found.subject, Subject::Machine);
    deny(&mut measurements, |_| true);
    let found =
        only(&findings(&machine, Some(&measurements)), "peer-access-missing", Severity::Warning);
    assert!(found.message.contains("any pair of GPUs"), "{}", found.message);
    assert_eq!(exit(&[found], Some(&measurements)), exit_code::HEALTHY);

    // Without CUDA, NVML's answer counts.
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, None, P2pStatus::NotSupported);
    machine.pairs[0].p2p_write = Reading::Known(P2pStatus::ChipsetNotSupported);
    let found = only(&findings(&machine, None), "peer-access-missing", Severity::Error);
    // A source that was not asked says nothing.
    assert!(!found.message.contains("CUDA"), "{}", found.message);
}

#[test]
fn a_pcie_generation_counts_only_under_load() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    let link = |generation, readings| LinkUnderLoad {
        index: 1,
        readings,
        generation: Some(generation),
        width: Some([16, 16]),
        ..LinkUnderLoad::default()
    };
    for quiet in [link([1, 4], 40), link([1, 1], 2), link([0, 0], 40)] {
        measurements.links = vec![quiet];
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
    // Copies at the full rate refute later readings of the link.
    measurements.links = vec![link([1, 1], 40)];
    assert_eq!(findings(&machine, Some(&measurements)), []);
    crate::testing::set(&mut measurements, 3.3, |cell| cell.pair.touches(1));
    let found = only(&findings(&machine, Some(&measurements)), "pcie-narrow", Severity::Error);
    assert!(found.message.contains("Gen1 x16 of Gen4 x16 under load"), "{}", found.message);
}

#[test]
fn staged_copies_that_are_slow_with_one_gpu_only_show_the_generation_of_its_link() {
    // GPU 1's link reads Gen1 at rest, and the run was over before it was read under load.
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    deny(&mut measurements, |_| true);
    let narrow = |measurements: &Measurements| {
        let found = findings(&machine, Some(measurements));
        found.into_iter().find(|found| found.code == "pcie-narrow").map(|found| found.subject)
    };
    crate::testing::set(&mut measurements, 12.0, |_| true);
    assert_eq!(narrow(&measurements), None, "nothing is slow");
    crate::testing::set(&mut measurements, 2.0, |cell| cell.pair.touches(1));
    assert_eq!(narrow(&measurements), Some(Subject::Gpu { index: 1 }));
    // If all of them are slow, no link is the cause.
    crate::testing::set(&mut measurements, 2.0, |_| true);
    assert_eq!(narrow(&measurements), None);
}

pub(super) fn with_links_down(
    machine: &mut Snapshot,
    gpus: &[usize],
    links: std::ops::Range<usize>,
) {
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
    with_links_down(&mut machine, &[0, 1, 2], 4..6);
    only(&findings(&machine, None), "nvlink-inactive", Severity::Info);
    // NVSwitches connect all 18 links of this model, which only a guest may not see.
    let mut host = machine.clone();
    host.host.virtual_machine = Reading::Known(false);
    let says = |machine: &Snapshot, words: &str| {
        let all = findings(machine, None);
        let found = only(&all, "nvlink-inactive", Severity::Error);
        assert!(found.message.contains(words), "{}", found.message);
        found.subject.clone()
    };
    let all_short = "16 of 18 NVLinks up; NVLinks 4-5 are not";
    assert_eq!(says(&host, all_short), Subject::Machine);
    // Links that are not listed at all, and a single GPU.
    for gpu in &mut host.gpus {
        if let Reading::Known(links) = &mut gpu.nvlinks {
            links.retain(|link| link.active.get() == Some(true));
        }
    }
    assert_eq!(says(&host, all_short), Subject::Machine);
    host.gpus.truncate(1);
    assert_eq!(says(&host, "16 of 18 NVLinks"), Subject::Gpu { index: 0 });
    // A model that was made with as many, and one that is not known.
    for name in ["NVIDIA H800", "NVIDIA XYZ-SXM9"] {
        host.gpus[0].name = Reading::Known(name.into());
        let all = findings(&host, None);
        assert!(all.iter().all(|found| found.code != "nvlink-inactive"), "{all:#?}");
    }
}

#[test]
fn unverified_figures_and_gpus_without_cells_are_untested() {
    let machine = h200_vm(3);
    let mut measurements = measured(&machine, 0.88);
    measurements.peer.retain(|cell| !touches(cell, 2));
    measurements.peer[0].verified = Verified::Inconclusive;
    let failure = Some("hidden by CUDA_VISIBLE_DEVICES".into());
    measurements.driver.devices = vec![CudaDevice { index: 2, failure, ..CudaDevice::default() }];
    let found = findings(&machine, Some(&measurements));
    let message = only(&found, "not-tested", Severity::Warning).message;
    for part in ["it is not known whether their bytes arrived", "GPU 2 and its pairs: hidden"] {
        assert!(message.contains(part), "{message}");
    }
    let verdict = verdict(&found, Some(&measurements), Severity::Error);
    assert_eq!((verdict.tested, verdict.untested, verdict.exit_code), (2, 1, 3));
}

#[test]
fn nothing_measured_is_never_healthy() {
    let alone = h200_vm(1);
    let found = findings(&alone, Some(&Measurements::default()));
    assert!(only(&found, "nothing-measured", Severity::Warning).message.contains("only one GPU"));

    let mut nothing = empty();
    nothing.problems.push("NVML: driver not loaded".into());
    let found = findings(&nothing, None);
    assert!(
        only(&found, "nothing-measured", Severity::Warning).message.contains("driver not loaded")
    );
    assert_eq!(exit(&found, None), exit_code::INCOMPLETE);
}

#[test]
fn a_placement_that_should_overlap_and_does_not_is_a_warning() {
    let machine = h200_vm(2);
    let mut measurements = measured(&machine, 0.88);
    let serial = Placement {
        source: StreamKind::Default,
        destination: StreamKind::Side,
        host: HostMode::NonBlocking,
    };
    measurements.overlap = vec![overlap(serial, 0.0), overlap(Placement::REFERENCE, 99.0)];
    assert_eq!(findings(&machine, Some(&measurements)), []);
    measurements
        .overlap
        .extend([overlap(Placement::REFERENCE, 1.0), overlap(Placement::REFERENCE, 0.0)]);
    let found =
        only(&findings(&machine, Some(&measurements)), "placement-serialises", Severity::Warning);
    assert!(
        found
            .message
            .contains("side/side/non-blocking, kernel on the source: 2 of 3 pairs, down to 0%"),
        "{}",
        found.message
    );
}

#[test]
fn an_error_of_a_call_about_peer_access_is_a_fault() {
    let machine = h200_vm(3);
    let why = || Some("cuCtxEnablePeerAccess: CUDA error (919)".to_owned());
    // CUDA does not answer if access is possible, or answers yes and then enabling fails.
    for possible in [None, Some(true)] {
        let mut measurements = measured(&machine, 0.88);
        let only_staged = |cell: &mut PeerBandwidth| cell.setup.path = Path::Staged;
        measurements.peer.iter_mut().for_each(only_staged);
        set(&mut measurements, 37.0, |_| true);
        for access in &mut measurements.driver.peer_access {
            (access.possible, access.failure) = (possible, why());
        }
        let found = findings(&machine, Some(&measurements));
        let finding = only(&found, "peer-access-missing", Severity::Error);
        assert!(finding.message.contains("919"), "{}", finding.message);
        assert!(!finding.message.contains("similar pairs"), "{}", finding.message);
        assert_eq!(exit(&found, Some(&measurements)), exit_code::FAULT);
    }
}

#[test]
fn a_pcie_generation_is_judged_only_where_copies_used_the_link() {
    let machine = h200_vm(3);
    let mut measurements = measured(&machine, 0.88);
    let idle = |index| LinkUnderLoad {
        index,
        readings: 10,
        generation: Some([1, 1]),
        width: Some([16, 16]),
        ..LinkUnderLoad::default()
    };
    measurements.links = (0..3).map(idle).collect();
    assert_eq!(
        findings(&machine, Some(&measurements)),
        [],
        "NVLink copies leave the PCIe link idle"
    );
    measurements.peer.push(cell(Pair { source: 0, destination: 1 }, Path::Staged, 3.0));
    let found = findings(&machine, Some(&measurements));
    let subjects: Vec<_> =
        found.iter().map(|finding| (&*finding.code, finding.subject.to_string())).collect();
    assert_eq!(
        subjects,
        [("pcie-narrow", "GPU 0".to_owned()), ("pcie-narrow", "GPU 1".to_owned())]
    );
}

#[test]
fn a_link_whose_generation_rose_is_not_blamed_for_slow_copies() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.84);
    measurements.peer.retain(|cell| cell.pair.source > 1 && cell.pair.destination > 1);
    // The rate of Gen1, which both links have at rest. Two readings are too few to prove that a link never rose.
    set(&mut measurements, 3.3, |_| true);
    let read = |index, most| LinkUnderLoad {
        index,
        readings: 2,
        generation: Some([1, most]),
        width: Some([16, 16]),
        ..LinkUnderLoad::default()
    };
    for (most, wanted) in [(1, &[2, 3][..]), (4, &[3])] {
        measurements.links = vec![read(2, most), read(3, 1)];
        let found = findings(&machine, Some(&measurements));
        let subjects: Vec<_> =
            found.iter().map(|finding| (&*finding.code, finding.subject.clone())).collect();
        let wanted: Vec<_> =
            wanted.iter().map(|&index| ("pcie-narrow", Subject::Gpu { index })).collect();
        assert_eq!(subjects, wanted);
    }
}
