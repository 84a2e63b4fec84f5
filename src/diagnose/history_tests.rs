//! Tests of the comparison with earlier reports.

use super::history::{changes, is_conclusive, is_same_machine};
use super::settings::Settings;
use super::testing::recorded;
use super::{Evidence, judge, verdict};
use model::finding::Severity;
use model::measurement::{Measurements, Status};
use model::placement::{Pair, Path};
use model::reading::Reading;
use model::report::{Changed, Report};
use model::snapshot::{RemappedRows, Xid};
use model::testing::h200_vm;
use model::units::GbPerSecond;

/// Returns the recorded report with a change, judged.
fn judged(change: impl FnOnce(&mut Report)) -> Report {
    let mut report = recorded();
    change(&mut report);
    let settings = Settings::default();
    report.findings = judge(&Evidence::of(&report, &settings));
    report.verdict = verdict(&report.findings, report.measurements.as_ref(), Severity::Error);
    report
}

fn measured(report: &mut Report) -> &mut Measurements {
    report.measurements.as_mut().unwrap()
}

/// A part that is to be replaced: a fact.
fn worn(report: &mut Report) {
    let rows = RemappedRows { corrected: 0, uncorrected: 9, pending: false, failed: true };
    report.snapshot.gpus[1].remapped_rows = Reading::Known(rows);
}

/// A pair that copies at this share of its rate.
fn slow(report: &mut Report, share: f64) {
    let direct = measured(report).peer.iter_mut().filter(|cell| cell.setup.path == Path::Direct);
    for cell in direct.filter(|cell| cell.pair == Pair { source: 0, destination: 1 }) {
        cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * share));
    }
}

fn between(last: &Report, new: &Report) -> Vec<(Changed, String)> {
    since(last, new, Vec::new())
}

fn since(last: &Report, new: &Report, earlier: Vec<Report>) -> Vec<(Changed, String)> {
    let all = changes(new, (&Settings::default(), None), last, earlier.into_iter());
    all.into_iter().map(|change| (change.what, change.text)).collect()
}

fn kinds(all: &[(Changed, String)]) -> Vec<Changed> {
    all.iter().map(|(what, _)| *what).collect()
}

#[test]
fn the_same_again_is_no_change() {
    for fault in [worn, |report: &mut Report| slow(report, 0.3), |_: &mut Report| {}] {
        let report = judged(fault);
        assert_eq!(between(&report, &report), []);
    }
}

#[test]
fn a_fault_that_comes_is_new_and_one_that_goes_is_fixed() {
    let (good, bad) = (judged(|_| {}), judged(worn));
    let [(Changed::New, came)] = &between(&good, &bad)[..] else { panic!("not one change") };
    assert_eq!(between(&bad, &good), [(Changed::Fixed, came.clone())]);
    assert!(came.contains(" of GPU 1 ("), "{came}");
    let slow = judged(|report| slow(report, 0.3));
    let twice = |report: &Report| vec![report.clone(), report.clone()];
    let [came, went] = [since(&good, &slow, twice(&good)), since(&slow, &good, twice(&slow))];
    assert_eq!(kinds(&came), [Changed::New, Changed::Figure], "{came:?}");
    assert_eq!(kinds(&went), [Changed::Fixed, Changed::Figure], "{went:?}");
    assert!(came[1].1.contains("one way only: 374 GB/s for 3 runs, 112 now"), "{came:?}");
}

#[test]
fn what_was_not_tested_again_is_neither_fixed_nor_new() {
    let bad = judged(|report| slow(report, 0.3));
    let skipped = |report: &mut Report| {
        for cell in &mut measured(report).peer {
            cell.achieved_gbps = None;
            cell.ending.status = Status::Skipped;
        }
    };
    // A fault elsewhere makes such a run conclusive all the same.
    let untested = judged(|report| {
        skipped(report);
        worn(report);
    });
    assert!(is_conclusive(&untested));
    assert!(!kinds(&between(&bad, &untested)).contains(&Changed::Fixed));
    assert_eq!(kinds(&between(&untested, &bad)), [Changed::Fixed]);
    // Nor was it looked at if the whole table is missing.
    let left_out = judged(|report| {
        measured(report).peer.clear();
        worn(report);
    });
    assert_eq!(kinds(&between(&bad, &left_out)), [Changed::New]);
}

#[test]
fn a_run_without_a_conclusion_fixes_nothing() {
    let bad = judged(worn);
    let unfinished: [fn(&mut Measurements); 3] = [
        |measured| measured.interrupted = true,
        |measured| measured.cut_off = true,
        |measured| measured.peer[0].ending.status = Status::Skipped,
    ];
    for make in unfinished {
        let new = judged(|report| {
            make(measured(report));
            measured(report).peer[0].achieved_gbps = None;
        });
        assert!(!is_conclusive(&new));
        assert_eq!(between(&bad, &new), [], "{:?}", new.verdict);
    }
}

