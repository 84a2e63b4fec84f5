//! Figures for tests, and the findings on them.

use std::sync::LazyLock;

use serde_json::Value;

use super::advice_steps::wrong_advice;
use super::expectations::Expectations;
use super::rule::Rule;
use super::{Evidence, Settings, judge, verdict};
use model::finding::{Finding, Severity, Subject};
use model::flow::{HostMemory, Setup};
use model::host::{Allocation, HostCopy, HostDirection};
use model::live::LiveTalk;
use model::measurement::{
    CudaPeerAccess, Latency, LocalCopy, Measurements, PeerBandwidth, Verified,
};
use model::placement::{Pair, Path};
use model::reading::Reading;
use model::report::Report;
use model::request::Request;
use model::snapshot::Snapshot;
use model::step;
use model::testing::host_copy;
use model::topology::Topology;
use model::units::{Bytes, GIB, GbPerSecond};
use topology::{build, host, refute, with_cuda};

/// Imports that most tests of rules need.
pub(crate) mod prelude {
    pub(crate) use super::{
        advises, assert_advice, exit, fact, findings, is, measured, only, pair, set, touches,
        within,
    };
    pub(crate) use model::reading::Reading;
    pub(crate) use model::testing::{
        empty, function, function_mut, generation, h200_vm, lanes, nvlink_bridge, pci, two_sockets,
    };
}

/// Returns a reference figure of a pair.
pub(crate) fn cell(pair: Pair, path: Path, gbps: f64) -> PeerBandwidth {
    let setup = Setup::REFERENCE.with_path(path).with_bytes(Bytes(GIB));
    PeerBandwidth {
        achieved_gbps: Some(GbPerSecond(gbps)),
        samples: 5,
        spread_percent: Some(1.0),
        verified: Verified::Ok,
        ..PeerBandwidth::blank(pair, setup)
    }
}

/// Returns the machine with GPUs of a model without known figures, which the classes of links judge.
pub(crate) fn of_no_known_model(mut machine: Snapshot) -> Snapshot {
    machine.gpus.iter_mut().for_each(|gpu| gpu.name = Reading::Known("NVIDIA H20".into()));
    machine
}

/// Returns every pair at this share of its theoretical rate, and access for all.
pub(crate) fn measured(machine: &Snapshot, share: f64) -> Measurements {
    let mut measurements = Measurements::default();
    for route in build(machine).pairs {
        let rate = route.theoretical_gbps.map_or(10.0, |rate| rate.0 * share);
        measurements.peer.push(cell(route.pair, Path::Direct, rate));
        let access = CudaPeerAccess {
            pair: route.pair,
            possible: Some(true),
            failure: None,
            failure_code: None,
            hindered: false,
        };
        measurements.driver.peer_access.push(access);
    }
    measurements
}

/// Returns an ordered pair.
pub(crate) const fn pair(source: u32, destination: u32) -> Pair {
    Pair { source, destination }
}

/// Returns every pair at a usual rate, and kernels of every pair that see all of each other's stores.
pub(crate) fn with_talks(machine: &Snapshot) -> Measurements {
    let mut measurements = measured(machine, 0.88);
    let pairs: Vec<Pair> = measurements.peer.iter().map(|cell| cell.pair).collect();
    let talk = |pair| LiveTalk {
        push_us: Some(2.8),
        pull_us: Some(3.3),
        ll_us: Some(1.0),
        ll128_us: Some(1.0),
        simple_us: Some(4.9),
        atomics_us: Some(4.5),
        torn_ll: Some(0),
        torn_ll128: Some(0),
        early_ll128: Some(0),
        out_of_order: Some(0),
        torn_ll128_channels: Some(0),
        push_out_of_order: Some(0),
        pull_out_of_order: Some(0),
        atomics_lost: Some(0),
        native_atomics: Some(true),
        verified: Verified::Ok,
        ..LiveTalk::blank(pair, 300)
    };
    measurements.live = pairs.into_iter().map(talk).collect();
    measurements
}

/// Returns the time of a small copy.
pub(crate) fn latency(source: u32, destination: u32, path: Path, us: f64) -> Latency {
    let pair = Pair { source, destination };
    Latency {
        latency_us: Some(us),
        samples: 5,
        spread_percent: Some(1.0),
        ..Latency::blank(pair, path, Bytes(16))
    }
}

/// Returns the rate of copies within a GPU.
pub(crate) fn local(gpu: u32, gbps: f64) -> LocalCopy {
    LocalCopy {
        achieved_gbps: Some(GbPerSecond(gbps)),
        samples: 3,
        spread_percent: Some(1.0),
        ..LocalCopy::blank(gpu, Bytes(GIB))
    }
}

