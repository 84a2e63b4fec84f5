//! Tests which effects are attributed to a cause, and which remain separate findings.

use crate::config;
use crate::testing::{
    cell, codes, findings, is, measured, only, set, subjects, touches, with_settings,
};
use model::finding::{Finding, Severity};
use model::measurement::{CudaDevice, LinkUnderLoad, Measurements, NvLinkErrorsAdded};
use model::placement::{Pair, Path};
use model::reading::Unknown;
use model::snapshot::{Gpu, Snapshot};
use model::testing::{function_mut, generation, h200_vm, lanes, nvlink_bridge, two_sockets};
use topology::{build, with_cuda};

fn at_gen1(index: u32) -> LinkUnderLoad {
    LinkUnderLoad {
        index,
        readings: 40,
        generation: Some([1, 1]),
        width: Some([16, 16]),
        ..LinkUnderLoad::default()
    }
}

#[test]
fn a_rate_that_the_narrow_link_leaves_is_attributed_to_it() {
    // The link stays at Gen1 under load (4.0 GB/s): theory cannot know, and the rates fit it.
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    measurements.links = vec![at_gen1(3)];
    set(&mut measurements, 3.3, |cell| touches(cell, 3));
    let found = only(&findings(&machine, Some(&measurements)), "pcie-narrow", Severity::Error);
    assert_eq!(found.evidence.effects()[0].rule, "peer-bandwidth-low", "{found:#?}");
}

#[test]
fn a_rate_far_below_what_the_narrow_link_leaves_stays_a_finding() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    measurements.links = vec![at_gen1(3)];
    set(&mut measurements, 1.0, |cell| touches(cell, 3));
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["pcie-narrow", "peer-bandwidth-low"], "{found:#?}");
}

#[test]
fn an_effect_with_a_pair_elsewhere_stays() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    measurements.links = vec![at_gen1(3)];
    set(&mut measurements, 3.3, |cell| touches(cell, 3));
    set(&mut measurements, 3.3, |cell| is(cell, 0, 1));
    let found = findings(&machine, Some(&measurements));
    assert_eq!(
        subjects(&found),
        [("pcie-narrow", "GPU 3".into()), ("peer-bandwidth-low", "GPU 0 → GPU 1".into())]
    );
}

#[test]
fn a_narrow_slot_does_not_explain_slow_nvlinks() {
    let mut machine = nvlink_bridge();
    for address in ["0000:03:00.0", "0000:02:00.0"] {
        function_mut(&mut machine, address).width = lanes(4);
    }
    machine.gpus[0].pcie_width = lanes(4);
    let mut measurements = measured(&machine, 0.9);
    set(&mut measurements, 20.0, |cell| is(cell, 0, 1) || is(cell, 1, 0));
    let found = findings(&machine, Some(&measurements));
    assert!(
        codes(&found).contains(&"pcie-narrow") && codes(&found).contains(&"peer-bandwidth-low"),
        "{found:#?}"
    );
}

#[test]
fn copies_between_two_gpus_below_a_narrow_uplink_do_not_pass_it() {
    let mut machine = two_sockets();
    function_mut(&mut machine, "0000:01:00.0").generation = generation(3);
    let mut measurements = measured(&machine, 0.85);
    set(&mut measurements, 13.0, |cell| is(cell, 0, 1) || is(cell, 1, 0));
    let found = findings(&machine, Some(&measurements));
    assert!(
        codes(&found).contains(&"pcie-narrow") && codes(&found).contains(&"peer-bandwidth-low"),
        "{found:#?}"
    );
}

#[test]
fn staged_copies_over_a_narrow_link_are_attributed_to_it() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    let gen1 = |pair: Pair| pair.source == 3 || pair.destination == 3;
    set(&mut measurements, 3.3, |cell| touches(cell, 3));
    let staged: Vec<_> = measurements
        .peer
        .iter()
        .map(|one| cell(one.pair, Path::Staged, if gen1(one.pair) { 3.0 } else { 12.0 }))
        .collect();
    measurements.peer.extend(staged);
    measurements.links = vec![at_gen1(3)];
    let found = only(&findings(&machine, Some(&measurements)), "pcie-narrow", Severity::Error);
    assert_eq!(found.evidence.effects().len(), 2, "{found:#?}");
}