#[test]
fn a_fact_that_is_unknown_today_fixes_nothing() {
    let unknown = judged(|report| {
        let denied = Reading::unsupported();
        report.snapshot.gpus[1].remapped_rows = denied;
    });
    assert_eq!(between(&judged(worn), &unknown), []);
    assert_eq!(between(&unknown, &judged(worn)), []);
}

#[test]
fn a_new_start_is_named_and_repairs_nothing_that_it_only_forgets() {
    let with_xid = judged(|report| {
        let pci = report.snapshot.gpus[0].pci.get().unwrap();
        let text = "GPU has fallen off the bus".into();
        let xid = Xid { pci, code: 79, text, times: 1, seconds_since_boot: Some(9) };
        report.snapshot.host.xids = Reading::Known(vec![xid]);
        report.snapshot.host.boot_id = Reading::Known("a".into());
    });
    let after = judged(|report| {
        report.snapshot.host.xids = Reading::Known(Vec::new());
        report.snapshot.host.boot_id = Reading::Known("b".into());
    });
    assert!(with_xid.findings.iter().any(|found| found.severity >= Severity::Warning));
    let started = (Changed::Machine, "The machine was started again".to_owned());
    assert_eq!(between(&with_xid, &after), [started]);
}

#[test]
fn parts_and_versions_are_named() {
    let old = judged(|report| {
        report.snapshot.host.kernel_version = Reading::Known("1.2".into());
        let gpu = &mut report.snapshot.gpus[1];
        (gpu.uuid, gpu.serial) = (Reading::Known("GPU-x".into()), Reading::Known("A".into()));
    });
    let new = judged(|report| report.snapshot.gpus[1].serial = Reading::Known("B".into()));
    let all = between(&old, &new);
    assert_eq!(kinds(&all), [Changed::Machine; 2], "{all:?}");
    assert!(all[0].1.ends_with(" was replaced (serial A, now B)"), "{all:?}");
    assert!(all[1].1.starts_with("kernel ") && all[1].1.ends_with(", was 1.2"), "{all:?}");
}

#[test]
fn a_level_is_counted_over_the_runs_that_had_it() {
    let at = |share| judged(|report| slow(report, share));
    let without = judged(|report| measured(report).peer.clear());
    // The newest first: one has no such figure, and the fourth had another level.
    let earlier = vec![at(0.995), without, at(1.0), at(0.9), at(1.0)];
    let all = since(&at(1.0), &at(0.93), earlier);
    assert_eq!(kinds(&all), [Changed::Figure], "{all:?}");
    assert!(all[0].1.starts_with("Copies ") && all[0].1.contains(" for 3 runs, "), "{all:?}");
    assert_eq!(between(&at(1.0), &at(0.99)), []);
    // Two runs are no level: figures of a guest's host scatter from run to run.
    assert_eq!(since(&at(1.0), &at(0.93), vec![at(1.0), at(0.9)]), []);
}

#[test]
fn findings_are_not_compared_when_gpus_have_other_numbers() {
    let bad = judged(worn);
    let renumbered = judged(|report| {
        let gpus = &mut report.snapshot.gpus;
        gpus.iter_mut().for_each(|gpu| gpu.index = 1 - gpu.index);
        gpus.reverse();
    });
    let all = between(&bad, &renumbered);
    assert!(!kinds(&all).contains(&Changed::Fixed), "{all:?}");
}

#[test]
fn a_machine_is_known_by_its_gpus() {
    let machine = |uuids: [&str; 2]| {
        let mut machine = h200_vm(2);
        for (gpu, uuid) in machine.gpus.iter_mut().zip(uuids) {
            gpu.uuid = match uuid {
                "" => Reading::unsupported(),
                uuid => Reading::Known(uuid.to_owned()),
            };
        }
        machine.host.hostname = Reading::Known("n1".into());
        machine
    };
    let same = |one, other| is_same_machine(&machine(one), &machine(other));
    assert!(same(["a", "b"], ["c", "b"]), "one was replaced");
    assert!(!same(["a", "b"], ["c", "d"]), "a copy of the disk");
    assert!(same(["", ""], ["", ""]), "the same places");
    assert!(!same(["a", "b"], ["", ""]), "nothing shows it");
    let mut renamed = machine(["", ""]);
    renamed.host.hostname = Reading::Known("n2".into());
    assert!(!is_same_machine(&machine(["", ""]), &renamed));
    renamed.host.hostname = Reading::unsupported();
    assert!(!is_same_machine(&renamed, &renamed), "nothing shows it");
}