/// Returns true if this figure is of a pair with this GPU.
pub(crate) fn touches(cell: &PeerBandwidth, gpu: u32) -> bool {
    cell.pair.touches(gpu)
}

/// Returns true if this figure is of this pair.
pub(crate) fn is(cell: &PeerBandwidth, source: u32, destination: u32) -> bool {
    cell.pair == Pair { source, destination }
}

/// Returns the findings of all rules, after checking what must hold for every finding.
pub(crate) fn findings(machine: &Snapshot, measurements: Option<&Measurements>) -> Vec<Finding> {
    checked(machine, measurements, 0.0)
}

/// Returns the findings on a run that measured for this time.
pub(crate) fn within(
    machine: &Snapshot,
    measurements: &Measurements,
    measured_seconds: f64,
) -> Vec<Finding> {
    checked(machine, Some(measurements), measured_seconds)
}

fn checked(
    machine: &Snapshot,
    measurements: Option<&Measurements>,
    measured_seconds: f64,
) -> Vec<Finding> {
    let mut topology = build(machine);
    let mut measurements = measurements.cloned();
    if let Some(measurements) = &mut measurements {
        topology = with_cuda(topology, &measurements.driver);
        refute::readings(machine, &mut topology, measurements);
        host::fill(machine, &topology, &mut measurements.host);
    }
    let findings = judge(&Evidence {
        measured_seconds,
        ..without_request(machine, &topology, measurements.as_ref(), &Settings::default())
    });
    assert!(findings.is_sorted_by(|one, other| one.severity >= other.severity), "{findings:?}");
    for finding in &findings {
        assert!(
            !finding.message.is_empty()
                && !finding.steps.is_empty()
                && finding.next_step == step::sentences(&finding.steps)
                && !finding.evidence.is_empty()
        );
        assert_short(finding);
    }
    findings
}

/// Requires a short sentence that is complete and fits a line or two.
fn assert_short(finding: &Finding) {
    let short = finding.short();
    let gpus = match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
        Subject::Pair(pair) => pair.gpus().to_vec(),
        _ => Vec::new(),
    };
    let is_named = gpus.iter().all(|gpu| short.contains(&format!("GPU {gpu}")));
    let is_whole = !short.ends_with([':', ',', '(']) && !short.ends_with(" with");
    let is_short = short.chars().count() <= 140 || finding.code == "nothing-measured";
    assert!(is_named && is_whole && is_short, "{}: {short}", finding.code);
}

/// Returns the findings of all rules, with the user's settings.
pub(crate) fn with_settings(
    snapshot: &Snapshot,
    topology: &Topology,
    measurements: Option<&Measurements>,
    settings: &Settings,
) -> Vec<Finding> {
    judge(&without_request(snapshot, topology, measurements, settings))
}

pub(crate) fn without_request<'a>(
    snapshot: &'a Snapshot,
    topology: &'a Topology,
    measurements: Option<&'a Measurements>,
    settings: &'a Settings,
) -> Evidence<'a> {
    static REQUEST: LazyLock<Request> = LazyLock::new(Request::default);
    Evidence {
        request: &REQUEST,
        read_from: None,
        snapshot,
        topology,
        measurements,
        watched: None,
        measured_seconds: 0.0,
        settings,
        expectations: None,
        baseline: None,
        index: None,
        beliefs: None,
    }
}

/// Returns a fact of a finding as it appears in the report.
pub(crate) fn fact(finding: &Finding, key: &str) -> Value {
    serde_json::to_value(&finding.evidence).unwrap()[key].clone()
}

pub(crate) fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| &*finding.code).collect()
}

/// Returns the codes and subjects of the findings.
pub(crate) fn subjects(findings: &[Finding]) -> Vec<(&str, String)> {
    findings.iter().map(|finding| (&*finding.code, finding.subject.to_string())).collect()
}

/// Sets the rate of the figures that `which` selects.
pub(crate) fn set(
    measurements: &mut Measurements,
    gbps: f64,
    which: impl Fn(&PeerBandwidth) -> bool,
) {
    for cell in measurements.peer.iter_mut().filter(|cell| which(cell)) {
        cell.achieved_gbps = Some(GbPerSecond(gbps));
    }
}

/// Returns the findings except those of this rule, which reports the same setting by itself.
pub(crate) fn without(code: &str, mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(|finding| finding.code != code);
    findings
}