#[test]
fn what_a_lost_gpu_leaves_untested_is_attributed_to_it_and_nothing_else() {
    let mut machine = h200_vm(4);
    let name = machine.gpus[3].name.clone();
    machine.gpus[3] = Gpu { name, ..Gpu::unread(3, &Unknown::Failed("GPU is lost".into())) };
    let mut measurements = measured(&machine, 0.88);
    measurements.peer.retain(|cell| !touches(cell, 3));
    let lost = |index: u32, failure: &str| CudaDevice {
        index,
        failure: Some(failure.into()),
        ..CudaDevice::default()
    };
    measurements.driver.devices = vec![lost(3, "lost")];
    only(&findings(&machine, Some(&measurements)), "gpu-unreachable", Severity::Error);
    // Another GPU that could not be used has another reason.
    measurements.peer.retain(|cell| !touches(cell, 2));
    measurements.driver.devices.push(lost(2, "in exclusive mode"));
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["gpu-unreachable", "not-tested"]);
}

fn nvlink_errors(index: u32, errors: &[NvLinkErrorsAdded]) -> LinkUnderLoad {
    LinkUnderLoad {
        generation: Some([5, 5]),
        nvlink_errors: Some(errors.to_vec()),
        ..at_gen1(index)
    }
}

#[test]
fn errors_of_nvlinks_are_judged_with_the_rate() {
    let machine = h200_vm(4);
    let none = NvLinkErrorsAdded {
        link: 7,
        crc: 0,
        replay: 0,
        recovery: 0,
        ..NvLinkErrorsAdded::default()
    };
    let mut measurements = measured(&machine, 0.88);
    measurements.links = vec![nvlink_errors(0, &[]), nvlink_errors(3, &[none])];
    assert_eq!(findings(&machine, Some(&measurements)), []);
    // Replays while every rate is fine: congestion may cause that.
    measurements.links = vec![nvlink_errors(3, &[NvLinkErrorsAdded { replay: 4, ..none }])];
    only(&findings(&machine, Some(&measurements)), "nvlink-errors-rose", Severity::Info);
    measurements.links = vec![nvlink_errors(3, &[NvLinkErrorsAdded { crc: 900, ..none }])];
    let found =
        only(&findings(&machine, Some(&measurements)), "nvlink-errors-rose", Severity::Warning);
    assert!(
        found.message.contains("NVLink 7") && found.message.contains("900 CRC"),
        "{}",
        found.message
    );
    // With slow copies of that GPU they are one error.
    set(&mut measurements, 200.0, |cell| touches(cell, 3));
    let found =
        only(&findings(&machine, Some(&measurements)), "nvlink-errors-rose", Severity::Error);
    assert_eq!(found.evidence.effects()[0].rule, "peer-bandwidth-low", "{found:#?}");
    // A slow pair of other GPUs remains.
    set(&mut measurements, 200.0, |cell| is(cell, 0, 1));
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["peer-bandwidth-low", "nvlink-errors-rose"], "{found:#?}");
}

#[test]
fn slow_staging_is_attributed_to_slow_direct_copies_of_the_same_pairs_alone() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    let staged: Vec<_> = measurements
        .peer
        .iter()
        .map(|one| cell(one.pair, Path::Staged, if touches(one, 3) { 1.5 } else { 12.0 }))
        .collect();
    measurements.peer.extend(staged);
    // More than the Gen1 that the idle link shows could carry.
    set(&mut measurements, 9.0, |cell| touches(cell, 3) && cell.setup.path == Path::Direct);
    let found =
        only(&findings(&machine, Some(&measurements)), "peer-bandwidth-low", Severity::Error);
    assert_eq!(found.evidence.effects()[0].rule, "staged-slow", "{found:#?}");
    // Staged copies of another pair are slow as well: that has another cause.
    set(&mut measurements, 1.5, |cell| is(cell, 0, 1) && cell.setup.path == Path::Staged);
    let found = findings(&machine, Some(&measurements));
    assert!(
        codes(&found).contains(&"peer-bandwidth-low") && codes(&found).contains(&"staged-slow"),
        "{found:#?}"
    );
}

