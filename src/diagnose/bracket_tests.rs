//! Tests of the judgement on a job: only what its time added counts.

use super::*;
use crate::rules::fell_since_baseline;
use crate::testing::prelude::*;
use model::bracket::{Bracket, GpuBracket};
use model::finding::{Severity, Subject};
use model::measurement::{LinkUnderLoad, NvLinkErrorsAdded};
use model::report::{SCHEMA, Timing, Tool, Verdict};
use model::request::Request;
use model::snapshot::Snapshot;

fn quiet(index: u32) -> LinkUnderLoad {
    LinkUnderLoad {
        index,
        readings: 2,
        replays_added: Some(0),
        ecc_uncorrected_added: Some(0),
        nvlink_errors: Some(Vec::new()),
        ..LinkUnderLoad::default()
    }
}

/// Returns the report on a job between two states of a machine, in which nothing was counted.
pub(crate) fn report(before: &Snapshot, after: &Snapshot) -> Report {
    let gpus = || after.gpus.iter().map(|gpu| gpu.index);
    Report {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at: "2026-01-01T00:00:00Z".into(),
        machine: "live".into(),
        request: Request::default(),
        read_from: None,
        snapshot: after.clone(),
        topology: topology::build(after),
        measurements: None,
        bracket: Some(Box::new(Bracket {
            job: Some("4711".into()),
            command: None,
            exit_code: None,
            signal: None,
            seconds: 3600.0,
            reading_seconds: [0.05; 2],
            before: before.clone(),
            not_comparable: Vec::new(),
            gpus: gpus().map(|index| GpuBracket { index, ..GpuBracket::default() }).collect(),
            links: gpus().map(quiet).collect(),
            aer_added: Vec::new(),
            xids: Some(Vec::new()),
            not_read: Vec::new(),
        })),
        rolling: None,
        findings: Vec::new(),
        advice: Vec::new(),
        verdict: Verdict::default(),
        timing: Timing::default(),
    }
}

pub(crate) fn found(report: &Report) -> Vec<Finding> {
    judge(report, &Settings::default())
}

#[test]
fn a_fault_from_before_the_job_is_not_the_jobs() {
    let mut machine = h200_vm(4);
    machine.gpus[1].ecc_uncorrected = Reading::Known(3);
    machine.gpus[2].throttle_reasons = Reading::Known(vec!["hw-thermal".into()]);
    assert_eq!(found(&report(&machine, &machine)), []);
    // The same memory has another error in the time of the job.
    let mut more = report(&machine, &machine);
    more.bracket.as_mut().unwrap().links[1].ecc_uncorrected_added = Some(2);
    let finding = only(&found(&more), "gpu-memory-errors", Severity::Error);
    assert!(
        finding.message.contains("2 uncorrected memory errors while the job ran"),
        "{}",
        finding.message
    );
}

#[test]
fn counters_are_judged_by_the_rules_of_a_check() {
    let machine = h200_vm(8);
    let mut job = report(&machine, &machine);
    let crc = NvLinkErrorsAdded { link: 7, crc: 12, ..NvLinkErrorsAdded::default() };
    job.bracket.as_mut().unwrap().links[6].nvlink_errors = Some(vec![crc]);
    let finding = only(&found(&job), "nvlink-errors-rose", Severity::Warning);
    assert_eq!(finding.subject, Subject::Link { index: 6, link: 7 });
    assert!(
        finding.message.contains("counted errors while the job ran: 12 CRC errors"),
        "{}",
        finding.message
    );

    // Two sockets over PCIe. 1000 replays within an hour are within the bit error rate; 200000 are not.
    let machine = two_sockets();
    let mut job = report(&machine, &machine);
    job.bracket.as_mut().unwrap().links[3].replays_added = Some(1000);
    assert_eq!(found(&job), []);
    job.bracket.as_mut().unwrap().links[3].replays_added = Some(200_000);
    let finding = only(&found(&job), "pcie-errors-rose", Severity::Warning);
    assert!(finding.message.ends_with("200000 replays while the job ran"), "{}", finding.message);
}

#[test]
fn a_gpu_that_fell_off_is_an_error() {
    let before = h200_vm(4);
    let mut after = before.clone();
    after.gpus.remove(2);
    let found = found(&report(&before, &after));
    let worst = found.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Error), "{found:#?}");
    assert!(found.iter().any(|finding| finding.code == fell_since_baseline::RULE.id), "{found:#?}");
}

#[test]
fn links_that_rest_after_the_job_are_no_fault() {
    let busy = two_sockets();
    let mut resting = busy.clone();
    for gpu in &mut resting.gpus {
        gpu.pcie_generation = generation(1);
        gpu.power_state = Reading::Known(8);
        gpu.sm_clock_mhz = Reading::Known(210);
        let address = gpu.pci.get().unwrap();
        let functions = resting.pci.iter_mut();
        for function in functions.filter(|function| function.address == address) {
            function.generation = generation(1);
        }
    }
    for (before, after) in [(&busy, &resting), (&resting, &busy)] {
        let worse = found(&report(before, after));
        let worse: Vec<_> =
            worse.iter().filter(|finding| finding.severity > Severity::Info).collect();
        assert!(worse.is_empty(), "{worse:#?}");
    }
}