/// Returns the only finding, which has this code and severity.
pub(crate) fn only(findings: &[Finding], code: &str, severity: Severity) -> Finding {
    match findings {
        [finding] if &*finding.code == code && finding.severity == severity => finding.clone(),
        _ => panic!(
            "wanted {code} ({severity:?}) alone, found {}:\n{}",
            findings.len(),
            in_lines(findings)
        ),
    }
}

/// Checks that the message of a finding has these words.
pub(crate) fn assert_says(finding: &Finding, words: &str) {
    assert!(finding.message.contains(words), "{}", finding.message);
}

/// Returns a line for each finding: code, severity, subject and message.
pub(crate) fn in_lines(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let Finding { code, severity, subject, message, .. } = finding;
        format!("  {code} ({severity:?}) {subject}: {message}")
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns true if a finding has this step.
pub(crate) fn advises(finding: &Finding, id: &str) -> bool {
    finding.steps.iter().any(|step| step.id == id)
}

/// Requires a finding of this rule whose advice has these steps, may have those, and has no others: a row of
/// tests/machines/advice.toml for facts that no machine description has.
#[track_caller]
pub(crate) fn assert_advice(rule: &Rule, findings: &[Finding], must: &[&str], may: &[&str]) {
    let own: Vec<_> = findings.iter().filter(|found| found.code == rule.id).collect();
    assert!(!own.is_empty(), "no {}:\n{}", rule.id, in_lines(findings));
    for found in own {
        let wrong = wrong_advice(&serde_json::to_value(found).unwrap(), must, may);
        assert_eq!(wrong, None);
    }
}

/// Returns the recorded report of two H200.
pub(crate) fn recorded() -> Report {
    serde_json::from_str(include_str!("../../tests/data/h200x2-standard.json")).unwrap()
}

/// Returns all findings in [`recorded`] with this change, beside itself without it.
pub(crate) fn beside_recorded(change: impl FnOnce(&mut Report)) -> Vec<Finding> {
    let (old, mut new) = (recorded(), recorded());
    change(&mut new);
    judge(&Evidence { baseline: Some(&old), ..Evidence::of(&new, &Settings::default()) })
}

/// Returns all findings in [`recorded`] with this change, where this is expected.
pub(crate) fn expecting(expectations: &str, change: impl FnOnce(&mut Report)) -> Vec<Finding> {
    let mut report = recorded();
    change(&mut report);
    let expected = Expectations::parse(expectations).unwrap();
    judge(&Evidence {
        expectations: Some(&expected),
        ..Evidence::of(&report, &Settings::default())
    })
}

/// Returns the exit code with `--fail-on error`.
pub(crate) fn exit(findings: &[Finding], measurements: Option<&Measurements>) -> u8 {
    verdict(findings, measurements, Severity::Error).exit_code
}

/// Returns [`measured`], with copies from and to the host at these rates, GPU by GPU.
pub(crate) fn with_host(machine: &Snapshot, rates: &[f64]) -> Measurements {
    let mut measurements = measured(machine, 0.88);
    for (gpu, rate) in (0..).zip(rates) {
        let up = host_copy(gpu, *rate);
        measurements.host.push(HostCopy { direction: HostDirection::ToHost, ..up.clone() });
        measurements.host.push(up);
    }
    measurements
}

/// Adds copies of other memory, at this rate, for every host copy.
pub(crate) fn with_memory(
    measurements: &mut Measurements,
    memory: HostMemory,
    allocation: Allocation,
    gbps: f64,
) {
    let added = measurements
        .host
        .iter()
        .filter(|copy| copy.memory == HostMemory::Pinned && copy.at_once == 1);
    let other = |copy: &HostCopy| HostCopy {
        memory,
        allocation,
        achieved_gbps: Some(GbPerSecond(gbps)),
        ..copy.clone()
    };
    let added: Vec<_> =
        added.filter(|copy| copy.allocation == Allocation::Reused).map(other).collect();
    measurements.host.extend(added);
}

#[test]
fn findings_are_a_line_each() {
    let finding = |subject| {
        Finding::new(
            model::finding::RuleId::new("pcie-narrow"),
            Severity::Error,
            subject,
            "4 of 16 lanes",
            Vec::new(),
        )
    };
    let findings = [Subject::Gpu { index: 3 }, Subject::Machine].map(finding);
    let wanted =
        "  pcie-narrow (Error) GPU 3: 4 of 16 lanes\n  pcie-narrow (Error) machine: 4 of 16 lanes";
    assert_eq!(in_lines(&findings), wanted);
}