#[test]
fn what_a_lost_copy_left_untested_is_attributed_to_it_and_nothing_else() {
    use model::measurement::Status;
    let machine = h200_vm(4);
    let mut measurements = measured(&machine, 0.88);
    for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 1, 2) || is(cell, 2, 1)) {
        (cell.ending.status, cell.achieved_gbps) = (Status::Skipped, None);
        cell.ending.reason = Some("an earlier copy of this pair hung".into());
    }
    measurements
        .peer
        .iter_mut()
        .filter(|cell| is(cell, 1, 2))
        .for_each(|cell| cell.ending.status = Status::Hung);
    only(&findings(&machine, Some(&measurements)), "peer-copy-hung", Severity::Error);
    for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 0, 3)) {
        (cell.ending.status, cell.achieved_gbps) = (Status::Skipped, None);
    }
    let found = findings(&machine, Some(&measurements));
    assert_eq!(codes(&found), ["peer-copy-hung", "not-tested"]);
}

/// Returns the findings of all rules with this configuration.
fn configured(machine: &Snapshot, measurements: &Measurements, config: &str) -> Vec<Finding> {
    let topology = with_cuda(build(machine), &measurements.driver);
    with_settings(machine, &topology, Some(measurements), &config::parse(config).unwrap())
}

#[test]
fn a_rule_that_is_switched_off_neither_reports_nor_explains() {
    let machine = two_sockets();
    let mut measurements = measured(&machine, 0.85);
    measurements.links = vec![at_gen1(3)];
    set(&mut measurements, 3.3, |cell| touches(cell, 3));
    only(&configured(&machine, &measurements, ""), "pcie-narrow", Severity::Error);
    let found = configured(&machine, &measurements, "[severity]\npcie-narrow = \"off\"");
    only(&found, "peer-bandwidth-low", Severity::Error);
    let found = configured(&machine, &measurements, "[severity]\npeer-bandwidth-low = \"off\"");
    assert!(only(&found, "pcie-narrow", Severity::Error).evidence.effects().is_empty());
}

#[test]
fn a_severity_that_the_user_set_holds_before_an_effect_raises_its_cause() {
    let machine = h200_vm(4);
    let mut measurements = measured(&machine, 0.88);
    measurements.links = vec![nvlink_errors(
        3,
        &[NvLinkErrorsAdded {
            link: 7,
            crc: 900,
            replay: 0,
            recovery: 0,
            ..NvLinkErrorsAdded::default()
        }],
    )];
    set(&mut measurements, 200.0, |cell| touches(cell, 3));
    for (config, severity) in [
        ("", Severity::Error),
        ("[severity]\npeer-bandwidth-low = \"info\"", Severity::Warning),
        ("[severity]\nnvlink-errors-rose = \"info\"", Severity::Info),
    ] {
        let found =
            only(&configured(&machine, &measurements, config), "nvlink-errors-rose", severity);
        assert_eq!(found.evidence.effects().len(), 1, "{config}: {found:#?}");
    }
}

#[test]
fn a_cause_on_gpu_1_does_not_explain_gpu_10() {
    let machine = h200_vm(12);
    let mut measurements = measured(&machine, 0.88);
    let throttle_reasons = vec!["hw-thermal".to_owned()];
    measurements.links =
        vec![LinkUnderLoad { index: 1, throttle_reasons, ..LinkUnderLoad::default() }];
    set(&mut measurements, 200.0, |cell| touches(cell, 10));
    let found = findings(&machine, Some(&measurements));
    // GPU 1 has one slow pair, that with GPU 10.
    let both = [("gpu-throttled", "GPU 1".to_owned()), ("peer-bandwidth-low", "GPU 10".to_owned())];
    assert_eq!(subjects(&found), both, "{found:#?}");
    measurements.links[0].index = 10;
    assert_eq!(
        subjects(&findings(&machine, Some(&measurements))),
        [("gpu-throttled", "GPU 10".to_owned())]
    );
}
